// The environment of a worker: variables of the pod, and the worker API of the node's agent.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"

namespace varda::worker {

using Environment = std::map<std::string, std::string>;

/// The variables of this process.
Environment environment_of_process();
/// "" if absent.
std::string value_of(const Environment& environment, const std::string& name);
/// kInvalid: the variable is missing; `what` is its purpose.
Result<os::Path> path_of(const Environment& environment, const std::string& name,
                         const std::string& what);
/// An empty object if absent. kInvalid: no JSON object.
Result<codec::Json> object_of(const Environment& environment, const std::string& name);

/// The worker API. Without a socket there are no reports.
struct Access {
  os::Path socket;
  os::Path token_file;  // read for each request
};
Access access_of(const Environment& environment);

/// The message as the agent takes it: valid UTF-8 of at most 1 KiB.
std::string message_for_agent(const std::string& message);

}  // namespace varda::worker
