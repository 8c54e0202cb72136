#include "artifact/model_tree.h"

#include <algorithm>

#include "artifact/internal/tree.h"
#include "artifact/numbered_view.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kTarget = "target";
constexpr std::string_view kJoint = "joint.json";
constexpr std::string_view kTrial = "trial.json";
constexpr std::uint64_t kJointBytesMax =
    1 << 20;  // larger files were not written here and are not compared
constexpr std::string_view kLastGood = ".last-good";
constexpr std::string_view kRemovalPrefix = ".old-";  // prefix of directories being removed

bool plain_name(std::string_view name, std::size_t length_max) {
  return !name.empty() && name.size() <= length_max && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

Status check_key(std::string_view key) {
  const auto slash = key.find('/');
  if (slash != std::string_view::npos && plain_name(key.substr(0, slash), 63) &&
      plain_name(key.substr(slash + 1), 253))
    return {};
  return Error(Code::kInvalid, "model key \"" + std::string(key) + "\": must be NAMESPACE/NAME");
}

Status check_version(std::string_view version) {
  if (plain_name(version, 63) && version != kTarget && version != kJoint && version != kTrial)
    return {};
  return Error(Code::kInvalid, "version \"" + std::string(version) +
                                   "\": must be 1-63 of [A-Za-z0-9._-], not start with \".\" and "
                                   "not be \"target\", \"joint.json\" or \"trial.json\"");
}

}  // namespace

Result<ModelTree> ModelTree::open(os::FileSystem& fs, os::Path root) {
  TRY_VOID(fs.make_directories(root, 0755));
  ModelTree tree(fs, std::move(root));
  // A killed process may have renamed without a sync, and later work builds on those names. Hence
  // the syncs.
  TRY_VOID(fs.sync_directory(tree.root().parent_path()));
  TRY_VOID(fs.sync_directory(tree.root()));
  TRY(const auto namespaces, fs.list(tree.root()));
  for (const std::string& ns : namespaces) {
    if (!plain_name(ns, 63)) continue;
    TRY(const auto models, fs.list(tree.root() / ns));
    for (const std::string& model : models)
      if (model.starts_with(kRemovalPrefix)) TRY_VOID(fs.remove_all(tree.root() / ns / model));
    TRY_VOID(fs.sync_directory(tree.root() / ns));
  }
  TRY(const auto keys, tree.keys());
  for (const std::string& key : keys) {
    TRY(const auto names, fs.list(tree.directory(key)));
    for (const std::string& name : names)
      if (name.front() == '.' && name != kLastGood && name != kNumberedView)
        TRY_VOID(fs.remove_all(tree.directory(key) / name));
    TRY_VOID(fs.sync_directory(tree.directory(key)));
  }
  return tree;
}

Status ModelTree::expose(std::string_view key, std::string_view version, const os::Path& artifact) {
  TRY_VOID(check_key(key));
  TRY_VOID(check_version(version));
  const os::Path model = directory(key);
  const os::Path place = model / version;
  TRY(const auto shown, fs_->stat(place));
  if (shown) {
    TRY(const bool same, same_tree(*fs_, artifact, place));
    if (same) return {};
  }
  const os::Path fresh = model / (".new-" + std::string(version));
  TRY_VOID(fs_->remove_all(fresh));
  TRY_VOID(fs_->make_directories(model, 0755));
  TRY_VOID(link_tree(*fs_, artifact, fresh));
  if (shown) TRY_VOID(hide(model, version));
  TRY_VOID(fs_->rename(fresh, place));
  TRY_VOID(fs_->sync_directory(model));
  TRY_VOID(fs_->sync_directory(model.parent_path()));
  TRY_VOID(fs_->sync_directory(root_));
  if (!shown) return {};
  TRY(const auto active, target(key));
  return active == version ? write_text(model, kTarget, std::string(version) + "\n") : ok_status();
}

Status ModelTree::write_text(const os::Path& model, std::string_view name,
                             const std::string& text) {
  // A name that no server takes for a version, in case of a kill here.
  const os::Path fresh = model / ".new-line";
  {
    TRY(auto file, fs_->open(fresh, os::Open::kTruncate, 0644));
    TRY_VOID(file->write(text));
    TRY_VOID(file->sync());
  }
  TRY_VOID(fs_->rename(fresh, model / name));
  return fs_->sync_directory(model);
}

Status ModelTree::note_last_good(std::string_view key, std::string_view line) {
  TRY_VOID(check_key(key));
  const os::Path place = directory(key) / kLastGood;
  TRY(const auto existing, fs_->stat(place));
  if (existing) {
    TRY(const std::string text, os::read_file(*fs_, place, 4096));
    if (text == std::string(line) + "\n") return {};
  }
  return write_text(directory(key), kLastGood, std::string(line) + "\n");
}

Status ModelTree::set_joint_file(std::string_view key, const codec::Json& joint) {
  return set_file(key, kJoint, joint);
}

Status ModelTree::set_trial_file(std::string_view key, const codec::Json& trial) {
  return set_file(key, kTrial, trial);
}

Status ModelTree::set_file(std::string_view key, std::string_view name,
                           const codec::Json& content) {
  TRY_VOID(check_key(key));
  const os::Path model = directory(key), place = model / name;
  TRY(const auto existing, fs_->stat(place));
  if (content.is_null()) {
    if (!existing) return {};
    TRY_VOID(fs_->remove(place));
    return fs_->sync_directory(model);
  }
  if (existing && existing->kind == os::FileKind::kFile && existing->size_bytes <= kJointBytesMax) {
    TRY(const std::string text, os::read_file(*fs_, place, kJointBytesMax));
    const auto stored = codec::parse_json(text);
    // Compares values, because servers ignore the order of members.
    if (stored.ok() && *stored == content) return {};
  }
  TRY_VOID(fs_->make_directories(model, 0755));
  TRY_VOID(fs_->sync_directory(model.parent_path()));
  TRY_VOID(fs_->sync_directory(root_));
  return write_text(model, name, codec::write_json(content) + "\n");
}

Status ModelTree::set_target(std::string_view key, std::string_view version) {
  TRY_VOID(check_key(key));
  TRY_VOID(check_version(version));
  TRY(const auto shown, fs_->stat(directory(key) / version));
  if (!shown)
    return Error(Code::kNotFound,
                 std::string(key) + ": version " + std::string(version) + " is not exposed");
  TRY(const auto active, target(key));
  if (active == version) return {};
  return write_text(directory(key), kTarget, std::string(version) + "\n");
}

Status ModelTree::clear_target(std::string_view key) {
  TRY_VOID(check_key(key));
  TRY(const auto existing, fs_->stat(directory(key) / kTarget));
  if (!existing) return {};
  TRY_VOID(fs_->remove(directory(key) / kTarget));
  return fs_->sync_directory(directory(key));
}

Result<std::optional<std::string>> ModelTree::target(std::string_view key) const {
  TRY_VOID(check_key(key));
  TRY(const auto existing, fs_->stat(directory(key) / kTarget));
  if (!existing) return std::optional<std::string>();
  TRY(std::string text, os::read_file(*fs_, directory(key) / kTarget, 1024));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return std::optional<std::string>(std::move(text));
}

Result<std::vector<std::string>> ModelTree::versions(std::string_view key) const {
  TRY_VOID(check_key(key));
  std::vector<std::string> versions;
  TRY(const auto existing, fs_->stat(directory(key)));
  if (!existing) return versions;
  TRY(const auto names, fs_->list(directory(key)));
  for (const std::string& name : names) {
    if (!check_version(name).ok()) continue;
    TRY(const auto info, fs_->stat(directory(key) / name));
    if (info && info->kind == os::FileKind::kDirectory) versions.push_back(name);
  }
  return versions;
}

Result<std::vector<std::string>> ModelTree::keys() const {
  std::vector<std::string> keys;
  TRY(const auto namespaces, fs_->list(root_));
  for (const std::string& ns : namespaces) {
    if (!plain_name(ns, 63)) continue;
    TRY(const auto names, fs_->list(root_ / ns));
    for (const std::string& name : names)
      if (plain_name(name, 253)) keys.push_back(ns + "/" + name);
  }
  return keys;
}

// Renamed first and synced, so that a half-removed directory is never visible under its name, even
// after a crash.
Status ModelTree::remove_tree(const os::Path& directory, std::string_view name) {
  const os::Path old = directory / (std::string(kRemovalPrefix) + std::string(name));
  TRY_VOID(fs_->remove_all(old));
  TRY_VOID(fs_->rename(directory / name, old));
  TRY_VOID(fs_->sync_directory(directory));
  return fs_->remove_all(old);
}

Status ModelTree::hide(const os::Path& model, std::string_view version) {
  TRY(const auto shown, fs_->stat(model / version));
  if (!shown) return {};
  return remove_tree(model, version);
}

Status ModelTree::unexpose(std::string_view key, std::string_view version) {
  TRY_VOID(check_key(key));
  TRY_VOID(check_version(version));
  TRY(const auto active, target(key));
  if (active == version) TRY_VOID(clear_target(key));
  return hide(directory(key), version);
}

Status ModelTree::prune(std::string_view key, const std::set<std::string>& keep) {
  TRY(const auto shown, versions(key));
  TRY(const auto active, target(key));
  for (const std::string& version : shown)
    if (version != active && !keep.contains(version)) TRY_VOID(hide(directory(key), version));
  return {};
}

Status ModelTree::remove(std::string_view key) {
  TRY_VOID(check_key(key));
  const os::Path model = directory(key);
  TRY(const auto existing, fs_->stat(model));
  if (existing) {
    TRY_VOID(clear_target(key));
    TRY_VOID(remove_tree(model.parent_path(), model.filename().string()));
  }
  // The namespace's directory is removed with its last model; remove() fails if another model
  // exists.
  if (const auto siblings = fs_->list(model.parent_path()); siblings.ok() && siblings->empty())
    TRY_VOID(fs_->remove(model.parent_path()));
  return {};
}

}  // namespace varda::artifact
