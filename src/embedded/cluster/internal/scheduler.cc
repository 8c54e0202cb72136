#include "cluster/internal/scheduler.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "cluster/internal/workload.h"

namespace varda::cluster {

namespace {

using codec::Json;
using meta::ObjectKey;
using NodePtr = std::shared_ptr<const api::Node>;

bool to_number(const std::string& text, std::int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// Checks one NodeSelectorRequirement against a key's value (null: the node lacks the key).
bool satisfies(const Json& requirement, const std::string* value) {
  const std::string& op = requirement["operator"].as_string();
  const auto& values = requirement["values"].as_array();
  const auto listed = [&] {
    return value && std::any_of(values.begin(), values.end(),
                                [&](const Json& v) { return v.as_string() == *value; });
  };
  if (op == "In") return listed();
  if (op == "NotIn") return !listed();
  if (op == "Exists") return value != nullptr;
  if (op == "DoesNotExist") return value == nullptr;
  if (op == "Gt" || op == "Lt") {
    std::int64_t have = 0, bound = 0;
    if (!value || values.size() != 1 || !to_number(*value, have) ||
        !to_number(values[0].as_string(), bound))
      return false;
    return op == "Gt" ? have > bound : have < bound;
  }
  return false;
}

bool term_matches(const Json& term, const api::Node& node) {
  const auto& expressions = term["matchExpressions"].as_array();
  const auto& fields = term["matchFields"].as_array();
  if (expressions.empty() && fields.empty()) return false;  // an empty term matches no node
  for (const Json& requirement : expressions) {
    const auto label = node.metadata.labels.find(requirement["key"].as_string());
    if (!satisfies(requirement, label == node.metadata.labels.end() ? nullptr : &label->second))
      return false;
  }
  for (const Json& requirement : fields) {
    if (requirement["key"].as_string() != "metadata.name" ||
        !satisfies(requirement, &node.metadata.name))
      return false;
  }
  return true;
}

bool wanted_by(const api::Pod& pod, const api::Node& node) {
  for (const auto& [key, value] : pod.spec.node_selector) {
    const auto label = node.metadata.labels.find(key);
    if (label == node.metadata.labels.end() || label->second != value) return false;
  }
  const Json& required =
      pod.spec.affinity.at("nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
  if (required.is_null()) return true;
  const auto& terms = required["nodeSelectorTerms"].as_array();
  return std::any_of(terms.begin(), terms.end(),
                     [&](const Json& term) { return term_matches(term, node); });
}

bool tolerates(const api::Toleration& toleration, const api::Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (!toleration.key.empty() && toleration.key != taint.key) return false;
  if (toleration.key.empty() && toleration.op != "Exists") return false;
  return toleration.op == "Exists" || toleration.value == taint.value;
}

bool tolerated(const api::Pod& pod, const api::Taint& taint) {
  const auto& all = pod.spec.tolerations;
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& toleration) { return tolerates(toleration, taint); });
}

/// The node's taints, plus those that its conditions and spec imply.
std::vector<api::Taint> taints_of(const api::Node& node) {
  std::vector<api::Taint> taints = node.spec.taints;
  const api::CoreCondition* ready = api::find_condition(node.status.conditions, "Ready");
  const std::string state = ready ? ready->status : "False";
  if (state == "Unknown")
    taints.push_back({.key = "node.kubernetes.io/unreachable", .effect = "NoSchedule"});
  if (state == "False")
    taints.push_back({.key = "node.kubernetes.io/not-ready", .effect = "NoSchedule"});
  if (node.spec.unschedulable)
    taints.push_back({.key = "node.kubernetes.io/unschedulable", .effect = "NoSchedule"});
  return taints;
}

std::vector<ObjectKey> pods_waiting_or_on(const api::Node& node, const runtime::Caches& caches) {
  std::vector<ObjectKey> keys;
  for (const auto& pod : caches.of<api::Pod>().list()) {
    if (pod->spec.node_name.empty() || pod->spec.node_name == node.metadata.name)
      keys.push_back(pod->metadata.key());
  }
  return keys;
}

}  // namespace

std::string node_refusal(const api::Pod& pod, const api::Node& node) {
  if (!wanted_by(pod, node)) return "node(s) didn't match Pod's node affinity/selector";
  for (const api::Taint& taint : taints_of(node)) {
    if (taint.effect != "NoSchedule" && taint.effect != "NoExecute") continue;
    if (tolerated(pod, taint)) continue;
    if (taint.key == "node.kubernetes.io/not-ready") return "node(s) were not ready";
    if (taint.key == "node.kubernetes.io/unreachable") return "node(s) were unreachable";
    if (taint.key == "node.kubernetes.io/unschedulable") return "node(s) were unschedulable";
    return "node(s) had untolerated taint {" + taint.key +
           (taint.value.empty() ? "" : ": " + taint.value) + "}";
  }
  return "";
}

bool may_stay_on(const api::Pod& pod, const api::Node& node) {
  if (!wanted_by(pod, node)) return false;
  const auto taints = taints_of(node);
  return std::none_of(taints.begin(), taints.end(), [&](const api::Taint& taint) {
    return taint.effect == "NoExecute" && !tolerated(pod, taint);
  });
}

Binding plan_binding(const api::Pod& pod, const std::vector<NodePtr>& nodes,
                     const std::map<std::string, std::size_t>& pods_on) {
  const api::Node* best = nullptr;
  std::size_t fewest = 0;
  std::map<std::string, int> refusals;
  for (const NodePtr& node : nodes) {
    if (node->metadata.deleting()) continue;
    if (const std::string why = node_refusal(pod, *node); !why.empty()) {
      ++refusals[why];
      continue;
    }
    const auto found = pods_on.find(node->metadata.name);
    const std::size_t count = found == pods_on.end() ? 0 : found->second;
    if (!best || count < fewest || (count == fewest && node->metadata.name < best->metadata.name)) {
      best = node.get();
      fewest = count;
    }
  }
  if (best) return {.node = best->metadata.name, .message = ""};
  std::string message = "0/" + std::to_string(nodes.size()) + " nodes are available";
  std::string_view separator = ": ";
  for (const auto& [why, count] : refusals) {
    message += separator;
    message += std::to_string(count) + " " + why;
    separator = ", ";
  }
  return {.node = "", .message = message + "."};
}

SchedulerReconciler::SchedulerReconciler(const runtime::Caches& caches, const kube::Client& client,
                                         const Options& options)
    : caches_(caches),
      client_(client),
      options_(options),
      clock_(options.clock ? *options.clock : system_clock()) {}

void SchedulerReconciler::watches(runtime::Watches<api::Pod>& w) const {
  w.name("scheduler").maps<api::Node>(pods_waiting_or_on);
}

Result<runtime::Action> SchedulerReconciler::on_deleted(const Context&, const ObjectKey& key,
                                                        runtime::Writer&) {
  assumed_.erase(key);
  missing_.erase(key);
  return runtime::Action::await_change();
}

Status SchedulerReconciler::end(const Context& ctx, const api::Pod& pod) const {
  const auto left = client_.remove(
      ctx, api::Pod::resource(), pod.metadata.key(),
      {.propagation = kube::Propagation::kBackground, .uid = pod.metadata.uid, .grace_seconds = 0});
  if (left.ok() || left.error().code() == Code::kNotFound || left.error().code() == Code::kConflict)
    return {};
  return left.error();
}

Result<runtime::Action> SchedulerReconciler::watch_over(const Context& ctx, const api::Pod& pod) {
  assumed_.erase(pod.metadata.key());
  if (caches_.of<api::Node>().get({"", pod.spec.node_name})) {
    missing_.erase(pod.metadata.key());
    return runtime::Action::await_change();
  }
  // The node may be about to register; a removed node rarely returns within the grace period.
  const SteadyTime since = missing_.emplace(pod.metadata.key(), clock_.now()).first->second;
  const Duration left = since + options_.missing_node_grace - clock_.now();
  if (left > Duration::zero()) return runtime::Action::after(left);
  TRY_VOID(end(ctx, pod));
  return runtime::Action::await_change();
}

Result<runtime::Action> SchedulerReconciler::reconcile(const Context& ctx, const api::Pod& pod,
                                                       runtime::Writer& writer) {
  if (!pod.spec.node_name.empty()) return watch_over(ctx, pod);
  if (pod.metadata.deleting()) {
    TRY_VOID(end(ctx, pod));  // no runner owns the pod
    return runtime::Action::await_change();
  }
  if (finished(pod)) return runtime::Action::await_change();
  return bind(ctx, pod, writer);
}

Result<runtime::Action> SchedulerReconciler::bind(const Context& ctx, const api::Pod& pod,
                                                  runtime::Writer& writer) {
  std::map<std::string, std::size_t> pods_on;
  for (const auto& other : caches_.of<api::Pod>().list()) {
    if (finished(*other) || other->metadata.uid == pod.metadata.uid) continue;
    if (!other->spec.node_name.empty()) {
      ++pods_on[other->spec.node_name];
    } else if (const auto assumed =
                   assumed_.empty() ? assumed_.end() : assumed_.find(other->metadata.key());
               assumed != assumed_.end()) {
      ++pods_on[assumed->second];
    }
  }
  const Binding binding = plan_binding(pod, caches_.of<api::Node>().list(), pods_on);
  const std::string name = pod.metadata.key().str();
  if (binding.node.empty()) {
    const api::CoreCondition* before = api::find_condition(pod.status.conditions, "PodScheduled");
    if (before && before->status == "False" && before->message == binding.message)
      return runtime::Action::await_change();
    writer.event(pod, runtime::EventType::kWarning, "FailedScheduling", binding.message);
    const std::string now = meta::format_time(clock_.wall());
    TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(pod), runtime::Part::kStatus, [&](Json& live) {
      Json condition = Json::object({{"type", "PodScheduled"},
                                     {"status", "False"},
                                     {"lastProbeTime", nullptr},
                                     {"lastTransitionTime", now},
                                     {"reason", "Unschedulable"},
                                     {"message", binding.message}});
      for (Json& present : live.make("status/conditions").array_items()) {
        if (present["type"].as_string() != "PodScheduled") continue;
        if (present["status"].as_string() == "False")
          condition.set("lastTransitionTime", present["lastTransitionTime"]);
        present = std::move(condition);
        return;
      }
      live.make("status/conditions").push_back(std::move(condition));
    }));
    return runtime::Action::await_change();
  }
  const Json body = Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Binding"},
       {"metadata", Json::object({{"name", pod.metadata.name},
                                  {"namespace", pod.metadata.ns},
                                  {"uid", pod.metadata.uid}})},
       {"target", Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"name", binding.node}})}});
  const auto bound = client_.json(
      ctx, "POST", api::Pod::resource().path(pod.metadata.ns, pod.metadata.name) + "/binding",
      body);
  if (!bound.ok()) {
    // The pod was deleted or bound meanwhile; the watch will deliver that change.
    if (bound.error().code() == Code::kNotFound || bound.error().code() == Code::kConflict)
      return runtime::Action::await_change();
    return bound.error().context("binding to node " + binding.node);
  }
  assumed_[pod.metadata.key()] = binding.node;
  writer.event(pod, runtime::EventType::kNormal, "Scheduled",
               "Successfully assigned " + name + " to " + binding.node);
  return runtime::Action::await_change();
}

}  // namespace varda::cluster
