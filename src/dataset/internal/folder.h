// Walking through a folder whose entries somebody else made: links do not lead out, names and depth have bounds, and what could not
// be looked at is told.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/internal/scanner.h"

namespace varda::dataset {

/// Upper and lower case are the same. A name that is nothing but the extension has none.
bool has_extension(std::string_view name, std::string_view extension);

/// Keeps what is first by file name, in whatever order the folder gives its entries.
class FolderTally {
 public:
  explicit FolderTally(Tally& tally) : tally_(tally) {}
  void malformed(const std::string& file, std::string why, std::uint64_t line = 0, std::uint64_t byte = 0);
  /// Something could not be looked at, so samples may be missing.
  void inexact(const std::string& file, std::string_view why);

 private:
  Tally& tally_;
  std::string inexact_file_;
};

struct FolderEntry {
  std::string path;  // below the root
  os::FileFacts facts;
  os::ReadableDirectory* directory = nullptr;  // it lies in it under `name`; nullptr: open `absolute`, behind a link
  std::string name;
  os::Path absolute;
};

struct WalkOptions {
  std::string below;          // the folder to walk through, below the root; "" for the root
  std::size_t depth_max = 0;  // 0: the folder itself only
  bool (*wanted)(std::string_view name) = nullptr;
};

/// Calls `visit` with every regular file whose name is wanted, in no order; a link to one counts as one. Names that begin with '.'
/// are left out with all below them. Links to folders are not entered; they, folders that cannot be listed, those too deep and
/// those that change while they are listed make the tally inexact. Not thread-safe.
class Walk {
 public:
  using Visit = std::function<std::uint64_t(const FolderEntry&)>;  // how many bytes that read
  Walk(const TreeScan::Surroundings& around, WalkOptions options, FolderTally& tally, Visit visit);
  ~Walk();
  Status begin();
  /// As TreeScan::go_on().
  Result<bool> go_on(const Context& ctx, std::uint64_t steps);
  std::uint64_t entries() const { return entries_; }

 private:
  /// A folder being listed: one a level, so no more of them are open than folders may be deep.
  struct Level {
    std::unique_ptr<os::ReadableDirectory> directory;
    std::string path;
    os::FileFacts facts;  // when its listing began
  };
  std::uint64_t look_at(const os::ReadableDirectory::Entry& entry);
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
