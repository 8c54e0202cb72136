#include "controllers/inferencemodel/reconciler.h"

#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "controllers/inferencemodel/indexes.h"
#include "hosting/agent_change.h"
#include "hosting/certificate.h"
#include "hosting/certificate_issuer.h"
#include "hosting/chosen_model.h"
#include "hosting/conditions.h"
#include "hosting/labels.h"
#include "hosting/service_address.h"

namespace varda::controllers::inferencemodel {

namespace {

using api::InferenceModel;
using meta::ObjectKey;
using Keys = std::vector<ObjectKey>;

// A cluster's policy may later accept the refused objects, and no watch reports that.
constexpr Duration kRefusedAgain = std::chrono::minutes(2);
// A worker waits for answers to its writes most of the time.
constexpr std::size_t kModelsAtOnce = 4;
// A job may release its port later.
constexpr Duration kPortAgain = std::chrono::seconds(10);

// Models of the edge layer that name the node, are on it, or select its labels.
Keys keys_near(const std::string& node, const hosting::Labels& labels,
               const runtime::Caches& caches) {
  Keys keys;
  for (const auto& model : models_near(node, labels, caches)) keys.push_back(model->metadata.key());
  return keys;
}

// status.url of a NodePort model uses a Ready node's address. Models with this node's address are
// requeued, and if the node forwards node ports, models without an address.
Keys of_node(const api::Node& node, const runtime::Caches& caches) {
  Keys keys = keys_near(node.metadata.name, node.metadata.labels, caches);
  for (const std::string& address : hosting::index_by_forwarding(node)) {
    for (const auto& model : caches.of<InferenceModel>().by_index(kByAddress, address))
      keys.push_back(model->metadata.key());
  }
  return keys;
}

// A report affects the models that it is about. Other facts affect all models of the node.
Keys of_edge_node(const api::EdgeNode* before, const api::EdgeNode* now,
                  const runtime::Caches& caches) {
  const std::string& name = (now != nullptr ? now : before)->metadata.name;
  if (before != nullptr && now != nullptr) {
    const hosting::AgentChange change = hosting::change_of(*before, *now);
    if (!change.of_node) {
      const auto models = caches.of<InferenceModel>();
      Keys keys;
      for (const std::string& key : change.reports) {
        const std::size_t slash = key.find('/');
        if (slash == std::string::npos) continue;
        ObjectKey model{key.substr(0, slash), key.substr(slash + 1)};
        if (models.get(model) != nullptr) keys.push_back(std::move(model));
      }
      return keys;
    }
  }
  return keys_near(name, hosting::labels_of(name, caches), caches);
}

// Two models may want one port of one node: when the first moves away, the second is requeued.
Keys rivals(const InferenceModel& changed, const runtime::Caches& caches) {
  if (!changed.spec.on_edge()) return {};
  const std::int64_t port = changed.spec.port();
  const std::string& node = changed.spec.node_name;
  // A model with a nodeSelector may be on any node. Models that name a node compete on that node.
  const std::vector<std::string> places =
      node.empty() ? std::vector<std::string>{at_port(port)}
                   : std::vector<std::string>{at_port(port, node), at_port(port, "")};
  Keys keys;
  for (const std::string& place : places) {
    for (const auto& model : caches.of<InferenceModel>().by_index(kByPort, place)) {
      if (model->metadata.key() != changed.metadata.key()) keys.push_back(model->metadata.key());
    }
  }
  return keys;
}

// Versions and conditions in a status do not affect rivals. Otherwise one report would requeue all
// of thousands of models on one port.
bool same_port_claim(const InferenceModel& before, const InferenceModel& now) {
  return before.metadata.uid == now.metadata.uid &&
         before.metadata.generation == now.metadata.generation &&
         before.metadata.deleting() == now.metadata.deleting() &&
         before.status.node == now.status.node &&
         hosting::awaits_choice(before) == hosting::awaits_choice(now);
}

// Pods of our Deployments carry the model's name in a label; their owner is the ReplicaSet or the
// Deployment.
Keys of_pod(const api::Pod& pod) {
  const auto label = pod.metadata.labels.find(std::string(hosting::kModelLabel));
  if (label == pod.metadata.labels.end()) return {};
  return {{pod.metadata.ns, label->second}};
}

Keys of_slice(const api::EndpointSlice& slice, const runtime::Caches& caches) {
  const ObjectKey key{slice.metadata.ns, slice.service_name()};
  if (caches.of<InferenceModel>().get(key) == nullptr) return {};
  return {key};
}

// Writes Events for transitions that matter to people. A status that stays the same causes none.
void record_events(const InferenceModel& model, const api::InferenceModelStatus& now,
                   hosting::PassingProblems& passing, SteadyTime time, runtime::Writer& writer) {
  const api::InferenceModelStatus& before = model.status;
  std::string recorded;
  for (const meta::Condition& condition : now.conditions) {
    if (condition.status == "True" || hosting::is_progress(condition.reason)) {
      passing.clear(model.metadata.key(), condition.type);
      continue;
    }
    if (!passing.due(model.metadata.key(), meta::find_condition(before.conditions, condition.type),
                     condition, time))
      continue;
    const std::string event = condition.reason + condition.message;
    if (event == recorded) continue;  // both conditions have one cause
    recorded = event;
    writer.event(model, runtime::EventType::kWarning, condition.reason, condition.message);
  }
  const meta::Condition* ready = meta::find_condition(now.conditions, "Ready");
  const meta::Condition* was = meta::find_condition(before.conditions, "Ready");
  const bool is_ready = ready != nullptr && ready->status == "True";
  const bool was_ready = was != nullptr && was->status == "True";
  if (is_ready && (!was_ready || before.serving_version != now.serving_version)) {
    writer.event(model, runtime::EventType::kNormal, "Serving", ready->message);
  }
}

}  // namespace

InferenceModelReconciler::InferenceModelReconciler(const runtime::Caches& caches,
                                                   hosting::Options options,
                                                   std::vector<const hosting::JobWork*> jobs)
    : caches_(caches),
      options_(std::move(options)),
      clock_(hosting::clock_of(options_)),
      jobs_(std::move(jobs)) {}

void InferenceModelReconciler::watches(runtime::Watches<InferenceModel>& w) const {
  w.owns<api::Pod>(runtime::Update::kRecreate).owns<api::Deployment>().owns<api::Service>();
  w.maps<api::Pod>(of_pod).maps<api::EndpointSlice>(of_slice);
  w.maps<api::Node>(of_node, hosting::same_to_pods).changes<api::EdgeNode>(of_edge_node);
  w.maps<InferenceModel>(rivals, same_port_claim);
  const auto referring = [](const auto& model, const runtime::Caches& caches) {
    return models_referring_to(model.metadata.key(), caches);
  };
  w.maps<api::Model>(referring).maps<api::SednaModel>(referring);
  w.indexes<InferenceModel>(kByModelRef, index_by_model_ref);
  add_indexes(w);
  w.workers(kModelsAtOnce);
  w.indexes<InferenceModel>(kByNode, index_by_node).indexes<InferenceModel>(kByPort, index_by_port);
  w.indexes<InferenceModel>(kByAddress, index_by_address)
      .indexes<api::Pod>(kByModel, index_by_model);
  w.indexes<api::EndpointSlice>(std::string(hosting::kSlicesByService), hosting::slices_by_service);
}

namespace {

// The Models that modelRef may choose.
hosting::AnyModels referred_by(const InferenceModel& model, const runtime::Caches& caches) {
  const api::ModelRef& ref = *model.spec.model_ref;
  const std::string& ns = model.metadata.ns;
  if (!ref.selector) return hosting::named_models({ns, ref.name}, caches);
  hosting::AnyModels out;
  const auto add = [&](const auto& models) {
    for (const auto& one : models) {
      if (!one->metadata.deleting()) out.push_back(hosting::any_model(one));
    }
  };
  add(caches.of<api::Model>().list(ns));
  add(caches.of<api::SednaModel>().list(ns));
  return out;
}

}  // namespace

World InferenceModelReconciler::look(const InferenceModel& model) const {
  World world;
  const meta::ObjectKey key = model.metadata.key();
  world.keys = hosting::keys_of(options_);
  hosting::NodeSet nodes(caches_);
  nodes.add_for(model);
  world.nodes = nodes.list();
  world.pods = caches_.of<api::Pod>().by_index(kByModel, key.str());
  if (model.spec.model_ref) world.referred = referred_by(model, caches_);
  if (model.spec.on_edge()) {
    if (const hosting::Placement placement = hosting::place(model, world.nodes);
        !placement.node.empty()) {
      world.edge_node = caches_.of<api::EdgeNode>().get({"", placement.node});
      const hosting::Labels labels = hosting::labels_of(placement.node, caches_);
      for (auto& other : models_near(placement.node, labels, caches_)) {
        if (other->metadata.key() == key || other->spec.port() != model.spec.port()) continue;
        nodes.add_for(*other);
        world.models.push_back(std::move(other));
      }
      world.nodes = nodes.list();
      for (const hosting::JobWork* job : jobs_) {
        for (hosting::PortClaim& claim : job->claims_on(placement.node, caches_))
          world.claims.push_back(std::move(claim));
      }
    }
  } else {
    // In a cluster any Ready node may give the address of a node port.
    if (model.spec.service.type == "NodePort" && options_.node_port_host.empty()) {
      nodes.add_forwarding(model.status.url);
      world.nodes = nodes.list();
    }
    world.service = caches_.of<api::Service>().get(key);
    world.slices = caches_.of<api::EndpointSlice>().by_index(hosting::kSlicesByService, key.str());
    world.deployment = caches_.of<api::Deployment>().get(key);
  }
  return world;
}

Result<runtime::Action> InferenceModelReconciler::on_deleted(const Context& /*ctx*/,
                                                             const ObjectKey& key,
                                                             runtime::Writer& /*writer*/) {
  if (options_.certificates != nullptr)
    options_.certificates->forget({key.ns, api::issued_secret(key.name)});
  const MutexLock lock(mutex_);
  pauses_.forget(key);
  passing_.forget(key);
  return runtime::Action::await_change();
}

Result<runtime::Action> InferenceModelReconciler::replace_ended_pod(const Context& ctx,
                                                                    const InferenceModel& model,
                                                                    const World& world,
                                                                    runtime::Writer& writer) {
  const api::Pod* pod = edge_pod(model, world.pods);
  if (pod == nullptr) return runtime::Action::await_change();
  const auto made = meta::parse_time(pod->metadata.creation_timestamp);
  const Duration lived =
      made.ok() ? std::chrono::duration_cast<Duration>(clock_.wall() - *made) : Duration{};
  Duration left{};
  {
    const MutexLock lock(mutex_);
    left = pauses_.left(model.metadata.key(), pod->metadata.uid, lived, clock_.now());
  }
  if (left > Duration{}) return runtime::Action::after(left);
  TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*pod)));
  return runtime::Action::await_change();  // its end causes a reconcile, which makes the next pod
}

Result<runtime::Action> InferenceModelReconciler::reconcile(const Context& ctx,
                                                            const InferenceModel& model,
                                                            runtime::Writer& writer) {
  if (model.metadata.deleting()) return runtime::Action::await_change();
  World world = look(model);
  std::optional<Duration> certificate_in;
  if (model.spec.security.tls && model.spec.https() && options_.certificates != nullptr) {
    TRY(hosting::CertificateIssuer::Outcome issued,
        options_.certificates->ensure(
            ctx, hosting::wanted_certificate(runtime::ObjectRef::of(model),
                                             api::issued_secret(model.metadata.name),
                                             certificate_hosts(model, world, options_))));
    world.certificate = std::move(issued.problem);
    certificate_in = issued.recheck_in;
  }
  Plan wanted = plan(model, world, options_);
  Status converged;
  if (wanted.children == Plan::Children::kConverge)
    converged = writer.converge(ctx, model, wanted.objects);
  if (!converged.ok() &&
      (converged.error().code() == Code::kInvalid || converged.error().code() == Code::kForbidden))
    wanted.refused = hosting::Problem{"Refused", converged.error().message()};
  // A failed write must not hide the rest of the status.
  const api::InferenceModelStatus status =
      observe(model, wanted, world, options_, meta::format_time(clock_.wall()));
  std::optional<Duration> report_in;
  {
    const MutexLock lock(mutex_);
    record_events(model, status, passing_, clock_.now(), writer);
    report_in = passing_.wait(model.metadata.key(), clock_.now());
  }
  TRY_VOID(writer.status(ctx, model, status.to_json()));
  if (!converged.ok() && converged.error().terminal() && wanted.refused) {
    log::warn("API server rejected objects", {{"error", converged.error()}});
    return runtime::Action::after(kRefusedAgain);
  }
  TRY_VOID(std::move(converged));
  if (!wanted.ended_pod.empty()) return replace_ended_pod(ctx, model, world, writer);
  if (certificate_in) report_in = std::min(report_in.value_or(*certificate_in), *certificate_in);
  if (wanted.waits_for_job) report_in = std::min(report_in.value_or(kPortAgain), kPortAgain);
  if (world.keys != nullptr)
    report_in = std::min(report_in.value_or(hosting::kKeysAgain), hosting::kKeysAgain);
  return report_in ? runtime::Action::after(*report_in) : runtime::Action::await_change();
}

namespace {

struct InferenceModels final : hosting::KindControllers {
  InferenceModels(const runtime::Caches& caches, const hosting::Options& options,
                  std::vector<const hosting::JobWork*> jobs)
      : reconciler(caches, options, std::move(jobs)) {}

  InferenceModelReconciler reconciler;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options,
                                              std::vector<const hosting::JobWork*> jobs) {
  auto out = std::make_unique<InferenceModels>(manager.caches(), options, std::move(jobs));
  manager.add<InferenceModel>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::inferencemodel
