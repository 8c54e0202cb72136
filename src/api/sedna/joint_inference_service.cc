#include "api/sedna/joint_inference_service.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "api/ai/describe_pod_settings.h"
#include "api/describe.h"
#include "api/rule.h"
#include "api/sedna/describe_worker.h"
#include "base/text.h"

namespace varda::api {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kNodeNameOrEmpty = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kDeadlinePattern = "^[1-9][0-9]{0,5}(ms|s|m)$";
constexpr milliseconds kDeadlineMax{600'000};
constexpr std::array kLayers{JointTier::kDevice, JointTier::kEdge,
                             JointTier::kCloud};  // lowest tier first

/// Parses texts that match kDeadlinePattern, also above the maximum.
std::optional<milliseconds> deadline_of(std::string_view text) {
  const bool unit = text.ends_with('s') || text.ends_with('m');
  const auto digits = text.find_first_not_of("0123456789");
  if (!unit || text.front() == '0' || digits > 6) return {};
  return parse_duration(text);
}

Rule deadline_rule() {
  static constexpr std::string_view kWhat =
      "must be a whole number followed by ms, s or m, from 1ms to 10m, such as 300ms";
  Rule rule;
  rule.cel = "self.matches(" + rules::cel_quote(kDeadlinePattern) +
             ") && duration(self) <= duration('10m')";
  rule.message = std::string(kWhat);
  rule.reason = "FieldValueInvalid";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    if (!self.is_string() || parse_deadline(self.as_string())) return {};
    return {rules::invalid("", self, kWhat)};
  };
  return rule;
}

std::string cel_not_longer(const std::string& deadline) {
  const std::string pattern = rules::cel_quote(kDeadlinePattern);
  return "!has(" + deadline + ") || !" + deadline + ".matches(" + pattern + ") || duration(" +
         deadline + ") <= duration(self.deadline)";
}

/// A tier's deadline must not exceed the whole request's, because it would never be reached.
Rule total_is_longest() {
  Rule rule;
  rule.cel = "!has(self.deadline) || !self.deadline.matches(" + rules::cel_quote(kDeadlinePattern) +
             ") || ((!has(self.cloudWorker) || " + cel_not_longer("self.cloudWorker.deadline") +
             ") && (!has(self.tiers) || self.tiers.all(t, " + cel_not_longer("t.deadline") + ")))";
  rule.message = "must not be shorter than the deadline of a tier";
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".deadline";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const auto total = deadline_of(self["deadline"].as_string());
    if (!total) return {};
    const auto longer = [&](const Json& one) {
      const auto deadline = deadline_of(one["deadline"].as_string());
      return deadline && *deadline > *total;
    };
    const auto complain = [&](const std::string& subject,
                              const Json& one) -> std::vector<Violation> {
      return {rules::invalid(
          ".deadline", self["deadline"],
          "must not be shorter than that of " + subject + ", " + one["deadline"].as_string())};
    };
    if (longer(self["cloudWorker"])) return complain("cloudWorker", self["cloudWorker"]);
    std::size_t index = 0;
    for (const Json& tier : self["tiers"].as_array()) {
      if (longer(tier)) return complain("tiers[" + std::to_string(index) + "]", tier);
      ++index;
    }
    return {};
  };
  return rule;
}

int rank(const Json& layer) {
  for (std::size_t i = 0; i < kLayers.size(); ++i) {
    if (layer.is_string() && layer.as_string() == kLayers[i]) return static_cast<int>(i);
  }
  return -1;
}

Rule tiers_follow_layers() {
  Rule rule;
  rule.cel =
      "!has(self.tiers) || self.tiers.filter(t, has(t.layer)).map(t, t.layer == 'device' ? 0 : "
      "t.layer == 'edge' ? 1 : "
      "2).isSorted()";
  rule.message = "must go from the device to the edge to the cloud, and not back";
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".tiers";
  rule.check = [message = rule.message](const Json& self) -> std::vector<Violation> {
    int highest = -1;
    std::size_t index = 0;
    for (const Json& tier : self["tiers"].as_array()) {
      const std::string field = ".tiers[" + std::to_string(index++) + "].layer";
      const int current = rank(tier["layer"]);
      if (current < 0) continue;
      if (current < highest) return {rules::invalid(field, tier["layer"], "tiers " + message)};
      highest = current;
    }
    return {};
  };
  return rule;
}

Rule last_tier_has_no_policy() {
  Rule rule;
  rule.cel =
      "!has(self.tiers) || size(self.tiers) == 0 || !has(self.tiers[size(self.tiers) - 1].policy)";
  rule.message = "the last tier must not have a policy: no tier follows it";
  rule.reason = "FieldValueForbidden";
  rule.field_path = ".tiers";
  rule.check = [message = rule.message](const Json& self) -> std::vector<Violation> {
    const std::size_t count = self["tiers"].size();
    if (!self["tiers"].is_array() || count == 0 ||
        self["tiers"].as_array().back()["policy"].is_null())
      return {};
    return {{"FieldValueForbidden", ".tiers[" + std::to_string(count - 1) + "].policy",
             "Forbidden: " + message}};
  };
  return rule;
}

Rule samples_need_our_server() {
  Rule rule;
  rule.cel =
      "!has(self.samples) || !has(self.edgeWorker) || (!has(self.edgeWorker.workerSpec) && "
      "!has(self.edgeWorker.template))";
  rule.message = "may not be set together with a pod of edgeWorker: only varda-serve keeps samples";
  rule.reason = "FieldValueForbidden";
  rule.field_path = ".samples";
  rule.check = [message = rule.message](const Json& self) -> std::vector<Violation> {
    const Json& worker = self["edgeWorker"];
    if (self["samples"].is_null() ||
        (worker["workerSpec"].is_null() && worker["template"].is_null()))
      return {};
    return {{"FieldValueForbidden", ".samples", "Forbidden: " + message}};
  };
  return rule;
}

const rules::Member kEdgeWorker{"edgeWorker", rules::Shape::kObject};
const rules::Member kCloudWorker{"cloudWorker", rules::Shape::kObject};
const rules::Member kTiers{"tiers", rules::Shape::kList};

}  // namespace

std::optional<milliseconds> parse_deadline(std::string_view text) {
  const auto value = deadline_of(text);
  return value && *value <= kDeadlineMax ? value : std::nullopt;
}

std::int64_t JointCloudWorker::service_port() const {
  if (port != 0) return port;
  const std::int64_t declared = declared_port();
  return declared == 0 ? kDefaultPort : declared;
}

milliseconds JointInferenceServiceSpec::total_deadline() const {
  if (const auto total = parse_deadline(deadline)) return *total;
  milliseconds longest = kDefaultDeadline;
  const auto take = [&](const std::string& text) {
    longest = std::max(longest, parse_deadline(text).value_or(milliseconds{0}));
  };
  if (cloud_worker) take(cloud_worker->deadline);
  for (const JointTier& tier : tiers) take(tier.deadline);
  return longest;
}

void JointEdgeWorker::describe(Type<JointEdgeWorker>& t) {
  t.doc(
      "The small model, at the edge: pods of the user, or Varda's server without workerSpec and "
      "template.");
  describe_worker(
      t,
      "Number of replicas. Default: 1; with a selector one on every matching node. With "
      "a selector and N, the N matching nodes that joined first run one each. 0 stops "
      "the worker.",
      kEdgeReplicasMax, PodText::kDescribed);
  t.field("hardExampleMining", &JointEdgeWorker::hard_example_mining,
          "Decides which answers of the small model are hard, so that the big model is called. "
          "Default: none.");
  t.field("uploads", &JointEdgeWorker::uploads,
          "Files that the worker may upload to the registry. Default: none.");
  t.keep_unknown(&JointEdgeWorker::unknown);
  for (Rule& rule : detail::edge_worker_rules()) t.rule(std::move(rule));
  for (Rule& rule : detail::edge_policy_rules()) t.rule(std::move(rule));
}

void JointCloudWorker::describe(Type<JointCloudWorker>& t) {
  using W = JointCloudWorker;
  t.doc(
      "The big model, in the cloud layer: a Deployment of the user, or Varda's server without "
      "workerSpec and template.");
  describe_worker(t, "Number of replicas. Default: 1. 0 stops the worker.", 2147483647,
                  PodText::kBare);
  t.field("port", &W::port,
          "Port of the worker's Service. Default: the first containerPort of the pod, else 5000.")
      .format("int32")
      .range(1, 65535);
  t.field("service", &W::service, "Service for requests from the edge.");
  t.field("deadline", &W::deadline,
          "Time limit of one call: a whole number followed by ms, s or m. Default: the time left "
          "for the request.")
      .length(0, 16)
      .rule(deadline_rule());
  t.keep_unknown(&W::unknown);
  for (Rule& rule : detail::cloud_worker_rules()) t.rule(std::move(rule));
}

void JointTier::describe(Type<JointTier>& t) {
  using T = JointTier;
  t.doc("One tier: a model, its place, and its policy for hard answers.");
  t.field("name", &T::name,
          "Unique name of the tier. The name appears in statistics, and in names of objects that "
          "belong to the tier.")
      .required()
      .length(1, 14)
      .pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
  t.field("model", &T::model, "The model that answers.").required();
  t.field("nodeName", &T::node_name, "Name of the tier's node.")
      .length(0, 253)
      .pattern(kNodeNameOrEmpty);
  t.field("layer", &T::layer,
          "Place of the tier, instead of nodeName. First tier: every node with this "
          "edgeai.io/layer. Other tiers: the only node of "
          "that layer, or the cloud.")
      .one_of({kLayers.begin(), kLayers.end()});
  t.field("policy", &T::policy,
          "Decides which answers are hard, so that the next tier is called. Default: none.");
  t.field("deadline", &T::deadline,
          "Time limit of one call: a whole number followed by ms, s or m. Default: the time left "
          "for the request.")
      .length(0, 16)
      .rule(deadline_rule());
  describe_pod_settings(t);
  t.keep_unknown(&T::unknown);
  t.rule(reserved_variables());
  t.rule(rules::any_required({{"nodeName"}, {"layer"}},
                             "exactly one of nodeName and layer says where the tier is"));
  t.rule(rules::forbidden_with(
      {"layer"}, {{"nodeName"}},
      "may not be set together with nodeName: exactly one of them says where the tier is"));
}

void JointInferenceServiceSpec::describe(Type<JointInferenceServiceSpec>& t) {
  using S = JointInferenceServiceSpec;
  t.doc(
      "The models, their places, and their policies for hard answers: edgeWorker and cloudWorker, "
      "or tiers.");
  t.field("modelName", &S::model_name,
          "Name of the model in requests of clients. Default: the name of the service.")
      .length(0, 63)
      .pattern("^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$");
  t.field("servingPort", &S::serving_port,
          "Port of the endpoint on its node, if Varda's server is the first tier. 0 or absent: a "
          "free port, which then stays the "
          "same.")
      .format("int32")
      .range(0, 65535);
  t.field("deadline", &S::deadline,
          "Time limit of a request over all tiers: a whole number followed by ms, s or m, from 1ms "
          "to 10m. After it, the client "
          "gets the best answer so far. Default: 2s, or the longest deadline of a tier if that is "
          "longer.")
      .length(0, 16)
      .rule(deadline_rule());
  t.field("edgeWorker", &S::edge_worker, "The small model, at the edge.");
  t.field("cloudWorker", &S::cloud_worker, "The big model, in the cloud layer.");
  t.field("tiers", &S::tiers,
          "The tiers from the device to the cloud, instead of edgeWorker and cloudWorker. The "
          "first tier has the endpoint, and "
          "calls all other tiers itself.")
      .items_min(2)
      .items_max(S::kTiersMax)
      .list_map({"name"});
  t.field("security", &S::security,
          "Extension: clients that the tiers accept. Tiers call each other in the same way.");
  t.field("samples", &S::samples,
          "Extension: requests that the first tier keeps on its node, for labelling and training "
          "(docs/guides/hard-examples.md). Varda's server must be the first tier.");
  t.keep_unknown(&S::unknown);
  t.rule(rules::any_required({kEdgeWorker, kTiers},
                             "edgeWorker and cloudWorker, or tiers, are required"));
  t.rule(rules::unless_any_set(
      {kTiers}, rules::when_any_set(
                    {kEdgeWorker},
                    rules::required(kCloudWorker, "cloudWorker is required beside edgeWorker"))));
  t.rule(rules::forbidden_with(kEdgeWorker, {kTiers}, "may not be set together with tiers"));
  t.rule(rules::forbidden_with(kCloudWorker, {kTiers}, "may not be set together with tiers"));
  t.rule(samples_need_our_server());
  t.rule(tiers_follow_layers());
  t.rule(last_tier_has_no_policy());
  t.rule(total_is_longest());
}

void JointEndpoint::describe(Type<JointEndpoint>& t) {
  t.doc("The endpoint on one node.");
  t.field("node", &JointEndpoint::node, "Name of the node.").required().length(1, 253);
  t.field("url", &JointEndpoint::url, "URL of the endpoint (Open Inference Protocol).")
      .length(0, 2048);
  t.field("ready", &JointEndpoint::ready, "Whether the endpoint answers.").always();
  t.field("version", &JointEndpoint::version, "The version of the first tier's model that answers.")
      .length(0, 63);
  t.keep_unknown(&JointEndpoint::unknown);
}

void JointTierStatus::describe(Type<JointTierStatus>& t) {
  using T = JointTierStatus;
  t.doc("One tier, over all nodes.");
  t.field("name", &T::name, "Name of the tier: edge, cloud, or as in spec.tiers.")
      .required()
      .length(1, 63);
  t.field("layer", &T::layer, "Layer of the tier: device, edge or cloud.").length(0, 63);
  t.field("node", &T::node, "Node of the tier, if there is only one.").length(0, 253);
  t.field("model", &T::model, "Name of the model at its server.").length(0, 253);
  t.field("version", &T::version, "The version that answers.").length(0, 63);
  t.field("url", &T::url, "URL of the tier.").length(0, 2048);
  t.field("ready", &T::ready, "Whether the tier answers.").always();
  t.field("answered", &T::answered, "Number of requests that the tier answered.")
      .format("int64")
      .always();
  t.field("called", &T::called, "Number of requests that were sent to the tier.")
      .format("int64")
      .always();
  t.field("errors", &T::errors,
          "Number of failures by reason: Timeout, Unreachable, Overloaded ...")
      .items_max(32);
  t.field("p50Ms", &T::p50_ms, "Median duration of calls in milliseconds.").length(0, 32);
  t.field("p99Ms", &T::p99_ms, "99th percentile of the duration of calls in milliseconds.")
      .length(0, 32);
  t.keep_unknown(&T::unknown);
}

void JointCounters::describe(Type<JointCounters>& t) {
  t.doc("The part of the sums that comes from one record on one node.");
  t.field("node", &JointCounters::node, "Name of the node. Empty: the sum of all removed records.")
      .required()
      .length(0, 253);
  t.field("epoch", &JointCounters::epoch, "Identifier of the record on the node.")
      .required()
      .length(0, 63);
  Schema open;
  open.type = Schema::Type::kObject;
  open.preserve_unknown = true;
  t.field("counters", &JointCounters::counters, "Counters of the record, as the node reports them.")
      .shaped(std::move(open));
  t.keep_unknown(&JointCounters::unknown);
}

void JointInferenceServiceStatus::describe(Type<JointInferenceServiceStatus>& t) {
  using S = JointInferenceServiceStatus;
  t.doc("Endpoints, conditions and statistics.");
  t.field("conditions", &S::conditions,
          "Ready: every tier has answered, and the endpoint answers. EdgeReady, CloudReady: the "
          "same for one side. Degraded: "
          "answers lack a tier that should be called. Autoscaling: hpa is applied. The guide lists "
          "the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.field("url", &S::url,
          "URL of the model (Open Inference Protocol). Absent while the model does not answer.")
      .length(0, 2048);
  t.field("endpoints", &S::endpoints, "The endpoints, one per node.")
      .items_max(S::kEndpointsMax)
      .list_map({"node"});
  t.field("active", &S::active, "Number of running workers.")
      .always()
      .format("int32")
      .range(0, 2147483647);
  t.field("failed", &S::failed, "Number of failed workers.")
      .always()
      .format("int32")
      .range(0, 2147483647);
  t.field("inferenceNumber", &S::inference_number, "Number of answered requests.")
      .format("int64")
      .always();
  t.field("hardExampleNumber", &S::hard_example_number,
          "Number of answered requests that were hard.")
      .format("int64")
      .always();
  t.field("uploadCloudRatio", &S::upload_cloud_ratio,
          "Share of requests that were sent beyond the first tier, as text: 0.27.")
      .length(0, 32);
  t.field("bytesSent", &S::bytes_sent, "Bytes of requests that were sent beyond the first tier.")
      .format("int64")
      .always();
  t.field("tiers", &S::tiers, "The tiers, in order.")
      .items_max(JointInferenceServiceSpec::kTiersMax)
      .list_map({"name"});
  t.field(
      "samples", &S::samples,
      "Kept samples and counts of the first tier, as the nodes report them. Several nodes: their "
      "sums.");
  t.field("startTime", &S::start_time, "Time when the service was first ready.")
      .format("date-time");
  t.field("updateTime", &S::update_time, "Time of the last change of this status.")
      .format("date-time");
  t.field("counters", &S::counters,
          "Parts of the sums by node, so that the sums survive pods, agents and nodes.")
      .items_max(S::kCountersMax)
      .list_map({"node", "epoch"});
  t.keep_unknown(&S::unknown);
}

void JointInferenceService::describe(Type<JointInferenceService>& t) {
  using J = JointInferenceService;
  t.doc(
      "One model over two or more tiers: small models answer easy requests, bigger ones the hard "
      "ones.");
  t.field("metadata", &J::metadata, "Standard object metadata.");
  t.field("spec", &J::spec, "The models, their places, and their policies for hard answers.")
      .required();
  t.field("status", &J::status,
          "Endpoints, conditions and statistics. Only the operator writes them.");
  t.keep_unknown(&J::unknown);
  t.rule(rules::name_is_label(kNameMax, "because objects of the service have longer names"));
}

const Kind& JointInferenceService::kind() {
  static const Kind kind{
      .resource = {"sedna.io", "v1alpha1", "JointInferenceService", "jointinferenceservices", true},
      .singular = "jointinferenceservice",
      .page = "",
      .short_names = {"jis", "ji"},
      .columns =
          {
              {"Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status",
               "Whether the endpoint answers"},
              {"Degraded", "string", ".status.conditions[?(@.type==\"Degraded\")].status",
               "Whether answers lack a tier that should be called"},
              {"URL", "string", ".status.url", "URL of the model"},
              {"Inferences", "integer", ".status.inferenceNumber", "Number of answered requests"},
              {"Hard", "integer", ".status.hardExampleNumber",
               "Number of answered requests that were hard"},
              {"Cloud", "string", ".status.uploadCloudRatio",
               "Share of requests that were sent beyond the first tier"},
              {"Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason",
               "Reason of the condition Ready", 1},
              {"Message", "string", ".status.conditions[?(@.type==\"Ready\")].message",
               "Human-readable explanation", 1},
              {"Active", "integer", ".status.active", "Number of running workers", 1},
              {"Failed", "integer", ".status.failed", "Number of failed workers", 1},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes =
          {
              "Manifests for Sedna apply. Sedna has a worker's pod in `template`, and may have the "
              "node in\n  "
              "`template.spec.nodeName`.",
              "`workerSpec` is the same pod, with `nodeName` or `selector` beside it. A container "
              "needs no name.",
              "`tiers`, `modelName`, `servingPort`, `deadline`, `selector`, `replicas`, "
              "`security`,\n  `resources`, `env`, `imagePullSecrets`, `tolerations`, "
              "`priorityClassName`,\n  `cloudWorker.port` and "
              "`cloudWorker.service` are extensions. A worker without a pod, which is\n  Varda's "
              "server, is an extension too.",
              "Parameters of policies are text. For Varda's server, the API server checks them. A "
              "worker with its\n  own pod gets "
              "any policy in `HEM_NAME` and `HEM_PARAMETERS`.",
          },
      .schema = &type_info<JointInferenceService>().schema,
  };
  return kind;
}

Result<JointInferenceService> JointInferenceService::from_json(const Json& object) {
  return read_object<JointInferenceService>(object);
}
Json JointInferenceServiceStatus::to_json() const { return write_part(*this); }
Json JointInferenceService::to_json() const { return write_object(*this); }

}  // namespace varda::api
