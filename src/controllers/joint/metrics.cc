#include "controllers/joint/metrics.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "api/sedna/joint_inference_service.h"

namespace varda::controllers::joint {
namespace {

using api::JointInferenceService;
using api::JointTierStatus;
using Family = metrics::Samples::Family;

/// All families, so that a scrape looks each up once.
struct Families {
  explicit Families(metrics::Samples& out)
      : ready(out.gauge("varda_joint_service_ready", "1 if the condition Ready is True, else 0.")),
        degraded(out.gauge("varda_joint_service_degraded",
                           "1 if the condition Degraded is True, else 0.")),
        workers(out.gauge("varda_joint_service_workers", "Workers by state: active or failed.")),
        inferences(out.counter("varda_joint_service_inferences_total", "Requests answered.")),
        hard(out.counter("varda_joint_service_hard_examples_total",
                         "Answered requests that a policy classified as hard examples.")),
        sent_up(out.counter("varda_joint_service_sent_bytes_total",
                            "Bytes of requests sent to later tiers.")),
        tier_ready(out.gauge("varda_joint_service_tier_ready", "1 if the tier answers, else 0.")),
        answered(out.counter("varda_joint_service_answered_total",
                             "Requests by the tier that answered.")),
        called(out.counter("varda_joint_service_calls_total",
                           "Requests by the tier that was called.")),
        errors(out.counter("varda_joint_service_errors_total",
                           "Calls that a tier did not answer, by reason. ClientGone: the client "
                           "disconnected; the tier did not fail.")),
        p50(out.gauge("varda_joint_service_latency_p50_seconds",
                      "Median duration of the tier's calls, at the slowest node.")),
        p99(out.gauge(
            "varda_joint_service_latency_p99_seconds",
            "99th percentile of the duration of the tier's calls, at the slowest node.")) {}

  Family &ready, &degraded, &workers, &inferences, &hard, &sent_up, &tier_ready, &answered, &called,
      &errors, &p50, &p99;
};

double is_true(const JointInferenceService& service, std::string_view type) {
  const meta::Condition* condition = meta::find_condition(service.status.conditions, type);
  return condition != nullptr && condition->status == "True" ? 1 : 0;
}

/// Converts a status's text in milliseconds; nothing: it was not measured. "0.09" is 9e-05; a
/// division could differ in the last digit.
std::optional<double> seconds(const std::string& milliseconds) {
  const std::string text = milliseconds + "e-3";
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0)
    return {};
  return value;
}

void add_tier_samples(const JointInferenceService& service, const JointTierStatus& tier,
                      Families& of) {
  const std::string &ns = service.metadata.ns, &name = service.metadata.name;
  const auto add = [&](Family& family, double value) {
    family.add({{"namespace", ns}, {"name", name}, {"tier", tier.name}}, value);
  };
  add(of.tier_ready, tier.ready ? 1 : 0);
  add(of.answered, static_cast<double>(tier.answered));
  add(of.called, static_cast<double>(tier.called));
  for (const auto& [reason, count] : tier.errors)
    of.errors.add({{"namespace", ns}, {"name", name}, {"tier", tier.name}, {"reason", reason}},
                  static_cast<double>(count));
  if (const auto value = seconds(tier.p50_ms)) add(of.p50, *value);
  if (const auto value = seconds(tier.p99_ms)) add(of.p99, *value);
}

void add_service(const JointInferenceService& service, Families& of) {
  const std::string &ns = service.metadata.ns, &name = service.metadata.name;
  const api::JointInferenceServiceStatus& status = service.status;
  const auto add = [&](Family& family, double value) {
    family.add({{"namespace", ns}, {"name", name}}, value);
  };
  add(of.ready, is_true(service, "Ready"));
  add(of.degraded, is_true(service, "Degraded"));
  of.workers.add({{"namespace", ns}, {"name", name}, {"state", "active"}},
                 static_cast<double>(status.active));
  of.workers.add({{"namespace", ns}, {"name", name}, {"state", "failed"}},
                 static_cast<double>(status.failed));
  add(of.inferences, static_cast<double>(status.inference_number));
  add(of.hard, static_cast<double>(status.hard_example_number));
  add(of.sent_up, static_cast<double>(status.bytes_sent));
  for (const JointTierStatus& tier : status.tiers) add_tier_samples(service, tier, of);
}

}  // namespace

void JointMetrics::collect(metrics::Samples& out) const {
  if (!is_reporter_()) return;
  Families families(out);
  for (const auto& service : caches_.of<JointInferenceService>().list())
    add_service(*service, families);
}

}  // namespace varda::controllers::joint
