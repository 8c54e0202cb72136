#include "controllers/runs/ended_pods.h"

namespace varda::controllers::runs {

std::vector<workers::PodPtr> living(const std::vector<workers::PodPtr>& pods) {
  std::vector<workers::PodPtr> out;
  for (const workers::PodPtr& pod : pods)
    if (!pod->metadata.deleting()) out.push_back(pod);
  return out;
}

std::vector<workers::PodPtr> pods_to_remove(const std::vector<workers::PodPtr>& pods,
                                            const std::vector<meta::Condition>& conditions,
                                            const std::string& completion_time, WallTime now) {
  std::vector<workers::PodPtr> out = living(pods);
  const meta::Condition* complete = meta::find_condition(conditions, "Complete");
  if (complete == nullptr || complete->status != "True") return out;
  const auto end = meta::parse_time(completion_time);
  const bool patient = end.ok() && now < *end + kEndPatience;
  std::erase_if(out, [&](const workers::PodPtr& pod) { return patient || pod->ended(); });
  return out;
}

}  // namespace varda::controllers::runs
