#include "samples/internal/files.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "codec/text.h"
#include "dataset/format.h"

namespace varda::samples::internal {
namespace {

struct Listed {
  std::string name;
  os::FileKind kind = os::FileKind::kFile;
  std::uint64_t size_bytes = 0;
};

using Wanted = std::function<bool(std::string_view name)>;
using Visit = std::function<Status(const Found& found)>;

/// One visit_files().
struct FolderWalk {
  const Context& ctx;
  os::ReadableTree& tree;
  const os::Path& root;
  const Wanted& wanted;
  const Visit& visit;

  Status enter(os::ReadableDirectory& directory, const std::string& folder, std::size_t depth) {
    if (depth > dataset::kFolderDepthMax)
      return Error(Code::kInvalid, folder + ": deeper than " +
                                       std::to_string(dataset::kFolderDepthMax) + " folders");
    TRY(const std::vector<Listed> entries, list(directory, folder));
    for (const Listed& entry : entries) {
      if (entry.kind != os::FileKind::kFile && entry.kind != os::FileKind::kSymlink) continue;
      TRY_VOID(ctx.check());
      const bool link = entry.kind == os::FileKind::kSymlink;
      const os::Path absolute = link ? root / folder / entry.name : os::Path();
      TRY_VOID(visit(
          {.folder = folder, .name = entry.name, .size_bytes = entry.size_bytes, .open = [&]() {
             return link ? tree.open(absolute) : directory.open(entry.name);
           }}));
    }
    for (const Listed& entry : entries) {
      if (entry.kind != os::FileKind::kDirectory) continue;
      TRY_VOID(ctx.check());
      TRY(const auto below, directory.descend(entry.name));
      TRY_VOID(enter(*below, folder.empty() ? entry.name : folder + "/" + entry.name, depth + 1));
    }
    return {};
  }

  /// Sorted by name.
  Result<std::vector<Listed>> list(os::ReadableDirectory& directory, const std::string& folder) {
    std::vector<Listed> out;
    for (;;) {
      TRY(auto entry, directory.next());
      if (!entry) break;
      if (entry->name.starts_with('.')) continue;
      Listed one{std::move(entry->name), entry->facts.kind, entry->facts.size_bytes};
      if (one.kind == os::FileKind::kSymlink) {
        const auto facts = tree.facts(root / folder / one.name);
        const bool is_wanted = wanted(one.name);
        if (!facts.ok() && is_wanted) return facts.error();
        if (!facts.ok() || facts->kind != os::FileKind::kFile) continue;
        one.size_bytes = facts->size_bytes;
      }
      if (one.kind == os::FileKind::kDirectory || wanted(one.name)) out.push_back(std::move(one));
    }
    std::sort(out.begin(), out.end(),
              [](const Listed& a, const Listed& b) { return a.name < b.name; });
    return out;
  }
};

}  // namespace

bool has_extension(std::string_view name, std::string_view extension) {
  return name.size() > extension.size() &&
         equal_ignoring_case(name.substr(name.size() - extension.size()), extension);
}

Result<os::Path> path_below(const os::Path& folder, std::string_view name) {
  const os::Path path = os::Path(name).lexically_normal();
  if (path.empty() || path.is_absolute() || *path.begin() == ".." ||
      name.find('\0') != std::string_view::npos)
    return Error(Code::kForbidden, "the path " + codec::quote(codec::clipped(name, 256)) +
                                       " does not lie below the dataset's folder; make the path "
                                       "relative");
  return folder / path;
}

Result<std::string> read_whole(os::ReadableFile& file, std::uint64_t bytes_max) {
  TRY(const os::FileFacts facts, file.facts());
  if (facts.size_bytes > bytes_max)
    return Error(Code::kExhausted,
                 "the file has more than " + std::to_string(bytes_max >> 20) + " MiB");
  std::string out(static_cast<std::size_t>(facts.size_bytes), '\0');
  TRY(const std::size_t count, file.read(0, out));
  out.resize(count);
  return out;
}

Status check_unchanged(os::ReadableFile& file, const os::FileFacts& before) {
  TRY(const os::FileFacts now, file.facts());
  if (now.device == before.device && now.inode == before.inode &&
      now.size_bytes >= before.size_bytes)
    return {};
  return Error(Code::kConflict, "the file changed during the training; start again");
}

Status read_exactly(os::ReadableFile& file, std::uint64_t offset, std::span<char> bytes) {
  TRY(const std::size_t count, file.read(offset, bytes));
  if (count < bytes.size()) return Error(Code::kCorrupt, "the file ends too early");
  return {};
}

Status Fingerprint::add_file(std::string_view name, os::ReadableFile& file, std::uint64_t window) {
  TRY(const os::FileFacts facts, file.facts());
  add_text(name);
  add_text(std::to_string(facts.size_bytes));
  std::string bytes(static_cast<std::size_t>(std::min(facts.size_bytes, window)), '\0');
  TRY_VOID(read_exactly(file, 0, bytes));
  hash_.update(bytes);
  if (facts.size_bytes > window) {
    bytes.resize(static_cast<std::size_t>(std::min(facts.size_bytes - window, window)));
    TRY_VOID(read_exactly(file, facts.size_bytes - bytes.size(), bytes));
    hash_.update(bytes);
  }
  return {};
}

void Fingerprint::add_text(std::string_view text) {
  hash_.update(std::to_string(text.size()) + ":");
  hash_.update(text);
}

Status visit_files(const Context& ctx, os::ReadableTree& tree, const os::Path& root,
                   const Wanted& wanted, const Visit& visit) {
  TRY(const auto directory, tree.list(root));
  return FolderWalk{ctx, tree, root, wanted, visit}.enter(*directory, "", 0);
}

Result<std::set<std::string>> file_names(os::ReadableTree& tree, const os::Path& folder) {
  TRY(const auto directory, tree.list(folder));
  std::set<std::string> out;
  for (;;) {
    TRY(auto entry, directory->next());
    if (!entry) return out;
    if (entry->facts.kind == os::FileKind::kFile || entry->facts.kind == os::FileKind::kSymlink)
      out.insert(std::move(entry->name));
  }
}

}  // namespace varda::samples::internal
