#include "controllers/workers/pod_template.h"

#include <algorithm>
#include <set>
#include <utility>

#include "codec/digest.h"
#include "hosting/labels.h"
#include "hosting/servers.h"

namespace varda::controllers::workers {

namespace {

constexpr const char* kModelVolume = "varda-model";
constexpr const char* kCredentialsVolume = "varda-credentials";
constexpr const char* kCredentialsPath = "/var/run/varda/credentials";
constexpr const char* kTokenVolume = "varda-worker";
constexpr const char* kSocketVolume = "varda-agent";
constexpr const char* kOutputVolume = "varda-output";
constexpr const char* kDataVolume = "varda-data";
constexpr const char* kFilesVolume = "varda-files";
constexpr const char* kOutputDirectory = "work";  // beside the token
constexpr std::string_view kEdgeRole = "node-role.kubernetes.io/edge";

/// Sorts members by name, so that equal content has equal text.
std::string hash_of(const Json& value) {
  return codec::Sha256::of(codec::write_json(codec::sorted(value))).hex().substr(0, 16);
}

Json field_ref(const char* path) {
  return Json::object({{"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", path}})}});
}

// Escapes `$`: the kubelet expands $(NAME) in values and arguments, and turns $$ into $.
std::string literal(std::string_view value) {
  std::string out;
  for (const char c : value) out.append(c == '$' ? 2 : 1, c);
  return out;
}

Json text(std::string_view name, std::string_view value) {
  return Json::object({{"name", name}, {"value", literal(value)}});
}
Json field(std::string_view name, const char* path) {
  return Json::object({{"name", name}, {"valueFrom", field_ref(path)}});
}

struct Address {
  std::string host, port;
};

// "http://203.0.113.7:31080", "http://[2001:db8::7]:31080/..."
Address address_of(const std::string& url) {
  std::string_view rest = url;
  if (const auto scheme = rest.find("://"); scheme != std::string_view::npos)
    rest.remove_prefix(scheme + 3);
  rest = rest.substr(0, rest.find('/'));
  std::string_view host = rest, port;
  if (rest.starts_with('[')) {
    const auto end = rest.find(']');
    host = rest.substr(1, end == std::string_view::npos ? end : end - 1);
    if (end != std::string_view::npos && rest.substr(end + 1).starts_with(':'))
      port = rest.substr(end + 2);
  } else if (const auto colon = rest.rfind(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
  }
  if (port.empty()) port = url.starts_with("https://") ? "443" : "80";
  return {std::string(host), std::string(port)};
}

// Variables of the worker contract (docs/guides/workers.md), ordered so that values may refer to
// earlier ones.
Json contract(const Job& job, const Worker& worker, const PodPlace& place) {
  const bool edge = worker.layer == Worker::Layer::kEdge;
  Json env = Json::array();
  env.push_back(text("NAMESPACE", job.metadata.ns));
  env.push_back(text("JOB_KIND", std::string(job.kind)));
  env.push_back(text("SERVICE_NAME", job.metadata.name));
  env.push_back(place.pod.empty() ? field("WORKER_NAME", "metadata.name")
                                  : text("WORKER_NAME", place.pod));
  env.push_back(text("WORKER_ROLE", edge && !worker.any_node ? "edge" : "cloud"));
  env.push_back(place.node.empty() ? field("NODE_NAME", "spec.nodeName")
                                   : text("NODE_NAME", place.node));
  env.push_back(field("POD_IP", "status.podIP"));
  if (worker.model) {
    env.push_back(text("MODEL_NAME", worker.model->name));
    env.push_back(text("MODEL_VERSION", place.model.version));
    const std::string path =
        place.model.path.empty() ? model_path(worker, place.model.version) : place.model.path;
    if (!path.empty()) env.push_back(text("MODEL_PATH", path));
    const std::string& files = path.empty() ? place.model.url : path;
    env.push_back(worker.has_output ? text("BASE_MODEL_URL", files)
                                    : text("MODEL_URL", place.model.url));
  }
  if (worker.has_output) env.push_back(text("MODEL_URL", kOutputMount));
  for (const auto* variables : {&worker.variables, &worker.first_values})
    for (const auto& [name, value] : *variables) env.push_back(text(name, value));
  if (worker.hard_example_mining) {
    env.push_back(text("HEM_NAME", worker.hard_example_mining->name));
    env.push_back(text("HEM_PARAMETERS",
                       codec::write_json(worker.hard_example_mining->parameters_to_json())));
  }
  if (!edge) env.push_back(text("BIG_MODEL_BIND_PORT", std::to_string(bind_port(worker))));
  if (worker.cloud_url && !worker.cloud_url->empty()) {
    const Address address = address_of(*worker.cloud_url);
    env.push_back(text("CLOUD_URL", *worker.cloud_url));
    env.push_back(text("BIG_MODEL_IP", address.host));
    env.push_back(text("BIG_MODEL_PORT", address.port));
  }
  if (place.agent != nullptr && !place.agent->status.worker_root.empty())
    env.push_back(text("VARDA_WORKER_TOKEN_FILE", std::string(kWorkerTokenMount) + "/token"));
  if (place.agent != nullptr && !place.agent->status.worker_socket_directory.empty())
    env.push_back(text("VARDA_WORKER_SOCKET", std::string(kWorkerSocketMount) + "/worker.sock"));
  return env;
}

bool names(const Json& list, std::string_view member, std::string_view value) {
  const auto& items = list.as_array();
  return std::any_of(items.begin(), items.end(),
                     [&](const Json& item) { return item[member].as_string() == value; });
}

/// A name unused in the list: NAME, NAME-2 ...
std::string fresh_name(const Json& list, const std::string& name) {
  std::string out = name;
  for (int number = 2; names(list, "name", out); ++number)
    out = name + "-" + std::to_string(number);
  return out;
}

template <typename Change>
void each_container(Json& spec, Change change) {
  for (const char* list : {"initContainers", "containers"}) {
    Json* const containers = spec.find(list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->array_items()) {
      if (container.is_object()) change(container);
    }
  }
}

void name_containers(Json& spec) {
  for (const auto& [list, name] :
       {std::pair("initContainers", "init"), std::pair("containers", "worker")}) {
    Json* const containers = spec.find(list);
    if (containers == nullptr || !containers->is_array()) continue;
    const bool several = containers->size() > 1;
    for (std::size_t i = 0; i < containers->size(); ++i) {
      Json& container = containers->array_items()[i];
      if (!container.is_object() || !std::as_const(container)["name"].as_string().empty()) continue;
      std::string wanted = several ? std::string(name) + "-" + std::to_string(i) : name;
      while (names(std::as_const(spec)["initContainers"], "name", wanted) ||
             names(std::as_const(spec)["containers"], "name", wanted))
        wanted += "-x";
      container.set("name", wanted);
    }
  }
}

// Added before the user's variables, so that those may refer to ours.
void add_env(Json& container, const Json& contract) {
  const Json users = std::as_const(container)["env"];
  Json env = Json::array();
  for (const Json& variable : contract.as_array()) {
    if (!names(users, "name", variable["name"].as_string())) env.push_back(variable);
  }
  for (const Json& variable : users.as_array()) env.push_back(variable);
  container.set("env", std::move(env));
}

bool mounts_at(const Json& container, std::string_view path) {
  const auto plain = [](std::string_view text) {
    while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
    return text;
  };
  const auto& mounts = container["volumeMounts"].as_array();
  return std::any_of(mounts.begin(), mounts.end(), [&](const Json& mount) {
    return plain(mount["mountPath"].as_string()) == plain(path);
  });
}

enum class Access { kReadOnly, kReadWrite };

/// Adds a volume under an unused name, in every container that mounts nothing else at the path.
/// Returns the name.
std::string add_volume(Json& spec, const char* name, Json source, const std::string& path,
                       Access access = Access::kReadOnly) {
  const std::string free = fresh_name(std::as_const(spec)["volumes"], name);
  source.set("name", free);
  spec.make("volumes").push_back(std::move(source));
  each_container(spec, [&](Json& container) {
    if (mounts_at(container, path)) return;
    Json mount = Json::object({{"name", free}, {"mountPath", path}});
    if (access == Access::kReadOnly) mount.set("readOnly", true);
    container.make("volumeMounts").push_back(std::move(mount));
  });
  return free;
}

Json host_path(const std::string& path, const char* type) {
  Json volume = Json::object({{"path", path}});
  if (*type != '\0') volume.set("type", type);
  return Json::object({{"hostPath", std::move(volume)}});
}

void tolerate(Json& spec, const char* key, const char* effect) {
  for (const Json& toleration : std::as_const(spec)["tolerations"].as_array()) {
    const std::string& tolerated = toleration["effect"].as_string();
    if (toleration["key"].as_string() == key &&
        (tolerated.empty() || *effect == '\0' || tolerated == effect))
      return;  // the user's wins
  }
  Json toleration = Json::object({{"key", key}, {"operator", "Exists"}});
  if (*effect != '\0') toleration.set("effect", effect);
  spec.make("tolerations").push_back(std::move(toleration));
}

void set_absent(Json& object, std::string_view name, Json value) {
  if (!object.contains(name)) object.set(name, std::move(value));
}

/// Adds the requirements to every term of the user, since terms are joined by "or".
void require_of_nodes(Json& spec, const char* member, const Json& requirements) {
  Json& required =
      spec.make("affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
  Json& terms = required["nodeSelectorTerms"];
  if (!terms.is_array() || terms.empty()) terms = Json::array({Json::object()});
  for (Json& term : terms.array_items()) {
    for (const Json& requirement : requirements.as_array())
      term.make(member).push_back(requirement);
  }
}

Json requirement(std::string_view key, std::string_view op,
                 const std::vector<std::string>& values) {
  Json out = Json::object({{"key", key}, {"operator", op}});
  if (values.empty()) return out;
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  out.set("values", std::move(list));
  return out;
}

bool selects_edge_nodes(const Json& spec) {
  if (spec["nodeSelector"].contains(kEdgeRole)) return true;
  const Json& terms = spec.at(
      "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
  const auto& list = terms.as_array();
  return std::any_of(list.begin(), list.end(), [](const Json& term) {
    return names(term["matchExpressions"], "key", kEdgeRole);
  });
}

void place_on_edge(Json& spec, const PodPlace& place) {
  // Places the pod as DaemonSets do: the scheduler still decides and reports reasons. A nodeName
  // set by the user bypasses the scheduler.
  if (std::as_const(spec)["nodeName"].as_string().empty())
    require_of_nodes(spec, "matchFields",
                     Json::array({requirement("metadata.name", "In", {place.node})}));
  tolerate(spec, "node.kubernetes.io/not-ready", "NoExecute");
  tolerate(spec, "node.kubernetes.io/unreachable", "NoExecute");
  // Users keep other pods off their edge nodes with this taint, with either effect.
  tolerate(spec, std::string(kEdgeRole).c_str(), "");
  // A pod with a token does not restart on a node without its cloud connection; a pod with service
  // variables waits for them.
  set_absent(spec, "automountServiceAccountToken", false);
  set_absent(spec, "enableServiceLinks", false);
}

Json selector_terms(const api::NodeSelection& selector) {
  Json terms = Json::array();
  for (const auto& [key, value] : selector.match_labels)
    terms.push_back(requirement(key, "In", {value}));
  for (const api::SelectorRequirement& one : selector.match_expressions)
    terms.push_back(requirement(one.key, one.op, one.values));
  return terms;
}

void place_in_cloud(Json& spec, const Worker& worker) {
  Json expressions = worker.selector ? selector_terms(*worker.selector) : Json::array();
  const bool named = !worker.node_name.empty();
  if (!named && !selects_edge_nodes(spec) && !names(expressions, "key", kEdgeRole))
    expressions.push_back(requirement(kEdgeRole, "DoesNotExist", {}));
  if (!expressions.empty()) require_of_nodes(spec, "matchExpressions", expressions);
  if (named && std::as_const(spec)["nodeName"].as_string().empty())
    require_of_nodes(spec, "matchFields",
                     Json::array({requirement("metadata.name", "In", {worker.node_name})}));
}

// Cloud layer: an init container downloads the model before any other container starts.
void fetch_model(Json& spec, const Worker& worker, const FetchProgram& program) {
  const api::EdgeModelVersion& archive = *worker.model->archive();
  const std::string directory = model_path(worker, "");
  Json args =
      Json::array({"fetch", "--url", literal(archive.url), "--sha256", literal(archive.sha256),
                   "--to", literal(directory + "/" + archive.version)});
  for (const std::string& argument : program.arguments) args.push_back(literal(argument));
  for (const std::string& mirror : archive.mirrors) {
    args.push_back("--mirror");
    args.push_back(literal(mirror));
  }
  const std::string volume =
      add_volume(spec, kModelVolume, Json::object({{"emptyDir", Json::object()}}), directory);
  Json mounts = Json::array({Json::object({{"name", volume}, {"mountPath", directory}})});
  if (const auto slash = archive.credentials.find('/'); slash != std::string::npos) {
    const std::string secrets = fresh_name(std::as_const(spec)["volumes"], kCredentialsVolume);
    args.push_back("--credentials-dir");
    args.push_back(kCredentialsPath);
    mounts.push_back(
        Json::object({{"name", secrets}, {"mountPath", kCredentialsPath}, {"readOnly", true}}));
    spec.make("volumes").push_back(Json::object(
        {{"name", secrets},
         {"secret", Json::object({{"secretName", archive.credentials.substr(slash + 1)},
                                  {"optional", true}})}}));
  }
  Json both = std::as_const(spec)["initContainers"];
  for (const Json& container : std::as_const(spec)["containers"].as_array())
    both.push_back(container);
  Json fetch = Json::object({{"name", fresh_name(both, "varda-fetch")},
                             {"image", program.image},
                             {"imagePullPolicy", "IfNotPresent"},
                             {"args", std::move(args)},
                             {"securityContext", hosting::restricted_container()},
                             {"terminationMessagePolicy", "FallbackToLogsOnError"},
                             {"volumeMounts", std::move(mounts)}});
  Json init = Json::array({std::move(fetch)});
  for (const Json& container : std::as_const(spec)["initContainers"].as_array())
    init.push_back(container);
  spec.set("initContainers", std::move(init));
}

std::string directory_on(const Job& job, const Worker& worker, const api::EdgeNode& node) {
  return node.status.model_root + "/" + worker_model_key(job, worker);
}

Json users_spec(const Job& job, const Worker& worker, const PodPlace& place,
                const FetchProgram& fetch) {
  Json spec = worker.pod_spec;
  name_containers(spec);
  const Json added = contract(job, worker, place);
  each_container(spec, [&](Json& container) { add_env(container, added); });
  const bool edge = worker.layer == Worker::Layer::kEdge;
  if (worker.model && worker.model->fetched() && edge && place.agent != nullptr) {
    add_volume(spec, kModelVolume, host_path(directory_on(job, worker, *place.agent), "Directory"),
               model_path(worker, ""));
  } else if (worker.model && worker.model->archive() != nullptr && !edge) {
    fetch_model(spec, worker, fetch);
  } else if (!place.model.path.empty()) {
    add_volume(spec, kModelVolume, host_path(place.model.path, ""), place.model.path);
  }
  if (!edge) {
    place_in_cloud(spec, worker);
    return spec;
  }
  if (place.agent != nullptr && !place.agent->status.worker_root.empty()) {
    const std::string directory =
        place.agent->status.worker_root + "/" + job.metadata.ns + "/" + place.pod;
    add_volume(spec, kTokenVolume, host_path(directory, "Directory"),
               std::string(kWorkerTokenMount));
    if (worker.has_output) {
      add_volume(spec, kOutputVolume, host_path(directory + "/" + kOutputDirectory, "Directory"),
                 std::string(kOutputMount), Access::kReadWrite);
    }
  }
  for (const std::string& path : worker.data)
    add_volume(spec, kDataVolume, host_path(path, ""), path);
  for (const Worker::Mount& mount : worker.mounts)
    add_volume(spec, kFilesVolume, host_path(mount.directory, "Directory"), mount.path);
  if (place.agent != nullptr && !place.agent->status.worker_socket_directory.empty()) {
    add_volume(spec, kSocketVolume,
               host_path(place.agent->status.worker_socket_directory, "Directory"),
               std::string(kWorkerSocketMount));
  }
  if (worker.any_node) {
    place_in_cloud(spec, {});
    set_absent(spec, "automountServiceAccountToken", false);
    set_absent(spec, "enableServiceLinks", false);
    return spec;
  }
  place_on_edge(spec, place);
  return spec;
}

// The user's inputs and the place of the files: only a change of these replaces the pod. A member
// added by a newer build must be omitted when empty; otherwise that build would replace every pod.
Json request_of(const Job& job, const Worker& worker, const PodPlace& place) {
  Json request = Json::object();
  if (!place.node.empty()) request.set("node", place.node);
  const bool edge = worker.layer == Worker::Layer::kEdge;
  if (worker.pods == Worker::Pods::kServer) {
    request.set("server", worker.request);
  } else {
    request.set("spec", worker.pod_spec);
    for (const char* member : {"labels", "annotations"}) {
      if (!worker.pod_metadata[member].empty()) request.set(member, worker.pod_metadata[member]);
    }
    if (worker.model) request.set("model", worker.model->name);
    if (!place.model.path.empty()) request.set("path", place.model.path);
    if (worker.has_output) request.set("output", true);
    for (const auto& [name, value] : worker.variables) request["variables"].set(name, value);
    for (const std::string& path : worker.data) request.make("data").push_back(path);
    for (const Worker::Mount& mount : worker.mounts)
      request.make("mounts").set(mount.path, Json::array({mount.directory, mount.revision}));
    if (!edge) {
      request.set("port", bind_port(worker));
      if (!worker.node_name.empty()) request.set("nodeName", worker.node_name);
      if (worker.selector) request.set("selector", selector_terms(*worker.selector));
    }
  }
  if (edge && place.agent != nullptr && worker.model && worker.model->fetched())
    request.set("files", directory_on(job, worker, *place.agent));
  return request;
}

Json assigned_to(const Worker& worker, const PodPlace& place) {
  Json assigned = Json::object();
  if (worker.pods == Worker::Pods::kServer) return assigned;  // the server follows its files
  if (worker.model) {
    assigned.set("model", Json::object({{"version", place.model.version},
                                        {"sha256", place.model.sha256},
                                        {"url", place.model.url}}));
  }
  if (worker.hard_example_mining) {
    assigned.set("mining",
                 Json::object({{"name", worker.hard_example_mining->name},
                               {"parameters", worker.hard_example_mining->parameters_to_json()}}));
  }
  if (worker.cloud_url) assigned.set("cloud", *worker.cloud_url);
  return assigned;
}

}  // namespace

Json worker_selector(const Job& job, const Worker& worker) {
  Json labels = Json::object();
  labels.set(kJobKindLabel, job.kind);
  labels.set(kJobLabel, job.metadata.name);
  labels.set(kWorkerLabel, worker.name);
  return labels;
}

Json job_labels(const Job& job, const Worker& worker) {
  Json labels = worker_selector(job, worker);
  labels.set(hosting::kManagedByLabel, "varda");
  return labels;
}

std::string model_path(const Worker& worker, const std::string& version) {
  if (!worker.model || !worker.model->fetched()) return "";
  const std::string directory = "/models/" + worker.model->name;
  return version.empty() ? directory : directory + "/" + version;
}

bool allows_path_of(const Worker& worker, const api::EdgeNode* node) {
  return node != nullptr && worker.model && !worker.model->path.empty() &&
         node->status.allows_path(worker.model->path);
}

std::optional<hosting::Problem> unmounted_model(const Worker& worker, const WorkerWorld& world) {
  if (worker.pods != Worker::Pods::kUsers || !worker.model || worker.model->path.empty()) return {};
  std::vector<std::string> nodes;
  if (worker.layer == Worker::Layer::kEdge) {
    nodes = nodes_of(worker, world.nodes).names;
  } else if (!worker.node_name.empty()) {
    nodes = {worker.node_name};
  }
  const auto refuses = std::find_if(nodes.begin(), nodes.end(), [&](const std::string& node) {
    return !allows_path_of(worker, world.edge_node(node).get());
  });
  if (!nodes.empty() && refuses == nodes.end()) return {};
  const std::string& path = worker.model->path;
  const auto covers = [&](const Json& mount) {
    std::string_view at = mount["mountPath"].as_string();
    while (at.size() > 1 && at.ends_with('/')) at.remove_suffix(1);
    return !at.empty() && path.starts_with(at) &&
           (path.size() == at.size() || at == "/" || path[at.size()] == '/');
  };
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : worker.pod_spec[list].as_array()) {
      const auto& mounts = container["volumeMounts"].as_array();
      if (std::any_of(mounts.begin(), mounts.end(), covers) ||
          names(container["env"], "name", "MODEL_URL"))
        return {};
    }
  }
  const std::string why = nodes.empty()
                              ? ", which Varda does not mount: "
                              : " of node " + *refuses +
                                    ", which is not below a directory that the node's agent allows "
                                    "(--allow-files-below): allow it, ";
  return hosting::Problem{
      std::string(kModelNotMounted),
      "Model " + worker.model->name + " names the path " + path + why +
          "mount it in the template of worker " + worker.name +
          ", set MODEL_URL there, or set the Model's url and sha256 to an archive"};
}

std::int64_t bind_port(const Worker& worker) {
  for (const Json& container : worker.pod_spec["containers"].as_array()) {
    for (const Json& port : container["ports"].as_array()) {
      if (const std::int64_t number = port["containerPort"].as_integer();
          number != 0 && port["protocol"].string_or("TCP") == "TCP")
        return number;
    }
  }
  return worker.service_port;
}

MadePod make_pod(const Job& job, const Worker& worker, const PodPlace& place,
                 const FetchProgram& fetch) {
  MadePod out;
  const bool edge = worker.layer == Worker::Layer::kEdge;
  if (worker.pods == Worker::Pods::kServer) {
    out.spec = worker.server_spec(
        place.agent == nullptr ? "" : directory_on(job, worker, *place.agent),
        place.agent == nullptr || place.agent->status.sample_root.empty()
            ? ""
            : place.agent->status.sample_root + "/" + worker_model_key(job, worker));
    place_on_edge(out.spec, place);
  } else {
    out.spec = users_spec(job, worker, place, fetch);
  }
  out.template_hash = hash_of(request_of(job, worker, place));
  out.assignment_hash = hash_of(assigned_to(worker, place));

  Json labels =
      worker.pod_metadata["labels"].is_object() ? worker.pod_metadata["labels"] : Json::object();
  labels.erase(hosting::kModelLabel);  // else the pod would count as a model's pod
  const Json identity = worker_selector(job, worker);
  for (const auto& [name, value] : identity.as_object()) labels.set(name, value);
  set_absent(labels, hosting::kManagedByLabel, "varda");
  if (edge) {
    // KubeEdge's admission (CHANGELOG-1.6) then leaves the pod on a disconnected node, regardless
    // of tolerations that others set.
    if (!worker.any_node) set_absent(labels, "app-offline.kubeedge.io", "autonomy");
    if (meta::check_label_value(place.node).empty()) labels.set(kWorkerNodeLabel, place.node);
  }
  out.metadata = Json::object({{"labels", std::move(labels)}});
  Json annotations = worker.pod_metadata["annotations"].is_object()
                         ? worker.pod_metadata["annotations"]
                         : Json::object();
  if (!place.model.version.empty() && worker.pods == Worker::Pods::kUsers)
    annotations.set(hosting::kVersionLabel, place.model.version);
  if (edge) {
    annotations.set(kTemplateHash, out.template_hash);
    annotations.set(kAssignmentHash, out.assignment_hash);
  }
  if (!annotations.empty()) out.metadata.set("annotations", std::move(annotations));
  return out;
}

PodOfJob make_pod_of_job(const Job& job, const Worker& worker, const std::string& pod,
                         const api::EdgeNode& agent) {
  const ModelOnNode model = worker.model ? model_on(job, worker, agent) : ModelOnNode{};
  MadePod made = make_pod(job, worker, {pod, agent.metadata.name, &agent, model}, {});
  return {job_labels(job, worker), std::move(made.metadata), std::move(made.spec),
          std::move(made.template_hash), std::move(made.assignment_hash)};
}

}  // namespace varda::controllers::workers
