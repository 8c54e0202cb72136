// IncrementalLearningJob (sedna.io/v1alpha1): a served model that learns from new samples. A
// training runs when a trigger fires, a gate compares its result with the serving version, and a
// better version serves. docs/design/033 describes the whole.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/training_model.h"
#include "api/kind.h"
#include "api/sedna/worker.h"
#include "meta/object.h"

namespace varda::api {

/// Labelled samples that arrive.
struct IncrementalDataset {
  static constexpr double kDefaultTrainProb = 0.8;

  std::string name;
  std::string group;                 // edgeai.io, sedna.io; "": any
  std::optional<double> train_prob;  // share of the samples that train; the rest evaluates
  Json unknown;
  double train_share() const { return train_prob.value_or(kDefaultTrainProb); }
  static void describe(Type<IncrementalDataset>& t);
};

/// A pod of the user, in one of two forms, and its place. Without a pod, Varda's program works.
struct IncrementalWorker : PodSettings {
  std::string node_name;
  Json worker_spec;   // a PodSpec or {metadata, spec}, or null
  Json pod_template;  // {metadata, spec}, or null

  bool has_template() const { return !pod_spec().is_null(); }
  const Json& pod_spec() const;
  const Json& pod_metadata() const;
  /// nodeName, else the pod's own nodeName, else "".
  const std::string& node() const;
};

struct IncrementalTrainSpec : IncrementalWorker {
  Json trainer;                           // settings of varda-train; may be null
  std::optional<TrainingDataset> replay;  // old samples for varda-train
  Json trigger, retry;                    // room incremental reads them; may be null
  Json unknown;
  static void describe(Type<IncrementalTrainSpec>& t);
};

struct IncrementalEvalSpec : IncrementalWorker {
  std::optional<ModelReference> initial_eval_model;
  std::optional<TrainingDataset> dataset;  // frozen samples
  Json gate;                               // room incremental reads it; may be null
  Json unknown;
  static void describe(Type<IncrementalEvalSpec>& t);
};

/// The Model that gets the accepted versions.
struct IncrementalDeployModel {
  static constexpr std::int64_t kDefaultPollPeriod = 60;

  std::string name;
  std::string group;  // edgeai.io, sedna.io; "": edgeai.io
  bool hot_update_enabled = false;
  std::int64_t poll_period_seconds = kDefaultPollPeriod;
  Json unknown;
  static void describe(Type<IncrementalDeployModel>& t);
};

struct IncrementalDeploySpec : IncrementalWorker {
  static constexpr std::size_t kNodesMax = 32;

  IncrementalDeployModel model;
  Json trigger;  // a condition on the comparison, as Sedna has it; may be null
  std::optional<HardExampleMining> hard_example_mining;
  std::vector<std::string> node_names;  // of our server; empty: one node
  std::int64_t serving_port = 0;        // 0: InferenceModelSpec::kDefaultPort
  // Rooms spool and incremental read these. May be null.
  Json samples, pseudo_labels, trial, rollback, rollout;
  Json unknown;
  static void describe(Type<IncrementalDeploySpec>& t);
};

struct IncrementalLearningJobSpec {
  IncrementalDataset dataset;
  ModelReference initial_model;
  IncrementalTrainSpec train_spec;
  IncrementalEvalSpec eval_spec;
  IncrementalDeploySpec deploy_spec;
  std::string output_dir;       // of Sedna; accepted only
  std::string credential_name;  // Secret for the archives of the initial model; "": none
  std::string node_name;        // of all workers without a place of their own
  bool suspend = false;
  Json unknown;

  /// Nodes that serve, in order. Empty: the node of the training.
  std::vector<std::string> serving_nodes() const;
  /// The place of the training in the spec. "": the node of the dataset.
  const std::string& training_node() const;
  bool users_train() const { return train_spec.has_template(); }
  bool users_evaluate() const { return eval_spec.has_template(); }
  bool users_serve() const { return deploy_spec.has_template(); }
  Json to_json() const;
  static void describe(Type<IncrementalLearningJobSpec>& t);
};

/// A version of the deployed model.
struct IncrementalVersion {
  std::string version;
  std::string url, sha256;
  std::int64_t bytes = 0;
  std::int64_t round = 0;  // 0: the initial model
  std::string report_url;
  std::vector<ModelMetric> metrics;
  Json unknown;
  friend bool operator==(const IncrementalVersion& a, const IncrementalVersion& b) {
    return a.version == b.version && a.sha256 == b.sha256 && a.url == b.url && a.round == b.round;
  }
  static void describe(Type<IncrementalVersion>& t);
};

struct IncrementalRound {
  std::int64_t round = 0;
  std::string outcome;  // accepted, refused, failed
  std::string reason;
  std::string message;
  std::string trigger;  // why the round began
  std::string version;
  std::int64_t samples = 0;
  std::string gain;  // text
  bool rolled_back = false;
  std::string start_time, end_time;
  Json unknown;
  static void describe(Type<IncrementalRound>& t);
};

/// One step of the round machine.
struct IncrementalStep {
  std::int64_t round = 0;
  std::string stage;  // Train, Eval, Deploy
  std::string state;  // Waiting, Ready, Starting, Running, Completed, Failed
  std::string reason;
  std::string time;
  static void describe(Type<IncrementalStep>& t);
};

/// Numbers of samples.
struct IncrementalSamples {
  std::int64_t total = 0;     // of the Dataset
  std::int64_t consumed = 0;  // in rounds that ended with accepted or refused
  std::int64_t fresh = 0;     // new
  std::int64_t pending = 0;   // on the nodes, without a label
  static void describe(Type<IncrementalSamples>& t);
};

/// A node that serves.
struct IncrementalServing {
  std::string node;
  std::string name;  // of the InferenceModel or the Pod
  std::string version;
  std::string url;
  bool ready = false;
  std::string message;  // the reason why it is not Ready
  // Restarts of the server, and those of them before `version` served.
  std::int64_t restarts = 0, restarts_before = 0;
  Json unknown;
  static void describe(Type<IncrementalServing>& t);
};

/// Texts for printer columns.
struct IncrementalSummary {
  std::string stage;    // "Train Running"
  std::string samples;  // "12 new, 340"
  std::string gain;     // of the last verdict: "+0.12"
  static void describe(Type<IncrementalSummary>& t);
};

struct IncrementalLearningJobStatus {
  static constexpr std::size_t kRoundsMax = 16, kHistoryMax = 24, kVersionsMax = 20,
                               kRefusedMax = 256;

  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  std::string stage, state;  // Train Waiting
  std::int64_t round = 0;    // the present or next round, from 1
  std::int64_t attempt = 0;
  std::string node;     // of the training
  std::string version;  // that serves
  std::optional<TrainingBase> base;
  std::optional<TrainingBase> baseline;      // of the first comparisons, if it is not `base`
  std::vector<IncrementalVersion> versions;  // oldest first; the initial model, accepted, candidate
  std::vector<IncrementalServing> serving;
  IncrementalSamples samples;
  std::vector<IncrementalRound> rounds;
  std::vector<IncrementalStep> history;
  std::vector<std::int64_t> refused;  // rounds with samples that no later training repeats
  Json machine;                       // state of the round machine (room incremental)
  std::string pod;                    // of the present attempt
  IncrementalSummary summary;
  Json unknown;

  const IncrementalVersion* find_version(std::string_view version) const;
  Json to_json() const;
  static void describe(Type<IncrementalLearningJobStatus>& t);
};

struct IncrementalLearningJob {
  static constexpr std::size_t kNameMax = 48;  // a child has the suffix of a node
  /// `varda il train` and `rollback` set these to a new value. The operator consumes each value
  /// once.
  static constexpr std::string_view kTrainAnnotation = "edgeai.io/train",
                                    kRollbackAnnotation = "edgeai.io/rollback";

  meta::ObjectMeta metadata;
  IncrementalLearningJobSpec spec;
  IncrementalLearningJobStatus status;
  Json unknown;

  /// "": not set.
  const std::string& annotation(std::string_view name) const;
  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<IncrementalLearningJob> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<IncrementalLearningJob>& t);
};

/// Variables that Varda sets in the containers of an IncrementalLearningJob.
const std::vector<std::string>& incremental_variables();

}  // namespace varda::api
