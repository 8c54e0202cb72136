// Walks through an untrusted folder. Links do not lead out, names and depth are bounded, and
// unreadable entries are reported.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/internal/scanner.h"

namespace varda::dataset {

/// Ignores case. False for a name that is only the extension.
bool has_extension(std::string_view name, std::string_view extension);

/// Keeps the first problem by file name, in whatever order entries come.
class FolderTally {
 public:
  explicit FolderTally(Tally& tally) : tally_(tally) {}
  void malformed(const std::string& file, std::string why, std::uint64_t line = 0,
                 std::uint64_t byte = 0);
  /// Records an unreadable entry, so samples may be missing.
  void inexact(const std::string& file, std::string_view why);
  /// Adds the samples and problems of one file. The header is set if it is the same in all files.
  void add(const std::string& file, const Tally& tally);

 private:
  Tally& tally_;
  std::string inexact_file_;
  bool headers_differ_ = false;
};

struct FolderEntry {
  std::string path;  // below the root
  os::FileFacts facts;
  os::ReadableDirectory* directory =
      nullptr;  // the folder with `name`; nullptr: open `absolute`, behind a link
  std::string name;
  os::Path absolute;
};

struct WalkOptions {
  std::string below;          // the folder to walk, below the root; "": the root
  std::size_t depth_max = 0;  // 0: the folder itself only
  std::function<bool(std::string_view name)> wanted;
};

/// Calls `visit` with every regular file that has a wanted name, in no particular order. A link to
/// a file counts as a file. Names that begin with '.' are skipped with everything below. Links to
/// folders are not entered. Such links, unlistable folders, too deep folders and folders that
/// change during listing make the tally inexact. Not thread-safe.
class Walk {
 public:
  using Visit =
      std::function<std::uint64_t(const FolderEntry&)>;  // returns the number of bytes read
  Walk(const TreeScan::Surroundings& around, WalkOptions options, FolderTally& tally, Visit visit);
  ~Walk();
  Status begin();
  /// Like TreeScan::resume().
  Result<bool> resume(const Context& ctx, std::uint64_t steps);
  std::uint64_t entries() const { return entries_; }

 private:
  /// A folder being listed: one per level, so depth bounds the number of open folders.
  struct Level {
    std::unique_ptr<os::ReadableDirectory> directory;
    std::string path;
    os::FileFacts facts;  // facts at the start of the listing
  };
  std::uint64_t visit(const os::ReadableDirectory::Entry& entry);
  void push(std::unique_ptr<os::ReadableDirectory> directory, std::string path);
  void pop();
  void enter(const FolderEntry& found);
  bool follow(FolderEntry& found);

  const TreeScan::Surroundings& around_;
  const WalkOptions options_;
  FolderTally& tally_;
  const Visit visit_;
  std::vector<Level> levels_;
  std::uint64_t entries_ = 0;
};

}  // namespace varda::dataset
