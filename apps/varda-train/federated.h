// A client of a federated job, on a desk or in a pod.
#pragma once

#include <map>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "contract.h"
#include "federated_worker.h"
#include "infer/engine.h"
#include "os/file_system.h"
#include "participant/client.h"
#include "reporter.h"
#include "worker_api.h"

namespace varda::trainapp {

struct FederatedClient {
  FederatedWorker::Options worker;
  participant::Options protocol;
};

/// The client of a pod: FEDERATED, PARAMETERS and the variables of a TrainingModel. A key for
/// signatures comes from `fs`. `protocol.url`
/// is empty without AGG_IP. kInvalid: the message names the variable.
Result<FederatedClient> read_federated_contract(const Environment& environment, os::FileSystem& fs);

/// Runs on a desk, with lines on standard error. Returns the exit code, as work() does; 1 also if
/// the job failed.
int train_federated(const Context& ctx, FederatedClient client, infer::Engines& engines,
                    os::FileSystem& fs);

struct FederatedParts {
  infer::Engines& engines;
  os::FileSystem& fs;
  WorkerApi::Options api = {};
  Reporter::Options reporter = {};
};
/// Runs in a pod, with reports to the node's agent. The exit code is that of work().
int work_federated(const Context& ctx, const Environment& environment, FederatedParts parts);

}  // namespace varda::trainapp
