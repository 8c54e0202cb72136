// A new file that appears complete or not at all, and never replaces another file. A process that
// is killed before keep() leaves nothing, or PATH.part if the file system has no O_TMPFILE.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::os {

/// Not thread-safe. Mode 0600.
class NewFile {
 public:
  /// kAlreadyExists: `path` is there.
  static Result<NewFile> create(const std::filesystem::path& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  /// kExhausted: the disk is full.
  Status write(std::string_view bytes);
  /// Reads back the written bytes from the start: returns the next piece, empty at the end.
  Result<std::string> read();
  /// Syncs the file and gives it its name. kAlreadyExists: `path` has appeared meanwhile.
  Status keep();

 private:
  NewFile(std::filesystem::path path, std::filesystem::path part, int fd);
  std::filesystem::path path_, part_;  // part_: the name before keep(); empty: no name
  int fd_ = -1;
  long long read_ = 0;
};

}  // namespace varda::os
