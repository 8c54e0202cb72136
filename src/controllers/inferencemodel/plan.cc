#include "controllers/inferencemodel/plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "controllers/inferencemodel/model_choice.h"
#include "controllers/inferencemodel/objects.h"
#include "controllers/inferencemodel/unchanged_pod.h"
#include "hosting/chosen_model.h"
#include "hosting/held_versions.h"
#include "hosting/pod_problem.h"
#include "hosting/service_address.h"
#include "net/url.h"

namespace varda::controllers::inferencemodel {

namespace {

using api::InferenceModel;

bool is_own(const InferenceModel& model, const api::Pod& pod) {
  const meta::OwnerReference* owner = pod.metadata.controller();
  return pod.metadata.name == model.metadata.name && owner != nullptr &&
         owner->uid == model.metadata.uid;
}

std::optional<hosting::Problem> spec_problem(const InferenceModel& model,
                                             const hosting::Options& options) {
  // Problems that an API server without our rules accepts (old clusters have no CEL).
  if (const auto causes = api::validate_rules(*InferenceModel::kind().schema, model.to_json());
      !causes.empty()) {
    return hosting::Problem{"InvalidSpec", causes.front().field + ": " + causes.front().message};
  }
  if (!model.spec.from_image() && !model.spec.model_ref) {
    if (auto problem = framework_problem(model.spec.framework_type, options)) return problem;
  }
  if (model.spec.security.closed() &&
      (model.spec.from_image() ||
       (!model.spec.model_ref && !options.servers.at(model.spec.framework_type).closable))) {
    return hosting::Problem{
        "SecurityUnsupported",
        "spec.security works with varda-serve only, and this model uses another server: "
        "protect the port with that "
        "server's own settings"};
  }
  return {};
}

// The oldest model with a server on the same node and port, if it is older than `model`; else null.
// Age is the creation time, then the name: every operator and every restart picks the same one.
const InferenceModel* port_holder(const InferenceModel& model, const std::string& node,
                                  const World& world, const hosting::Options& options) {
  const auto age = [](const InferenceModel& m) {
    return std::tie(m.metadata.creation_timestamp, m.metadata.ns, m.metadata.name);
  };
  const InferenceModel* oldest = nullptr;
  for (const auto& other : world.models) {
    const api::InferenceModelSpec& spec = other->spec;
    if (other->metadata.uid == model.metadata.uid || !spec.on_edge() || spec.replicas == 0 ||
        spec.port() != model.spec.port())
      continue;
    if (age(*other) >= age(oldest != nullptr ? *oldest : model)) continue;
    // A model that awaits its choice has no pod.
    if (hosting::place(*other, world.nodes).node == node && !hosting::awaits_choice(*other) &&
        !spec_problem(hosting::with_manifest(*other), options))
      oldest = other.get();
  }
  return oldest;
}

// The same for jobs. A job does not compete with its own child.
const hosting::PortClaim* job_with_port(const InferenceModel& model, const std::string& node,
                                        const World& world) {
  const meta::OwnerReference* job = model.metadata.controller();
  const api::Pod* pod = edge_pod(model, world.pods);
  const std::vector<hosting::HostPort> ports =
      pod == nullptr ? std::vector<hosting::HostPort>{} : hosting::host_ports(pod->spec);
  const bool held = pod != nullptr && pod->spec.node_name == node && !pod->ended() &&
                    std::find(ports.begin(), ports.end(),
                              hosting::HostPort{model.spec.port(), "TCP"}) != ports.end();
  return port_holder({.node = node,
                      .port = model.spec.port(),
                      .owner = "InferenceModel " + model.metadata.key().str(),
                      .uid = job != nullptr ? job->uid : model.metadata.uid,
                      .since = model.metadata.creation_timestamp,
                      .held = held},
                     world.claims);
}

// The agent exposes a version before the pod is made, because the pod mounts its directory. Once
// made, the pod stays.
bool model_is_exposed(const InferenceModel& model, const World& world, const api::Pod* pod) {
  const api::EdgeModelReport* report =
      world.edge_node->status.find_model(model.metadata.key().str());
  if (report != nullptr && !report->exposed.empty()) return true;
  return pod != nullptr && !pod->spec.volumes.empty() &&
         pod->spec.node_name == world.edge_node->metadata.name;
}

std::optional<hosting::Problem> refused_target(const InferenceModel& model,
                                               const hosting::ModelKeys* keys) {
  if (model.spec.from_image()) return {};
  const api::ManifestEntry* entry = model.spec.find_version(model.spec.target_version);
  return entry == nullptr ? std::nullopt : hosting::signature_problem(model, *entry, keys);
}

bool answers(const api::Node* node) {
  const api::CoreCondition* ready =
      node == nullptr ? nullptr : find_condition(node->status.conditions, "Ready");
  return ready != nullptr && ready->status == "True";
}

void add_edge_pod(const InferenceModel& model, const World& world,
                  const hosting::ServerEntry* server, const std::string& model_root,
                  const hosting::Options& options, Plan& plan) {
  const std::string& node = plan.placement.node;
  Json wanted = make_edge_pod(model, node, server, model_root, options);
  annotate(model, node, server, wanted);
  if (const api::Pod* pod = edge_pod(model, world.pods)) {
    if (auto unchanged = unchanged_pod_of(model, node, *pod, server, wanted,
                                          answers(hosting::find_node(world.nodes, node)))) {
      plan.pod_unchanged = true;
      plan.outdated_pod = unchanged->outdated;
      wanted = std::move(unchanged->object);
    }
  }
  plan.objects.push_back(std::move(wanted));
}

void plan_edge(const InferenceModel& model, const World& world, const hosting::Options& options,
               Plan& plan) {
  plan.placement = hosting::place(model, world.nodes);
  const std::string& node = plan.placement.node;
  if (plan.placement.problem) {
    plan.problem = plan.placement.problem;
    // A named node: the pod may stay there. Otherwise it must leave. A pod without a node must
    // leave too: it serves no client, and would wait forever if the node went just after its
    // creation.
    const api::Pod* pod = edge_pod(model, world.pods);
    if (!node.empty() && (pod == nullptr || !pod->spec.node_name.empty()))
      plan.children = Plan::Children::kLeave;
    return;
  }
  if (model.spec.replicas == 0) return;
  if (const api::Pod* pod = edge_pod(model, world.pods);
      pod != nullptr && !pod->metadata.deleting() && pod->ended())
    plan.ended_pod = pod->metadata.uid;
  if (const InferenceModel* holder = port_holder(model, node, world, options)) {
    plan.problem = hosting::Problem{
        "PortInUse", "port " + std::to_string(model.spec.port()) + " of node " + node +
                         " belongs to the older InferenceModel " + holder->metadata.key().str() +
                         ": change servingPort or the node"};
    return;
  }
  if (const hosting::PortClaim* job = job_with_port(model, node, world)) {
    plan.problem = hosting::Problem{
        "PortInUse", "port " + std::to_string(model.spec.port()) + " of node " + node + " " +
                         hosting::holder_text(*job) + ": change servingPort or the node"};
    plan.waits_for_job = true;
    return;
  }
  if (model.spec.from_image()) {
    add_edge_pod(model, world, nullptr, "", options, plan);
    return;
  }
  const api::Pod* pod = edge_pod(model, world.pods);
  if (world.edge_node == nullptr || world.edge_node->status.model_root.empty()) {
    plan.problem = hosting::Problem{"AgentMissing", "no agent has reported from node " + node +
                                                        " yet: start `varda agent` there"};
    // An agent makes its deleted EdgeNode again; until then a serving pod stays.
    if (pod != nullptr && (pod->spec.node_name.empty() || pod->spec.node_name == node))
      plan.children = Plan::Children::kLeave;
    return;
  }
  if (!model_is_exposed(model, world, pod)) return;
  add_edge_pod(model, world, &options.servers.at(model.spec.framework_type),
               world.edge_node->status.model_root, options, plan);
}

}  // namespace

const api::Pod* edge_pod(const InferenceModel& model,
                         const std::vector<std::shared_ptr<const api::Pod>>& pods) {
  for (const auto& pod : pods) {
    if (is_own(model, *pod)) return pod.get();
  }
  return nullptr;
}

namespace {

// `keys` null: the signature of the target is not checked.
Plan plan_with(const hosting::ModelKeys* keys, const InferenceModel& model, const World& world,
               const hosting::Options& options) {
  if (std::string served =
          served_framework(model, world.edge_node.get(), edge_pod(model, world.pods));
      !model.spec.model_ref && served != model.spec.framework_type) {
    InferenceModel as_served = model;
    as_served.spec.framework_type = std::move(served);
    return plan_with(keys, as_served, world, options);
  }
  Plan plan;
  if (model.metadata.deleting()) {  // the garbage collector deletes the children
    plan.children = Plan::Children::kLeave;
    return plan;
  }
  auto problem = spec_problem(model, options);
  if (!problem && model.spec.model_ref) {
    ModelChoice choice = choose_model(model, world, options);
    if (choice.chosen) {
      InferenceModel resolved = model;
      resolved.status.model_ref = std::move(choice.chosen);
      resolved = hosting::with_manifest(std::move(resolved));
      // choose_model() checked the signature, under the Model's name.
      plan = plan_with(nullptr, resolved, world, options);
      plan.resolved = std::move(resolved);
      plan.unresolved = std::move(choice.problem);
      return plan;
    }
    problem = std::move(choice.problem);
  }
  if (!problem) problem = world.certificate;
  if (problem) {
    plan.problem = std::move(problem);
    plan.children = Plan::Children::kLeave;
    if (model.spec.on_edge()) plan.placement = hosting::place(model, world.nodes);
    return plan;
  }
  plan.refused_target = refused_target(model, keys);
  if (model.spec.on_edge()) {
    plan_edge(model, world, options, plan);
    return plan;
  }
  if (plan.refused_target && model.spec.replicas > 0) {
    // Pods of the present Deployment keep serving the version that they have.
    plan.children = Plan::Children::kLeave;
    return plan;
  }
  const hosting::ServerEntry* server =
      model.spec.from_image() ? nullptr : &options.servers.at(model.spec.framework_type);
  // Without a Deployment, no later change of its scale can fetch the refused version.
  if (!plan.refused_target) plan.objects.push_back(make_deployment(model, server, options));
  plan.objects.push_back(make_service(model));
  return plan;
}

}  // namespace

Plan plan(const InferenceModel& model, const World& world, const hosting::Options& options) {
  return plan_with(world.keys.get(), model, world, options);
}

std::vector<std::string> certificate_hosts(const InferenceModel& model, const World& world,
                                           const hosting::Options& options) {
  std::vector<std::string> hosts{"localhost", "127.0.0.1"};
  if (model.spec.on_edge()) {
    const std::string node = hosting::place(model, world.nodes).node;
    const hosting::Machines machines =
        options.node_port_host.empty() ? hosting::Machines::kMany : hosting::Machines::kOne;
    hosts.push_back(node);
    hosts.push_back(hosting::pod_address(edge_pod(model, world.pods), world.edge_node.get(),
                                         hosting::find_node(world.nodes, node), machines));
    return hosts;
  }
  const std::string name = model.metadata.name, in_namespace = name + "." + model.metadata.ns;
  hosts.insert(hosts.end(),
               {name, in_namespace, in_namespace + ".svc", in_namespace + ".svc.cluster.local"});
  std::string last_url = model.status.url;
  if (last_url.starts_with("https:")) last_url.erase(4, 1);
  const hosting::ServiceWorld around{world.service, world.slices, world.nodes,
                                     options.node_port_host, last_url};
  // The certificate exists before the Service.
  if (world.service == nullptr && model.spec.service.type == "NodePort")
    hosts.push_back(hosting::address_of_node_ports(world.nodes));
  if (const auto url =
          net::Url::parse(hosting::service_address(around, hosting::ServiceState::kAllocated).url);
      url.ok())
    hosts.push_back(url->host);
  return hosts;
}

bool takes_trials(const api::EdgeModel& traits, const hosting::ServerEntry* server) {
  return traits.layout != api::EdgeModel::kNumbered &&
         !(traits.serving && traits.serving->status_query) &&
         (server == nullptr || server->closable);
}

std::optional<api::EdgeModel> work_for(const InferenceModel& model, const api::EdgeNode& node,
                                       const api::Pod* pod, const hosting::ServerEntry* server,
                                       const hosting::ModelKeys* keys) {
  const api::InferenceModelSpec& spec = model.spec;
  if (model.metadata.deleting() || !spec.on_edge() || spec.from_image()) return {};
  if (hosting::awaits_choice(model)) {  // a pod of the former manifest keeps its files
    const api::EdgeModel* assigned = node.spec.find_model(model.metadata.key().str());
    return assigned == nullptr ? std::nullopt : std::optional(*assigned);
  }
  // The controller checked the signature under the Model's name when it chose the Model.
  if (spec.model_ref) return work_for(hosting::with_manifest(model), node, pod, server, nullptr);
  api::EdgeModel work;
  work.key = model.metadata.key().str();
  work.model_name = spec.model_name;
  work.framework = spec.framework_type;
  work.versions =
      hosting::versions_to_hold(work.key, hosting::archives_of(model, keys), spec.target_version,
                                node, spec.trial ? spec.trial->version : "");
  work.target = spec.target_version;
  // A pod that stays keeps the layout that it was made for.
  const bool on_this_node =
      pod != nullptr && !pod->metadata.deleting() && pod->spec.node_name == node.metadata.name;
  const api::EdgeModel traits = server_traits(on_this_node ? pod : nullptr, server);
  if (traits.layout == api::EdgeModel::kNumbered) {
    work.layout = traits.layout;
    work.extra_files = traits.extra_files;
  }
  if (spec.trial && takes_trials(traits, server)) work.trial = spec.trial;
  // A pod without volumes was made for an image, and is being replaced.
  const bool answers = on_this_node && !pod->status.pod_ip.empty() && !pod->spec.volumes.empty();
  if (answers && spec.replicas > 0) {
    // The port the pod was made with: a changed servingPort makes another pod.
    std::int64_t port = spec.port();
    bool https = false;
    for (const api::Container& container : pod->spec.containers) {
      if (container.name != "server") continue;
      if (!container.ports.empty()) port = container.ports.front().container_port;
      https = hosting::answers_https(container);
    }
    work.serving.emplace().url =
        hosting::with_scheme(hosting::http_url(pod->status.pod_ip, port), https);
    if (traits.serving && traits.serving->status_query) {
      api::EdgeStatusQuery& reading =
          work.serving->status_query.emplace(*traits.serving->status_query);
      reading.path = fill_in(reading.path, model);
    }
  }
  return work;
}

}  // namespace varda::controllers::inferencemodel
