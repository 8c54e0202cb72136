// Work that workers create for nodes.

#include <algorithm>
#include <set>

#include "controllers/workers/model_on_node.h"
#include "controllers/workers/pod_template.h"
#include "controllers/workers/workers.h"
#include "hosting/held_versions.h"
#include "hosting/labels.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::workers {

namespace {

constexpr std::size_t kNodeModelNameMax = 63;  // of EdgeNode.spec.models

bool runs_on(const Job& job, const Worker& worker, const hosting::NodeList& nodes,
             const std::string& node, const std::vector<PodPtr>& pods) {
  if (worker.layer != Worker::Layer::kEdge || worker.replicas == 0) return false;
  // A pod on a former node may serve until the pod in the new place does.
  if (std::any_of(pods.begin(), pods.end(), [&](const PodPtr& pod) {
        return pod->spec.node_name == node && is_worker_pod(job, worker, *pod);
      }))
    return true;
  const WorkerNodes where = nodes_of(worker, nodes);
  return std::binary_search(where.names.begin(), where.names.end(), node);
}

const api::EdgeModelVersion* find_version(const std::vector<api::EdgeModelVersion>& versions,
                                          const std::string& name) {
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [&](const auto& one) { return one.version == name; });
  return found == versions.end() ? nullptr : &*found;
}

// The model's archives, plus those that only the current work list has (a Model has only its latest
// archive).
std::vector<api::EdgeModelVersion> archives_on(const ResolvedModel& model,
                                               const api::EdgeModel* assigned) {
  std::vector<api::EdgeModelVersion> archives;
  if (assigned != nullptr) {
    for (const api::EdgeModelVersion& version : assigned->versions) {
      if (find_version(model.archives, version.version) == nullptr) archives.push_back(version);
    }
  }
  archives.insert(archives.end(), model.archives.begin(), model.archives.end());
  return archives;
}

// The version that each pod was made for: a user's worker has no server to report a loaded version.
std::set<std::string> versions_of_pods(const std::vector<PodPtr>& pods, const Job& job,
                                       const Worker& worker, const std::string& node) {
  std::set<std::string> versions;
  for (const PodPtr& pod : pods) {
    if (pod->spec.node_name != node || !is_worker_pod(job, worker, *pod)) continue;
    const auto version = pod->metadata.annotations.find(std::string(hosting::kVersionLabel));
    if (version != pod->metadata.annotations.end()) versions.insert(version->second);
  }
  return versions;
}

}  // namespace

ModelOnNode model_on(const Job& job, const Worker& worker, const api::EdgeNode& node) {
  const ResolvedModel& model = *worker.model;
  if (!model.fetched())
    return {model.version, model.url, "", true, allows_path_of(worker, &node) ? model.path : ""};
  const std::string key = worker_model_key(job, worker);
  const api::EdgeModelReport* report = node.status.find_model(key);
  if (report == nullptr || report->exposed.empty()) return {};
  ModelOnNode out{report->exposed, "", "", true};
  const api::EdgeVersionReport* version = report->find_version(report->exposed);
  const bool ready = version != nullptr && version->state == api::EdgeVersionReport::kReady;
  if (ready) out.sha256 = version->sha256;
  const api::EdgeModelVersion* archive = find_version(model.archives, report->exposed);
  if (version != nullptr && archive != nullptr)
    out.settled = ready && version->sha256 == archive->sha256;
  if (archive == nullptr) {
    if (const api::EdgeModel* assigned = node.spec.find_model(key))
      archive = find_version(assigned->versions, report->exposed);
  }
  if (archive != nullptr) out.url = archive->url;
  return out;
}

bool has_wanted_model(const Job& job, const Worker& worker, const api::EdgeNode& node) {
  const ModelOnNode model = model_on(job, worker, node);
  return model.version == worker.model->version && model.settled;
}

Json make_assignment(const Job& job, const Worker& worker, const ModelOnNode& on_node) {
  Json out = Json::object(
      {{"kind", job.kind},
       {"name", job.metadata.name},
       {"namespace", job.metadata.ns},
       {"role", worker.layer == Worker::Layer::kEdge && !worker.any_node ? "edge" : "cloud"}});
  if (worker.model) {
    Json model = Json::object(
        {{"name", worker.model->name}, {"version", on_node.version}, {"url", on_node.url}});
    const std::string path =
        on_node.path.empty() ? model_path(worker, on_node.version) : on_node.path;
    if (!path.empty()) model.set("path", path);
    if (!on_node.sha256.empty()) model.set("sha256", on_node.sha256);
    out.set("model", std::move(model));
  }
  if (worker.hard_example_mining) {
    out.set("hardExampleMining",
            Json::object({{"name", worker.hard_example_mining->name},
                          {"parameters", worker.hard_example_mining->parameters_to_json()}}));
  }
  if (worker.cloud_url) out.set("cloud", Json::object({{"url", *worker.cloud_url}}));
  for (const auto& [name, value] : worker.assignment.as_object()) out.set(name, value);
  return out;
}

std::optional<api::EdgeModel> model_for(const Job& job, const Worker& worker,
                                        const hosting::NodeList& nodes, const api::EdgeNode& node,
                                        const std::vector<PodPtr>& pods) {
  if (job.metadata.deleting() || !runs_on(job, worker, nodes, node.metadata.name, pods)) return {};
  const std::string key = worker_model_key(job, worker);
  if (!worker.model) {  // the present item stays for running pods
    const api::EdgeModel* assigned = node.spec.find_model(key);
    return assigned == nullptr ? std::nullopt : std::optional(*assigned);
  }
  if (!worker.model->fetched()) return {};
  const bool server = worker.pods == Worker::Pods::kServer;
  api::EdgeModel work;
  work.key = key;
  // modelName is for queries to our server. A user's worker has none, and the name of its Model may
  // be too long.
  if (worker.model->model_name.size() <= kNodeModelNameMax)
    work.model_name = worker.model->model_name;
  if (server) work.framework = worker.model->framework;  // a user's worker may read any layout
  work.target = worker.model->version;
  const auto archives = archives_on(*worker.model, node.spec.find_model(key));
  work.versions = hosting::versions_to_hold(key, archives, work.target, node);
  const auto used = versions_of_pods(pods, job, worker, node.metadata.name);
  for (const api::EdgeModelVersion& archive : archives) {
    if (used.contains(archive.version) && find_version(work.versions, archive.version) == nullptr)
      work.versions.push_back(archive);
  }
  if (!server) return work;
  work.joint = worker.joint;
  work.samples = worker.samples;
  for (const PodPtr& pod : pods) {
    if (pod->metadata.deleting() || pod->spec.node_name != node.metadata.name ||
        pod->status.pod_ip.empty())
      continue;
    if (!is_worker_pod(job, worker, *pod)) continue;
    // The pod's own port: with a changed port the pod would be replaced.
    std::int64_t port = worker.serving_port;
    bool https = false;
    for (const api::Container& container : pod->spec.containers) {
      if (!container.ports.empty()) port = container.ports.front().container_port;
      https = https || hosting::answers_https(container);
    }
    work.serving.emplace().url =
        hosting::with_scheme(hosting::http_url(pod->status.pod_ip, port), https);
    break;
  }
  return work;
}

std::vector<api::EdgeWorker> workers_for(const Job& job, const Worker& worker,
                                         const hosting::NodeList& nodes, const api::EdgeNode& node,
                                         const std::vector<PodPtr>& pods) {
  if (worker.pods != Worker::Pods::kUsers || job.metadata.deleting()) return {};
  if (!runs_on(job, worker, nodes, node.metadata.name, pods)) return {};
  ModelOnNode model;
  if (worker.model) model = model_on(job, worker, node);
  if (worker.model && model.version.empty())
    model = {worker.model->version, worker.model->url, "", true};
  std::vector<api::EdgeWorker> out;
  const std::int64_t replicas = worker.node_name.empty() ? 1 : worker.replicas;
  for (std::int64_t number = 0; number < replicas; ++number) {
    api::EdgeWorker one;
    one.key = job.metadata.ns + "/" + worker_pod_name(job, worker, node.metadata.name, number);
    one.uid = job.metadata.uid;
    one.owner = std::string(job.kind) + "/" + job.metadata.name;
    one.assignment = make_assignment(job, worker, model);
    one.uploads = worker.uploads;
    one.bucket = worker.bucket;
    one.streams = worker.streams;
    const api::EdgeWorker* assigned = node.spec.find_worker(one.key);
    // While the model is unknown or being installed, the previous assignment stays, to avoid an
    // intermediate change.
    if (assigned != nullptr && assigned->uid == one.uid &&
        ((!worker.model && worker.needs_model) || !model.settled))
      one.assignment = assigned->assignment;
    out.push_back(std::move(one));
  }
  return out;
}

std::string stream_listener(const Job& job, const Worker& worker, const api::EdgeNode& node,
                            std::int64_t number, std::string_view stream) {
  const std::string key =
      job.metadata.ns + "/" + worker_pod_name(job, worker, node.metadata.name, number);
  const api::EdgeWorkerReport* report = node.status.find_worker(key);
  if (report == nullptr || report->uid != job.metadata.uid) return "";
  const api::EdgeStreamReport* found = report->find_stream(stream);
  return found == nullptr ? "" : found->address;
}

}  // namespace varda::controllers::workers
