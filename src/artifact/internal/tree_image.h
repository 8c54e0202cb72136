// The tar archive that `varda pack` would make of a directory, readable at any place without being
// written. A node keeps no archives, so this finds the bytes that a new archive shares with a tree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact/internal/pack_items.h"

namespace varda::artifact {

/// Headers are made again whenever they are read, so an image needs little memory. Files that
/// change give other bytes or an error, which the reader must expect. Not thread-safe.
class TreeImage {
 public:
  static Result<std::unique_ptr<TreeImage>> open(os::FileSystem& fs, const os::Path& directory,
                                                 const Limits& limits);
  std::uint64_t size() const { return end_ + 2 * codec::kTarBlockBytes; }
  /// Between 1 and `max` bytes from `offset`; empty at the end.
  Result<std::string> read(std::uint64_t offset, std::size_t max);

 private:
  struct Entry {
    PackItem item;
    std::uint64_t start = 0;  // offset of the header
    std::uint64_t header_bytes = 0;
  };
  TreeImage(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}
  Result<std::string> read_file(std::size_t index, std::uint64_t offset, std::size_t max);

  os::FileSystem& fs_;
  const os::Path directory_;
  std::vector<Entry> entries_;
  std::uint64_t end_ = 0;  // offset of the final zeros
  std::unique_ptr<os::File> file_;
  std::size_t file_index_ = 0;  // the entry of file_
};

}  // namespace varda::artifact
