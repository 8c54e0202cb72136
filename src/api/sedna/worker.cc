#include "api/sedna/worker.h"

#include <algorithm>
#include <utility>

#include "api/sedna/describe_worker.h"

namespace varda::api {

namespace {

constexpr std::string_view kModelNamePattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
constexpr std::string_view kWorkerLabelValue = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
constexpr std::string_view kLabelKey =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

const rules::Member kSelector{"selector", rules::Shape::kObject};
const rules::Member kWorkerSpec{"workerSpec", rules::Shape::kObject};
const rules::Member kTemplate{"template", rules::Shape::kObject};
const rules::Member kHpa{"hpa", rules::Shape::kObject};
const rules::Member kUploads{"uploads", rules::Shape::kObject};
const std::vector<rules::Member> kSettings{{"resources", rules::Shape::kObject},
                                           {"env", rules::Shape::kList},
                                           {"imagePullSecrets", rules::Shape::kList},
                                           {"tolerations", rules::Shape::kList},
                                           {"priorityClassName"}};

Schema anything(Schema::Type type) {
  Schema open;
  open.type = type;
  open.preserve_unknown = true;
  return open;
}

}  // namespace

Result<meta::LabelSelector> NodeSelection::compiled() const {
  Json selector = write_struct(type_info<NodeSelection>(), this);
  return meta::LabelSelector::from_json(selector);
}

const Json& Worker::pod_spec() const {
  if (worker_spec.is_null()) return pod_template["spec"];
  return worker_spec.contains("spec") ? worker_spec["spec"] : worker_spec;
}

const Json& Worker::pod_metadata() const {
  return worker_spec.is_null() ? pod_template["metadata"] : worker_spec["metadata"];
}

const std::string& Worker::node() const {
  return node_name.empty() ? pod_spec()["nodeName"].as_string() : node_name;
}

std::int64_t Worker::declared_port() const {
  for (const Json& container : pod_spec()["containers"].as_array()) {
    for (const Json& port : container["ports"].as_array()) {
      if (const std::int64_t number = port["containerPort"].as_integer();
          number > 0 && port["protocol"].string_or("TCP") == "TCP")
        return number;
    }
  }
  return 0;
}

void ModelReference::describe(Type<ModelReference>& t) {
  t.doc("A model of the same namespace.");
  t.field("name", &ModelReference::name, "Name of the model.")
      .required()
      .length(1, 253)
      .pattern(kModelNamePattern);
  t.field("kind", &ModelReference::kind,
          "Model: an archive, by URL and sha256. InferenceModel: a model that already serves; a "
          "first tier serves its "
          "archives. Default: the Model with this name, else the InferenceModel.")
      .one_of({std::string(kModel), std::string(kInferenceModel)});
  t.field("group", &ModelReference::group,
          "API group of a Model. Required if both groups have a Model with this name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.keep_unknown(&ModelReference::unknown);
}

void SelectorRequirement::describe(Type<SelectorRequirement>& t) {
  using rules::Shape;
  t.doc("One requirement for a label.");
  t.field("key", &SelectorRequirement::key, "Name of the label.")
      .required()
      .length(1, 317)
      .pattern(kLabelKey);
  t.field("operator", &SelectorRequirement::op,
          "In, NotIn: the label's value is, or is not, one of values. Exists, DoesNotExist: the "
          "node has, or does not have, the "
          "label.")
      .required()
      .one_of({"In", "NotIn", "Exists", "DoesNotExist"});
  t.field("values", &SelectorRequirement::values, "Values for In and NotIn.")
      .items_max(64)
      .each_length(0, 63)
      .each_pattern(kWorkerLabelValue);
  t.keep_unknown(&SelectorRequirement::unknown);
  for (const char* op : {"In", "NotIn"}) {
    t.rule(rules::any_required_when({{"values", Shape::kList}}, "operator", op,
                                    "must be specified when operator is 'In' or 'NotIn'"));
  }
  for (const char* op : {"Exists", "DoesNotExist"}) {
    t.rule(
        rules::forbidden_when({"values", Shape::kList}, "operator", op,
                              "may not be specified when operator is 'Exists' or 'DoesNotExist'"));
  }
}

void NodeSelection::describe(Type<NodeSelection>& t) {
  t.doc("Nodes by labels. All requirements must hold. {} selects every node.");
  t.field("matchLabels", &NodeSelection::match_labels, "Labels of the node, with their values.")
      .items_max(32)
      .each_length(0, 63)
      .each_pattern(kWorkerLabelValue);
  t.field("matchExpressions", &NodeSelection::match_expressions,
          "More requirements for the node's labels.")
      .items_max(32);
  t.keep_unknown(&NodeSelection::unknown);
}

void WorkerAutoscaling::describe(Type<WorkerAutoscaling>& t) {
  using A = WorkerAutoscaling;
  t.doc("The spec of a HorizontalPodAutoscaler (autoscaling/v2), without the target.");
  t.field("minReplicas", &A::min_replicas, "Minimum number of replicas. Default: 1.")
      .format("int32")
      .range(1, 2147483647);
  t.field("maxReplicas", &A::max_replicas, "Maximum number of replicas.")
      .required()
      .format("int32")
      .range(1, 2147483647);
  Schema metrics;
  metrics.type = Schema::Type::kArray;
  metrics.items_max = 16;
  metrics.items = std::make_shared<Schema>(anything(Schema::Type::kObject));
  t.field(
       "metrics", &A::metrics,
       "Metrics, as in autoscaling/v2. Default: 80 % of the requested CPU, the cluster's default.")
      .shaped(std::move(metrics));
  t.field("behavior", &A::behavior, "Speed of scaling up and down, as in autoscaling/v2.")
      .shaped(anything(Schema::Type::kObject));
  t.keep_unknown(&A::unknown);
}

namespace detail {

std::vector<Rule> worker_rules() {
  using namespace rules;
  std::vector<Rule> all{
      forbidden_with(kTemplate, {kWorkerSpec},
                     "may not be set together with workerSpec: both describe the same pod"),
      forbidden_with(
          kSelector, {{"nodeName"}},
          "may not be set together with nodeName: exactly one of them says where the worker runs"),
      reserved_variables(),
  };
  for (const Member& pod : {kWorkerSpec, kTemplate}) {
    all.push_back(forbidden_with(
        pod, kSettings,
        "may not be set together with resources, env, imagePullSecrets, tolerations or "
        "priorityClassName: the pod has its own"));
  }
  for (const char* node :
       {"workerSpec.nodeName", "workerSpec.spec.nodeName", "template.spec.nodeName"}) {
    all.push_back(forbidden_with({node}, {kSelector}, "may not be set together with a selector"));
    all.push_back(same(node, "nodeName", "must be the nodeName of the worker"));
  }
  return all;
}

Rule autoscaling_rule() {
  return rules::unless_any_set(
      {kWorkerSpec, kTemplate},
      rules::forbidden_with(kHpa, {kHpa},
                            "needs a workerSpec or template: varda-serve is not autoscaled"));
}

std::vector<Rule> edge_worker_rules() {
  using namespace rules;
  return {
      any_required({{"nodeName"},
                    kSelector,
                    {"workerSpec.nodeName"},
                    {"workerSpec.spec.nodeName"},
                    {"template.spec.nodeName"}},
                   "exactly one of nodeName and selector says where the worker runs"),
      unless_any_set({kSelector}, at_most("replicas", Worker::kReplicasPerNodeMax,
                                          "must be at most 64 with a nodeName")),
      unless_any_set({kSelector, kWorkerSpec, kTemplate},
                     at_most("replicas", 1,
                             "must be 0 or 1 with a nodeName and without a workerSpec or "
                             "template: one server runs on a node")),
      unless_any_set({kWorkerSpec, kTemplate},
                     forbidden_with(kUploads, {kUploads},
                                    "needs a workerSpec or template: varda-serve uploads nothing")),
  };
}

std::vector<Rule> cloud_worker_rules() {
  using namespace rules;
  std::vector<Rule> all;
  for (const char* policy :
       {"workerSpec.restartPolicy", "workerSpec.spec.restartPolicy", "template.spec.restartPolicy"})
    all.push_back(one_of(policy, {"Always"},
                         "must be Always in the cloud layer, where the worker is a Deployment"));
  all.push_back(unless_any_set(
      {kWorkerSpec, kTemplate},
      forbidden_with({"selector.matchExpressions", Shape::kList}, {kSelector},
                     "needs a workerSpec or template: varda-serve supports matchLabels only")));
  return all;
}

}  // namespace detail
}  // namespace varda::api
