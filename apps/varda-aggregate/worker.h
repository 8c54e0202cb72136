// A job in a pod of a FederatedLearningJob: the environment gives the job, and the node's agent
// gets progress, the model and the result.
#pragma once

#include <set>
#include <string>

#include "aggregator/coordinator.h"
#include "codec/json.h"
#include "flags.h"
#include "os/file_system.h"
#include "run.h"
#include "worker/environment.h"

namespace varda::aggregate {

/// Runs the job and hands the result over. Returns the exit code: 0 done, 1 failed and a retry may
/// help, 2 wrong input, 128 + signal after a stop. A start after a kill continues.
int work(const Context& ctx, const worker::Environment& environment, const Flags& flags,
         os::FileSystem& fs);

/// The variables of the pod.
struct Contract {
  JobOptions job;
  std::string name;           // of the job: NAMESPACE/NAME
  std::string uid;            // streams of other jobs are refused
  std::string authority_pem;  // signs the identities of streams; "": those of this machine count
};
/// kInvalid: the message names the variable.
Result<Contract> read_contract(const worker::Environment& environment);

/// The part of the agent's assignment that may change.
struct Assignment {
  std::string revision;
  std::set<std::string> participants;  // NAMESPACE/NAME of workers
  codec::Json parameters;              // spec.federated; null if absent
};
/// kInvalid: no assignment of a federated job.
Result<Assignment> parse_assignment(const codec::Json& answer);

// Bodies for the agent; docs/design/028-federated-learning.md has the members.
codec::Json progress_body(const aggregator::Snapshot& snapshot);
codec::Json rounds_body(const aggregator::Snapshot& snapshot);
struct ResultFiles {
  std::string artifact, report, csv;
  std::string file;  // name of the artifact for servers; "": an archive
  std::string format;
};
codec::Json final_body(const aggregator::Snapshot& snapshot, const ResultFiles& files);

}  // namespace varda::aggregate
