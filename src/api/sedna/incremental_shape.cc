#include "api/sedna/incremental_shape.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/ai/samples.h"
#include "api/describe.h"
#include "api/rule.h"
#include "api/sedna/worker.h"

namespace varda::api {

namespace {

constexpr std::int64_t kLargestBound = 1'000'000'000'000;
constexpr std::int64_t kSecondsMax = 86'400 * 365;
constexpr std::size_t kRulesMax = 16;

// The members only give the schema types.
struct ConditionShape {
  std::string metric, op;
  double threshold = 0;
  Json unknown;

  static void describe(Type<ConditionShape>& t) {
    using S = ConditionShape;
    t.doc("A number compared with a threshold.");
    t.field("metric", &S::metric,
            "num_of_samples: new samples. hard_share: share of hard answers. Another name: a "
            "metric of the model; accuracy[0] is the first item of a list.")
        .required()
        .length(1, 253);
    t.field("operator", &S::op, "The comparison: gt >, ge >=, eq ==, ne !=, le <= or lt <.")
        .required()
        .one_of({"gt", ">", "ge", ">=", "eq", "==", "ne", "!=", "le", "<=", "lt", "<"});
    t.field("threshold", &S::threshold, "The number to compare with.")
        .required()
        .range(-kLargestBound, kLargestBound);
    t.keep_unknown(&S::unknown);
  }
};

struct TimerShape {
  std::string start, end, time_zone;
  Json unknown;

  static void describe(Type<TimerShape>& t) {
    using S = TimerShape;
    t.doc("Hours of the day in which a training may start. A window may contain midnight.");
    t.field("start", &S::start, "Begin of the window, such as \"02:00\".").length(0, 5);
    t.field("end", &S::end, "End of the window, such as \"24:00\".").length(0, 5);
    t.field("timeZone", &S::time_zone,
            "Extension: UTC, or an offset such as \"+02:00\". Default: UTC.")
        .length(0, 32);
    t.keep_unknown(&S::unknown);
  }
};

struct DriftShape {
  std::string method;
  double threshold = 0;

  static void describe(Type<DriftShape>& t) {
    using S = DriftShape;
    t.doc("Another distribution of the scores than after the start of the version.");
    t.field("method", &S::method, "psi, ks or pageHinkley. Default: psi.")
        .one_of({"psi", "ks", "pageHinkley"});
    t.field("threshold", &S::threshold,
            "psi: fires at this index. ks: fires at this probability or below. pageHinkley: fires "
            "at this statistic. Default: 0.25, 0.01, 5.")
        .range(0, kLargestBound);
  }
};

struct TriggerShape {
  std::int64_t check_period_seconds = 0, samples = 0, cooldown_seconds = 0, quota_per_day = 0,
               minimum_samples = 0, window = 0;
  double hard_share = 0, delta = 0;
  bool manual = false;
  std::optional<TimerShape> timer;
  std::optional<ConditionShape> condition;
  std::optional<DriftShape> drift;
  std::vector<Json> any, all;
  Json unknown;

  static void describe(Type<TriggerShape>& t) {
    using S = TriggerShape;
    t.doc("When a training starts. All members must hold.");
    t.field("checkPeriodSeconds", &S::check_period_seconds,
            "Longest time between two checks. Varda also checks with every change.")
        .format("int64")
        .range(0, kSecondsMax);
    t.field("timer", &S::timer, "Hours of the day in which the trigger may fire.");
    t.field("condition", &S::condition, "A number that fires the trigger.");
    t.field("samples", &S::samples, "Extension: least number of new samples.")
        .format("int64")
        .range(0, kLargestBound);
    t.field("hardShare", &S::hard_share,
            "Extension: least share of hard answers in the last window.")
        .range(0, 1);
    t.field("drift", &S::drift, "Extension: a change of the scores' distribution.");
    t.field("any", &S::any, "Extension: rules, one of which must hold.").items_max(kRulesMax);
    t.field("all", &S::all, "Extension: rules, all of which must hold.").items_max(kRulesMax);
    t.field("cooldownSeconds", &S::cooldown_seconds,
            "Extension: least time from the end of a round to the next start. Default: 0.")
        .format("int64")
        .range(0, kSecondsMax);
    t.field("quotaPerDay", &S::quota_per_day,
            "Extension: most rounds that start within 24 hours. 0: no limit. Default: 0.")
        .format("int64")
        .range(0, 48);
    t.field("minimumSamples", &S::minimum_samples,
            "Extension: new samples without which no round starts. Default: 1.")
        .format("int64")
        .range(0, kLargestBound);
    t.field("window", &S::window,
            "Extension: number of answers for hardShare and drift. Default: 200.")
        .format("int64")
        .range(1, kLargestBound);
    t.field("delta", &S::delta, "Extension: tolerance of pageHinkley. Default: 0.005.").range(0, 1);
    t.field("manual", &S::manual, "Extension: true starts rounds by `varda il train` only.");
    t.keep_unknown(&S::unknown);
  }
};

struct GateShape {
  std::string metric, goal, test;
  double minimum_gain = 0, significance = 0, forgetting_max = 0, slice_drop_max = 0,
         class_drop_max = 0, latency_ms_max = 0, latency_factor_max = 0, bytes_factor_max = 0;
  std::int64_t resamples = 0, seed = 0, class_samples_min = 0, samples_min = 0;
  double bytes_max = 0;

  static void describe(Type<GateShape>& t) {
    using S = GateShape;
    t.doc("What a new version needs to serve.");
    t.field("metric", &S::metric, "The metric that must rise. Default: accuracy.").length(1, 253);
    t.field("goal", &S::goal, "maximize or minimize. Default: by the metric.")
        .one_of({"maximize", "minimize"});
    t.field("minimumGain", &S::minimum_gain, "Least gain of the metric. Default: 0.")
        .range(-kLargestBound, kLargestBound);
    t.field("significance", &S::significance,
            "Largest probability that the gain is chance. 1: no test. Default: 0.05, if the "
            "comparison permits a test.")
        .range(0, 1);
    t.field("test", &S::test, "Form of McNemar's test.").length(0, 63);
    t.field("resamples", &S::resamples, "Resamples of the bootstrap. Default: 2000.")
        .range(1, 1'000'000);
    t.field("seed", &S::seed, "Seed of the bootstrap. Default: 0.").format("int64");
    t.field("forgettingMax", &S::forgetting_max,
            "Largest loss of accuracy on known classes of the frozen samples. Default: 0.02.")
        .range(0, 1);
    t.field("sliceDropMax", &S::slice_drop_max,
            "Largest loss of accuracy on a slice. Default: 0.02.")
        .range(0, 1);
    t.field("classDropMax", &S::class_drop_max,
            "Largest loss of accuracy on a class. Default: 0.1.")
        .range(0, 1);
    t.field("classSamplesMin", &S::class_samples_min,
            "Classes with fewer samples are not judged. Default: 10.")
        .range(0, 1'000'000'000);
    t.field("samplesMin", &S::samples_min, "Least number of samples in the comparison. Default: 1.")
        .range(0, 1'000'000'000);
    t.field("latencyMsMax", &S::latency_ms_max, "Largest time of an answer, in milliseconds.")
        .range(0, kLargestBound);
    t.field("latencyFactorMax", &S::latency_factor_max,
            "Largest time of an answer, as a multiple of the base's.")
        .range(0, kLargestBound);
    t.field("bytesMax", &S::bytes_max, "Largest size of the model in bytes.")
        .range(1, kLargestBound);
    t.field("bytesFactorMax", &S::bytes_factor_max,
            "Largest size of the model, as a multiple of the base's.")
        .range(0, kLargestBound);
  }
};

struct RetryShape {
  std::int64_t attempts = 0, backoff_seconds = 0, deadline_seconds = 0;

  static void describe(Type<RetryShape>& t) {
    using S = RetryShape;
    t.doc("Attempts of one stage. The pod of a failed attempt is replaced.");
    t.field("attempts", &S::attempts,
            "Number of attempts, after which the round fails. Default: 3.")
        .format("int64")
        .range(1, 1000);
    t.field("backoffSeconds", &S::backoff_seconds,
            "Time before the second attempt. It doubles with each attempt. Default: 10.")
        .format("int64")
        .range(0, kSecondsMax);
    t.field("deadlineSeconds", &S::deadline_seconds,
            "Time limit of an attempt. 0: none. Default: 0.")
        .format("int64")
        .range(0, kSecondsMax);
  }
};

struct TrialShape {
  std::string mode;
  double share = 0, agreement_min = 0, latency_factor_max = 0;
  std::int64_t answers = 0, deadline_seconds = 0;

  static void describe(Type<TrialShape>& t) {
    using S = TrialShape;
    t.doc("A time in which the new version works beside the serving one, on the first node.");
    t.field("mode", &S::mode,
            "shadow: both answer, and clients get the serving version's answers. canary: the new "
            "version answers a share of the requests. Default: shadow.")
        .one_of({"shadow", "canary"});
    t.field("share", &S::share, "Share of the requests. Default: 1 for shadow, 0.1 for canary.")
        .range(0, 1);
    t.field("answers", &S::answers, "Number of answers that decide. Default: 200.")
        .format("int64")
        .range(1, kLargestBound);
    t.field("agreementMin", &S::agreement_min,
            "shadow: least share of equal answers. Default: any.")
        .range(0, 1);
    t.field("latencyFactorMax", &S::latency_factor_max,
            "Largest time of an answer, as a multiple of the serving version's. Default: any.")
        .range(0, kLargestBound);
    t.field("deadlineSeconds", &S::deadline_seconds,
            "Time in which the answers must come, or the version is refused. 0: none. Default: 0.")
        .format("int64")
        .range(0, kSecondsMax);
  }
};

struct RollbackShape {
  double error_rate = 0, hard_share_rise = 0;
  std::optional<ConditionShape> condition;
  std::int64_t answers = 0, crashes = 0, probation_seconds = 0;
  bool automatic = false;

  static void describe(Type<RollbackShape>& t) {
    using S = RollbackShape;
    t.doc("Limits of a version that serves. Beyond one, the version before serves again.");
    t.field("errorRate", &S::error_rate, "Largest share of failed requests. Default: 0.05.")
        .range(0, 1);
    t.field("hardShareRise", &S::hard_share_rise,
            "Largest rise of the share of hard answers above that of the version before. Default: "
            "any.")
        .range(0, 1);
    t.field("condition", &S::condition, "A condition with which the version goes back.");
    t.field("answers", &S::answers, "Number of answers that a judgement needs. Default: 50.")
        .format("int64")
        .range(1, kLargestBound);
    t.field("crashes", &S::crashes,
            "Crashes of the server with which the version goes back. 0: never. Default: 3.")
        .format("int64")
        .range(0, kLargestBound);
    t.field("probationSeconds", &S::probation_seconds,
            "Time after the round in which the limits hold. 0: until the next round. Default: "
            "86400.")
        .format("int64")
        .range(0, kSecondsMax);
    t.field("automatic", &S::automatic,
            "false: only `varda il rollback` brings back the version before. Default: true.");
  }
};

struct RolloutShape {
  std::int64_t pause_seconds = 0;

  static void describe(Type<RolloutShape>& t) {
    t.doc("The way of a new version to several nodes.");
    t.field("pauseSeconds", &RolloutShape::pause_seconds, "Time between two nodes. Default: 0.")
        .format("int64")
        .range(0, kSecondsMax);
  }
};

struct DeployTriggerShape {
  std::int64_t check_period_seconds = 0;
  std::optional<TimerShape> timer;
  std::optional<ConditionShape> condition;

  static void describe(Type<DeployTriggerShape>& t) {
    using S = DeployTriggerShape;
    t.doc("What a new version needs to serve.");
    t.field("checkPeriodSeconds", &S::check_period_seconds,
            "Sedna's time between two looks. Varda looks when a training ends.")
        .format("int64")
        .range(0, kSecondsMax);
    t.field("timer", &S::timer, "Hours of the day in which a new version may begin to serve.");
    t.field("condition", &S::condition,
            "A condition on the comparison, such as accuracy_delta > 0.01.");
  }
};

struct KeptSamplesShape {
  std::string bytes_max, replacement;
  std::int64_t count_max = 0;
  double control_share = 0;

  static void describe(Type<KeptSamplesShape>& t) {
    using S = KeptSamplesShape;
    t.doc("Requests that the server keeps, as `spec.samples` of an InferenceModel.");
    t.field("bytesMax", &S::bytes_max, "Limit of the kept samples' bytes. Default: 64Mi.")
        .length(0, 20)
        .pattern(std::string(kBytesPattern));
    t.field("countMax", &S::count_max, "Limit of the number of kept samples. Default: 1000.")
        .format("int64")
        .range(1, 1'000'000);
    t.field("controlShare", &S::control_share,
            "Share of the requests that are not hard, chosen at random, that are kept too. Default: 0.")
        .range(0, 1);
    t.field("replacement", &S::replacement,
            "Which samples stay when a limit is reached. Default: class-balanced.")
        .one_of({"class-balanced", "reservoir"});
  }
};

struct LabelModelShape {
  std::string name;

  static void describe(Type<LabelModelShape>& t) {
    t.doc("An InferenceModel in the namespace of the job.");
    t.field("name", &LabelModelShape::name, "Name of the InferenceModel.")
        .required()
        .length(1, 253);
  }
};

struct PseudoLabelsShape {
  LabelModelShape model;
  double minimum = 0;

  static void describe(Type<PseudoLabelsShape>& t) {
    using S = PseudoLabelsShape;
    t.doc("A bigger model. The node asks it about kept samples.");
    t.field("model", &S::model, "The model to ask.").required();
    t.field("minimum", &S::minimum, "Score from which the answer is a label. Default: 0.9.")
        .range(0, 1);
  }
};

}  // namespace

Schema trigger_shape() { return ops_of<TriggerShape>().schema(); }
Schema deploy_trigger_shape() { return ops_of<DeployTriggerShape>().schema(); }
Schema gate_shape() { return ops_of<GateShape>().schema(); }
Schema kept_samples_shape() { return ops_of<KeptSamplesShape>().schema(); }
Schema pseudo_labels_shape() { return ops_of<PseudoLabelsShape>().schema(); }
Schema trial_shape() { return ops_of<TrialShape>().schema(); }
Schema rollback_shape() { return ops_of<RollbackShape>().schema(); }
Schema rollout_shape() { return ops_of<RolloutShape>().schema(); }
Schema retry_shape() { return ops_of<RetryShape>().schema(); }

}  // namespace varda::api
