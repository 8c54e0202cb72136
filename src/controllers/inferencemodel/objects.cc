#include "controllers/inferencemodel/objects.h"

#include "api/core/deployment.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "controllers/inferencemodel/plan.h"

namespace varda::controllers {

namespace {

using api::InferenceModel;

constexpr const char* kVolume = "model";
constexpr const char* kCredentialsVolume = "credentials";
constexpr const char* kCredentialsPath = "/var/run/varda/credentials";

std::string fill(std::string text, const InferenceModel& model) {
  const std::pair<std::string_view, std::string> values[] = {{"{modelName}", model.spec.model_name},
                                                             {"{port}", std::to_string(model.spec.port())},
                                                             {"{version}", model.spec.target_version}};
  for (const auto& [name, value] : values) {
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  }
  return text;
}

std::vector<std::string> fill(std::vector<std::string> texts, const InferenceModel& model) {
  for (std::string& text : texts) text = fill(std::move(text), model);
  return texts;
}

std::map<std::string, std::string> labels_of(const InferenceModel& model) {
  return {{std::string(kManagedByLabel), "varda"}, {std::string(kModelLabel), model.metadata.name}};
}

std::map<std::string, std::string> pod_labels(const InferenceModel& model) {
  auto labels = labels_of(model);
  labels[std::string(kLayerLabel)] = model.spec.deploy_to_layer;
  return labels;
}

std::map<std::string, std::string> pod_selector(const InferenceModel& model) {
  auto labels = pod_labels(model);
  labels.erase(std::string(kManagedByLabel));
  return labels;
}

Json to_json(const std::map<std::string, std::string>& labels) {
  Json out = Json::object();
  for (const auto& [key, value] : labels) out.set(key, value);
  return out;
}

// Ready when the model answers; where the server has no such path, when it accepts connections.
Json readiness_probe(const InferenceModel& model, const ServerEntry* server) {
  const Json port(model.spec.port());
  Json probe = Json::object({{"periodSeconds", 1}, {"timeoutSeconds", 1}, {"failureThreshold", 3}});
  if (server != nullptr && !server->ready_path.empty()) {
    probe.set("httpGet", Json::object({{"path", fill(server->ready_path, model)}, {"port", port}, {"scheme", "HTTP"}}));
  } else {
    probe.set("tcpSocket", Json::object({{"port", port}}));
  }
  return probe;
}

// So that a condition can tell why a container ended.
void tell_why_it_ends(api::Container& container) { container.unknown.set("terminationMessagePolicy", "FallbackToLogsOnError"); }

api::Container server_container(const InferenceModel& model, const ServerEntry* server) {
  api::Container container;
  container.name = "server";
  container.ports.push_back({.name = "http", .container_port = model.spec.port(), .protocol = "TCP"});
  container.readiness_probe = readiness_probe(model, server);
  if (server == nullptr) {
    container.image = model.spec.image;  // as the user gives it
    return container;
  }
  container.image = server->image;
  tell_why_it_ends(container);
  container.command = fill(server->command, model);
  container.args = fill(server->args, model);
  container.env.push_back(
      {.name = "POD_IP",
       .value_from = Json::object({{"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", "status.podIP"}})}})});
  for (const auto& [name, value] : server->env) container.env.push_back({.name = name, .value = fill(value, model)});
  return container;
}

api::VolumeMount mount(std::string path, bool read_only) {
  api::VolumeMount out;
  out.name = kVolume;
  out.mount_path = std::move(path);
  out.read_only = read_only;
  return out;
}

// "/models/digits" -> "/models": the volume of the cloud layer holds the model's directory, which `fetch` makes.
std::string parent(const std::string& directory) {
  const std::size_t slash = directory.rfind('/');
  return slash == 0 || slash == std::string::npos ? directory : directory.substr(0, slash);
}

Json node_affinity(Json term) {
  return Json::object({{"nodeAffinity", Json::object({{"requiredDuringSchedulingIgnoredDuringExecution",
                                                       Json::object({{"nodeSelectorTerms", Json::array({std::move(term)})}})}})}});
}

Json named_node(const std::string& node) {
  return Json::array({Json::object({{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({node})}})});
}

}  // namespace

Json make_edge_pod(const InferenceModel& model, const std::string& node, const ServerEntry* server, const std::string& model_root) {
  api::Pod pod;
  pod.metadata.name = model.metadata.name;
  pod.metadata.labels = pod_labels(model);
  pod.spec.host_network = true;
  // As DaemonSets place their pods: the scheduler still decides, and can say why not.
  pod.spec.affinity = node_affinity(Json::object({{"matchFields", named_node(node)}}));
  // A pod with a token does not come back on a node that restarts without its cloud.
  pod.spec.automount_service_account_token = false;
  for (const char* taint : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    pod.spec.tolerations.push_back({.key = taint, .op = "Exists", .effect = "NoExecute"});
  }
  api::Container container = server_container(model, server);
  if (server != nullptr) {
    container.volume_mounts.push_back(mount(fill(server->mount_path, model), true));
    const std::string path = model_root + "/" + model.metadata.ns + "/" + model.metadata.name;
    pod.spec.volumes.push_back(
        Json::object({{"name", kVolume}, {"hostPath", Json::object({{"path", path}, {"type", "Directory"}})}}));
  }
  pod.spec.containers.push_back(std::move(container));
  return pod.to_json();
}

Json make_deployment(const InferenceModel& model, const ServerEntry* server, const InferenceModelOptions& options) {
  api::Deployment deployment;
  deployment.metadata.name = model.metadata.name;
  deployment.metadata.labels = labels_of(model);
  deployment.spec.replicas = model.spec.replicas;
  deployment.spec.selector = Json::object({{"matchLabels", to_json(pod_selector(model))}});
  deployment.spec.strategy =
      Json::object({{"type", "RollingUpdate"}, {"rollingUpdate", Json::object({{"maxUnavailable", 0}, {"maxSurge", 1}})}});

  api::PodTemplateSpec& pods = deployment.spec.pod_template;
  pods.metadata.labels = pod_labels(model);
  pods.spec.node_selector = model.spec.node_selector;
  Json term = Json::object(
      {{"matchExpressions", Json::array({Json::object({{"key", "node-role.kubernetes.io/edge"}, {"operator", "DoesNotExist"}})})}});
  if (!model.spec.node_name.empty()) term.set("matchFields", named_node(model.spec.node_name));
  pods.spec.affinity = node_affinity(std::move(term));
  pods.spec.automount_service_account_token = false;

  api::Container container = server_container(model, server);
  if (server != nullptr) {
    const std::string& version = model.spec.target_version;
    const api::ManifestEntry* entry = model.spec.find_version(version);
    pods.metadata.annotations[std::string(kVersionLabel)] = version;
    if (meta::check_label_value(version).empty()) pods.metadata.labels[std::string(kVersionLabel)] = version;
    const std::string directory = fill(server->mount_path, model);
    api::Container fetch;
    fetch.name = "fetch";
    fetch.image = options.fetch_image;
    tell_why_it_ends(fetch);
    fetch.args = {"fetch",
                  "--url",
                  entry->download_url,
                  "--sha256",
                  entry->sha256sum,
                  "--to",
                  directory + "/" + version,
                  "--framework",
                  model.spec.framework_type};
    for (const std::string& mirror : entry->mirrors) fetch.args.insert(fetch.args.end(), {"--mirror", mirror});
    const std::string volume = parent(directory);
    fetch.volume_mounts.push_back(mount(volume, false));
    if (entry->credentials) {
      // Files and no environment: that one is read by whoever may look at the pod's processes. The server's container never sees
      // them.
      fetch.args.insert(fetch.args.end(), {"--credentials-dir", kCredentialsPath});
      api::VolumeMount secret = mount(kCredentialsPath, true);
      secret.name = kCredentialsVolume;
      fetch.volume_mounts.push_back(std::move(secret));
      pods.spec.volumes.push_back(Json::object(
          {{"name", kCredentialsVolume}, {"secret", Json::object({{"secretName", entry->credentials->secret_name}})}}));
    }
    pods.spec.init_containers.push_back(std::move(fetch));
    container.volume_mounts.push_back(mount(volume, true));
    pods.spec.volumes.push_back(Json::object({{"name", kVolume}, {"emptyDir", Json::object()}}));
  }
  pods.spec.containers.push_back(std::move(container));
  return deployment.to_json();
}

Json make_service(const InferenceModel& model) {
  api::Service service;
  service.metadata.name = model.metadata.name;
  service.metadata.labels = labels_of(model);
  service.spec.type = model.spec.service.type;
  service.spec.selector = pod_selector(model);
  // By name: while pods of two ports answer during a roll-out, each is reached at its own.
  service.spec.ports.push_back({.name = "http", .protocol = "TCP", .port = model.spec.port(), .target_port = "http"});
  return service.to_json();
}

}  // namespace varda::controllers
