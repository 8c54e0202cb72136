#include "artifact/internal/pack_items.h"

#include "artifact/internal/tree.h"

namespace varda::artifact {
namespace {

Result<std::vector<PackItem>> collect(os::FileSystem& fs, const os::Path& directory) {
  std::vector<PackItem> items;
  TRY_VOID(walk(fs, directory, [&](const os::Path& path, const os::FileInfo& info) -> Status {
    PackItem item{path, {}};
    item.entry.path = path.string();
    switch (info.kind) {
      case os::FileKind::kFile:
        item.entry.kind = codec::EntryKind::kFile;
        item.entry.size_bytes = info.size_bytes;
        item.entry.mode = (info.mode & 0111) != 0 ? 0755 : 0644;
        break;
      case os::FileKind::kDirectory:
        item.entry.kind = codec::EntryKind::kDirectory;
        item.entry.mode = 0755;
        break;
      case os::FileKind::kSymlink: {
        TRY(item.entry.link_target, fs.read_link(directory / path));
        item.entry.kind = codec::EntryKind::kSymlink;
        item.entry.mode = 0777;
        break;
      }
      case os::FileKind::kOther:
        item.entry.kind = codec::EntryKind::kOther;
        break;
    }
    items.push_back(std::move(item));
    return {};
  }));
  return items;
}

}  // namespace

Status admit_items(EntryRules& rules, const std::vector<PackItem>& items) {
  for (const PackItem& item : items) {
    TRY_VOID([&]() -> Status {
      TRY([[maybe_unused]] const auto admitted, rules.admit(item.entry));
      return {};
    }());
  }
  return rules.finish();
}

Result<std::vector<PackItem>> pack_items(os::FileSystem& fs, const os::Path& directory,
                                         const Limits& limits, EntryRules& rules) {
  TRY(auto items, collect(fs, directory));
  TRY_VOID(admit_items(rules, items).context(directory.string()));
  if (rules.single_top().empty()) return items;
  for (PackItem& item : items) item.entry.path = "model/" + item.entry.path;
  items.insert(items.begin(), PackItem{{},
                                       {.path = "model",
                                        .kind = codec::EntryKind::kDirectory,
                                        .mode = 0755,
                                        .link_target = ""}});
  rules = EntryRules(limits);
  TRY_VOID(admit_items(rules, items).context(directory.string()));
  return items;
}

}  // namespace varda::artifact
