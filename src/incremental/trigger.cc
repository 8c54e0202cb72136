#include "incremental/trigger.h"

#include <algorithm>
#include <cmath>

#include "codec/settings_reader.h"
#include "incremental/internal/read.h"

namespace varda::incremental {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;
using codec::SettingsReader;

constexpr Choice<DriftMethod> kDriftMethods[] = {{"psi", DriftMethod::kPsi},
                                                 {"ks", DriftMethod::kKolmogorovSmirnov},
                                                 {"pageHinkley", DriftMethod::kPageHinkley}};
constexpr std::int64_t kSamplesMax = 1'000'000'000;
constexpr std::int64_t kWindowMin = 10, kWindowMax = 1'000'000;
constexpr std::chrono::seconds kPeriodMax{30 * 86'400};

double initial_threshold(DriftMethod method) {
  switch (method) {
    case DriftMethod::kPsi:
      return 0.25;
    case DriftMethod::kKolmogorovSmirnov:
      return 0.01;
    case DriftMethod::kPageHinkley:
      return 0.1;
  }
  return 0;
}

Result<DriftRule> parse_drift(const Json& json, const std::string& path) {
  DriftRule out;
  Status status;
  SettingsReader in(json, path, status);
  in.choice("method", out.method, kDriftMethods);
  out.threshold = initial_threshold(out.method);
  const bool probability = out.method == DriftMethod::kKolmogorovSmirnov;
  in.number("threshold", out.threshold, {0, probability ? 1 : 1e6, codec::kAboveLow});
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Status read_rule(SettingsReader& in, Status& status, Rule& out, std::size_t depth);

Status read_rules(SettingsReader& in, std::string_view name, std::vector<Rule>& out,
                  std::size_t depth) {
  const Json* list = in.object(name);
  if (list == nullptr) return {};
  if (!list->is_array() || list->empty() || list->size() > Rule::kItemsMax) {
    in.refuse(name, "a list of 1 to " + std::to_string(Rule::kItemsMax) + " rules");
    return {};
  }
  if (depth >= Rule::kDepthMax) {
    in.refuse(name,
              "absent here: rules are at most " + std::to_string(Rule::kDepthMax) + " levels deep");
    return {};
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    Status status;
    const std::string path = in.path(name) + "[" + std::to_string(i) + "]";
    const Json& item = list->as_array()[i];
    if (!item.is_object() || item.empty())
      return Error(Code::kInvalid, path + " must be a rule with at least one member");
    SettingsReader members(item, path, status);
    Rule rule;
    TRY_VOID(read_rule(members, status, rule, depth + 1));
    members.end();
    TRY_VOID(std::move(status));
    out.push_back(std::move(rule));
  }
  return {};
}

Status read_rule(SettingsReader& in, Status& status, Rule& out, std::size_t depth) {
  read_part(in, "condition", status, out.condition, parse_condition);
  std::int64_t samples = 0;
  in.integer("samples", samples, 1, kSamplesMax);
  if (samples > 0) out.samples = samples;
  read_optional(in, "hardShare", out.hard_share, {0, 1, codec::kAboveLow});
  read_part(in, "drift", status, out.drift, parse_drift);
  read_part(in, "timer", status, out.timer, parse_time_window);
  TRY_VOID(read_rules(in, "any", out.any, depth));
  return read_rules(in, "all", out.all, depth);
}

void write_rule(const Rule& rule, Json& out) {
  const auto list = [](const std::vector<Rule>& rules) {
    Json items = Json::array();
    for (const Rule& item : rules) {
      Json members = Json::object();
      write_rule(item, members);
      items.push_back(std::move(members));
    }
    return items;
  };
  if (rule.condition) out.set("condition", to_json(*rule.condition));
  if (rule.samples) out.set("samples", *rule.samples);
  if (rule.hard_share) out.set("hardShare", *rule.hard_share);
  if (rule.drift)
    out.set("drift", Json::object({{"method", choice_name(kDriftMethods, rule.drift->method)},
                                   {"threshold", rule.drift->threshold}}));
  if (rule.timer) out.set("timer", to_json(*rule.timer));
  if (!rule.any.empty()) out.set("any", list(rule.any));
  if (!rule.all.empty()) out.set("all", list(rule.all));
}

std::string percent(double share) { return number_text(100 * share) + " %"; }

RuleResult check_samples(std::int64_t needed, const TriggerFacts& facts) {
  if (!facts.samples) return {false, "samples are not counted yet", {}};
  return {*facts.samples >= needed,
          std::to_string(*facts.samples) + " of " + std::to_string(needed) + " new samples",
          {}};
}

RuleResult check_hard_share(double needed, const TriggerFacts& facts) {
  if (!facts.hard_share) return {false, "too few answers for a share of hard examples", {}};
  return {*facts.hard_share >= needed,
          percent(*facts.hard_share) + " of answers are hard, and the limit is " + percent(needed),
          {}};
}

RuleResult check_drift(const DriftRule& rule, const TriggerFacts& facts) {
  if (rule.method == DriftMethod::kPageHinkley) {
    const double statistic = facts.page_hinkley.statistic();
    return {statistic >= rule.threshold,
            "the Page-Hinkley statistic of the score is " + number_text(statistic) +
                ", and the limit is " + number_text(rule.threshold),
            {}};
  }
  if (total(facts.reference) == 0 || total(facts.recent) == 0)
    return {false, "too few answers for a drift of scores", {}};
  if (facts.reference.size() != facts.recent.size())
    return {false, "the score histograms differ in their bins", {}};
  if (rule.method == DriftMethod::kPsi) {
    const double index = population_stability(facts.reference, facts.recent);
    return {index >= rule.threshold,
            "the stability index of the score is " + number_text(index) + ", and the limit is " +
                number_text(rule.threshold),
            {}};
  }
  const KolmogorovSmirnov test = kolmogorov_smirnov(facts.reference, facts.recent);
  return {test.probability <= rule.threshold,
          "the score moved by " + number_text(test.distance) +
              " (Kolmogorov-Smirnov, p = " + number_text(test.probability) +
              "), and the limit is p = " + number_text(rule.threshold),
          {}};
}

RuleResult check_timer(const TimeWindow& window, const TriggerFacts& facts) {
  if (window.contains(facts.now)) return {true, "the window " + window.text() + " is open", {}};
  return {false, "the window " + window.text() + " is closed", window.opens(facts.now)};
}

Json metrics_of(const TriggerFacts& facts) {
  Json out = facts.metrics.is_object() ? facts.metrics : Json::object();
  if (facts.samples)
    out.set("num_of_samples", *facts.samples);
  else
    out.erase("num_of_samples");
  if (facts.hard_share) out.set("hard_share", *facts.hard_share);
  return out;
}

/// Joins the results of parts that must all hold.
class Conjunction {
 public:
  void add(RuleResult part) {
    if (part.opens) opens_ = opens_ ? std::max(*opens_, *part.opens) : *part.opens;
    (part.holds ? met_ : unmet_).push_back(std::move(part.reason));
  }
  RuleResult result() const {
    const auto& reasons = unmet_.empty() ? met_ : unmet_;
    std::string text;
    for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
    return {unmet_.empty(), text, opens_};
  }

 private:
  std::vector<std::string> met_, unmet_;
  std::optional<WallTime> opens_;
};

RuleResult check_any(const std::vector<Rule>& rules, const TriggerFacts& facts) {
  RuleResult out;
  for (const Rule& rule : rules) {
    RuleResult part = check(rule, facts);
    if (part.holds) return part;
    if (part.opens) out.opens = out.opens ? std::min(*out.opens, *part.opens) : *part.opens;
    out.reason += (out.reason.empty() ? "" : " or ") + part.reason;
  }
  return out;
}

}  // namespace

Result<Trigger> parse_trigger(const Json& json, const std::string& path) {
  Trigger out;
  Status status;
  SettingsReader in(json, path, status);
  TRY_VOID(read_rule(in, status, out.rule, 1));
  in.period("checkPeriodSeconds", out.check_period, std::chrono::seconds(1), kPeriodMax);
  in.period("cooldownSeconds", out.cooldown, std::chrono::seconds(0), kPeriodMax);
  in.integer("quotaPerDay", out.quota_per_day, 0, Trigger::kQuotaMax);
  in.integer("minimumSamples", out.minimum_samples, 0, kSamplesMax);
  in.integer("window", out.window, kWindowMin, kWindowMax);
  in.number("delta", out.delta, {0, 1});
  in.boolean("manual", out.manual);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Json to_json(const Trigger& trigger) {
  Json out = Json::object();
  write_rule(trigger.rule, out);
  const auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  };
  out.set("checkPeriodSeconds", seconds(trigger.check_period));
  out.set("cooldownSeconds", seconds(trigger.cooldown));
  out.set("quotaPerDay", trigger.quota_per_day);
  out.set("minimumSamples", trigger.minimum_samples);
  out.set("window", trigger.window);
  out.set("delta", trigger.delta);
  out.set("manual", trigger.manual);
  return out;
}

RuleResult check(const Rule& rule, const TriggerFacts& facts) {
  Conjunction parts;
  if (rule.condition) {
    const ConditionResult result = check(*rule.condition, metrics_of(facts));
    parts.add({result.holds, result.reason, {}});
  }
  if (rule.samples) parts.add(check_samples(*rule.samples, facts));
  if (rule.hard_share) parts.add(check_hard_share(*rule.hard_share, facts));
  if (rule.drift) parts.add(check_drift(*rule.drift, facts));
  if (rule.timer) parts.add(check_timer(*rule.timer, facts));
  if (!rule.any.empty()) parts.add(check_any(rule.any, facts));
  for (const Rule& part : rule.all) parts.add(check(part, facts));
  RuleResult out = parts.result();
  if (out.reason.empty()) out.reason = "the trigger has no rule";
  return out;
}

bool needs_answers(const Rule& rule) {
  const auto below = [](const std::vector<Rule>& rules) {
    return std::any_of(rules.begin(), rules.end(), needs_answers);
  };
  return rule.hard_share || rule.drift ||
         (rule.condition && rule.condition->metric == "hard_share") || below(rule.any) ||
         below(rule.all);
}

}  // namespace varda::incremental
