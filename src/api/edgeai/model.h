// Model (edgeai.io/v1alpha1 and sedna.io/v1alpha1): facts about a model, to select models by: task,
// inputs, outputs, origin and metrics.
//
// A Model serves nothing; an InferenceModel does. Both groups share one set of members. ModelOf<G>
// has the spelling of one group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/group.h"
#include "api/edgeai/replication.h"
#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// One input or output, described as in the Open Inference Protocol.
struct ModelTensor {
  std::string name;
  std::string datatype;             // FP32, UINT8, BYTES ...
  std::vector<std::int64_t> shape;  // -1: any
  std::string description;
  Json unknown;
  static void describe(Type<ModelTensor>& t);
};

struct ModelSpec {
  std::string url;  // modelUrl in edgeai.io, url in sedna.io
  std::string format;
  std::string credential_name;  // of a Secret; "": none
  std::string task;             // "image-classification"
  std::vector<std::string> labels;
  std::vector<ModelTensor> inputs;
  std::vector<ModelTensor> outputs;
  std::int64_t size = 0;             // bytes; 0: unknown
  std::string sha256;                // of the archive at url; "": pinned at first use
  std::string signature;             // hosting/model_keys.h; "": none
  std::string version;               // same form as in the manifest of an InferenceModel; "": none
  std::string source_job;            // KIND/NAME
  std::vector<std::string> parents;  // names of Models
  std::string node_name;             // the node with the files, if the URL is a path
  std::optional<Replication> replication;
  std::map<std::string, std::string> metadata;  // free; keys have 1 to 253 characters
  Json unknown;
};

template <Group G>
struct ModelSpecOf : ModelSpec {
  static void describe(Type<ModelSpecOf>& t);
};

/// Sedna's form: numbers are text.
struct ModelMetric {
  std::string key;
  std::string value;
  friend bool operator==(const ModelMetric& a, const ModelMetric& b) {
    return a.key == b.key && a.value == b.value;
  }
  Json unknown;
  static void describe(Type<ModelMetric>& t);
};

/// The last applied report of one worker, so that a repeated old report changes nothing.
struct ModelReporter {
  std::string node;
  std::string worker;  // NAMESPACE/NAME
  std::string uid;     // of the worker's job
  // Number of the last applied report, counted by the agent of that node.
  std::int64_t sequence = 0;
  static void describe(Type<ModelReporter>& t);
};

/// The digest of the file at a URL, as Varda first read it. Valid for this URL and version.
struct PinnedFile {
  std::string url;
  std::string version;  // spec.version
  std::string sha256;
  std::int64_t bytes = 0;
  std::string time;  // when the file was read
  static void describe(Type<PinnedFile>& t);
};

struct ModelMetricsStatus {
  static constexpr std::size_t kMetricsMax = 64;
  static constexpr std::size_t kReportersMax = 32;

  std::string update_time;  // last change of a metric
  std::vector<ModelMetric> metrics;
  std::vector<ModelReporter> reporters;
  std::optional<ReplicationStatus> replication;
  std::optional<PinnedFile> pinned;  // of a Model without spec.sha256
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  Json unknown;
  const ModelMetric* find_metric(std::string_view key) const;
  Json to_json() const;
  static Result<ModelMetricsStatus> from_json(const Json& status);
  static void describe(Type<ModelMetricsStatus>& t);
};

/// The digest of the file at spec.url: spec.sha256, or the pinned digest. "": unknown. The result
/// is a part of the arguments.
const std::string& known_sha256(const ModelSpec& spec, const ModelMetricsStatus& status);

template <Group G>
struct ModelOf {
  static constexpr Group kGroup = G;

  meta::ObjectMeta metadata;
  ModelSpecOf<G> spec;
  ModelMetricsStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<ModelOf> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<ModelOf>& t);
};

using Model = ModelOf<Group::kEdgeai>;
using SednaModel = ModelOf<Group::kSedna>;

}  // namespace varda::api
