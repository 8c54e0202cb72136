// Workers of the jobs of sedna.io: their place, their pod and their model. All kinds of the group
// share them.
//
// A pod template has one of two forms: workerSpec (a PodSpec, with nodeName beside it), or template
// ({metadata, spec}, as in Sedna, with the node in spec.nodeName). workerSpec may be {metadata,
// spec} too. All stay as written, because this room does not read core/v1. Callers that need one
// pod for all forms use pod_spec(), pod_metadata() and node().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/pod_settings.h"
#include "base/result.h"
#include "codec/json.h"
#include "meta/selector.h"
#include "tiers/policy_table.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

/// A model by name, in the namespace of the object that refers to it.
struct ModelReference {
  static constexpr std::string_view kModel = "Model", kInferenceModel = "InferenceModel";

  std::string name;
  // kModel, kInferenceModel; "": the Model with the name, else the InferenceModel.
  std::string kind;
  std::string group;  // of a Model: edgeai.io, sedna.io; "": the group that has the name
  Json unknown;
  friend bool operator==(const ModelReference&, const ModelReference&) = default;
  static void describe(Type<ModelReference>& t);
};

struct SelectorRequirement {
  std::string key;
  std::string op;  // In, NotIn, Exists, DoesNotExist
  std::vector<std::string> values;
  Json unknown;
  friend bool operator==(const SelectorRequirement&, const SelectorRequirement&) = default;
  static void describe(Type<SelectorRequirement>& t);
};

/// Selects nodes by labels. An empty selection matches every node.
struct NodeSelection {
  std::map<std::string, std::string> match_labels;
  std::vector<SelectorRequirement> match_expressions;
  Json unknown;
  /// A compiled selector, for many nodes. kInvalid: an unknown operator, or one without values.
  /// Only objects that no server has validated have such operators.
  Result<meta::LabelSelector> compiled() const;
  friend bool operator==(const NodeSelection&, const NodeSelection&) = default;
  static void describe(Type<NodeSelection>& t);
};

/// All parameters are text.
struct MiningParameter {
  std::string key;
  std::string value;
  Json unknown;
  friend bool operator==(const MiningParameter&, const MiningParameter&) = default;
  static void describe(Type<MiningParameter>& t);
};

/// The policy for hard answers, by name (docs/guides/joint-inference.md). With our server it is a
/// policy of src/tiers; a worker of the user may have its own.
struct HardExampleMining {
  std::string name;
  std::vector<MiningParameter> parameters;
  Json unknown;
  std::vector<tiers::PolicyParameter> policy_parameters() const;
  /// [{key, value}, ...], the form in HEM_PARAMETERS and in assignments.
  Json parameters_to_json() const;
  friend bool operator==(const HardExampleMining&, const HardExampleMining&) = default;
  static void describe(Type<HardExampleMining>& t);
};

/// A policy of our server: name and parameters are in the table.
struct TierPolicy : HardExampleMining {
  static void describe(Type<TierPolicy>& t);
};

/// Autoscaling of a cloud worker: the spec of a HorizontalPodAutoscaler (autoscaling/v2) without
/// its target.
struct WorkerAutoscaling {
  std::optional<std::int64_t> min_replicas;  // absent: 1
  std::int64_t max_replicas = 0;
  Json metrics, behavior;  // as written; null: the cluster's default
  Json unknown;
  std::int64_t least() const { return min_replicas.value_or(1); }
  friend bool operator==(const WorkerAutoscaling&, const WorkerAutoscaling&) = default;
  static void describe(Type<WorkerAutoscaling>& t);
};

/// Common part of all workers. A kind derives its workers from it, describes the members with
/// describe_worker() (describe_worker.h), and adds its own. PodSettings are for our server, in a
/// worker without a template.
struct Worker : PodSettings {
  static constexpr std::int64_t kEdgeReplicasMax = 500;    // with a selector
  static constexpr std::int64_t kReplicasPerNodeMax = 64;  // with a nodeName

  ModelReference model;
  std::string node_name;
  std::optional<NodeSelection> selector;
  // Absent: 1; in the edge layer with a selector, one on every node.
  std::optional<std::int64_t> replicas;
  Json worker_spec;   // a PodSpec or {metadata, spec}, or null
  Json pod_template;  // {metadata, spec}, or null
  std::optional<WorkerAutoscaling> hpa;

  bool has_template() const { return !pod_spec().is_null(); }
  /// The PodSpec in either form, as written. Null without a pod.
  const Json& pod_spec() const;
  /// Labels and annotations of the pod from the user: metadata of the template, or null.
  const Json& pod_metadata() const;
  /// The worker's node: nodeName, else the pod's own nodeName, else "".
  const std::string& node() const;
  /// The first TCP containerPort of the pod; 0: none.
  std::int64_t declared_port() const;
};

}  // namespace varda::api
