#include "cluster/internal/deployment.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "cluster/indexes.h"
#include "cluster/internal/deployment_status.h"
#include "cluster/internal/rollout.h"
#include "meta/selector.h"

namespace varda::cluster {

namespace {

using meta::ObjectKey;
using Annotations = std::map<std::string, std::string>;

constexpr const char* kHistory = "deployment.kubernetes.io/revision-history";
constexpr const char* kDesired = "deployment.kubernetes.io/desired-replicas";
constexpr const char* kMax = "deployment.kubernetes.io/max-replicas";

std::string text_of(const Annotations& annotations, std::string_view name) {
  const auto found = annotations.find(std::string(name));
  return found == annotations.end() ? "" : found->second;
}

std::int64_t number_of(const Annotations& annotations, std::string_view name,
                       std::int64_t otherwise) {
  return parse_integer<std::int64_t>(text_of(annotations, name)).value_or(otherwise);
}

std::int64_t revision_of(const api::ReplicaSet& set) {
  return number_of(set.metadata.annotations, kRevision, 0);
}

bool is_controlled_by(const api::Pod& pod, const api::ReplicaSet& set) {
  const meta::OwnerReference* controller = pod.metadata.controller();
  return controller && controller->uid == set.metadata.uid;
}

std::string template_hash_of(const meta::ObjectMeta& metadata) {
  return text_of(metadata.labels, kTemplateHashLabel);
}

/// Hash of a ReplicaSet's template without the label that the Deployment added.
std::string hash_of(const api::ReplicaSet& set) {
  Json pod_template = set.to_json()["spec"]["template"];
  if (Json* metadata = pod_template.find("metadata")) {
    if (Json* labels = metadata->find("labels")) {
      labels->erase(kTemplateHashLabel);
      if (labels->empty()) metadata->erase("labels");
    }
  }
  return template_hash(pod_template);
}

/// Finds the set by the label first, which survives a change of the API server's defaults. Falls
/// back to the template, to find a set that another tool created.
ReplicaSetPtr find_fresh(const std::vector<ReplicaSetPtr>& sets, const std::string& hash) {
  for (const auto& set : sets) {
    if (template_hash_of(set->metadata) == hash) return set;
  }
  for (const auto& set : sets) {
    if (hash_of(*set) == hash) return set;
  }
  return nullptr;
}

/// Annotations that a ReplicaSet inherits from its Deployment: kubectl reads the change cause
/// there.
Annotations inherited(const api::Deployment& deployment) {
  static const std::set<std::string, std::less<>> kOwn = {
      "kubectl.kubernetes.io/last-applied-configuration",
      "deprecated.deployment.rollback.to",
      std::string(runtime::kLastApplied),
      std::string(kRevision),
      kHistory,
      kDesired,
      kMax};
  Annotations out;
  for (const auto& [name, value] : deployment.metadata.annotations) {
    if (!kOwn.contains(name)) out[name] = value;
  }
  return out;
}

Annotations scale_annotations(const Bounds& bounds) {
  return {{kDesired, std::to_string(bounds.desired)},
          {kMax, std::to_string(bounds.desired + bounds.surge)}};
}

Json json_of(const Annotations& annotations) {
  Json out = Json::object();
  for (const auto& [name, value] : annotations) out.set(name, value);
  return out;
}

Json make_set(const api::Deployment& deployment, const Json& pod_template, const std::string& hash,
              std::int64_t replicas, const Annotations& annotations) {
  Json labeled = pod_template;
  labeled.make("metadata/labels").set(kTemplateHashLabel, hash);
  Json selector = deployment.spec.selector;
  selector.make("matchLabels").set(kTemplateHashLabel, hash);
  Json spec = Json::object({{"replicas", replicas}, {"selector", std::move(selector)}});
  if (deployment.spec.min_ready_seconds > 0)
    spec.set("minReadySeconds", deployment.spec.min_ready_seconds);
  Json metadata = Json::object({{"name", deployment.metadata.name + "-" + hash},
                                {"namespace", deployment.metadata.ns},
                                {"labels", std::as_const(labeled)["metadata"]["labels"]},
                                {"annotations", json_of(annotations)}});
  spec.set("template", std::move(labeled));
  return Json::object({{"apiVersion", "apps/v1"},
                       {"kind", "ReplicaSet"},
                       {"metadata", std::move(metadata)},
                       {"spec", std::move(spec)}});
}

std::string scaled(const std::string& set, std::int64_t from, std::int64_t to) {
  return std::string(to > from ? "Scaled up" : "Scaled down") + " replica set " + set + " from " +
         std::to_string(from) + " to " + std::to_string(to);
}

/// Plans one Deployment.
class DeploymentPlanner {
 public:
  DeploymentPlanner(const api::Deployment& deployment, const DeploymentWorld& world, WallTime now)
      : deployment_(deployment),
        world_(world),
        now_(now),
        bounds_(Bounds::of(deployment)),
        pod_template_(deployment.to_json()["spec"]["template"]),
        hash_(template_hash(pod_template_)) {}

  DeploymentPlan run() {
    const auto selector = meta::LabelSelector::from_json(deployment_.spec.selector);
    if (!selector.ok() || selector->empty() ||
        !selector->matches_labels(pod_template_.at("metadata/labels")))
      plan_.problem =
          "spec.selector does not match the labels of spec.template: change one of them";
    sort_out();
    if (plan_.problem.empty()) {
      scale();
      if (!deployment_.spec.paused && deployment_complete(bounds_, counts_)) clean_up();
    }
    Timer timer;
    plan_.status = deployment_status(deployment_, bounds_, counts_, story_, now_, timer);
    plan_.again = timer.due();
    return std::move(plan_);
  }

 private:
  void sort_out() {
    fresh_ = find_fresh(world_.sets, hash_);
    for (const PodPtr& pod : world_.own) {
      const bool of_fresh = template_hash_of(pod->metadata) == hash_;
      if (!of_fresh && !finished(*pod)) old_pods_run_ = true;
      if (pod->metadata.deleting()) continue;
      if (finished(*pod)) {
        plan_.remove.push_back(pod);
        continue;
      }
      ++counts_.replicas;
      counts_.updated += of_fresh;
      counts_.ready += pod->ready();
      counts_.available += pod->ready();
      if (of_fresh) continue;  // the current ReplicaSet adopts it
      legacy_.push_back(pod);
      legacy_available_ += pod->ready();
    }
    for (const PodPtr& pod : world_.of_sets) {
      if (!finished(*pod) && !(fresh_ && is_controlled_by(*pod, *fresh_))) old_pods_run_ = true;
    }
    for (const ReplicaSetPtr& set : world_.sets) {
      counts_.wanted += set->spec.replicas.value_or(1);
      counts_.replicas += set->status.replicas;
      counts_.updated += set == fresh_ ? set->status.replicas : 0;
      counts_.ready += set->status.ready_replicas;
      counts_.available += set->status.available_replicas;
      if (story_.replica_failure && set != fresh_) continue;  // the current template's failure wins
      if (const auto* failure = api::find_condition(set->status.conditions, "ReplicaFailure"))
        story_.replica_failure = Phrasing{failure->status, failure->reason, failure->message};
    }
    counts_.wanted += static_cast<std::int64_t>(legacy_.size());
    if (fresh_) {
      story_.set = DeploymentStory::Set::kPresent;
      story_.set_name = fresh_->metadata.name;
    }
  }

  std::vector<Share> shares() const {
    std::vector<Share> shares;
    // Pods from before ReplicaSets count as the oldest set.
    const auto legacy = static_cast<std::int64_t>(legacy_.size());
    shares.push_back({.replicas = legacy, .actual = legacy, .available = legacy_available_});
    for (const ReplicaSetPtr& set : world_.sets) {
      shares.push_back({.replicas = set->spec.replicas.value_or(1),
                        .actual = set->status.replicas,
                        .available = set->status.available_replicas,
                        .scaled_for = number_of(set->metadata.annotations, kDesired, -1),
                        .total_max_then = number_of(set->metadata.annotations, kMax, -1)});
    }
    return shares;
  }

  bool was_scaled(const std::vector<Share>& shares) const {
    return std::any_of(shares.begin(), shares.end(), [&](const Share& share) {
      return share.replicas > 0 && share.scaled_for >= 0 && share.scaled_for != bounds_.desired;
    });
  }

  void scale() {
    std::vector<Share> shares = this->shares();
    int fresh = -1;
    for (std::size_t i = 0; i < world_.sets.size(); ++i) {
      if (world_.sets[i] == fresh_) fresh = static_cast<int>(i) + 1;
    }
    const bool scaling = was_scaled(shares);
    std::vector<std::int64_t> sizes;
    if (scaling || deployment_.spec.paused) {
      story_.mode = DeploymentStory::Mode::kScaling;
      if (legacy_.empty()) {
        sizes = scale_all(bounds_, {shares.begin() + 1, shares.end()}, fresh - (fresh > 0 ? 1 : 0),
                          deployment_.status.replicas);
        sizes.insert(sizes.begin(), 0);
      } else {
        sizes = scale_all(bounds_, shares, fresh, deployment_.status.replicas);
      }
    } else {
      if (!fresh_) {
        fresh = static_cast<int>(shares.size());
        shares.emplace_back();
      }
      sizes = roll_out(bounds_, shares, fresh, old_pods_run_);
    }
    resize_legacy(sizes[0]);
    for (std::size_t i = 0; i < world_.sets.size(); ++i) change(world_.sets[i], sizes[i + 1]);
    if (!fresh_ && story_.mode == DeploymentStory::Mode::kRolling) create(sizes.back());
  }

  void resize_legacy(std::int64_t size) {
    by_dispensability(legacy_);
    const std::int64_t surplus =
        std::max<std::int64_t>(static_cast<std::int64_t>(legacy_.size()) - size, 0);
    plan_.remove.insert(plan_.remove.end(), legacy_.begin(), legacy_.begin() + surplus);
  }

  std::int64_t next_revision() const {
    std::int64_t last = 0;
    for (const ReplicaSetPtr& set : world_.sets) {
      if (set != fresh_) last = std::max(last, revision_of(*set));
    }
    return last + 1;
  }

  void create(std::int64_t replicas) {
    plan_.revision = std::to_string(next_revision());
    Annotations annotations = inherited(deployment_);
    annotations.merge(scale_annotations(bounds_));
    annotations[std::string(kRevision)] = plan_.revision;
    plan_.create = make_set(deployment_, pod_template_, hash_, replicas, annotations);
    story_.set = DeploymentStory::Set::kCreated;
    story_.set_name = deployment_.metadata.name + "-" + hash_;
    counts_.wanted += replicas;
    if (replicas > 0) plan_.events.push_back(scaled(story_.set_name, 0, replicas));
  }

  void change(const ReplicaSetPtr& set, std::int64_t replicas) {
    const std::int64_t before = set->spec.replicas.value_or(1);
    Annotations wanted;
    std::int64_t min_ready = set->spec.min_ready_seconds;
    const bool other_scale = number_of(set->metadata.annotations, kDesired, -1) != bounds_.desired;
    if (replicas != before || (replicas > 0 && other_scale)) wanted = scale_annotations(bounds_);
    if (set == fresh_) {
      wanted.merge(inherited(deployment_));
      min_ready = deployment_.spec.min_ready_seconds;
      const std::int64_t revision = revision_of(*set), next = next_revision();
      plan_.revision = std::to_string(std::max(revision, next));
      if (revision < next) {
        wanted[std::string(kRevision)] = plan_.revision;
        const std::string history = text_of(set->metadata.annotations, kHistory);
        if (revision > 0)
          wanted[kHistory] =
              history.empty() ? std::to_string(revision) : history + "," + std::to_string(revision);
      }
    }
    std::erase_if(wanted, [&](const auto& one) {
      const auto found = set->metadata.annotations.find(one.first);
      return found != set->metadata.annotations.end() && found->second == one.second;
    });
    if (replicas == before && wanted.empty() && min_ready == set->spec.min_ready_seconds) return;
    counts_.wanted += replicas - before;
    if (replicas != before) plan_.events.push_back(scaled(set->metadata.name, before, replicas));
    plan_.change.push_back({.set = set,
                            .replicas = replicas,
                            .min_ready_seconds = min_ready,
                            .annotations = std::move(wanted)});
  }

  void clean_up() {
    std::vector<ReplicaSetPtr> idle;
    for (const ReplicaSetPtr& set : world_.sets) {
      if (set == fresh_ || set->metadata.deleting()) continue;
      if (set->spec.replicas.value_or(1) != 0 || set->status.replicas != 0) continue;
      if (set->status.observed_generation < set->metadata.generation) continue;
      idle.push_back(set);
    }
    std::stable_sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) {
      return revision_of(*a) < revision_of(*b);
    });
    const auto limit = static_cast<std::size_t>(
        std::max<std::int64_t>(deployment_.spec.revision_history_limit.value_or(10), 0));
    idle.resize(idle.size() > limit ? idle.size() - limit : 0);
    plan_.drop = std::move(idle);
  }

  const api::Deployment& deployment_;
  const DeploymentWorld& world_;
  const WallTime now_;
  const Bounds bounds_;
  const Json pod_template_;
  const std::string hash_;
  ReplicaSetPtr fresh_;
  PodList legacy_;
  std::int64_t legacy_available_ = 0;
  bool old_pods_run_ = false;
  DeploymentCounts counts_;
  DeploymentStory story_;
  DeploymentPlan plan_;
};

std::vector<ObjectKey> adopting_deployments(const api::ReplicaSet& set,
                                            const runtime::Caches& caches) {
  std::vector<ObjectKey> keys;
  if (set.metadata.controller()) return keys;
  for (const auto& deployment : caches.of<api::Deployment>().list(set.metadata.ns)) {
    const auto selector = meta::LabelSelector::from_json(deployment->spec.selector);
    if (selector.ok() && !selector->empty() && selector->matches(set.metadata.labels))
      keys.push_back(deployment->metadata.key());
  }
  return keys;
}

/// A Recreate roll-out waits for the end of every old pod, which no ReplicaSet's status shows.
std::vector<ObjectKey> waiting_for(const api::Pod& pod, const runtime::Caches& caches) {
  const meta::OwnerReference* controller = pod.metadata.controller();
  if (!controller || controller->kind != "ReplicaSet") return {};
  const auto set = caches.of<api::ReplicaSet>().get({pod.metadata.ns, controller->name});
  const meta::OwnerReference* owner = set ? set->metadata.controller() : nullptr;
  if (!owner || owner->kind != "Deployment") return {};
  const ObjectKey key{pod.metadata.ns, owner->name};
  const auto deployment = caches.of<api::Deployment>().get(key);
  if (!deployment || deployment->spec.strategy["type"].as_string() != "Recreate") return {};
  return {key};
}

Status apply_change(const Context& ctx, runtime::Writer& writer,
                    const DeploymentPlan::Change& change) {
  const std::int64_t planned_from = change.set->spec.replicas.value_or(1);
  return writer.edit(ctx, runtime::ObjectRef::of(*change.set), runtime::Part::kWhole,
                     [&](Json& live) {
                       // Another client has scaled the set meanwhile: that change arrives soon and
                       // causes a new plan.
                       if (std::as_const(live).at("spec/replicas").as_integer(1) != planned_from)
                         return;
                       live["spec"].set("replicas", change.replicas);
                       if (change.min_ready_seconds != change.set->spec.min_ready_seconds)
                         live["spec"].set("minReadySeconds", change.min_ready_seconds);
                       for (const auto& [name, value] : change.annotations)
                         live.make("metadata/annotations").set(name, value);
                     });
}

}  // namespace

DeploymentPlan plan_deployment(const api::Deployment& deployment, const DeploymentWorld& world,
                               WallTime now) {
  return DeploymentPlanner(deployment, world, now).run();
}

DeploymentReconciler::DeploymentReconciler(const runtime::Caches& caches, const Options& options)
    : caches_(caches), clock_(options.clock ? *options.clock : system_clock()) {}

void DeploymentReconciler::watches(runtime::Watches<api::Deployment>& w) const {
  w.owns<api::ReplicaSet>().owns<api::Pod>();
  w.maps<api::ReplicaSet>(adopting_deployments).maps<api::Pod>(waiting_for);
  w.indexes<api::ReplicaSet>(kSetsToTake, adoptable_sets);
}

DeploymentWorld DeploymentReconciler::look(const api::Deployment& deployment) const {
  DeploymentWorld world;
  world.sets = caches_.of<api::ReplicaSet>().owned_by(deployment.metadata.uid);
  std::erase_if(world.sets, [](const ReplicaSetPtr& set) { return set->metadata.deleting(); });
  std::sort(world.sets.begin(), world.sets.end(),
            [](const ReplicaSetPtr& a, const ReplicaSetPtr& b) {
              return std::tie(a->metadata.creation_timestamp, a->metadata.name) <
                     std::tie(b->metadata.creation_timestamp, b->metadata.name);
            });
  world.own = caches_.of<api::Pod>().owned_by(deployment.metadata.uid);
  if (deployment.spec.strategy["type"].as_string() == "Recreate") {
    for (const ReplicaSetPtr& set : world.sets) {
      for (PodPtr& pod : caches_.of<api::Pod>().owned_by(set->metadata.uid))
        world.of_sets.push_back(std::move(pod));
    }
  }
  return world;
}

Result<runtime::Action> DeploymentReconciler::reconcile(const Context& ctx,
                                                        const api::Deployment& deployment,
                                                        runtime::Writer& writer) const {
  if (deployment.metadata.deleting()) return runtime::Action::await_change();
  const runtime::ObjectRef owner = runtime::ObjectRef::of(deployment);
  const auto selector = meta::LabelSelector::from_json(deployment.spec.selector);
  if (selector.ok() && !selector->empty()) {
    for (const ReplicaSetPtr& set :
         caches_.of<api::ReplicaSet>().by_index(kSetsToTake, deployment.metadata.ns)) {
      if (set->metadata.deleting() || !selector->matches(set->metadata.labels)) continue;
      TRY_VOID(hand_over(ctx, writer, runtime::ObjectRef::of(*set), "", &owner));
    }
  }
  const DeploymentPlan plan = plan_deployment(deployment, look(deployment), clock_.wall());
  Status first;
  const auto note = [&first](Status status) {
    if (!status.ok() && first.ok()) first = std::move(status);
  };
  for (const auto& change : plan.change) note(apply_change(ctx, writer, change));
  if (plan.create) {
    auto created = writer.create(ctx, *plan.create, &owner);
    if (!created.ok()) note(std::move(created).error());
  }
  for (const PodPtr& pod : plan.remove) note(writer.remove(ctx, runtime::ObjectRef::of(*pod)));
  for (const ReplicaSetPtr& set : plan.drop) note(writer.remove(ctx, runtime::ObjectRef::of(*set)));
  if (first.ok()) {
    for (const std::string& events : plan.events)
      writer.event(deployment, runtime::EventType::kNormal, "ScalingReplicaSet", events);
  }
  // The revision is written with the status, as in Kubernetes: a separate write would create
  // another generation.
  TRY_VOID(writer.edit(ctx, owner, runtime::Part::kStatus, [&](Json& live) {
    live.set("status", plan.status);
    if (!plan.revision.empty()) live.make("metadata/annotations").set(kRevision, plan.revision);
  }));
  TRY_VOID(std::move(first));
  if (!plan.problem.empty()) return Error(Code::kInvalid, plan.problem).as_terminal();
  return plan.again ? runtime::Action::after(*plan.again) : runtime::Action::await_change();
}

}  // namespace varda::cluster
