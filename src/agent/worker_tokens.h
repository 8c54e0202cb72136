// WorkerTokens: what workers prove themselves with, one file each.
//
// ROOT/NAMESPACE/NAME/token holds `varda-worker.WHO.SECRET`: WHO are 12 digits of hex of the SHA-256 of key and uid, so that the
// file says by itself whether it is of the worker that is expected now, or of one of former days under its name; SECRET are 64.
// The directory is what a pod mounts: a token made anew is a new file there.
#pragma once

#include <set>
#include <string>

#include "agent/worker_message.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::agent {

/// Owns all below its root. Not thread-safe.
class WorkerTokens {
 public:
  /// `rng` is fit for keys. Both outlive it.
  WorkerTokens(os::FileSystem& fs, os::Path root, Rng& rng) : fs_(fs), root_(std::move(root)), rng_(rng) {}

  /// The token of that worker: as it stands in its file, or a new one, safe on the disk. Errors of the disk.
  Result<std::string> ensure(const WorkerName& who, const std::string& uid);
  /// Removes the directories of all workers but these (NAMESPACE/NAME).
  Status keep_only(const std::set<std::string>& keys);

  /// Whether that is a token of this worker, as far as can be seen without knowing it.
  static bool is_of(std::string_view token, const WorkerName& who, const std::string& uid);

 private:
  os::FileSystem& fs_;
  const os::Path root_;
  Rng& rng_;
};

}  // namespace varda::agent
