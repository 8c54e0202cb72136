// The environment of a pod of a TrainingModel: the run, and the worker API of the node's agent.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "job.h"

namespace varda::trainapp {

using Environment = std::map<std::string, std::string>;

struct Contract {
  Job job;
  std::string artifact;  // the name of the result: "model-5"
  std::string task;      // digest of the variables that define the run
};

/// The worker API. Without a socket there are no reports.
struct Access {
  os::Path socket;
  os::Path token_file;  // read for each request
};
Access access_of(const Environment& environment);

/// kInvalid: the message names the variable.
Result<Contract> read_contract(const Environment& environment);

}  // namespace varda::trainapp
