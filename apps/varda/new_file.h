// A file that appears whole or not at all, and never in place of another: whatever happens before keep(), nothing is left of it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::app {

/// Not thread-safe. Mode 0600.
class NewFile {
 public:
  /// kAlreadyExists: `path` is there.
  static Result<NewFile> create(const std::filesystem::path& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  /// kExhausted: disk full.
  Status write(std::string_view bytes);
  /// From the beginning, for a look at what was written: the next piece; empty at the end.
  Result<std::string> read();
  /// On disk and named, after this. kAlreadyExists: somebody made `path` meanwhile.
  Status keep();

 private:
  NewFile(std::filesystem::path path, std::filesystem::path part, int fd);
  std::filesystem::path path_, part_;  // part_: its name until then; empty: it has none
  int fd_ = -1;
  long long read_ = 0;
};

}  // namespace varda::app
