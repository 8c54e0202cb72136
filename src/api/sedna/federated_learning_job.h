// FederatedLearningJob (sedna.io/v1alpha1): one model, trained by workers on the nodes that have
// the data. The result is a new version of a Model. docs/design/028 describes the whole.
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

/// The worker that makes the next model from updates. Its `model` gets the result.
struct FederatedAggregationWorker : Worker {
  Json unknown;
  static void describe(Type<FederatedAggregationWorker>& t);
};

/// Datasets of the job's namespace: one by name, or those with labels.
struct FederatedDataset {
  std::string name;
  std::string group;                      // edgeai.io, sedna.io; "": any
  std::optional<NodeSelection> selector;  // labels of Datasets
  Json unknown;
  friend bool operator==(const FederatedDataset&, const FederatedDataset&) = default;
  static void describe(Type<FederatedDataset>& t);
};

/// One training worker, or one on each node of a group. `model` is not described.
struct FederatedTrainingWorker : Worker {
  std::optional<FederatedDataset> dataset;
  Json unknown;
  static void describe(Type<FederatedTrainingWorker>& t);
};

struct FederatedLearningJobSpec {
  static constexpr std::size_t kTrainingWorkersMax = 128;
  static constexpr std::int64_t kDefaultRounds = 10;

  FederatedAggregationWorker aggregation_worker;
  std::vector<FederatedTrainingWorker> training_workers;
  Json federated;  // settings of varda-aggregate, as written; may be null
  std::optional<ModelReference> pretrained_model;
  Json transmitter;      // of Sedna; accepted only
  Json active_deadline;  // a period; null: none
  std::int64_t backoff_limit = 6;
  bool suspend = false;
  Json unknown;

  std::int64_t deadline_seconds() const;  // 0: none
  std::int64_t rounds() const;
  static void describe(Type<FederatedLearningJobSpec>& t);
};

struct FederatedAggregatorStatus {
  std::string node;
  std::string pod, pod_uid;
  std::string address;  // HOST:PORT, as training workers reach it without a stream; "": not known
  std::int64_t attempts = 0;  // starts of the container
  std::int64_t failed = 0;
  TrainingAttempts earlier;
  Json unknown;
  static void describe(Type<FederatedAggregatorStatus>& t);
};

/// One training worker.
struct FederatedParticipant {
  static constexpr std::string_view kPending = "Pending", kRunning = "Running", kJoined = "Joined",
                                    kTraining = "Training", kUploaded = "Uploaded",
                                    kDropped = "Dropped", kEnded = "Ended", kFailed = "Failed";

  std::string worker;  // name of its pod
  std::string node;
  std::string dataset;  // "": none
  std::string state;
  std::string reason;  // of Pending, Dropped and Failed
  std::string message;
  Json unknown;
  static void describe(Type<FederatedParticipant>& t);
};

struct FederatedRound {
  std::int64_t round = 0;
  std::int64_t participants = 0;  // accepted updates
  std::int64_t dropped = 0;
  std::string seconds;
  std::map<std::string, std::string> metrics;
  static void describe(Type<FederatedRound>& t);
};

/// Texts for printer columns.
struct FederatedSummary {
  std::string round;         // "3/20"
  std::string participants;  // "4/5": workers that joined, of all
  std::string metric;        // "accuracy 0.97"
  static void describe(Type<FederatedSummary>& t);
};

struct FederatedLearningJobStatus {
  static constexpr std::string_view kPending = "Pending", kFetching = "Fetching",
                                    kWaiting = "Waiting", kTraining = "Training",
                                    kAggregating = "Aggregating", kEvaluating = "Evaluating",
                                    kUploading = "Uploading", kComplete = "Complete",
                                    kFailed = "Failed", kSuspended = "Suspended";
  static constexpr std::size_t kParticipantsMax = 500;
  static constexpr std::size_t kHistoryMax = 32;
  static constexpr std::size_t kMetricsMax = ModelMetricsStatus::kMetricsMax;

  std::string phase;
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  std::string start_time, completion_time;
  std::int64_t active = 0, succeeded = 0, failed = 0;  // workers
  std::int64_t round = 0, rounds = 0;
  FederatedAggregatorStatus aggregator;
  std::optional<TrainingBase> base;
  /// Parts of the spec that a running job cannot change, as it started with them.
  Json fixed;
  std::vector<FederatedParticipant> participants;
  std::vector<ModelMetric> metrics;
  std::vector<FederatedRound> history;
  std::int64_t bytes_up = 0, bytes_down = 0;  // of updates and models
  std::string epsilon;                        // spent privacy, as text; "": not private
  std::string update_time;                    // last change of the figures
  std::optional<TrainingProduced> produced;
  std::string metrics_url;  // of all rounds as CSV, in the registry; "": none
  FederatedSummary summary;
  Json unknown;

  /// True if the job is Complete or Failed. An ended job never starts again.
  bool ended() const;
  Json to_json() const;
  static void describe(Type<FederatedLearningJobStatus>& t);
};

struct FederatedLearningJob {
  static constexpr std::size_t kNameMax = 63;

  meta::ObjectMeta metadata;
  FederatedLearningJobSpec spec;
  FederatedLearningJobStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<FederatedLearningJob> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<FederatedLearningJob>& t);
};

/// Variables that Varda sets in the containers of a FederatedLearningJob.
const std::vector<std::string>& federated_variables();

}  // namespace varda::api
