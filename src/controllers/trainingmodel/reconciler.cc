#include "controllers/trainingmodel/reconciler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "api/core/job.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/job_node.h"
#include "base/log.h"
#include "controllers/trainingmodel/trainingmodel.h"
#include "hosting/conditions.h"
#include "hosting/labels.h"
#include "hosting/model_archive.h"
#include "hosting/node_index.h"

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModel;
using meta::ObjectKey;
using Keys = std::vector<ObjectKey>;

constexpr std::size_t kRunsAtOnce = 4;
// A cluster's policy may later accept the refused pod, and no watch reports that.
constexpr Duration kRefusedAgain = std::chrono::minutes(2);
// The certificate of the gateways appears outside of the caches.
constexpr Duration kGatewayAgain = std::chrono::seconds(5);
// Time in which the cache gets a newer TrainingModel.
constexpr Duration kOldRunAgain = std::chrono::seconds(1);

// ---- indexes: runs that have not ended

/// Runs by the names of nodes that they are on, or ask for.
constexpr const char* kRunsByNode = "run's node";
std::vector<std::string> index_by_node(const TrainingModel& training) {
  if (training.status.ended()) return {};
  std::set<std::string> names{training.spec.node_name, training.status.node};
  names.erase("");
  return {names.begin(), names.end()};
}

/// Runs by the labels of nodes that their nodeSelector may select.
constexpr const char* kRunsBySelector = "run's nodeSelector";
std::vector<std::string> index_by_selector(const TrainingModel& training) {
  if (training.status.ended()) return {};
  // On one machine such a run is on the node of the cloud layer.
  if (training.spec.without_node())
    return hosting::selector_values({{std::string(hosting::kLayerLabel), "cloud"}});
  if (training.spec.node_selector.empty()) return {};
  return hosting::selector_values(training.spec.node_selector);
}

std::string name_in(const TrainingModel& training, const std::string& name) {
  return ObjectKey{training.metadata.ns, name}.str();
}

/// Runs by the Models and InferenceModels that they read or write.
constexpr const char* kRunsByModel = "run's model";
std::vector<std::string> index_by_model(const TrainingModel& training) {
  if (training.status.ended()) return {};
  std::set<std::string> keys{name_in(training, training.spec.model_name)};
  if (training.spec.initial_model && !training.spec.initial_model->name.empty())
    keys.insert(name_in(training, training.spec.initial_model->name));
  return {keys.begin(), keys.end()};
}

std::vector<std::string> dataset_names(const TrainingModel& training) {
  std::vector<std::string> names;
  if (training.spec.dataset) names.push_back(training.spec.dataset->name);
  if (training.spec.evaluation && training.spec.evaluation->dataset)
    names.push_back(training.spec.evaluation->dataset->name);
  return names;
}

constexpr const char* kRunsByDataset = "run's dataset";
std::vector<std::string> index_by_dataset(const TrainingModel& training) {
  if (training.status.ended()) return {};
  std::set<std::string> keys;
  for (const std::string& name : dataset_names(training)) keys.insert(name_in(training, name));
  return {keys.begin(), keys.end()};
}

/// EdgeNodes of Jobs by the key of the run.
constexpr const char* kNodesByRun = "job's run";
std::vector<std::string> index_by_run(const api::EdgeNode& node) {
  const auto& annotations = node.metadata.annotations;
  const auto kind = annotations.find(std::string(api::kJobKindAnnotation)),
             run = annotations.find(std::string(api::kJobAnnotation));
  if (!api::is_job_node(node.metadata.name) || kind == annotations.end() ||
      run == annotations.end() || kind->second != TrainingModel::resource().kind)
    return {};
  return {run->second};
}

std::optional<ObjectKey> key_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return {};
  return ObjectKey{text.substr(0, slash), text.substr(slash + 1)};
}

/// The run of a Job's pod. The pod's owner is the Job.
Keys run_of_pod(const api::Pod& pod) {
  const auto& labels = pod.metadata.labels;
  const auto kind = labels.find(std::string(workers::kJobKindLabel)),
             name = labels.find(std::string(workers::kJobLabel));
  if (kind == labels.end() || name == labels.end() ||
      kind->second != TrainingModel::resource().kind)
    return {};
  return {ObjectKey{pod.metadata.ns, name->second}};
}

Keys runs_with(const char* index, const std::string& value, const runtime::Caches& caches) {
  Keys keys;
  for (const auto& training : caches.of<TrainingModel>().by_index(index, value))
    keys.push_back(training->metadata.key());
  return keys;
}

Keys runs_near(const api::Node& node, const runtime::Caches& caches) {
  Keys keys = runs_with(kRunsByNode, node.metadata.name, caches);
  for (const std::string& value : hosting::values_to_search(node.metadata.labels)) {
    for (ObjectKey& key : runs_with(kRunsBySelector, value, caches)) keys.push_back(std::move(key));
  }
  return keys;
}

// ---- events

// Reasons of waits that end by themselves, or that the user wants.
bool is_usual(std::string_view reason) {
  static constexpr std::string_view kUsual[] = {
      "Suspended",    "Uploading",       "WritingModel",    "Complete",   "AwaitingResult",
      "AwaitingFile", "DatasetNotReady", "WaitingForFiles", "JobReplaced"};
  return hosting::is_progress(reason) ||
         std::find(std::begin(kUsual), std::end(kUsual), reason) != std::end(kUsual);
}

void record_events(const TrainingModel& training, const api::TrainingModelStatus& now,
                   hosting::PassingProblems& passing, SteadyTime time, runtime::Writer& writer) {
  const auto turned = [&](const char* type, std::string_view to) -> const meta::Condition* {
    const meta::Condition* is = meta::find_condition(now.conditions, type);
    const meta::Condition* was = meta::find_condition(training.status.conditions, type);
    return is != nullptr && is->status == to && (was == nullptr || was->status != to) ? is
                                                                                      : nullptr;
  };
  using runtime::EventType;
  if (const auto* running = turned("Running", "True"))
    writer.event(training, EventType::kNormal, "Running", running->message);
  if (const auto* suspended = turned("Suspended", "True"))
    writer.event(training, EventType::kNormal, "Suspended", suspended->message);
  if (const auto* resumed = turned("Suspended", "False"))
    writer.event(training, EventType::kNormal, "Resumed", resumed->message);
  if (const auto* complete = turned("Complete", "True"))
    writer.event(training, EventType::kNormal, "Complete", complete->message);
  if (const auto* failed = turned("Failed", "True"))
    writer.event(training, EventType::kWarning, failed->reason, failed->message);
  const meta::Condition* running = meta::find_condition(now.conditions, "Running");
  if (running == nullptr || running->status == "True" || now.ended() || is_usual(running->reason)) {
    passing.clear(training.metadata.key(), "Running");
    return;
  }
  const meta::Condition* before = meta::find_condition(training.status.conditions, "Running");
  if (passing.due(training.metadata.key(), before, *running, time))
    writer.event(training, EventType::kWarning, running->reason, running->message);
}

}  // namespace

void TrainingReconciler::watches(runtime::Watches<TrainingModel>& w) const {
  w.owns<api::Pod>(runtime::Update::kRecreate).owns<api::Job>();
  w.maps<api::Pod>(run_of_pod);
  w.indexes<api::EdgeNode>(kNodesByRun, index_by_run);
  w.workers(kRunsAtOnce);
  hosting::index_nodes(w);
  w.indexes<TrainingModel>(kRunsByNode, index_by_node)
      .indexes<TrainingModel>(kRunsBySelector, index_by_selector)
      .indexes<TrainingModel>(kRunsByModel, index_by_model)
      .indexes<TrainingModel>(kRunsByDataset, index_by_dataset);
  w.maps<api::Node>(runs_near, hosting::same_to_pods);
  w.maps<api::EdgeNode>([](const api::EdgeNode& node, const runtime::Caches& caches) {
    Keys keys = runs_with(kRunsByNode, node.metadata.name, caches);
    for (const std::string& run : index_by_run(node)) {
      if (auto key = key_of(run)) keys.push_back(std::move(*key));
    }
    return keys;
  });
  const auto of_model = [](const auto& model, const runtime::Caches& caches) {
    return runs_with(kRunsByModel, model.metadata.key().str(), caches);
  };
  w.maps<api::Model>(of_model).maps<api::SednaModel>(of_model).maps<api::InferenceModel>(of_model);
  const auto of_dataset = [](const auto& dataset, const runtime::Caches& caches) {
    return runs_with(kRunsByDataset, dataset.metadata.key().str(), caches);
  };
  w.maps<api::Dataset>(of_dataset).maps<api::SednaDataset>(of_dataset);
}

TrainingWorld TrainingReconciler::look(const TrainingModel& training) const {
  TrainingWorld world;
  const std::string& ns = training.metadata.ns;
  hosting::NodeSet nodes(caches_);
  nodes.add(training.spec.node_name);
  nodes.add(training.status.node);
  const bool is_job = becomes_job(training, options_) || has_job_node(training);
  if (training.spec.without_node() && !is_job) {
    nodes.add_all(hosting::nodes_with({{std::string(hosting::kLayerLabel), "cloud"}}, caches_));
  } else if (training.spec.node_name.empty() && !is_job) {
    nodes.add_all(hosting::nodes_with(training.spec.node_selector, caches_));
  }
  world.nodes = nodes.list();
  if (is_job) world.nodes.push_back(job_node(training));
  world.edge_node = [this](const std::string& node) {
    return caches_.of<api::EdgeNode>().get({"", node});
  };
  world.initial.keys = hosting::keys_of(options_);
  if (training.spec.initial_model && !training.spec.initial_model->name.empty()) {
    const ObjectKey key{ns, training.spec.initial_model->name};
    world.initial.models = hosting::named_models(key, caches_);
    world.initial.inference_model = caches_.of<api::InferenceModel>().get(key);
  }
  for (const std::string& name : dataset_names(training)) {
    world.datasets.emplace(name,
                           runs::NamedDatasets{caches_.of<api::Dataset>().get({ns, name}),
                                               caches_.of<api::SednaDataset>().get({ns, name})});
  }
  world.pods = caches_.of<api::Pod>().owned_by(training.metadata.uid);
  for (const auto& job : caches_.of<api::Job>().owned_by(training.metadata.uid))
    if (job->metadata.name == training.metadata.name) world.job = job;
  if (is_job) {
    if (world.job != nullptr) world.pods = caches_.of<api::Pod>().owned_by(world.job->metadata.uid);
  } else if (const auto pod = caches_.of<api::Pod>().get({ns, training.status.pod});
             pod != nullptr && pod->metadata.uid == training.status.pod_uid && !pod->ended()) {
    const meta::OwnerReference* owner = pod->metadata.controller();
    if (owner != nullptr && owner->kind == api::Job::resource().kind) world.job_pod = pod;
  }
  world.output = caches_.of<api::Model>().get({ns, training.spec.model_name});
  return world;
}

TrainingReconciler::NodeMade TrainingReconciler::make_node(const Context& ctx,
                                                           const TrainingModel& training,
                                                           runtime::Writer& writer) {
  const ObjectKey key = training.metadata.key();
  std::optional<hosting::AgentToken> token = pending_token(key, training.metadata.uid);
  if (!token) {
    token = options_.jobs->make_token();
    if (!token)
      return {{},
              hosting::Problem{"GatewayMissing",
                               "no gateway has published its authority in the ConfigMap "
                               "varda-system/varda-gateway: the agent of a Job needs a gateway"}};
    // The Secret first, so that a run with an EdgeNode has its token. After a crash in between, the
    // next attempt makes another token.
    Status made = options_.jobs->create_secret(ctx, secret_of(training, *token));
    if (!made.ok()) {
      std::optional<hosting::Problem> problem;
      if (made.error().code() == Code::kForbidden)
        problem = hosting::Problem{
            "TokenForbidden",
            "the API server refused the Secret with the token of the Job's agent: " +
                made.error().message() +
                ". If the operator lacks the right: `kubectl create rolebinding varda-cloud-jobs "
                "-n " +
                key.ns +
                " --clusterrole=varda-cloud-jobs --serviceaccount=varda-operator:varda-operator`"};
      return {std::move(made), std::move(problem)};
    }
    const MutexLock lock(mutex_);
    pending_.insert_or_assign(key, PendingToken{training.metadata.uid, *token});
  }
  const auto made = writer.create(ctx, edge_node_of(training, *token), nullptr);
  if (made.ok() || made.error().code() == Code::kAlreadyExists) return {};
  std::optional<hosting::Problem> problem;
  if (made.error().code() == Code::kForbidden)
    problem = hosting::Problem{
        "EdgeNodeForbidden",
        "the API server refused the EdgeNode of the Job's agent: " + made.error().message()};
  return {made.error(), std::move(problem)};
}

std::optional<hosting::AgentToken> TrainingReconciler::pending_token(const ObjectKey& key,
                                                                     const std::string& uid) {
  const MutexLock lock(mutex_);
  const auto found = pending_.find(key);
  if (found == pending_.end() || found->second.uid != uid) return {};
  return found->second.token;
}

void TrainingReconciler::forget_token(const ObjectKey& key) {
  const MutexLock lock(mutex_);
  pending_.erase(key);
}

Status TrainingReconciler::remove_nodes(const Context& ctx, const ObjectKey& key,
                                        const TrainingModel* kept, runtime::Writer& writer) const {
  // Another operator may work in the namespace of the run.
  if (!options_.jobs) return {};
  const std::vector<std::string>& ours = options_.jobs->namespaces;
  if (!ours.empty() && std::find(ours.begin(), ours.end(), key.ns) == ours.end()) return {};
  for (const auto& node : caches_.of<api::EdgeNode>().by_index(kNodesByRun, key.str())) {
    if (node->metadata.deleting()) continue;
    if (kept != nullptr && node->metadata.name == api::job_node_name(kept->metadata.uid)) continue;
    TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*node)));
  }
  return {};
}

Result<runtime::Action> TrainingReconciler::on_deleted(const Context& ctx, const ObjectKey& key,
                                                       runtime::Writer& writer) {
  TRY_VOID(remove_nodes(ctx, key, nullptr, writer));
  failed_pods_.forget(key);
  forget_token(key);
  const MutexLock lock(mutex_);
  passing_.forget(key);
  return runtime::Action::await_change();
}

Result<runtime::Action> TrainingReconciler::reconcile(const Context& ctx,
                                                      const TrainingModel& training,
                                                      runtime::Writer& writer) {
  if (training.metadata.deleting()) return runtime::Action::await_change();
  const WallTime now = clock_.wall();
  const TrainingWorld world = look(training);
  TrainingPlan wanted = plan(training, world, options_, now);
  Status converged;
  bool refused = false, no_gateway = false;
  TRY_VOID(remove_nodes(ctx, training.metadata.key(),
                        wanted.is_job && !training.status.ended() ? &training : nullptr, writer));
  if (wanted.make_node) {
    NodeMade made = make_node(ctx, training, writer);
    converged = std::move(made.status);
    refused = !converged.ok() && made.problem.has_value();
    no_gateway = converged.ok() && made.problem.has_value();
    if (made.problem) wanted.problem = std::move(made.problem);
  } else if (!wanted.is_job || training.status.ended() ||
             world.edge_node(api::job_node_name(training.metadata.uid)) != nullptr) {
    forget_token(training.metadata.key());
  }
  if (wanted.pods == TrainingPlan::Pods::kConverge) {
    converged = writer.converge(ctx, training, wanted.objects);
    const Code code = converged.ok() ? Code::kInternal : converged.error().code();
    if (!converged.ok() && code == Code::kAlreadyExists) {
      wanted.problem = hosting::Problem{"NameInUse", converged.error().message()};
    } else if (!converged.ok() && (code == Code::kInvalid || code == Code::kForbidden)) {
      wanted.problem = hosting::Problem{"Refused", converged.error().message()};
      refused = true;
    }
  }
  // A failed write must not hide the rest of the status.
  const TrainingObservation seen = observe(training, wanted, world, options_, now);
  std::optional<Duration> next = seen.recheck_in;
  const auto soon = [&next](std::optional<Duration> delay) {
    if (delay) next = next ? std::min(*next, *delay) : *delay;
  };
  {
    const MutexLock lock(mutex_);
    record_events(training, seen.status, passing_, clock_.now(), writer);
    soon(passing_.wait(training.metadata.key(), clock_.now()));
  }
  TRY(const bool written, runs::write_status(ctx, training, seen.status, writer));
  if (!written) return runtime::Action::after(kOldRunAgain);
  if (refused) {
    log::warn("API server rejected an object of a run", {{"error", converged.error()}});
    return runtime::Action::after(kRefusedAgain);
  }
  TRY_VOID(std::move(converged));
  for (const workers::PodPtr& pod : wanted.remove)
    TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*pod)));
  if (seen.output) {
    const auto present =
        world.output == nullptr ? std::nullopt : std::optional(hosting::any_model(world.output));
    TRY_VOID(runs::write_model(ctx, *seen.output, present, *seen.status.produced,
                               seen.status.metrics, now, writer));
  }
  TRY(const std::optional<Duration> pause,
      failed_pods_.replace(ctx, training.metadata.key(), wanted.failed, clock_, writer));
  soon(pause);
  if (no_gateway) soon(kGatewayAgain);
  if (world.initial.keys != nullptr && !seen.status.ended()) soon(hosting::kKeysAgain);
  return next ? runtime::Action::after(*next) : runtime::Action::await_change();
}

// ---- work of nodes

void TrainingWork::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.indexes<TrainingModel>(kRunsByNode, index_by_node);
  w.maps<TrainingModel>(
      [](const TrainingModel& training, const runtime::Caches& caches) {
        Keys keys;
        for (const std::string& node : {training.spec.node_name, training.status.node}) {
          if (!node.empty() && caches.of<api::EdgeNode>().get({"", node}) != nullptr)
            keys.push_back({"", node});
        }
        return keys;
      },
      [](const TrainingModel& before, const TrainingModel& now) {
        return before.metadata.uid == now.metadata.uid &&
               before.metadata.generation == now.metadata.generation &&
               before.metadata.deleting() == now.metadata.deleting() &&
               before.status.node == now.status.node && before.status.base == now.status.base &&
               before.status.scripts == now.status.scripts &&
               before.status.data == now.status.data &&
               before.status.evaluation_data == now.status.evaluation_data &&
               before.status.ended() == now.status.ended();
      });
  w.maps<api::Pod>(
      [](const api::Pod& pod, const runtime::Caches& caches) {
        const meta::OwnerReference* owner = pod.metadata.controller();
        const ObjectKey node{"", pod.spec.node_name};
        if (owner == nullptr || owner->kind != TrainingModel::resource().kind) return Keys{};
        if (node.name.empty() || caches.of<api::EdgeNode>().get(node) == nullptr) return Keys{};
        return Keys{node};
      },
      [](const api::Pod& before, const api::Pod& now) {
        return before.metadata.uid == now.metadata.uid &&
               before.metadata.annotations == now.metadata.annotations &&
               before.spec.node_name == now.spec.node_name;
      });
}

std::vector<hosting::NodeWork> TrainingWork::work_for(const api::EdgeNode& node,
                                                      const runtime::Caches& caches) const {
  std::vector<hosting::NodeWork> out;
  hosting::NodeList nodes;
  if (auto object = caches.of<api::Node>().get({"", node.metadata.name}))
    nodes.push_back(std::move(object));
  for (const auto& training :
       caches.of<TrainingModel>().by_index(kRunsByNode, node.metadata.name)) {
    const auto pods = caches.of<api::Pod>().owned_by(training->metadata.uid);
    if (auto work = trainingmodel::work_for(*training, node, nodes, pods))
      out.push_back(std::move(*work));
  }
  return out;
}

namespace {

struct TrainingModels final : hosting::KindControllers {
  TrainingModels(const runtime::Caches& caches, const hosting::Options& options)
      : reconciler(caches, options) {}
  const hosting::JobWork* job_work() const override { return &work; }

  TrainingWork work;
  TrainingReconciler reconciler;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<TrainingModels>(manager.caches(), options);
  manager.add<TrainingModel>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::trainingmodel
