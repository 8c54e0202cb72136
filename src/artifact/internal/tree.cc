#include "artifact/internal/tree.h"

#include <map>

namespace varda::artifact {
namespace {

Status walk_below(os::FileSystem& fs, const os::Path& root, const os::Path& relative,
                  const Visit& visit) {
  TRY(const auto names, fs.list(relative.empty() ? root : root / relative));
  for (const std::string& name : names) {
    const os::Path path = relative.empty() ? os::Path(name) : relative / name;
    TRY(const auto info, fs.stat(root / path));
    if (!info) continue;  // removed since the listing
    TRY_VOID(visit(path, *info));
    if (info->kind == os::FileKind::kDirectory) TRY_VOID(walk_below(fs, root, path, visit));
  }
  return {};
}

}  // namespace

Status walk(os::FileSystem& fs, const os::Path& root, const Visit& visit) {
  return walk_below(fs, root, {}, visit);
}

Status link_tree(os::FileSystem& fs, const os::Path& from, const os::Path& to) {
  TRY_VOID(fs.make_directories(to, 0755));
  std::vector<os::Path> directories{to};
  TRY_VOID(walk(fs, from, [&](const os::Path& path, const os::FileInfo& info) -> Status {
    switch (info.kind) {
      case os::FileKind::kDirectory:
        directories.push_back(to / path);
        return fs.make_directories(to / path, 0755);
      case os::FileKind::kSymlink: {
        TRY(const std::string target, fs.read_link(from / path));
        return fs.symlink(target, to / path);
      }
      case os::FileKind::kFile:
        return fs.link(from / path, to / path);
      case os::FileKind::kOther:
        break;
    }
    return Error(Code::kInternal, (from / path).string() + ": neither file, directory nor link");
  }));
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
    TRY_VOID(fs.sync_directory(*directory));
  return {};
}

Result<bool> same_tree(os::FileSystem& fs, const os::Path& a, const os::Path& b) {
  using Tree = std::map<std::string, std::pair<os::FileKind, std::uint64_t>>;
  const auto read = [&fs](const os::Path& root) -> Result<Tree> {
    Tree tree;
    TRY_VOID(walk(fs, root, [&](const os::Path& path, const os::FileInfo& info) {
      tree.emplace(path.string(),
                   std::pair(info.kind, info.kind == os::FileKind::kFile ? info.inode : 0));
      return ok_status();
    }));
    return tree;
  };
  TRY(const Tree left, read(a));
  TRY(const Tree right, read(b));
  return left == right;
}

Result<TreeUse> tree_use(os::FileSystem& fs, const os::Path& root) {
  TreeUse use;
  TRY_VOID(walk(fs, root, [&](const os::Path&, const os::FileInfo& info) {
    if (info.kind == os::FileKind::kFile) {
      use.bytes += info.size_bytes;
      use.linked = use.linked || info.links > 1;
    }
    return ok_status();
  }));
  return use;
}

}  // namespace varda::artifact
