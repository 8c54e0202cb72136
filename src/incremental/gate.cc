#include "incremental/gate.h"

#include <algorithm>
#include <cmath>

#include "codec/settings_reader.h"
#include "codec/text.h"
#include "incremental/internal/read.h"

namespace varda::incremental {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;

constexpr Choice<Gate::Goal> kGoals[] = {{"maximize", Gate::Goal::kMaximize},
                                         {"minimize", Gate::Goal::kMinimize}};
constexpr Choice<McNemarTest> kTests[] = {{"midp", McNemarTest::kMidP},
                                          {"exact", McNemarTest::kExact},
                                          {"chiSquare", McNemarTest::kChiSquare},
                                          {"chiSquareCorrected", McNemarTest::kCorrectedChiSquare}};
constexpr double kSignificance = 0.05;
constexpr double kRounding = 1e-9;  // a gain of 0.83 - 0.82 passes a bound of 0.01
constexpr double kKnownShare = 0.5;
constexpr std::size_t kReasonsShown = 3;
constexpr std::size_t kClassNameShown = 64, kTextShown = 256;

struct Totals {
  std::int64_t samples = 0, base_right = 0, candidate_right = 0, only_base = 0, only_candidate = 0;
};

Totals totals_of(const Comparison& comparison) {
  Totals out;
  for (const Slice& slice : comparison.slices) {
    out.samples += slice.samples;
    out.base_right += slice.base_right;
    out.candidate_right += slice.candidate_right;
    out.only_base += slice.only_base;
    out.only_candidate += slice.only_candidate;
  }
  return out;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

class GateRun {
 public:
  GateRun(const Gate* gate, const std::vector<Condition>& conditions, const Comparison& comparison)
      : gate_(gate),
        conditions_(conditions),
        comparison_(comparison),
        totals_(totals_of(comparison)) {}

  GateVerdict run() {
    if (gate_ != nullptr) {
      judge_gain();
      judge_samples();
      judge_forgetting();
      judge_slices();
      judge_budgets();
    }
    judge_conditions();
    return finish();
  }

 private:
  bool counts_accuracy() const { return gate_->metric == "accuracy" && totals_.samples > 0; }

  void add(std::string name, std::string_view reason, bool passed, std::optional<double> value,
           std::optional<double> bound, std::string text) {
    if (!passed && out_.reason.empty()) out_.reason = reason;
    const auto finite = [](std::optional<double> number) {
      return number && std::isfinite(*number) ? number : std::nullopt;
    };
    out_.checks.push_back(
        {std::move(name), passed, finite(value), finite(bound), codec::clipped(text, kTextShown)});
  }

  void judge_gain() {
    if (counts_accuracy()) {
      out_.base = share(totals_.base_right, totals_.samples);
      out_.candidate = share(totals_.candidate_right, totals_.samples);
    } else {
      const MetricValue candidate = read_metric(comparison_.candidate_metrics, gate_->metric);
      const MetricValue base = read_metric(comparison_.base_metrics, gate_->metric);
      if (!candidate.number || !base.number) {
        add("gain", "NotComparable", false, {}, gate_->minimum_gain,
            candidate.number ? "of the base " + base.problem
                             : "of the candidate " + candidate.problem);
        return;
      }
      out_.base = base.number;
      out_.candidate = candidate.number;
    }
    const double rise = *out_.candidate - *out_.base;
    const double gain = gate_->goal == Gate::Goal::kMaximize ? rise : -rise;
    if (!std::isfinite(gain)) {
      add("gain", "NotComparable", false, {}, gate_->minimum_gain,
          gate_->metric + " differs by more than a number can hold");
      return;
    }
    out_.gain = gain;
    add("gain", "GainTooSmall", gain >= gate_->minimum_gain - kRounding, gain, gate_->minimum_gain,
        gate_->metric + " went from " + number_text(*out_.base) + " to " +
            number_text(*out_.candidate) + ", and the least gain is " +
            number_text(gate_->minimum_gain));
    judge_significance();
  }

  void judge_significance() {
    const double bound = gate_->significance.value_or(kSignificance);
    if (bound >= 1) return;
    std::string test;
    bool better = false, worse = false;
    if (counts_accuracy()) {
      const double p = mcnemar(totals_.only_base, totals_.only_candidate, gate_->test);
      out_.probability = p;
      better = p <= bound && totals_.only_candidate > totals_.only_base;
      worse = p <= bound && totals_.only_base > totals_.only_candidate;
      test = "McNemar, " + std::string(choice_name(kTests, gate_->test)) + ", " +
             std::to_string(totals_.only_candidate) + " to " + std::to_string(totals_.only_base);
    } else {
      std::vector<double> gains = gains_by_sample();
      if (gains.empty()) {
        if (gate_->significance)
          add("significance", "NotSignificant", false, {}, bound,
              "the comparison has no values by sample, so that no test is possible");
        return;
      }
      const auto seed = static_cast<std::uint64_t>(gate_->seed);
      const double p = paired_bootstrap(gains, gate_->resamples, seed).probability;
      for (double& gain : gains) gain = -gain;
      const double loss = paired_bootstrap(gains, gate_->resamples, seed).probability;
      better = p <= bound;
      worse = loss <= bound;
      out_.probability = gate_->minimum_gain < 0 ? loss : p;
      test = "paired bootstrap, " + std::to_string(gains.size()) + " samples";
    }
    const bool passed = gate_->minimum_gain < 0 ? !worse : better;
    add("significance", "NotSignificant", passed, out_.probability, bound,
        "p = " + number_text(*out_.probability) + " (" + test + "), and the limit is " +
            number_text(bound));
  }

  /// Empty unless the values of some slice have the metric.
  std::vector<double> gains_by_sample() const {
    std::vector<double> out;
    for (const Slice& slice : comparison_.slices) {
      const auto at = slice.values.find(gate_->metric);
      if (at == slice.values.end()) continue;
      for (std::size_t i = 0; i < at->second.base.size(); ++i) {
        const double rise = at->second.candidate[i] - at->second.base[i];
        out.push_back(gate_->goal == Gate::Goal::kMaximize ? rise : -rise);
      }
    }
    return out;
  }

  void judge_samples() {
    if (comparison_.slices.empty()) return;
    const auto values = static_cast<std::int64_t>(gains_by_sample().size());
    const std::int64_t samples = std::max(totals_.samples, values);
    add("samples", "NotComparable", samples >= gate_->samples_min, static_cast<double>(samples),
        static_cast<double>(gate_->samples_min),
        std::to_string(samples) + " samples, and the least is " +
            std::to_string(gate_->samples_min));
  }

  void judge_forgetting() {
    const auto frozen = std::find_if(comparison_.slices.begin(), comparison_.slices.end(),
                                     [](const Slice& slice) { return slice.name == kFrozenSlice; });
    if (frozen == comparison_.slices.end() || frozen->samples == 0) return;
    std::int64_t samples = 0, base = 0, candidate = 0;
    for (const ClassCounts& counts : frozen->classes) {
      if (counts.samples == 0 || share(counts.base_right, counts.samples) < kKnownShare) continue;
      samples += counts.samples;
      base += counts.base_right;
      candidate += counts.candidate_right;
    }
    const bool known = samples > 0;
    if (!known) {
      samples = frozen->samples;
      base = frozen->base_right;
      candidate = frozen->candidate_right;
    }
    out_.forgetting = share(base - candidate, samples);
    add("forgetting", "Forgetting", *out_.forgetting <= gate_->forgetting_max + kRounding,
        out_.forgetting, gate_->forgetting_max,
        "forgetting is " + number_text(*out_.forgetting) + " on " + std::to_string(samples) +
            (known ? " samples of known classes" : " frozen samples") + ", and the limit is " +
            number_text(gate_->forgetting_max));
  }

  void judge_slices() {
    for (const Slice& slice : comparison_.slices) {
      if (slice.samples == 0) continue;
      const double drop = share(slice.base_right - slice.candidate_right, slice.samples);
      add("slice " + codec::clipped(slice.name, kClassNameShown), "SliceWorse",
          drop <= gate_->slice_drop_max + kRounding, drop, gate_->slice_drop_max,
          "accuracy on the slice " + codec::clipped(slice.name, kClassNameShown) + " fell by " +
              number_text(drop) + ", and the limit is " + number_text(gate_->slice_drop_max));
      for (const ClassCounts& counts : slice.classes) judge_class(slice, counts);
    }
  }

  void judge_class(const Slice& slice, const ClassCounts& counts) {
    if (counts.samples < std::max<std::int64_t>(1, gate_->class_samples_min)) return;
    const double drop = share(counts.base_right - counts.candidate_right, counts.samples);
    // Most classes are fine, and would fill the status.
    if (drop <= gate_->class_drop_max + kRounding) return;
    const std::string name = codec::clipped(counts.name, kClassNameShown);
    add("class " + name, "ClassWorse", false, drop, gate_->class_drop_max,
        "accuracy on the class " + name + " (" + codec::clipped(slice.name, kClassNameShown) +
            ") fell by " + number_text(drop) + ", and the limit is " +
            number_text(gate_->class_drop_max));
  }

  void judge_budgets() {
    judge_budget("latency", "TooSlow", "milliseconds", comparison_.milliseconds,
                 gate_->latency_ms_max, gate_->latency_factor_max);
    judge_budget("size", "TooLarge", "bytes", comparison_.bytes, gate_->bytes_max,
                 gate_->bytes_factor_max);
  }

  void judge_budget(const std::string& name, std::string_view reason, const std::string& unit,
                    const std::optional<Pair>& pair, const std::optional<double>& most,
                    const std::optional<double>& factor) {
    if (!most && !factor) return;
    if (!pair) {
      add(name, "NotComparable", false, {}, {}, "the comparison has no " + unit);
      return;
    }
    double bound = most.value_or(HUGE_VAL);
    if (factor) bound = std::min(bound, *factor * pair->base);
    add(name, reason, pair->candidate <= bound * (1 + kRounding), pair->candidate, bound,
        number_text(pair->candidate) + " " + unit + ", and the limit is " + number_text(bound));
  }

  void judge_conditions() {
    if (conditions_.empty()) return;
    const Json metrics = metrics_with_deltas(comparison_);
    for (const Condition& condition : conditions_) {
      const ConditionResult result = check(condition, metrics);
      add("condition", "ConditionNotMet", result.holds, result.number, condition.threshold,
          result.reason);
    }
  }

  GateVerdict finish() {
    out_.passed = out_.reason.empty();
    if (out_.passed) out_.reason = "GatePassed";
    std::stable_partition(out_.checks.begin(), out_.checks.end(),
                          [](const GateCheck& check) { return !check.passed; });
    std::size_t shown = 0;
    for (const GateCheck& check : out_.checks) {
      if (check.passed != out_.passed || shown == kReasonsShown) break;
      out_.message += (shown++ == 0 ? "" : "; ") + check.text;
    }
    if (out_.checks.empty()) out_.message = "the gate has no checks";
    if (out_.checks.size() > GateVerdict::kChecksMax) out_.checks.resize(GateVerdict::kChecksMax);
    return std::move(out_);
  }

  const Gate* gate_;
  const std::vector<Condition>& conditions_;
  const Comparison& comparison_;
  const Totals totals_;
  GateVerdict out_;
};

}  // namespace

Result<Gate> parse_gate(const Json& json, const std::string& path) {
  constexpr std::int64_t kCountMax = 1'000'000'000;
  Gate out;
  Status status;
  codec::SettingsReader in(json, path, status);
  in.text("metric", out.metric);
  if (out.metric.empty() || out.metric.size() > kMetricNameBytesMax)
    in.refuse("metric", "a text of 1 to 253 bytes");
  in.choice("goal", out.goal, kGoals);
  in.number("minimumGain", out.minimum_gain, {-1e9, 1e9});
  read_optional(in, "significance", out.significance, {0, 1, codec::kAboveLow});
  in.choice("test", out.test, kTests);
  in.integer("resamples", out.resamples, 100, 10'000);
  in.integer("seed", out.seed, 0, INT64_MAX);
  in.number("forgettingMax", out.forgetting_max, {0, 1});
  in.number("sliceDropMax", out.slice_drop_max, {0, 1});
  in.number("classDropMax", out.class_drop_max, {0, 1});
  in.integer("classSamplesMin", out.class_samples_min, 1, kCountMax);
  in.integer("samplesMin", out.samples_min, 0, kCountMax);
  read_optional(in, "latencyMsMax", out.latency_ms_max, {0, 1e9, codec::kAboveLow});
  read_optional(in, "latencyFactorMax", out.latency_factor_max, {0, 1e6, codec::kAboveLow});
  read_optional(in, "bytesMax", out.bytes_max, {0, 1e15, codec::kAboveLow});
  read_optional(in, "bytesFactorMax", out.bytes_factor_max, {0, 1e6, codec::kAboveLow});
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Json to_json(const Gate& gate) {
  Json out = Json::object({{"metric", gate.metric},
                           {"goal", choice_name(kGoals, gate.goal)},
                           {"minimumGain", gate.minimum_gain},
                           {"test", choice_name(kTests, gate.test)},
                           {"resamples", gate.resamples},
                           {"seed", gate.seed},
                           {"forgettingMax", gate.forgetting_max},
                           {"sliceDropMax", gate.slice_drop_max},
                           {"classDropMax", gate.class_drop_max},
                           {"classSamplesMin", gate.class_samples_min},
                           {"samplesMin", gate.samples_min}});
  const auto set = [&](std::string_view name, const std::optional<double>& value) {
    if (value) out.set(name, *value);
  };
  set("significance", gate.significance);
  set("latencyMsMax", gate.latency_ms_max);
  set("latencyFactorMax", gate.latency_factor_max);
  set("bytesMax", gate.bytes_max);
  set("bytesFactorMax", gate.bytes_factor_max);
  return out;
}

Json to_json(const GateVerdict& verdict) {
  Json out = Json::object({{"verdict", verdict.passed ? "pass" : "refuse"},
                           {"reason", verdict.reason},
                           {"message", verdict.message}});
  const auto set = [](Json& json, std::string_view name, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) json.set(name, *value);
  };
  set(out, "base", verdict.base);
  set(out, "candidate", verdict.candidate);
  set(out, "gain", verdict.gain);
  set(out, "probability", verdict.probability);
  set(out, "forgetting", verdict.forgetting);
  Json checks = Json::array();
  for (const GateCheck& check : verdict.checks) {
    Json item = Json::object({{"name", check.name}, {"passed", check.passed}});
    set(item, "value", check.value);
    set(item, "bound", check.bound);
    item.set("text", check.text);
    checks.push_back(std::move(item));
  }
  out.set("checks", std::move(checks));
  return out;
}

GateVerdict verdict_of(const Json& json) {
  const auto number = [](const Json& value) {
    return value.is_number() ? std::optional<double>(value.as_double()) : std::nullopt;
  };
  GateVerdict out{.passed = json["verdict"].as_string() == "pass",
                  .reason = json["reason"].as_string(),
                  .message = json["message"].as_string(),
                  .base = number(json["base"]),
                  .candidate = number(json["candidate"]),
                  .gain = number(json["gain"]),
                  .probability = number(json["probability"]),
                  .forgetting = number(json["forgetting"]),
                  .checks = {}};
  for (const Json& item : json["checks"].as_array()) {
    if (out.checks.size() == GateVerdict::kChecksMax) break;
    out.checks.push_back({.name = item["name"].as_string(),
                          .passed = item["passed"].as_bool(),
                          .value = number(item["value"]),
                          .bound = number(item["bound"]),
                          .text = item["text"].as_string()});
  }
  return out;
}

GateVerdict judge(const std::optional<Gate>& gate, const std::vector<Condition>& conditions,
                  const Comparison& comparison) {
  return GateRun(gate ? &*gate : nullptr, conditions, comparison).run();
}

}  // namespace varda::incremental
