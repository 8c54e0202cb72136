#include "controllers/joint/child.h"

#include <algorithm>
#include <utility>

#include "codec/json.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "hosting/labels.h"
#include "runtime/last_applied.h"

namespace varda::controllers::joint {

namespace {

using api::InferenceModel;
using api::JointInferenceService;
using codec::Json;

// A Model's name may be longer than the limit for a model name.
constexpr std::size_t kModelNameMax = 63;

struct Place {
  bool edge = false;
  std::string node;
  std::map<std::string, std::string> selector;
};

// The only node of a layer. A child stays on its present node when further nodes join.
std::string one_of_layer(const std::string& layer, const InferenceModel* existing,
                         const hosting::NodeList& nodes, ChildPlan& out) {
  std::vector<std::string> names;
  for (const auto& node : nodes) {
    if (hosting::layer_of(*node) == layer) names.push_back(node->metadata.name);
  }
  std::sort(names.begin(), names.end());
  if (names.size() == 1) return names.front();
  const std::string current = existing == nullptr ? "" : existing->spec.node_name;
  if (!current.empty() && std::binary_search(names.begin(), names.end(), current)) return current;
  if (names.empty()) {
    out.problem =
        hosting::Problem{"NoNodeMatches", "no node has the layer " + layer + ": label one " +
                                              std::string(hosting::kLayerLabel) + "=" + layer +
                                              ", or name it with nodeName"};
  } else {
    out.problem = hosting::Problem{"SeveralNodesMatch", std::to_string(names.size()) +
                                                            " nodes have the layer " + layer +
                                                            ": name one with nodeName"};
  }
  return "";
}

Place place_of(const Tier& tier, const InferenceModel* existing, const JointWorld& world,
               ChildPlan& out) {
  Place place;
  if (!tier.node.empty()) {
    const api::Node* node = hosting::find_node(world.nodes, tier.node);
    if (node == nullptr) {
      out.problem = hosting::Problem{"NodeNotFound", "node " + tier.node + " does not exist"};
      return place;
    }
    place.node = tier.node;
    place.edge = hosting::layer_of(*node) != api::JointTier::kCloud;
  } else if (tier.selector != nullptr) {
    place.selector = tier.selector->match_labels;
    if (!tier.selector->match_expressions.empty())
      out.problem = hosting::Problem{"InvalidSpec",
                                     "spec.cloudWorker.selector.matchExpressions: must be empty; "
                                     "varda-serve in the cloud supports matchLabels only"};
  } else if (tier.layer != api::JointTier::kCloud) {
    place.edge = true;
    place.node = one_of_layer(tier.layer, existing, world.nodes, out);
  }
  return place;
}

Json entry_of(const api::EdgeModelVersion& archive, const std::string& signature) {
  Json entry = Json::object(
      {{"version", archive.version}, {"downloadURL", archive.url}, {"sha256sum", archive.sha256}});
  if (!archive.mirrors.empty()) {
    Json mirrors = Json::array();
    for (const std::string& url : archive.mirrors) mirrors.push_back(url);
    entry.set("mirrors", std::move(mirrors));
  }
  if (!archive.credentials.empty()) {  // NAMESPACE/NAME
    entry.set("credentials",
              Json::object(
                  {{"secretName", archive.credentials.substr(archive.credentials.find('/') + 1)}}));
  }
  if (!signature.empty()) entry.set("signature", signature);
  return entry;
}

Json entry_of(const api::ManifestEntry& from) {
  api::EdgeModelVersion archive;
  archive.version = from.version;
  archive.url = from.download_url;
  archive.sha256 = from.sha256sum;
  archive.mirrors = from.mirrors;
  if (from.credentials) archive.credentials = "/" + from.credentials->secret_name;
  return entry_of(archive, from.signature);
}

// The wanted version. Before it the serving version, or else the last one, for a rollback.
Json manifest_of(const workers::ResolvedModel& model, const InferenceModel* existing) {
  const api::EdgeModelVersion& archive = *model.archive();
  const api::ManifestEntry* before = nullptr;
  if (existing != nullptr) {
    for (const api::ManifestEntry& entry : existing->spec.manifest) {
      if (entry.version == archive.version) continue;
      if (before == nullptr || before->version != existing->status.serving_version) before = &entry;
    }
  }
  Json manifest = Json::array();
  if (before != nullptr) manifest.push_back(entry_of(*before));
  manifest.push_back(entry_of(archive, model.signature));
  return manifest;
}

// True: our server understands the server's answers.
bool has_open_inference(const hosting::ServerEntry& server) {
  return server.status_query == api::EdgeStatusQuery{};
}

std::optional<hosting::Problem> model_problem(const Tier& tier, const workers::ResolvedModel& model,
                                              const hosting::Options& options) {
  const std::string name = "Model " + tier.model->name;
  const auto server = options.servers.find(model.framework);
  if (server == options.servers.end() || !has_open_inference(server->second)) {
    std::string known;
    for (const auto& [framework, entry] : options.servers) {
      if (has_open_inference(entry)) known += (known.empty() ? "" : ", ") + framework;
    }
    return hosting::Problem{
        "ModelUnsupported",
        name + " has the format " + (model.framework.empty() ? "\"\"" : model.framework) +
            ", and the operator has no Open Inference Protocol server for that format (servers: " +
            known + ")"};
  }
  return {};
}

// The name never changes: nodes may still ask for the former name, which the server would not know.
std::string model_name_of(const JointInferenceService& service, const Tier& tier,
                          const workers::ResolvedModel& model, const InferenceModel* existing) {
  if (existing != nullptr && !existing->spec.model_name.empty()) return existing->spec.model_name;
  return model.model_name.size() <= kModelNameMax ? model.model_name : child_name(service, tier);
}

}  // namespace

std::string child_name(const JointInferenceService& service, const Tier& tier) {
  return service.metadata.name + "-" + tier.name;
}

bool is_child(const InferenceModel& model, const JointInferenceService& service) {
  const meta::OwnerReference* owner = model.metadata.controller();
  return owner != nullptr && owner->uid == service.metadata.uid;
}

bool is_left_over(const InferenceModel& model, const JointInferenceService& service) {
  const meta::OwnerReference* owner = model.metadata.controller();
  return owner != nullptr && owner->kind == JointInferenceService::resource().kind &&
         owner->name == service.metadata.name && owner->uid != service.metadata.uid;
}

std::optional<Json> applied_of(const InferenceModel& child) {
  Json applied = runtime::last_applied(child.metadata);
  if (applied.is_null()) return {};
  applied.make("metadata").set("uid", child.metadata.uid);
  return applied;
}

std::optional<hosting::Problem> server_problem(const InferenceModel& model,
                                               const api::EdgeNode* node,
                                               const hosting::Options& options) {
  if (model.spec.from_image()) return {};
  const auto server = options.servers.find(inferencemodel::served_framework(model, node, nullptr));
  if (server == options.servers.end() || has_open_inference(server->second)) return {};
  return hosting::Problem{"ModelUnsupported",
                          "InferenceModel " + model.metadata.name + " is served by " +
                              server->second.image +
                              ", which does not speak the Open Inference Protocol"};
}

ChildPlan plan_child(const JointInferenceService& service, const Tier& tier,
                     const workers::ResolvedModel& model, const InferenceModel* existing,
                     const JointWorld& world, const std::vector<hosting::PortClaim>& siblings,
                     const hosting::Options& options) {
  ChildPlan out;
  if ((out.problem = model_problem(tier, model, options))) return out;
  const Place place = place_of(tier, existing, world, out);
  if (out.problem) return out;

  const std::string model_name = model_name_of(service, tier, model, existing);
  if (world.keys != nullptr && model_name != model.model_name) {
    out.problem = hosting::Problem{
        "SignatureRefused", "Model " + model.name + " is signed under its own name, and the tier " +
                                "serves as " + model_name + ": give Model " + model_name +
                                " the new version, or create the service again"};
    return out;
  }
  Json spec = Json::object({{"modelName", model_name},
                            {"deployToLayer", place.edge ? "edge" : "cloud"},
                            {"frameworkType", model.framework},
                            {"manifest", manifest_of(model, existing)},
                            {"targetVersion", model.archive()->version}});
  if (!place.node.empty()) spec.set("nodeName", place.node);
  if (!place.selector.empty()) {
    Json labels = Json::object();
    for (const auto& [key, value] : place.selector) labels.set(key, value);
    spec.set("nodeSelector", std::move(labels));
  }
  if (place.edge) {
    const bool same =
        existing != nullptr && existing->spec.on_edge() && existing->spec.node_name == place.node;
    hosting::PortClaim claim{.node = place.node,
                             .port = same ? existing->spec.port() : 0,
                             .owner = "JointInferenceService " + service.metadata.key().str(),
                             .uid = service.metadata.uid,
                             .since = service.metadata.creation_timestamp,
                             .held = same && !existing->status.url.empty()};
    std::vector<hosting::PortClaim> others = world.claims;
    for (hosting::PortClaim sibling : siblings) {
      sibling.uid += "/";  // the same service, but another pod, which chose first
      sibling.held = true;
      sibling.since.clear();
      others.push_back(std::move(sibling));
    }
    const std::int64_t port = hosting::choose_port(claim, others, kJointPortMin, kJointPortMax);
    if (port == 0) {
      out.problem = hosting::Problem{"PortInUse", "no port from " + std::to_string(kJointPortMin) +
                                                      " to " + std::to_string(kJointPortMax) +
                                                      " is free on node " + place.node};
      return out;
    }
    spec.set("servingPort", port);
    claim.held = claim.held && port == claim.port;
    claim.port = port;
    out.claim = std::move(claim);
  } else if (tier.worker != nullptr) {
    const api::JointCloudWorker& cloud = *service.spec.cloud_worker;
    if (cloud.port != 0) spec.set("servingPort", cloud.port);
    spec.set("replicas", tier.worker->replicas.value_or(1));
    spec.set("service", Json::object({{"type", std::string(cloud.service_type())}}));
  }
  if (Json security = service.spec.security.to_json(); !security.is_null())
    spec.set("security", std::move(security));
  for (const auto& [name, value] : tier.settings->settings_to_json().as_object())
    spec.set(name, value);
  Json labels =
      Json::object({{std::string(hosting::kManagedByLabel), "varda"},
                    {std::string(workers::kJobKindLabel), JointInferenceService::resource().kind},
                    {std::string(workers::kJobLabel), service.metadata.name},
                    {std::string(workers::kWorkerLabel), tier.name}});
  out.object = Json::object({{"apiVersion", InferenceModel::resource().api_version()},
                             {"kind", InferenceModel::resource().kind},
                             {"metadata", Json::object({{"name", child_name(service, tier)},
                                                        {"labels", std::move(labels)}})},
                             {"spec", std::move(spec)}});
  return out;
}

}  // namespace varda::controllers::joint
