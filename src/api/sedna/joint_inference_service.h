// JointInferenceService (sedna.io/v1alpha1): one model over two or more tiers, from the device to
// the cloud. docs/design/017 describes the objects that the service gets.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/worker_uploads.h"
#include "api/kind.h"
#include "api/sedna/worker.h"
#include "meta/object.h"

namespace varda::api {

/// Parses "300ms", "2s" or "1m", from 1ms to 10m. Empty for any other text.
std::optional<std::chrono::milliseconds> parse_deadline(std::string_view text);

struct JointEdgeWorker : Worker {
  std::optional<HardExampleMining> hard_example_mining;
  std::optional<WorkerUploads> uploads;  // absent: the worker may not upload files
  Json unknown;
  static void describe(Type<JointEdgeWorker>& t);
};

struct JointCloudWorker : Worker {
  static constexpr std::int64_t kDefaultPort = 5000;

  std::int64_t port = 0;  // 0: see service_port()
  std::optional<InferenceModelService> service;
  std::string deadline;  // of one call; "": the service's deadline
  Json unknown;
  /// Port of the Service: port, else the first port that a container declares, else 5000.
  std::int64_t service_port() const;
  /// ClusterIP, NodePort, LoadBalancer.
  std::string_view service_type() const {
    return service ? std::string_view(service->type) : "NodePort";
  }
  static void describe(Type<JointCloudWorker>& t);
};

struct JointTier : PodSettings {
  static constexpr std::string_view kDevice = "device", kEdge = "edge", kCloud = "cloud";

  std::string name;
  ModelReference model;
  std::string node_name;
  std::string layer;  // kDevice, kEdge, kCloud; a tier has either node_name or layer
  std::optional<TierPolicy> policy;
  std::string deadline;
  Json unknown;
  static void describe(Type<JointTier>& t);
};

struct JointInferenceServiceSpec {
  static constexpr std::chrono::milliseconds kDefaultDeadline{2000};
  static constexpr std::size_t kTiersMax = 8;

  std::string model_name;
  std::int64_t serving_port = 0;  // 0: a free port
  std::string deadline;
  // Either both workers, or tiers.
  std::optional<JointEdgeWorker> edge_worker;
  std::optional<JointCloudWorker> cloud_worker;
  std::vector<JointTier> tiers;
  ModelSecurity security;                 // for every tier on our server
  std::optional<SampleSettings> samples;  // of the first tier, if it is our server
  Json unknown;

  bool has_tiers() const { return !tiers.empty(); }
  /// Deadline of a request: `deadline`, else 2s or the longest deadline of a tier, whichever is
  /// longer.
  std::chrono::milliseconds total_deadline() const;
  static void describe(Type<JointInferenceServiceSpec>& t);
};

struct JointEndpoint {
  std::string node;
  std::string url;
  bool ready = false;
  std::string version;  // of the first tier's model
  Json unknown;
  friend bool operator==(const JointEndpoint&, const JointEndpoint&) = default;
  static void describe(Type<JointEndpoint>& t);
};

struct JointTierStatus {
  std::string name;
  std::string layer;
  std::string node;  // "": several nodes, or the cloud's choice
  std::string model;
  std::string version;
  std::string url;
  bool ready = false;
  std::int64_t answered = 0;
  std::int64_t called = 0;
  std::map<std::string, std::int64_t> errors;  // by reason
  std::string p50_ms, p99_ms;                  // text: "5.1"
  Json unknown;
  friend bool operator==(const JointTierStatus&, const JointTierStatus&) = default;
  static void describe(Type<JointTierStatus>& t);
};

/// The part of the sums that comes from one record on one node. With it, the sums survive pods,
/// agents and nodes.
struct JointCounters {
  std::string node;   // "": sum of all removed records
  std::string epoch;  // of the record; "" if node is ""
  Json counters;      // integers at any depth, as the node reports them
  Json unknown;
  friend bool operator==(const JointCounters&, const JointCounters&) = default;
  static void describe(Type<JointCounters>& t);
};

struct JointInferenceServiceStatus {
  static constexpr std::size_t kEndpointsMax = 1024, kCountersMax = 2048;

  std::vector<meta::Condition> conditions;  // Ready, EdgeReady, CloudReady, Degraded
  std::int64_t observed_generation = 0;
  std::string url;  // of the first endpoint that is ready
  std::vector<JointEndpoint> endpoints;
  std::int64_t active = 0, failed = 0;  // workers
  std::int64_t inference_number = 0;
  std::int64_t hard_example_number = 0;
  std::string upload_cloud_ratio;  // "0.27"; "": before the first inference
  std::int64_t bytes_sent = 0;
  std::vector<JointTierStatus> tiers;
  std::optional<SampleReport> samples;  // sums of the nodes; absent: no request is kept
  std::string start_time;               // first time the service was ready
  std::string update_time;              // last change of the status
  std::vector<JointCounters> counters;
  Json unknown;
  Json to_json() const;
  static void describe(Type<JointInferenceServiceStatus>& t);
};

struct JointInferenceService {
  static constexpr std::size_t kNameMax = 48;  // child objects have longer names

  meta::ObjectMeta metadata;
  JointInferenceServiceSpec spec;
  JointInferenceServiceStatus status;
  Json unknown;

  /// Name of the model in requests of clients.
  const std::string& model_name() const {
    return spec.model_name.empty() ? metadata.name : spec.model_name;
  }
  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<JointInferenceService> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<JointInferenceService>& t);
};

}  // namespace varda::api
