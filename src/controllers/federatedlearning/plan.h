// Plans a FederatedLearningJob: its Pods (plan), the work of its nodes (work_for), and its status
// with the result (observe). Pure functions over a snapshot of the caches.
//
// A job has one aggregation worker, which stays on its node, and a training worker for each place.
// status.participants lists the training workers. From it come the work of nodes and the
// assignment of the aggregation worker, so that both follow one decision.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/federated_learning_job.h"
#include "base/clock.h"
#include "controllers/runs/runs.h"
#include "controllers/workers/workers.h"
#include "hosting/model_archive.h"
#include "hosting/node_work.h"
#include "hosting/placement.h"
#include "hosting/servers.h"

namespace varda::controllers::federatedlearning {

// Names of workers. Longer than any tier's name, so that no worker of a JointInferenceService has
// the same key.
inline constexpr std::string_view kAggregatorName = "federated-aggregator";
inline constexpr std::string_view kTrainerName = "federated-trainer";
/// Stream of a training worker to the aggregation worker.
inline constexpr std::string_view kAggregatorStream = "aggregator";
inline constexpr std::int64_t kDefaultPort = 7363;
/// Reason: Options::edge_authority is not known yet. No object changes when it is.
inline constexpr std::string_view kAuthorityMissing = "EdgeAuthorityMissing";
inline constexpr std::chrono::seconds kAuthorityRecheck{5};

using codec::Json;

/// The surroundings of one job, as cached.
struct FederatedWorld {
  hosting::NodeList nodes;  // of workers, and where the aggregation worker may be
  std::function<workers::EdgeNodePtr(const std::string& node)> edge_node;
  workers::ModelWorld initial;  // the objects that may be the initial model
  std::map<std::string, runs::NamedDatasets> datasets;
  std::vector<workers::PodPtr> pods;  // of the job
  hosting::AnyModels outputs;         // Models named aggregationWorker.model.name
};

/// A training worker and its pod.
struct PlannedTrainer {
  std::string pod_name, node, dataset;
  workers::PodPtr pod;                      // the present one; null: none
  std::optional<hosting::Problem> problem;  // the reason why the pod is missing or outdated
};

struct FederatedPlan {
  enum class Pods {
    kConverge,  // to exactly `objects`
    kLeave,     // present pods stay, and none is created
    kRemove,    // all pods of `remove` go
  };
  Pods pods = Pods::kConverge;
  std::optional<hosting::Problem> problem;  // of the aggregation worker
  std::vector<Json> objects;
  std::vector<workers::PodPtr> remove;
  std::vector<workers::PodPtr> failed;  // replaced after a pause (FailedPods)
  std::string node;                     // of the aggregation worker; "": none
  std::string pod_name;                 // on that node
  workers::PodPtr pod;                  // the present one there; null: none
  std::optional<api::TrainingBase> base;
  Json fixed;  // for status.fixed
  std::vector<PlannedTrainer> trainers;
  std::vector<hosting::Problem> entry_problems;  // of entries without a place
};

/// Plans the pods that should exist, and finds problems of the spec. Cannot fail.
FederatedPlan plan(const api::FederatedLearningJob& job, const FederatedWorld& world,
                   const hosting::Options& options, WallTime now);

/// The work of the agent of `node`: initial models and workers. `nodes` needs this node only;
/// `pods` are those of the job.
std::optional<hosting::NodeWork> work_for(const api::FederatedLearningJob& job,
                                          const api::EdgeNode& node, const hosting::NodeList& nodes,
                                          const std::vector<workers::PodPtr>& pods);

/// The status to report. Figures alone are added kFiguresPeriod after the last ones at the
/// earliest.
struct FederatedObservation {
  api::FederatedLearningJobStatus status;
  std::optional<Duration> recheck_in;
  /// The Model with the result, to be written before the job is Complete.
  std::optional<Json> output;
};
inline constexpr std::chrono::seconds kFiguresPeriod{5};
/// Time after the pod's end in which the node reports the result.
inline constexpr std::chrono::seconds kResultPatience{60};
FederatedObservation observe(const api::FederatedLearningJob& job, const FederatedPlan& plan,
                             const FederatedWorld& world, const hosting::Options& options,
                             WallTime now);

/// The Model that gets the result, as present: of the group that the spec names, else of the group
/// that has one. Nothing: it does not exist.
std::optional<hosting::AnyModel> output_model(const api::FederatedLearningJob& job,
                                              const hosting::AnyModels& models);
/// Name of the Model that gets the result. A started job keeps it.
const std::string& model_name(const api::FederatedLearningJob& job);
/// spec.federated, with status.fixed in the place of parts that changed since the start.
Json settings_of(const api::FederatedLearningJob& job);
/// Address of the aggregation worker's pod: "10.0.0.7:7363". "": not known.
std::string address_of(const api::FederatedLearningJob& job, const api::Pod* pod);
/// Parts of the spec that differ from status.fixed: "federated.compression".
std::vector<std::string> refused_changes(const api::FederatedLearningJob& job);
/// The part of spec.federated that varda-aggregate would refuse.
std::optional<hosting::Problem> settings_problem(const api::FederatedLearningJob& job);
/// The initial model that the job asks for.
api::TrainingInitialModel initial_model(const api::FederatedLearningJob& job);
workers::Job job_of(const api::FederatedLearningJob& job);

}  // namespace varda::controllers::federatedlearning
