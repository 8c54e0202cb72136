// The model directories that pods mount: the exposed versions of each model, and the active one.
//
//   root/NS/NAME/VERSION/…    hard links to an artifact's files: on the same file system, so
//                             nothing is copied
//   root/NS/NAME/target       one line: the active version; replaced by rename
//   root/NS/NAME/joint.json   the tiers after this model (docs/design/017); replaced by rename
//   root/NS/NAME/trial.json   a second version to answer beside the active one (serving/trial);
//                             replaced by rename
//   root/NS/NAME/.last-good   one line: the version that served last, for a starting server
//                             (serving/layout.h); replaced by rename
//   root/NS/NAME/.numbered/…  the same for a server that knows numbers only (numbered_view.h)
//
// Other names that start with "." are work in progress, and servers ignore them.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"

namespace varda::artifact {

/// A key is "NAMESPACE/NAME" of the model; a name may have dots. Every call returns kInvalid for a
/// key or version that is not a plain name. Not thread-safe for one key; calls for different keys
/// are independent.
class ModelTree {
 public:
  /// Creates the root and clears unfinished work after a crash.
  static Result<ModelTree> open(os::FileSystem& fs, os::Path root);

  const os::Path& root() const { return root_; }
  os::Path directory(std::string_view key) const { return root_ / key; }

  /// Exposes `artifact` as that version, complete at once. No effect if exposed already. Replaces
  /// another artifact of that version. If the version is active, `target` is rewritten (new inode,
  /// same line), so that a server notices.
  Status expose(std::string_view key, std::string_view version, const os::Path& artifact);
  /// Makes an exposed version the active one; kNotFound if it is not exposed. Durable on return.
  Status set_target(std::string_view key, std::string_view version);
  Status clear_target(std::string_view key);
  /// Writes `.last-good` if it differs. The line belongs to a server and is opaque here.
  Status note_last_good(std::string_view key, std::string_view line);
  /// Writes `joint.json` if it differs; null removes it. Creates the model's directory if needed,
  /// so it works before the first version. Durable on return; a failure leaves the old file.
  /// kExhausted: the disk is full.
  Status set_joint_file(std::string_view key, const codec::Json& joint);
  /// The same for `trial.json`.
  Status set_trial_file(std::string_view key, const codec::Json& trial);
  /// The version in `target`; absent: no such file.
  Result<std::optional<std::string>> target(std::string_view key) const;

  Result<std::vector<std::string>> versions(std::string_view key) const;
  Result<std::vector<std::string>> keys() const;

  /// Hides one version. If it is active, `target` is removed first. Success if missing.
  Status unexpose(std::string_view key, std::string_view version);
  /// Hides every version that is neither in `keep` nor active.
  Status prune(std::string_view key, const std::set<std::string>& keep);
  /// Removes the whole model. Success if missing.
  Status remove(std::string_view key);

 private:
  ModelTree(os::FileSystem& fs, os::Path root) : fs_(&fs), root_(std::move(root)) {}
  Status set_file(std::string_view key, std::string_view name, const codec::Json& content);
  Status write_text(const os::Path& directory, std::string_view name, const std::string& text);
  Status hide(const os::Path& directory, std::string_view version);
  Status remove_tree(const os::Path& directory, std::string_view name);

  os::FileSystem* fs_;
  os::Path root_;
};

}  // namespace varda::artifact
