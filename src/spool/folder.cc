#include "spool/folder.h"

#include <algorithm>

#include "base/text.h"
#include "spool/id.h"

namespace varda::spool {
namespace {

constexpr std::string_view kFactsSuffix = ".json";

// A missing directory is an empty one.
Result<std::vector<std::string>> names_in(os::FileSystem& fs, const os::Path& directory) {
  auto names = fs.list(directory);
  if (!names.ok() && names.error().code() == Code::kNotFound) return std::vector<std::string>();
  return names;
}

os::Path facts_file(const os::Path& root, const std::string& id) {
  return root / kPending / (id + std::string(kFactsSuffix));
}

}  // namespace

Status make_folder(os::FileSystem& fs, const os::Path& root, std::uint32_t mode) {
  TRY_VOID(fs.make_directories(root / kPending, mode));
  TRY_VOID(fs.make_directories(root / kLabel, mode));
  TRY_VOID(fs.sync_directory(root));
  // A server sees only its own spool. Then the agent has made the directories above, and synced.
  os::Path above = root;
  for (int level = 0; level < 3 && above.has_relative_path(); ++level) {
    above = above.parent_path();
    (void)fs.sync_directory(above);
  }
  return {};
}

std::string_view format_of(std::string_view file) {
  const std::size_t dot = file.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  const std::string_view suffix = file.substr(dot + 1);
  for (const std::string_view known : {Facts::kPng, Facts::kJpeg, Facts::kNpy})
    if (equal_ignoring_case(suffix, known)) return known;
  return equal_ignoring_case(suffix, "jpeg") ? Facts::kJpeg : std::string_view();
}

Result<PendingFiles> pending_files(os::FileSystem& fs, const os::Path& root) {
  TRY(const std::vector<std::string> names, names_in(fs, root / kPending));
  PendingFiles out;
  // Sorted, so all files of an id are neighbours.
  for (std::size_t i = 0; i < names.size();) {
    const std::string id = names[i].substr(0, names[i].find('.'));
    bool has_facts = false, has_sample = false;
    for (const std::string prefix = id + "."; i < names.size() && names[i].starts_with(prefix);
         ++i) {
      const std::string suffix = names[i].substr(id.size());
      has_facts |= suffix == kFactsSuffix;
      has_sample |= is_format(std::string_view(suffix).substr(1));
    }
    if (i < names.size() && names[i] == id) ++i;  // a name without a suffix
    if (!has_facts || !is_id(id)) continue;
    (has_sample ? out.ids : out.orphans).push_back(id);
  }
  return out;
}

Result<std::vector<std::string>> pending_ids(os::FileSystem& fs, const os::Path& root) {
  TRY(PendingFiles files, pending_files(fs, root));
  return std::move(files.ids);
}

Status remove_orphans(os::FileSystem& fs, const os::Path& root, const PendingFiles& files) {
  for (const std::string& id : files.orphans) {
    bool present = false;
    // A list that was read during a change may lack a sample.
    for (const std::string_view format : {Facts::kPng, Facts::kJpeg, Facts::kNpy}) {
      TRY(const auto info, fs.stat(root / kPending / (id + "." + std::string(format))));
      present |= info.has_value();
    }
    if (!present) TRY_VOID(fs.remove(facts_file(root, id)));
  }
  return {};
}

Result<Facts> read_facts(os::FileSystem& fs, const os::Path& root, const std::string& id) {
  if (!is_id(id)) return Error(Code::kInvalid, "'" + id + "' is no id of a sample");
  const auto text = os::read_file(fs, facts_file(root, id), kFactsBytesMax);
  if (!text.ok()) {
    if (text.error().code() != Code::kNotFound) return text.error();
    return Error(Code::kNotFound, "there is no sample " + id);
  }
  TRY(Facts facts, parse_facts(*text));
  if (facts.id != id) return Error(Code::kCorrupt, "the facts of " + id + " name another sample");
  return facts;
}

Result<std::vector<Facts>> list(os::FileSystem& fs, const os::Path& root) {
  TRY(const std::vector<std::string> ids, pending_ids(fs, root));
  std::vector<Facts> out;
  for (const std::string& id : ids) {
    auto facts = read_facts(fs, root, id);
    if (!facts.ok()) continue;  // removed meanwhile, or torn by a power cut
    const auto info = fs.stat(root / kPending / facts->file());
    if (info.ok() && *info && (*info)->kind == os::FileKind::kFile)
      out.push_back(std::move(facts).value());
  }
  return out;
}

Result<std::string> read_sample(os::FileSystem& fs, const os::Path& root, const Facts& facts) {
  return os::read_file(fs, root / kPending / facts.file(), kSampleBytesMax);
}

Status label(os::FileSystem& fs, const os::Path& root, const std::string& id,
             std::string_view class_name) {
  if (!is_class_name(class_name))
    return Error(Code::kInvalid, "'" + std::string(class_name) + "' is no name of a class");
  TRY(const Facts facts, read_facts(fs, root, id));
  const os::Path folder = root / kLabel / class_name, pending = root / kPending;
  TRY(const auto info, fs.stat(pending / facts.file()));
  if (info && info->kind != os::FileKind::kFile)
    return Error(Code::kInvalid, (pending / facts.file()).string() + " is a link, not a file");
  TRY_VOID(fs.make_directories(folder, 0775));
  // The name of the folder must survive a power cut before a sample moves into it.
  TRY_VOID(fs.sync_directory(root / kLabel));
  if (const Status moved = fs.rename(pending / facts.file(), folder / facts.file()); !moved.ok()) {
    if (moved.error().code() != Code::kNotFound) return moved;
    return Error(Code::kNotFound, "there is no sample " + id);
  }
  TRY_VOID(fs.sync_directory(folder));
  TRY_VOID(fs.remove(facts_file(root, id)));
  return fs.sync_directory(pending);
}

Status discard(os::FileSystem& fs, const os::Path& root, const std::string& id,
               std::string_view format) {
  if (!is_id(id) || !is_format(format)) return Error(Code::kInvalid, "no sample: " + id);
  TRY_VOID(fs.remove(facts_file(root, id)));
  return fs.remove(root / kPending / (id + "." + std::string(format)));
}

Result<Labels> labels(os::FileSystem& fs, const os::Path& root) {
  TRY(const std::vector<std::string> classes, names_in(fs, root / kLabel));
  Labels out;
  const auto is_link = [&out](const os::FileInfo& info, const os::Path& place) {
    if (info.kind == os::FileKind::kSymlink) out.links.push_back(place.string());
    return info.kind == os::FileKind::kSymlink;
  };
  for (const std::string& class_name : classes) {
    if (!is_class_name(class_name)) continue;
    const os::Path folder = root / kLabel / class_name;
    const auto info = fs.stat(folder);
    if (!info.ok() || !*info || is_link(**info, folder)) continue;
    if ((*info)->kind != os::FileKind::kDirectory) continue;
    TRY(const std::vector<std::string> files, names_in(fs, folder));
    for (const std::string& file : files) {
      if (file.front() == '.' || format_of(file).empty()) continue;
      const auto facts = fs.stat(folder / file);
      if (!facts.ok() || !*facts || is_link(**facts, folder / file)) continue;
      if ((*facts)->kind != os::FileKind::kFile) continue;
      out.files.push_back({class_name, file, (*facts)->size_bytes, (*facts)->modified});
    }
  }
  return out;
}

Result<std::vector<Labelled>> labelled(os::FileSystem& fs, const os::Path& root) {
  TRY(Labels found, labels(fs, root));
  return std::move(found.files);
}

}  // namespace varda::spool
