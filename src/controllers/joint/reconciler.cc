#include "controllers/joint/reconciler.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "controllers/joint/child.h"
#include "controllers/joint/indexes.h"
#include "controllers/joint/joint.h"
#include "controllers/joint/metrics.h"
#include "controllers/joint/ports.h"
#include "hosting/certificate.h"
#include "hosting/certificate_issuer.h"
#include "hosting/conditions.h"
#include "hosting/service_address.h"

namespace varda::controllers::joint {

namespace {

using api::JointInferenceService;
using meta::ObjectKey;
using Autoscaler = runtime::Raw<workers::autoscaler_resource>;

// A cluster's policy may later accept the refused objects, and no watch reports that.
constexpr Duration kServiceRefusedAgain = std::chrono::minutes(2);

constexpr std::size_t kServicesAtOnce = 4;

// Time in which the cache gets a newer service.
constexpr Duration kOldCopyAgain = std::chrono::seconds(1);

// A port may be released by another service or by a terminating pod, so poll.
constexpr Duration kServicePortAgain = std::chrono::seconds(10);

// Services with a child that has the name of a gone object: "digits" for digits-cloud and
// digits-edge-adfa01a70198.
template <runtime::Object T>
Keys of_free_name(const T& object, const runtime::Caches& caches) {
  const ObjectKey key = object.metadata.key();
  if (caches.of<T>().get(key) != nullptr) return {};
  Keys keys;
  for (auto end = key.name.rfind('-'); end != std::string::npos && end > 0;
       end = key.name.rfind('-', end - 1)) {
    ObjectKey service{key.ns, key.name.substr(0, end)};
    if (caches.of<JointInferenceService>().get(service) != nullptr)
      keys.push_back(std::move(service));
  }
  return keys;
}

// Writes Events for transitions that matter to people. A status that stays the same causes none.
void record_events(const JointInferenceService& service,
                   const api::JointInferenceServiceStatus& now, hosting::PassingProblems& passing,
                   SteadyTime time, runtime::Writer& writer) {
  const auto before = [&](std::string_view type) {
    return meta::find_condition(service.status.conditions, type);
  };
  std::vector<std::string> reported;  // reasons: several conditions may share a cause
  for (const char* type : {"Ready", "EdgeReady", "CloudReady", "Autoscaling"}) {
    const meta::Condition* condition = meta::find_condition(now.conditions, type);
    if (condition == nullptr || condition->status == "True" ||
        hosting::is_progress(condition->reason)) {
      passing.clear(service.metadata.key(), type);
      continue;
    }
    if (!passing.due(service.metadata.key(), before(type), *condition, time)) continue;
    if (std::find(reported.begin(), reported.end(), condition->reason) != reported.end()) continue;
    reported.push_back(condition->reason);
    writer.event(service, runtime::EventType::kWarning, condition->reason, condition->message);
  }
  const auto turned = [&](const char* type, std::string_view to) {
    const meta::Condition* condition = meta::find_condition(now.conditions, type);
    const meta::Condition* was = before(type);
    return condition != nullptr && condition->status == to && (was == nullptr || was->status != to)
               ? condition
               : nullptr;
  };
  if (const auto* ready = turned("Ready", "True"))
    writer.event(service, runtime::EventType::kNormal, "Serving", ready->message);
  if (const auto* degraded = turned("Degraded", "True");
      degraded != nullptr && !now.start_time.empty())
    writer.event(service, runtime::EventType::kWarning, "Degraded",
                 degraded->reason + ": " + degraded->message);
  const meta::Condition* was = before("Degraded");
  if (const auto* whole = turned("Degraded", "False");
      whole != nullptr && was != nullptr && was->status == "True")
    writer.event(service, runtime::EventType::kNormal, "Recovered", whole->message);
}

bool waits_for_port(const JointPlan& plan) {
  const auto wants = [](const std::optional<hosting::Problem>& problem) {
    return problem && problem->reason == "PortInUse";
  };
  return wants(plan.first_problem) ||
         std::any_of(plan.first.pods.begin(), plan.first.pods.end(),
                     [&](const workers::WorkerPod& pod) { return wants(pod.problem); }) ||
         std::any_of(plan.further.begin(), plan.further.end(),
                     [&](const TierPlan& tier) { return wants(tier.problem); });
}

}  // namespace

JointInferenceReconciler::JointInferenceReconciler(const runtime::Caches& caches,
                                                   hosting::Options options)
    : caches_(caches), options_(std::move(options)), clock_(hosting::clock_of(options_)) {}

void JointInferenceReconciler::watches(runtime::Watches<JointInferenceService>& w) const {
  w.owns<api::Pod>(runtime::Update::kRecreate)
      .owns<api::Deployment>()
      .owns<api::Service>()
      .owns<api::InferenceModel>();
  w.owns_if_served<Autoscaler>();
  w.workers(kServicesAtOnce);
  add_indexes(w);
  const auto changed = [](const auto* before, const auto* now, const runtime::Caches& caches) {
    return changed_by(before, now, caches);
  };
  w.changes<api::EdgeNode>(changed).changes<api::Node>(changed);
  const auto port_changed = [](const auto* before, const auto* now, const runtime::Caches& caches) {
    return port_changed_by(before, now, caches);
  };
  w.changes<JointInferenceService>(port_changed)
      .changes<api::InferenceModel>(port_changed)
      .changes<api::Pod>(port_changed);
  const auto refers = [](const auto& model, const runtime::Caches& caches) {
    return of_model(model.metadata.key(), caches);
  };
  w.maps<api::InferenceModel>(refers).maps<api::Model>(refers).maps<api::SednaModel>(refers);
  w.maps<api::Pod>(service_of);
  w.maps<api::Pod>(of_free_name<api::Pod>);
  w.maps<api::Service>(of_free_name<api::Service>);
  w.maps<api::Deployment>(of_free_name<api::Deployment>);
  // Clients of "digits" ask "digits-cloud". If the cut name is no service, the slice affects none.
  w.maps<api::EndpointSlice>([](const api::EndpointSlice& slice, const runtime::Caches& caches) {
    const std::string name = slice.service_name();
    const ObjectKey key{slice.metadata.ns, name.substr(0, std::min(name.rfind('-'), name.size()))};
    return caches.of<JointInferenceService>().get(key) == nullptr ? Keys{} : Keys{key};
  });
  w.indexes<api::EndpointSlice>(std::string(hosting::kSlicesByService), hosting::slices_by_service);
}

JointWorld JointInferenceReconciler::look(const JointInferenceService& service,
                                          const std::vector<Tier>& tiers) const {
  JointWorld world;
  const ObjectKey key = service.metadata.key();
  world.keys = hosting::keys_of(options_);
  hosting::NodeSet nodes(caches_);
  std::vector<std::string> names = named_nodes(tiers);
  for (const std::string& name : names) nodes.add(name);
  bool selects = false;  // a tier is on nodes that it does not name
  for (const Tier& tier : tiers) {
    if (!tier.node.empty() || (&tier != &tiers.front() && !on_only_node(tier))) continue;
    add_nodes_of(tier, caches_, nodes);
    selects = true;
  }
  for (const auto& node : nodes.list()) names.push_back(node->metadata.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  world.edge_node = [this](const std::string& node) {
    return caches_.of<api::EdgeNode>().get({"", node});
  };
  for (const Tier& tier : tiers) {
    world.models.emplace(tier.model->name,
                         hosting::named_models({key.ns, tier.model->name}, caches_));
    for (const std::string& name : {tier.model->name, child_name(service, tier)}) {
      if (auto model = caches_.of<api::InferenceModel>().get({key.ns, name}))
        world.inference_models.emplace(name, std::move(model));
    }
  }
  world.children = caches_.of<api::InferenceModel>().owned_by(service.metadata.uid);
  world.pods = caches_.of<api::Pod>().owned_by(service.metadata.uid);
  world.autoscalers_served = caches_.find(Autoscaler::resource())->served();
  if (tiers.size() > 1) {
    const ObjectKey last{key.ns, child_name(service, tiers.back())};
    world.service = caches_.of<api::Service>().get(last);
    world.slices = caches_.of<api::EndpointSlice>().by_index(hosting::kSlicesByService, last.str());
    world.deployment = caches_.of<api::Deployment>().get(last);
    if (tiers.back().has_template()) {
      for (auto& pod : caches_.of<api::Pod>().select(
               meta::LabelSelector::equals(
                   {{std::string(workers::kJobKindLabel), JointInferenceService::resource().kind},
                    {std::string(workers::kJobLabel), key.name},
                    {std::string(workers::kWorkerLabel), tiers.back().name}}),
               key.ns)) {
        world.pods.push_back(std::move(pod));
      }
    }
  }
  for (const workers::PodPtr& pod : world.pods) nodes.add(pod->spec.node_name);
  if (selects) {  // counters of a node count until the node is gone
    for (const api::JointCounters& one : service.status.counters) nodes.add(one.node);
  }
  if (options_.node_port_host.empty() && tiers.size() > 1 && has_node_port(service, tiers.back())) {
    std::string url;
    for (const api::JointTierStatus& tier : service.status.tiers) {
      if (tier.name == tiers.back().name) url = tier.url;
    }
    nodes.add_forwarding(url);
  }
  world.nodes = nodes.list();
  world.claims = claims_of_others(names, service.metadata.uid, caches_);
  return world;
}

std::pair<JointWorld, JointPlan> JointInferenceReconciler::plan_alone(
    const JointInferenceService& service) {
  const MutexLock alone(planning_);
  JointWorld world = look(service, tiers_of(service));
  {
    const MutexLock lock(mutex_);
    for (const auto& [other, claims] : taken_)
      world.claims.insert(world.claims.end(), claims.begin(), claims.end());
  }
  JointPlan wanted = plan(service, world, options_);
  const MutexLock lock(mutex_);
  taken_[service.metadata.key()] = wanted.claims;
  return {std::move(world), std::move(wanted)};
}

void JointInferenceReconciler::release(const ObjectKey& service) {
  const MutexLock lock(mutex_);
  taken_.erase(service);
}

Result<runtime::Action> JointInferenceReconciler::on_deleted(const Context& /*ctx*/,
                                                             const ObjectKey& key,
                                                             runtime::Writer& /*writer*/) {
  if (options_.certificates != nullptr)
    options_.certificates->forget({key.ns, api::issued_secret(key.name)});
  const MutexLock lock(mutex_);
  passing_.forget(key);
  pauses_.erase(key);
  return runtime::Action::await_change();
}

Result<std::optional<Duration>> JointInferenceReconciler::replace_ended(const Context& ctx,
                                                                        const ObjectKey& service,
                                                                        const JointPlan& plan,
                                                                        runtime::Writer& writer) {
  std::optional<Duration> next;
  for (const workers::PodPtr& pod : plan.first.ended) {
    const auto made = meta::parse_time(pod->metadata.creation_timestamp);
    const Duration lived =
        made.ok() ? std::chrono::duration_cast<Duration>(clock_.wall() - *made) : Duration{};
    Duration left{};
    {
      const MutexLock lock(mutex_);
      left = pauses_[service].left(pod->metadata.key(), pod->metadata.uid, lived, clock_.now());
    }
    if (left > Duration{}) {
      next = next ? std::min(*next, left) : left;
    } else {
      TRY_VOID(writer.remove(
          ctx,
          runtime::ObjectRef::of(*pod)));  // its end causes a reconcile, which makes the next pod
    }
  }
  return next;
}

namespace {

// Counters only grow, so they must not be computed from an old copy: this process's last write may
// have arrived although its answer was lost. False: the live counters differ from those of
// `service`.
Result<bool> write_status(const Context& ctx, const JointInferenceService& service,
                          const api::JointInferenceServiceStatus& status, runtime::Writer& writer) {
  bool same = true;
  TRY_VOID(writer.edit(
      ctx, runtime::ObjectRef::of(service), runtime::Part::kStatus, [&](codec::Json& live) {
        const auto now = JointInferenceService::from_json(live);
        same = !now.ok() || now->status.counters == service.status.counters;
        if (same && (!now.ok() || now->status.observed_generation <= status.observed_generation))
          live.set("status", status.to_json());
      }));
  return same;
}

}  // namespace

Result<runtime::Action> JointInferenceReconciler::reconcile(const Context& ctx,
                                                            const JointInferenceService& service,
                                                            runtime::Writer& writer) {
  if (service.metadata.deleting()) return runtime::Action::await_change();
  auto [world, wanted] = plan_alone(service);
  // At the end, when the caches have the answers of all writes.
  struct Release {
    ~Release() { reconciler.release(service); }
    JointInferenceReconciler& reconciler;
    const ObjectKey service;
  };
  const Release release{*this, service.metadata.key()};
  std::optional<Duration> certificate_in;
  if (service.spec.security.tls && !wanted.problem && options_.certificates != nullptr) {
    TRY(hosting::CertificateIssuer::Outcome issued,
        options_.certificates->ensure(
            ctx, hosting::wanted_certificate(runtime::ObjectRef::of(service),
                                             api::issued_secret(service.metadata.name),
                                             certificate_hosts(wanted, world, options_))));
    certificate_in = issued.recheck_in;
    if (issued.problem) {
      wanted.first_problem = std::move(issued.problem);
      wanted.children = JointPlan::Children::kLeave;
    }
  }
  Status converged;
  if (wanted.children == JointPlan::Children::kConverge) {
    converged = writer.converge(ctx, service, wanted.objects);
  }
  if (!converged.ok() && converged.error().code() == Code::kAlreadyExists) {
    wanted.refused = hosting::Problem{"NameInUse", converged.error().message()};
  } else if (!converged.ok() && (converged.error().code() == Code::kInvalid ||
                                 converged.error().code() == Code::kForbidden)) {
    wanted.refused = hosting::Problem{"Refused", converged.error().message()};
  }
  // A failed write must not hide the rest of the status.
  const JointObservation seen = observe(service, wanted, world, options_, clock_.wall());
  std::optional<Duration> report_in;
  {
    const MutexLock lock(mutex_);
    record_events(service, seen.status, passing_, clock_.now(), writer);
    report_in = passing_.wait(service.metadata.key(), clock_.now());
  }
  TRY(const bool written, write_status(ctx, service, seen.status, writer));
  if (!written) return runtime::Action::after(kOldCopyAgain);
  if (wanted.refused) {
    log::warn("API server rejected objects", {{"error", converged.error()}});
    return runtime::Action::after(kServiceRefusedAgain);
  }
  TRY_VOID(std::move(converged));
  TRY(std::optional<Duration> next, replace_ended(ctx, service.metadata.key(), wanted, writer));
  if (report_in) next = next ? std::min(*next, *report_in) : *report_in;
  if (seen.recheck_in) next = next ? std::min(*next, *seen.recheck_in) : *seen.recheck_in;
  if (certificate_in) next = next ? std::min(*next, *certificate_in) : *certificate_in;
  if (waits_for_port(wanted)) next = next ? std::min(*next, kServicePortAgain) : kServicePortAgain;
  if (world.keys != nullptr)
    next = std::min(next.value_or(hosting::kKeysAgain), hosting::kKeysAgain);
  return next ? runtime::Action::after(*next) : runtime::Action::await_change();
}

// ---- work of nodes

namespace {

// EdgeNodes where the service's first tier may be, or has a pod.
Keys nodes_of(const JointInferenceService& service, const runtime::Caches& caches) {
  const std::vector<Tier> tiers = tiers_of(service);
  if (tiers.empty()) return {};
  std::set<std::string> names;
  if (tiers.front().node.empty()) {
    for (const auto& node : nodes_for(tiers.front(), caches)) names.insert(node->metadata.name);
  } else {
    names.insert(tiers.front().node);  // an agent may report before its Node exists
  }
  for (const auto& pod : caches.of<api::Pod>().owned_by(service.metadata.uid))
    names.insert(pod->spec.node_name);
  Keys keys;
  for (const std::string& name : names) {
    if (caches.of<api::EdgeNode>().get({"", name}) != nullptr) keys.push_back({"", name});
  }
  return keys;
}

// A node joined, left or changed its labels. If a worker that selects the node cannot have all
// nodes, this may give or take a place of nodes that joined later. Only such a worker's nodes are
// read.
Keys nodes_after(const api::Node& node, const runtime::Caches& caches) {
  if (!caches.synced()) return {};  // the start reconciles every node in any case
  const auto services = caches.of<JointInferenceService>();
  std::set<std::pair<std::vector<std::string>, std::size_t>> known;  // places and limits of tiers
  std::set<ObjectKey> keys;
  for (const std::string& value : values_to_search(node.metadata.name, &node)) {
    for (const auto& service : services.by_index(kByFirstNode, value)) {
      const std::vector<Tier> tiers = tiers_of(*service);
      if (tiers.empty() || !tiers.front().node.empty()) continue;
      const std::size_t most = nodes_max(tiers.front());
      if (caches.of<api::Node>().size() < most) continue;
      if (!known.emplace(places_of(tiers.front()), most).second) continue;
      const hosting::NodeList nodes = nodes_for(tiers.front(), caches);
      if (nodes.size() < most) continue;
      for (const auto& other : nodes) {
        if (workers::joined_before(node, *other) &&
            caches.of<api::EdgeNode>().get(other->metadata.key()) != nullptr)
          keys.insert(other->metadata.key());
      }
    }
  }
  return {keys.begin(), keys.end()};
}

}  // namespace

void JointWork::watches(runtime::Watches<api::EdgeNode>& w) const {
  add_indexes(w);
  w.maps<api::Node>(nodes_after, [](const api::Node& before, const api::Node& now) {
    return before.metadata.uid == now.metadata.uid && before.metadata.labels == now.metadata.labels;
  });
  // Only nodes with agents count for a layer.
  w.maps<api::EdgeNode>(
      [](const api::EdgeNode& node, const runtime::Caches& caches) {
        const auto at = caches.of<api::Node>().get(node.metadata.key());
        return at == nullptr ? Keys{} : nodes_after(*at, caches);
      },
      [](const api::EdgeNode& before, const api::EdgeNode& now) {
        return before.metadata.uid == now.metadata.uid;
      });
  // In the status only the tiers' addresses, and whether endpoints exist, affect a node's work.
  const auto same = [](const JointInferenceService& before, const JointInferenceService& now) {
    if (before.metadata.uid != now.metadata.uid ||
        before.metadata.generation != now.metadata.generation ||
        before.metadata.deleting() != now.metadata.deleting() ||
        before.status.tiers.size() != now.status.tiers.size())
      return false;
    for (std::size_t i = 0; i < now.status.tiers.size(); ++i) {
      const api::JointTierStatus &was = before.status.tiers[i], &is = now.status.tiers[i];
      if (was.name != is.name || was.url != is.url || was.model != is.model) return false;
    }
    return before.status.endpoints.empty() == now.status.endpoints.empty();
  };
  w.maps<JointInferenceService>(nodes_of, same);
  const auto nodes_of_model = [](const ObjectKey& model, const runtime::Caches& caches) {
    Keys keys;
    for (const ObjectKey& key : of_model(model, caches)) {
      const auto service = caches.of<JointInferenceService>().get(key);
      if (service == nullptr) continue;
      for (ObjectKey& node : nodes_of(*service, caches)) keys.push_back(std::move(node));
    }
    return keys;
  };
  const auto nodes_of_reference = [nodes_of_model](const auto& model,
                                                   const runtime::Caches& caches) {
    return nodes_of_model(model.metadata.key(), caches);
  };
  const auto same_spec = [](const auto& was, const auto& is) {
    return was.metadata.uid == is.metadata.uid &&
           was.metadata.generation == is.metadata.generation &&
           was.metadata.deleting() == is.metadata.deleting();
  };
  const auto same_file = [same_spec](const auto& was, const auto& is) {
    return same_spec(was, is) &&
           api::known_sha256(was.spec, was.status) == api::known_sha256(is.spec, is.status);
  };
  w.maps<api::Model>(nodes_of_reference, same_file);
  w.maps<api::SednaModel>(nodes_of_reference, same_file);
  w.maps<api::InferenceModel>(nodes_of_reference, [same_spec](const api::InferenceModel& was,
                                                              const api::InferenceModel& is) {
    return same_spec(was, is) && was.status.model_ref == is.status.model_ref;
  });
  w.maps<api::Pod>(
      [](const api::Pod& pod, const runtime::Caches& caches) {
        const ObjectKey node{"", pod.spec.node_name};
        if (service_of(pod).empty()) return Keys{};
        if (node.name.empty() || caches.of<api::EdgeNode>().get(node) == nullptr) return Keys{};
        return Keys{node};
      },
      // Only these fields of a pod affect a node's work.
      [](const api::Pod& before, const api::Pod& now) {
        return before.metadata.uid == now.metadata.uid &&
               before.metadata.deleting() == now.metadata.deleting() &&
               before.metadata.labels == now.metadata.labels &&
               before.metadata.annotations == now.metadata.annotations &&
               before.spec.node_name == now.spec.node_name &&
               before.status.pod_ip == now.status.pod_ip && before.status.phase == now.status.phase;
      });
}

std::vector<hosting::NodeWork> JointWork::work_for(const api::EdgeNode& node,
                                                   const runtime::Caches& caches) const {
  std::vector<hosting::NodeWork> out;
  const auto node_object = caches.of<api::Node>().get({"", node.metadata.name});
  // If a worker cannot have all nodes, the nodes that joined earlier decide whether it has this
  // one. Only then its nodes are read, once for all workers with these places.
  std::map<std::pair<std::vector<std::string>, std::size_t>, hosting::NodeList> before;
  const auto nodes_joined_before = [&](const Tier& tier) -> const hosting::NodeList& {
    static const hosting::NodeList none;
    const std::size_t most = nodes_max(tier);
    if (node_object == nullptr || !tier.node.empty() || caches.of<api::Node>().size() <= most)
      return none;
    const auto [at, is_new] = before.try_emplace({places_of(tier), most});
    hosting::NodeList& nodes = at->second;
    if (!is_new) return nodes;
    nodes = nodes_for(tier, caches);
    std::erase_if(nodes,
                  [&](const auto& one) { return !workers::joined_before(*one, *node_object); });
    if (nodes.size() < most) nodes.clear();
    return nodes;
  };
  for (const ObjectKey& key : first_on(node.metadata.name, caches)) {
    const auto service = caches.of<JointInferenceService>().get(key);
    if (service == nullptr) continue;
    const std::vector<Tier> tiers = tiers_of(*service);
    if (tiers.empty()) continue;
    JointWorld world;
    world.keys = hosting::keys_of(options_);
    if (node_object != nullptr) world.nodes.push_back(node_object);
    world.edge_node = [&caches](const std::string& name) {
      return caches.of<api::EdgeNode>().get({"", name});
    };
    const std::string& model = tiers.front().model->name;
    world.models.emplace(model, hosting::named_models({key.ns, model}, caches));
    if (auto found = caches.of<api::InferenceModel>().get({key.ns, model}))
      world.inference_models.emplace(model, std::move(found));
    world.pods = caches.of<api::Pod>().owned_by(service->metadata.uid);
    auto work = joint::work_for(*service, node, world, options_);
    if (!work) continue;
    if (const hosting::NodeList& others = nodes_joined_before(tiers.front()); !others.empty()) {
      world.nodes.insert(world.nodes.end(), others.begin(), others.end());
      work = joint::work_for(*service, node, world, options_);
    }
    if (work) out.push_back(std::move(*work));
  }
  return out;
}

std::vector<hosting::PortClaim> JointWork::claims_on(const std::string& node,
                                                     const runtime::Caches& caches) const {
  return joint::claims_on({node}, caches);
}

namespace {

struct JointServices final : hosting::KindControllers {
  JointServices(const runtime::Manager& manager, const runtime::Caches& caches,
                const hosting::Options& options)
      : work(options),
        reconciler(caches, options),
        counts(caches, [&manager] { return manager.leading(); }) {}
  const metrics::Collector* metrics() const override { return &counts; }
  const hosting::JobWork* job_work() const override { return &work; }

  JointWork work;
  JointInferenceReconciler reconciler;
  JointMetrics counts;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<JointServices>(manager, manager.caches(), options);
  manager.add<JointInferenceService>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::joint
