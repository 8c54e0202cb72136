// The model directories that pods mount: which versions a model shows, and which one is active.
//
//   root/NS/NAME/VERSION/…   hard links to an artifact's files: on the same file system, nothing is copied
//   root/NS/NAME/target      one line: the active version; replaced by rename
//   root/NS/NAME/cascade.json    what the server asks beside its own model (docs/design/017); replaced by rename
//   root/NS/NAME/.last-good  one line: what served last, for a server that starts (serving/layout.h); replaced by rename
//   root/NS/NAME/.numbered/…     the same for a server that knows numbers only (numbered_view.h)
//
// Other names that start with "." are ours, under way, and mean nothing to a server.
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

/// A key is "NAMESPACE/NAME" of the model, and a name may have dots. Every call says kInvalid for a key or version that is no plain
/// name. Not thread-safe for one key; different keys do not meet.
class ModelTree {
 public:
  /// Creates the root and clears what a crash left under way.
  static Result<ModelTree> open(os::FileSystem& fs, os::Path root);

  const os::Path& root() const { return root_; }
  os::Path directory(std::string_view key) const { return root_ / key; }

  /// Shows `artifact` as that version, complete at once. Shown already: nothing is done. Another artifact under that version is
  /// replaced; if it is the active one, `target` is written anew (another inode, the same line), so that a server can see it.
  Status expose(std::string_view key, std::string_view version, const os::Path& artifact);
  /// Makes a shown version the active one; kNotFound if it is not shown. Durable on return.
  Status set_target(std::string_view key, std::string_view version);
  Status clear_target(std::string_view key);
  /// Writes `.last-good`, if it does not say so already. The line is a server's, and means nothing here.
  Status note_last_good(std::string_view key, std::string_view line);
  /// Writes `cascade.json`, if it does not say the same already; null takes it away. Before the first version too: the model's
  /// directory is made. Durable on return; a failure leaves the old one. kExhausted: the disk is full.
  Status set_cascade(std::string_view key, const codec::Json& cascade);
  /// What `target` names; nothing: no such file.
  Result<std::optional<std::string>> target(std::string_view key) const;

  Result<std::vector<std::string>> versions(std::string_view key) const;
  Result<std::vector<std::string>> keys() const;

  /// Hides one version; the active one too, and then `target` goes first. Fine if missing.
  Status unexpose(std::string_view key, std::string_view version);
  /// Hides every version that is neither in `keep` nor active.
  Status prune(std::string_view key, const std::set<std::string>& keep);
  /// The whole model. Fine if missing.
  Status remove(std::string_view key);

 private:
  ModelTree(os::FileSystem& fs, os::Path root) : fs_(&fs), root_(std::move(root)) {}
  Status write_text(const os::Path& directory, std::string_view name, const std::string& text);
  Status hide(const os::Path& directory, std::string_view version);
  Status take_away(const os::Path& directory, std::string_view name);

  os::FileSystem* fs_;
  os::Path root_;
};

}  // namespace varda::artifact
