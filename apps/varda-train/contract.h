// The environment of a pod of a TrainingModel: the run, and the worker API of the node's agent.
#pragma once

#include <string>

#include "base/result.h"
#include "job.h"
#include "worker/environment.h"

namespace varda::trainapp {

using worker::Access;
using worker::access_of;
using worker::Environment;

struct Contract {
  Job job;
  std::string artifact;          // the name of the result: "model-5"
  std::string task;              // digest of the variables that define the run
  os::Path lock_directory = {};  // "": that of the job
};

/// kInvalid: the message names the variable.
Result<Contract> read_contract(const Environment& environment);

}  // namespace varda::trainapp
