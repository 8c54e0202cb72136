#include "controllers/joint/tier.h"

#include <algorithm>

#include "controllers/joint/joint.h"

namespace varda::controllers::joint {

namespace {

using codec::Json;

// Requests that the first tier may send up at once. Beyond this its own answer is better.
constexpr std::int64_t kInFlightMax = 64;

Tier tier_of(const char* name, const api::Worker& worker) {
  Tier tier;
  tier.name = name;
  tier.model = &worker.model;
  tier.node = worker.node();
  if (tier.node.empty() && worker.selector) tier.selector = &*worker.selector;
  tier.worker = &worker;
  tier.settings = &worker;
  return tier;
}

Json policy_of(const api::HardExampleMining& policy) {
  Json parameters = Json::object();
  for (const api::MiningParameter& parameter : policy.parameters)
    parameters.set(parameter.key, parameter.value);
  return Json::object({{"name", policy.name}, {"parameters", std::move(parameters)}});
}

}  // namespace

std::vector<Tier> tiers_of(const api::JointInferenceService& service) {
  const api::JointInferenceServiceSpec& spec = service.spec;
  std::vector<Tier> tiers;
  if (!spec.has_tiers()) {
    if (spec.edge_worker) {
      tiers.push_back(tier_of("edge", *spec.edge_worker));
      if (spec.edge_worker->hard_example_mining)
        tiers.back().policy = &*spec.edge_worker->hard_example_mining;
    }
    if (spec.cloud_worker) {
      tiers.push_back(tier_of("cloud", *spec.cloud_worker));
      tiers.back().layer = api::JointTier::kCloud;
      tiers.back().deadline = spec.cloud_worker->deadline;
    }
    return tiers;
  }
  for (const api::JointTier& item : spec.tiers) {
    Tier& tier = tiers.emplace_back();
    tier.name = item.name;
    tier.layer = item.layer;
    tier.model = &item.model;
    if (item.policy) tier.policy = &*item.policy;
    tier.node = item.node_name;
    tier.deadline = item.deadline;
    tier.settings = &item;
  }
  return tiers;
}

std::vector<api::ModelReference> served_models(const api::JointInferenceService& service) {
  std::vector<api::ModelReference> references;
  for (const Tier& tier : tiers_of(service)) {
    if (!tier.has_template() && tier.model->kind != api::ModelReference::kInferenceModel)
      references.push_back(*tier.model);
  }
  return references;
}

Json joint_file_of(const api::JointInferenceService& service, const std::vector<Tier>& tiers) {
  Json items = Json::array();
  for (const Tier& tier : tiers) {
    const bool first = items.empty();
    Json item = Json::object({{"name", tier.name}});
    if (tier.policy != nullptr) item.set("policy", policy_of(*tier.policy));
    if (const auto deadline = api::parse_deadline(tier.deadline))
      item.set("deadlineMs", std::int64_t{deadline->count()});
    if (!first) {
      const auto& known = service.status.tiers;
      const auto found = std::find_if(known.begin(), known.end(),
                                      [&](const auto& one) { return one.name == tier.name; });
      item.set("url", found == known.end() ? "" : found->url);
      item.set("model",
               found == known.end() || found->model.empty() ? tier.model->name : found->model);
    }
    items.push_back(std::move(item));
  }
  return Json::object({{"version", 1},
                       {"service", service.metadata.key().str()},
                       {"uid", service.metadata.uid},
                       {"deadlineMs", std::int64_t{service.spec.total_deadline().count()}},
                       {"inFlightMax", kInFlightMax},
                       {"tiers", std::move(items)}});
}

}  // namespace varda::controllers::joint
