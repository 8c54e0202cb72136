#include "artifact/internal/entry_rules.h"

#include <algorithm>

namespace varda::artifact {
namespace {

using codec::EntryKind;

Error refuse(std::string_view path, std::string_view why) {
  // The name is untrusted, so control characters, which a terminal would execute, are replaced.
  std::string shown(path.substr(0, 200));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return Error(Code::kInvalid, "entry \"" + shown + "\": " + std::string(why));
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const auto slash = path.find('/');
    const auto part = path.substr(0, slash);
    if (!part.empty() && part != ".") parts.push_back(part);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

}  // namespace

Result<std::string> normalise_entry_path(std::string_view path, const Limits& limits) {
  if (path.empty()) return refuse(path, "has no name");
  if (path.front() == '/') return refuse(path, "absolute path");
  if (path.size() > limits.path_bytes_max)
    return refuse(path, "path is longer than " + std::to_string(limits.path_bytes_max) + " bytes");
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return refuse(path, "control character in the name");
  std::string out;
  const auto parts = split(path);
  if (parts.size() > limits.depth_max)
    return refuse(path, "deeper than " + std::to_string(limits.depth_max) + " directories");
  for (const auto part : parts) {
    if (part == "..") return refuse(path, "\"..\" in the path");
    if (part.size() > 255) return refuse(path, "a name is longer than 255 bytes");
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

Status EntryRules::add(const std::string& path, EntryKind kind) {
  if (names_.size() >= limits_.entries_max)
    return refuse(path, "more than " + std::to_string(limits_.entries_max) + " entries");
  names_.emplace(path, kind);
  if (kind == EntryKind::kDirectory) directories_.push_back(path);
  if (path.find('/') == std::string::npos) {
    only_top_ = names_.size() == 1 && kind == EntryKind::kDirectory;
    top_ = path;
  }
  return {};
}

Status EntryRules::check_symlink(std::string_view path, std::string_view target) {
  if (target.empty()) return refuse(path, "link without a target");
  if (target.front() == '/') return refuse(path, "link to an absolute path");
  const std::size_t depth = static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
  std::size_t up = 0;
  bool descended = false;
  for (const auto part : split(target)) {
    if (part != "..") {
      descended = true;
    } else if (descended) {
      // "a/.." depends on the target of a link named a, so only leading ".." can be checked as
      // text.
      return refuse(path, "link target with \"..\" after a name");
    } else if (++up > depth) {
      return refuse(path, "link out of the tree");
    }
  }
  if (up == depth && link_to_root_.empty()) link_to_root_ = path;
  return {};
}

Result<EntryRules::Admitted> EntryRules::admit(const codec::ArchiveEntry& entry) {
  if (entry.kind == EntryKind::kOther) return refuse(entry.path, "a device, fifo or socket");
  Admitted admitted;
  TRY(admitted.path, normalise_entry_path(entry.path, limits_));
  const std::string& path = admitted.path;
  if (path.empty()) {
    if (entry.kind == EntryKind::kDirectory) return admitted;
    return refuse(entry.path, "has no name");
  }
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (const auto found = names_.find(parent); found == names_.end()) {
      TRY_VOID(add(parent, EntryKind::kDirectory));
    } else if (found->second != EntryKind::kDirectory) {
      return refuse(path, "below \"" + parent + "\", which is not a directory");
    }
  }
  if (const auto found = names_.find(path); found != names_.end()) {
    if (found->second == EntryKind::kDirectory && entry.kind == EntryKind::kDirectory)
      return admitted;
    return refuse(path, "the name occurs twice");
  }
  EntryKind kind = entry.kind;
  if (kind == EntryKind::kSymlink) TRY_VOID(check_symlink(path, entry.link_target));
  if (kind == EntryKind::kHardLink) {
    TRY(admitted.link_source,
        normalise_entry_path(entry.link_target, limits_).context("entry \"" + path + "\""));
    const auto found = names_.find(admitted.link_source);
    if (found == names_.end() || found->second != EntryKind::kFile)
      return refuse(path, "hard link to \"" + admitted.link_source +
                              "\", which is not an earlier file of the archive");
    kind = EntryKind::kFile;
  }
  if (kind == EntryKind::kFile) {
    ++files_;
    if (entry.size_bytes > limits_.extracted_bytes_max - bytes_)
      return refuse(path, "the archive unpacks to more than " +
                              std::to_string(limits_.extracted_bytes_max) + " bytes");
  }
  TRY_VOID(add(path, kind));
  return admitted;
}

Status EntryRules::count(std::uint64_t bytes, std::uint64_t archive_bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.extracted_bytes_max)
    return Error(Code::kInvalid, "the archive unpacks to more than " +
                                     std::to_string(limits_.extracted_bytes_max) + " bytes");
  if (bytes_ > limits_.ratio_free_bytes && bytes_ / limits_.ratio_max > archive_bytes)
    return Error(Code::kInvalid, "the archive unpacks to more than " +
                                     std::to_string(limits_.ratio_max) + " times its size");
  return {};
}

Status EntryRules::finish() const {
  if (files_ == 0) return Error(Code::kInvalid, "the archive holds no file");
  if (!single_top().empty() && !link_to_root_.empty())
    return refuse(link_to_root_, "link out of the tree, once its only top directory is stripped");
  return {};
}

}  // namespace varda::artifact
