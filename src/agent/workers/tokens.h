// Tokens: the directories of workers, each with the token that authenticates the worker.
//
// ROOT/NAMESPACE/NAME/token holds `varda-worker.WHO.SECRET`. WHO is 12 hex digits of the SHA-256 of
// key and uid. A file therefore shows whether it belongs to the expected worker, or to a former one
// of the same name. SECRET has 64 hex digits. Pods mount the directory, because a new token is a
// new file.
//
// ROOT/NAMESPACE/NAME/work is for the worker's own files, such as checkpoints. They outlive its
// pod, and go with the worker.
#pragma once

#include <set>
#include <string>

#include "agent/workers/message.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::agent::workers {

/// Owns all below its root. Not thread-safe.
class Tokens {
 public:
  static constexpr const char* kWorkspace = "work";

  /// `rng` must be cryptographically secure. Both references outlive it.
  Tokens(os::FileSystem& fs, os::Path root, Rng& rng)
      : fs_(fs), root_(std::move(root)), rng_(rng) {}

  /// The worker's token: read from its file, or created and synced to disk. A new token comes with
  /// an empty workspace. Errors of the disk.
  Result<std::string> ensure(const Name& caller, const std::string& uid);
  /// Removes the directories of all workers except these (NAMESPACE/NAME).
  Status keep_only(const std::set<std::string>& keys);

  /// Whether the token has this worker's WHO; the secret is not checked.
  static bool is_of(std::string_view token, const Name& caller, const std::string& uid);

 private:
  os::FileSystem& fs_;
  const os::Path root_;
  Rng& rng_;
};

}  // namespace varda::agent::workers
