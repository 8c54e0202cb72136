#include "cluster/internal/deployment_status.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace varda::cluster {

namespace {

using api::CoreCondition;
using std::chrono::seconds;

// Reasons that kubectl reads.
constexpr const char* kAvailableSet = "NewReplicaSetAvailable";
constexpr const char* kTimedOut = "ProgressDeadlineExceeded";
constexpr const char* kPaused = "DeploymentPaused";

/// Builds the condition Progressing.
class Progress {
 public:
  Progress(const api::Deployment& deployment, WallTime now)
      : was_(api::find_condition(deployment.status.conditions, "Progressing")),
        text_(meta::format_time(now)) {
    if (was_) now_ = as_json(*was_);
  }

  std::string reason() const { return now_["reason"].as_string(); }
  bool exists() const { return !now_.is_null(); }
  std::string updated() const { return now_["lastUpdateTime"].as_string(); }
  const Json& json() const { return now_; }

  enum class Touch { kOnChange, kAlways };
  void set(const Phrasing& phrasing, Touch touch) {
    const bool same =
        exists() && now_["status"].as_string() == phrasing.status && reason() == phrasing.reason;
    if (same && touch == Touch::kOnChange) return;
    const bool same_status = exists() && now_["status"].as_string() == phrasing.status;
    Json next =
        Json::object({{"type", "Progressing"},
                      {"status", phrasing.status},
                      {"lastUpdateTime", text_},
                      {"lastTransitionTime",
                       same_status ? std::as_const(now_)["lastTransitionTime"] : Json(text_)},
                      {"reason", phrasing.reason},
                      {"message", phrasing.message}});
    now_ = std::move(next);
  }

 private:
  static Json as_json(const CoreCondition& condition) {
    return Json::object({{"type", condition.type},
                         {"status", condition.status},
                         {"lastUpdateTime", condition.unknown["lastUpdateTime"]},
                         {"lastTransitionTime", condition.last_transition_time},
                         {"reason", condition.reason},
                         {"message", condition.message}});
  }

  const CoreCondition* was_;
  std::string text_;
  Json now_;
};

std::optional<seconds> deadline_of(const api::Deployment& deployment) {
  // The API's value for "no deadline".
  const std::int64_t value = deployment.spec.progress_deadline_seconds.value_or(600);
  if (value == std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return seconds(value);
}

bool moved(const api::DeploymentStatus& before, const DeploymentCounts& counts) {
  return counts.updated > before.updated_replicas ||
         counts.replicas - counts.updated < before.replicas - before.updated_replicas ||
         counts.ready > before.ready_replicas || counts.available > before.available_replicas;
}

/// Pausing stops the deadline; resuming restarts it.
void note_pause(const api::Deployment& deployment, Progress& progress) {
  if (progress.reason() == kTimedOut) return;
  const bool noted = progress.reason() == kPaused;
  if (deployment.spec.paused && !noted) {
    progress.set({"Unknown", kPaused, "Deployment is paused"}, Progress::Touch::kAlways);
  } else if (!deployment.spec.paused && noted) {
    progress.set({"Unknown", "DeploymentResumed", "Deployment is resumed"},
                 Progress::Touch::kAlways);
  }
}

void note_set(const DeploymentStory& story, Progress& progress) {
  if (story.set == DeploymentStory::Set::kCreated) {
    progress.set(
        {"True", "NewReplicaSetCreated", "Created new replica set \"" + story.set_name + "\""},
        Progress::Touch::kOnChange);
  } else if (story.set == DeploymentStory::Set::kPresent && !progress.exists()) {
    progress.set({"True", "FoundNewReplicaSet", "Found new replica set \"" + story.set_name + "\""},
                 Progress::Touch::kOnChange);
  }
}

void note_progress(const api::Deployment& deployment, const Bounds& bounds,
                   const DeploymentCounts& counts, const DeploymentStory& story, seconds deadline,
                   WallTime now, Progress& progress, Timer& timer) {
  // After a complete roll-out, a lost pod or a scaling is no new roll-out.
  if (counts.replicas == counts.updated && progress.reason() == kAvailableSet) return;
  const std::string name = story.set_name.empty()
                               ? "Deployment \"" + deployment.metadata.name + "\""
                               : "ReplicaSet \"" + story.set_name + "\"";
  if (deployment_complete(bounds, counts)) {
    progress.set({"True", kAvailableSet, name + " has successfully progressed."},
                 Progress::Touch::kOnChange);
    return;
  }
  if (moved(deployment.status, counts)) {
    progress.set({"True", "ReplicaSetUpdated", name + " is progressing."},
                 Progress::Touch::kAlways);
    timer.after(deadline);
    return;
  }
  if (!progress.exists() || progress.reason() == kAvailableSet || progress.reason() == kTimedOut)
    return;
  const auto since = time_of(progress.updated());
  const auto over = since.value_or(now) + deadline;
  if (now >= over) {
    progress.set({"False", kTimedOut, name + " has timed out progressing."},
                 Progress::Touch::kOnChange);
  } else {
    timer.after(std::chrono::duration_cast<Duration>(over - now));
  }
}

Json availability(const api::Deployment& deployment, bool enough, WallTime now) {
  const Phrasing phrasing{enough ? "True" : "False",
                          enough ? "MinimumReplicasAvailable" : "MinimumReplicasUnavailable",
                          enough ? "Deployment has minimum availability."
                                 : "Deployment does not have minimum availability."};
  Json out = condition(deployment.status.conditions, "Available", phrasing, now);
  const CoreCondition* was = api::find_condition(deployment.status.conditions, "Available");
  const bool same = was && was->status == phrasing.status && was->reason == phrasing.reason;
  const std::string before = was ? was->unknown["lastUpdateTime"].as_string() : "";
  out.set("lastUpdateTime", same && !before.empty() ? before : meta::format_time(now));
  return out;
}

}  // namespace

bool deployment_complete(const Bounds& bounds, const DeploymentCounts& counts) {
  return counts.updated == bounds.desired && counts.replicas == bounds.desired &&
         counts.available == bounds.desired;
}

Json deployment_status(const api::Deployment& deployment, const Bounds& bounds,
                       const DeploymentCounts& counts, const DeploymentStory& story, WallTime now,
                       Timer& timer) {
  Json status = Json::object({{"observedGeneration", deployment.metadata.generation}});
  const auto set = [&](const char* name, std::int64_t number) {
    if (number > 0) status.set(name, number);
  };
  set("replicas", counts.replicas);
  set("updatedReplicas", counts.updated);
  set("readyReplicas", counts.ready);
  set("availableReplicas", counts.available);
  set("unavailableReplicas", std::max(counts.wanted, bounds.desired) - counts.available);
  Json conditions =
      Json::array({availability(deployment, counts.available >= bounds.available_min(), now)});
  if (const auto deadline = deadline_of(deployment)) {
    Progress progress(deployment, now);
    note_pause(deployment, progress);
    note_set(story, progress);
    if (story.mode == DeploymentStory::Mode::kRolling)
      note_progress(deployment, bounds, counts, story, *deadline, now, progress, timer);
    if (progress.exists()) conditions.push_back(progress.json());
  }
  if (story.replica_failure) {
    Json failure =
        condition(deployment.status.conditions, "ReplicaFailure", *story.replica_failure, now);
    failure.set("lastUpdateTime", std::as_const(failure)["lastTransitionTime"]);
    conditions.push_back(std::move(failure));
  }
  status.set("conditions", std::move(conditions));
  return status;
}

}  // namespace varda::cluster
