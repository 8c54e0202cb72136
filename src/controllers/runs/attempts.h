// Attempts of a run: starts and failures of its containers. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "api/ai/training_model.h"
#include "api/core/pod.h"

namespace varda::controllers::runs {

/// Container with the agent in the pod of a Job. A restart of the agent is no attempt of the run.
inline constexpr const char* kAgentContainer = "varda-agent";

/// The members of a status that count attempts. Borrows them.
struct Attempts {
  std::string& pod;
  std::string& pod_uid;
  std::int64_t& attempts;
  std::int64_t& failed;
  api::TrainingAttempts& earlier;
};
/// Adds the pod's starts to those of former pods. Counts never fall.
void count_attempts(const api::Pod& pod, Attempts out);

/// "1 attempt", "3 attempts"
std::string attempts_text(std::int64_t number);

/// True: the container has failed, or waits for a restart after a failure.
bool failed_now(const api::ContainerStatus& container);

/// True: one of our programs ended with the exit code that means that another attempt fails too.
bool ended_for_good(const api::Pod& pod);

}  // namespace varda::controllers::runs
