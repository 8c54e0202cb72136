#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "codec/text.h"
#include "controllers/dataset/dataset.h"
#include "controllers/incrementallearning/plan.h"
#include "controllers/incrementallearning/report.h"
#include "controllers/incrementallearning/servers.h"
#include "hosting/conditions.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::incrementallearning {

namespace {

using api::IncrementalLearningJob;
using api::IncrementalLearningJobStatus;
using api::IncrementalVersion;
using hosting::kFalse;
using hosting::kTrue;
using hosting::no;
using hosting::Problem;
using incremental::Phase;
using incremental::Stage;

constexpr std::size_t kReasonMax = 128, kMessageMax = 2048, kServingMessageMax = 1024;

std::string text_of(std::int64_t number) { return std::to_string(number); }

std::string signed_text(double value) {
  const std::string text = incremental::number_text(value);
  return value > 0 ? "+" + text : text;
}

/// The metrics of the candidate, as texts.
std::vector<api::ModelMetric> metrics_of(const runs::ReportedResult& result,
                                         const Json& comparison) {
  if (!result.metrics.empty()) return result.metrics;
  std::vector<api::ModelMetric> out;
  for (const auto& [name, value] : comparison.at("metrics/candidate").as_object()) {
    if (value.is_number() && out.size() < api::ModelMetricsStatus::kMetricsMax)
      out.push_back({codec::clipped(name, 253), runs::short_number(value.as_double()), {}});
  }
  return out;
}

class Observer {
 public:
  Observer(const IncrementalLearningJob& job, const IncrementalPlan& plan,
           const IncrementalWorld& world, const hosting::Options& options, WallTime now)
      : job_(job),
        plan_(plan),
        world_(world),
        options_(options),
        wall_(now),
        conditions_(out_.status.conditions, out_.status.observed_generation, out_.recheck_in, now) {
  }

  IncrementalObservation make() {
    out_.status = job_.status;
    status().observed_generation = std::max(job_.metadata.generation, status().observed_generation);
    if (plan_.problem) {
      conditions_.set("Ready", no(*plan_.problem));
      return std::move(out_);
    }
    status().base = plan_.base;
    status().baseline = plan_.baseline;
    status().versions = plan_.versions;
    if (!plan_.node.empty()) status().node = plan_.node;
    status().pod = plan_.pod == nullptr ? "" : plan_.pod->metadata.name;
    agent_ = plan_.node.empty() ? nullptr : world_.edge_node(plan_.node);
    servers_ = look_at_servers(job_, plan_, world_);
    show_servers();
    advance();
    prune_versions();
    show_state();
    show_samples();
    write_model();
    return std::move(out_);
  }

 private:
  IncrementalLearningJobStatus& status() { return out_.status; }

  // ---- input of the machine

  const api::DatasetStatus* dataset() const {
    const auto found = world_.datasets.find(job_.spec.dataset.name);
    if (found == world_.datasets.end()) return nullptr;
    const std::string& group = job_.spec.dataset.group;
    const runs::NamedDatasets& named = found->second;
    if (named.edgeai != nullptr && group != "sedna.io") return &named.edgeai->status;
    if (named.sedna != nullptr && group != "edgeai.io") return &named.sedna->status;
    return nullptr;
  }

  std::optional<std::int64_t> samples() const {
    const api::DatasetStatus* counted = dataset();
    return counted == nullptr ? std::nullopt : counted->number_of_samples;
  }

  Json model_metrics() const {
    Json out = Json::object();
    const auto model = output_model(job_, world_.outputs);
    if (!model) return out;
    for (const api::ModelMetric& metric : model->status->metrics) out.set(metric.key, metric.value);
    return out;
  }

  incremental::Observation observation() {
    incremental::Observation out;
    out.now = wall_;
    out.samples = samples();
    out.initial_version = plan_.base->archive.version;
    for (const IncrementalVersion& version : plan_.versions)
      out.versions.push_back(version.version);
    if (const auto model = output_model(job_, world_.outputs);
        model && !model->spec->version.empty())
      out.versions.push_back(model->spec->version);
    for (const ServerFinding& server : servers_) out.nodes.push_back(server.report);
    if (plan_.wanted.worker) {
      if (auto report = worker_report()) out.workers.push_back(std::move(*report));
    }
    out.metrics = model_metrics();
    out.train_request = job_.annotation(IncrementalLearningJob::kTrainAnnotation);
    out.rollback_request = job_.annotation(IncrementalLearningJob::kRollbackAnnotation);
    out.suspended = job_.spec.suspend;
    if (plan_.blocked) out.blocked = plan_.blocked->message;
    return out;
  }

  bool lost() const {
    return plan_.node.empty() ||
           hosting::out_of_reach(plan_.node, hosting::find_node(world_.nodes, plan_.node),
                                 agent_.get())
               .has_value();
  }

  std::optional<incremental::WorkerReport> worker_report() {
    const incremental::Assignment& assignment = *plan_.wanted.worker;
    const Json* report =
        runs::find_report(agent_.get(), job_.metadata.ns + "/" + plan_.pod_name, job_.metadata.uid);
    auto end = reported_end(report, assignment, plan_.settings.separate_evaluation);
    if (end) {
      conditions_.erase("ResultReceived");
      result_ = std::move(end->result);
      return std::move(end->report);
    }
    if (plan_.pod == nullptr || plan_.pod->metadata.deleting()) {
      conditions_.erase("ResultReceived");
      return {};
    }
    return pod_report(*plan_.pod, assignment);
  }

  std::optional<incremental::WorkerReport> pod_report(const api::Pod& pod,
                                                      const incremental::Assignment& assignment) {
    incremental::WorkerReport out;
    out.stage = assignment.stage;
    out.round = assignment.round;
    out.attempt = assignment.attempt;
    const auto problem = hosting::pod_problem(pod);
    const auto& containers = pod.status.container_statuses;
    const bool failed =
        pod.status.phase == "Failed" ||
        std::any_of(containers.begin(), containers.end(),
                    [](const api::ContainerStatus& one) { return runs::failed_now(one); });
    if (failed) {
      conditions_.erase("ResultReceived");
      out.phase = Phase::kFailed;
      out.message = problem ? problem->message : "the pod has failed";
      const bool ours =
          assignment.stage == Stage::kEval ? !job_.spec.users_evaluate() : !job_.spec.users_train();
      out.permanent = ours && runs::ended_for_good(pod);
      return out;
    }
    if (pod.status.phase == "Succeeded") {
      const std::string what = "the pod has ended, and node " + plan_.node +
                               " has not reported results/final of round " +
                               text_of(assignment.round);
      out.phase = Phase::kRunning;
      if (lost()) {
        conditions_.erase("ResultReceived");
      } else if (conditions_.await("ResultReceived", "AwaitingResult", what, kResultPatience)) {
        conditions_.erase("ResultReceived");
        out.phase = Phase::kFailed;
        out.message = what;
      }
      return out;
    }
    conditions_.erase("ResultReceived");
    out.phase = pod.status.phase == "Running" ? Phase::kRunning : Phase::kStarting;
    return out;
  }

  // ---- the machine

  void advance() {
    const incremental::Observation seen = observation();
    if (!plan_.wanted.worker) conditions_.erase("ResultReceived");
    incremental::Advance next = incremental::advance(plan_.settings, plan_.state, seen);
    state_ = std::move(next.state);
    out_.transitions = std::move(next.transitions);
    out_.ended = std::move(next.ended);
    out_.rolled_back = std::move(next.rolled_back);
    take_candidate(seen);
    if (next.changed) status().machine = incremental::to_json(state_);
    if (next.due) conditions_.recheck_at(*next.due);
    fresh_ = incremental::new_samples(state_, seen);
  }

  /// The archive of the candidate, with the report that the machine took.
  void take_candidate(const incremental::Observation& seen) {
    if (!result_ || !plan_.wanted.worker || seen.workers.empty()) return;
    const incremental::WorkerReport& report = seen.workers.front();
    if (report.phase != Phase::kCompleted || plan_.wanted.worker->stage != Stage::kTrain) return;
    const std::string& name = plan_.wanted.worker->version;
    if (status().find_version(name) != nullptr) return;
    const api::TrainingProduced produced =
        runs::produced_of(*result_, name, {options_.registry_url});
    IncrementalVersion version;
    version.version = produced.version;
    version.url = produced.url;
    version.sha256 = produced.sha256;
    version.bytes = produced.bytes;
    version.round = plan_.wanted.worker->round;
    version.report_url = produced.report_url;
    version.metrics = metrics_of(*result_, report.comparison);
    status().versions.push_back(std::move(version));
  }

  /// Forgets versions that can never serve again.
  void prune_versions() {
    std::set<std::string> needed{plan_.base->archive.version, state_.serving.version,
                                 state_.candidate};
    for (const auto& former : state_.previous) needed.insert(former.version);
    for (const ServerFinding& server : servers_) needed.insert(server.report.serving);
    std::erase_if(status().versions,
                  [&](const IncrementalVersion& one) { return !needed.contains(one.version); });
  }

  // ---- the status

  void show_servers() {
    status().serving.clear();
    const ServerFinding* bad = nullptr;
    for (const ServerFinding& server : servers_) {
      api::IncrementalServing& one = status().serving.emplace_back();
      one.node = server.report.name;
      one.name = server.name;
      one.version = server.report.serving;
      one.url = server.url;
      one.ready = server.ready;
      one.restarts = server.restarts;
      one.restarts_before = server.restarts_before;
      if (!server.ready) one.message = codec::clipped(server.problem.message, kServingMessageMax);
      if (!server.ready && bad == nullptr) bad = &server;
    }
    if (servers_.empty())
      return conditions_.set("Ready", no("NodeMissing", "no node serves: set nodeName"));
    if (bad != nullptr)
      return conditions_.set(
          "Ready", no(bad->problem.reason, bad->report.name + ": " + bad->problem.message));
    conditions_.set("Ready",
                    {kTrue, "Serving",
                     servers_.size() == 1
                         ? "version " + servers_.front().report.serving + " serves"
                         : text_of(static_cast<std::int64_t>(servers_.size())) + " nodes serve"});
  }

  void show_state() {
    status().stage = std::string(incremental::to_string(state_.stage));
    status().state = std::string(incremental::to_string(state_.phase));
    status().round = state_.round;
    status().attempt = state_.attempt;
    status().version = state_.serving.version;
    show_stage_conditions();
    show_evaluation();
    const meta::Condition* suspended = meta::find_condition(status().conditions, "Suspended");
    if (job_.spec.suspend) {
      conditions_.set("Suspended", {kTrue, "Suspended", "spec.suspend is true: no round starts"});
    } else if (suspended != nullptr) {
      conditions_.set("Suspended", no("Resumed", "rounds start again"));
    }
    status().summary.stage = status().stage + " " + status().state;
    show_rounds();
  }

  /// The last evaluated round, if its version left the service. Null: the version serves, the gate
  /// refused it, or a later round has a verdict.
  const incremental::RoundRecord* rolled_back_round() const {
    const std::vector<incremental::RoundRecord>& rounds = state_.rounds;
    const bool ended = !rounds.empty() && rounds.back().round == state_.round;
    if (state_.verdict && !ended) return nullptr;
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
      if (round->rolled_back) return &*round;
      // Such a round ended with the version that it started from.
      const bool fell_with_base = round->reason == incremental::kBaseRolledBack;
      if (!fell_with_base && (round->value || round->gain)) return nullptr;
    }
    return nullptr;
  }

  /// The last evaluation. After a rollback its numbers are not those of the version that serves.
  void show_evaluation() {
    if (const incremental::RoundRecord* left = rolled_back_round()) {
      status().summary.gain = gain_of_serving();
      const meta::Condition* shown = meta::find_condition(status().conditions, "Evaluated");
      const bool has_verdict = state_.verdict && left->round == state_.round;
      if (!has_verdict && shown == nullptr) return;
      const bool passed = has_verdict ? state_.verdict->passed : shown->status == kTrue;
      conditions_.set(
          "Evaluated",
          {passed ? kTrue : kFalse, "RolledBack",
           codec::clipped("version " + left->version + " of round " + text_of(left->round) +
                              " left the service: " + left->reason + ": " + left->message,
                          kMessageMax)});
      return;
    }
    if (!state_.verdict) return;
    const incremental::GateVerdict& verdict = *state_.verdict;
    conditions_.set("Evaluated", {verdict.passed ? kTrue : kFalse, verdict.reason,
                                  codec::clipped(verdict.message, kMessageMax)});
    status().summary.gain = verdict.gain ? signed_text(*verdict.gain) : "";
  }

  /// "": the initial version, or a round that the state has forgotten.
  std::string gain_of_serving() const {
    for (const incremental::RoundRecord& round : state_.rounds)
      if (round.round == state_.serving.round && round.gain) return signed_text(*round.gain);
    return "";
  }

  /// The end of a stage in the last round that came so far. Nothing: no such round is known.
  const incremental::Transition* last_end_of(Stage stage) const {
    for (auto step = state_.history.rbegin(); step != state_.history.rend(); ++step) {
      if (step->stage == stage &&
          (step->phase == Phase::kCompleted || step->phase == Phase::kFailed))
        return &*step;
    }
    return nullptr;
  }

  /// The refusal of a manual request, until samples or a transition follow. Null: none.
  const incremental::Transition* refused_request() const {
    if (state_.history.empty() || fresh_.value_or(0) > 0) return nullptr;
    const incremental::Transition& last = state_.history.back();
    return last.reason == incremental::kNothingToTrain ? &last : nullptr;
  }

  // The stage at work has the phase of the machine. Earlier stages of the round are completed.
  // Later ones have the result of the round before.
  void show_stage_conditions() {
    for (const Stage stage : {Stage::kTrain, Stage::kEval, Stage::kDeploy}) {
      const std::string type(incremental::to_string(stage));
      if (stage == state_.stage) {
        std::string reason(incremental::to_string(state_.phase)), message = state_.message;
        if (plan_.wanted.worker && plan_.pod == nullptr) {
          if (plan_.blocked) {
            message = plan_.blocked->message;
          } else if (plan_.waiting) {
            message = plan_.waiting->message;
          }
        }
        if (const incremental::Transition* refusal = refused_request()) {
          reason = refusal->reason;
          message = refusal->message;
        }
        const bool is = state_.phase == Phase::kCompleted || state_.phase == Phase::kRunning;
        conditions_.set(type, {is ? kTrue : kFalse, reason, codec::clipped(message, kMessageMax)});
      } else if (stage < state_.stage) {
        conditions_.set(type, {kTrue, "Completed", "round " + text_of(state_.round)});
      } else if (const incremental::Transition* end = last_end_of(stage)) {
        // Short stages begin and end in one look, so the machine is never seen in them.
        const bool is = end->phase == Phase::kCompleted;
        conditions_.set(type, {is ? kTrue : kFalse, std::string(incremental::to_string(end->phase)),
                               codec::clipped("round " + text_of(end->round) + ": " + end->message,
                                              kMessageMax)});
      } else if (meta::find_condition(status().conditions, type) == nullptr) {
        conditions_.set(type, no("Waiting", "no round has reached this stage"));
      }
    }
  }

  void show_rounds() {
    status().rounds.clear();
    for (const incremental::RoundRecord& record : state_.rounds) {
      api::IncrementalRound& one = status().rounds.emplace_back();
      one.round = record.round;
      one.outcome = std::string(incremental::to_string(record.outcome));
      one.reason = codec::clipped(record.reason, kReasonMax);
      one.message = codec::clipped(record.message, kMessageMax);
      one.trigger = codec::clipped(record.trigger, kMessageMax);
      one.version = record.version;
      one.samples = record.samples;
      if (record.gain) one.gain = signed_text(*record.gain);
      one.rolled_back = record.rolled_back;
      one.start_time = meta::format_time(record.started);
      one.end_time = meta::format_time(record.ended);
    }
    std::set<std::int64_t> refused(status().refused.begin(), status().refused.end());
    for (const incremental::RoundRecord& record : state_.rounds)
      if (record.outcome == incremental::Outcome::kRefused) refused.insert(record.round);
    while (refused.size() > IncrementalLearningJobStatus::kRefusedMax)
      refused.erase(refused.begin());
    status().refused.assign(refused.begin(), refused.end());
    status().history.clear();
    for (const incremental::Transition& step : state_.history) {
      api::IncrementalStep& one = status().history.emplace_back();
      one.round = step.round;
      one.stage = std::string(incremental::to_string(step.stage));
      one.state = std::string(incremental::to_string(step.phase));
      one.reason = codec::clipped(step.reason, kReasonMax);
      one.time = meta::format_time(step.at);
    }
  }

  void show_samples() {
    api::IncrementalSamples& shown = status().samples;
    if (const auto count = samples()) shown.total = *count;
    shown.consumed = state_.used;
    if (fresh_) shown.fresh = *fresh_;
    shown.pending = 0;
    for (const ServerFinding& server : servers_) shown.pending += server.pending;
    show_labels();
    status().summary.samples = text_of(shown.fresh) + " new, " + text_of(shown.total);
  }

  /// Problems of the way from kept samples to the Dataset.
  void show_labels() {
    std::int64_t moved = 0;
    bool any = false;
    for (const ServerFinding& server : servers_) {
      if (!server.labels) continue;
      any = true;
      moved += server.labels->moved;
      if (server.labels->state != api::EdgeSamplesReport::kFailed) continue;
      return conditions_.set(
          "Labels",
          no(server.labels->reason, "node " + server.report.name + ": " + server.labels->message));
    }
    if (!any) return conditions_.erase("Labels");
    if (world_.labels.problem) return conditions_.set("Labels", no(*world_.labels.problem));
    for (const ServerFinding& server : servers_) {
      if (!server.labels || world_.labels.node.empty() || server.report.name == world_.labels.node)
        continue;
      return conditions_.set(
          "Labels",
          no("DatasetElsewhere", "node " + server.report.name + " keeps samples, and Dataset " +
                                     job_.spec.dataset.name + " is on node " + world_.labels.node +
                                     ": export the samples and label them there"));
    }
    conditions_.set(
        "Labels", {kTrue, "Moved",
                   text_of(moved) + " labelled samples are in Dataset " + job_.spec.dataset.name});
  }

  // ---- the Model

  void write_model() {
    const IncrementalVersion* serving = status().find_version(state_.serving.version);
    if (serving == nullptr || serving->sha256.empty()) return;
    const auto model = output_model(job_, world_.outputs);
    const std::string source = IncrementalLearningJob::resource().kind + "/" + job_.metadata.name;
    // The initial model is the user's, unless a former version of this job replaced it.
    if (serving->round == 0 && (!model || model->spec->source_job != source)) return;
    IncrementalObservation::Output out;
    out.produced.version = serving->version;
    out.produced.sha256 = serving->sha256;
    out.produced.url = serving->url;
    out.produced.bytes = serving->bytes;
    out.produced.report_url = serving->report_url;
    out.metrics = serving->metrics;
    if (model && runs::has_result(*model, out.produced, out.metrics)) return;
    const std::optional<api::TrainingBase> parent = parent_of(*serving);
    runs::ModelOfRun made{
        .name = job_.spec.deploy_spec.model.name,
        .ns = job_.metadata.ns,
        .group = job_.spec.deploy_spec.model.group.empty() ? api::Model::resource().group
                                                           : job_.spec.deploy_spec.model.group,
        .source_job = source,
        .format = model_format(),
        .produced = out.produced,
        .base = parent,
        .metadata = {{"dataset", job_.spec.dataset.name}, {"round", text_of(serving->round)}}};
    out.object = runs::to_object(made);
    out_.output = std::move(out);
  }

  std::string model_format() const {
    const auto model = output_model(job_, world_.outputs);
    return model ? model->spec->format : "";
  }

  /// The version that the round started from.
  std::optional<api::TrainingBase> parent_of(const IncrementalVersion& version) const {
    for (const incremental::RoundRecord& record : state_.rounds) {
      if (record.round != version.round) continue;
      const IncrementalVersion* base = out_.status.find_version(record.base);
      if (base == nullptr) return {};
      api::TrainingBase out = *plan_.base;
      out.archive = entry_of(*base, plan_.base);
      return out;
    }
    return {};
  }

  const IncrementalLearningJob& job_;
  const IncrementalPlan& plan_;
  const IncrementalWorld& world_;
  const hosting::Options& options_;
  const WallTime wall_;
  workers::EdgeNodePtr agent_;
  std::vector<ServerFinding> servers_;
  std::optional<runs::ReportedResult> result_;  // of the worker's report, with its file
  incremental::State state_;                    // the next one
  std::optional<std::int64_t> fresh_;
  IncrementalObservation out_;
  runs::ConditionWriter conditions_;
};

}  // namespace

IncrementalObservation observe(const IncrementalLearningJob& job, const IncrementalPlan& plan,
                               const IncrementalWorld& world, const hosting::Options& options,
                               WallTime now) {
  return Observer(job, plan, world, options, now).make();
}

}  // namespace varda::controllers::incrementallearning
