// Pods of an ended run. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "controllers/workers/workers.h"
#include "meta/object.h"

namespace varda::controllers::runs {

/// Time after the end of a run in which the pods may end by themselves, so that their logs stay.
inline constexpr std::chrono::seconds kEndPatience{30};

/// Pods that are not being deleted.
std::vector<workers::PodPtr> living(const std::vector<workers::PodPtr>& pods);
/// Pods to remove after the end. Ended pods of a complete run keep their log, as those of a Job.
std::vector<workers::PodPtr> pods_to_remove(const std::vector<workers::PodPtr>& pods,
                                            const std::vector<meta::Condition>& conditions,
                                            const std::string& completion_time, WallTime now);

}  // namespace varda::controllers::runs
