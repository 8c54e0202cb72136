#include "controllers/incrementallearning/metrics.h"

#include <map>
#include <string>

#include "api/sedna/incremental_learning_job.h"
#include "codec/json.h"

namespace varda::controllers::incrementallearning {
namespace {

using api::IncrementalLearningJob;

bool is_true(const api::IncrementalLearningJobStatus& status, const char* type) {
  const meta::Condition* condition = meta::find_condition(status.conditions, type);
  return condition != nullptr && condition->status == "True";
}

}  // namespace

void IncrementalMetrics::collect(metrics::Samples& out) const {
  if (!is_reporter_()) return;
  using Family = metrics::Samples::Family;
  Family& ready = out.gauge("varda_incremental_job_ready", "1 if every node serves, else 0.");
  Family& round = out.gauge("varda_incremental_job_round", "The present round.");
  Family& rounds =
      out.gauge("varda_incremental_job_rounds", "Ended rounds in the status, by outcome.");
  Family& samples = out.gauge("varda_incremental_job_samples",
                              "Samples: new, consumed, and pending without a label.");
  Family& passed =
      out.gauge("varda_incremental_job_gate_passed", "1 if the last comparison passed, else 0.");
  for (const auto& job : caches_.of<IncrementalLearningJob>().list()) {
    const std::string &ns = job->metadata.ns, &name = job->metadata.name;
    const api::IncrementalLearningJobStatus& status = job->status;
    const auto add = [&](Family& family, double value) {
      family.add({{"namespace", ns}, {"name", name}}, value);
    };
    const auto add_with = [&](Family& family, const char* label, const std::string& text,
                              std::int64_t value) {
      family.add({{"namespace", ns}, {"name", name}, {label, text}}, static_cast<double>(value));
    };
    add(ready, is_true(status, "Ready") ? 1 : 0);
    add(round, static_cast<double>(status.round));
    std::map<std::string, std::int64_t> outcomes{{"Accepted", 0}, {"Refused", 0}, {"Failed", 0}};
    for (const api::IncrementalRound& one : status.rounds) ++outcomes[one.outcome];
    for (const auto& [outcome, count] : outcomes) add_with(rounds, "outcome", outcome, count);
    add_with(samples, "state", "new", status.samples.fresh);
    add_with(samples, "state", "consumed", status.samples.consumed);
    add_with(samples, "state", "pending", status.samples.pending);
    if (meta::find_condition(status.conditions, "Evaluated") != nullptr)
      add(passed, is_true(status, "Evaluated") ? 1 : 0);
  }
}

}  // namespace varda::controllers::incrementallearning
