// Writes that all runs share: the status, the Model with the result, and the end of failed pods.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "controllers/runs/result.h"
#include "controllers/workers/workers.h"
#include "hosting/replacement_pauses.h"
#include "runtime/writer.h"

namespace varda::controllers::runs {

/// A status has facts of the run: its base, its attempts, its end. A status made from an old copy
/// must not replace them. False: the live status differs from that of `run`.
template <typename T, typename S>
Result<bool> write_status(const Context& ctx, const T& run, const S& status,
                          runtime::Writer& writer) {
  bool same = true;
  const Json before = run.status.to_json();
  TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(run), runtime::Part::kStatus, [&](Json& live) {
    const auto now = T::from_json(live);
    same = now.ok() && now->status.to_json() == before;
    if (same) live.set("status", status.to_json());
  }));
  return same;
}

/// Writes the Model, then the metrics of the result. `present`: the Model as cached.
Status write_model(const Context& ctx, const Json& object,
                   const std::optional<hosting::AnyModel>& present,
                   const api::TrainingProduced& produced,
                   const std::vector<api::ModelMetric>& metrics, WallTime now,
                   runtime::Writer& writer);

/// Removes failed pods after a pause, so that the next reconcile() makes new ones. Thread-safe.
class FailedPods {
 public:
  /// Returns the time until the next pause ends.
  Result<std::optional<Duration>> replace(const Context& ctx, const meta::ObjectKey& run,
                                          const std::vector<workers::PodPtr>& failed,
                                          const Clock& clock, runtime::Writer& writer);
  void forget(const meta::ObjectKey& run);

 private:
  Mutex mutex_;
  std::map<meta::ObjectKey, hosting::ReplacementPauses> pauses_ GUARDED_BY(mutex_);
};

}  // namespace varda::controllers::runs
