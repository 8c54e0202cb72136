#include "hosting/passing_problems.h"

#include <algorithm>

namespace varda::hosting {

bool PassingProblems::passes(std::string_view reason) {
  static constexpr std::string_view kPassing[] = {
      "Unschedulable", "ServerUnreachable", "NodeNotReady", "NodeUnreachable",
      "NodeNotFound",  "AgentMissing",      "FetchFailed"};
  return std::find(std::begin(kPassing), std::end(kPassing), reason) != std::end(kPassing);
}

bool PassingProblems::due(const meta::ObjectKey& object, const meta::Condition* before,
                          const meta::Condition& now, SteadyTime time) {
  const bool known = before != nullptr && before->reason == now.reason;
  if (!passes(now.reason)) {
    clear(object, now.type);
    return !known || before->message != now.message;
  }
  auto& problems = objects_[object];
  const auto found = problems.find(now.type);
  if (found == problems.end() || found->second.reason != now.reason) {
    // Known from the status but not to this process: the previous leader has reported it.
    problems.insert_or_assign(now.type,
                              Problem{now.reason, time, known && found == problems.end()});
    return false;
  }
  Problem& problem = found->second;
  if (problem.reported || time - problem.since < kPatience) return false;
  return problem.reported = true;
}

void PassingProblems::clear(const meta::ObjectKey& object, std::string_view type) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return;
  if (const auto problem = found->second.find(type); problem != found->second.end())
    found->second.erase(problem);
  if (found->second.empty()) objects_.erase(found);
}

std::optional<Duration> PassingProblems::wait(const meta::ObjectKey& object,
                                              SteadyTime time) const {
  const auto found = objects_.find(object);
  std::optional<Duration> least;
  if (found == objects_.end()) return least;
  for (const auto& [type, problem] : found->second) {
    if (problem.reported) continue;
    const Duration left = std::max(Duration::zero(), problem.since + kPatience - time);
    least = least ? std::min(*least, left) : left;
  }
  return least;
}

}  // namespace varda::hosting
