#include "controllers/incrementallearning/metrics.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "api/ai/inference_model.h"
#include "api/sedna/incremental_learning_job.h"
#include "codec/json.h"
#include "meta/quantity.h"

namespace varda::controllers::incrementallearning {
namespace {

using api::IncrementalLearningJob;

bool is_true(const api::IncrementalLearningJobStatus& status, const char* type) {
  const meta::Condition* condition = meta::find_condition(status.conditions, type);
  return condition != nullptr && condition->status == "True";
}

std::int64_t last_with(const std::vector<api::IncrementalRound>& rounds, std::string_view outcome) {
  return std::find_if(rounds.rbegin(), rounds.rend(),
                      [&](const auto& one) { return one.outcome != outcome; }) -
         rounds.rbegin();
}

struct KeptSamples {
  std::int64_t dropped = 0;
  double used = 0;  // of the limits, on the fullest node
};

/// Nothing: no server of the job keeps samples.
std::optional<KeptSamples> kept_samples(const IncrementalLearningJob& job,
                                        const runtime::Caches& caches) {
  using api::SampleSettings;
  std::optional<KeptSamples> out;
  for (const auto& child : caches.of<api::InferenceModel>().owned_by(job.metadata.uid)) {
    if (!child->spec.samples || !child->status.samples) continue;
    if (!out) out = KeptSamples{};
    const SampleSettings& limits = *child->spec.samples;
    const api::SampleReport& report = *child->status.samples;
    out->dropped += report.dropped;
    const auto use = [&](std::int64_t value, double limit) {
      if (limit > 0) out->used = std::max(out->used, static_cast<double>(value) / limit);
    };
    use(report.pending,
        static_cast<double>(limits.count_max.value_or(SampleSettings::kDefaultCountMax)));
    use(report.bytes, meta::quantity_value(limits.bytes_max)
                          .value_or(static_cast<double>(SampleSettings::kDefaultBytesMax)));
  }
  return out;
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
  Family& row = out.gauge("varda_incremental_job_rounds_in_a_row",
                          "The last rounds of the status, if all have the outcome.");
  Family& rolled_back = out.gauge("varda_incremental_job_rolled_back",
                                  "1 if the version of the last round left the service, else 0.");
  Family& labels =
      out.gauge("varda_incremental_job_labels", "1 if labelled samples reach the Dataset, else 0.");
  Family& used = out.gauge("varda_incremental_job_spool_used",
                           "Share of the limits that kept samples use, on the fullest node.");
  Family& dropped = out.counter("varda_incremental_job_samples_dropped_total",
                                "Requests that servers could not keep since their version serves.");
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
    for (const char* outcome : {"Refused", "Failed"})
      add_with(row, "outcome", outcome, last_with(status.rounds, outcome));
    add(rolled_back, !status.rounds.empty() && status.rounds.back().rolled_back ? 1 : 0);
    if (meta::find_condition(status.conditions, "Labels") != nullptr)
      add(labels, is_true(status, "Labels") ? 1 : 0);
    if (const auto kept = kept_samples(*job, caches_)) {
      add(used, kept->used);
      add(dropped, static_cast<double>(kept->dropped));
    }
  }
}

}  // namespace varda::controllers::incrementallearning
