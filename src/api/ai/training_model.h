// TrainingModel (ai.kubeedge.io/v1alpha1): one training run, on a node or as a Job of the cluster.
// The result is a new version of a Model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/ai/pod_settings.h"
#include "api/edgeai/model.h"
#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// The weights to start from: a Model or an InferenceModel by name, or archives.
struct TrainingInitialModel {
  std::string name;
  std::string kind;     // Model, InferenceModel; "": the Model with the name, else the other
  std::string group;    // of a Model: edgeai.io, sedna.io; "": the group that has the name
  std::string version;  // "": the present one
  std::vector<ManifestEntry> manifest;  // instead of name
  std::string target_version;           // with manifest
  Json unknown;
  Json to_json() const;
  static void describe(Type<TrainingInitialModel>& t);
};

/// The program of a user's trainer, as archives beside the image.
struct TrainingScripts {
  std::vector<ManifestEntry> manifest;
  std::string target_version;  // of the manifest
  Json unknown;
  Json to_json() const;
  static void describe(Type<TrainingScripts>& t);
};

/// A Dataset by name, in the namespace of the TrainingModel.
struct TrainingDataset {
  std::string name;
  std::string group;  // edgeai.io, sedna.io; "": the group that has the name
  Json unknown;
  static void describe(Type<TrainingDataset>& t);
};

struct TrainingEvaluation {
  static constexpr double kDefaultHoldOut = 0.1;

  std::optional<TrainingDataset> dataset;
  std::optional<double> hold_out;  // share of `dataset` of the spec
  Json unknown;
  static void describe(Type<TrainingEvaluation>& t);
};

struct TrainingParameter {
  std::string key, value;
  Json unknown;
  static void describe(Type<TrainingParameter>& t);
};

struct TrainingOutput {
  std::string version;  // "": the first digits of the digest
  bool registry = true;
  std::string url;                              // s3://BUCKET/PREFIX, with registry false
  std::optional<ModelCredentials> credentials;  // for url, or for readers of the registry
  Json unknown;
  static void describe(Type<TrainingOutput>& t);
};

struct TrainingCheckpoint {
  static constexpr std::int64_t kDefaultSeconds = 60;

  Json every;  // a period; null: kDefaultSeconds
  Json unknown;
  static void describe(Type<TrainingCheckpoint>& t);
};

struct TrainingModelSpec : PodSettings {
  std::string model_name;
  std::string deploy_to_layer = "edge";
  std::map<std::string, std::string> node_selector;
  std::string node_name;
  std::optional<TrainingInitialModel> initial_model;
  std::optional<TrainingDataset> dataset;
  std::optional<TrainingEvaluation> evaluation;
  // Exactly one of these four is set.
  Json trainer;  // settings of varda-train, as written
  std::string image;
  Json worker_spec;                        // a PodSpec or {metadata, spec}
  Json pod_template;                       // {metadata, spec}
  std::optional<TrainingScripts> scripts;  // not with `trainer`
  std::vector<TrainingParameter> parameters;
  TrainingOutput output;
  TrainingCheckpoint checkpoint;
  Json active_deadline;  // a period; null: none
  std::int64_t backoff_limit = 3;
  bool suspend = false;
  Json unknown;

  bool built_in() const { return !trainer.is_null(); }
  /// The cluster chooses the place of the run.
  bool without_node() const {
    return deploy_to_layer == "cloud" && node_name.empty() && node_selector.empty();
  }
  std::int64_t checkpoint_seconds() const;
  std::int64_t deadline_seconds() const;  // 0: none
  double hold_out() const;
  /// The user's PodSpec in either form, as written. Null with `trainer` and `image`.
  const Json& pod_spec() const;
  const Json& pod_metadata() const;
  static void describe(Type<TrainingModelSpec>& t);
};

/// The initial model of this run. A later version of the model does not change the run.
struct TrainingBase {
  std::string requested;  // digest of spec.initialModel, or of spec.scripts
  std::string kind, group, name;
  ManifestEntry archive;  // without sha256sum: nodes do not fetch the file
  Json unknown;
  friend bool operator==(const TrainingBase&, const TrainingBase&) = default;
  static void describe(Type<TrainingBase>& t);
};

struct TrainingProgress {
  std::int64_t epoch = 0, epochs = 0;
  std::int64_t step = 0, steps = 0;
  // Numbers as text.
  std::string loss;
  std::string samples_per_second;
  std::string remaining;    // "1m20s"
  std::string update_time;  // when this status received the figures
  static void describe(Type<TrainingProgress>& t);
};

struct TrainingEpoch {
  std::int64_t epoch = 0;
  std::string loss;
  std::map<std::string, std::string> metrics;
  static void describe(Type<TrainingEpoch>& t);
};

struct TrainingProduced {
  std::string version;
  std::string sha256;
  std::string url;
  std::int64_t bytes = 0;
  std::string report_url;
  static void describe(Type<TrainingProduced>& t);
};

/// Starts of former pods, and how many of them failed.
struct TrainingAttempts {
  std::int64_t attempts = 0, failed = 0;
  static void describe(Type<TrainingAttempts>& t);
};

/// Texts for printer columns.
struct TrainingSummary {
  std::string progress;  // "epoch 2/5, 37 %"
  std::string metric;    // "accuracy 0.97"
  static void describe(Type<TrainingSummary>& t);
};

struct TrainingModelStatus {
  static constexpr std::string_view kPending = "Pending", kFetching = "Fetching",
                                    kTraining = "Training", kEvaluating = "Evaluating",
                                    kUploading = "Uploading", kComplete = "Complete",
                                    kFailed = "Failed", kSuspended = "Suspended";
  static constexpr std::size_t kHistoryMax = 32;
  static constexpr std::size_t kMetricsMax = ModelMetricsStatus::kMetricsMax;

  std::string phase;
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  std::string node;
  std::string pod, pod_uid;
  std::optional<TrainingBase> base;
  std::optional<TrainingBase> scripts;                // the archive of spec.scripts
  std::optional<TrainingBase> data, evaluation_data;  // files of datasets, of a run without a node
  TrainingProgress progress;
  std::vector<ModelMetric> metrics;
  std::vector<TrainingEpoch> history;
  std::int64_t attempts = 0;  // starts of the container
  std::int64_t failed = 0;    // failed attempts
  TrainingAttempts earlier;
  std::string start_time, completion_time;
  std::optional<TrainingProduced> produced;
  std::string dataset_fingerprint;
  TrainingSummary summary;
  Json unknown;

  /// True if the run is Complete or Failed. An ended run never starts again.
  bool ended() const;
  Json to_json() const;
  static void describe(Type<TrainingModelStatus>& t);
};

struct TrainingModel {
  static constexpr std::size_t kNameMax = 63;

  meta::ObjectMeta metadata;
  TrainingModelSpec spec;
  TrainingModelStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<TrainingModel> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<TrainingModel>& t);
};

/// Variables that Varda sets in the containers of a TrainingModel.
const std::vector<std::string>& training_variables();

}  // namespace varda::api
