// Findings about later tiers: InferenceModels, or the user's own worker in the cloud.

#include <algorithm>

#include "controllers/joint/child.h"
#include "controllers/joint/findings.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::joint {

namespace {

using api::JointTierStatus;

const JointTierStatus* tier_before(const View& view, const std::string& name) {
  for (const JointTierStatus& tier : view.service.status.tiers) {
    if (tier.name == name) return &tier;
  }
  return nullptr;
}

hosting::ServiceAddress address_of_service(const View& view, const std::string& reported_url,
                                           hosting::ServiceState state) {
  return hosting::service_address({view.world.service, view.world.slices, view.world.nodes,
                                   view.options.node_port_host, reported_url},
                                  state);
}

void observe_inference_model(const View& view, const TierPlan& plan, LaterTier& tier) {
  const JointTierStatus* before = tier_before(view, tier.status.name);
  const auto found = view.world.inference_models.find(plan.inference_model);
  const api::InferenceModel* model =
      found == view.world.inference_models.end() ? nullptr : found->second.get();
  if (model != nullptr && plan.owned && !is_child(*model, view.service)) model = nullptr;
  if (model == nullptr) {
    // The InferenceModel will be made, or the cache does not have it yet. The former address holds
    // until then.
    if (before != nullptr) {
      tier.status.url = before->url;
      tier.status.model = before->model;
    }
    tier.verdict = plan.problem ? no(*plan.problem)
                                : no("Pending", "the tier's InferenceModel is being created");
    return;
  }
  tier.status.model = model->spec.model_name;
  tier.status.version = model->status.serving_version;
  tier.status.node = model->status.node.empty() ? model->spec.node_name : model->status.node;
  tier.status.url = model->status.url;
  const bool own_service =
      view.world.service != nullptr && view.world.service->metadata.name == model->metadata.name;
  if (tier.status.url.empty() && plan.owned && !model->spec.on_edge() && own_service &&
      !view.plan.manages_first_tier()) {
    // The address is in the environment of the user's pods: a later address would replace the pods.
    // Our server reads the address from a file instead. It would open its breaker on an address
    // that nothing forwards yet.
    tier.status.url = address_of_service(view, before == nullptr ? "" : before->url,
                                         hosting::ServiceState::kAllocated)
                          .url;
  }
  if (tier.status.url.empty() && before != nullptr &&
      !before->url.empty()) {  // it returns there, or reports a new address
    tier.status.url = before->url;
    tier.status.model = before->model;
  }
  const meta::Condition* ready = meta::find_condition(model->status.conditions, "Ready");
  // A child serves even if it cannot follow the present spec. A problem of the user's
  // InferenceModel means that the first tier cannot ask it.
  const bool usable = !plan.problem || plan.owned;
  tier.status.ready =
      usable && ready != nullptr && ready->status == kTrue && !model->status.url.empty();
  const std::string name = "InferenceModel " + model->metadata.name;
  if (tier.status.ready) {
    tier.verdict = yes(name + " answers at " + model->status.url);
    if (plan.problem)
      tier.verdict.message +=
          " with its previous spec: " + plan.problem->reason + ": " + plan.problem->message;
  } else if (plan.problem) {
    tier.verdict = no(*plan.problem);
  } else if (ready == nullptr) {
    tier.verdict = no("Pending", name + " has no Ready condition yet");
  } else {
    const bool unknown = ready->status == kUnknown;
    tier.verdict = {unknown ? kUnknown : kFalse, ready->reason.empty() ? "NotReady" : ready->reason,
                    name + ": " + ready->message};
  }
}

void observe_cloud_worker(const View& view, const TierPlan& plan, LaterTier& tier) {
  const JointTierStatus* before = tier_before(view, tier.status.name);
  const std::string reported_url = before == nullptr ? "" : before->url;
  const hosting::ServiceAddress known =
      address_of_service(view, reported_url, hosting::ServiceState::kAllocated);
  const hosting::ServiceAddress answering =
      address_of_service(view, reported_url, hosting::ServiceState::kAnswering);
  const std::string& url =
      view.plan.manages_first_tier() ? answering.url : known.url;  // see observe_inference_model()
  tier.status.url = url.empty() ? reported_url : url;
  std::optional<hosting::Problem> problem = plan.problem;
  std::size_t ready = 0, all = 0;
  for (const workers::PodPtr& pod : view.world.pods) {
    const auto label = pod->metadata.labels.find(std::string(workers::kWorkerLabel));
    if (label == pod->metadata.labels.end() || label->second != tier.status.name) continue;
    if (pod->metadata.deleting() || pod->ended()) continue;
    ++all;
    if (pod->ready()) {
      ++ready;
      if (tier.status.node.empty()) tier.status.node = pod->spec.node_name;
    } else if (!problem) {
      problem = hosting::pod_problem(*pod);
    }
  }
  if (all > 1) tier.status.node.clear();
  tier.status.ready = ready > 0 && !answering.url.empty();
  if (plan.problem && plan.problem->reason == workers::kModelNotMounted) {
    tier.verdict = no(*plan.problem);
  } else if (tier.status.ready) {
    tier.verdict = yes(counted(ready, all) + " pods answer, at " + answering.url);
    if (plan.problem)
      tier.verdict.message +=
          " with their previous spec: " + plan.problem->reason + ": " + plan.problem->message;
  } else if (problem) {
    tier.verdict = no(*problem);
  } else if (known.problem) {
    tier.verdict = no(*known.problem);
  } else if (all == 0) {
    tier.verdict = view.service.spec.cloud_worker->replicas == 0
                       ? no("ScaledToZero", "replicas is 0")
                       : no("PodPending", "the pods are being created");
  } else {
    tier.verdict = ready == 0
                       ? no("PodNotReady", counted(ready, all) + " pods answer")
                       : no("ServiceNotReady",
                            counted(ready, all) +
                                " pods answer, but the Service does not forward to them yet");
  }
}

}  // namespace

std::vector<LaterTier> find_further(const View& view) {
  std::vector<LaterTier> out;
  for (std::size_t i = 1; i < view.plan.tiers.size(); ++i) {
    const Tier& spec = view.plan.tiers[i];
    const TierPlan& plan = view.plan.further[i - 1];
    LaterTier& tier = out.emplace_back();
    tier.status.name = spec.name;
    tier.status.layer = spec.layer;
    if (tier.status.layer.empty()) {
      const api::Node* node = hosting::find_node(view.world.nodes, spec.node);
      tier.status.layer = node == nullptr ? "" : hosting::layer_of(*node);
    }
    tier.status.model = spec.model->name;
    if (spec.has_template()) {
      observe_cloud_worker(view, plan, tier);
    } else {
      observe_inference_model(view, plan, tier);
    }
  }
  return out;
}

Verdict cloud_verdict(const std::vector<LaterTier>& tiers) {
  const LaterTier* worst = nullptr;
  for (const LaterTier& tier : tiers) {
    if (tier.verdict.status == kTrue) continue;
    if (worst == nullptr || (worst->verdict.status == kUnknown && tier.verdict.status == kFalse))
      worst = &tier;
  }
  if (worst == nullptr) {
    return tiers.size() == 1 ? tiers.front().verdict
                             : yes("all " + std::to_string(tiers.size()) + " later tiers answer");
  }
  Verdict verdict = worst->verdict;
  if (tiers.size() > 1) verdict.message = worst->status.name + ": " + verdict.message;
  return verdict;
}

}  // namespace varda::controllers::joint
