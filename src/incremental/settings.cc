#include "incremental/settings.h"

#include "codec/settings_reader.h"
#include "incremental/internal/read.h"

namespace varda::incremental {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;
using codec::SettingsReader;
using std::chrono::seconds;

constexpr Choice<Trial::Mode> kTrialModes[] = {{"shadow", Trial::Mode::kShadow},
                                               {"canary", Trial::Mode::kCanary}};
constexpr std::int64_t kAnswersMax = 1'000'000'000;
constexpr double kCanaryShare = 0.1;
constexpr seconds kMonth{30 * 86'400};

Result<Retry> parse_retry(const Json& json, const std::string& path) {
  Retry out;
  Status status;
  SettingsReader in(json, path, status);
  in.integer("attempts", out.attempts, 1, 100);
  in.period("backoffSeconds", out.backoff, seconds(0), seconds(3600));
  in.period("deadlineSeconds", out.deadline, seconds(0), kMonth);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Result<Trial> parse_trial(const Json& json, const std::string& path) {
  Trial out;
  Status status;
  SettingsReader in(json, path, status);
  in.choice("mode", out.mode, kTrialModes);
  if (out.mode == Trial::Mode::kCanary) out.share = kCanaryShare;
  in.number("share", out.share, {0, 1, codec::kAboveLow});
  in.integer("answers", out.answers, 1, kAnswersMax);
  read_optional(in, "agreementMin", out.agreement_min, {0, 1});
  read_optional(in, "latencyFactorMax", out.latency_factor_max, {0, 1e6, codec::kAboveLow});
  in.period("deadlineSeconds", out.deadline, seconds(0), kMonth);
  in.end();
  TRY_VOID(std::move(status));
  if (out.agreement_min && out.mode == Trial::Mode::kCanary)
    return Error(Code::kInvalid,
                 path + ".agreementMin needs the mode shadow, in which both versions answer");
  return out;
}

Result<Rollback> parse_rollback(const Json& json, const std::string& path) {
  Rollback out;
  Status status;
  SettingsReader in(json, path, status);
  in.number("errorRate", out.error_rate, {0, 1});
  read_optional(in, "hardShareRise", out.hard_share_rise, {0, 1});
  read_part(in, "condition", status, out.condition, parse_condition);
  in.integer("answers", out.answers, 1, kAnswersMax);
  in.integer("crashes", out.crashes, 0, 1000);
  in.period("probationSeconds", out.probation, seconds(0), 12 * kMonth);
  in.boolean("automatic", out.automatic);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Result<Rollout> parse_rollout(const Json& json, const std::string& path) {
  Rollout out;
  Status status;
  SettingsReader in(json, path, status);
  in.period("pauseSeconds", out.pause, seconds(0), kMonth);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

struct DeployTrigger {
  std::optional<Condition> condition;
  std::optional<TimeWindow> timer;
};
Result<DeployTrigger> parse_deploy_trigger(const Json& json, const std::string& path) {
  DeployTrigger out;
  Status status;
  std::chrono::milliseconds check_period{0};  // Sedna polls; we act on changes
  SettingsReader in(json, path, status);
  read_part(in, "condition", status, out.condition, parse_condition);
  read_part(in, "timer", status, out.timer, parse_time_window);
  in.period("checkPeriodSeconds", check_period, seconds(1), kMonth);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

/// The part of the spec at `path`, if present.
template <typename Out, typename Parse>
Status read_at(const Json& spec, std::string_view parent, std::string_view name, Out& out,
               Parse parse) {
  const Json& value = spec[parent][name];
  if (value.is_null()) return {};
  TRY(out, parse(value, std::string(parent) + "." + std::string(name)));
  return {};
}

Json seconds_json(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

}  // namespace

std::string_view to_string(Trial::Mode mode) { return choice_name(kTrialModes, mode); }

Result<Settings> parse_settings(const Json& spec) {
  Settings out;
  TRY_VOID(read_at(spec, "trainSpec", "trigger", out.trigger, parse_trigger));
  TRY_VOID(read_at(spec, "trainSpec", "retry", out.retry, parse_retry));
  const Json& evaluation = spec["evalSpec"];
  out.separate_evaluation =
      !evaluation["template"].is_null() || !evaluation["workerSpec"].is_null();
  DeployTrigger trigger;
  TRY_VOID(read_at(spec, "deploySpec", "trigger", trigger, parse_deploy_trigger));
  if (trigger.condition) {
    out.deploy_conditions.push_back(*trigger.condition);
    out.gate.reset();
  }
  out.deploy_timer = trigger.timer;
  TRY_VOID(read_at(spec, "evalSpec", "gate", out.gate, parse_gate));
  TRY_VOID(read_at(spec, "deploySpec", "trial", out.trial, parse_trial));
  TRY_VOID(read_at(spec, "deploySpec", "rollback", out.rollback, parse_rollback));
  TRY_VOID(read_at(spec, "deploySpec", "rollout", out.rollout, parse_rollout));
  return out;
}

Json to_json(const Settings& settings) {
  const Retry& retry = settings.retry;
  Json train =
      Json::object({{"trigger", to_json(settings.trigger)},
                    {"retry", Json::object({{"attempts", retry.attempts},
                                            {"backoffSeconds", seconds_json(retry.backoff)},
                                            {"deadlineSeconds", seconds_json(retry.deadline)}})}});
  Json evaluation = Json::object();
  if (settings.gate) evaluation.set("gate", to_json(*settings.gate));
  if (settings.separate_evaluation) evaluation.set("template", Json::object());
  const Rollback& limits = settings.rollback;
  Json rollback = Json::object({{"errorRate", limits.error_rate},
                                {"answers", limits.answers},
                                {"crashes", limits.crashes},
                                {"probationSeconds", seconds_json(limits.probation)},
                                {"automatic", limits.automatic}});
  if (limits.hard_share_rise) rollback.set("hardShareRise", *limits.hard_share_rise);
  if (limits.condition) rollback.set("condition", to_json(*limits.condition));
  Json deploy = Json::object(
      {{"rollback", std::move(rollback)},
       {"rollout", Json::object({{"pauseSeconds", seconds_json(settings.rollout.pause)}})}});
  Json trigger = Json::object();
  if (!settings.deploy_conditions.empty())
    trigger.set("condition", to_json(settings.deploy_conditions.front()));
  if (settings.deploy_timer) trigger.set("timer", to_json(*settings.deploy_timer));
  if (!trigger.empty()) deploy.set("trigger", std::move(trigger));
  if (const auto& trial = settings.trial) {
    Json members = Json::object({{"mode", to_string(trial->mode)},
                                 {"share", trial->share},
                                 {"answers", trial->answers},
                                 {"deadlineSeconds", seconds_json(trial->deadline)}});
    if (trial->agreement_min) members.set("agreementMin", *trial->agreement_min);
    if (trial->latency_factor_max) members.set("latencyFactorMax", *trial->latency_factor_max);
    deploy.set("trial", std::move(members));
  }
  return Json::object({{"trainSpec", std::move(train)},
                       {"evalSpec", std::move(evaluation)},
                       {"deploySpec", std::move(deploy)}});
}

}  // namespace varda::incremental
