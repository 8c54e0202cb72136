// Decides which entries of an archive are safe, and their paths. Pure: touches no files.
//
// After a whole archive was admitted, every name is unique and below the root. The parents of a
// name are directories made by this archive, never links. A symbolic link resolves inside the tree,
// also through other links.
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

/// "a/b/" and "./a//b" become "a/b"; "" is the root itself. kInvalid: absolute, "..", control
/// characters, too long, too deep.
Result<std::string> normalise_entry_path(std::string_view path, const Limits& limits);

class EntryRules {
 public:
  explicit EntryRules(const Limits& limits) : limits_(limits) {}

  struct Admitted {
    std::string path;         // "" for the root: no work
    std::string link_source;  // for a hard link: the earlier file that it repeats
  };
  /// kInvalid: the archive is refused; the message names the entry.
  Result<Admitted> admit(const codec::ArchiveEntry& entry);
  /// Records `bytes` more extracted bytes, after `archive_bytes` of the archive were read.
  Status count(std::uint64_t bytes, std::uint64_t archive_bytes);
  /// After the last entry: checks that need the whole tree.
  Status finish() const;

  /// The single directory at the root, which is stripped; "" if the root has more entries.
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
  std::string link_to_root_;  // a link to the archive's root, outside once the top is stripped
  std::uint64_t bytes_ = 0;
  std::size_t files_ = 0;
};

}  // namespace varda::artifact
