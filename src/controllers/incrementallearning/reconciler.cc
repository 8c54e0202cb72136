#include "controllers/incrementallearning/reconciler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "api/edgeai/dataset.h"
#include "base/log.h"
#include "controllers/incrementallearning/incrementallearning.h"
#include "controllers/incrementallearning/metrics.h"
#include "controllers/incrementallearning/settings.h"
#include "hosting/conditions.h"
#include "hosting/model_archive.h"
#include "hosting/node_index.h"

namespace varda::controllers::incrementallearning {

namespace {

using api::IncrementalLearningJob;
using meta::ObjectKey;
using Keys = std::vector<ObjectKey>;

constexpr std::size_t kIncrementalJobsAtOnce = 4;
// A cluster's policy may later accept the refused pod, and no watch reports that.
constexpr Duration kRefusedObjectAgain = std::chrono::minutes(2);
// Time in which the cache gets a newer job.
constexpr Duration kOldIncrementalAgain = std::chrono::seconds(1);

// ---- indexes

std::vector<std::string> values_of(std::set<std::string> values) {
  values.erase("");
  return {values.begin(), values.end()};
}

std::set<std::string> nodes_near(const IncrementalLearningJob& job) {
  std::set<std::string> names{job.spec.training_node(), job.status.node};
  for (const std::string& node : job.spec.serving_nodes()) names.insert(node);
  return names;
}

/// Jobs by the names of nodes that they are on, or ask for.
constexpr const char* kIncrementalByNode = "incremental job's node";
std::vector<std::string> incremental_by_node(const IncrementalLearningJob& job) {
  return values_of(nodes_near(job));
}

/// Jobs by the Models and InferenceModels that they read or write.
constexpr const char* kIncrementalByModel = "incremental job's model";
std::vector<std::string> incremental_by_model(const IncrementalLearningJob& job) {
  const std::string& ns = job.metadata.ns;
  std::set<std::string> keys{ObjectKey{ns, job.spec.deploy_spec.model.name}.str(),
                             ObjectKey{ns, job.spec.initial_model.name}.str()};
  if (const auto& model = job.spec.eval_spec.initial_eval_model)
    keys.insert(ObjectKey{ns, model->name}.str());
  return values_of(std::move(keys));
}

/// The younger jobs with the same Model wait for the older one.
Keys jobs_with_same_model(const IncrementalLearningJob& job, const runtime::Caches& caches) {
  Keys keys;
  const ObjectKey model{job.metadata.ns, job.spec.deploy_spec.model.name};
  for (const auto& other :
       caches.of<IncrementalLearningJob>().by_index(kIncrementalByModel, model.str()))
    if (other->metadata.key() != job.metadata.key()) keys.push_back(other->metadata.key());
  return keys;
}

bool same_claim_of_model(const IncrementalLearningJob& before, const IncrementalLearningJob& now) {
  return before.metadata.uid == now.metadata.uid &&
         before.metadata.generation == now.metadata.generation &&
         before.metadata.deleting() == now.metadata.deleting();
}

/// Jobs by the InferenceModel that labels their samples.
constexpr const char* kIncrementalByLabelModel = "incremental job's label model";
std::vector<std::string> incremental_by_label_model(const IncrementalLearningJob& job) {
  const std::string& name = label_model(job);
  if (name.empty()) return {};
  return {ObjectKey{job.metadata.ns, name}.str()};
}

std::set<std::string> names_of_datasets(const IncrementalLearningJob& job) {
  std::set<std::string> names{job.spec.dataset.name};
  if (job.spec.eval_spec.dataset) names.insert(job.spec.eval_spec.dataset->name);
  if (job.spec.train_spec.replay) names.insert(job.spec.train_spec.replay->name);
  return names;
}

constexpr const char* kIncrementalByDataset = "incremental job's dataset";
std::vector<std::string> incremental_by_dataset(const IncrementalLearningJob& job) {
  std::set<std::string> keys;
  for (const std::string& name : names_of_datasets(job))
    keys.insert(ObjectKey{job.metadata.ns, name}.str());
  return values_of(std::move(keys));
}

Keys incremental_with(const char* index, const std::string& value, const runtime::Caches& caches) {
  Keys keys;
  for (const auto& job : caches.of<IncrementalLearningJob>().by_index(index, value))
    keys.push_back(job->metadata.key());
  return keys;
}

/// The job of a pod of one of its InferenceModels. Crashes of servers count.
Keys job_of_server(const api::Pod& pod, const runtime::Caches& caches) {
  const meta::OwnerReference* model = pod.metadata.controller();
  if (model == nullptr || model->kind != api::InferenceModel::resource().kind) return {};
  const auto child = caches.of<api::InferenceModel>().get({pod.metadata.ns, model->name});
  if (child == nullptr) return {};
  const meta::OwnerReference* job = child->metadata.controller();
  if (job == nullptr || job->kind != IncrementalLearningJob::resource().kind) return {};
  return {ObjectKey{pod.metadata.ns, job->name}};
}

/// Counts of its requests change nothing for a job.
bool same_label_server(const api::InferenceModel& before, const api::InferenceModel& now) {
  return before.status.url == now.status.url && before.spec.model_name == now.spec.model_name;
}

LabelWay labels_of(const IncrementalLearningJob& job, const runtime::Caches& caches) {
  const ObjectKey data{job.metadata.ns, job.spec.dataset.name};
  return label_way(job,
                   {caches.of<api::Dataset>().get(data), caches.of<api::SednaDataset>().get(data)},
                   [&](const std::string& name) {
                     return caches.of<api::InferenceModel>().get({job.metadata.ns, name});
                   });
}

// ---- events

bool is_usual_wait(std::string_view reason) {
  static constexpr std::string_view kUsual[] = {"VersionPending", "ServerPending", "PodPending",
                                                "Suspended"};
  return hosting::is_progress(reason) ||
         std::find(std::begin(kUsual), std::end(kUsual), reason) != std::end(kUsual);
}

void record_round(const IncrementalLearningJob& job, const IncrementalObservation& seen,
                  runtime::Writer& writer) {
  using runtime::EventType;
  for (const incremental::Transition& step : seen.transitions) {
    if (step.stage == incremental::Stage::kTrain && step.phase == incremental::Phase::kReady)
      writer.event(job, EventType::kNormal, "RoundStarted", step.message);  // names the round
    if (step.reason == incremental::kNothingToTrain)
      writer.event(job, EventType::kWarning, step.reason, step.message);
  }
  if (seen.ended) {
    const incremental::RoundRecord& end = *seen.ended;
    const bool good = end.outcome == incremental::Outcome::kAccepted;
    writer.event(job, good ? EventType::kNormal : EventType::kWarning,
                 "Round" + std::string(incremental::to_string(end.outcome)),
                 "round " + std::to_string(end.round) + ": " + end.reason + ": " + end.message);
  }
  if (!seen.rolled_back.empty())
    writer.event(job, EventType::kWarning, "RolledBack",
                 "version " + seen.rolled_back + " no longer serves");
}

void record_ready(const IncrementalLearningJob& job, const api::IncrementalLearningJobStatus& now,
                  hosting::PassingProblems& passing, SteadyTime time, runtime::Writer& writer) {
  const meta::Condition* is = meta::find_condition(now.conditions, "Ready");
  const meta::Condition* was = meta::find_condition(job.status.conditions, "Ready");
  if (is == nullptr) return;
  if (is->status == "True" || is_usual_wait(is->reason)) {
    passing.clear(job.metadata.key(), "Ready");
    if (is->status == "True" && (was == nullptr || was->status != "True"))
      writer.event(job, runtime::EventType::kNormal, "Serving", is->message);
    return;
  }
  if (passing.due(job.metadata.key(), was, *is, time))
    writer.event(job, runtime::EventType::kWarning, is->reason, is->message);
}

/// A server that this reconcile is to create.
bool awaits_creation(const PlannedServer& server) {
  return server.child == nullptr && server.pod == nullptr && !server.problem;
}

}  // namespace

void IncrementalReconciler::watches(runtime::Watches<IncrementalLearningJob>& w) const {
  w.owns<api::Pod>(runtime::Update::kRecreate).owns<api::InferenceModel>();
  w.workers(kIncrementalJobsAtOnce);
  hosting::index_nodes(w);
  w.indexes<IncrementalLearningJob>(kIncrementalByNode, incremental_by_node)
      .indexes<IncrementalLearningJob>(kIncrementalByModel, incremental_by_model)
      .indexes<IncrementalLearningJob>(kIncrementalByDataset, incremental_by_dataset)
      .indexes<IncrementalLearningJob>(kIncrementalByLabelModel, incremental_by_label_model);
  w.maps<api::InferenceModel>(
      [](const api::InferenceModel& model, const runtime::Caches& caches) {
        return incremental_with(kIncrementalByLabelModel, model.metadata.key().str(), caches);
      },
      same_label_server);
  w.maps<api::Node>(
      [](const api::Node& node, const runtime::Caches& caches) {
        return incremental_with(kIncrementalByNode, node.metadata.name, caches);
      },
      hosting::same_to_pods);
  w.maps<api::EdgeNode>([](const api::EdgeNode& node, const runtime::Caches& caches) {
    return incremental_with(kIncrementalByNode, node.metadata.name, caches);
  });
  w.maps<api::Pod>(job_of_server);
  w.maps<IncrementalLearningJob>(jobs_with_same_model, same_claim_of_model);
  const auto of_model = [](const auto& model, const runtime::Caches& caches) {
    return incremental_with(kIncrementalByModel, model.metadata.key().str(), caches);
  };
  w.maps<api::Model>(of_model).maps<api::SednaModel>(of_model).maps<api::InferenceModel>(of_model);
  const auto of_dataset = [](const auto& dataset, const runtime::Caches& caches) {
    return incremental_with(kIncrementalByDataset, dataset.metadata.key().str(), caches);
  };
  w.maps<api::Dataset>(of_dataset).maps<api::SednaDataset>(of_dataset);
}

IncrementalWorld IncrementalReconciler::look(const IncrementalLearningJob& job) const {
  IncrementalWorld world;
  const std::string& ns = job.metadata.ns;
  world.edge_node = [this](const std::string& node) {
    return caches_.of<api::EdgeNode>().get({"", node});
  };
  const auto look_at = [&](const std::string& name, workers::ModelWorld& out) {
    const ObjectKey key{ns, name};
    out.keys = hosting::keys_of(options_);
    out.models = hosting::named_models(key, caches_);
    out.inference_model = caches_.of<api::InferenceModel>().get(key);
  };
  look_at(job.spec.initial_model.name, world.initial);
  if (const auto& model = job.spec.eval_spec.initial_eval_model)
    look_at(model->name, world.baseline);
  std::set<std::string> nodes = nodes_near(job);
  for (const std::string& name : names_of_datasets(job)) {
    const runs::NamedDatasets named{caches_.of<api::Dataset>().get({ns, name}),
                                    caches_.of<api::SednaDataset>().get({ns, name})};
    if (named.edgeai != nullptr) nodes.insert(named.edgeai->spec.node_name);
    if (named.sedna != nullptr) nodes.insert(named.sedna->spec.node_name);
    world.datasets.emplace(name, named);
  }
  hosting::NodeSet set(caches_);
  for (const std::string& name : nodes)
    if (!name.empty()) set.add(name);
  world.nodes = set.list();
  world.pods = caches_.of<api::Pod>().owned_by(job.metadata.uid);
  world.children = caches_.of<api::InferenceModel>().owned_by(job.metadata.uid);
  for (const ChildPtr& child : world.children)
    for (auto& pod : caches_.of<api::Pod>().owned_by(child->metadata.uid))
      world.server_pods.push_back(std::move(pod));
  const ObjectKey output{ns, job.spec.deploy_spec.model.name};
  world.outputs = hosting::named_models(output, caches_);
  for (const auto& other :
       caches_.of<IncrementalLearningJob>().by_index(kIncrementalByModel, output.str()))
    if (writes_first(*other, job)) world.older_writer = other->metadata.name;
  world.labels = labels_of(job, caches_);
  return world;
}

Result<runtime::Action> IncrementalReconciler::on_deleted(const Context& /*ctx*/,
                                                          const ObjectKey& key,
                                                          runtime::Writer& /*writer*/) {
  failed_pods_.forget(key);
  const MutexLock lock(mutex_);
  passing_.forget(key);
  return runtime::Action::await_change();
}

Result<runtime::Action> IncrementalReconciler::reconcile(const Context& ctx,
                                                         const IncrementalLearningJob& job,
                                                         runtime::Writer& writer) {
  if (job.metadata.deleting()) return runtime::Action::await_change();
  const WallTime now = clock_.wall();
  const IncrementalWorld world = look(job);
  IncrementalPlan wanted = plan(job, world, options_);
  Status converged;
  std::optional<hosting::Problem> refused;
  bool again = false;
  const bool lacks_server =
      std::any_of(wanted.servers.begin(), wanted.servers.end(), awaits_creation);
  if (lacks_server && wanted.pod == nullptr) {
    // The name of a server may be in use, and then a training would be in vain.
    std::erase_if(wanted.objects, [&](const codec::Json& object) {
      return object["kind"].as_string() == api::Pod::resource().kind &&
             object.at("metadata/name").as_string() == wanted.pod_name;
    });
  }
  if (!wanted.problem) {
    converged = writer.converge(ctx, job, wanted.objects);
    const Code code = converged.ok() ? Code::kInternal : converged.error().code();
    if (!converged.ok() && code == Code::kAlreadyExists) {
      refused = hosting::Problem{"NameInUse", converged.error().message()};
    } else if (!converged.ok() && (code == Code::kInvalid || code == Code::kForbidden)) {
      refused = hosting::Problem{"Refused", converged.error().message()};
      again = true;
    }
  }
  // A failed write must not hide the rest of the status.
  if (refused) {
    for (PlannedServer& server : wanted.servers)
      if (server.child == nullptr && server.pod == nullptr) server.problem = refused;
    if (wanted.wanted.worker && wanted.pod == nullptr) wanted.waiting = refused;
    if (lacks_server && !wanted.blocked) wanted.blocked = refused;
  }
  const IncrementalObservation seen = observe(job, wanted, world, options_, now);
  std::optional<Duration> next = seen.recheck_in;
  const auto soon = [&next](std::optional<Duration> delay) {
    if (delay) next = next ? std::min(*next, *delay) : *delay;
  };
  TRY(const bool written, runs::write_status(ctx, job, seen.status, writer));
  if (!written) return runtime::Action::after(kOldIncrementalAgain);
  {
    const MutexLock lock(mutex_);
    record_round(job, seen, writer);
    record_ready(job, seen.status, passing_, clock_.now(), writer);
    soon(passing_.wait(job.metadata.key(), clock_.now()));
  }
  if (again) {
    log::warn("API server rejected an object of an incremental job",
              {{"error", converged.error()}});
    return runtime::Action::after(kRefusedObjectAgain);
  }
  TRY_VOID(std::move(converged));
  if (seen.output) {
    TRY_VOID(runs::write_model(ctx, seen.output->object, output_model(job, world.outputs),
                               seen.output->produced, seen.output->metrics, now, writer));
  }
  TRY(const std::optional<Duration> pause,
      failed_pods_.replace(ctx, job.metadata.key(), wanted.failed, clock_, writer));
  soon(pause);
  if (world.initial.keys != nullptr) soon(hosting::kKeysAgain);
  return next ? runtime::Action::after(*next) : runtime::Action::await_change();
}

// ---- work of nodes

namespace {

template <typename Jobs>
Keys edge_nodes_of(const Jobs& jobs, const runtime::Caches& caches) {
  std::set<std::string> names;
  for (const auto& job : jobs) names.merge(nodes_near(*job));
  Keys keys;
  for (const std::string& name : names) {
    if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr)
      keys.push_back({"", name});
  }
  return keys;
}

// The parts of a job that decide the work of nodes.
bool same_node_work(const IncrementalLearningJob& before, const IncrementalLearningJob& now) {
  const auto nodes = [](const IncrementalLearningJob& job) {
    std::vector<std::string> out;
    for (const api::IncrementalServing& one : job.status.serving) out.push_back(one.node);
    return out;
  };
  const auto state = [](const IncrementalLearningJob& job) {
    const auto parsed = incremental::parse_state(job.status.machine);
    return parsed.ok() ? *parsed : incremental::State{};
  };
  if (before.metadata.uid != now.metadata.uid ||
      before.metadata.generation != now.metadata.generation ||
      before.metadata.deleting() != now.metadata.deleting() ||
      before.status.node != now.status.node || before.status.base != now.status.base ||
      before.status.baseline != now.status.baseline ||
      before.status.versions != now.status.versions || nodes(before) != nodes(now))
    return false;
  if (before.status.machine == now.status.machine) return true;
  const auto settings = settings_of(now.spec);
  if (!settings.ok()) return true;
  const incremental::State was = state(before), is = state(now);
  return was.serving == is.serving &&
         incremental::wanted_of(*settings, was) == incremental::wanted_of(*settings, is);
}

}  // namespace

void IncrementalWork::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.indexes<IncrementalLearningJob>(kIncrementalByNode, incremental_by_node);
  w.changes<IncrementalLearningJob>([](const IncrementalLearningJob* before,
                                       const IncrementalLearningJob* now,
                                       const runtime::Caches& caches) {
    if (before != nullptr && now != nullptr && same_node_work(*before, *now)) return Keys{};
    std::set<std::string> names;
    for (const IncrementalLearningJob* job : {before, now})
      if (job != nullptr) names.merge(nodes_near(*job));
    Keys keys;
    for (const std::string& name : names) {
      if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr)
        keys.push_back({"", name});
    }
    return keys;
  });
  w.indexes<IncrementalLearningJob>(kIncrementalByLabelModel, incremental_by_label_model);
  const auto labelled_by = [](const auto& model, const runtime::Caches& caches) {
    return edge_nodes_of(caches.of<IncrementalLearningJob>().by_index(kIncrementalByLabelModel,
                                                                      model.metadata.key().str()),
                         caches);
  };
  w.maps<api::InferenceModel>(labelled_by, same_label_server);
  const auto filled = [](const auto& dataset, const runtime::Caches& caches) {
    return edge_nodes_of(caches.of<IncrementalLearningJob>().by_index(kIncrementalByDataset,
                                                                      dataset.metadata.key().str()),
                         caches);
  };
  const auto same_place = [](const auto& before, const auto& now) {
    return before.spec.url == now.spec.url && before.spec.format == now.spec.format &&
           before.spec.node_name == now.spec.node_name;
  };
  w.maps<api::Dataset>(filled, same_place).maps<api::SednaDataset>(filled, same_place);
  w.maps<api::Pod>(
      [](const api::Pod& pod, const runtime::Caches& caches) {
        const meta::OwnerReference* owner = pod.metadata.controller();
        const ObjectKey node{"", pod.spec.node_name};
        if (owner == nullptr || owner->kind != IncrementalLearningJob::resource().kind)
          return Keys{};
        if (node.name.empty() || caches.of<api::EdgeNode>().get(node) == nullptr) return Keys{};
        return Keys{node};
      },
      [](const api::Pod& before, const api::Pod& now) {
        return before.metadata.uid == now.metadata.uid &&
               before.metadata.annotations == now.metadata.annotations &&
               before.spec.node_name == now.spec.node_name;
      });
}

std::vector<hosting::NodeWork> IncrementalWork::work_for(const api::EdgeNode& node,
                                                         const runtime::Caches& caches) const {
  std::vector<hosting::NodeWork> out;
  hosting::NodeList nodes;
  if (auto object = caches.of<api::Node>().get({"", node.metadata.name}))
    nodes.push_back(std::move(object));
  for (const auto& job :
       caches.of<IncrementalLearningJob>().by_index(kIncrementalByNode, node.metadata.name)) {
    const auto pods = caches.of<api::Pod>().owned_by(job->metadata.uid);
    if (auto work = incrementallearning::work_for(*job, node, nodes, pods, labels_of(*job, caches)))
      out.push_back(std::move(*work));
  }
  return out;
}

std::vector<hosting::PortClaim> IncrementalWork::claims_on(const std::string& node,
                                                           const runtime::Caches& caches) const {
  std::vector<hosting::PortClaim> out;
  for (const auto& job : caches.of<IncrementalLearningJob>().by_index(kIncrementalByNode, node)) {
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

struct IncrementalLearningJobs final : hosting::KindControllers {
  IncrementalLearningJobs(runtime::Manager& manager, const hosting::Options& options)
      : figures(manager.caches(), [&manager] { return manager.leading(); }),
        reconciler(manager.caches(), options) {}
  const metrics::Collector* metrics() const override { return &figures; }
  const hosting::JobWork* job_work() const override { return &work; }

  IncrementalMetrics figures;
  IncrementalWork work;
  IncrementalReconciler reconciler;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<IncrementalLearningJobs>(manager, options);
  manager.add<IncrementalLearningJob>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::incrementallearning
