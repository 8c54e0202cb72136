#include "controllers/trainingmodel/job.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "codec/digest.h"
#include "controllers/runs/runs.h"
#include "controllers/trainingmodel/plan.h"
#include "hosting/labels.h"
#include "runtime/last_applied.h"

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModel;
using runs::kAgentContainer;

constexpr std::string_view kDataDirectory = "/var/lib/varda";
constexpr std::string_view kTokenMount = "/var/run/varda/join";
constexpr const char* kNodeVolume = "varda-node";
constexpr const char* kTokenVolume = "varda-join";
constexpr const char* kInstallContainer = "varda-agent-install";
constexpr std::string_view kTokenIdAnnotation = "edgeai.io/job-token-id";
constexpr std::int64_t kOurUser = 65532;       // of our images
constexpr std::int64_t kTokenFileMode = 0440;  // the agent reads it as the pod's group

std::string token_secret_name(const TrainingModel& training, const std::string& token_id) {
  return training.metadata.name + "-join-" + token_id;
}

Json identity_of(const TrainingModel& training) {
  Json annotations = Json::object();
  annotations.set(api::kJobAnnotation, training.metadata.key().str());
  annotations.set(api::kJobKindAnnotation, TrainingModel::resource().kind);
  annotations.set(api::kJobUidAnnotation, training.metadata.uid);
  return annotations;
}

/// The agent's data directory is a volume of the pod, not of a machine: each volume with a path
/// below it becomes a part of that volume.
void use_node_volume(Json& spec) {
  const std::string below = std::string(kDataDirectory) + "/";
  Json volumes = Json::array();
  std::vector<std::pair<std::string, std::string>> parts;  // name, path in the data directory
  for (const Json& volume : std::as_const(spec)["volumes"].as_array()) {
    const std::string& path = volume.at("hostPath/path").as_string();
    if (!path.starts_with(below)) {
      volumes.push_back(volume);
      continue;
    }
    parts.emplace_back(volume["name"].as_string(), path.substr(below.size()));
  }
  volumes.push_back(Json::object({{"name", kNodeVolume}, {"emptyDir", Json::object()}}));
  spec.set("volumes", std::move(volumes));
  for (const char* list : {"initContainers", "containers"}) {
    Json* const containers = spec.find(list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->array_items()) {
      Json* const mounts = container.find("volumeMounts");
      if (mounts == nullptr || !mounts->is_array()) continue;
      for (Json& mount : mounts->array_items()) {
        const std::string name = std::as_const(mount)["name"].as_string();
        for (const auto& [part, path] : parts) {
          if (part != name) continue;
          mount.set("name", kNodeVolume);
          mount.set("subPath", path);
        }
      }
    }
  }
}

void mount_claims(Json& spec, const std::vector<JobVolume>& volumes) {
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    const std::string name = "varda-claim-" + std::to_string(i);
    spec.make("volumes").push_back(
        Json::object({{"name", name},
                      {"persistentVolumeClaim",
                       Json::object({{"claimName", volumes[i].claim}, {"readOnly", true}})}}));
    for (Json& container : spec.make("containers").array_items()) {
      container.make("volumeMounts")
          .push_back(Json::object(
              {{"name", name}, {"mountPath", volumes[i].directory()}, {"readOnly", true}}));
    }
  }
}

Json agent_container(const char* name, const char* until, const std::string& node,
                     const hosting::Options& options) {
  Json args = Json::array({"agent", "--node", node, "--gateway", options.jobs->gateway_url,
                           "--join-token-file", std::string(kTokenMount) + "/token", "--data-dir",
                           std::string(kDataDirectory), "--peer-listen", "off", "--until", until});
  for (const std::string& argument : options.fetch_arguments) args.push_back(argument);
  return Json::object(
      {{"name", name},
       {"image", options.jobs->agent_image},
       {"imagePullPolicy", "IfNotPresent"},
       {"args", std::move(args)},
       {"securityContext", hosting::restricted_container()},
       {"terminationMessagePolicy", "FallbackToLogsOnError"},
       {"volumeMounts", Json::array({Json::object({{"name", kNodeVolume},
                                                   {"mountPath", std::string(kDataDirectory)}}),
                                     Json::object({{"name", kTokenVolume},
                                                   {"mountPath", std::string(kTokenMount)},
                                                   {"readOnly", true}})})}});
}

void add_agent(Json& spec, const TrainingModel& training, const std::string& node,
               const api::JobToken& token, const hosting::Options& options) {
  spec.make("volumes").push_back(
      Json::object({{"name", kTokenVolume},
                    {"secret", Json::object({{"secretName", token_secret_name(training, token.id)},
                                             {"defaultMode", kTokenFileMode}})}}));
  // First, because other init containers may read the model.
  Json init = Json::array({agent_container(kInstallContainer, "installed", node, options)});
  for (const Json& container : std::as_const(spec)["initContainers"].as_array())
    init.push_back(container);
  spec.set("initContainers", std::move(init));
  spec.make("containers").push_back(agent_container(kAgentContainer, "unassigned", node, options));
}

/// The files of the agent belong to the user and group of our images.
void secure(Json& spec, bool built_in) {
  Json& context = spec.make("securityContext");
  const auto set_absent = [&context](const char* member, Json value) {
    if (!context.contains(member)) context.set(member, std::move(value));
  };
  if (!context.is_object()) context = Json::object();
  set_absent("fsGroup", kOurUser);
  if (!built_in) return;
  set_absent("runAsNonRoot", true);
  set_absent("runAsUser", kOurUser);
  set_absent("runAsGroup", kOurUser);
  set_absent("seccompProfile", Json::object({{"type", "RuntimeDefault"}}));
}

bool has_ended(const api::Job& job) {
  return std::any_of(
      job.status.conditions.begin(), job.status.conditions.end(),
      [](const api::CoreCondition& one) {
        return (one.type == "Complete" || one.type == "Failed" || one.type == "FailureTarget") &&
               one.status == "True";
      });
}

const std::string& job_annotation(const api::Job& job, std::string_view name) {
  static const std::string kNone;
  const auto found = job.metadata.annotations.find(std::string(name));
  return found == job.metadata.annotations.end() ? kNone : found->second;
}

Json unchanged_job(const api::Job& present) {
  Json out = runtime::last_applied(present.metadata);
  if (out.is_null()) out = present.to_json();
  out.erase("status");
  out.make("metadata").set("uid", present.metadata.uid);
  return out;
}

}  // namespace

bool becomes_job(const TrainingModel& training, const hosting::Options& options) {
  return options.jobs.has_value() && training.spec.without_node();
}

bool has_job_node(const TrainingModel& training) {
  return training.spec.without_node() && !training.metadata.uid.empty() &&
         training.status.node == api::job_node_name(training.metadata.uid);
}

std::shared_ptr<const api::Node> job_node(const TrainingModel& training) {
  auto node = std::make_shared<api::Node>();
  node->metadata.name = api::job_node_name(training.metadata.uid);
  node->metadata.labels[std::string(hosting::kLayerLabel)] = "cloud";
  return node;
}

Json edge_node_of(const TrainingModel& training, const hosting::AgentToken& token) {
  Json annotations = identity_of(training);
  annotations.set(api::kJobTokenAnnotation, api::JobToken{token.id, token.secret_sha256}.text());
  return Json::object(
      {{"apiVersion", api::EdgeNode::resource().api_version()},
       {"kind", api::EdgeNode::resource().kind},
       {"metadata", Json::object({{"name", api::job_node_name(training.metadata.uid)},
                                  {"annotations", std::move(annotations)}})},
       {"spec", Json::object()}});
}

Json secret_of(const TrainingModel& training, const hosting::AgentToken& token) {
  const meta::Resource& kind = TrainingModel::resource();
  Json labels = Json::object();
  labels.set(hosting::kManagedByLabel, "varda");
  // Deleted with the run. Without the EdgeNode its token admits no agent.
  const Json owner = Json::object({{"apiVersion", kind.api_version()},
                                   {"kind", kind.kind},
                                   {"name", training.metadata.name},
                                   {"uid", training.metadata.uid}});
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Secret"},
                       {"metadata", Json::object({{"name", token_secret_name(training, token.id)},
                                                  {"namespace", training.metadata.ns},
                                                  {"labels", std::move(labels)},
                                                  {"ownerReferences", Json::array({owner})}})},
                       {"type", "Opaque"},
                       {"data", Json::object({{"token", codec::base64(token.text)}})}});
}

api::EdgeNode agent_of_job(const workers::Job& run, const std::string& node,
                           const std::vector<const workers::Worker*>& files) {
  const std::string root(kDataDirectory);
  api::EdgeNode agent;
  agent.metadata.name = node;
  agent.status.model_root = root + "/models";
  agent.status.worker_root = root + "/workers";
  agent.status.worker_socket_directory = root + "/worker";
  agent.status.worker_user = kOurUser;
  for (const workers::Worker* worker : files) {
    if (!worker->model || worker->model->archive() == nullptr) continue;
    const api::EdgeModelVersion& archive = *worker->model->archive();
    api::EdgeModelReport& model = agent.status.models.emplace_back();
    model.key = workers::worker_model_key(run, *worker);
    model.exposed = archive.version;
    api::EdgeVersionReport& version = model.versions.emplace_back();
    version.version = archive.version;
    version.state = api::EdgeVersionReport::kReady;
    version.sha256 = archive.sha256;
  }
  return agent;
}

std::optional<Json> job_of_run(const TrainingModel& training, const JobRequest& request,
                               const hosting::Options& options, const api::Job* present) {
  const workers::Job run = job_of(training);
  const std::string node = api::job_node_name(training.metadata.uid);
  std::vector<const workers::Worker*> files{&request.worker};
  for (const workers::Worker& one : request.files) files.push_back(&one);
  const api::EdgeNode agent = agent_of_job(run, node, files);
  workers::PodOfJob made = workers::make_pod_of_job(
      run, request.worker, workers::worker_pod_name(run, request.worker, node, 0), agent);
  Json& spec = made.spec;
  use_node_volume(spec);
  mount_claims(spec, request.volumes);
  add_agent(spec, training, node, request.token, options);
  secure(spec, training.spec.built_in());

  Json annotations = Json::object();
  annotations.set(workers::kTemplateHash, made.template_hash);
  annotations.set(workers::kAssignmentHash, made.assignment_hash);
  annotations.set(kTokenIdAnnotation, request.token.id);
  // Kubernetes counts each restart of each container, the agent's too, and ends a Job when the
  // number reaches its limit. The run counts first: it ends above its limit.
  Json job = Json::object({{"backoffLimit", training.spec.backoff_limit + 1},
                           {"suspend", false},
                           {"template", Json::object({{"metadata", std::move(made.metadata)},
                                                      {"spec", std::move(spec)}})}});
  if (const std::int64_t limit = training.spec.deadline_seconds(); limit > 0)
    job.set("activeDeadlineSeconds", limit);
  if (present != nullptr) {
    const Json applied = runtime::last_applied(present->metadata);
    if (job_annotation(*present, workers::kTemplateHash) != made.template_hash ||
        job_annotation(*present, workers::kAssignmentHash) != made.assignment_hash ||
        job_annotation(*present, kTokenIdAnnotation) != request.token.id)
      return {};
    // The API server accepts no other template, also after an upgrade of the operator.
    if (applied.at("spec/template").is_object()) job.set("template", applied.at("spec/template"));
  }
  return Json::object({{"apiVersion", api::Job::resource().api_version()},
                       {"kind", api::Job::resource().kind},
                       {"metadata", Json::object({{"name", training.metadata.name},
                                                  {"namespace", training.metadata.ns},
                                                  {"labels", std::move(made.job_labels)},
                                                  {"annotations", std::move(annotations)}})},
                       {"spec", std::move(job)}});
}

Json suspended(const api::Job& present) {
  Json out = unchanged_job(present);
  if (!has_ended(present)) out.make("spec").set("suspend", true);
  return out;
}

workers::PodPtr newest(const std::vector<workers::PodPtr>& pods) {
  workers::PodPtr out;
  const auto rank = [](const api::Pod& pod) {
    return std::tuple(!pod.metadata.deleting(), pod.metadata.creation_timestamp, pod.metadata.name);
  };
  for (const workers::PodPtr& pod : pods)
    if (out == nullptr || rank(*out) < rank(*pod)) out = pod;
  return out;
}

std::optional<hosting::Problem> job_failure(const api::Job& job) {
  for (const char* type : {"Failed", "FailureTarget"}) {
    const api::CoreCondition* failed = api::find_condition(job.status.conditions, type);
    if (failed == nullptr || failed->status != "True") continue;
    return hosting::Problem{
        failed->reason.empty() ? "JobFailed" : failed->reason,
        failed->message.empty() ? "Kubernetes ended the Job" : "Job: " + failed->message};
  }
  return {};
}

bool trainer_succeeded(const api::Pod& pod) {
  bool any = false;
  for (const api::ContainerStatus& container : pod.status.container_statuses) {
    if (container.name == kAgentContainer) continue;
    const Json& ended = container.state["terminated"];
    if (!ended.is_object() || ended["exitCode"].as_integer(-1) != 0) return false;
    any = true;
  }
  return any;
}

bool waits_for_agent_only(const api::Pod& pod) {
  if (pod.spec.restart_policy != "Never" || pod.ended() || pod.metadata.deleting()) return false;
  bool failed = false;
  for (const api::ContainerStatus& container : pod.status.container_statuses) {
    if (container.name == kAgentContainer) continue;
    if (!container.state["terminated"].is_object()) return false;
    failed = failed || runs::failed_now(container);
  }
  return failed;
}

bool installs(const api::Pod& pod) {
  const auto& containers = pod.status.init_container_statuses;
  return std::any_of(containers.begin(), containers.end(),
                     [](const auto& container) { return container.state["running"].is_object(); });
}

}  // namespace varda::controllers::trainingmodel
