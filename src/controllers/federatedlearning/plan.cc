#include "controllers/federatedlearning/plan.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "controllers/federatedlearning/participants.h"
#include "controllers/runs/runs.h"
#include "federated/rules.h"
#include "federated/settings.h"
#include "hosting/pod_settings.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedLearningJob;
using api::FederatedTrainingWorker;
using hosting::Problem;
using workers::PodPtr;
using workers::Worker;
using Pods = FederatedPlan::Pods;

// An ONNX file has at most 2 GiB; the rest is for other files of the archive, and the report.
constexpr std::int64_t kUploadBytesMax = (2LL << 30) + (64LL << 20);

// Members of spec.federated with which rounds of a job cannot be mixed.
constexpr std::array kFixedSettings{"mode",    "aggregator",        "compression",
                                    "privacy", "secureAggregation", "seed"};

Json fixed_of(const FederatedLearningJob& job) {
  Json settings = Json::object();
  for (const char* name : kFixedSettings) {
    if (const Json& value = job.spec.federated[name]; !value.is_null()) settings.set(name, value);
  }
  Json out =
      Json::object({{"model", job.spec.aggregation_worker.model.name},
                    {"base", job.spec.pretrained_model ? job.spec.pretrained_model->name
                                                       : job.spec.aggregation_worker.model.name},
                    {"federated", std::move(settings)}});
  return out;
}

bool all_users(const FederatedLearningJob& job) {
  const auto& trainers = job.spec.training_workers;
  return job.spec.aggregation_worker.has_template() &&
         std::all_of(trainers.begin(), trainers.end(),
                     [](const auto& one) { return one.has_template(); });
}

runs::BaseRequest request_of(const FederatedLearningJob& job,
                             const api::TrainingInitialModel& wanted) {
  return {wanted, job.metadata, model_name(job),
          all_users(job) ? runs::Trainer::kUsers : runs::Trainer::kOurs};
}

// A started job keeps its base, also if the spec asks for another one later.
std::optional<api::TrainingBase> pinned(const FederatedLearningJob& job) {
  if (!job.status.fixed.is_null()) return job.status.base;
  return runs::pinned_base(job.status.base, request_of(job, initial_model(job)));
}

workers::ResolvedModel resolved(const FederatedLearningJob& job, const api::TrainingBase& base) {
  workers::ResolvedModel out = runs::resolved(base, request_of(job, initial_model(job)));
  // Containers see the model under the name that gets the result.
  out.name = out.model_name = model_name(job);
  return out;
}

Json federated_variable(const FederatedLearningJob& job) {
  return Json::object({{"job", job.metadata.key().str()},
                       {"uid", job.metadata.uid},
                       {"modelName", model_name(job)}});
}

/// The same for the aggregation worker, which checks the identities of streams.
Json aggregator_variable(const FederatedLearningJob& job, const hosting::Options& options) {
  Json out = federated_variable(job);
  if (options.edge_authority) out.set("authority", options.edge_authority());
  if (options.unsigned_streams) out.set("trustLoopback", true);
  return out;
}

/// The parts of a worker that its node needs.
void add_model(const FederatedLearningJob& job, Worker& worker) {
  if (const auto base = pinned(job)) worker.model = resolved(job, *base);
  worker.needs_model = worker.model.has_value();
}

/// The settings for the aggregation worker: varda-aggregate refuses those of the trainers.
Json aggregator_settings(const FederatedLearningJob& job) {
  Json out = settings_of(job);
  if (is_ours(job.spec.aggregation_worker)) out.erase("client");
  return out;
}

Worker placed_aggregator(const FederatedLearningJob& job, const std::string& node) {
  Worker worker;
  worker.name = kAggregatorName;
  worker.node_name = node;
  worker.uploads = api::WorkerUploads{kUploadBytesMax, {}};
  worker.has_output = true;
  worker.service_port = kDefaultPort;
  worker.pod_spec = job.spec.aggregation_worker.pod_spec();
  add_model(job, worker);
  Json participants = Json::array();
  for (const api::FederatedParticipant& one : job.status.participants) {
    participants.push_back(Json::object({{"worker", job.metadata.ns + "/" + one.worker},
                                         {"node", one.node},
                                         {"dataset", one.dataset}}));
  }
  worker.assignment =
      Json::object({{"participants", std::move(participants)}, {"parameters", settings_of(job)}});
  return worker;
}

void complete_trainer(const FederatedLearningJob& job, const FederatedTrainingWorker& entry,
                      Worker& worker) {
  worker.has_output = true;
  // A header before the first byte would surprise programs of users.
  const bool identity = !job.spec.aggregation_worker.has_template();
  // Our trainer opens the stream at the worker socket.
  worker.streams.push_back({.name = std::string(kAggregatorStream),
                            .address = job.status.aggregator.address,
                            .listen = entry.has_template(),
                            .identity = identity,
                            .unknown = {}});
  add_model(job, worker);
}

void add_dataset(const runs::DatasetOnNode& dataset, const std::string& prefix, Worker& worker) {
  worker.variables.emplace_back(prefix + "_DATASET_URL", dataset.path);
  worker.variables.emplace_back(prefix + "_DATASET_FORMAT", dataset.format);
  if (std::find(worker.data.begin(), worker.data.end(), dataset.mount) == worker.data.end())
    worker.data.push_back(dataset.mount);
}

Json with_restarts(Json spec) {
  if (std::as_const(spec)["restartPolicy"].as_string().empty())
    spec.set("restartPolicy", "OnFailure");
  return spec;
}

Json our_pod(api::Container container, const api::PodSettings& settings) {
  api::Pod pod;
  pod.spec.containers.push_back(std::move(container));
  hosting::add_settings(settings, pod.spec);
  return pod.to_json()["spec"];
}

class Planner {
 public:
  Planner(const FederatedLearningJob& job, const FederatedWorld& world,
          const hosting::Options& options, WallTime now)
      : job_(job), world_(world), options_(options), now_(now) {}

  FederatedPlan make() {
    place_aggregator();
    find_trainers();
    choose_pods();
    return std::move(out_);
  }

 private:
  // ---- places

  void place_aggregator() {
    out_.node = job_.status.aggregator.node;
    if (out_.node.empty() && !job_.status.ended()) choose_node();
    if (out_.node.empty()) return;
    out_.pod_name =
        workers::worker_pod_name(job_of(job_), placed_aggregator(job_, out_.node), out_.node, 0);
    out_.pod = find_pod(out_.pod_name);
  }

  PodPtr find_pod(const std::string& name) const {
    const auto found = std::find_if(world_.pods.begin(), world_.pods.end(),
                                    [&](const PodPtr& pod) { return pod->metadata.name == name; });
    return found == world_.pods.end() ? nullptr : *found;
  }

  // The first node with an agent. Without a place in the spec, it is one of the cloud layer.
  void choose_node() {
    const api::FederatedAggregationWorker& worker = job_.spec.aggregation_worker;
    if (const std::string& name = worker.node(); !name.empty()) {
      if (hosting::find_node(world_.nodes, name) != nullptr) {
        out_.node = name;
      } else {
        fail("NodeNotFound", "node " + name + " does not exist");
      }
      return;
    }
    Worker place;
    place.name = kAggregatorName;
    place.selector = worker.selector.value_or(api::NodeSelection{});
    if (!worker.selector) place.node_layer = "cloud";
    workers::WorkerNodes nodes = workers::nodes_of(place, world_.nodes);
    const api::Node* chosen = nullptr;
    for (const std::string& name : nodes.names) {
      const workers::EdgeNodePtr agent = world_.edge_node(name);
      if (runs::agent_problem(agent.get(), name)) continue;
      const api::Node* node = hosting::find_node(world_.nodes, name);
      if (chosen == nullptr || workers::joined_before(*node, *chosen)) chosen = node;
    }
    if (chosen != nullptr) {
      out_.node = chosen->metadata.name;
    } else if (nodes.names.empty() && worker.selector) {
      out_.problem = std::move(nodes.problem);
    } else {
      fail("AgentMissing", worker.selector
                               ? "no node that matches the selector of aggregationWorker runs an "
                                 "agent: start `varda agent` there"
                               : "no node of the cloud layer runs an agent: start `varda agent` "
                                 "there, or set aggregationWorker.nodeName");
    }
  }

  void find_trainers() {
    if (job_.status.ended()) return;
    participants_ = find_participants(job_, world_);
    for (const Participant& one : participants_.list) {
      out_.trainers.push_back(
          {one.pod, one.worker.node_name, one.dataset, find_pod(one.pod), one.problem});
    }
    out_.entry_problems = participants_.problems;
  }

  // ---- pods

  void choose_pods() {
    const api::FederatedLearningJobStatus& status = job_.status;
    if (status.ended())
      return remove(
          runs::pods_to_remove(world_.pods, status.conditions, status.completion_time, now_));
    if (has_result()) {
      out_.pods = Pods::kLeave;
      out_.base = status.base;
      return;
    }
    if (job_.spec.suspend) {
      out_.base = pinned(job_);
      out_.fixed = status.fixed;
      return remove(runs::living(world_.pods));
    }
    if (!out_.problem) plan_aggregator();
    if (!placed_) keep(out_.pod);
    for (std::size_t i = 0; i < participants_.list.size(); ++i)
      plan_trainer(participants_.list[i], out_.trainers[i]);
  }

  void remove(std::vector<PodPtr> pods) {
    out_.pods = Pods::kRemove;
    out_.remove = std::move(pods);
  }

  // The aggregation worker has done its work. Another start would repeat it.
  bool has_result() const {
    if (out_.node.empty()) return false;
    const workers::EdgeNodePtr agent = world_.edge_node(out_.node);
    const Json* report =
        runs::find_report(agent.get(), job_.metadata.ns + "/" + out_.pod_name, job_.metadata.uid);
    return report != nullptr && runs::result_of(*report).has_value();
  }

  void fail(std::string reason, std::string message) {
    out_.problem = Problem{std::move(reason), std::move(message)};
  }

  void keep(const PodPtr& pod) {
    if (pod != nullptr && !pod->metadata.deleting())
      out_.objects.push_back(workers::unchanged_pod(*pod));
  }

  /// Adds the pod of a worker that has no problem so far. Returns the problem that it has now.
  std::optional<Problem> place_pod(const Worker& worker, const PodPtr& pod) {
    // A worker that succeeded has done its work.
    if (pod != nullptr && pod->status.phase == "Succeeded") {
      keep(pod);
      return {};
    }
    const workers::WorkerWorld around{
        .nodes = world_.nodes,
        .edge_node = world_.edge_node,
        .pods = pod == nullptr ? std::vector<PodPtr>{} : std::vector<PodPtr>{pod},
        .deployment = nullptr,
        .claims = {}};
    workers::WorkerPlan made = workers::plan_worker(job_of(job_), worker, around);
    for (Json& object : made.objects) out_.objects.push_back(std::move(object));
    for (PodPtr& ended : made.ended)
      if (ended->status.phase == "Failed") out_.failed.push_back(std::move(ended));
    return std::move(made.problem);
  }

  void add_common(Worker& worker, const Json& federated, const Json& settings) const {
    worker.variables.emplace_back("JOB_NAME", job_.metadata.name);
    if (!worker.model) worker.variables.emplace_back("MODEL_NAME", model_name(job_));
    worker.variables.emplace_back("FEDERATED", codec::write_json(federated));
    worker.first_values.emplace_back("PARTICIPANTS_COUNT",
                                     std::to_string(participants_.list.size()));
    worker.first_values.emplace_back("PARAMETERS", codec::write_json(settings));
  }

  void plan_aggregator() {
    const api::FederatedAggregationWorker& spec = job_.spec.aggregation_worker;
    if (is_ours(spec) && options_.registry_url.empty())
      return fail("RegistryMissing",
                  "the operator has no registry for results: start it with --registry URL");
    if (auto wrong = settings_problem(job_)) {
      out_.problem = std::move(wrong);
      return;
    }
    if (is_ours(spec) && options_.edge_authority && options_.edge_authority().empty())
      return fail(std::string(kAuthorityMissing),
                  "the operator does not know the authority that signs the identities of nodes: "
                  "start `varda gateway`, or start the operator with --edge-authority FILE");
    if (hosting::find_node(world_.nodes, out_.node) == nullptr)
      return fail("NodeNotFound", "node " + out_.node + " does not exist");
    const workers::EdgeNodePtr agent = world_.edge_node(out_.node);
    out_.problem = runs::agent_problem(agent.get(), out_.node);
    if (!out_.problem) choose_base();
    if (out_.problem) return;
    Worker worker = placed_aggregator(job_, out_.node);
    if (out_.base) worker.model = resolved(job_, *out_.base);
    worker.needs_model = worker.model.has_value();
    out_.problem = model_problem(worker, *agent);
    if (out_.problem) return;
    worker.variables.emplace_back("AGG_BIND_PORT", std::to_string(workers::bind_port(worker)));
    add_common(worker, aggregator_variable(job_, options_), aggregator_settings(job_));
    worker.pod_spec = with_restarts(
        is_ours(spec) ? our_pod(runs::program_container("aggregator", options_.aggregate_image,
                                                        {"--worker"}, *agent),
                                spec)
                      : spec.pod_spec());
    worker.pod_metadata = spec.pod_metadata();
    out_.fixed = job_.status.fixed.is_null() ? fixed_of(job_) : job_.status.fixed;
    out_.problem = place_pod(worker, out_.pod);
    placed_ = true;
  }

  void choose_base() {
    out_.base = pinned(job_);
    if (out_.base || !job_.status.fixed.is_null()) return;
    const api::TrainingInitialModel wanted = initial_model(job_);
    runs::BaseChoice choice = runs::choose_base(request_of(job_, wanted), world_.initial);
    // Programs of the user may begin without a model.
    const bool optional = all_users(job_) && !job_.spec.pretrained_model;
    if (choice.problem && optional && choice.problem->reason == "ModelNotFound") return;
    out_.problem = std::move(choice.problem);
    out_.base = std::move(choice.base);
  }

  std::optional<Problem> model_problem(const Worker& worker, const api::EdgeNode& agent) const {
    if (!worker.model || workers::has_wanted_model(job_of(job_), worker, agent)) return {};
    return Problem{"WaitingForNode", "waiting for node " + agent.metadata.name +
                                         " to have version " + worker.model->version +
                                         " of model " + worker.model->name};
  }

  void plan_trainer(const Participant& one, PlannedTrainer& out) {
    if (!out.problem) out.problem = complete(one);
    if (out.problem) return keep(out.pod);
    out.problem = place_pod(trainer_, out.pod);
  }

  /// Fills in trainer_. Returns the problem that prevents the pod.
  std::optional<Problem> complete(const Participant& one) {
    const std::string& node = one.worker.node_name;
    // The initial model of the job is not chosen before.
    if (!placed_ && job_.status.fixed.is_null())
      return Problem{"WaitingForAggregator", "waiting for the pod of the aggregation worker"};
    const workers::EdgeNodePtr agent = world_.edge_node(node);
    trainer_ = one.worker;
    complete_trainer(job_, *one.entry, trainer_);
    if (out_.base) trainer_.model = resolved(job_, *out_.base);
    trainer_.needs_model = trainer_.model.has_value();
    if (auto problem = model_problem(trainer_, *agent)) return problem;
    if (!one.dataset.empty()) trainer_.variables.emplace_back("DATASET_NAME", one.dataset);
    if (one.data) add_dataset(*one.data, "TRAIN", trainer_);
    if (one.evaluation) add_dataset(*one.evaluation, "EVAL", trainer_);
    if (one.entry->has_template()) {
      if (auto problem = add_address(*agent)) return problem;
    }
    add_common(trainer_, federated_variable(job_), settings_of(job_));
    trainer_.pod_spec = with_restarts(
        is_ours(*one.entry) ? our_pod(runs::program_container("trainer", options_.train_image,
                                                              {"--worker", "--federated"}, *agent),
                                      *one.entry)
                            : one.entry->pod_spec());
    trainer_.pod_metadata = one.entry->pod_metadata();
    return {};
  }

  std::optional<Problem> add_address(const api::EdgeNode& agent) {
    const std::string address =
        workers::stream_listener(job_of(job_), trainer_, agent, 0, kAggregatorStream);
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos)
      return Problem{"StreamPending", "waiting for the agent of node " + agent.metadata.name +
                                          " to open a port that leads to the aggregation worker"};
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    trainer_.variables.emplace_back("AGG_IP", host);
    trainer_.variables.emplace_back("AGG_PORT", address.substr(colon + 1));
    return {};
  }

  const FederatedLearningJob& job_;
  const FederatedWorld& world_;
  const hosting::Options& options_;
  const WallTime now_;
  Participants participants_;
  Worker trainer_;       // the one at hand
  bool placed_ = false;  // the objects have the pod of the aggregation worker
  FederatedPlan out_;
};

/// A deleted Node may come back. Until then the agent keeps the files of the job's workers.
void keep_present(const FederatedLearningJob& job, const api::EdgeNode& node,
                  hosting::NodeWork& work) {
  const std::string prefix = job.metadata.key().str() + ".";
  for (const api::EdgeWorker& present : node.spec.workers)
    if (present.uid == job.metadata.uid) work.workers.push_back(present);
  for (const api::EdgeModel& present : node.spec.models)
    if (present.key.starts_with(prefix)) work.models.push_back(present);
}

void add_work(const FederatedLearningJob& job, const Worker& worker, const api::EdgeNode& node,
              const hosting::NodeList& nodes, const std::vector<PodPtr>& pods,
              hosting::NodeWork& work) {
  std::vector<PodPtr> own;
  const std::string name = workers::worker_pod_name(job_of(job), worker, node.metadata.name, 0);
  for (const PodPtr& pod : pods)
    if (pod->metadata.name == name) own.push_back(pod);
  if (auto model = workers::model_for(job_of(job), worker, nodes, node, own))
    work.models.push_back(std::move(*model));
  for (api::EdgeWorker& one : workers::workers_for(job_of(job), worker, nodes, node, own))
    work.workers.push_back(std::move(one));
}

}  // namespace

workers::Job job_of(const FederatedLearningJob& job) {
  return {FederatedLearningJob::resource().kind, job.metadata};
}

api::TrainingInitialModel initial_model(const FederatedLearningJob& job) {
  const api::ModelReference& reference =
      job.spec.pretrained_model ? *job.spec.pretrained_model : job.spec.aggregation_worker.model;
  api::TrainingInitialModel out;
  out.name = reference.name;
  out.kind = reference.kind;
  out.group = reference.group;
  return out;
}

const std::string& model_name(const FederatedLearningJob& job) {
  const Json& fixed = job.status.fixed["model"];
  return fixed.is_string() ? fixed.as_string() : job.spec.aggregation_worker.model.name;
}

Json settings_of(const FederatedLearningJob& job) {
  Json out = job.spec.federated.is_object() ? job.spec.federated : Json::object();
  if (job.status.fixed.is_null()) return out;
  for (const char* name : kFixedSettings) {
    const Json& value = job.status.fixed["federated"][name];
    if (value.is_null()) {
      out.erase(name);
    } else {
      out.set(name, value);
    }
  }
  return out;
}

std::string address_of(const FederatedLearningJob& job, const api::Pod* pod) {
  if (pod == nullptr || pod->metadata.deleting() || pod->status.pod_ip.empty()) return "";
  Worker worker;
  worker.service_port = kDefaultPort;
  worker.pod_spec = job.spec.aggregation_worker.pod_spec();
  const std::string& host = pod->status.pod_ip;
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(workers::bind_port(worker));
}

std::vector<std::string> refused_changes(const FederatedLearningJob& job) {
  std::vector<std::string> out;
  const Json& fixed = job.status.fixed;
  if (fixed.is_null()) return out;
  const Json now = fixed_of(job);
  if (now["model"] != fixed["model"]) out.emplace_back("aggregationWorker.model");
  const bool pretrained = job.spec.pretrained_model || fixed["base"] != fixed["model"];
  if (pretrained && now["base"] != fixed["base"]) out.emplace_back("pretrainedModel");
  for (const char* name : kFixedSettings) {
    if (now["federated"][name] != fixed["federated"][name])
      out.push_back("federated." + std::string(name));
  }
  const std::string& node = job.spec.aggregation_worker.node();
  if (!node.empty() && node != job.status.aggregator.node)
    out.emplace_back("aggregationWorker.nodeName");
  return out;
}

std::optional<Problem> settings_problem(const FederatedLearningJob& job) {
  // Programs of users may read other members.
  if (!is_ours(job.spec.aggregation_worker)) return {};
  const Json wanted = aggregator_settings(job);
  const auto settings = federated::parse_settings(wanted);
  Status status = settings.ok() ? Status() : Status(settings.error());
  if (status.ok() && wanted["aggregator"].is_object()) {
    const bool is_private = settings->secure || settings->privacy;
    status = is_private ? federated::Rule::check_private(wanted["aggregator"])
                        : federated::Rule::check(wanted["aggregator"]);
  }
  if (status.ok()) return {};
  return Problem{"SettingsInvalid", "spec.federated: " + status.error().message()};
}

std::optional<hosting::AnyModel> output_model(const FederatedLearningJob& job,
                                              const hosting::AnyModels& models) {
  const std::string& group = job.spec.aggregation_worker.model.group;
  std::optional<hosting::AnyModel> out;
  for (const hosting::AnyModel& model : models) {
    if (!group.empty() && model.group != group) continue;
    if (!out || model.group == api::Model::resource().group) out = model;
  }
  return out;
}

FederatedPlan plan(const FederatedLearningJob& job, const FederatedWorld& world,
                   const hosting::Options& options, WallTime now) {
  return Planner(job, world, options, now).make();
}

std::optional<hosting::NodeWork> work_for(const FederatedLearningJob& job,
                                          const api::EdgeNode& node, const hosting::NodeList& nodes,
                                          const std::vector<PodPtr>& pods) {
  if (job.metadata.deleting() || job.status.ended()) return {};
  const std::string& name = node.metadata.name;
  hosting::NodeWork work;
  work.since = job.metadata.creation_timestamp;
  if (hosting::find_node(nodes, name) == nullptr) {
    keep_present(job, node, work);
  } else {
    if (job.status.aggregator.node == name)
      add_work(job, placed_aggregator(job, name), node, nodes, pods, work);
    std::set<std::string> here;
    for (const api::FederatedParticipant& one : job.status.participants)
      if (one.node == name) here.insert(one.worker);
    const std::vector<std::string> names = worker_names(job.spec);
    for (std::size_t i = 0; i < names.size() && !here.empty(); ++i) {
      const FederatedTrainingWorker& entry = job.spec.training_workers[i];
      for (std::int64_t number = 0; number < entry.replicas.value_or(1); ++number) {
        Worker worker;
        worker.name = replica_name(names[i], number);
        worker.node_name = name;
        if (!here.contains(workers::worker_pod_name(job_of(job), worker, name, 0))) continue;
        complete_trainer(job, entry, worker);
        add_work(job, worker, node, nodes, pods, work);
      }
    }
  }
  if (work.models.empty() && work.workers.empty()) return {};
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(work.models.begin(), work.models.end(), by_key);
  std::sort(work.workers.begin(), work.workers.end(), by_key);
  return work;
}

}  // namespace varda::controllers::federatedlearning
