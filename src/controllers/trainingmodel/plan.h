// Plans a TrainingModel: its Pod (plan), the work of its node (work_for), and its status with the
// result (observe). Pure functions over a snapshot of the caches.
//
// A run without a node becomes a Job (job.h), with the node of that Job.
//
// A run has one worker on one node. The worker's token, checkpoint and files exist as long as the
// worker is in the node's work list: from the placement of the run to its end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/training_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "base/clock.h"
#include "controllers/runs/runs.h"
#include "controllers/trainingmodel/job.h"
#include "controllers/trainingmodel/report.h"
#include "controllers/workers/workers.h"
#include "hosting/node_work.h"
#include "hosting/placement.h"
#include "hosting/servers.h"

namespace varda::controllers::trainingmodel {

/// Name of a run's worker. Longer than any tier's name, so that no worker of a
/// JointInferenceService has the same key.
inline constexpr const char* kWorkerName = "training-worker";
/// End of the key of a run's scripts in EdgeNode.spec.models.
inline constexpr const char* kScriptsName = "training-scripts";
/// The same for the files of datasets, of a run without a node.
inline constexpr const char* kDataName = "training-data";
inline constexpr const char* kEvaluationName = "training-evaluation";
/// Directory of the scripts in the containers of a user's trainer.
inline constexpr const char* kScriptsMount = "/code";

/// The surroundings of one run, as cached.
struct TrainingWorld {
  hosting::NodeList nodes;  // where the run may be
  std::function<workers::EdgeNodePtr(const std::string& node)> edge_node;
  workers::ModelWorld initial;  // the objects that spec.initialModel may mean
  std::map<std::string, runs::NamedDatasets> datasets;
  std::vector<workers::PodPtr> pods;  // of the run, or of its Job
  JobPtr job;                         // of the run; null: none
  workers::PodPtr job_pod;            // of the former Job, if the run has a node now; null: none
  std::shared_ptr<const api::Model> output;  // named spec.modelName; null: missing
};

struct TrainingPlan {
  enum class Pods {
    kConverge,  // to exactly `objects`
    kLeave,     // present pods stay, and none is created
    kRemove,    // all pods of `remove` go
  };
  Pods pods = Pods::kConverge;
  std::optional<hosting::Problem> problem;  // the reason why the pod is missing or outdated
  std::vector<Json> objects;
  std::vector<workers::PodPtr> remove;
  std::vector<workers::PodPtr> failed;  // replaced after a pause (ReplacementPauses)
  std::string node;                     // of the run; "": none
  std::string pod_name;                 // on that node
  workers::PodPtr pod;                  // the present one there; null: none
  std::optional<api::TrainingBase> base, scripts, data, evaluation_data;
  std::string fingerprint;  // of the dataset
  bool is_job = false;      // the run is, or becomes, a Job
  bool make_node = false;   // the EdgeNode of the Job is missing, and the Job waits for it
};

/// Plans the pod that should exist, and finds problems of the spec. Cannot fail.
TrainingPlan plan(const api::TrainingModel& training, const TrainingWorld& world,
                  const hosting::Options& options, WallTime now);

/// The work of the agent of `node`: the initial model, the scripts and the worker. Nothing: the run
/// is not there, or has ended. `nodes` needs this node only; `pods` are those of the run.
std::optional<hosting::NodeWork> work_for(const api::TrainingModel& training,
                                          const api::EdgeNode& node, const hosting::NodeList& nodes,
                                          const std::vector<workers::PodPtr>& pods);

/// The status to report. Figures alone are added kFiguresPeriod after the last ones at the
/// earliest.
struct TrainingObservation {
  api::TrainingModelStatus status;
  std::optional<Duration> recheck_in;
  /// The Model with the result, to be written before the run is Complete.
  std::optional<Json> output;
};
inline constexpr std::chrono::seconds kFiguresPeriod{5};
/// Time after the pod's end in which the node reports the result.
inline constexpr std::chrono::seconds kResultPatience{60};
TrainingObservation observe(const api::TrainingModel& training, const TrainingPlan& plan,
                            const TrainingWorld& world, const hosting::Options& options,
                            WallTime now);

/// Requires spec.initialModel.
runs::BaseRequest base_request(const api::TrainingModel& training);
/// The pinned initial model, if it belongs to the present spec.
std::optional<api::TrainingBase> pinned_base(const api::TrainingModel& training);
/// The pinned archive of spec.scripts, if it belongs to the present spec.
std::optional<api::TrainingBase> pinned_scripts(const api::TrainingModel& training);
/// The node of the run without its selector: spec.nodeName, else the chosen node; "": none.
const std::string& node_of(const api::TrainingModel& training);
workers::Job job_of(const api::TrainingModel& training);

}  // namespace varda::controllers::trainingmodel
