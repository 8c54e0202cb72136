#include "cluster/internal/job.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"

namespace varda::cluster {

namespace {

using std::chrono::seconds;
using Uids = std::set<std::string>;

constexpr seconds kBackoffMax{600};

bool tracked(const api::Pod& pod) {
  const auto& finalizers = pod.metadata.finalizers;
  return std::find(finalizers.begin(), finalizers.end(), kJobFinalizer) != finalizers.end();
}

bool is_true(const api::Job& job, std::string_view type) {
  const api::CoreCondition* found = api::find_condition(job.status.conditions, type);
  return found && found->status == "True";
}

std::optional<std::int64_t> index_of(const api::Pod& pod) {
  const auto found = pod.metadata.annotations.find(std::string(kJobIndex));
  if (found == pod.metadata.annotations.end()) return std::nullopt;
  return parse_integer<std::int64_t>(found->second);
}

Uids uids_of(const Json& list) {
  Uids out;
  for (const Json& uid : list.as_array()) out.insert(uid.as_string());
  return out;
}

Json json_of(const Uids& uids) {
  Json out = Json::array();
  for (const std::string& uid : uids) out.push_back(uid);
  return out;
}

/// The end of a pod, as reported by its containers.
WallTime end_of(const api::Pod& pod) {
  WallTime end{};
  for (const auto& container : pod.status.container_statuses) {
    if (const auto time = time_of(container.state.at("terminated/finishedAt").as_string()))
      end = std::max(end, *time);
  }
  if (end != WallTime{}) return end;
  return time_of(pod.metadata.deletion_timestamp.value_or(pod.metadata.creation_timestamp))
      .value_or(end);
}

std::int64_t restarts_of(const api::Pod& pod) {
  std::int64_t sum = 0;
  for (const auto* list : {&pod.status.init_container_statuses, &pod.status.container_statuses}) {
    for (const auto& container : *list) sum += container.restart_count;
  }
  return sum;
}

/// Names a field that this controller does not support: ignoring the field would run the Job
/// wrongly.
std::string unsupported(const api::Job& job) {
  if (!job.spec.pod_failure_policy.is_null()) return "spec.podFailurePolicy";
  if (!job.spec.success_policy.is_null()) return "spec.successPolicy";
  if (!job.spec.backoff_limit_per_index.is_null()) return "spec.backoffLimitPerIndex";
  return "";
}

Json make_pod(const api::Job& job, const Json& pod_template, std::optional<std::int64_t> index) {
  const std::string& name = job.metadata.name;
  Json pod = pod_of_template(pod_template, name + "-", job.metadata.ns);
  pod.make("metadata/finalizers").push_back(kJobFinalizer);
  if (!index) return pod;
  const std::string text = std::to_string(*index);
  pod["metadata"].set("generateName", name + "-" + text + "-");
  pod.make("metadata/annotations").set(kJobIndex, text);
  pod.make("metadata/labels").set(kJobIndex, text);
  pod["spec"].set("hostname", name + "-" + text);
  const Json variable = Json::object(
      {{"name", "JOB_COMPLETION_INDEX"},
       {"valueFrom",
        Json::object(
            {{"fieldRef", Json::object({{"fieldPath", "metadata.annotations['" +
                                                          std::string(kJobIndex) + "']"}})}})}});
  for (const char* list : {"initContainers", "containers"}) {
    Json* containers = pod["spec"].find(list);
    if (!containers || !containers->is_array()) continue;
    for (Json& container : containers->array_items()) container.make("env").push_back(variable);
  }
  return pod;
}

/// Plans one Job.
class JobPlanner {
 public:
  JobPlanner(const api::Job& job, const PodList& pods, WallTime now, seconds backoff)
      : job_(job), pods_(pods), now_(now), backoff_(backoff), indexed_(job.spec.indexed()) {}

  JobPlan run() {
    if (is_true(job_, "Complete") || is_true(job_, "Failed")) {
      after_the_end();
    } else {
      count();
      decide();
      write_status();
    }
    plan_.again = timer_.due();
    return std::move(plan_);
  }

 private:
  void after_the_end() {
    plan_.status = job_.to_json()["status"];
    for (const PodPtr& pod : pods_) {
      if (tracked(*pod)) plan_.count.push_back(pod);
    }
    if (!job_.spec.ttl_seconds_after_finished) return;
    const api::CoreCondition* end = api::find_condition(
        job_.status.conditions, is_true(job_, "Complete") ? "Complete" : "Failed");
    const auto since = time_of(end->last_transition_time);
    const auto left = since.value_or(now_) + seconds(*job_.spec.ttl_seconds_after_finished) - now_;
    plan_.expired = left <= left.zero();
    if (!plan_.expired) timer_.after(std::chrono::duration_cast<Duration>(left));
  }

  void count() {
    succeeded_ = job_.status.succeeded;
    failed_ = job_.status.failed;
    completed_ = parse_indexes(job_.status.completed_indexes);
    const Uids reported_succeeded = uids_of(job_.status.uncounted_terminated_pods["succeeded"]);
    const Uids reported_failed = uids_of(job_.status.uncounted_terminated_pods["failed"]);
    Uids held;  // still have the finalizer
    for (const PodPtr& pod : pods_) {
      if (tracked(*pod)) held.insert(pod->metadata.uid);
      if (pod->metadata.deleting() && !finished(*pod)) ++terminating_;
      if (!finished(*pod) && !pod->metadata.deleting()) {
        active_.push_back(pod);
        ready_ += pod->ready();
      }
      const bool done = finished(*pod) ||
                        (pod->metadata.deleting() && job_.spec.pod_replacement_policy != "Failed");
      if (!done || !tracked(*pod)) continue;
      plan_.count.push_back(pod);
      if (pod->status.phase != "Succeeded") {
        uncounted_failed_.insert(pod->metadata.uid);
        continue;
      }
      uncounted_succeeded_.insert(pod->metadata.uid);
      if (const auto index = index_of(*pod); indexed_ && index) completed_.insert(*index);
    }
    for (const std::string& uid : reported_succeeded) {
      if (!held.contains(uid)) ++succeeded_;
    }
    for (const std::string& uid : reported_failed) {
      if (!held.contains(uid)) ++failed_;
    }
    // A pod recorded as failed stays failed, even if the pod's phase has changed.
    for (const std::string& uid : reported_failed) {
      if (uncounted_succeeded_.erase(uid) > 0) uncounted_failed_.insert(uid);
    }
    if (indexed_) succeeded_ = static_cast<std::int64_t>(completed_.size());
  }

  std::int64_t all_succeeded() const {
    return indexed_ ? succeeded_
                    : succeeded_ + static_cast<std::int64_t>(uncounted_succeeded_.size());
  }
  std::int64_t all_failed() const {
    return failed_ + static_cast<std::int64_t>(uncounted_failed_.size());
  }
  bool quiet() const {
    return active_.empty() && terminating_ == 0 && uncounted_failed_.empty() &&
           uncounted_succeeded_.empty();
  }

  std::optional<Phrasing> failure() {
    if (const auto* target = api::find_condition(job_.status.conditions, "FailureTarget"))
      return Phrasing{"True", target->reason, target->message};
    if (const std::string field = unsupported(job_); !field.empty())
      return Phrasing{"True", "Unsupported",
                      field + " is not supported on a single machine: leave it out"};
    const std::int64_t limit = job_.spec.backoff_limit.value_or(6);
    std::int64_t restarts = 0;
    if (job_.spec.pod_template.spec.restart_policy == "OnFailure") {
      for (const PodPtr& pod : active_) restarts += restarts_of(*pod);
    }
    if (all_failed() > limit || (restarts > 0 && restarts >= limit))
      return Phrasing{"True", "BackoffLimitExceeded",
                      "Job has reached the specified backoff limit"};
    if (const auto start = time_of(job_.status.start_time);
        start && job_.spec.active_deadline_seconds && !job_.spec.suspend) {
      const auto left = *start + seconds(*job_.spec.active_deadline_seconds) - now_;
      if (left <= left.zero())
        return Phrasing{"True", "DeadlineExceeded",
                        "Job was active longer than specified deadline"};
      timer_.after(std::chrono::duration_cast<Duration>(left));
    } else if (!start && job_.spec.active_deadline_seconds && !job_.spec.suspend) {
      timer_.after(seconds(*job_.spec.active_deadline_seconds));
    }
    return std::nullopt;
  }

  bool succeeded() const {
    if (is_true(job_, "SuccessCriteriaMet")) return true;
    if (job_.spec.completions) return all_succeeded() >= *job_.spec.completions;
    return all_succeeded() > 0 && active_.empty();
  }

  void decide() {
    suspended_ = job_.spec.suspend;
    failure_ = failure();
    complete_ = !failure_ && succeeded();
    if (failure_) {
      plan_.changes.remove = active_;
    } else if (complete_ || suspended_) {
      plan_.withdraw = active_;
    } else {
      keep_running();
    }
  }

  void keep_running() {
    const std::int64_t parallelism = job_.spec.parallelism.value_or(1);
    const auto active = static_cast<std::int64_t>(active_.size());
    std::int64_t want = parallelism;
    if (job_.spec.completions) {
      want = std::min(parallelism, *job_.spec.completions - all_succeeded());
    } else if (all_succeeded() > 0) {
      want = std::min(parallelism, active);  // after a success no new pods start
    }
    if (active > want) {
      by_dispensability(active_);
      plan_.withdraw.assign(active_.begin(), active_.begin() + (active - want));
      return;
    }
    if (job_.spec.pod_replacement_policy == "Failed") want -= terminating_;
    if (want <= active || backing_off()) return;
    const Json tree = job_.to_json();
    const Json& pod_template = tree["spec"]["template"];
    std::set<std::int64_t> taken = completed_;
    for (const PodPtr& pod : active_) {
      if (const auto index = index_of(*pod)) taken.insert(*index);
    }
    std::int64_t index = 0;
    for (std::int64_t i = active; i < want && plan_.changes.create.size() < kBurst; ++i) {
      while (taken.contains(index)) ++index;
      plan_.changes.create.push_back(
          make_pod(job_, pod_template, indexed_ ? std::optional(index) : std::nullopt));
      taken.insert(index);
    }
  }

  /// Consecutive failures since the last success delay the next pod.
  bool backing_off() {
    WallTime last_success{}, last_failure{};
    for (const PodPtr& pod : pods_) {
      if (pod->status.phase == "Succeeded") last_success = std::max(last_success, end_of(*pod));
    }
    int failures = 0;
    for (const PodPtr& pod : pods_) {
      if (pod->status.phase != "Failed" || end_of(*pod) < last_success) continue;
      ++failures;
      last_failure = std::max(last_failure, end_of(*pod));
    }
    if (failures == 0) return false;
    const seconds delay = std::min(kBackoffMax, backoff_ * (1 << std::min(failures - 1, 10)));
    const auto left = last_failure + delay - now_;
    if (left <= left.zero()) return false;
    timer_.after(std::chrono::duration_cast<Duration>(left));
    return true;
  }

  void add_condition(Json& conditions, std::string_view type, const Phrasing& phrasing) const {
    Json next = condition(job_.status.conditions, type, phrasing, now_);
    next.set("lastProbeTime", std::as_const(next)["lastTransitionTime"]);
    conditions.push_back(std::move(next));
  }

  void note_suspension(Json& conditions) {
    const bool was = is_true(job_, "Suspended");
    const bool known = api::find_condition(job_.status.conditions, "Suspended") != nullptr;
    if (suspended_) {
      add_condition(conditions, "Suspended", {"True", "JobSuspended", "Job suspended"});
      if (!was) plan_.events.push_back({runtime::EventType::kNormal, "Suspended", "Job suspended"});
    } else if (known) {
      add_condition(conditions, "Suspended", {"False", "JobResumed", "Job resumed"});
      if (was) plan_.events.push_back({runtime::EventType::kNormal, "Resumed", "Job resumed"});
    }
  }

  void write_status() {
    Json status = Json::object();
    Json conditions = Json::array();
    note_suspension(conditions);
    if (complete_) {
      const Phrasing phrasing{"True", "CompletionsReached",
                              "Reached expected number of succeeded pods"};
      add_condition(conditions, "SuccessCriteriaMet", phrasing);
      if (quiet()) {
        add_condition(conditions, "Complete", phrasing);
        status.set("completionTime", meta::format_time(now_));
        plan_.events.push_back({runtime::EventType::kNormal, "Completed", "Job completed"});
      }
    } else if (failure_) {
      add_condition(conditions, "FailureTarget", *failure_);
      if (quiet()) {
        add_condition(conditions, "Failed", *failure_);
        plan_.events.push_back({runtime::EventType::kWarning, failure_->reason, failure_->message});
      }
    }
    if (!conditions.empty()) status.set("conditions", std::move(conditions));
    if (!suspended_)
      status.set("startTime",
                 job_.status.start_time.empty() ? meta::format_time(now_) : job_.status.start_time);
    const auto set = [&](const char* name, std::int64_t number) {
      if (number > 0) status.set(name, number);
    };
    set("active", static_cast<std::int64_t>(active_.size()));
    set("succeeded", succeeded_);
    set("failed", failed_);
    status.set("ready", ready_);
    status.set("terminating", terminating_);
    if (indexed_ && !completed_.empty()) status.set("completedIndexes", write_indexes(completed_));
    Json uncounted = Json::object();
    if (!uncounted_succeeded_.empty()) uncounted.set("succeeded", json_of(uncounted_succeeded_));
    if (!uncounted_failed_.empty()) uncounted.set("failed", json_of(uncounted_failed_));
    status.set("uncountedTerminatedPods", std::move(uncounted));
    plan_.status = std::move(status);
  }

  const api::Job& job_;
  const PodList& pods_;
  const WallTime now_;
  const seconds backoff_;
  const bool indexed_;
  PodList active_;
  std::int64_t ready_ = 0, terminating_ = 0, succeeded_ = 0, failed_ = 0;
  std::set<std::int64_t> completed_;
  Uids uncounted_succeeded_, uncounted_failed_;
  bool suspended_ = false, complete_ = false;
  std::optional<Phrasing> failure_;
  Timer timer_;
  JobPlan plan_;
};

}  // namespace

std::set<std::int64_t> parse_indexes(const std::string& text) {
  std::set<std::int64_t> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int64_t first = 0, last = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return out;
    last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc() || last - first > 100'000) return out;
    }
    for (std::int64_t i = first; i <= last; ++i) out.insert(i);
    at = read.ptr;
    if (at < end && *at == ',') ++at;
  }
  return out;
}

std::string write_indexes(const std::set<std::int64_t>& indexes) {
  std::string out;
  for (auto it = indexes.begin(); it != indexes.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    while (++it != indexes.end() && *it == last + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(first);
    // Two consecutive indexes are listed, three form a range.
    if (last > first) out += (last == first + 1 ? "," : "-") + std::to_string(last);
  }
  return out;
}

JobPlan plan_job(const api::Job& job, const PodList& pods, WallTime now, seconds backoff) {
  return JobPlanner(job, pods, now, backoff).run();
}

JobReconciler::JobReconciler(const runtime::Caches& caches, const Options& options)
    : caches_(caches), options_(options), clock_(options.clock ? *options.clock : system_clock()) {}

void JobReconciler::watches(runtime::Watches<api::Job>& w) const { w.owns<api::Pod>(); }

Status JobReconciler::release_anonymous(const Context& ctx, const meta::ObjectKey& key,
                                        const std::string& uid, runtime::Writer& writer) const {
  for (const PodPtr& pod : caches_.of<api::Pod>().list(key.ns)) {
    const meta::OwnerReference* controller = pod->metadata.controller();
    if (!tracked(*pod) || !controller || controller->kind != "Job" || controller->name != key.name)
      continue;
    if (controller->uid == uid) continue;
    TRY_VOID(writer.remove_finalizer(ctx, runtime::ObjectRef::of(*pod), kJobFinalizer));
  }
  return {};
}

Result<runtime::Action> JobReconciler::on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                                  runtime::Writer& writer) const {
  TRY_VOID(release_anonymous(ctx, key, "", writer));
  return runtime::Action::await_change();
}

Result<runtime::Action> JobReconciler::reconcile(const Context& ctx, const api::Job& job,
                                                 runtime::Writer& writer) const {
  // A Job that is being deleted stops counting.
  TRY_VOID(release_anonymous(ctx, job.metadata.key(),
                             job.metadata.deleting() ? "" : job.metadata.uid, writer));
  if (job.metadata.deleting()) return runtime::Action::await_change();
  if (!job.spec.managed_by.empty() && job.spec.managed_by != "kubernetes.io/job-controller")
    return runtime::Action::await_change();
  const JobPlan plan = plan_job(job, caches_.of<api::Pod>().owned_by(job.metadata.uid),
                                clock_.wall(), options_.job_backoff);
  const runtime::ObjectRef owner = runtime::ObjectRef::of(job);
  if (plan.expired) {
    TRY_VOID(writer.remove(ctx, owner));
    return runtime::Action::await_change();
  }
  // This order counts each pod once: the status has the uid before the finalizer is removed.
  TRY_VOID(writer.status(ctx, job, plan.status));
  for (const auto& events : plan.events)
    writer.event(job, events.type, events.reason, events.message);
  for (const PodPtr& pod : plan.count) {
    TRY_VOID(writer.remove_finalizer(ctx, runtime::ObjectRef::of(*pod), kJobFinalizer));
  }
  PodChanges changes = plan.changes;
  for (const PodPtr& pod : plan.withdraw) {
    TRY_VOID(writer.remove_finalizer(ctx, runtime::ObjectRef::of(*pod), kJobFinalizer));
    changes.remove.push_back(pod);
  }
  TRY_VOID(apply_pod_changes(ctx, writer, owner, changes));
  return plan.again ? runtime::Action::after(*plan.again) : runtime::Action::await_change();
}

void JobOrphanReconciler::watches(runtime::Watches<api::Pod>& w) const { w.name("joborphan"); }

Result<runtime::Action> JobOrphanReconciler::reconcile(const Context& ctx, const api::Pod& pod,
                                                       runtime::Writer& writer) const {
  if (tracked(pod) && !pod.metadata.controller())
    TRY_VOID(writer.remove_finalizer(ctx, runtime::ObjectRef::of(pod), kJobFinalizer));
  return runtime::Action::await_change();
}

}  // namespace varda::cluster
