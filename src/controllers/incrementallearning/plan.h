// Plans an IncrementalLearningJob: its objects (plan), the work of its nodes (work_for), and its
// status (observe). Pure functions over a snapshot of the caches.
//
// The round machine (room incremental) decides. plan() makes what the persisted state wants;
// observe() gives the machine what the world shows, and reports the next state. So an operator that
// restarts at any point continues the round.
//
// The service is one InferenceModel for each node, or a pod of the user. One worker trains, and
// also evaluates if the user has a program for training or evaluation. It stays in the node's work
// list between rounds, so its directory stays, too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/incremental_learning_job.h"
#include "base/clock.h"
#include "controllers/runs/runs.h"
#include "controllers/workers/workers.h"
#include "hosting/model_archive.h"
#include "hosting/node_work.h"
#include "hosting/placement.h"
#include "hosting/servers.h"
#include "incremental/round_machine.h"
#include "incremental/settings.h"

namespace varda::controllers::incrementallearning {

// Names of workers. Longer than any tier's name, so that no worker of a JointInferenceService has
// the same key.
inline constexpr const char* kTrainerName = "incremental-trainer";
inline constexpr const char* kServerName = "incremental-server";
/// End of the key of the evaluated candidate in EdgeNode.spec.models.
inline constexpr const char* kCandidateName = "incremental-candidate";
/// Directory of the candidate in the containers of the stage Eval.
inline constexpr const char* kCandidateMount = "/var/run/varda/candidate";
/// End of the key of evalSpec.initialEvalModel in EdgeNode.spec.models, and its directory.
inline constexpr const char* kBaselineName = "incremental-baseline";
inline constexpr const char* kBaselineMount = "/var/run/varda/baseline";

using codec::Json;

using ChildPtr = std::shared_ptr<const api::InferenceModel>;

/// Where labels of kept samples come from, and where labelled samples go.
struct LabelWay {
  std::string node, folder;  // of the Dataset; "": it takes no files
  std::string url, model;    // of the bigger model's server; "": no labels by a model
  std::optional<hosting::Problem> problem;  // why labels or labelled samples are missing
};
using NamedInferenceModel =
    std::function<std::shared_ptr<const api::InferenceModel>(const std::string& name)>;
/// Name of the InferenceModel that labels samples. "": people do.
const std::string& label_model(const api::IncrementalLearningJob& job);
/// `datasets` are those with the name of the job's Dataset.
LabelWay label_way(const api::IncrementalLearningJob& job, const runs::NamedDatasets& datasets,
                   const NamedInferenceModel& model_named);

/// The surroundings of one job, as cached.
struct IncrementalWorld {
  hosting::NodeList nodes;  // of workers and servers
  std::function<workers::EdgeNodePtr(const std::string& node)> edge_node;
  workers::ModelWorld initial;   // the objects that may be the initial model
  workers::ModelWorld baseline;  // the same for evalSpec.initialEvalModel
  std::map<std::string, runs::NamedDatasets> datasets;
  std::vector<workers::PodPtr> pods;         // of the job
  std::vector<ChildPtr> children;            // InferenceModels of the job
  std::vector<workers::PodPtr> server_pods;  // of these InferenceModels
  hosting::AnyModels outputs;                // Models named deploySpec.model.name
  std::string older_writer;                  // an older job with the same Model; "": none
  LabelWay labels;
};

/// A node that serves.
struct PlannedServer {
  std::string node, name;
  ChildPtr child;                           // our server; null: missing
  workers::PodPtr pod;                      // the user's server; null: missing
  std::optional<hosting::Problem> problem;  // the reason why it is missing or outdated
};

struct IncrementalPlan {
  /// Set if the spec cannot be followed. Present objects stay, and no round makes progress.
  std::optional<hosting::Problem> problem;
  std::vector<Json> objects;
  std::vector<workers::PodPtr> failed;  // servers of the user, replaced after a pause
  std::optional<api::TrainingBase> base;
  /// evalSpec.initialEvalModel, while candidates are compared with it.
  std::optional<api::TrainingBase> baseline;
  std::vector<api::IncrementalVersion> versions;  // with the initial one
  std::string node;                               // of training and evaluation; "": none
  incremental::Settings settings;
  incremental::State state;
  incremental::Wanted wanted;
  // The worker of the stage.
  std::string pod_name;
  workers::PodPtr pod;  // null: missing
  std::optional<hosting::Problem> baseline_problem;
  std::optional<hosting::Problem> blocked;  // no worker can run
  std::optional<hosting::Problem> waiting;  // the pod waits for files
  std::vector<PlannedServer> servers;
};

/// True if both jobs write the same Model, and `other` is the older one. Two writers would undo
/// each other's change for ever.
bool writes_first(const api::IncrementalLearningJob& other, const api::IncrementalLearningJob& job);

/// Plans the objects that should exist, and finds problems of the spec. Cannot fail.
IncrementalPlan plan(const api::IncrementalLearningJob& job, const IncrementalWorld& world,
                     const hosting::Options& options);

/// The work of the agent of `node`: models, workers and kept samples. `nodes` needs this node only;
/// `pods` are those of the job.
std::optional<hosting::NodeWork> work_for(const api::IncrementalLearningJob& job,
                                          const api::EdgeNode& node, const hosting::NodeList& nodes,
                                          const std::vector<workers::PodPtr>& pods,
                                          const LabelWay& labels = {});

struct IncrementalObservation {
  api::IncrementalLearningJobStatus status;
  std::optional<Duration> recheck_in;
  std::vector<incremental::Transition> transitions;  // new ones, for Events
  std::optional<incremental::RoundRecord> ended;     // a round that just ended
  std::string rolled_back;                           // a version that just left the service
  /// The Model with the serving version, if it needs a write.
  struct Output {
    Json object;
    api::TrainingProduced produced;
    std::vector<api::ModelMetric> metrics;
  };
  std::optional<Output> output;
};
/// Time after the pod's end in which the node reports the result.
inline constexpr std::chrono::seconds kResultPatience{60};
IncrementalObservation observe(const api::IncrementalLearningJob& job, const IncrementalPlan& plan,
                               const IncrementalWorld& world, const hosting::Options& options,
                               WallTime now);

// ---- shared by the files of this folder

workers::Job job_of(const api::IncrementalLearningJob& job);
/// The Model, of the group that gets the versions.
std::optional<hosting::AnyModel> output_model(const api::IncrementalLearningJob& job,
                                              const hosting::AnyModels& models);
/// "digits", or with several nodes "digits-edge0": name of the InferenceModel of a node.
std::string child_name(const api::IncrementalLearningJob& job, const std::string& node);
/// The InferenceModel of a node. Requires that `versions` has the wanted version.
Json child_of(const api::IncrementalLearningJob& job, const IncrementalPlan& plan,
              const std::string& node, const api::InferenceModel* existing,
              const hosting::Options& options);
/// Fills in `workers`, `nodes`, `samples` and the rest of the machine's input.
incremental::Observation observation_of(const api::IncrementalLearningJob& job,
                                        const IncrementalPlan& plan, const IncrementalWorld& world,
                                        WallTime now);
/// The version as an archive, with the secret of the initial model.
api::ManifestEntry entry_of(const api::IncrementalVersion& version,
                            const std::optional<api::TrainingBase>& base);

}  // namespace varda::controllers::incrementallearning
