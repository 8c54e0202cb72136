// A run without a node: a Job of the cluster (docs/design/034-cloud-jobs.md). Its pod has the agent
// of the run beside the trainer, and the agent has an EdgeNode of its own. So work list, worker
// API, uploads and reports are those of any node. Pure.
//
//   pod of the Job
//     varda-agent-install   init container: `varda agent --until installed`
//     trainer               varda-train, or the containers of the user
//     varda-agent           `varda agent --until unassigned`
//     varda-node            emptyDir: the agent's data directory; the trainer sees parts of it
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/ai/training_model.h"
#include "api/core/job.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/job_node.h"
#include "controllers/workers/workers.h"
#include "hosting/placement.h"
#include "hosting/servers.h"

namespace varda::controllers::trainingmodel {

using codec::Json;
using JobPtr = std::shared_ptr<const api::Job>;

/// True: the run becomes a Job. False on one machine, where no kubelet runs the pods of Jobs.
bool becomes_job(const api::TrainingModel& training, const hosting::Options& options);
/// True: the run has the node of a Job.
bool has_job_node(const api::TrainingModel& training);
/// The node of the Job for functions that look for a Node. The cluster has no such Node.
std::shared_ptr<const api::Node> job_node(const api::TrainingModel& training);

/// The EdgeNode to create, and the Secret with the token for its agent.
Json edge_node_of(const api::TrainingModel& training, const hosting::AgentToken& token);
Json secret_of(const api::TrainingModel& training, const hosting::AgentToken& token);

/// A volume with samples.
struct JobVolume {
  std::string claim;
  std::string directory() const { return "/var/run/varda/claims/" + claim; }
};

/// The parts of a Job besides the run itself.
struct JobRequest {
  const workers::Worker& worker;              // complete
  const std::vector<workers::Worker>& files;  // more files that the agent installs
  const std::vector<JobVolume>& volumes;
  const api::JobToken& token;  // of the EdgeNode
};
/// The agent of a Job once all files are there. Its paths do not depend on a machine.
api::EdgeNode agent_of_job(const workers::Job& run, const std::string& node,
                           const std::vector<const workers::Worker*>& files);
/// The Job that should exist. `present` null: none. A present Job of the same inputs keeps its pod
/// template. Nothing: another template is needed, so the present Job must go first.
std::optional<Json> job_of_run(const api::TrainingModel& training, const JobRequest& request,
                               const hosting::Options& options, const api::Job* present);
/// The present Job, suspended unless it has ended.
Json suspended(const api::Job& present);

/// The last pod of the Job; null: none.
workers::PodPtr newest(const std::vector<workers::PodPtr>& pods);
/// The reason why Kubernetes ended the Job.
std::optional<hosting::Problem> job_failure(const api::Job& job);
/// True: all containers but the agent have ended with success.
bool trainer_succeeded(const api::Pod& pod);
/// True: the trainer failed and never restarts, so the pod would be Failed without the agent. The
/// agent ends with the run only, and the Job controller replaces ended pods only.
bool waits_for_agent_only(const api::Pod& pod);
/// True: an init container runs. The agent installs the files.
bool installs(const api::Pod& pod);

}  // namespace varda::controllers::trainingmodel
