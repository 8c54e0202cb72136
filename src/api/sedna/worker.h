// Workers of the jobs of sedna.io: what runs where, and with which model. Shared by all kinds of the group.
//
// A pod template comes in either of two spellings: workerSpec (a PodSpec, with nodeName beside it) or template ({metadata, spec},
// as Sedna has it, where the node may stand in spec.nodeName). Both are kept as they were written: core/v1 is not read here. Who
// needs the one pod behind both spellings asks pod_spec() and node().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cascade/policy_table.h"
#include "codec/json.h"
#include "meta/selector.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

/// A model by name, in the namespace of who refers to it.
struct ModelReference {
  static constexpr std::string_view kModel = "Model", kInferenceModel = "InferenceModel";

  std::string name;
  std::string kind;  // kModel (of sedna.io), kInferenceModel; "": a Model of the name, else an InferenceModel
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

/// Nodes by their labels. An empty one matches every node.
struct NodeSelection {
  std::map<std::string, std::string> match_labels;
  std::vector<SelectorRequirement> match_expressions;
  Json unknown;
  /// For matching: made once, asked for every node. kInvalid: an operator that does not exist, or one without its values, which
  /// only an object can have that no server has validated.
  Result<meta::LabelSelector> compiled() const;
  friend bool operator==(const NodeSelection&, const NodeSelection&) = default;
  static void describe(Type<NodeSelection>& t);
};

/// Parameters are text, whatever they mean.
struct MiningParameter {
  std::string key;
  std::string value;
  Json unknown;
  friend bool operator==(const MiningParameter&, const MiningParameter&) = default;
  static void describe(Type<MiningParameter>& t);
};

/// Which answers are hard: a policy by name (docs/guides/joint-inference.md). With our server it is one of room cascade; a worker
/// of the user may have policies of its own.
struct HardExampleMining {
  std::string name;
  std::vector<MiningParameter> parameters;
  Json unknown;
  std::vector<cascade::PolicyParameter> policy_parameters() const;
  /// [{key, value}, ...]: what HEM_PARAMETERS and assignments have.
  Json parameters_to_json() const;
  friend bool operator==(const HardExampleMining&, const HardExampleMining&) = default;
  static void describe(Type<HardExampleMining>& t);
};

/// A policy that our server follows: its name and parameters are those of the table.
struct TierPolicy : HardExampleMining {
  static void describe(Type<TierPolicy>& t);
};

/// When a cloud worker has more or fewer replicas: the spec of a HorizontalPodAutoscaler (autoscaling/v2) without its target.
struct WorkerAutoscaling {
  std::optional<std::int64_t> min_replicas;  // absent: 1
  std::int64_t max_replicas = 0;
  Json metrics, behavior;  // as written; null: the cluster's defaults
  Json unknown;
  std::int64_t least() const { return min_replicas.value_or(1); }
  friend bool operator==(const WorkerAutoscaling&, const WorkerAutoscaling&) = default;
  static void describe(Type<WorkerAutoscaling>& t);
};

/// What every worker has. A kind derives its workers from it, describes the members that it has by describe_worker() (worker.cc),
/// and adds its own.
struct Worker {
  static constexpr std::int64_t kEdgeReplicasMax = 64;

  ModelReference model;
  std::string node_name;
  std::optional<NodeSelection> selector;
  std::int64_t replicas = 1;
  Json worker_spec;   // a PodSpec, or null
  Json pod_template;  // {metadata, spec}, or null
  std::optional<WorkerAutoscaling> hpa;

  bool has_template() const { return !pod_spec().is_null(); }
  /// The PodSpec of either spelling, as written; null without one.
  const Json& pod_spec() const;
  /// Labels and annotations that the user gives the pod: template.metadata, or null.
  const Json& pod_metadata() const;
  /// The node it is bound to: nodeName, else the pod's own nodeName; "" none.
  const std::string& node() const;
  /// The first containerPort that the pod declares; 0: none.
  std::int64_t declared_port() const;
};

}  // namespace varda::api
