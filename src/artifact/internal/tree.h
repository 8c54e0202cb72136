// Walks, links and compares trees of files. Symbolic links are never followed.
#pragma once

#include <functional>

#include "os/file_system.h"

namespace varda::artifact {

/// Called for every entry below `root`, parents first, siblings by name. `path` is relative. The
/// first error ends the walk.
using Visit = std::function<Status(const os::Path& path, const os::FileInfo& info)>;
Status walk(os::FileSystem& fs, const os::Path& root, const Visit& visit);

/// `to` becomes a copy of `from` made of hard links, directories synced. `to` must not exist.
Status link_tree(os::FileSystem& fs, const os::Path& from, const os::Path& to);
/// True if both trees have the same names with the same files (inodes).
Result<bool> same_tree(os::FileSystem& fs, const os::Path& a, const os::Path& b);

struct TreeUse {
  std::uint64_t bytes = 0;
  bool linked = false;  // a file has a second link elsewhere
};
Result<TreeUse> tree_use(os::FileSystem& fs, const os::Path& root);

}  // namespace varda::artifact
