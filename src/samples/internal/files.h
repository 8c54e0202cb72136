// Files of a dataset: listing, reading, and what identifies them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "os/readable_tree.h"

namespace varda::samples::internal {

/// Ignores case.
bool has_extension(std::string_view name, std::string_view extension);

/// `name`, joined with a slash. A name from a file's content: kForbidden if the name is absolute or
/// leads out with "..".
Result<os::Path> path_below(const os::Path& folder, std::string_view name);

/// The whole file. kExhausted: larger than `bytes_max`.
Result<std::string> read_whole(os::ReadableFile& file, std::uint64_t bytes_max);

/// kConflict if the file was replaced or has shrunk since open(). A file may grow meanwhile.
Status check_unchanged(os::ReadableFile& file, const os::FileFacts& before);

/// Fills `bytes`. kCorrupt: the file is shorter.
Status read_exactly(os::ReadableFile& file, std::uint64_t offset, std::span<char> bytes);

/// The fingerprint of a dataset, fed in a fixed order. Not thread-safe.
class Fingerprint {
 public:
  static constexpr std::uint64_t kDataWindow = 64 << 10, kImageWindow = 4 << 10;

  /// A file by name, size, and its first and last bytes.
  Status add_file(std::string_view name, os::ReadableFile& file, std::uint64_t window);
  void add_text(std::string_view text);
  /// Bytes of a file in pieces; between two files belongs an add_text().
  void add_bytes(std::string_view bytes) { hash_.update(bytes); }
  /// Call once.
  std::string text() { return "sha256:" + hash_.finish().hex(); }

 private:
  codec::Sha256Stream hash_;
};

/// A file below a folder.
struct Found {
  const std::string& folder;  // below the root; "": the root
  const std::string& name;
  std::uint64_t size_bytes = 0;
  std::function<Result<std::unique_ptr<os::ReadableFile>>()> open;
};

/// Visits all files with a wanted name, in the order of their names: a folder's files, then each
/// subfolder. Names that begin with '.' are skipped. Links to files are followed, links to folders
/// are not. kInvalid: deeper than dataset::kFolderDepthMax.
Status visit_files(const Context& ctx, os::ReadableTree& tree, const os::Path& root,
                   const std::function<bool(std::string_view name)>& wanted,
                   const std::function<Status(const Found& found)>& visit);

/// Names of the files and links in one folder, sorted.
Result<std::set<std::string>> file_names(os::ReadableTree& tree, const os::Path& folder);

/// Many names in little memory: their bytes, and 8 more each.
class Names {
 public:
  /// Returns the number of the name.
  std::size_t add(std::string_view name) {
    bytes_ += name;
    ends_.push_back(bytes_.size());
    return ends_.size() - 1;
  }
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t number) const {
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return std::string_view(bytes_).substr(begin, ends_[number] - begin);
  }

 private:
  std::string bytes_;
  std::vector<std::size_t> ends_;
};

}  // namespace varda::samples::internal
