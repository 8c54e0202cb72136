#include "cluster/internal/daemon_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cluster/internal/scheduler.h"
#include "meta/selector.h"

namespace varda::cluster {

namespace {

using meta::ObjectKey;
using std::chrono::seconds;

constexpr const char* kRequired = "requiredDuringSchedulingIgnoredDuringExecution";

Json toleration(const char* key, const char* effect) {
  return Json::object({{"key", key}, {"operator", "Exists"}, {"effect", effect}});
}

/// The template plus the revision label and the tolerations that keep a daemon on a failing node.
Json dressed(const Json& pod_template, const std::string& hash) {
  Json out = pod_template;
  out.make("metadata/labels").set(kRevisionHashLabel, hash);
  Json& tolerations = out.make("spec/tolerations");
  std::vector<Json> wanted = {toleration("node.kubernetes.io/not-ready", "NoExecute"),
                              toleration("node.kubernetes.io/unreachable", "NoExecute"),
                              toleration("node.kubernetes.io/disk-pressure", "NoSchedule"),
                              toleration("node.kubernetes.io/memory-pressure", "NoSchedule"),
                              toleration("node.kubernetes.io/pid-pressure", "NoSchedule"),
                              toleration("node.kubernetes.io/unschedulable", "NoSchedule")};
  if (pod_template.at("spec/hostNetwork").as_bool())
    wanted.push_back(toleration("node.kubernetes.io/network-unavailable", "NoSchedule"));
  for (Json& one : wanted) {
    const auto& present = std::as_const(tolerations).as_array();
    if (std::find(present.begin(), present.end(), one) == present.end())
      tolerations.push_back(std::move(one));
  }
  return out;
}

/// A pod that the scheduler can bind to one node only.
Json pod_for(const api::DaemonSet& set, const Json& pod_template, const std::string& node) {
  Json pod = pod_of_template(pod_template, set.metadata.name + "-", set.metadata.ns);
  const Json node_term =
      Json::object({{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({node})}});
  Json& required = pod.make(std::string("spec/affinity/nodeAffinity/") + kRequired);
  Json terms = Json::array();
  for (Json term : std::as_const(required)["nodeSelectorTerms"].as_array()) {
    term.set("matchFields", Json::array({node_term}));
    terms.push_back(std::move(term));
  }
  if (terms.empty()) terms.push_back(Json::object({{"matchFields", Json::array({node_term})}}));
  required.set("nodeSelectorTerms", std::move(terms));
  return pod;
}

std::string node_of(const api::Pod& pod) {
  if (!pod.spec.node_name.empty()) return pod.spec.node_name;
  const Json& required = pod.spec.affinity["nodeAffinity"][kRequired];
  return required.at("nodeSelectorTerms/0/matchFields/0/values/0").as_string();
}

/// One node and its daemon pods.
struct Place {
  bool should_run = false, may_stay = false;
  PodPtr fresh, old;  // neither failed nor terminating
  bool leaving = false;
};

/// Plans one DaemonSet.
class DaemonSetPlanner {
 public:
  DaemonSetPlanner(const api::DaemonSet& set, WallTime now, seconds failed_pod_delay)
      : set_(set),
        now_(now),
        failed_pod_delay_(failed_pod_delay),
        source_(set.to_json()["spec"]["template"]),
        hash_(template_hash(source_)),
        template_(dressed(source_, hash_)) {}

  DaemonSetPlan run(const std::vector<std::shared_ptr<const api::Node>>& nodes,
                    const PodList& pods) {
    const auto selector = meta::LabelSelector::from_json(set_.spec.selector);
    if (!selector.ok() || selector->empty() ||
        !selector->matches_labels(source_.at("metadata/labels"))) {
      plan_.problem =
          "spec.selector does not match the labels of spec.template: change one of them";
      return std::move(plan_);
    }
    look(nodes, pods);
    for (auto& [node, place] : places_) settle(node, place);
    roll();
    write_status();
    plan_.again = timer_.due();
    return std::move(plan_);
  }

 private:
  void look(const std::vector<std::shared_ptr<const api::Node>>& nodes, const PodList& pods) {
    const auto sample = api::Pod::from_json(Json::object({{"apiVersion", "v1"},
                                                          {"kind", "Pod"},
                                                          {"metadata", Json::object()},
                                                          {"spec", template_["spec"]}}));
    for (const auto& node : nodes) {
      if (node->metadata.deleting()) continue;
      Place& place = places_[node->metadata.name];
      if (!sample.ok()) continue;
      place.should_run = node_refusal(*sample, *node).empty();
      place.may_stay = may_stay_on(*sample, *node);
    }
    // If a node has several pods, the ready and oldest one stays.
    PodList sorted = pods;
    by_dispensability(sorted);
    std::reverse(sorted.begin(), sorted.end());
    for (const PodPtr& pod : sorted) {
      const auto found = places_.find(node_of(*pod));
      if (found == places_.end()) {
        // The node was removed. The scheduler ends bound pods of such nodes, but not unbound ones.
        if (pod->spec.node_name.empty() && !pod->metadata.deleting())
          plan_.changes.remove.push_back(pod);
        continue;
      }
      Place& place = found->second;
      if (pod->metadata.deleting()) {
        place.leaving = true;
      } else if (finished(*pod)) {
        place.leaving = true;
        if (may_replace(*pod, now_, failed_pod_delay_, timer_)) plan_.changes.remove.push_back(pod);
      } else {
        const auto label = pod->metadata.labels.find(std::string(kRevisionHashLabel));
        PodPtr& slot =
            label != pod->metadata.labels.end() && label->second == hash_ ? place.fresh : place.old;
        if (slot) {
          plan_.changes.remove.push_back(pod);
        } else {
          slot = pod;
        }
      }
    }
  }

  void settle(const std::string& node, Place& place) {
    if (!place.may_stay) {
      for (PodPtr* pod : {&place.fresh, &place.old}) {
        if (*pod) plan_.changes.remove.push_back(*pod);
      }
    } else if (place.should_run && !place.fresh && !place.old && !place.leaving) {
      create(node);
    }
  }

  void create(const std::string& node) {
    if (plan_.changes.create.size() < kBurst)
      plan_.changes.create.push_back(pod_for(set_, template_, node));
  }

  bool up(const PodPtr& pod) {
    return pod && available(*pod, {.now = now_, .min_ready = seconds(set_.spec.min_ready_seconds)},
                            timer_);
  }

  void roll() {
    const Json& strategy = set_.spec.update_strategy;
    if (strategy["type"].as_string() == "OnDelete") return;
    const auto total = std::count_if(places_.begin(), places_.end(),
                                     [](const auto& one) { return one.second.should_run; });
    const std::int64_t surge =
        amount(strategy.at("rollingUpdate/maxSurge"), total, Round::kUp, "0");
    std::int64_t unavailable =
        amount(strategy.at("rollingUpdate/maxUnavailable"), total, Round::kUp, "1");
    if (surge == 0) unavailable = std::max<std::int64_t>(unavailable, 1);
    if (surge > 0) {
      roll_with_surge(surge);
      return;
    }
    // Unavailable pods are deleted at once, available ones within maxUnavailable.
    std::int64_t missing = 0;
    PodList candidates;
    for (auto& [node, place] : places_) {
      if (!place.should_run) continue;
      const bool serves = up(place.fresh) || up(place.old);
      missing += !serves;
      if (!place.old || !place.may_stay) continue;
      if (serves && !place.fresh) {
        candidates.push_back(place.old);
      } else {
        plan_.changes.remove.push_back(place.old);
      }
    }
    for (std::int64_t i = 0;
         i < unavailable - missing && i < static_cast<std::int64_t>(candidates.size()); ++i)
      plan_.changes.remove.push_back(candidates[static_cast<std::size_t>(i)]);
  }

  /// The new pod starts beside the old one; the old one is deleted once the new one is available.
  void roll_with_surge(std::int64_t surge) {
    std::int64_t surging = 0;
    for (auto& [node, place] : places_)
      surging += place.should_run && place.old && place.fresh && !up(place.fresh);
    for (auto& [node, place] : places_) {
      if (!place.should_run || !place.may_stay || !place.old) continue;
      if (place.fresh) {
        if (up(place.fresh)) plan_.changes.remove.push_back(place.old);
      } else if (!up(place.old)) {
        plan_.changes.remove.push_back(place.old);
      } else if (surging < surge) {
        create(node);
        ++surging;
      }
    }
  }

  void write_status() {
    std::int64_t desired = 0, current = 0, stray = 0, ready = 0, updated = 0, running = 0;
    for (const auto& [node, place] : places_) {
      const bool any = place.fresh || place.old;
      if (!place.should_run) {
        stray += any;
        continue;
      }
      ++desired;
      current += any;
      updated += place.fresh != nullptr;
      ready += (place.fresh && place.fresh->ready()) || (place.old && place.old->ready());
      running += up(place.fresh) || up(place.old);
    }
    plan_.status = Json::object({{"currentNumberScheduled", current},
                                 {"numberMisscheduled", stray},
                                 {"desiredNumberScheduled", desired},
                                 {"numberReady", ready},
                                 {"observedGeneration", set_.metadata.generation}});
    const auto set = [&](const char* name, std::int64_t number) {
      if (number > 0) plan_.status.set(name, number);
    };
    set("updatedNumberScheduled", updated);
    set("numberAvailable", running);
    set("numberUnavailable", desired - running);
  }

  const api::DaemonSet& set_;
  const WallTime now_;
  const seconds failed_pod_delay_;
  const Json source_;
  const std::string hash_;
  const Json template_;
  std::map<std::string, Place> places_;
  Timer timer_;
  DaemonSetPlan plan_;
};

std::vector<ObjectKey> all(const api::Node&, const runtime::Caches& caches) {
  std::vector<ObjectKey> keys;
  for (const auto& set : caches.of<api::DaemonSet>().list()) keys.push_back(set->metadata.key());
  return keys;
}

}  // namespace

DaemonSetPlan plan_daemon_set(const api::DaemonSet& set,
                              const std::vector<std::shared_ptr<const api::Node>>& nodes,
                              const PodList& pods, WallTime now, seconds failed_pod_delay) {
  return DaemonSetPlanner(set, now, failed_pod_delay).run(nodes, pods);
}

DaemonSetReconciler::DaemonSetReconciler(const runtime::Caches& caches, const Options& options)
    : caches_(caches), options_(options), clock_(options.clock ? *options.clock : system_clock()) {}

void DaemonSetReconciler::watches(runtime::Watches<api::DaemonSet>& w) const {
  w.owns<api::Pod>().owns<api::ControllerRevision>().maps<api::Node>(all);
}

Result<runtime::Action> DaemonSetReconciler::reconcile(const Context& ctx,
                                                       const api::DaemonSet& set,
                                                       runtime::Writer& writer) const {
  if (set.metadata.deleting()) return runtime::Action::await_change();
  const PodList pods = caches_.of<api::Pod>().owned_by(set.metadata.uid);
  const DaemonSetPlan plan = plan_daemon_set(set, caches_.of<api::Node>().list(), pods,
                                             clock_.wall(), options_.failed_pod_delay);
  if (!plan.problem.empty()) return Error(Code::kInvalid, plan.problem).as_terminal();
  // Before the pods: every template that ever ran must have a revision for rollbacks.
  const auto revisions = caches_.of<api::ControllerRevision>().list(set.metadata.ns);
  TRY_VOID(write_history(ctx, writer, set, plan_history(set, revisions, pods)));
  Status changed = apply_pod_changes(ctx, writer, runtime::ObjectRef::of(set), plan.changes);
  TRY_VOID(writer.status(ctx, set, plan.status));
  TRY_VOID(std::move(changed));
  return plan.again ? runtime::Action::after(*plan.again) : runtime::Action::await_change();
}

}  // namespace varda::cluster
