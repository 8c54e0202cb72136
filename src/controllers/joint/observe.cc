// Makes the status of a JointInferenceService from the findings.

#include <algorithm>
#include <tuple>
#include <utility>

#include "codec/text.h"
#include "controllers/joint/findings.h"
#include "controllers/joint/plan.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::joint {

namespace {

using api::JointEndpoint;
using api::JointInferenceService;
using api::JointInferenceServiceStatus;
using api::JointTierStatus;

constexpr std::size_t kMessageMax = 8192;  // a node's report has room for more

// The report of the pod's server about a further tier. Null: none, or only of a former service of
// the name.
const Json& report_of(const View& view, const PodFinding& pod, const std::string& tier) {
  static const Json none;
  if (pod.report == nullptr) return none;
  const std::string& of = pod.report->joint["uid"].as_string();
  if (!of.empty() && of != view.service.metadata.uid) return none;
  for (const Json& one : pod.report->joint["tiers"].as_array()) {
    if (one["name"].as_string() == tier) return one;
  }
  return none;
}

// A further tier that never answered the pod's server; null: all did.
const LaterTier* unreached(const View& view, const PodFinding& pod,
                           const std::vector<LaterTier>& further) {
  for (const LaterTier& tier : further) {
    if (report_of(view, pod, tier.status.name)["state"].as_string() != "Ready") return &tier;
  }
  return nullptr;
}

Verdict not_reached(const View& view, const PodFinding& pod, const LaterTier& tier,
                    std::string_view status) {
  const std::string& error = report_of(view, pod, tier.status.name)["lastError"].as_string();
  return {status, "TierNotReached",
          "the server of node " + pod.endpoint.node + " has had no answer from tier " +
              tier.status.name + " yet" + (error.empty() ? "" : ": " + error)};
}

// The first tier answers, but a further tier cannot be called yet: the reason against the first
// Ready. Nothing if all can be called, or if the service was Ready before. Then the first tier
// alone is enough.
std::optional<Verdict> first_wait(const View& view, const FirstTier& first,
                                  const std::vector<LaterTier>& further) {
  if (!view.service.status.start_time.empty()) return {};
  if (view.plan.first_problem && !hosting::is_progress(view.plan.first_problem->reason))
    return no(*view.plan.first_problem);
  for (const LaterTier& tier : further) {
    if (tier.verdict.status != kTrue) {
      return Verdict{tier.verdict.status, tier.verdict.reason,
                     "the first tier answers; tier " + tier.status.name +
                         " does not yet: " + tier.verdict.message};
    }
  }
  if (!view.plan.manages_first_tier()) return {};
  std::optional<Verdict> why;
  for (const PodFinding& pod : first.pods) {
    if (pod.answers.status != kTrue) continue;
    const LaterTier* tier = unreached(view, pod, further);
    if (tier == nullptr) return {};
    if (!why) why = pod.flaw ? *pod.flaw : not_reached(view, pod, *tier, kFalse);
  }
  return why;
}

Verdict degraded(const View& view, const FirstTier& first, const std::vector<LaterTier>& further) {
  std::size_t count = 0;
  const PodFinding* one = nullptr;
  const PodFinding* lost = nullptr;
  for (const PodFinding& pod : first.pods) {
    if (pod.answers.status == kUnknown && !pod.leaving && lost == nullptr) lost = &pod;
    if (pod.answers.status != kTrue || pod.report == nullptr ||
        !pod.report->joint["degraded"].is_object())
      continue;
    if (count++ == 0) one = &pod;
  }
  if (one != nullptr) {
    const Json& degraded = one->report->joint["degraded"];
    return {kTrue, reason_of(degraded, "Degraded"),
            (first.pods.size() > 1
                 ? counted(count, first.pods.size()) + " nodes; " + one->endpoint.node + ": "
                 : "") +
                degraded["message"].string_or("the first tier answers alone")};
  }
  if (first.ready == 0) {
    if (lost != nullptr) return {kUnknown, lost->answers.reason, lost->answers.message};
    return no("NotServing", "the first tier does not answer");
  }
  for (const LaterTier& tier : further) {
    if (tier.status.ready) continue;
    // Unknown is the control plane's view of the tier; our server has its own view.
    if (tier.verdict.status == kFalse ||
        (tier.verdict.status == kUnknown && !view.plan.manages_first_tier()))
      return {kTrue, tier.verdict.reason,
              "the edge answers without tier " + tier.status.name + ": " + tier.verdict.message};
  }
  for (const LaterTier& tier : further) {
    if (tier.status.url.empty())
      return {kTrue, "NoAddress",
              "tier " + tier.status.name + " has no address yet: " + tier.verdict.message};
  }
  for (const PodFinding& pod : first.pods) {
    if (!view.plan.manages_first_tier() || pod.answers.status != kTrue || pod.leaving) continue;
    // A restarted server asks the tier within a second.
    const bool before = !view.service.status.start_time.empty();
    if (const LaterTier* tier = unreached(view, pod, further))
      return not_reached(view, pod, *tier, before ? kUnknown : kTrue);
  }
  if (lost != nullptr) return {kUnknown, lost->answers.reason, lost->answers.message};
  return no("AllTiersAsked", "every tier answers");
}

void count_workers(const View& view, const FirstTier& first, JointInferenceServiceStatus& status) {
  for (std::size_t i = 0; i < view.plan.first.pods.size(); ++i) {
    const api::Pod* pod = view.plan.first.pods[i].pod.get();
    if (pod == nullptr || pod->metadata.deleting()) continue;
    // A pod that an agent vouches for counts too: it works, even if it is not Ready at this moment.
    if (pod->ready() || first.pods[i].answers.status == kTrue) ++status.active;
    if (pod->ended() || (!pod->ready() && hosting::pod_problem(*pod))) ++status.failed;
  }
  for (std::size_t i = 0; i < view.plan.further.size(); ++i) {
    const auto model = view.world.inference_models.find(view.plan.further[i].inference_model);
    if (view.plan.further[i].owned && model != view.world.inference_models.end())
      status.active += model->second->status.ready_replicas;
    if (!view.plan.tiers[i + 1].has_template()) continue;
    for (const workers::PodPtr& pod : view.world.pods) {
      const auto label = pod->metadata.labels.find(std::string(workers::kWorkerLabel));
      if (label == pod->metadata.labels.end() || label->second != view.plan.tiers[i + 1].name ||
          pod->metadata.deleting())
        continue;
      if (pod->ready()) ++status.active;
      if (pod->ended() || (!pod->ready() && hosting::pod_problem(*pod))) ++status.failed;
    }
  }
}

bool same(const JointInferenceServiceStatus& a, const JointInferenceServiceStatus& b) {
  const auto parts = [](const JointInferenceServiceStatus& s) {
    return std::tie(s.conditions, s.observed_generation, s.url, s.endpoints, s.active, s.failed,
                    s.inference_number, s.hard_example_number, s.upload_cloud_ratio, s.bytes_sent,
                    s.tiers, s.samples, s.start_time, s.counters);
  };
  return parts(a) == parts(b);
}

// One endpoint for each node: of several workers, one that answers.
void add_endpoint(const JointEndpoint& endpoint, std::vector<JointEndpoint>& endpoints) {
  if (!endpoints.empty() && endpoints.back().node == endpoint.node) {  // sorted by node
    if (!endpoints.back().ready && endpoint.ready) endpoints.back() = endpoint;
  } else if (endpoints.size() < JointInferenceServiceStatus::kEndpointsMax) {
    endpoints.push_back(endpoint);
  }
}

}  // namespace

JointObservation observe(const JointInferenceService& service, const JointPlan& plan,
                         const JointWorld& world, const hosting::Options& options, WallTime now) {
  if (service.metadata.deleting()) return {service.status, {}};
  const std::string time = meta::format_time(now);
  JointInferenceServiceStatus status = service.status;
  status.observed_generation = service.metadata.generation;
  const auto set = [&](std::string type, const Verdict& verdict) {
    meta::set_condition(
        status.conditions,
        {std::move(type), std::string(verdict.status), verdict.reason,
         codec::clipped(verdict.message, kMessageMax), service.metadata.generation, ""},
        time);
  };
  if (plan.problem) {
    set("Ready", no(*plan.problem));
    set("EdgeReady", no(*plan.problem));
    set("CloudReady", no(*plan.problem));
    set("Degraded",
        {kUnknown, plan.problem->reason, "the previous pods keep serving, but are not monitored"});
  } else {
    const View view{service, plan, world, options};
    const FirstTier first = find_first(view);
    const std::vector<LaterTier> further = find_further(view);
    const std::optional<Verdict> waits =
        first.answers.status == kTrue ? first_wait(view, first, further) : std::nullopt;
    set("Ready", waits ? *waits : first.answers);
    set("EdgeReady", first.verdict);
    set("CloudReady", cloud_verdict(further));
    set("Degraded", degraded(view, first, further));
    if (!plan.autoscaled) {
      std::erase_if(status.conditions, [](const meta::Condition& condition) {
        return condition.type == "Autoscaling";
      });
    } else if (plan.autoscaling || plan.refused) {
      set("Autoscaling", no(plan.autoscaling ? *plan.autoscaling : *plan.refused));
    } else {
      set("Autoscaling", {kTrue, "Autoscaling",
                          "a HorizontalPodAutoscaler sets the replicas of the cloud worker"});
    }
    status.url = first.answers.status == kFalse ? "" : first.url;
    status.endpoints.clear();
    for (const PodFinding& pod : first.pods) {
      if (!pod.leaving || pod.answers.status == kTrue) add_endpoint(pod.endpoint, status.endpoints);
    }
    status.tiers = {status_of(view, first)};
    for (const LaterTier& tier : further) status.tiers.push_back(tier.status);
    status.active = status.failed = 0;
    count_workers(view, first, status);
    add_counts(view, first, status);
    if (first.answers.status == kTrue && !waits && status.start_time.empty())
      status.start_time = time;
  }
  JointObservation out;
  if (same(status, service.status)) {
    out.status = service.status;
    return out;
  }
  JointInferenceServiceStatus state = status, state_before = service.status;
  clear_counts(state);
  clear_counts(state_before);
  if (same(state, state_before)) {
    const auto last = meta::parse_time(service.status.update_time);
    const auto age = last.ok() ? now - *last : WallTime::duration::max();
    // If the clock was set back, the status does not wait until it catches up.
    if (age >= WallTime::duration::zero() && age < kCountsPeriod) {
      out.status = service.status;
      out.recheck_in = std::chrono::duration_cast<Duration>(kCountsPeriod - age);
      return out;
    }
  }
  status.update_time = time;
  out.status = std::move(status);
  return out;
}

}  // namespace varda::controllers::joint
