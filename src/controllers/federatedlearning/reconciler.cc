#include "controllers/federatedlearning/reconciler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "api/edgeai/dataset.h"
#include "base/log.h"
#include "controllers/federatedlearning/federatedlearning.h"
#include "controllers/federatedlearning/indexes.h"
#include "controllers/federatedlearning/metrics.h"
#include "controllers/federatedlearning/participants.h"
#include "hosting/conditions.h"
#include "hosting/model_archive.h"
#include "hosting/node_index.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedLearningJob;
using meta::ObjectKey;
using Keys = std::vector<ObjectKey>;

constexpr std::size_t kJobsAtOnce = 4;
// A cluster's policy may later accept the refused pod, and no watch reports that.
constexpr Duration kRefusedAgain = std::chrono::minutes(2);
// Time in which the cache gets a newer FederatedLearningJob.
constexpr Duration kOldJobAgain = std::chrono::seconds(1);

Keys jobs_with(const char* index, const std::string& value, const runtime::Caches& caches) {
  Keys keys;
  for (const auto& job : caches.of<FederatedLearningJob>().by_index(index, value))
    keys.push_back(job->metadata.key());
  return keys;
}

void add(Keys more, Keys& keys) {
  keys.insert(keys.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

Keys jobs_near(const api::Node& node, const runtime::Caches& caches) {
  Keys keys = jobs_with(kJobsByNode, node.metadata.name, caches);
  for (const std::string& value : hosting::values_to_search(node.metadata.labels))
    add(jobs_with(kJobsBySelector, value, caches), keys);
  return keys;
}

Keys jobs_of_agent(const api::EdgeNode& node, const runtime::Caches& caches) {
  Keys keys = jobs_with(kJobsByNode, node.metadata.name, caches);
  // Jobs without a place for the aggregation worker.
  add(jobs_with(kJobsBySelector, "", caches), keys);
  return keys;
}

// ---- events

// Reasons of waits that end by themselves, or that the user wants.
bool is_usual(std::string_view reason) {
  static constexpr std::string_view kUsual[] = {
      "Suspended",    "Uploading",       "WritingModel",           "Complete", "AwaitingResult",
      "AwaitingFile", "DatasetNotReady", "WaitingForParticipants", "AllPlaced"};
  return hosting::is_progress(reason) ||
         std::find(std::begin(kUsual), std::end(kUsual), reason) != std::end(kUsual);
}

/// The events of one reconcile().
class Reporter {
 public:
  Reporter(const FederatedLearningJob& job, const api::FederatedLearningJobStatus& now,
           runtime::Writer& writer)
      : job_(job), now_(now), writer_(writer) {}

  void record_turns() {
    using runtime::EventType;
    if (const auto* ready = turned("Ready", "True"))
      writer_.event(job_, EventType::kNormal, "Running", ready->message);
    if (const auto* suspended = turned("Suspended", "True"))
      writer_.event(job_, EventType::kNormal, "Suspended", suspended->message);
    if (const auto* resumed = turned("Suspended", "False"))
      writer_.event(job_, EventType::kNormal, "Resumed", resumed->message);
    if (const auto* refused = turned("SpecApplied", "False"))
      writer_.event(job_, EventType::kWarning, refused->reason, refused->message);
    if (const auto* complete = turned("Complete", "True"))
      writer_.event(job_, EventType::kNormal, "Complete", complete->message);
    if (const auto* failed = turned("Failed", "True"))
      writer_.event(job_, EventType::kWarning, failed->reason, failed->message);
  }

  /// Reports a problem that lasts.
  void record_problem(const char* type, hosting::PassingProblems& passing, SteadyTime time) {
    const ObjectKey key = job_.metadata.key();
    const meta::Condition* now = meta::find_condition(now_.conditions, type);
    if (now == nullptr || now->status == "True" || now_.ended() || is_usual(now->reason))
      return passing.clear(key, type);
    const meta::Condition* before = meta::find_condition(job_.status.conditions, type);
    if (passing.due(key, before, *now, time))
      writer_.event(job_, runtime::EventType::kWarning, now->reason, now->message);
  }

 private:
  const meta::Condition* turned(const char* type, std::string_view to) const {
    const meta::Condition* is = meta::find_condition(now_.conditions, type);
    const meta::Condition* was = meta::find_condition(job_.status.conditions, type);
    return is != nullptr && is->status == to && (was == nullptr || was->status != to) ? is
                                                                                      : nullptr;
  }

  const FederatedLearningJob& job_;
  const api::FederatedLearningJobStatus& now_;
  runtime::Writer& writer_;
};

}  // namespace

void FederatedReconciler::watches(runtime::Watches<FederatedLearningJob>& w) const {
  w.owns<api::Pod>(runtime::Update::kRecreate);
  w.workers(kJobsAtOnce);
  hosting::index_nodes(w);
  w.indexes<FederatedLearningJob>(kJobsByNode, index_by_node)
      .indexes<FederatedLearningJob>(kJobsBySelector, index_by_selector)
      .indexes<FederatedLearningJob>(kJobsByModel, index_by_model)
      .indexes<FederatedLearningJob>(kJobsByDataset, index_by_dataset);
  w.maps<api::Node>(jobs_near, hosting::same_to_pods);
  w.maps<api::EdgeNode>(jobs_of_agent);
  const auto of_model = [](const auto& model, const runtime::Caches& caches) {
    return jobs_with(kJobsByModel, model.metadata.key().str(), caches);
  };
  w.maps<api::Model>(of_model).maps<api::SednaModel>(of_model).maps<api::InferenceModel>(of_model);
  const auto of_dataset = [](const auto& dataset, const runtime::Caches& caches) {
    Keys keys = jobs_with(kJobsByDataset, dataset.metadata.key().str(), caches);
    add(jobs_with(kJobsByDataset, dataset.metadata.ns + "/", caches), keys);
    return keys;
  };
  w.maps<api::Dataset>(of_dataset).maps<api::SednaDataset>(of_dataset);
}

hosting::NodeList FederatedReconciler::nodes_of(const FederatedLearningJob& job,
                                                const FederatedWorld& world) const {
  hosting::NodeSet nodes(caches_);
  for (const std::string& name : node_names(job.spec)) nodes.add(name);
  nodes.add(job.status.aggregator.node);
  for (const api::FederatedParticipant& one : job.status.participants) nodes.add(one.node);
  const auto all = caches_.of<api::Node>();
  const auto add_selected = [&](const api::NodeSelection& selection) {
    for (const std::string& value : workers::selection_values(selection))
      nodes.add_all(value.empty() ? all.list() : all.by_index(hosting::kNodesByLabel, value));
  };
  for (const api::FederatedTrainingWorker& entry : job.spec.training_workers)
    if (entry.selector) add_selected(*entry.selector);
  for (const auto& [name, named] : world.datasets) {
    if (named.edgeai != nullptr) nodes.add(named.edgeai->spec.node_name);
    if (named.sedna != nullptr) nodes.add(named.sedna->spec.node_name);
  }
  const api::FederatedAggregationWorker& aggregator = job.spec.aggregation_worker;
  if (job.status.aggregator.node.empty() && aggregator.node().empty()) {
    if (aggregator.selector) {
      add_selected(*aggregator.selector);
    } else {
      nodes.add_all(all.by_index(hosting::kNodesByLayer, "cloud"));
    }
  }
  return nodes.list();
}

FederatedWorld FederatedReconciler::look(const FederatedLearningJob& job) const {
  FederatedWorld world;
  const std::string& ns = job.metadata.ns;
  world.edge_node = [this](const std::string& node) {
    return caches_.of<api::EdgeNode>().get({"", node});
  };
  world.initial.keys = hosting::keys_of(options_);
  const ObjectKey initial{ns, initial_model(job).name};
  world.initial.models = hosting::named_models(initial, caches_);
  world.initial.inference_model = caches_.of<api::InferenceModel>().get(initial);
  for (const std::string& name : dataset_names(job.spec)) {
    world.datasets.emplace(name,
                           runs::NamedDatasets{caches_.of<api::Dataset>().get({ns, name}),
                                               caches_.of<api::SednaDataset>().get({ns, name})});
  }
  if (needs_all_datasets(job.spec)) {
    for (auto& one : caches_.of<api::Dataset>().list(ns))
      world.datasets[one->metadata.name].edgeai = one;
    for (auto& one : caches_.of<api::SednaDataset>().list(ns))
      world.datasets[one->metadata.name].sedna = one;
  }
  world.nodes = nodes_of(job, world);
  world.pods = caches_.of<api::Pod>().owned_by(job.metadata.uid);
  world.outputs = hosting::named_models({ns, model_name(job)}, caches_);
  return world;
}

Result<runtime::Action> FederatedReconciler::on_deleted(const Context& /*ctx*/,
                                                        const ObjectKey& key,
                                                        runtime::Writer& /*writer*/) {
  failed_pods_.forget(key);
  const MutexLock lock(mutex_);
  passing_.forget(key);
  return runtime::Action::await_change();
}

Result<runtime::Action> FederatedReconciler::reconcile(const Context& ctx,
                                                       const FederatedLearningJob& job,
                                                       runtime::Writer& writer) {
  if (job.metadata.deleting()) return runtime::Action::await_change();
  const WallTime now = clock_.wall();
  const FederatedWorld world = look(job);
  FederatedPlan wanted = plan(job, world, options_, now);
  Status converged;
  bool refused = false;
  if (wanted.pods == FederatedPlan::Pods::kConverge) {
    converged = writer.converge(ctx, job, wanted.objects);
    const Code code = converged.ok() ? Code::kInternal : converged.error().code();
    if (!converged.ok() && code == Code::kAlreadyExists) {
      wanted.problem = hosting::Problem{"NameInUse", converged.error().message()};
    } else if (!converged.ok() && (code == Code::kInvalid || code == Code::kForbidden)) {
      wanted.problem = hosting::Problem{"Refused", converged.error().message()};
      refused = true;
    }
  }
  // A failed write must not hide the rest of the status.
  const FederatedObservation seen = observe(job, wanted, world, options_, now);
  std::optional<Duration> next = seen.recheck_in;
  const auto soon = [&next](std::optional<Duration> delay) {
    if (delay) next = next ? std::min(*next, *delay) : *delay;
  };
  {
    const MutexLock lock(mutex_);
    Reporter reporter(job, seen.status, writer);
    reporter.record_turns();
    for (const char* type : {"Training", "Participants"})
      reporter.record_problem(type, passing_, clock_.now());
    soon(passing_.wait(job.metadata.key(), clock_.now()));
  }
  TRY(const bool written, runs::write_status(ctx, job, seen.status, writer));
  if (!written) return runtime::Action::after(kOldJobAgain);
  if (refused) {
    log::warn("API server rejected a pod of a federated job", {{"error", converged.error()}});
    return runtime::Action::after(kRefusedAgain);
  }
  TRY_VOID(std::move(converged));
  for (const workers::PodPtr& pod : wanted.remove)
    TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*pod)));
  if (seen.output) {
    TRY_VOID(runs::write_model(ctx, *seen.output, output_model(job, world.outputs),
                               *seen.status.produced, seen.status.metrics, now, writer));
  }
  TRY(const std::optional<Duration> pause,
      failed_pods_.replace(ctx, job.metadata.key(), wanted.failed, clock_, writer));
  soon(pause);
  if (world.initial.keys != nullptr && !seen.status.ended()) soon(hosting::kKeysAgain);
  return next ? runtime::Action::after(*next) : runtime::Action::await_change();
}

// ---- work of nodes

namespace {

// The parts of a status that decide the work of nodes.
bool same_work(const FederatedLearningJob& before, const FederatedLearningJob& now) {
  const auto places = [](const FederatedLearningJob& job) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const api::FederatedParticipant& one : job.status.participants)
      out.emplace_back(one.worker, one.dataset);
    return out;
  };
  return before.metadata.uid == now.metadata.uid &&
         before.metadata.generation == now.metadata.generation &&
         before.metadata.deleting() == now.metadata.deleting() &&
         before.status.aggregator.node == now.status.aggregator.node &&
         before.status.aggregator.address == now.status.aggregator.address &&
         before.status.base == now.status.base && before.status.fixed == now.status.fixed &&
         before.status.ended() == now.status.ended() && places(before) == places(now);
}

}  // namespace

void FederatedWork::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.indexes<FederatedLearningJob>(kJobsByNode, index_by_node);
  w.changes<FederatedLearningJob>([](const FederatedLearningJob* before,
                                     const FederatedLearningJob* now,
                                     const runtime::Caches& caches) {
    if (before != nullptr && now != nullptr && same_work(*before, *now)) return Keys{};
    std::set<std::string> names;
    for (const FederatedLearningJob* job : {before, now}) {
      if (job == nullptr) continue;
      names.insert(job->status.aggregator.node);
      for (const api::FederatedParticipant& one : job->status.participants) names.insert(one.node);
    }
    Keys keys;
    for (const std::string& name : names) {
      if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr)
        keys.push_back({"", name});
    }
    return keys;
  });
  w.maps<api::Pod>(
      [](const api::Pod& pod, const runtime::Caches& caches) {
        const meta::OwnerReference* owner = pod.metadata.controller();
        const ObjectKey node{"", pod.spec.node_name};
        if (owner == nullptr || owner->kind != FederatedLearningJob::resource().kind) return Keys{};
        if (node.name.empty() || caches.of<api::EdgeNode>().get(node) == nullptr) return Keys{};
        return Keys{node};
      },
      [](const api::Pod& before, const api::Pod& now) {
        return before.metadata.uid == now.metadata.uid &&
               before.metadata.annotations == now.metadata.annotations &&
               before.spec.node_name == now.spec.node_name;
      });
}

std::vector<hosting::NodeWork> FederatedWork::work_for(const api::EdgeNode& node,
                                                       const runtime::Caches& caches) const {
  std::vector<hosting::NodeWork> out;
  hosting::NodeList nodes;
  if (auto object = caches.of<api::Node>().get({"", node.metadata.name}))
    nodes.push_back(std::move(object));
  for (const auto& job :
       caches.of<FederatedLearningJob>().by_index(kJobsByNode, node.metadata.name)) {
    const auto pods = caches.of<api::Pod>().owned_by(job->metadata.uid);
    if (auto work = federatedlearning::work_for(*job, node, nodes, pods))
      out.push_back(std::move(*work));
  }
  return out;
}

std::vector<hosting::PortClaim> FederatedWork::claims_on(const std::string& node,
                                                         const runtime::Caches& caches) const {
  std::vector<hosting::PortClaim> out;
  for (const auto& job : caches.of<FederatedLearningJob>().by_index(kJobsByNode, node)) {
    if (job->metadata.deleting()) continue;
    for (const auto& pod : caches.of<api::Pod>().owned_by(job->metadata.uid)) {
      if (pod->spec.node_name != node || pod->ended()) continue;
      for (const hosting::HostPort& port : hosting::host_ports(pod->spec))
        out.push_back({node, port.port, port.protocol,
                       std::string(kind()) + " " + job->metadata.key().str(), job->metadata.uid,
                       job->metadata.creation_timestamp, true});
    }
  }
  return out;
}

namespace {

struct FederatedLearningJobs final : hosting::KindControllers {
  FederatedLearningJobs(runtime::Manager& manager, const hosting::Options& options)
      : figures(manager.caches(), [&manager] { return manager.leading(); }),
        reconciler(manager.caches(), options) {}
  const metrics::Collector* metrics() const override { return &figures; }
  const hosting::JobWork* job_work() const override { return &work; }

  FederatedMetrics figures;
  FederatedWork work;
  FederatedReconciler reconciler;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<FederatedLearningJobs>(manager, options);
  manager.add<FederatedLearningJob>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::federatedlearning
