// Which entries of an archive are safe, and where they go. Pure: no files are touched here.
//
// What holds after an archive was admitted whole: every name stands once and below the root; what is above a name is a directory
// made by this archive, never a link; a symbolic link resolves inside the tree whatever other links it meets on its way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "artifact/limits.h"
#include "base/result.h"
#include "codec/archive.h"

namespace varda::artifact {

/// "a/b/" and "./a//b" become "a/b"; "" is the root itself. kInvalid: absolute, "..", control characters, too long, too deep.
Result<std::string> normalise_entry_path(std::string_view path, const Limits& limits);

class EntryRules {
 public:
  explicit EntryRules(const Limits& limits) : limits_(limits) {}

  struct Admitted {
    std::string path;         // "" for the root: nothing to do
    std::string link_source;  // of a hard link: the earlier file it repeats
  };
  /// kInvalid: the archive is refused; the message names the entry.
  Result<Admitted> admit(const codec::ArchiveEntry& entry);
  /// `bytes` more were extracted when `archive_bytes` of the archive had been read.
  Status count(std::uint64_t bytes, std::uint64_t archive_bytes);
  /// After the last entry: what only the whole tree can tell.
  Status finish() const;

  /// The only directory at the root, if that is all there is: it is stripped. Else "".
  const std::string& single_top() const { return only_top_ ? top_ : none_; }
  /// Every directory, parents first.
  const std::vector<std::string>& directories() const { return directories_; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t files() const { return files_; }

 private:
  Status add(const std::string& path, codec::EntryKind kind);
  Status check_symlink(std::string_view path, std::string_view target);

  Limits limits_;
  std::unordered_map<std::string, codec::EntryKind> names_;
  std::vector<std::string> directories_;
  std::string top_, none_;
  bool only_top_ = false;
  std::string link_to_root_;  // a link that climbs to the archive's root: outside once the top is stripped
  std::uint64_t bytes_ = 0;
  std::size_t files_ = 0;
};

}  // namespace varda::artifact
