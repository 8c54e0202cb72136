#include "controllers/runs/attempts.h"

#include <algorithm>

namespace varda::controllers::runs {

namespace {

using codec::Json;

constexpr std::int64_t kPermanentExit = 2;  // of varda-train and varda-aggregate

bool has_started(const api::ContainerStatus& container) {
  return container.restart_count > 0 || container.state["running"].is_object() ||
         container.state["terminated"].is_object() ||
         container.last_state["terminated"].is_object();
}

}  // namespace

void count_attempts(const api::Pod& pod, Attempts out) {
  if (pod.metadata.uid != out.pod_uid) {
    out.earlier = {out.attempts, out.failed};
    out.pod = pod.metadata.name;
    out.pod_uid = pod.metadata.uid;
  }
  // The end of a pod that is being deleted, for a suspension for example, is no failure.
  const bool stays = !pod.metadata.deleting();
  std::int64_t starts = 0, failures = 0;
  for (const api::ContainerStatus& container : pod.status.container_statuses) {
    if (container.name == kAgentContainer) continue;
    const std::int64_t restarts = std::max<std::int64_t>(container.restart_count, 0);
    starts = std::max(starts, has_started(container) ? restarts + 1 : 0);
    failures = std::max(failures, restarts + (stays && failed_now(container) ? 1 : 0));
  }
  if (stays && pod.status.phase == "Failed") failures = std::max<std::int64_t>(failures, 1);
  starts = std::max(starts, failures);
  out.attempts = std::max(out.attempts, out.earlier.attempts + starts);
  out.failed = std::max(out.failed, out.earlier.failed + failures);
}

std::string attempts_text(std::int64_t number) {
  return std::to_string(number) + (number == 1 ? " attempt" : " attempts");
}

bool failed_now(const api::ContainerStatus& container) {
  if (container.state.at("waiting/reason").as_string() == "CrashLoopBackOff") return true;
  const Json& ended = container.state["terminated"];
  return ended.is_object() && ended["exitCode"].as_integer() != 0;
}

bool ended_for_good(const api::Pod& pod) {
  const auto& containers = pod.status.container_statuses;
  return std::any_of(containers.begin(), containers.end(), [](const auto& container) {
    const auto code = [](const Json& ended) { return ended["exitCode"].as_integer(-1); };
    return container.name != kAgentContainer &&
           (code(container.state["terminated"]) == kPermanentExit ||
            (failed_now(container) && code(container.last_state["terminated"]) == kPermanentExit));
  });
}

}  // namespace varda::controllers::runs
