#include "controllers/runs/writes.h"

namespace varda::controllers::runs {

Status write_model(const Context& ctx, const Json& object,
                   const std::optional<hosting::AnyModel>& present,
                   const api::TrainingProduced& produced,
                   const std::vector<api::ModelMetric>& metrics, WallTime now,
                   runtime::Writer& writer) {
  const auto write_metrics = [&] {
    const meta::Resource& resource = present->group == api::SednaModel::resource().group
                                         ? api::SednaModel::resource()
                                         : api::Model::resource();
    return writer.edit(ctx,
                       {&resource, present->metadata->key(), present->metadata->uid,
                        present->metadata->resource_version},
                       runtime::Part::kStatus,
                       [&](Json& model) { set_metrics(model, metrics, now); });
  };
  const bool has_file = present && present->spec->sha256 == produced.sha256;
  // No metrics follow that could replace those of the former version.
  if (present && !has_file && metrics.empty() && !present->status->metrics.empty())
    TRY_VOID(write_metrics());
  TRY_VOID(writer.apply(ctx, object));
  // The Model's arrival in the cache is a change, after which the metrics follow.
  return has_file ? write_metrics() : Status();
}

Result<std::optional<Duration>> FailedPods::replace(const Context& ctx, const meta::ObjectKey& run,
                                                    const std::vector<workers::PodPtr>& failed,
                                                    const Clock& clock, runtime::Writer& writer) {
  std::optional<Duration> next;
  for (const workers::PodPtr& pod : failed) {
    const auto made = meta::parse_time(pod->metadata.creation_timestamp);
    const Duration lived =
        made.ok() ? std::chrono::duration_cast<Duration>(clock.wall() - *made) : Duration{};
    Duration left{};
    {
      const MutexLock lock(mutex_);
      left = pauses_[run].left(pod->metadata.key(), pod->metadata.uid, lived, clock.now());
    }
    if (left > Duration{}) {
      next = next ? std::min(*next, left) : left;
    } else {
      TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*pod)));
    }
  }
  return next;
}

void FailedPods::forget(const meta::ObjectKey& run) {
  const MutexLock lock(mutex_);
  pauses_.erase(run);
}

}  // namespace varda::controllers::runs
