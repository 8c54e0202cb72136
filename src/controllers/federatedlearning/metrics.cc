#include "controllers/federatedlearning/metrics.h"

#include <map>
#include <string>

#include "api/sedna/federated_learning_job.h"
#include "codec/json.h"

namespace varda::controllers::federatedlearning {
namespace {

using api::FederatedLearningJob;

double number_of_text(const std::string& text) {
  const auto value = codec::parse_json(text);
  return value.ok() ? value->as_double() : 0;
}

}  // namespace

void FederatedMetrics::collect(metrics::Samples& out) const {
  if (!is_reporter_()) return;
  using Family = metrics::Samples::Family;
  Family& complete = out.gauge("varda_federated_job_complete", "1 if the job is Complete, else 0.");
  Family& failed = out.gauge("varda_federated_job_failed", "1 if the job is Failed, else 0.");
  Family& round = out.gauge("varda_federated_job_round", "The present round.");
  Family& rounds = out.gauge("varda_federated_job_rounds", "Number of rounds.");
  Family& participants =
      out.gauge("varda_federated_job_participants", "Training workers by state.");
  Family& bytes =
      out.counter("varda_federated_job_bytes_total", "Bytes of updates (up) and of models (down).");
  Family& epsilon = out.gauge("varda_federated_job_epsilon", "Spent epsilon.");
  Family& metric = out.gauge("varda_federated_job_metric", "Metrics of the last evaluation.");
  for (const auto& job : caches_.of<FederatedLearningJob>().list()) {
    const std::string &ns = job->metadata.ns, &name = job->metadata.name;
    const api::FederatedLearningJobStatus& status = job->status;
    const auto add = [&](Family& family, double value) {
      family.add({{"namespace", ns}, {"name", name}}, value);
    };
    const auto add_with = [&](Family& family, const char* label, const std::string& text,
                              double value) {
      family.add({{"namespace", ns}, {"name", name}, {label, text}}, value);
    };
    add(complete, status.phase == api::FederatedLearningJobStatus::kComplete ? 1 : 0);
    add(failed, status.phase == api::FederatedLearningJobStatus::kFailed ? 1 : 0);
    add(round, static_cast<double>(status.round));
    add(rounds, static_cast<double>(status.rounds));
    std::map<std::string, std::int64_t> states;
    for (const api::FederatedParticipant& one : status.participants) ++states[one.state];
    for (const auto& [state, count] : states)
      add_with(participants, "state", state, static_cast<double>(count));
    add_with(bytes, "direction", "up", static_cast<double>(status.bytes_up));
    add_with(bytes, "direction", "down", static_cast<double>(status.bytes_down));
    if (!status.epsilon.empty()) add(epsilon, number_of_text(status.epsilon));
    for (const api::ModelMetric& one : status.metrics)
      add_with(metric, "metric", one.key, number_of_text(one.value));
  }
}

}  // namespace varda::controllers::federatedlearning
