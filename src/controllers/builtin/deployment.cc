#include "controllers/builtin/deployment.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "codec/digest.h"
#include "meta/selector.h"

namespace varda::controllers {

namespace {

using codec::Json;
using PodPtr = std::shared_ptr<const api::Pod>;
using std::chrono::seconds;

Json sorted(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.as_array()) out.push_back(sorted(item));
    return out;
  }
  if (!value.is_object()) return value;
  Json::Object members = value.as_object();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json out = Json::object();
  for (auto& [name, member] : members) out.set(name, sorted(member));
  return out;
}

enum class Round { kUp, kDown };

/// An IntOrString: a number, or "25%" of `total`.
std::int64_t amount(const Json& value, std::int64_t total, Round round, std::string_view otherwise) {
  if (value.is_integer()) return std::max<std::int64_t>(value.as_integer(), 0);
  const std::string text = value.is_string() ? value.as_string() : std::string(otherwise);
  std::int64_t percent = 0;
  std::from_chars(text.data(), text.data() + text.size(), percent);
  return std::max<std::int64_t>((percent * total + (round == Round::kUp ? 99 : 0)) / 100, 0);
}

struct Strategy {
  bool recreate = false;
  std::int64_t surge = 0;
  std::int64_t unavailable = 0;
};

Strategy strategy_of(const api::Deployment& deployment, std::int64_t desired) {
  Strategy out;
  const Json& strategy = deployment.spec.strategy;
  if (strategy["type"].as_string() == "Recreate") {
    out.recreate = true;
    out.unavailable = desired;
    return out;
  }
  out.surge = amount(strategy.at("rollingUpdate/maxSurge"), desired, Round::kUp, "25%");
  out.unavailable = amount(strategy.at("rollingUpdate/maxUnavailable"), desired, Round::kDown, "25%");
  if (out.surge == 0 && out.unavailable == 0) out.unavailable = 1;  // a roll-out must be able to move
  return out;
}

std::optional<WallTime> time_of(const std::string& text) {
  auto time = meta::parse_time(text);
  if (!time.ok()) return std::nullopt;
  return *time;
}

/// Keeps the earliest of the moments something will change by itself.
void remind(std::optional<Duration>& again, Duration delay) {
  const Duration positive = std::max<Duration>(delay, std::chrono::milliseconds(1));
  if (!again || positive < *again) again = positive;
}

/// Pods of one Deployment, sorted by what they are.
struct Census {
  PodList fresh;  // of the template as it is now
  PodList old;
  PodList failed;  // to be replaced
  std::int64_t terminating = 0;
  std::int64_t ready = 0, available = 0, fresh_available = 0;
};

struct Clockwork {
  WallTime now;
  seconds min_ready;
  seconds failed_pod_delay;
  std::optional<Duration>* again;
};

bool available(const api::Pod& pod, const Clockwork& clockwork) {
  if (!pod.ready()) return false;
  if (clockwork.min_ready <= seconds(0)) return true;
  const api::CoreCondition* ready = api::find_condition(pod.status.conditions, "Ready");
  const auto since = ready ? time_of(ready->last_transition_time) : std::nullopt;
  if (!since) return false;
  const auto left = *since + clockwork.min_ready - clockwork.now;
  if (left <= left.zero()) return true;
  remind(*clockwork.again, std::chrono::duration_cast<Duration>(left));
  return false;
}

Census count(const PodList& pods, const std::string& hash, const Clockwork& clockwork) {
  Census census;
  for (const PodPtr& pod : pods) {
    if (pod->metadata.deleting()) {
      ++census.terminating;
      continue;
    }
    if (pod->status.phase == "Failed" || pod->status.phase == "Succeeded") {
      // A template whose pods fail at once must not make and delete pods as fast as the machine can.
      const auto created = time_of(pod->metadata.creation_timestamp);
      const auto left = created ? *created + clockwork.failed_pod_delay - clockwork.now : WallTime::duration::zero();
      if (left <= left.zero()) {
        census.failed.push_back(pod);
        continue;
      }
      remind(*clockwork.again, std::chrono::duration_cast<Duration>(left));
    }
    const auto label = pod->metadata.labels.find(std::string(kTemplateHashLabel));
    const bool is_fresh = label != pod->metadata.labels.end() && label->second == hash;
    (is_fresh ? census.fresh : census.old).push_back(pod);
    if (pod->ready()) ++census.ready;
    if (available(*pod, clockwork)) {
      ++census.available;
      if (is_fresh) ++census.fresh_available;
    }
  }
  return census;
}

/// Those to go first come first: not bound, not ready, youngest.
void by_dispensability(PodList& pods) {
  std::sort(pods.begin(), pods.end(), [](const PodPtr& a, const PodPtr& b) {
    const auto rank = [](const api::Pod& pod) { return std::tuple(!pod.spec.node_name.empty(), pod.ready()); };
    if (rank(*a) != rank(*b)) return rank(*a) < rank(*b);
    if (a->metadata.creation_timestamp != b->metadata.creation_timestamp) {
      return a->metadata.creation_timestamp > b->metadata.creation_timestamp;
    }
    return a->metadata.name < b->metadata.name;
  });
}

void take(PodList& from, std::int64_t count, PodList& to) {
  for (; count > 0 && !from.empty(); --count) {
    to.push_back(from.front());
    from.erase(from.begin());
  }
}

Json make_pod(const api::Deployment& deployment, const Json& pod_template, const std::string& hash) {
  Json metadata =
      Json::object({{"generateName", deployment.metadata.name + "-" + hash + "-"}, {"namespace", deployment.metadata.ns}});
  for (const char* name : {"labels", "annotations"}) {
    if (const Json* member = pod_template["metadata"].find(name)) metadata.set(name, *member);
  }
  metadata["labels"].set(kTemplateHashLabel, hash);
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}, {"spec", pod_template["spec"]}});
}

struct Counts {
  std::int64_t desired, replicas, updated, ready, available;
};

struct Wording {
  std::string status, reason, message;
};

Json condition(const api::Deployment& deployment, std::string_view type, const Wording& wording, bool touched,
               const std::string& now) {
  const api::CoreCondition* before = api::find_condition(deployment.status.conditions, type);
  const bool same_status = before && before->status == wording.status;
  const bool same = same_status && before->reason == wording.reason && before->message == wording.message && !touched;
  const std::string updated = before ? before->unknown["lastUpdateTime"].as_string() : "";
  return Json::object(
      {{"type", type},
       {"status", wording.status},
       {"lastUpdateTime", same && !updated.empty() ? updated : now},
       {"lastTransitionTime", same_status && !before->last_transition_time.empty() ? before->last_transition_time : now},
       {"reason", wording.reason},
       {"message", wording.message}});
}

/// How the roll-out goes, and whether it moved since the last status.
std::pair<Wording, bool> progress(const api::Deployment& deployment, const Counts& counts, WallTime now,
                                  std::optional<Duration>& again) {
  const std::string name = "Deployment \"" + deployment.metadata.name + "\"";
  const api::DeploymentStatus& before = deployment.status;
  const api::CoreCondition* was = api::find_condition(before.conditions, "Progressing");
  const Wording complete{"True", "NewReplicaSetAvailable", name + " has successfully progressed."};
  if (counts.updated == counts.desired && counts.replicas == counts.desired && counts.available == counts.desired)
    return {complete, false};
  // A pod lost after the roll-out was complete is no roll-out, nor is scaling.
  const bool settled = was && was->reason == complete.reason && counts.updated == counts.replicas;
  if (settled && before.updated_replicas == before.replicas) return {complete, false};
  const bool moved = !was || before.observed_generation != deployment.metadata.generation || was->reason == complete.reason ||
                     counts.updated > before.updated_replicas ||
                     counts.replicas - counts.updated < before.replicas - before.updated_replicas ||
                     counts.ready > before.ready_replicas || counts.available > before.available_replicas;
  const Wording going{"True", "ReplicaSetUpdated", name + " is progressing."};
  if (moved) {
    remind(again, seconds(deployment.spec.progress_deadline_seconds.value_or(600)));
    return {going, true};
  }
  const auto since = time_of(was->unknown["lastUpdateTime"].as_string());
  const auto deadline = since.value_or(now) + seconds(deployment.spec.progress_deadline_seconds.value_or(600));
  if (was->reason == "ProgressDeadlineExceeded" || now >= deadline) {
    return {{"False", "ProgressDeadlineExceeded", name + " has timed out progressing."}, false};
  }
  remind(again, std::chrono::duration_cast<Duration>(deadline - now));
  return {going, false};
}

Json status_of(const api::Deployment& deployment, const Counts& counts, std::int64_t min_available, WallTime now,
               std::optional<Duration>& again) {
  const std::string text = meta::format_time(now);
  Json status = Json::object({{"observedGeneration", deployment.metadata.generation}});
  const auto set = [&](const char* name, std::int64_t number) {
    if (number > 0) status.set(name, number);
  };
  set("replicas", counts.replicas);
  set("updatedReplicas", counts.updated);
  set("readyReplicas", counts.ready);
  set("availableReplicas", counts.available);
  set("unavailableReplicas", std::max(counts.replicas, counts.desired) - counts.available);
  const bool enough = counts.available >= min_available;
  const Wording availability{enough ? "True" : "False", enough ? "MinimumReplicasAvailable" : "MinimumReplicasUnavailable",
                             enough ? "Deployment has minimum availability." : "Deployment does not have minimum availability."};
  const auto [going, touched] = progress(deployment, counts, now, again);
  status.set("conditions", Json::array({condition(deployment, "Available", availability, false, text),
                                        condition(deployment, "Progressing", going, touched, text)}));
  return status;
}

/// What to create and remove so that the roll-out moves within its bounds.
std::int64_t roll(Census& census, const Strategy& strategy, std::int64_t desired, bool paused, PodList& remove) {
  auto size = [](const PodList& pods) { return static_cast<std::int64_t>(pods.size()); };
  by_dispensability(census.fresh);
  by_dispensability(census.old);
  take(census.fresh, size(census.fresh) - desired, remove);
  if (strategy.recreate && !paused) {
    // Never two versions at once, not even one that is on its way out.
    const bool clear = census.old.empty() && (census.terminating == 0 || !census.fresh.empty());
    take(census.old, size(census.old), remove);
    return clear ? desired - size(census.fresh) : 0;
  }
  const std::int64_t total = size(census.fresh) + size(census.old);
  if (paused && !census.old.empty()) {
    take(census.old, total - desired, remove);
    return 0;
  }
  const std::int64_t total_max = census.old.empty() ? desired : desired + strategy.surge;
  const std::int64_t create = std::max<std::int64_t>(0, std::min(desired - size(census.fresh), total_max - total));
  if (census.old.empty()) return create;

  // Old pods that serve nobody go first, but not while new ones are still coming up in their place.
  const std::int64_t min_available = desired - strategy.unavailable;
  const std::int64_t fresh_unavailable = size(census.fresh) - census.fresh_available;
  std::int64_t old_ready = census.available - census.fresh_available;
  const std::int64_t old_unready = size(census.old) - old_ready;
  take(census.old, std::clamp<std::int64_t>(total - min_available - fresh_unavailable, 0, old_unready), remove);
  take(census.old, std::clamp<std::int64_t>(census.available - min_available, 0, old_ready), remove);
  return create;
}

}  // namespace

std::string template_hash(const Json& pod_template) {
  // The alphabet of generated names: no vowels, so no words.
  static constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  const codec::Sha256 digest = codec::Sha256::of(codec::write_json(sorted(pod_template)));
  std::string out;
  for (std::size_t i = 0; i < 10; ++i) out += kAlphabet[digest.bytes[i] % kAlphabet.size()];
  return out;
}

DeploymentPlan plan_deployment(const api::Deployment& deployment, const PodList& pods, WallTime now, seconds failed_pod_delay) {
  DeploymentPlan plan;
  const std::int64_t desired = std::max<std::int64_t>(deployment.spec.replicas.value_or(1), 0);
  const Strategy strategy = strategy_of(deployment, desired);
  const Json tree = deployment.to_json();
  const Json& pod_template = tree["spec"]["template"];
  const std::string hash = template_hash(pod_template);
  Census census = count(pods, hash,
                        {.now = now,
                         .min_ready = seconds(deployment.spec.min_ready_seconds),
                         .failed_pod_delay = failed_pod_delay,
                         .again = &plan.again});
  const Counts counts{.desired = desired,
                      .replicas = static_cast<std::int64_t>(census.fresh.size() + census.old.size()),
                      .updated = static_cast<std::int64_t>(census.fresh.size()),
                      .ready = census.ready,
                      .available = census.available};
  plan.status = status_of(deployment, counts, desired - strategy.unavailable, now, plan.again);

  const auto selector = meta::LabelSelector::from_json(deployment.spec.selector);
  if (!selector.ok() || selector->empty() || !selector->matches_labels(pod_template.at("metadata/labels"))) {
    plan.problem = "spec.selector does not match the labels of spec.template: change one of them";
    return plan;
  }
  plan.remove = census.failed;
  const std::int64_t create = roll(census, strategy, desired, deployment.spec.paused, plan.remove);
  // A burst is bounded; what is missing comes with the next round, which these creations bring about.
  for (std::int64_t i = 0; i < std::min<std::int64_t>(create, 100); ++i)
    plan.create.push_back(make_pod(deployment, pod_template, hash));
  return plan;
}

DeploymentReconciler::DeploymentReconciler(const runtime::Caches& caches, const BuiltinOptions& options)
    : caches_(caches), options_(options), clock_(options.clock ? *options.clock : system_clock()) {}

void DeploymentReconciler::watches(runtime::Watches<api::Deployment>& w) const { w.owns<api::Pod>(); }

Result<runtime::Action> DeploymentReconciler::reconcile(const Context& ctx, const api::Deployment& deployment,
                                                        runtime::Writer& writer) const {
  if (deployment.metadata.deleting()) return runtime::Action::await_change();
  const DeploymentPlan plan = plan_deployment(deployment, caches_.of<api::Pod>().owned_by(deployment.metadata.uid), clock_.wall(),
                                              options_.failed_pod_delay);
  const runtime::ObjectRef owner = runtime::ObjectRef::of(deployment);
  Status first;
  for (const auto& pod : plan.remove) {
    Status removed = writer.remove(ctx, runtime::ObjectRef::of(*pod));
    if (removed.ok())
      writer.event(deployment, runtime::EventType::kNormal, "SuccessfulDelete", "Deleted pod: " + pod->metadata.name);
    if (!removed.ok() && first.ok()) first = std::move(removed);
  }
  for (const Json& pod : plan.create) {
    auto created = writer.create(ctx, pod, &owner);
    if (!created.ok()) {
      if (first.ok()) first = created.error();
      break;
    }
    writer.event(deployment, runtime::EventType::kNormal, "SuccessfulCreate",
                 "Created pod: " + std::as_const(*created)["metadata"]["name"].as_string());
  }
  TRY_VOID(writer.status(ctx, deployment, plan.status));
  TRY_VOID(std::move(first));
  if (!plan.problem.empty()) return Error(Code::kInvalid, plan.problem).as_terminal();
  return plan.again ? runtime::Action::after(*plan.again) : runtime::Action::await_change();
}

}  // namespace varda::controllers
