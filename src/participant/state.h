// The durable state of a client: the finished update until the aggregator has it, the last task,
// the error feedback, and bytes that the worker carries from round to round.
//
// Layout of the directory. Each file is complete or absent, except *.part:
//
//   state.json       job, and the last task that this client is done with
//   pending.json     task, digest and length of the update to send; with it exist
//   update           the update, and
//   residual.next    carry.next: the values after the aggregator accepts
//   residual, carry  the values of the last accepted update
//   checkpoint       of the worker
//   files/HEX        files of tasks; HEX.part while they arrive
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "federated/weights.h"
#include "os/file_system.h"

namespace varda::participant {

/// An update that the aggregator has not answered yet.
struct Pending {
  std::string task;  // the id
  codec::Sha256 digest;
  std::uint64_t bytes = 0;
};

/// Not thread-safe. One process at a time uses a directory; the caller locks it.
class State {
 public:
  /// Opens or creates the directory. Files of another job are removed. `fs` outlives the state.
  static Result<State> open(os::FileSystem& fs, os::Path directory, std::string job);

  /// The last task that is done: accepted, refused, late or evaluated. "": none.
  const std::string& last_task() const { return last_task_; }
  const std::optional<Pending>& pending() const { return pending_; }
  os::Path update_path() const { return directory_ / "update"; }
  os::Path checkpoint_path() const { return directory_ / "checkpoint"; }
  os::Path file_path(const codec::Sha256& digest) const;

  /// The error feedback of this layout; zeros without one.
  std::vector<float> residual(const federated::Layout& layout) const;
  /// "": none.
  std::string carry() const;

  /// Keeps a finished update. After a kill in this call, the update is there or the task begins
  /// again. An empty residual keeps none.
  Status keep(const std::string& task, std::string_view update, const federated::Layout& layout,
              std::span<const float> residual, std::string_view carry);
  /// The aggregator has the update: its residual and carry are the present ones.
  Status accepted();
  /// The aggregator will never take the update.
  Status dropped();
  /// A task without an update is done.
  Status done(const std::string& task);
  /// Removes files of tasks except these.
  Status remove_files_except(std::span<const codec::Sha256> digests);

 private:
  State(os::FileSystem& fs, os::Path directory, std::string job)
      : fs_(&fs), directory_(std::move(directory)), job_(std::move(job)) {}
  Status load();
  Status clear();
  Status write_state();
  Status move_if_present(const char* from, const char* to);
  Status end_pending();

  os::FileSystem* fs_;
  os::Path directory_;
  std::string job_, last_task_;
  std::optional<Pending> pending_;
};

}  // namespace varda::participant
