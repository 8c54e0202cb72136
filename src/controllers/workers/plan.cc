// The objects that should exist for a worker.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "api/core/service.h"
#include "controllers/workers/model_on_node.h"
#include "controllers/workers/pod_template.h"
#include "controllers/workers/workers.h"
#include "hosting/node_limits.h"
#include "hosting/pod_problem.h"
#include "runtime/last_applied.h"
#include "runtime/writer.h"

namespace varda::controllers::workers {

namespace {

const std::string& annotation(const meta::ObjectMeta& metadata, std::string_view name) {
  static const std::string none;
  const auto found = metadata.annotations.find(std::string(name));
  return found == metadata.annotations.end() ? none : found->second;
}

Json object_of(const meta::Resource& resource, const std::string& name, const std::string& ns,
               Json metadata, Json spec) {
  metadata.set("name", name);
  metadata.set("namespace", ns);
  return Json::object({{"apiVersion", resource.api_version()},
                       {"kind", resource.kind},
                       {"metadata", std::move(metadata)},
                       {"spec", std::move(spec)}});
}

/// A desired pod and its evaluation.
struct Slot {
  WorkerPod* pod;
  std::optional<Json> wanted;  // the pod as created now; absent: impossible, see pod->problem
  bool same = false;           // the present pod has the same inputs
  bool replace = false;        // `wanted` replaces the present pod
  bool port_lost = false;      // another owner has its port
};

class EdgePlan {
 public:
  EdgePlan(const Job& job, const Worker& worker, const WorkerWorld& world)
      : job_(job), worker_(worker), world_(world) {}

  WorkerPlan make() {
    WorkerNodes nodes = nodes_of(worker_, world_.nodes);
    out_.problem = std::move(nodes.problem);
    for (const PodPtr& pod : world_.pods) {
      if (is_worker_pod(job_, worker_, *pod)) have_.emplace(pod->metadata.name, pod);
    }
    const std::int64_t replicas =
        worker_.node_name.empty() ? std::min<std::int64_t>(worker_.replicas, 1) : worker_.replicas;
    for (const std::string& node : nodes.names) {
      for (std::int64_t number = 0; number < replicas; ++number) {
        WorkerPod& pod = out_.pods.emplace_back();
        pod.name = worker_pod_name(job_, worker_, node, number);
        pod.node = node;
        if (const auto found = have_.find(pod.name); found != have_.end()) pod.pod = found->second;
      }
    }
    std::map<std::string, std::int64_t> seen;  // by node so far
    for (WorkerPod& pod : out_.pods) slots_.push_back(look(pod, seen[pod.node]++));
    take_turns();
    for (Slot& slot : slots_) write(slot);
    for (const WorkerPod& pod : out_.pods) {
      if (!out_.problem && pod.problem) out_.problem = pod.problem;
    }
    keep_leaving(nodes.names);
    return std::move(out_);
  }

 private:
  // Builds the pod for the node, or sets the problem that prevents it.
  Slot look(WorkerPod& pod, std::int64_t number) {
    Slot slot{&pod, {}};
    const EdgeNodePtr agent = world_.edge_node(pod.node);
    const auto no = [&](std::string reason, std::string message) {
      pod.problem = hosting::Problem{std::move(reason), std::move(message)};
      return slot;
    };
    if (agent == nullptr || agent->status.model_root.empty())
      return no("AgentMissing",
                "no agent has reported from node " + pod.node + " yet: start `varda agent` there");
    if (!worker_.model && worker_.needs_model)
      return no("ModelPending", "the model of worker " + worker_.name + " is not resolved yet");
    if (auto full = no_room(*agent, pod.name)) {
      pod.problem = std::move(full);
      return slot;
    }
    const ModelOnNode model = worker_.model ? model_on(job_, worker_, *agent) : ModelOnNode{};
    if (worker_.model && model.version.empty())
      return no("WaitingForNode", "waiting for node " + pod.node + " to have version " +
                                      worker_.model->version + " of model " + worker_.model->name);
    if (worker_.cloud_url && worker_.cloud_url->empty())
      return no("CloudAddressPending", "the cloud worker has no address yet");
    MadePod made = make_pod(job_, worker_, {pod.name, pod.node, agent.get(), model},
                            {world_.fetch_image, world_.fetch_arguments});
    if (auto problem = port_problem(pod.node, made.spec, number)) {
      pod.problem = std::move(problem);
      slot.port_lost = true;
      return slot;
    }
    if (pod.pod != nullptr) {
      const bool follows = follows_assignment(*agent, pod.name);
      slot.same =
          annotation(pod.pod->metadata, kTemplateHash) == made.template_hash &&
          (follows || annotation(pod.pod->metadata, kAssignmentHash) == made.assignment_hash ||
           !model.settled);
      // While an archive under the same version name is being installed, the pod's archive is
      // unknown.
      if (slot.same && !follows && !model.settled)
        made.metadata.make("annotations")
            .set(kAssignmentHash, annotation(pod.pod->metadata, kAssignmentHash));
    }
    slot.wanted = object_of(api::Pod::resource(), pod.name, job_.metadata.ns,
                            std::move(made.metadata), std::move(made.spec));
    return slot;
  }

  // The node needs items for the model's files and for the pod's token; a full work list has room
  // for neither.
  std::optional<hosting::Problem> no_room(const api::EdgeNode& agent,
                                          const std::string& pod) const {
    if (worker_.model && worker_.model->fetched()) {
      if (auto full = hosting::no_room_for_model(agent, worker_model_key(job_, worker_)))
        return full;
    }
    if (worker_.pods != Worker::Pods::kUsers) return {};
    return hosting::no_room_for_worker(agent, job_.metadata.ns + "/" + pod, job_.metadata.uid);
  }

  std::optional<hosting::Problem> port_problem(const std::string& node, const Json& spec,
                                               std::int64_t number) const {
    for (const hosting::HostPort& port : hosting::host_ports(spec)) {
      const hosting::PortClaim claim{node,
                                     port.port,
                                     port.protocol,
                                     std::string(job_.kind) + " " + job_.metadata.key().str(),
                                     job_.metadata.uid,
                                     job_.metadata.creation_timestamp,
                                     holds_port(job_, worker_, world_.pods, node, port)};
      const std::string which = "port " + std::to_string(port.port) + " of node " + node;
      if (number > 0) {
        return hosting::Problem{"PortInUse",
                                which +
                                    " belongs to the worker's first replica: replicas on one "
                                    "node need different ports"};
      }
      if (const hosting::PortClaim* holder = port_holder(claim, world_.claims))
        return hosting::Problem{"PortInUse", which + " " + hosting::holder_text(*holder) +
                                                 ": change the port or the node"};
    }
    return {};
  }

  bool follows_assignment(const api::EdgeNode& agent, const std::string& pod) const {
    if (worker_.pods != Worker::Pods::kUsers) return true;
    const std::string key = job_.metadata.ns + "/" + pod;
    for (const api::EdgeWorkerReport& report : agent.status.workers) {
      if (report.key != key || report.uid != job_.metadata.uid) continue;
      const auto& capabilities = report.report.at("registered/capabilities").as_array();
      return std::any_of(capabilities.begin(), capabilities.end(),
                         [](const Json& one) { return one.as_string() == kAssignmentCapability; });
    }
    return false;
  }

  std::optional<hosting::Problem> lost(const std::string& node) const {
    const EdgeNodePtr agent = world_.edge_node(node);
    return hosting::out_of_reach(node, hosting::find_node(world_.nodes, node), agent.get());
  }

  // Selects the outdated pods to replace now.
  void take_turns() {
    bool all_work = true;
    std::vector<Slot*> waiting;
    for (Slot& slot : slots_) {
      WorkerPod& worker_pod = *slot.pod;
      if (worker_pod.pod == nullptr || worker_pod.pod->metadata.deleting()) {
        if (slot.wanted) all_work = false;
        continue;
      }
      const api::Pod& pod = *worker_pod.pod;
      if (!pod.spec.node_name.empty() &&
          pod.spec.node_name != worker_pod.node) {  // the pod is on a wrong node
        slot.replace = slot.wanted.has_value();
        all_work = false;
        continue;
      }
      auto node_problem = lost(worker_pod.node);
      if (node_problem) {
        worker_pod.outdated = slot.wanted && !slot.same;
        worker_pod.problem = std::move(node_problem);
        slot.port_lost = false;
        continue;  // it neither counts nor is replaced
      }
      if (pod.ended()) out_.ended.push_back(worker_pod.pod);
      if (slot.same) {
        if (!pod.ready()) all_work = false;
        // The pod has not started and serves no client; the new pod may fix what it lacks.
        const bool fresh = pod.status.phase.empty() || pod.status.phase == "Pending";
        slot.replace = fresh && runtime::without_metadata(runtime::last_applied(pod.metadata)) !=
                                    runtime::without_metadata(*slot.wanted);
        continue;
      }
      if (!slot.wanted) continue;
      worker_pod.outdated = true;
      if (pod.ready()) {
        waiting.push_back(&slot);
        continue;
      }
      slot.replace = true;
      all_work = false;
    }
    for (Slot* slot : waiting) {
      if (all_work) {
        slot->replace = true;
        all_work = false;
      } else {
        slot->pod->problem = hosting::Problem{
            "RollingOut", "pod " + slot->pod->name + " is replaced when the others are Ready"};
      }
    }
  }

  // Pods on former nodes serve until as many new pods do. Two exceptions are removed at once: pods
  // of a removed node, and all pods if a selector matches nothing, which takes the worker off all
  // nodes.
  void keep_leaving(const std::vector<std::string>& nodes) {
    if (worker_.replicas == 0 || (slots_.empty() && worker_.node_name.empty())) return;
    std::vector<PodPtr> leaving;
    for (const auto& [name, pod] : have_) {
      const std::string& node = pod->spec.node_name;
      if (pod->metadata.deleting() || pod->ended() ||
          std::binary_search(nodes.begin(), nodes.end(), node))
        continue;
      if (hosting::find_node(world_.nodes, node) != nullptr) leaving.push_back(pod);
    }
    const auto works = [&](const Slot& slot) {
      const PodPtr& pod = slot.pod->pod;
      return pod != nullptr && !pod->metadata.deleting() && pod->ready() &&
             pod->spec.node_name == slot.pod->node && !lost(slot.pod->node);
    };
    const auto working =
        static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), works));
    if (!slots_.empty() && working >= std::min(leaving.size(), slots_.size())) return;
    for (PodPtr& pod : leaving) {
      out_.objects.push_back(unchanged_pod(*pod));
      WorkerPod& leaving_pod = out_.pods.emplace_back();  // slots_ no longer point into out_.pods
      leaving_pod.name = pod->metadata.name;
      leaving_pod.node = pod->spec.node_name;
      leaving_pod.leaving = true;
      leaving_pod.pod = std::move(pod);
    }
  }

  void write(Slot& slot) {
    WorkerPod& worker_pod = *slot.pod;
    const api::Pod* pod = worker_pod.pod.get();
    if (pod != nullptr && pod->ended() && !slot.replace && !worker_pod.problem) {
      hosting::Problem problem =
          hosting::pod_problem(*pod).value_or(hosting::Problem{"PodFailed", "the pod has ended"});
      while (!problem.message.empty() &&
             (problem.message.back() == '.' || problem.message.back() == ' '))
        problem.message.pop_back();
      problem.message += "; the pod is replaced after a back-off";
      worker_pod.problem = std::move(problem);
    }
    if (pod == nullptr || slot.replace || pod->metadata.deleting()) {
      if (slot.wanted) out_.objects.push_back(std::move(*slot.wanted));
      return;
    }
    if (slot.port_lost) return;
    if (!slot.same || !slot.wanted) {
      // The pod may stay on its own node only.
      if (pod->spec.node_name.empty() || pod->spec.node_name == worker_pod.node)
        out_.objects.push_back(unchanged_pod(*pod));
      return;
    }
    const Json applied = runtime::last_applied(pod->metadata);
    if (runtime::without_metadata(applied) == runtime::without_metadata(*slot.wanted)) {
      out_.objects.push_back(std::move(*slot.wanted));
      return;
    }
    Json kept = unchanged_pod(*pod);
    Json metadata = std::as_const(*slot.wanted)["metadata"];
    metadata.set("uid", pod->metadata.uid);
    kept.set("metadata", std::move(metadata));
    out_.objects.push_back(std::move(kept));
  }

  const Job& job_;
  const Worker& worker_;
  const WorkerWorld& world_;
  std::map<std::string, PodPtr> have_;
  std::vector<Slot> slots_;
  WorkerPlan out_;
};

// ---- cloud ----

Json service_of(const Job& job, const Worker& worker) {
  api::Service service;
  service.spec.type = worker.service_type;
  service.spec.ports.push_back({.name = "http",
                                .protocol = "TCP",
                                .port = worker.service_port,
                                .target_port = bind_port(worker)});
  Json spec = service.to_json()["spec"];
  spec.set("selector", worker_selector(job, worker));
  return object_of(api::Service::resource(), worker_name(job, worker), job.metadata.ns,
                   Json::object({{"labels", job_labels(job, worker)}}), std::move(spec));
}

// With an autoscaler, the Deployment's current replicas within the limits: the autoscaler changes
// them, and this plan keeps them.
std::int64_t replicas_of(const Worker& worker, const api::Deployment* live) {
  if (!worker.autoscaling) return worker.replicas;
  const std::int64_t now =
      live == nullptr ? worker.replicas : live->spec.replicas.value_or(worker.replicas);
  if (worker.replicas == 0)
    return 0;  // stopped: an autoscaler ignores a Deployment with 0 replicas
  return std::clamp(now, worker.autoscaling->least(),
                    std::max(worker.autoscaling->least(), worker.autoscaling->max_replicas));
}

Json deployment_of(const Job& job, const Worker& worker, MadePod made, std::int64_t replicas) {
  Json annotations = Json::object();
  annotations.set(kTemplateHash, made.template_hash);
  annotations.set(kAssignmentHash, made.assignment_hash);
  Json metadata =
      Json::object({{"labels", job_labels(job, worker)}, {"annotations", std::move(annotations)}});
  Json spec = Json::object(
      {{"replicas", replicas},
       {"selector", Json::object({{"matchLabels", worker_selector(job, worker)}})},
       {"strategy",
        Json::object({{"type", "RollingUpdate"},
                      {"rollingUpdate", Json::object({{"maxUnavailable", 0}, {"maxSurge", 1}})}})},
       {"template",
        Json::object({{"metadata", std::move(made.metadata)}, {"spec", std::move(made.spec)}})}});
  return object_of(api::Deployment::resource(), worker_name(job, worker), job.metadata.ns,
                   std::move(metadata), std::move(spec));
}

WorkerPlan plan_cloud(const Job& job, const Worker& worker, const WorkerWorld& world) {
  WorkerPlan out;
  if (!worker.node_name.empty()) out.problem = nodes_of(worker, world.nodes).problem;
  out.objects.push_back(service_of(job, worker));
  const api::Deployment* live = world.deployment.get();
  if (live != nullptr) {
    const meta::OwnerReference* owner = live->metadata.controller();
    if (owner == nullptr || owner->uid != job.metadata.uid) live = nullptr;
  }
  const Json applied = live == nullptr ? Json() : runtime::last_applied(live->metadata);
  if (!worker.model) {
    if (!out.problem)
      out.problem = hosting::Problem{"ModelPending",
                                     "the model of worker " + worker.name + " is not resolved yet"};
    if (applied.is_null()) return out;
    Json unchanged_object = applied;
    unchanged_object.make("metadata").set("uid", live->metadata.uid);
    out.objects.push_back(std::move(unchanged_object));
    return out;
  }
  const api::EdgeModelVersion* archive = worker.model->archive();
  ModelOnNode model{worker.model->version, worker.model->url,
                    archive == nullptr ? "" : archive->sha256, true};
  if (!worker.node_name.empty() && allows_path_of(worker, world.edge_node(worker.node_name).get()))
    model.path = worker.model->path;
  MadePod made =
      make_pod(job, worker, {"", "", nullptr, model}, {world.fetch_image, world.fetch_arguments});
  const std::string template_hash = made.template_hash, assignment_hash = made.assignment_hash;
  Json wanted = deployment_of(job, worker, std::move(made), replicas_of(worker, live));
  // A working Deployment keeps its pod template, even if this build would create it differently.
  if (!applied.is_null() && live->status.ready_replicas > 0 &&
      annotation(live->metadata, kTemplateHash) == template_hash &&
      annotation(live->metadata, kAssignmentHash) == assignment_hash &&
      applied.at("spec/template").is_object()) {
    wanted.make("spec").set("template", applied.at("spec/template"));
  }
  out.objects.push_back(std::move(wanted));
  return out;
}

}  // namespace

Json unchanged_pod(const api::Pod& pod) {
  Json object = runtime::last_applied(pod.metadata);
  if (object.is_null()) object = pod.to_json();
  object.erase("status");
  Json metadata = Json::object({{"name", pod.metadata.name}, {"namespace", pod.metadata.ns}});
  for (const auto& [member, map] : {std::pair("labels", &pod.metadata.labels),
                                    std::pair("annotations", &pod.metadata.annotations)}) {
    Json out = Json::object();
    for (const auto& [name, value] : *map) {
      if (name != runtime::kLastApplied) out.set(name, value);
    }
    if (!out.empty()) metadata.set(member, std::move(out));
  }
  metadata.set("uid", pod.metadata.uid);
  object.set("metadata", std::move(metadata));
  return object;
}

Json make_autoscaler(const Job& job, const Worker& worker) {
  const api::WorkerAutoscaling& wanted = *worker.autoscaling;
  Json target = Json::object({{"apiVersion", api::Deployment::resource().api_version()},
                              {"kind", "Deployment"},
                              {"name", worker_name(job, worker)}});
  Json spec = Json::object({{"scaleTargetRef", std::move(target)},
                            {"minReplicas", wanted.least()},
                            {"maxReplicas", wanted.max_replicas}});
  if (!wanted.metrics.is_null()) spec.set("metrics", wanted.metrics);
  if (!wanted.behavior.is_null()) spec.set("behavior", wanted.behavior);
  return object_of(autoscaler_resource(), worker_name(job, worker), job.metadata.ns,
                   Json::object({{"labels", job_labels(job, worker)}}), std::move(spec));
}

const meta::Resource& autoscaler_resource() {
  static const meta::Resource resource{"autoscaling", "v2", "HorizontalPodAutoscaler",
                                       "horizontalpodautoscalers", true};
  return resource;
}

WorkerPlan plan_worker(const Job& job, const Worker& worker, const WorkerWorld& world) {
  if (worker.layer == Worker::Layer::kCloud) return plan_cloud(job, worker, world);
  return EdgePlan(job, worker, world).make();
}

}  // namespace varda::controllers::workers
