// What workers give nodes to do.

#include <algorithm>
#include <set>

#include "controllers/inferencemodel/held_versions.h"
#include "controllers/inferencemodel/plan.h"
#include "controllers/inferencemodel/pod_problem.h"
#include "controllers/workers/model_on_node.h"
#include "controllers/workers/pod_template.h"
#include "controllers/workers/workers.h"

namespace varda::controllers {

namespace {

bool runs_on(const Worker& worker, const NodeList& nodes, const std::string& node) {
  if (worker.layer != Worker::Layer::kEdge || worker.replicas == 0) return false;
  const WorkerNodes where = nodes_of(worker, nodes);
  return std::binary_search(where.names.begin(), where.names.end(), node);
}

const api::EdgeModelVersion* find_version(const std::vector<api::EdgeModelVersion>& versions, const std::string& name) {
  const auto found = std::find_if(versions.begin(), versions.end(), [&](const auto& one) { return one.version == name; });
  return found == versions.end() ? nullptr : &*found;
}

// The model's archives, and of what the node was told before what pods there were made for or have: a Model knows only its last
// one.
std::vector<api::EdgeModelVersion> archives_on(const ResolvedModel& model, const std::string& key, const api::EdgeNode& node,
                                               const std::vector<PodPtr>& pods, const Job& job, const Worker& worker) {
  std::vector<api::EdgeModelVersion> archives;
  std::set<std::string> used;
  if (const api::EdgeModelReport* report = node.status.find_model(key)) {
    used.insert(report->exposed);
    if (report->serving) used.insert(report->serving->version);
  }
  for (const PodPtr& pod : pods) {
    if (pod->spec.node_name != node.metadata.name || !is_worker_pod(job, worker, *pod)) continue;
    const auto version = pod->metadata.annotations.find(std::string(kVersionLabel));
    if (version != pod->metadata.annotations.end()) used.insert(version->second);
  }
  if (const api::EdgeModel* told = node.spec.find_model(key)) {
    for (const api::EdgeModelVersion& version : told->versions) {
      if (used.contains(version.version) && find_version(model.archives, version.version) == nullptr) archives.push_back(version);
    }
  }
  archives.insert(archives.end(), model.archives.begin(), model.archives.end());
  return archives;
}

}  // namespace

ModelOnNode model_on(const Job& job, const Worker& worker, const api::EdgeNode& node) {
  const ResolvedModel& model = *worker.model;
  if (!model.fetched()) return {model.version, "", true};
  const api::EdgeModelReport* report = node.status.find_model(worker_model_key(job, worker));
  if (report == nullptr || report->exposed.empty()) return {};
  ModelOnNode out{report->exposed, "", true};
  const api::EdgeVersionReport* version = report->find_version(report->exposed);
  if (version == nullptr) return out;
  const api::EdgeModelVersion* archive = find_version(model.archives, report->exposed);
  if (version->state == api::EdgeVersionReport::kReady) out.sha256 = version->sha256;
  out.settled = archive == nullptr || (version->state == api::EdgeVersionReport::kReady && version->sha256 == archive->sha256);
  return out;
}

Json make_assignment(const Job& job, const Worker& worker, const std::string& version) {
  Json out = Json::object({{"kind", job.kind},
                           {"name", job.metadata.name},
                           {"namespace", job.metadata.ns},
                           {"role", worker.layer == Worker::Layer::kEdge ? "edge" : "cloud"}});
  if (worker.model) {
    Json model = Json::object({{"name", worker.model->name}, {"version", version}, {"url", worker.model->url}});
    if (const std::string path = model_path(worker, version); !path.empty()) model.set("path", path);
    out.set("model", std::move(model));
  }
  if (worker.hard_example_mining) {
    out.set("hardExampleMining", Json::object({{"name", worker.hard_example_mining->name},
                                               {"parameters", worker.hard_example_mining->parameters_to_json()}}));
  }
  if (worker.cloud_url) out.set("cloud", Json::object({{"url", *worker.cloud_url}}));
  return out;
}

std::optional<api::EdgeModel> model_for(const Job& job, const Worker& worker, const NodeList& nodes, const api::EdgeNode& node,
                                        const std::vector<PodPtr>& pods) {
  if (job.metadata.deleting() || !runs_on(worker, nodes, node.metadata.name)) return {};
  const std::string key = worker_model_key(job, worker);
  if (!worker.model) {  // What is there stays for whoever runs on it.
    const api::EdgeModel* told = node.spec.find_model(key);
    return told == nullptr ? std::nullopt : std::optional(*told);
  }
  if (!worker.model->fetched()) return {};
  const bool server = worker.pods == Worker::Pods::kServer;
  api::EdgeModel work;
  work.key = key;
  work.model_name = worker.model->model_name;
  if (server) work.framework = worker.model->framework;  // a user's worker reads what layout it likes
  work.target = worker.model->version;
  const auto archives = archives_on(*worker.model, key, node, pods, job, worker);
  work.versions = versions_to_hold(key, archives, work.target, node);
  for (const api::EdgeModelVersion& archive : archives) {
    // Of a user's worker no server says what it has loaded.
    if (server || find_version(work.versions, archive.version) != nullptr) continue;
    const bool used = find_version(worker.model->archives, archive.version) == nullptr;
    if (used) work.versions.push_back(archive);
  }
  if (!server) return work;
  work.cascade = worker.cascade;
  for (const PodPtr& pod : pods) {
    if (pod->metadata.deleting() || pod->spec.node_name != node.metadata.name || pod->status.pod_ip.empty()) continue;
    if (!is_worker_pod(job, worker, *pod)) continue;
    // The port the pod was made with: a changed one makes another pod.
    std::int64_t port = worker.serving_port;
    for (const api::Container& container : pod->spec.containers) {
      if (!container.ports.empty()) port = container.ports.front().container_port;
    }
    work.serving.emplace().url = http_url(pod->status.pod_ip, port);
    break;
  }
  return work;
}

std::vector<api::EdgeWorker> workers_for(const Job& job, const Worker& worker, const NodeList& nodes, const api::EdgeNode& node) {
  if (worker.pods != Worker::Pods::kUsers || job.metadata.deleting() || !runs_on(worker, nodes, node.metadata.name)) return {};
  std::string version;
  bool settled = true;
  if (worker.model) {
    const ModelOnNode there = model_on(job, worker, node);
    version = there.version.empty() ? worker.model->version : there.version;
    settled = there.settled;
  }
  std::vector<api::EdgeWorker> out;
  const std::int64_t replicas = worker.node_name.empty() ? 1 : worker.replicas;
  for (std::int64_t number = 0; number < replicas; ++number) {
    api::EdgeWorker one;
    one.key = job.metadata.ns + "/" + worker_pod_name(job, worker, node.metadata.name, number);
    one.uid = job.metadata.uid;
    one.owner = std::string(job.kind) + "/" + job.metadata.name;
    one.assignment = make_assignment(job, worker, version);
    const api::EdgeWorker* told = node.spec.find_worker(one.key);
    // A word about a model that nobody knows, or that is on its way, would be another one in a moment.
    if (told != nullptr && told->uid == one.uid && (!worker.model || !settled)) one.assignment = told->assignment;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace varda::controllers
