#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "codec/text.h"
#include "controllers/federatedlearning/plan.h"
#include "controllers/federatedlearning/report.h"
#include "controllers/runs/runs.h"
#include "hosting/conditions.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedLearningJob;
using api::FederatedLearningJobStatus;
using api::FederatedParticipant;
using hosting::kFalse;
using hosting::kTrue;
using hosting::kUnknown;
using hosting::no;
using hosting::Problem;
using runs::attempts_text;
using std::chrono::seconds;

constexpr std::size_t kParticipantMessageMax = 1024;
constexpr std::size_t kReasonMax = 128;
constexpr std::size_t kProblemsShown = 3;
constexpr std::string_view kNodeNotFound = "NodeNotFound";

std::string text_of(std::int64_t number) { return std::to_string(number); }

std::string text_of(std::int64_t number, const char* one, const char* many) {
  return text_of(number) + " " + (number == 1 ? one : many);
}

bool has_failed(const api::Pod& pod) {
  return pod.status.phase == "Failed" ||
         std::any_of(pod.status.container_statuses.begin(), pod.status.container_statuses.end(),
                     [](const auto& one) { return runs::failed_now(one); });
}

// Waits that end by themselves.
bool is_wait(const std::string& reason) {
  return hosting::is_progress(reason) || reason == "WaitingForAggregator" ||
         reason == "StreamPending" || reason == "Suspended";
}

bool takes_part(const FederatedParticipant& one) {
  return one.state == FederatedParticipant::kJoined ||
         one.state == FederatedParticipant::kTraining ||
         one.state == FederatedParticipant::kUploaded || one.state == FederatedParticipant::kEnded;
}

class Observer {
 public:
  Observer(const FederatedLearningJob& job, const FederatedPlan& plan, const FederatedWorld& world,
           const hosting::Options& options, WallTime now)
      : job_(job),
        plan_(plan),
        world_(world),
        options_(options),
        wall_(now),
        now_(meta::format_time(now)),
        conditions_(out_.status.conditions, out_.status.observed_generation, out_.recheck_in, now) {
  }

  FederatedObservation make() {
    out_.status = job_.status;
    status().observed_generation = std::max(job_.metadata.generation, status().observed_generation);
    if (status().ended()) {
      recheck_ended_pods();
      return std::move(out_);
    }
    agent_ = plan_.node.empty() ? nullptr : world_.edge_node(plan_.node);
    lost_ = lost(plan_.node);
    report_ = read_report(agent_.get(), job_.metadata.ns + "/" + plan_.pod_name, job_.metadata.uid);
    take_places();
    if (plan_.pod != nullptr) count_attempts();
    take_participants();
    take_figures();
    decide();
    if (plan_.problem && plan_.problem->reason == kAuthorityMissing)
      conditions_.recheck(kAuthorityRecheck);
    tell_problems();
    summarize();
    return std::move(out_);
  }

 private:
  FederatedLearningJobStatus& status() { return out_.status; }
  bool is_ours() const { return !job_.spec.aggregation_worker.has_template(); }

  std::optional<Problem> lost(const std::string& node) const {
    if (node.empty()) return {};
    const workers::EdgeNodePtr agent = world_.edge_node(node);
    return hosting::out_of_reach(node, hosting::find_node(world_.nodes, node), agent.get());
  }

  void recheck_ended_pods() {
    const auto end = meta::parse_time(status().completion_time);
    if (status().phase != FederatedLearningJobStatus::kComplete || !end.ok() ||
        wall_ >= *end + runs::kEndPatience)
      return;
    conditions_.recheck_at(*end + runs::kEndPatience);
  }

  // ---- facts

  void take_places() {
    if (!plan_.node.empty()) status().aggregator.node = plan_.node;
    if (plan_.base) status().base = plan_.base;
    if (plan_.pods == FederatedPlan::Pods::kConverge && !plan_.fixed.is_null())
      status().fixed = plan_.fixed;
    status().rounds = rounds();
    // The last address stays, since a restarted pod often has it again.
    if (std::string address = address_of(job_, plan_.pod.get()); !address.empty())
      status().aggregator.address = std::move(address);
  }

  /// A round that is open when a user lowers the number of rounds is the last one. 0: unknown.
  std::int64_t rounds() const {
    const std::int64_t wanted = report_.rounds > 0 ? report_.rounds
                                : is_ours()        ? job_.spec.rounds()
                                                   : job_.spec.federated["rounds"].as_integer(0);
    return wanted > 0 ? std::max({wanted, report_.round, job_.status.round}) : 0;
  }

  void count_attempts() {
    api::FederatedAggregatorStatus& aggregator = status().aggregator;
    if (status().start_time.empty()) status().start_time = now_;
    runs::count_attempts(*plan_.pod, {aggregator.pod, aggregator.pod_uid, aggregator.attempts,
                                      aggregator.failed, aggregator.earlier});
  }

  void take_participants() {
    status().active = status().succeeded = status().failed = 0;
    if (plan_.pod != nullptr) count_pod(*plan_.pod);
    status().participants.clear();
    for (const PlannedTrainer& trainer : plan_.trainers) {
      if (trainer.pod != nullptr) count_pod(*trainer.pod);
      status().participants.push_back(participant_of(trainer));
    }
  }

  void count_pod(const api::Pod& pod) {
    if (pod.metadata.deleting()) return;
    if (pod.status.phase == "Succeeded") {
      ++status().succeeded;
    } else if (has_failed(pod)) {
      ++status().failed;
    } else if (pod.status.phase == "Running") {
      ++status().active;
    }
  }

  FederatedParticipant participant_of(const PlannedTrainer& trainer) const {
    FederatedParticipant out;
    out.worker = trainer.pod_name;
    out.node = trainer.node;
    out.dataset = trainer.dataset;
    const auto set = [&](std::string_view state, const Problem& why = {}) {
      out.state = state;
      out.reason = codec::clipped(why.reason, kReasonMax);
      out.message = codec::clipped(why.message, kParticipantMessageMax);
    };
    const api::Pod* pod = trainer.pod.get();
    if (job_.spec.suspend) {
      set(FederatedParticipant::kPending, {"Suspended", "the job is suspended"});
    } else if (pod == nullptr || pod->metadata.deleting()) {
      set(FederatedParticipant::kPending,
          trainer.problem.value_or(Problem{"PodPending", "the pod is being created"}));
    } else if (pod->status.phase == "Succeeded") {
      set(FederatedParticipant::kEnded);
    } else if (trainer.problem && trainer.problem->reason == kNodeNotFound) {
      set(FederatedParticipant::kDropped, *trainer.problem);
    } else if (auto why = lost(trainer.node)) {
      set(FederatedParticipant::kDropped, *why);
    } else if (has_failed(*pod)) {
      set(FederatedParticipant::kFailed,
          hosting::pod_problem(*pod).value_or(Problem{"PodFailed", "the pod has failed"}));
    } else if (pod->status.phase != "Running") {
      set(FederatedParticipant::kPending,
          hosting::pod_problem(*pod).value_or(
              trainer.problem.value_or(Problem{"PodPending", "the pod has not started yet"})));
    } else if (const auto found = report_.participants.find(trainer.pod_name);
               found != report_.participants.end()) {
      const auto& [state, reason] = found->second;
      set(state, state == FederatedParticipant::kDropped
                     ? Problem{reason.empty() ? "Dropped" : reason,
                               "the aggregation worker dropped the last update"}
                     : Problem{});
    } else {
      set(FederatedParticipant::kRunning);
    }
    return out;
  }

  bool same_figures(const FederatedLearningJobStatus& was) const {
    return std::tie(was.round, was.bytes_up, was.bytes_down, was.epsilon) ==
               std::tie(report_.round, report_.bytes_up, report_.bytes_down, report_.epsilon) &&
           (report_.metrics.empty() || was.metrics == report_.metrics);
  }

  /// Figures of the rounds. Each report of a step would be a write.
  void take_figures() {
    if (report_.result && !report_.result->metrics.empty())
      status().metrics = report_.result->metrics;
    if (!report_.present) return;
    const bool ends = report_.result || report_.phase != status().phase;
    if (!ends && same_figures(status())) return;
    const auto last = meta::parse_time(status().update_time);
    if (!ends && report_.round == status().round && last.ok() && wall_ >= *last &&
        wall_ < *last + kFiguresPeriod) {
      conditions_.recheck_at(*last + kFiguresPeriod);
      return;
    }
    if (!same_figures(status())) status().update_time = now_;
    status().round = report_.round;
    status().bytes_up = report_.bytes_up;
    status().bytes_down = report_.bytes_down;
    if (!report_.epsilon.empty()) status().epsilon = report_.epsilon;
    if (!report_.history.empty()) status().history = report_.history;
    if (!report_.result && !report_.metrics.empty()) status().metrics = report_.metrics;
  }

  // ---- the end

  void decide() {
    if (report_.result) return take_result(*report_.result);
    if (auto failure = find_failure()) return fail(std::move(*failure));
    if (job_.spec.suspend) return suspend();
    if (const meta::Condition* suspended = meta::find_condition(status().conditions, "Suspended");
        suspended != nullptr && suspended->status == kTrue)
      conditions_.set("Suspended", no("Resumed", "the job continues"));
    run();
  }

  /// Ready and Training are False.
  void stop(const std::string& reason, const std::string& message) {
    conditions_.set("Ready", no(reason, message));
    conditions_.set("Training", no(reason, message));
  }

  void suspend() {
    status().phase = FederatedLearningJobStatus::kSuspended;
    status().start_time.clear();
    conditions_.erase("ResultReceived");
    conditions_.set("Suspended",
                    {kTrue, "Suspended", "spec.suspend is true; files stay on the nodes"});
    stop("Suspended",
         world_.pods.empty() ? "the job is suspended" : "the job is suspended; the pods end");
  }

  void end(std::string_view phase) {
    status().phase = phase;
    status().completion_time = now_;
    conditions_.erase("ResultReceived");
  }

  void fail(Problem failure) {
    end(FederatedLearningJobStatus::kFailed);
    stop(failure.reason, failure.message);
    conditions_.set("Failed", {kTrue, std::move(failure.reason), std::move(failure.message)});
  }

  void complete(const std::string& reason, const std::string& message) {
    end(FederatedLearningJobStatus::kComplete);
    stop("Complete", message);
    conditions_.set("Complete", {kTrue, reason, message});
    conditions_.recheck(runs::kEndPatience);
  }

  void take_result(const runs::ReportedResult& result) {
    status().phase = FederatedLearningJobStatus::kUploading;
    if (result.artifact.empty())
      return fail({"ResultInvalid",
                   "results/final has no data.artifact: the name of the file that the aggregation "
                   "worker put to /v1/artifacts"});
    if (!result.file) {
      const std::string what = "the result names the file " + result.artifact +
                               ", but the node has no such file of /v1/artifacts";
      if (await("AwaitingFile", what)) return fail({"ResultInvalid", what});
      return stop("AwaitingFile", what);
    }
    conditions_.erase("ResultReceived");
    const runs::ReportedArtifact& file = *result.file;
    if (file.state == "Failed")
      return fail({"UploadFailed", "the node cannot upload the file " + result.artifact +
                                       (file.reason.empty() ? "" : ": " + file.reason)});
    if (file.state != "Uploaded" || file.sha256.empty() ||
        (result.report && result.report->is_on_its_way()) ||
        (result.csv && result.csv->is_on_its_way()))
      return stop("Uploading", uploading_text(result));
    status().produced = runs::produced_of(result, "", {options_.registry_url});
    status().produced->report_url =
        runs::url_of(result.report, {options_.registry_url}, "report.html");
    status().metrics_url = runs::url_of(result.csv, {options_.registry_url}, "metrics.csv");
    const std::string model =
        "version " + status().produced->version + " of Model " + model_name(job_);
    const auto present = output_model(job_, world_.outputs);
    if (!present || !runs::has_result(*present, *status().produced, status().metrics)) {
      out_.output = output_of(result, present);
      return stop("WritingModel", "the operator writes " + model);
    }
    const std::string metric = runs::main_metric(status().metrics);
    complete("Trained", model + (metric.empty() ? "" : ": " + metric));
  }

  /// True once the result, or a part of it, is missing for kResultPatience.
  bool await(const char* reason, const std::string& message) {
    if (lost_ || report_.cut) {
      conditions_.erase("ResultReceived");
      return false;
    }
    return conditions_.await("ResultReceived", reason, message, kResultPatience);
  }

  std::string uploading_text(const runs::ReportedResult& result) const {
    const runs::ReportedArtifact& file = *result.file;
    std::string text = "node " + plan_.node + " sends the file " + result.artifact + ": " +
                       text_of(file.sent) + " of " + text_of(file.bytes) + " bytes";
    if (lost_) return text + "; " + lost_->message;
    return file.reason.empty() ? text : text + "; " + file.reason;
  }

  Json output_of(const runs::ReportedResult& result,
                 const std::optional<hosting::AnyModel>& present) const {
    const std::string& group = job_.spec.aggregation_worker.model.group;
    const std::int64_t participants = report_.result_participants > 0
                                          ? report_.result_participants
                                          : static_cast<std::int64_t>(plan_.trainers.size());
    return runs::to_object(
        {.name = model_name(job_),
         .ns = job_.metadata.ns,
         .group = present ? present->group : group,
         .source_job = FederatedLearningJob::resource().kind + "/" + job_.metadata.name,
         .format = result.format,
         .produced = *out_.status.produced,
         .base = out_.status.base,
         .metadata = {{"rounds", text_of(std::max(out_.status.round, report_.round))},
                      {"participants", text_of(participants)},
                      {"samples", result.samples > 0 ? text_of(result.samples) : ""},
                      {"updatesSha256", report_.updates_digest},
                      {"epsilon", out_.status.epsilon}}});
  }

  // ---- failures that end the job

  std::string last_error() const {
    if (report_.error && !report_.error->message.empty()) return report_.error->message;
    if (plan_.pod == nullptr) return "";
    const auto problem = hosting::pod_problem(*plan_.pod);
    return problem ? problem->message : "";
  }

  std::optional<Problem> find_failure() {
    if (lost_) return {};
    const std::string why = last_error();
    if ((report_.error && report_.error->permanent) ||
        (is_ours() && plan_.pod != nullptr && runs::ended_for_good(*plan_.pod)))
      return Problem{"AggregatorFailed",
                     why.empty() ? "the aggregation worker refused its input" : why};
    const std::int64_t failed = status().aggregator.failed;
    if (failed > job_.spec.backoff_limit)
      return Problem{"BackoffLimitExceeded", attempts_text(failed) +
                                                 " of the aggregation worker failed" +
                                                 (why.empty() ? "" : "; the last error: " + why)};
    const std::int64_t limit = job_.spec.deadline_seconds();
    if (const auto start = meta::parse_time(status().start_time);
        limit > 0 && start.ok() && !job_.spec.suspend) {
      if (wall_ >= *start + seconds(limit))
        return Problem{"DeadlineExceeded", "the job did not end within " + text_of(limit) +
                                               " seconds, its activeDeadline"};
      conditions_.recheck_at(*start + seconds(limit));
    }
    return {};
  }

  // ---- the running job

  void run() {
    const api::Pod* pod = plan_.pod.get();
    if (status().phase.empty()) status().phase = FederatedLearningJobStatus::kPending;
    if (pod != nullptr && pod->status.phase == "Succeeded") return await_result();
    conditions_.erase("ResultReceived");
    if (pod != nullptr && lost_) {
      for (const char* type : {"Ready", "Training"})
        conditions_.set(type, {kUnknown, lost_->reason, lost_->message});
      return;
    }
    if (pod == nullptr || pod->metadata.deleting()) {
      const bool fetches = plan_.problem && plan_.problem->reason == "WaitingForNode";
      status().phase =
          fetches ? FederatedLearningJobStatus::kFetching : FederatedLearningJobStatus::kPending;
      Problem why = plan_.problem.value_or(Problem{"PodPending", "the pod is being created"});
      if (fetches) {
        if (auto download = download_problem()) why = std::move(*download);
      }
      return stop(why.reason, why.message);
    }
    auto problem = hosting::pod_problem(*pod);
    if (pod->status.phase != "Running" || problem) {
      status().phase = FederatedLearningJobStatus::kPending;
      if (!problem)
        problem = plan_.problem.value_or(Problem{"PodPending", "the pod has not started yet"});
      if (status().aggregator.failed > 0) {
        const std::string why = last_error();
        problem->message = (why.empty() ? problem->message : why) + "; " +
                           attempts_text(status().aggregator.failed) + " failed; backoffLimit is " +
                           text_of(job_.spec.backoff_limit);
      }
      return stop(problem->reason, problem->message);
    }
    conditions_.set("Ready", {kTrue, "Running",
                              "attempt " + text_of(status().aggregator.attempts) +
                                  " of the aggregation worker runs on node " + plan_.node});
    train();
  }

  void train() {
    // A program of the user may report nothing.
    std::string_view phase = report_.phase;
    if (phase.empty())
      phase =
          is_ours() ? FederatedLearningJobStatus::kWaiting : FederatedLearningJobStatus::kTraining;
    status().phase = phase;
    if (phase != FederatedLearningJobStatus::kWaiting) {
      return conditions_.set("Training",
                             {kTrue, "Training",
                              report_.round == 0 ? "the workers train"
                                                 : "round " + text_of(report_.round) + " of " +
                                                       text_of(status().rounds)});
    }
    const std::int64_t joined = std::max<std::int64_t>(report_.joined, count_joined());
    std::string text = report_.message;
    if (text.empty())
      text = text_of(joined, "training worker has joined", "training workers have joined") +
             " of " + text_of(static_cast<std::int64_t>(plan_.trainers.size())) +
             "; minimumClients is " + least_clients();
    conditions_.set("Training", no("WaitingForParticipants", text));
  }

  std::string least_clients() const {
    const Json& federated = job_.spec.federated;
    const std::int64_t least = federated["minimumClients"].as_integer(kDefaultMinimumClients);
    // A sum of two updates shows each client the other one.
    if (federated["secureAggregation"].is_object() && least < kSecureClientsMin)
      return text_of(kSecureClientsMin) + " with secureAggregation";
    return text_of(least);
  }

  std::int64_t count_joined() const {
    return std::count_if(out_.status.participants.begin(), out_.status.participants.end(),
                         takes_part);
  }

  void await_result() {
    status().phase = FederatedLearningJobStatus::kUploading;
    const std::string what = "the pod of the aggregation worker has ended, and node " + plan_.node +
                             " has not reported results/final of the worker API";
    if (!await("AwaitingResult", what)) return stop("AwaitingResult", what);
    if (is_ours()) return fail({"ResultMissing", what});
    complete("NoResult",
             "the aggregation worker succeeded, but reported no results/final of the worker API; "
             "Model " +
                 model_name(job_) + " has no new version, and the files stay on node " +
                 plan_.node + " until the job is deleted");
  }

  /// The agent's reason for a missing initial model.
  std::optional<Problem> download_problem() const {
    if (agent_ == nullptr || !out_.status.base) return {};
    const api::EdgeModelReport* model =
        agent_->status.find_model(job_.metadata.key().str() + "." + std::string(kAggregatorName));
    const api::EdgeVersionReport* version =
        model == nullptr ? nullptr : model->find_version(out_.status.base->archive.version);
    if (version == nullptr || version->state != api::EdgeVersionReport::kFailed ||
        version->reason.empty())
      return {};
    return Problem{codec::clipped(version->reason, kReasonMax),
                   codec::clipped(version->message, 4096)};
  }

  // ---- conditions beside the course of the job

  void tell_problems() {
    if (job_.spec.suspend && !status().ended()) return conditions_.erase("Participants");
    tell_refused();
    std::vector<Problem> problems = plan_.entry_problems;
    std::int64_t out = 0;
    for (const FederatedParticipant& one : status().participants) {
      // The next round may accept an update of a worker that one round dropped.
      const bool is_out = one.state == FederatedParticipant::kPending ||
                          one.state == FederatedParticipant::kFailed ||
                          (one.state == FederatedParticipant::kDropped &&
                           (one.reason == kNodeNotFound || lost(one.node)));
      if (!is_out || is_wait(one.reason)) continue;
      ++out;
      problems.push_back({one.reason, one.worker + ": " + one.message});
    }
    const auto all = static_cast<std::int64_t>(status().participants.size());
    if (problems.empty()) {
      return conditions_.set("Participants",
                             {kTrue, "AllPlaced",
                              text_of(all, "training worker", "training workers") +
                                  (all == 1 ? " has its place" : " have their places")});
    }
    std::string text;
    if (out > 0)
      text = text_of(out) + " of " + text_of(all, "training worker", "training workers") +
             " cannot take part";
    for (std::size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i)
      text += (text.empty() ? "" : "; ") + problems[i].message;
    if (problems.size() > kProblemsShown) text += "; status.participants lists more";
    conditions_.set("Participants", no(problems.front().reason, text));
  }

  void tell_refused() {
    const std::vector<std::string> refused = refused_changes(job_);
    if (const auto wrong = settings_problem(job_); wrong && plan_.pod != nullptr) {
      return conditions_.set(
          "SpecApplied",
          no(wrong->reason, wrong->message + "; the job continues with its former settings"));
    }
    if (refused.empty()) return conditions_.erase("SpecApplied");
    std::string names;
    for (const std::string& name : refused) names += (names.empty() ? "" : ", ") + name;
    conditions_.set("SpecApplied",
                    no("CannotChange", "a running job keeps its " + names +
                                           "; delete the job and create it again to change this"));
  }

  void summarize() {
    api::FederatedSummary& summary = status().summary;
    summary.round = status().rounds > 0 ? text_of(status().round) + "/" + text_of(status().rounds)
                                        : (status().round > 0 ? text_of(status().round) : "");
    const auto all = static_cast<std::int64_t>(status().participants.size());
    const std::int64_t joined = std::max({count_joined(), count_running(), report_.joined});
    summary.participants = text_of(std::min(joined, all)) + "/" + text_of(all);
    summary.metric = runs::main_metric(status().metrics);
  }

  // Programs of the user join without a report.
  std::int64_t count_running() const {
    if (is_ours()) return 0;
    return std::count_if(out_.status.participants.begin(), out_.status.participants.end(),
                         [](const FederatedParticipant& one) {
                           return one.state == FederatedParticipant::kRunning || takes_part(one);
                         });
  }

  static constexpr std::int64_t kDefaultMinimumClients = 2, kSecureClientsMin = 3;

  const FederatedLearningJob& job_;
  const FederatedPlan& plan_;
  const FederatedWorld& world_;
  const hosting::Options& options_;
  const WallTime wall_;
  const std::string now_;
  workers::EdgeNodePtr agent_;
  std::optional<Problem> lost_;
  AggregatorReport report_;
  FederatedObservation out_;
  runs::ConditionWriter conditions_;
};

}  // namespace

FederatedObservation observe(const FederatedLearningJob& job, const FederatedPlan& plan,
                             const FederatedWorld& world, const hosting::Options& options,
                             WallTime now) {
  return Observer(job, plan, world, options, now).make();
}

}  // namespace varda::controllers::federatedlearning
