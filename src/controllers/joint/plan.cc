#include "controllers/joint/plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/joint/child.h"
#include "hosting/pod_problem.h"
#include "hosting/pod_settings.h"
#include "net/url.h"
#include "runtime/writer.h"

namespace varda::controllers::joint {

namespace {

using api::JointInferenceService;
using codec::Json;

std::string owner_of(const JointInferenceService& service) {
  return "JointInferenceService " + service.metadata.key().str();
}

template <typename T>
std::shared_ptr<const T> named(const std::map<std::string, std::shared_ptr<const T>>& objects,
                               const std::string& name) {
  const auto found = objects.find(name);
  return found == objects.end() ? nullptr : found->second;
}

// A reference never resolves to a child: a service cannot depend on an object that it makes.
workers::ModelWorld models_of(const std::string& name, const JointInferenceService& service,
                              const JointWorld& world) {
  workers::ModelWorld out{{}, named(world.inference_models, name), world.keys};
  if (const auto models = world.models.find(name); models != world.models.end())
    out.models = models->second;
  if (out.inference_model != nullptr && is_child(*out.inference_model, service))
    out.inference_model = nullptr;
  if (out.inference_model != nullptr && out.inference_model->metadata.deleting())
    out.inference_model = nullptr;
  std::erase_if(out.models,
                [](const hosting::AnyModel& model) { return model.metadata->deleting(); });
  return out;
}

// Problems that an API server without our rules accepts (old clusters have no CEL).
std::optional<hosting::Problem> spec_problem(const JointInferenceService& service,
                                             const std::vector<Tier>& tiers) {
  JointInferenceService checked;  // without the status, which is large and not checked
  checked.metadata.name = service.metadata.name;
  checked.metadata.ns = service.metadata.ns;
  checked.spec = service.spec;
  if (const auto causes =
          api::validate_rules(*JointInferenceService::kind().schema, checked.to_json());
      !causes.empty())
    return hosting::Problem{"InvalidSpec", causes.front().field + ": " + causes.front().message};
  if (tiers.size() < 2)
    return hosting::Problem{"InvalidSpec",
                            "spec: must have edgeWorker and cloudWorker, or at least two tiers"};
  for (const Tier& tier : tiers) {
    if (!service.spec.security.closed() || !tier.has_template()) continue;
    return hosting::Problem{"SecurityUnsupported",
                            "spec.security works with varda-serve only, and tier " + tier.name +
                                " has a pod template: remove the template, or "
                                "protect every tier with its server's own settings"};
  }
  return {};
}

// The status's URL of a tier, for workers that ask the tier themselves.
std::string reported_url(const JointInferenceService& service, const Tier& tier) {
  for (const api::JointTierStatus& one : service.status.tiers) {
    if (one.name == tier.name) return one.url;
  }
  return "";
}

// ---- the first tier

/// Nodes where the first tier may be. A layer means its nodes with an agent; other nodes do not
/// count. A node with a pod of the service stays in. If its EdgeNode was deleted, the agent makes
/// it again, and serving must not end for that.
hosting::NodeList first_nodes(const Tier& tier, const JointWorld& world) {
  if (!tier.node.empty() || tier.selector != nullptr) return world.nodes;
  hosting::NodeList nodes;
  for (const auto& node : world.nodes) {
    const std::string& name = node->metadata.name;
    const bool serves =
        std::any_of(world.pods.begin(), world.pods.end(),
                    [&](const workers::PodPtr& pod) { return pod->spec.node_name == name; });
    if (serves || world.edge_node(name) != nullptr) nodes.push_back(node);
  }
  return nodes;
}

/// One port for all nodes. The present port stays unless an owner with precedence has it on one of
/// them. Otherwise it is the first port that no other owner wants on any of them; 0: none is free.
std::int64_t port_of(const JointInferenceService& service, const workers::Worker& worker,
                     const hosting::NodeList& list, const JointWorld& world) {
  if (service.spec.serving_port != 0) return service.spec.serving_port;
  const std::int64_t current = known_port(service, worker, world.pods);
  const workers::WorkerNodes nodes = nodes_of(worker, list);
  std::set<std::int64_t> taken;
  bool lost = false;
  for (const hosting::PortClaim& claim : world.claims) {
    if (claim.uid == service.metadata.uid ||
        !std::binary_search(nodes.names.begin(), nodes.names.end(), claim.node))
      continue;
    taken.insert(claim.port);
    if (lost || claim.port != current) continue;
    const hosting::PortClaim own_claim{
        .node = claim.node,
        .port = current,
        .owner = owner_of(service),
        .uid = service.metadata.uid,
        .since = service.metadata.creation_timestamp,
        .held =
            workers::holds_port(job_of(service), worker, world.pods, claim.node, {current, "TCP"})};
    lost = port_holder(own_claim, {claim}) != nullptr;
  }
  if (current != 0 && !lost) return current;
  for (std::int64_t port = kJointPortMin; port <= kJointPortMax; ++port) {
    if (!taken.contains(port)) return port;
  }
  return 0;
}

/// The InferenceModel that our server alone would have. So both kinds share one definition of the
/// pod.
api::InferenceModel as_served(const JointInferenceService& service, const Tier& tier,
                              std::int64_t port) {
  api::InferenceModel model;
  static_cast<api::PodSettings&>(model.spec) = *tier.settings;
  model.metadata.name = service.metadata.name;
  model.spec.model_name = service.model_name();
  model.spec.deploy_to_layer = "edge";
  model.spec.framework_type = "onnx";
  model.spec.serving_port = port;
  model.spec.security = service.spec.security;
  model.spec.samples = service.spec.samples;
  return model;
}

workers::Worker first_worker(const JointInferenceService& service, const std::vector<Tier>& tiers,
                             const JointWorld& world, const hosting::Options& options,
                             std::optional<hosting::Problem>& problem) {
  const Tier& tier = tiers.front();
  workers::Worker worker = placed_worker(tier);
  if (tier.has_template()) {
    if (tier.policy != nullptr) worker.hard_example_mining = *tier.policy;
    if (service.spec.edge_worker) worker.uploads = service.spec.edge_worker->uploads;
    worker.cloud_url = reported_url(service, tiers[1]);
  } else {
    worker.serving_port = port_of(service, worker, first_nodes(tier, world), world);
    const api::InferenceModel model = as_served(service, tier, worker.serving_port);
    worker.server_spec = [model, network = options.edge_network,
                          server = hosting::varda_serve(options.serve_image)](
                             const std::string& directory, const std::string& samples) {
      api::Pod pod;
      pod.spec = inferencemodel::edge_server(model, &server, network, {directory, samples});
      std::vector<std::string>& args = pod.spec.containers.front().args;
      for (std::string& argument : inferencemodel::tier_arguments(model.spec.security))
        args.push_back(std::move(argument));
      return pod.to_json()["spec"];
    };
    worker.request =
        Json::object({{"port", worker.serving_port}, {"modelName", service.model_name()}});
    if (Json security = inferencemodel::requested_security(model); !security.is_null())
      worker.request.set("security", std::move(security));
    for (const auto& [name, value] : hosting::requested_settings(model.spec).as_object())
      worker.request.set(name, value);
    if (service.spec.samples) {
      worker.request.set("samples", true);
      worker.samples = api::samples_file(*service.spec.samples, tier.policy);
    }
    worker.joint = joint_file_of(service, tiers);
  }
  workers::ModelResolution model = workers::resolve_model(
      *tier.model, models_of(tier.model->name, service, world),
      tier.has_template() ? workers::ModelUse::kUsersWorker : workers::ModelUse::kServer);
  worker.model = std::move(model.model);
  // Clients know one model name, whichever tier answers. The directory and the agent's requests use
  // it.
  if (worker.model && !tier.has_template()) worker.model->model_name = service.model_name();
  problem = std::move(model.problem);
  return worker;
}

void plan_first(const JointInferenceService& service, const JointWorld& world,
                const hosting::Options& options, JointPlan& plan) {
  std::optional<hosting::Problem> model_problem;
  const workers::Worker worker = first_worker(service, plan.tiers, world, options, model_problem);
  plan.port = worker.serving_port;
  const hosting::NodeList nodes = first_nodes(plan.tiers.front(), world);
  workers::WorkerWorld around{.nodes = nodes,
                              .edge_node = world.edge_node,
                              .pods = world.pods,
                              .deployment = nullptr,
                              .claims = world.claims,
                              .fetch_image = options.fetch_image,
                              .fetch_arguments = options.fetch_arguments};
  if (worker.pods == workers::Worker::Pods::kServer && worker.serving_port == 0) {
    plan.first_problem =
        hosting::Problem{"PortInUse", "no port from " + std::to_string(kJointPortMin) + " to " +
                                          std::to_string(kJointPortMax) +
                                          " is free on all of its nodes: set servingPort"};
    return;
  }
  plan.first = workers::plan_worker(job_of(service), worker, around);
  const bool of_a_pod = std::any_of(plan.first.pods.begin(), plan.first.pods.end(),
                                    [&](const workers::WorkerPod& pod) {
                                      return pod.problem && pod.problem == plan.first.problem;
                                    });
  if (model_problem) {
    plan.first_problem = std::move(model_problem);
  } else if (!of_a_pod) {
    plan.first_problem = plan.first.problem;
  }
  if (!plan.first_problem) plan.first_problem = workers::unmounted_model(worker, around);
  plan.claims = workers::claims_of(job_of(service), worker, nodes, world.pods);
}

// ---- further tiers

void plan_cloud_worker(const JointInferenceService& service, const Tier& tier,
                       const JointWorld& world, const hosting::Options& options, JointPlan& plan,
                       TierPlan& out) {
  workers::Worker worker =
      workers::worker_of(tier.name, workers::Worker::Layer::kCloud, *tier.worker);
  worker.service_port = service.spec.cloud_worker->service_port();
  worker.service_type = service.spec.cloud_worker->service_type();
  workers::ModelResolution model = workers::resolve_model(
      *tier.model, models_of(tier.model->name, service, world), workers::ModelUse::kUsersWorker);
  worker.model = std::move(model.model);
  workers::WorkerWorld around{.nodes = world.nodes,
                              .edge_node = world.edge_node,
                              .pods = world.pods,
                              .deployment = world.deployment,
                              .claims = {},
                              .fetch_image = options.fetch_image,
                              .fetch_arguments = options.fetch_arguments};
  const bool wants_autoscaler = tier.worker->hpa.has_value();
  if (wants_autoscaler && world.autoscalers_served) worker.autoscaling = *tier.worker->hpa;
  plan.cloud = workers::plan_worker(job_of(service), worker, around);
  if (worker.autoscaling) plan.objects.push_back(workers::make_autoscaler(job_of(service), worker));
  plan.autoscaled = plan.autoscaled || wants_autoscaler;
  if (wants_autoscaler && !world.autoscalers_served) {
    plan.autoscaling =
        hosting::Problem{"AutoscalingUnavailable",
                         "the API server has no autoscaling/v2: the cloud worker keeps its " +
                             std::to_string(worker.replicas) + " replicas"};
  }
  out.problem = model.problem ? std::move(model.problem) : plan.cloud->problem;
  if (!out.problem) out.problem = workers::unmounted_model(worker, around);
  for (Json& object : plan.cloud->objects) plan.objects.push_back(std::move(object));
}

void plan_inference_model(const JointInferenceService& service, const Tier& tier,
                          const JointWorld& world, const hosting::Options& options, JointPlan& plan,
                          TierPlan& out) {
  const workers::ModelWorld around = models_of(tier.model->name, service, world);
  const bool another =
      tier.model->kind == api::ModelReference::kInferenceModel ||
      (tier.model->kind.empty() && tier.model->group.empty() && around.models.empty());
  if (another && around.inference_model != nullptr) {  // its source does not matter
    const api::InferenceModel& model = *around.inference_model;
    const workers::EdgeNodePtr node =
        world.edge_node(model.status.node.empty() ? model.spec.node_name : model.status.node);
    out.inference_model = tier.model->name;
    out.problem = server_problem(model, node.get(), options);
    return;
  }
  workers::ModelResolution found =
      workers::resolve_model(*tier.model, around, workers::ModelUse::kAnyServer);
  const auto found_model = named(world.inference_models, child_name(service, tier));
  const api::InferenceModel* existing =
      found_model != nullptr && is_child(*found_model, service) ? found_model.get() : nullptr;
  // The reference names no kind, and there is a child: it was made of a Model that is missing now.
  const bool away =
      another && tier.model->kind.empty() && existing != nullptr && !existing->metadata.deleting();
  if (another && !away) {
    out.problem = std::move(found.problem);
    return;
  }
  out.inference_model = child_name(service, tier);
  out.owned = existing != nullptr;
  if (found_model != nullptr && existing == nullptr && !is_left_over(*found_model, service)) {
    out.problem =
        hosting::Problem{"NameInUse", "InferenceModel " + found_model->metadata.key().str() +
                                          " does not belong to this service but has the name that "
                                          "this tier needs: rename one of them"};
    out.inference_model.clear();
    return;
  }
  ChildPlan child;
  if (found.problem) {
    child.problem = std::move(found.problem);
  } else {
    child = plan_child(service, tier, *found.model, existing, world, plan.claims, options);
  }
  out.problem = std::move(child.problem);
  if (child.claim) plan.claims.push_back(std::move(*child.claim));
  if (child.object) {
    plan.objects.push_back(std::move(*child.object));
  } else if (existing != nullptr) {
    // The present child stays.
    if (auto candidate = applied_of(*existing)) plan.objects.push_back(std::move(*candidate));
  }
}

bool answers(const JointInferenceService& service, const TierPlan& tier, const JointWorld& world) {
  if (tier.problem || tier.inference_model.empty()) return false;
  const auto model = named(world.inference_models, tier.inference_model);
  return model != nullptr && !model->status.url.empty() &&
         (!tier.owned || is_child(*model, service));
}

// True: the work list of some node (joint.json) still has such a tier to ask.
template <typename Which>
bool is_assigned(const JointInferenceService& service, const JointPlan& plan,
                 const JointWorld& world, Which which) {
  const std::string key = service.metadata.key().str() + "." + plan.tiers.front().name;
  return std::any_of(
      plan.first.pods.begin(), plan.first.pods.end(), [&](const workers::WorkerPod& pod) {
        const workers::EdgeNodePtr agent = world.edge_node(pod.node);
        const api::EdgeModel* reported = agent == nullptr ? nullptr : agent->spec.find_model(key);
        if (reported == nullptr) return false;
        const auto& tiers = reported->joint["tiers"].as_array();
        return std::any_of(tiers.begin(), tiers.end(), [&](const Json& tier) {
          return !tier["url"].as_string().empty() && which(tier);
        });
      });
}

// Keeps an unwanted child until every tier answers without it, and no work list asks it.
void keep_replaced(const JointInferenceService& service, const JointWorld& world, JointPlan& plan) {
  // The user's Deployment has the same name as such a child's, so the child must end first.
  if (plan.cloud) return;
  const bool all_answer =
      std::all_of(plan.further.begin(), plan.further.end(),
                  [&](const TierPlan& tier) { return answers(service, tier, world); });
  for (const auto& child : world.children) {
    const bool wanted = std::any_of(
        plan.further.begin(), plan.further.end(),
        [&](const TierPlan& tier) { return tier.inference_model == child->metadata.name; });
    if (wanted || child->metadata.deleting()) continue;
    const std::string& url = child->status.url;
    if (url.empty()) {
      // The child never answered, or restarts now. If it restarts, work lists have its former URL,
      // which no other model has.
      const auto label = child->metadata.labels.find(std::string(workers::kWorkerLabel));
      const std::string tier = label == child->metadata.labels.end() ? "" : label->second;
      const auto where_it_was = [&](const Json& one) {
        return one["name"].as_string() == tier &&
               std::none_of(plan.further.begin(), plan.further.end(), [&](const TierPlan& further) {
                 const auto model = world.inference_models.find(further.inference_model);
                 return model != world.inference_models.end() &&
                        model->second->status.url == one["url"].as_string();
               });
      };
      if (!is_assigned(service, plan, world, where_it_was)) continue;
    } else if (all_answer && !is_assigned(service, plan, world, [&](const Json& one) {
                 return one["url"].as_string() == url;
               })) {
      continue;
    }
    if (auto candidate = applied_of(*child)) plan.objects.push_back(std::move(*candidate));
  }
}

}  // namespace

workers::Job job_of(const JointInferenceService& service) {
  return {JointInferenceService::resource().kind, service.metadata};
}

workers::Worker placed_worker(const Tier& tier) {
  if (tier.has_template())
    return workers::worker_of(tier.name, workers::Worker::Layer::kEdge, *tier.worker);
  workers::Worker worker;
  worker.name = tier.name;
  worker.layer = workers::Worker::Layer::kEdge;
  worker.pods = workers::Worker::Pods::kServer;
  worker.node_name = tier.node;
  if (tier.selector != nullptr) {
    worker.selector = *tier.selector;
  } else if (tier.node.empty()) {
    worker.selector.emplace();
    worker.node_layer = tier.layer;
  }
  if (tier.worker != nullptr) workers::set_replicas(worker, tier.worker->replicas);
  return worker;
}

std::size_t nodes_max(const Tier& tier) {
  workers::Worker worker;
  if (tier.selector != nullptr) worker.selector = *tier.selector;
  if (tier.worker != nullptr) workers::set_replicas(worker, tier.worker->replicas);
  return workers::nodes_max(worker);
}

std::int64_t known_port(const JointInferenceService& service, const workers::Worker& worker,
                        const std::vector<workers::PodPtr>& pods) {
  for (const workers::PodPtr& pod : pods) {
    if (!workers::is_worker_pod(job_of(service), worker, *pod) || pod->metadata.deleting())
      continue;
    for (const api::Container& container : pod->spec.containers) {
      if (container.name == "server" && !container.ports.empty())
        return container.ports.front().container_port;
    }
  }
  for (const api::JointEndpoint& endpoint : service.status.endpoints) {
    const auto url = net::Url::parse(endpoint.url);
    if (url.ok() && url->port >= kJointPortMin && url->port <= kJointPortMax) return url->port;
  }
  return 0;
}

std::vector<std::string> named_nodes(const std::vector<Tier>& tiers) {
  std::vector<std::string> names;
  for (const Tier& tier : tiers) {
    if (!tier.node.empty()) names.push_back(tier.node);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool has_node_port(const JointInferenceService& service, const Tier& tier) {
  return tier.has_template() && service.spec.cloud_worker &&
         tier.worker == &*service.spec.cloud_worker &&
         service.spec.cloud_worker->service_type() == "NodePort";
}

JointPlan plan(const JointInferenceService& service, const JointWorld& world,
               const hosting::Options& options) {
  JointPlan plan;
  plan.tiers = tiers_of(service);
  if (service.metadata.deleting()) {  // the garbage collector deletes the children
    plan.children = JointPlan::Children::kLeave;
    return plan;
  }
  if (auto problem = spec_problem(service, plan.tiers)) {
    plan.problem = std::move(problem);
    plan.children = JointPlan::Children::kLeave;
    return plan;
  }
  plan_first(service, world, options, plan);
  for (const Json& object : plan.first.objects) plan.objects.push_back(object);
  for (std::size_t i = 1; i < plan.tiers.size(); ++i) {
    TierPlan& tier = plan.further.emplace_back();
    if (plan.tiers[i].has_template()) {
      plan_cloud_worker(service, plan.tiers[i], world, options, plan, tier);
    } else {
      plan_inference_model(service, plan.tiers[i], world, options, plan, tier);
    }
  }
  if (plan.tiers.front().worker != nullptr && plan.tiers.front().worker->hpa) {
    plan.autoscaled = true;
    if (!plan.autoscaling) {
      plan.autoscaling = hosting::Problem{
          "NotAutoscaled",
          "hpa of edgeWorker has no effect: edge workers run once on each node of the spec"};
    }
  }
  keep_replaced(service, world, plan);
  return plan;
}

std::vector<std::string> certificate_hosts(const JointPlan& plan, const JointWorld& world,
                                           const hosting::Options& options) {
  const hosting::Machines machines =
      options.node_port_host.empty() ? hosting::Machines::kMany : hosting::Machines::kOne;
  std::vector<std::string> hosts{"localhost", "127.0.0.1"};
  for (const workers::WorkerPod& pod : plan.first.pods)
    hosts.push_back(hosting::pod_address(pod.pod.get(), world.edge_node(pod.node).get(),
                                         hosting::find_node(world.nodes, pod.node), machines));
  return hosts;
}

std::optional<hosting::NodeWork> work_for(const JointInferenceService& service,
                                          const api::EdgeNode& node, const JointWorld& world,
                                          const hosting::Options& options) {
  if (service.metadata.deleting()) return {};
  hosting::NodeWork work;
  work.since = service.metadata.creation_timestamp;
  const std::vector<Tier> tiers = tiers_of(service);
  if (spec_problem(service, tiers)) {
    // As with children, the present work stays.
    const std::string models = service.metadata.key().str() + ".";
    for (const api::EdgeModel& model : node.spec.models) {
      if (model.key.starts_with(models)) work.models.push_back(model);
    }
    for (const api::EdgeWorker& worker : node.spec.workers) {
      if (worker.uid == service.metadata.uid) work.workers.push_back(worker);
    }
  } else {
    std::optional<hosting::Problem> problem;
    const workers::Worker worker = first_worker(service, tiers, world, options, problem);
    const hosting::NodeList nodes = first_nodes(tiers.front(), world);
    if (auto model = workers::model_for(job_of(service), worker, nodes, node, world.pods))
      work.models.push_back(std::move(*model));
    work.workers = workers::workers_for(job_of(service), worker, nodes, node, world.pods);
  }
  if (work.models.empty() && work.workers.empty()) return {};
  return work;
}

}  // namespace varda::controllers::joint
