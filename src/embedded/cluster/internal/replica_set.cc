#include "cluster/internal/replica_set.h"

#include <algorithm>
#include <utility>

#include "cluster/indexes.h"
#include "meta/selector.h"

namespace varda::cluster {

namespace {

using meta::ObjectKey;
using std::chrono::seconds;

enum class Claim { kOwned, kAdopt, kRelease, kForeign };

Claim claim(const api::ReplicaSet& set, const meta::LabelSelector& selector, const api::Pod& pod) {
  const meta::OwnerReference* controller = pod.metadata.controller();
  if (controller && controller->uid == set.metadata.uid) {
    return pod.metadata.deleting() || selector.matches(pod.metadata.labels) ? Claim::kOwned
                                                                            : Claim::kRelease;
  }
  // Compares labels last: every set checks all pods of a namespace, and most belong to other sets.
  const meta::OwnerReference* deployment = set.metadata.controller();
  if (controller && !(deployment && deployment->uid == controller->uid)) return Claim::kForeign;
  if (pod.metadata.deleting() || finished(pod)) return Claim::kForeign;
  return selector.matches(pod.metadata.labels) ? Claim::kAdopt : Claim::kForeign;
}

bool has_labels(const api::Pod& pod, const std::map<std::string, std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
    const auto found = pod.metadata.labels.find(label.first);
    return found != pod.metadata.labels.end() && found->second == label.second;
  });
}

/// A pod without a ReplicaSet affects every set that could adopt it.
std::vector<ObjectKey> adopting_replica_sets(const api::Pod& pod, const runtime::Caches& caches) {
  const meta::OwnerReference* controller = pod.metadata.controller();
  if (controller && controller->kind != "Deployment") return {};
  std::vector<ObjectKey> keys;
  for (const auto& set : caches.of<api::ReplicaSet>().list(pod.metadata.ns)) {
    const auto selector = meta::LabelSelector::from_json(set->spec.selector);
    if (selector.ok() && !selector->empty() && claim(*set, *selector, pod) == Claim::kAdopt)
      keys.push_back(set->metadata.key());
  }
  return keys;
}

}  // namespace

ReplicaSetPlan plan_replica_set(const api::ReplicaSet& set, const PodList& pods, WallTime now,
                                seconds failed_pod_delay) {
  ReplicaSetPlan plan;
  const Json tree = set.to_json();
  const Json& pod_template = tree["spec"]["template"];
  const auto selector = meta::LabelSelector::from_json(set.spec.selector);
  if (!selector.ok() || selector->empty() ||
      !selector->matches_labels(pod_template.at("metadata/labels"))) {
    plan.problem = "spec.selector does not match the labels of spec.template: change one of them";
    return plan;
  }
  Timer timer;
  PodList active;
  std::int64_t labeled = 0, ready = 0, ready_long = 0;
  for (const PodPtr& pod : pods) {
    const Claim ownership = claim(set, *selector, *pod);
    if (ownership == Claim::kForeign) continue;
    if (ownership == Claim::kRelease) {
      plan.release.push_back(pod);
      continue;
    }
    if (ownership == Claim::kAdopt) {
      const meta::OwnerReference* controller = pod->metadata.controller();
      plan.adopt.push_back({pod, controller ? controller->uid : ""});
    }
    if (pod->metadata.deleting()) continue;
    if (finished(*pod) && may_replace(*pod, now, failed_pod_delay, timer)) {
      plan.changes.remove.push_back(pod);
      continue;
    }
    active.push_back(pod);
    labeled += has_labels(*pod, set.spec.pod_template.metadata.labels);
    ready += pod->ready();
    ready_long +=
        available(*pod, {.now = now, .min_ready = seconds(set.spec.min_ready_seconds)}, timer);
  }
  const auto replicas = static_cast<std::int64_t>(active.size());
  plan.status =
      Json::object({{"replicas", replicas}, {"observedGeneration", set.metadata.generation}});
  if (labeled > 0) plan.status.set("fullyLabeledReplicas", labeled);
  if (ready > 0) plan.status.set("readyReplicas", ready);
  if (ready_long > 0) plan.status.set("availableReplicas", ready_long);

  const std::int64_t desired = std::max<std::int64_t>(set.spec.replicas.value_or(1), 0);
  by_dispensability(active);
  const auto surplus = static_cast<std::size_t>(std::max<std::int64_t>(replicas - desired, 0));
  plan.changes.remove.insert(plan.changes.remove.end(), active.begin(),
                             active.begin() + static_cast<std::ptrdiff_t>(surplus));
  // Creation is limited per reconcile; the created pods trigger the next one.
  for (std::int64_t i = replicas; i < desired && plan.changes.create.size() < kBurst; ++i) {
    plan.changes.create.push_back(
        pod_of_template(pod_template, set.metadata.name + "-", set.metadata.ns));
  }
  plan.again = timer.due();
  return plan;
}

ReplicaSetReconciler::ReplicaSetReconciler(const runtime::Caches& caches, const Options& options)
    : caches_(caches), options_(options), clock_(options.clock ? *options.clock : system_clock()) {}

void ReplicaSetReconciler::watches(runtime::Watches<api::ReplicaSet>& w) const {
  w.owns<api::Pod>().maps<api::Pod>(adopting_replica_sets);
  w.indexes<api::Pod>(kPodsToTake, adoptable_pods);
}

Result<runtime::Action> ReplicaSetReconciler::reconcile(const Context& ctx,
                                                        const api::ReplicaSet& set,
                                                        runtime::Writer& writer) const {
  if (set.metadata.deleting()) return runtime::Action::await_change();
  // In this order, a pod that changes hands between the two reads is seen twice and never missed.
  PodList to_take = caches_.of<api::Pod>().by_index(kPodsToTake, set.metadata.ns);
  PodList pods = caches_.of<api::Pod>().owned_by(set.metadata.uid);
  std::erase_if(pods, [&](const PodPtr& pod) {
    const meta::OwnerReference* controller = pod->metadata.controller();
    return controller == nullptr || controller->uid != set.metadata.uid;
  });
  std::erase_if(to_take, [&](const PodPtr& pod) {
    return std::any_of(pods.begin(), pods.end(),
                       [&](const PodPtr& own) { return own->metadata.uid == pod->metadata.uid; });
  });
  for (PodPtr& pod : to_take) pods.push_back(std::move(pod));
  const ReplicaSetPlan plan = plan_replica_set(set, pods, clock_.wall(), options_.failed_pod_delay);
  if (!plan.problem.empty()) return Error(Code::kInvalid, plan.problem).as_terminal();
  const runtime::ObjectRef owner = runtime::ObjectRef::of(set);
  for (const auto& adoption : plan.adopt) {
    TRY_VOID(hand_over(ctx, writer, runtime::ObjectRef::of(*adoption.pod), adoption.from, &owner));
  }
  for (const PodPtr& pod : plan.release) {
    TRY_VOID(hand_over(ctx, writer, runtime::ObjectRef::of(*pod), set.metadata.uid, nullptr));
  }
  Status changed = apply_pod_changes(ctx, writer, owner, plan.changes);
  Json status = plan.status;
  if (!changed.ok()) {
    const Phrasing failure{"True", plan.changes.create.empty() ? "FailedDelete" : "FailedCreate",
                           changed.error().message()};
    status.set(
        "conditions",
        Json::array({condition(set.status.conditions, "ReplicaFailure", failure, clock_.wall())}));
  }
  TRY_VOID(writer.status(ctx, set, std::move(status)));
  TRY_VOID(std::move(changed));
  return plan.again ? runtime::Action::after(*plan.again) : runtime::Action::await_change();
}

}  // namespace varda::cluster
