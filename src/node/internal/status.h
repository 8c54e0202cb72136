// A pod's status as a kubelet reports it, from its record alone.
#pragma once

#include <string>

#include "node/internal/record.h"

namespace varda::node::internal {

struct StatusContext {
  std::string scheme;   // of the driver: "process"
  std::string host_ip;  // "": not reported
  std::string now;      // RFC 3339: for conditions that change
};

/// Pending, Running, Succeeded or Failed.
std::string pod_phase(const PodRecord& record);
/// Whether no container runs or will run again (restart policies Never and OnFailure).
bool is_terminal(const PodRecord& record);
Json make_status(const PodRecord& record, const StatusContext& context);

}  // namespace varda::node::internal
