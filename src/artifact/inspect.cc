#include "artifact/inspect.h"

#include <map>

#include "artifact/internal/names.h"
#include "artifact/internal/tree.h"
#include "artifact/internal/tree_record.h"

namespace varda::artifact {
namespace {

// The inode of a tree's first file. Hard links share it, wherever the tree is exposed.
Result<std::uint64_t> first_inode(os::FileSystem& fs, const os::Path& tree) {
  std::uint64_t inode = 0;
  TRY_VOID(walk(fs, tree, [&](const os::Path&, const os::FileInfo& info) {
    if (inode == 0 && info.kind == os::FileKind::kFile) inode = info.inode;
    return ok_status();
  }));
  return inode;
}

Result<std::vector<std::string>> directories(os::FileSystem& fs, const os::Path& parent) {
  std::vector<std::string> out;
  TRY(const auto existing, fs.stat(parent));
  if (!existing || existing->kind != os::FileKind::kDirectory) return out;
  TRY(const auto names, fs.list(parent));
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    TRY(const auto info, fs.stat(parent / name));
    if (info && info->kind == os::FileKind::kDirectory) out.push_back(name);
  }
  return out;
}

Status name_models(os::FileSystem& fs, const os::Path& models,
                   const std::map<std::uint64_t, Found*>& by_inode) {
  TRY(const auto namespaces, directories(fs, models));
  for (const std::string& ns : namespaces) {
    TRY(const auto names, directories(fs, models / ns));
    for (const std::string& name : names) {
      TRY(const auto versions, directories(fs, models / ns / name));
      for (const std::string& version : versions) {
        const auto inode = first_inode(fs, models / ns / name / version);
        if (!inode.ok() || *inode == 0) continue;  // removed meanwhile
        if (const auto found = by_inode.find(*inode); found != by_inode.end())
          found->second->models.push_back(ns + "/" + name + " " + version);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Found>> inspect(os::FileSystem& fs, const os::Path& root,
                                   const os::Path& models) {
  std::map<codec::Sha256, Found> all;
  TRY(const auto names, fs.list(root));
  for (const std::string& name : names) {
    const auto digest = codec::Sha256::parse(name);
    if (!digest.ok()) continue;
    const auto use = tree_use(fs, root / name);
    if (!use.ok()) continue;  // being removed
    all[*digest] = Found{.digest = *digest, .bytes = use->bytes, .exposed = use->linked};
  }
  if (const auto parts = fs.list(root / kScratchName); parts.ok()) {
    for (const std::string& name : *parts) {
      if (!name.ends_with(kPartSuffix)) continue;
      const auto digest =
          codec::Sha256::parse(std::string_view(name).substr(0, name.size() - kPartSuffix.size()));
      const auto info = fs.stat(root / kScratchName / name);
      if (!digest.ok() || !info.ok() || !*info || all.contains(*digest)) continue;
      all[*digest] = Found{.digest = *digest, .complete = false, .bytes = (*info)->size_bytes};
    }
  }
  TRY(const auto pinned, marked(fs, root, Mark::kPinned));
  TRY(const auto damaged, marked(fs, root, Mark::kDamaged));
  TRY(const auto protected_digests, read_protected(fs, root));
  std::map<std::uint64_t, Found*> by_inode;
  for (auto& [digest, found] : all) {
    found.pinned = pinned.contains(digest);
    found.damaged = damaged.contains(digest);
    found.wanted = protected_digests.contains(digest);
    if (!found.exposed) continue;
    if (const auto inode = first_inode(fs, root / digest.hex()); inode.ok() && *inode != 0)
      by_inode[*inode] = &found;
  }
  TRY_VOID(name_models(fs, models, by_inode));
  std::vector<Found> out;
  for (auto& [digest, found] : all) out.push_back(std::move(found));
  return out;
}

Result<Verdict> verify(const Context& ctx, os::FileSystem& fs, const os::Path& root,
                       const codec::Sha256& digest) {
  const os::Path tree = root / digest.hex();
  TRY(const auto before, fs.stat(tree));
  if (!before) return Verdict{Verdict::Kind::kMissing, {}};
  auto differences = compare_with_record(ctx, fs, tree, root / kRecordsName / digest.hex());
  if (!differences.ok()) {
    TRY(const auto still, fs.stat(tree));
    if (!still || still->inode != before->inode) return Verdict{Verdict::Kind::kMissing, {}};
    // Missing permission or a stop proves nothing about the artifact, unlike a missing or corrupt
    // record.
    const Code code = differences.error().code();
    if (code != Code::kNotFound && code != Code::kCorrupt) return differences.error();
    return Verdict{Verdict::Kind::kUnknown, {differences.error().message()}};
  }
  if (differences->empty()) return Verdict{};
  // Differences of a tree that was removed or replaced meanwhile mean nothing.
  TRY(const auto after, fs.stat(tree));
  if (!after || after->inode != before->inode) return Verdict{Verdict::Kind::kMissing, {}};
  TRY_VOID(set_mark(fs, root, digest, Mark::kDamaged)
               .context(digest.hex() + " is damaged, and the mark cannot be written"));
  return Verdict{Verdict::Kind::kDamaged, std::move(*differences)};
}

}  // namespace varda::artifact
