#include "controllers/inferencemodel/objects.h"

#include <algorithm>

#include "api/core/deployment.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "api/edgeai/version_number.h"
#include "controllers/inferencemodel/plan.h"
#include "hosting/labels.h"
#include "hosting/pod_settings.h"

namespace varda::controllers::inferencemodel {

using api::InferenceModel;

std::string fill_in(std::string text, const InferenceModel& model) {
  const std::pair<std::string_view, std::string> values[] = {
      {"{modelName}", model.spec.model_name},
      {"{port}", std::to_string(model.spec.port())},
      {"{version}", model.spec.target_version}};
  for (const auto& [name, value] : values) {
    for (std::size_t at = text.find(name); at != std::string::npos;
         at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  }
  return text;
}

namespace {

constexpr std::string_view kNumberedDirectory = ".numbered";  // artifact/numbered_view.h
constexpr const char* kVolume = "model";
constexpr const char* kCredentialsVolume = "credentials";
constexpr const char* kCredentialsPath = "/var/run/varda/credentials";
constexpr const char* kSamplesVolume = "samples";
constexpr const char* kSamplesPath = "/samples";
constexpr const char* kTlsPath = "/var/run/varda/tls";
constexpr const char* kTokenPath = "/var/run/varda/token";

std::vector<std::string> fill_in_each(std::vector<std::string> texts, const InferenceModel& model) {
  for (std::string& text : texts) text = fill_in(std::move(text), model);
  return texts;
}

std::map<std::string, std::string> labels_of(const InferenceModel& model) {
  return {{std::string(hosting::kManagedByLabel), "varda"},
          {std::string(hosting::kModelLabel), model.metadata.name}};
}

std::map<std::string, std::string> pod_labels(const InferenceModel& model) {
  auto labels = labels_of(model);
  labels[std::string(hosting::kLayerLabel)] = model.spec.deploy_to_layer;
  return labels;
}

std::map<std::string, std::string> pod_selector(const InferenceModel& model) {
  auto labels = pod_labels(model);
  labels.erase(std::string(hosting::kManagedByLabel));
  return labels;
}

Json to_json(const std::map<std::string, std::string>& labels) {
  Json out = Json::object();
  for (const auto& [key, value] : labels) out.set(key, value);
  return out;
}

// Ready when the model answers, or without a ready path when the server accepts connections.
Json readiness_probe(const InferenceModel& model, const hosting::ServerEntry* server) {
  const Json port(model.spec.port());
  Json probe = Json::object({{"periodSeconds", 1}, {"timeoutSeconds", 1}, {"failureThreshold", 3}});
  if (server != nullptr && !server->ready_path.empty()) {
    probe.set("httpGet", Json::object({{"path", fill_in(server->ready_path, model)},
                                       {"port", port},
                                       {"scheme", model.spec.https() ? "HTTPS" : "HTTP"}}));
  } else {
    probe.set("tcpSocket", Json::object({{"port", port}}));
  }
  return probe;
}

// Settings of a container with our image or an image of the table. A present image is not pulled
// again. The end of the log is kept, so that a condition can give the reason of an exit.
void settle(api::Container& container, const Json& security_context) {
  container.image_pull_policy = "IfNotPresent";
  container.security_context = security_context;
  container.unknown.set("terminationMessagePolicy", "FallbackToLogsOnError");
}

// Only root may listen on a port below 1024. A sysctl changes that in a pod's own network, but not
// in the node's.
constexpr std::int64_t kPrivilegedPorts = 1024;

bool needs_privileged_port(const InferenceModel& model, const api::Container& container) {
  return model.spec.port() < kPrivilegedPorts &&
         container.security_context["runAsNonRoot"].as_bool();
}

void allow_port_in_own_network(const InferenceModel& model, const api::Container& container,
                               api::PodSpec& pod) {
  if (!needs_privileged_port(model, container)) return;
  pod.unknown.make("securityContext")
      .set("sysctls", Json::array({Json::object(
                          {{"name", "net.ipv4.ip_unprivileged_port_start"}, {"value", "0"}})}));
}

void allow_port_of_the_node(const InferenceModel& model, api::Container& container) {
  if (!needs_privileged_port(model, container)) return;
  Json& context = container.security_context;
  context.set("runAsNonRoot", false);
  context.set("runAsUser", 0);
  context.set("runAsGroup", 0);
  context.make("capabilities").set("add", Json::array({"NET_BIND_SERVICE"}));
}

api::Container server_container(const InferenceModel& model, const hosting::ServerEntry* server) {
  api::Container container;
  container.name = "server";
  container.ports.push_back(
      {.name = "http", .container_port = model.spec.port(), .protocol = "TCP"});
  container.readiness_probe = readiness_probe(model, server);
  if (server == nullptr) {
    container.image = model.spec.image;  // as the user gives it
    return container;
  }
  container.image = server->image;
  settle(container, server->security_context);
  container.command = fill_in_each(server->command, model);
  container.args = fill_in_each(server->args, model);
  container.env.push_back(
      {.name = "POD_IP",
       .value_from = Json::object(
           {{"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", "status.podIP"}})}})});
  for (const auto& [name, value] : server->env)
    container.env.push_back({.name = name, .value = fill_in(value, model)});
  return container;
}

api::VolumeMount mount(std::string path, bool read_only) {
  api::VolumeMount out;
  out.name = kVolume;
  out.mount_path = std::move(path);
  out.read_only = read_only;
  return out;
}

// "/models/digits" -> "/models": the volume of the cloud layer holds the model's directory, which
// `fetch` makes.
std::string parent(const std::string& directory) {
  const std::size_t slash = directory.rfind('/');
  return slash == 0 || slash == std::string::npos ? directory : directory.substr(0, slash);
}

void add_secret(const std::string& volume, const std::string& secret, const std::string& path,
                api::Container& container, api::PodSpec& pod) {
  api::VolumeMount files = mount(path, true);
  files.name = volume;
  container.volume_mounts.push_back(std::move(files));
  pod.volumes.push_back(
      Json::object({{"name", volume}, {"secret", Json::object({{"secretName", secret}})}}));
}

// Health and the state of models stay open: probes and agents have neither certificate nor token.
void close_port(const InferenceModel& model, api::Container& container, api::PodSpec& pod) {
  const api::ModelSecurity& security = model.spec.security;
  const std::string tls = kTlsPath;
  if (security.https()) {
    add_secret("tls", security.tls_secret_of(model.metadata.name), tls, container, pod);
    container.args.insert(container.args.end(),
                          {"--tls-cert", tls + "/tls.crt", "--tls-key", tls + "/tls.key"});
    if (security.client_certificates)
      container.args.insert(container.args.end(), {"--client-ca", tls + "/ca.crt"});
  }
  if (!security.token_secret_name.empty()) {
    add_secret("token", security.token_secret_name, kTokenPath, container, pod);
    container.args.insert(container.args.end(),
                          {"--token-file", std::string(kTokenPath) + "/token"});
  }
}

// The server is in the group of the directory, which the node's agent makes (agent/models).
void keep_samples(const InferenceModel& model, const hosting::ServerEntry& server,
                  const std::string& directory, api::Container& container, api::PodSpec& pod) {
  if (!model.spec.samples || directory.empty() || !server.closable) return;
  api::VolumeMount samples = mount(std::string(kSamplesPath) + "/" + model.spec.model_name, false);
  samples.name = kSamplesVolume;
  container.volume_mounts.push_back(std::move(samples));
  container.args.insert(container.args.end(), {"--samples-directory", kSamplesPath});
  pod.volumes.push_back(
      Json::object({{"name", kSamplesVolume},
                    {"hostPath", Json::object({{"path", directory}, {"type", "Directory"}})}}));
}

Json node_affinity(Json term) {
  return Json::object(
      {{"nodeAffinity",
        Json::object({{"requiredDuringSchedulingIgnoredDuringExecution",
                       Json::object({{"nodeSelectorTerms", Json::array({std::move(term)})}})}})}});
}

Json named_node(const std::string& node) {
  return Json::array({Json::object(
      {{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({node})}})});
}

}  // namespace

std::vector<std::string> tier_arguments(const api::ModelSecurity& security) {
  std::vector<std::string> out;
  if (security.https()) out.insert(out.end(), {"--tier-ca", std::string(kTlsPath) + "/ca.crt"});
  if (!security.token_secret_name.empty())
    out.insert(out.end(), {"--tier-token-file", std::string(kTokenPath) + "/token"});
  return out;
}

Json requested_security(const InferenceModel& model) {
  const api::ModelSecurity& security = model.spec.security;
  if (!security.closed()) return {};
  return Json::object({{"tls", security.tls_secret_of(model.metadata.name)},
                       {"clientCertificates", security.client_certificates},
                       {"token", security.token_secret_name}});
}

const std::string& edge_network(const InferenceModel& model, const hosting::Options& options) {
  return model.spec.edge_network.empty() ? options.edge_network : model.spec.edge_network;
}

api::PodSpec edge_server(const InferenceModel& model, const hosting::ServerEntry* server,
                         const std::string& network, const ServerDirectories& directories) {
  api::PodSpec spec;
  // On a node that restarts without its cloud, a pod with a token does not come back. A pod with
  // the variables of services waits for them.
  spec.automount_service_account_token = false;
  spec.unknown.set("enableServiceLinks", false);
  api::Container container = server_container(model, server);
  if (network == "host") {
    spec.host_network = true;
    // Otherwise the pod could not resolve names of the cluster.
    spec.unknown.set("dnsPolicy", "ClusterFirstWithHostNet");
    allow_port_of_the_node(model, container);
  } else {
    container.ports.front().host_port = model.spec.port();
    allow_port_in_own_network(model, container, spec);
  }
  if (server != nullptr) {
    container.volume_mounts.push_back(mount(fill_in(server->mount_path, model), true));
    std::string path = directories.model;
    if (server->layout == api::EdgeModel::kNumbered) path += "/" + std::string(kNumberedDirectory);
    spec.volumes.push_back(Json::object(
        {{"name", kVolume}, {"hostPath", Json::object({{"path", path}, {"type", "Directory"}})}}));
    close_port(model, container, spec);
    keep_samples(model, *server, directories.samples, container, spec);
  }
  spec.containers.push_back(std::move(container));
  hosting::add_settings(model.spec, spec);
  return spec;
}

Json make_edge_pod(const InferenceModel& model, const std::string& node,
                   const hosting::ServerEntry* server, const ServerDirectories& roots,
                   const hosting::Options& options) {
  api::Pod pod;
  pod.metadata.name = model.metadata.name;
  pod.metadata.labels = pod_labels(model);
  // With this label KubeEdge's admission (CHANGELOG-1.6) leaves the pod on a disconnected node,
  // even if other writers change its tolerations.
  pod.metadata.labels["app-offline.kubeedge.io"] = "autonomy";
  const std::string key = "/" + model.metadata.key().str();
  pod.spec =
      edge_server(model, server, edge_network(model, options),
                  {roots.model + key, roots.samples.empty() ? std::string() : roots.samples + key});
  // Like a DaemonSet's pod: the scheduler still decides, and can report why it cannot.
  pod.spec.affinity = node_affinity(Json::object({{"matchFields", named_node(node)}}));
  for (const char* taint : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    pod.spec.tolerations.push_back({.key = taint, .op = "Exists", .effect = "NoExecute"});
  }
  // Users put this taint on edge nodes to keep other pods away, with either effect.
  pod.spec.tolerations.push_back({.key = "node-role.kubernetes.io/edge", .op = "Exists"});
  return pod.to_json();
}

Json make_deployment(const InferenceModel& model, const hosting::ServerEntry* server,
                     const hosting::Options& options) {
  api::Deployment deployment;
  deployment.metadata.name = model.metadata.name;
  deployment.metadata.labels = labels_of(model);
  deployment.spec.replicas = model.spec.replicas;
  deployment.spec.selector = Json::object({{"matchLabels", to_json(pod_selector(model))}});
  deployment.spec.strategy =
      Json::object({{"type", "RollingUpdate"},
                    {"rollingUpdate", Json::object({{"maxUnavailable", 0}, {"maxSurge", 1}})}});

  api::PodTemplateSpec& pods = deployment.spec.pod_template;
  pods.metadata.labels = pod_labels(model);
  pods.spec.node_selector = model.spec.node_selector;
  Json term = Json::object(
      {{"matchExpressions", Json::array({Json::object({{"key", "node-role.kubernetes.io/edge"},
                                                       {"operator", "DoesNotExist"}})})}});
  if (!model.spec.node_name.empty()) term.set("matchFields", named_node(model.spec.node_name));
  pods.spec.affinity = node_affinity(std::move(term));
  pods.spec.automount_service_account_token = false;
  pods.spec.unknown.set("enableServiceLinks", false);
  // Replicas spread over several nodes, so that a lost node costs one replica.
  pods.spec.unknown.set(
      "topologySpreadConstraints",
      Json::array({Json::object(
          {{"maxSkew", 1},
           {"topologyKey", "kubernetes.io/hostname"},
           {"whenUnsatisfiable", "ScheduleAnyway"},
           {"labelSelector", Json::object({{"matchLabels", to_json(pod_selector(model))}})}})}));

  api::Container container = server_container(model, server);
  allow_port_in_own_network(model, container, pods.spec);
  if (server != nullptr) {
    const std::string& version = model.spec.target_version;
    const api::ManifestEntry* entry = model.spec.find_version(version);
    pods.metadata.annotations[std::string(hosting::kVersionLabel)] = version;
    if (meta::check_label_value(version).empty())
      pods.metadata.labels[std::string(hosting::kVersionLabel)] = version;
    const std::string directory = fill_in(server->mount_path, model);
    const bool numbered = server->layout == api::EdgeModel::kNumbered;
    api::Container fetch;
    fetch.name = "fetch";
    fetch.image = options.fetch_image;
    settle(fetch, hosting::restricted_container());
    fetch.args = {
        "fetch",
        "--url",
        entry->download_url,
        "--sha256",
        entry->sha256sum,
        "--to",
        directory + "/" + (numbered ? std::to_string(api::version_number(version)) : version),
        "--framework",
        model.spec.framework_type};
    fetch.args.insert(fetch.args.end(), options.fetch_arguments.begin(),
                      options.fetch_arguments.end());
    for (const std::string& mirror : entry->mirrors)
      fetch.args.insert(fetch.args.end(), {"--mirror", mirror});
    for (const std::string& file : server->extra_files)
      fetch.args.insert(fetch.args.end(), {"--extra-file", file});
    const std::string volume = parent(directory);
    fetch.volume_mounts.push_back(mount(volume, false));
    if (entry->credentials) {
      // Optional, so that a pod without its Secret starts and reports the problem. Files, since an
      // environment is readable to all that may inspect the pod's processes. The server's container
      // never sees the files.
      fetch.args.insert(fetch.args.end(), {"--credentials-dir", kCredentialsPath});
      api::VolumeMount secret = mount(kCredentialsPath, true);
      secret.name = kCredentialsVolume;
      fetch.volume_mounts.push_back(std::move(secret));
      pods.spec.volumes.push_back(Json::object(
          {{"name", kCredentialsVolume},
           {"secret",
            Json::object({{"secretName", entry->credentials->secret_name}, {"optional", true}})}}));
    }
    pods.spec.init_containers.push_back(std::move(fetch));
    container.volume_mounts.push_back(mount(volume, true));
    // Each version has its own pods. A pod that cannot load its version exits, and so reports the
    // reason.
    if (server->image == options.serve_image)
      container.env.push_back({.name = "VARDA_SERVE_END_ON_LOAD_FAILURE", .value = "1"});
    pods.spec.volumes.push_back(Json::object({{"name", kVolume}, {"emptyDir", Json::object()}}));
    close_port(model, container, pods.spec);
  }
  pods.spec.containers.push_back(std::move(container));
  hosting::add_settings(model.spec, pods.spec);
  return deployment.to_json();
}

Json make_service(const InferenceModel& model) {
  api::Service service;
  service.metadata.name = model.metadata.name;
  service.metadata.labels = labels_of(model);
  service.spec.type = model.spec.service.type;
  service.spec.selector = pod_selector(model);
  // The target port is a name. While pods with two ports answer during a roll-out, each pod gets
  // requests at its own port.
  service.spec.ports.push_back(
      {.name = "http", .protocol = "TCP", .port = model.spec.port(), .target_port = "http"});
  return service.to_json();
}

}  // namespace varda::controllers::inferencemodel
