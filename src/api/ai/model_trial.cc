#include "api/ai/model_trial.h"

#include <algorithm>

#include "api/describe.h"
#include "api/rule.h"

namespace varda::api {
namespace {

Rule canary_has_share() {
  static constexpr std::string_view kWhy = "share is required with mode canary";
  Rule rule;
  rule.cel = "self.mode != 'canary' || has(self.share)";
  rule.message = std::string(kWhy);
  rule.reason = "FieldValueRequired";
  rule.field_path = ".share";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    if (self["mode"].as_string() != ModelTrial::kCanary || !self["share"].is_null()) return {};
    return {{"FieldValueRequired", ".share", "Required value: " + std::string(kWhy)}};
  };
  return rule;
}

std::int64_t count_of(const Json& object, std::string_view name) {
  return std::max<std::int64_t>(object[name].as_integer(), 0);
}

std::optional<std::int64_t> count_if_any(const Json& object, std::string_view name) {
  return object.contains(name) ? std::optional(count_of(object, name)) : std::nullopt;
}

}  // namespace

Json ModelTrial::to_json() const { return write_part(*this); }

void ModelTrial::describe(Type<ModelTrial>& t) {
  t.doc("Extension: a version that answers beside the serving version, to be compared with it.");
  t.field("version", &ModelTrial::version, "The version on trial.").required().length(1, 63);
  t.field("mode", &ModelTrial::mode,
          "shadow: the version on trial runs each request after the serving version has answered. "
          "canary: the version on trial answers a share of the requests.")
      .required()
      .one_of({std::string(kShadow), std::string(kCanary)});
  t.field("share", &ModelTrial::share, "Canary: share of the requests, from 0 to 1.").range(0, 1);
  t.keep_unknown(&ModelTrial::unknown);
  t.rule(canary_has_share());
}

void ModelTrialServing::describe(Type<ModelTrialServing>& t) {
  using S = ModelTrialServing;
  t.doc("Counts of the serving version since the trial began.");
  t.field("version", &S::version, "The serving version.").length(0, 63);
  t.field("answers", &S::answers, "Answered requests.").format("int64");
  t.field("failures", &S::failures, "Requests without an answer, wrong ones excluded.").format("int64");
  t.field("hard", &S::hard, "Answers that the policy finds hard. Absent: no policy.")
      .format("int64");
  t.keep_unknown(&S::unknown);
}

void ModelTrialMicroseconds::describe(Type<ModelTrialMicroseconds>& t) {
  using M = ModelTrialMicroseconds;
  t.doc("Median times of the runs in microseconds, within 5 %.");
  t.field("serving", &M::serving, "Median of the serving version.").format("int64");
  t.field("trial", &M::trial,
          "Median of the version on trial. With shadow it runs at low priority.")
      .format("int64");
  t.keep_unknown(&M::unknown);
}

void ModelTrialStatus::describe(Type<ModelTrialStatus>& t) {
  using S = ModelTrialStatus;
  t.doc("The version on trial, as its node last reported.");
  t.field("version", &S::version, "The version on trial.").length(0, 63);
  t.field("mode", &S::mode, "shadow or canary.").length(0, 63);
  t.field("state", &S::state,
          "Pending: the node does not have the version yet. Loading, Ready: it answers. Failed: "
          "reason says why. Ended: it serves all requests.")
      .length(0, 63);
  t.field("reason", &S::reason, "Reason as one word: LoadFailed, MemoryShort ...").length(0, 128);
  t.field("message", &S::message, "Human-readable explanation.").length(0, 4096);
  t.field("answers", &S::answers, "Requests that the version answered.").format("int64");
  t.field("failures", &S::failures,
          "Requests that the version failed, while the serving version answered them.")
      .format("int64");
  t.field("compared", &S::compared, "Shadow: requests with answers of both versions.")
      .format("int64");
  t.field("agreed", &S::agreed, "Shadow: requests for which both versions agree.").format("int64");
  t.field("dropped", &S::dropped,
          "Shadow: requests that were not run, because the server was busy.")
      .format("int64");
  t.field("hard", &S::hard, "Answers that the policy finds hard. Absent: no policy.")
      .format("int64");
  t.field("microseconds", &S::microseconds, "Median times of both versions.");
  t.field("since", &S::since, "Time when the counts began, by the node's clock.").length(0, 64);
  t.field("serving", &S::serving, "Counts of the serving version since the trial began.");
  t.keep_unknown(&S::unknown);
}

std::optional<ModelTrialStatus> ModelTrialStatus::of_server(const Json& answer) {
  ModelTrialStatus out;
  out.version = answer["version"].as_string().substr(0, 63);
  out.state = answer["state"].as_string().substr(0, 63);
  if (out.version.empty() || out.state.empty()) return std::nullopt;
  out.mode = answer["mode"].as_string().substr(0, 63);
  out.reason = answer["reason"].as_string().substr(0, 128);
  out.message = answer["message"].as_string().substr(0, 1024);
  out.answers = count_of(answer, "answers");
  out.failures = count_of(answer, "failures");
  out.compared = count_of(answer, "compared");
  out.agreed = count_of(answer, "agreed");
  out.dropped = count_of(answer, "dropped");
  out.hard = count_if_any(answer, "hard");
  out.microseconds.serving = count_of(answer["microseconds"], "serving");
  out.microseconds.trial = count_of(answer["microseconds"], "trial");
  out.since = answer["since"].as_string().substr(0, 64);
  const Json& serving = answer["serving"];
  out.serving.version = serving["version"].as_string().substr(0, 63);
  out.serving.answers = count_of(serving, "answers");
  out.serving.failures = count_of(serving, "failures");
  out.serving.hard = count_if_any(serving, "hard");
  return out;
}

}  // namespace varda::api
