// Trees of files: walk, link, compare. Symbolic links are never followed.
#pragma once

#include <functional>

#include "os/file_system.h"

namespace varda::artifact {

/// Every entry below `root`, parents first, siblings by name. `path` is relative. The first error ends the walk.
using Visit = std::function<Status(const os::Path& path, const os::FileInfo& info)>;
Status walk(os::FileSystem& fs, const os::Path& root, const Visit& visit);

/// `to` becomes a copy of `from` made of hard links, directories synced. `to` must not exist.
Status link_tree(os::FileSystem& fs, const os::Path& from, const os::Path& to);
/// Both have the same names, and the same files (inodes) behind them.
Result<bool> same_tree(os::FileSystem& fs, const os::Path& a, const os::Path& b);

struct TreeUse {
  std::uint64_t bytes = 0;
  bool linked = false;  // a file of it has a second name elsewhere
};
Result<TreeUse> tree_use(os::FileSystem& fs, const os::Path& root);

}  // namespace varda::artifact
