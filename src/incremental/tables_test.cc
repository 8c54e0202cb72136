// The tables of testdata: conditions, windows, triggers, gates, statistics and bad input.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "codec/yaml.h"
#include "incremental/gate.h"
#include "incremental/settings.h"

namespace varda::incremental {
namespace {
namespace tables_test {

using codec::Json;
using ::testing::HasSubstr;

std::string read(const std::string& name) {
  std::ifstream file(std::filesystem::path(VARDA_TESTDATA) / name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json::Array table(const std::string& name) {
  auto yaml = codec::parse_yaml(read(name));
  EXPECT_TRUE(yaml.ok()) << name << ": " << yaml.error();
  Json::Array rows = yaml.ok() ? yaml->as_array() : Json::Array();
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

Json numbers() { return codec::parse_json(read("numbers.json")).value(); }

Histogram histogram_of(const Json& json) {
  Histogram out;
  for (const Json& count : json.as_array()) out.push_back(count.as_integer());
  return out;
}

TEST(ConditionTable, Holds) {
  for (const Json& row : table("conditions.yaml")) {
    SCOPED_TRACE(row["claim"].as_string());
    const Json::Array& written = row["condition"].as_array();
    const Json json =
        Json::object({{"metric", written[0]}, {"operator", written[1]}, {"threshold", written[2]}});
    const auto condition = parse_condition(json, "condition");
    ASSERT_TRUE(condition.ok()) << condition.error();
    EXPECT_EQ(parse_condition(to_json(*condition), "").value(), *condition);
    const ConditionResult result = check(*condition, row["metrics"]);
    EXPECT_EQ(result.holds, row["holds"].as_bool());
    if (row.contains("reason")) {
      EXPECT_EQ(result.reason, row["reason"].as_string());
    }
  }
}

TEST(ConditionTable, NumbersThatAreNotFiniteNeverHold) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const std::string_view op : kOperatorNames) {
      const Condition condition{.metric = "x", .op = *parse_operator(op), .threshold = 0};
      EXPECT_FALSE(check(condition, Json::object({{"x", value}})).holds) << op << value;
    }
}

TEST(WindowTable, Opens) {
  for (const Json& row : table("windows.yaml")) {
    SCOPED_TRACE(row["claim"].as_string());
    const Json::Array& written = row["window"].as_array();
    const auto window = parse_time_window(
        Json::object({{"start", written[0]}, {"end", written[1]}, {"timeZone", written[2]}}), "");
    ASSERT_TRUE(window.ok()) << window.error();
    EXPECT_EQ(parse_time_window(to_json(*window), "").value(), *window);
    const auto now = parse_time(row["at"].as_string());
    ASSERT_TRUE(now);
    EXPECT_EQ(time_text(*now), row["at"].as_string());
    const bool inside = row["opens"].as_string().empty();
    EXPECT_EQ(window->contains(*now), inside);
    EXPECT_EQ(time_text(window->opens(*now)),
              inside ? row["at"].as_string() : row["opens"].as_string());
  }
}

TEST(WindowTable, TimesOfAnotherFormAreRefused) {
  for (const char* text :
       {"", "2026-11-28T02:00:00Z", "2026-13-28T02:00:00.000Z", "2026-02-29T02:00:00.000Z",
        "2026-11-28T24:00:00.000Z", "2026-11-28 02:00:00.000Z", "2026-11-28T02:00:00.0x0Z"})
    EXPECT_FALSE(parse_time(text)) << text;
}

TEST(TriggerTable, Holds) {
  for (const Json& row : table("triggers.yaml")) {
    SCOPED_TRACE(row["claim"].as_string());
    const auto trigger = parse_trigger(row["trigger"], "trigger");
    ASSERT_TRUE(trigger.ok()) << trigger.error();
    EXPECT_EQ(parse_trigger(to_json(*trigger), "").value(), *trigger);
    const Json& given = row["facts"];
    TriggerFacts facts{.now = parse_time(given["now"].as_string()).value_or(WallTime{}),
                       .metrics = given["metrics"],
                       .reference = histogram_of(given["reference"]),
                       .recent = histogram_of(given["recent"])};
    if (given.contains("samples")) facts.samples = given["samples"].as_integer();
    if (given.contains("hardShare")) facts.hard_share = given["hardShare"].as_double();
    for (const Json& value : given["series"].as_array())
      facts.page_hinkley.add(value.as_double(), trigger->delta);
    const RuleResult result = check(trigger->rule, facts);
    EXPECT_EQ(result.holds, row["holds"].as_bool()) << result.reason;
    if (row.contains("reason")) {
      EXPECT_EQ(result.reason, row["reason"].as_string());
    }
    EXPECT_EQ(result.opens ? time_text(*result.opens) : "", row["opens"].as_string());
  }
}

Json comparison_of(const Json& row) {
  if (row.contains("comparison")) return row["comparison"];
  Json out = Json::object();
  if (row.contains("metrics")) out.set("metrics", row["metrics"]);
  for (const char* name : {"milliseconds", "bytes"})
    if (row.contains(name)) out.set(name, row[name]);
  for (const Json& slice : row["slices"].as_array()) {
    const Json::Array& cells = slice.as_array();
    Json classes = Json::array();
    if (cells.size() > 6)
      for (const Json& counts : cells[6].as_array())
        classes.push_back(Json::object({{"name", counts.as_array()[0]},
                                        {"samples", counts.as_array()[1]},
                                        {"baseRight", counts.as_array()[2]},
                                        {"candidateRight", counts.as_array()[3]}}));
    out["slices"].push_back(Json::object({{"name", cells[0]},
                                          {"samples", cells[1]},
                                          {"baseRight", cells[2]},
                                          {"candidateRight", cells[3]},
                                          {"onlyBase", cells[4]},
                                          {"onlyCandidate", cells[5]},
                                          {"classes", std::move(classes)}}));
  }
  return out;
}

TEST(GateTable, Decides) {
  for (const Json& row : table("gates.yaml")) {
    SCOPED_TRACE(row["claim"].as_string());
    std::optional<Gate> gate;
    std::vector<Condition> conditions;
    if (row.contains("gate")) {
      const auto parsed = parse_gate(row["gate"], "gate");
      ASSERT_TRUE(parsed.ok()) << parsed.error();
      EXPECT_EQ(parse_gate(to_json(*parsed), "").value(), *parsed);
      gate = *parsed;
    }
    if (row.contains("condition"))
      conditions.push_back(parse_condition(row["condition"], "condition").value());
    const auto comparison = parse_comparison(comparison_of(row));
    ASSERT_TRUE(comparison.ok()) << comparison.error();
    EXPECT_EQ(parse_comparison(to_json(*comparison)).value(), *comparison);
    const GateVerdict verdict = judge(gate, conditions, *comparison);
    EXPECT_EQ(verdict.passed, row["passed"].as_bool()) << codec::write_json(to_json(verdict));
    EXPECT_EQ(verdict.reason, row.contains("reason") ? row["reason"].as_string() : "GatePassed");
    EXPECT_THAT(verdict.message, HasSubstr(row["message"].as_string()));
    EXPECT_EQ(verdict_of(codec::parse_json(codec::write_json(to_json(verdict))).value()), verdict);
  }
}

TEST(GateTable, VerdictsOfManyClassesStayShort) {
  Slice slice{.name = "frozen", .samples = 40'000, .base_right = 40'000};
  slice.only_base = 40'000;
  for (int i = 0; i < 4000; ++i)
    slice.classes.push_back({.name = std::string(200, 'x') + std::to_string(i),
                             .samples = 10,
                             .base_right = 10,
                             .candidate_right = 0});
  const GateVerdict verdict = judge(Gate{}, {}, Comparison{.slices = {slice}});
  EXPECT_FALSE(verdict.passed);
  EXPECT_EQ(verdict.checks.size(), GateVerdict::kChecksMax);
  EXPECT_LT(codec::write_json(to_json(verdict)).size(), 8192U);
}

TEST(GateTable, HostileComparisonsAreRefused) {
  for (const Json& row : table("hostile_comparisons.yaml")) {
    const auto parsed = parse_comparison(row["comparison"]);
    ASSERT_FALSE(parsed.ok()) << codec::write_json(row);
    EXPECT_THAT(parsed.error().message(), HasSubstr(row["error"].as_string()));
  }
  EXPECT_FALSE(parse_comparison_text(std::string(Comparison::kTextBytesMax + 1, ' ')).ok());
  EXPECT_FALSE(parse_comparison_text(R"({"slices": [)").ok());
  EXPECT_FALSE(parse_comparison_text(std::string(100, '[') + std::string(100, ']')).ok());
}

TEST(SettingsTable, BadSpecsAreRefusedWithTheMember) {
  for (const Json& row : table("bad_settings.yaml")) {
    const auto parsed = parse_settings(row["spec"]);
    ASSERT_FALSE(parsed.ok()) << codec::write_json(row);
    EXPECT_THAT(parsed.error().message(), HasSubstr(row["error"].as_string()));
  }
}

TEST(SettingsTable, SpecOfTheDesignReadsBack) {
  const auto spec = codec::parse_yaml(R"(
nodeName: edge0
dataset: {name: digits-new, trainProb: 0.8}
initialModel: {name: digits}
trainSpec:
  trainer: {task: classification}
  trigger:
    condition: {metric: num_of_samples, operator: ">=", threshold: 60}
    timer: {start: "02:00", end: "24:00"}
    checkPeriodSeconds: 60
evalSpec:
  dataset: {name: digits-eval}
  gate: {metric: accuracy, minimumGain: 0.01, significance: 0.05, forgettingMax: 0.01}
deploySpec:
  model: {name: digits}
  samples: {bytesMax: 64Mi, countMax: 2000, controlShare: 0.02}
  trial: {mode: canary, share: 0.1, answers: 200}
  rollback: {errorRate: 0.05, hardShareRise: 0.3, answers: 50}
)");
  ASSERT_TRUE(spec.ok()) << spec.error();
  const auto settings = parse_settings(*spec);
  ASSERT_TRUE(settings.ok()) << settings.error();
  EXPECT_EQ(settings->trigger.rule.condition->threshold, 60);
  EXPECT_EQ(settings->gate->minimum_gain, 0.01);
  EXPECT_EQ(settings->trial->share, 0.1);
  EXPECT_EQ(settings->rollback.hard_share_rise, 0.3);
  EXPECT_FALSE(settings->separate_evaluation);
  EXPECT_EQ(parse_settings(to_json(*settings)).value(), *settings);
}

TEST(SettingsTable, SpecOfSednaHasItsOwnGateAndEvaluation) {
  const auto spec = codec::parse_yaml(R"(
trainSpec:
  template: {spec: {containers: []}}
  trigger:
    checkPeriodSeconds: 60
    timer: {start: "02:00", end: "20:00"}
    condition: {operator: ">", threshold: 500, metric: num_of_samples}
evalSpec: {template: {spec: {containers: []}}}
deploySpec:
  model: {name: helmet, hotUpdateEnabled: true, pollPeriodSeconds: 60}
  trigger: {condition: {operator: ">", threshold: 0.1, metric: precision_delta}}
  hardExampleMining: {name: IBT, parameters: [{key: threshold_img, value: "0.9"}]}
)");
  const auto settings = parse_settings(*spec);
  ASSERT_TRUE(settings.ok()) << settings.error();
  EXPECT_TRUE(settings->separate_evaluation);
  EXPECT_FALSE(settings->gate);
  ASSERT_EQ(settings->deploy_conditions.size(), 1U);
  EXPECT_EQ(settings->deploy_conditions.front().metric, "precision_delta");
  EXPECT_EQ(parse_settings(to_json(*settings)).value(), *settings);
}

TEST(Statistics, McNemarAgreesWithExactIntegers) {
  const Json all = numbers();
  for (const Json& row : all["mcnemar"].as_array()) {
    SCOPED_TRACE(codec::write_json(row));
    const std::int64_t base = row["onlyBase"].as_integer();
    const std::int64_t candidate = row["onlyCandidate"].as_integer();
    const auto near = [&](McNemarTest test, const char* name) {
      const double expected = row[name].as_double();
      EXPECT_NEAR(mcnemar(base, candidate, test), expected, 1e-10 + expected * 1e-9) << name;
    };
    near(McNemarTest::kExact, "exact");
    near(McNemarTest::kMidP, "midp");
    near(McNemarTest::kChiSquare, "chiSquare");
    near(McNemarTest::kCorrectedChiSquare, "chiSquareCorrected");
  }
}

TEST(Statistics, McNemarAgreesWithPublishedValues) {
  for (const Json& row : table("published.yaml")) {
    SCOPED_TRACE(row["claim"].as_string());
    const auto expect = [&](McNemarTest test, const char* name) {
      if (!row.contains(name)) return;
      const double p =
          mcnemar(row["onlyBase"].as_integer(), row["onlyCandidate"].as_integer(), test);
      char text[32];
      std::snprintf(text, sizeof text, p < 0.001 ? "%.3e" : "%.4f", p);
      EXPECT_EQ(text, row[name].as_string()) << name;
    };
    expect(McNemarTest::kExact, "exact");
    expect(McNemarTest::kMidP, "midp");
    expect(McNemarTest::kChiSquare, "chiSquare");
  }
}

TEST(Statistics, McNemarOfHugeCountsEnds) {
  for (const std::int64_t n : {std::int64_t{1'000'000}, std::int64_t{1'000'000'000}}) {
    EXPECT_GT(mcnemar(n, n, McNemarTest::kExact), 0.99);
    EXPECT_LT(mcnemar(n, n + n / 100, McNemarTest::kExact), 1e-6);
    EXPECT_EQ(mcnemar(0, n, McNemarTest::kExact), 0);
  }
  EXPECT_EQ(mcnemar(-5, -7, McNemarTest::kMidP), 1);
}

TEST(Statistics, DriftAgreesWithOtherFormulas) {
  const Json all = numbers();
  for (const Json& row : all["histograms"].as_array()) {
    SCOPED_TRACE(codec::write_json(row));
    const Histogram reference = histogram_of(row["reference"]);
    const Histogram recent = histogram_of(row["recent"]);
    EXPECT_NEAR(population_stability(reference, recent), row["psi"].as_double(), 1e-12);
    const KolmogorovSmirnov test = kolmogorov_smirnov(reference, recent);
    EXPECT_NEAR(test.distance, row["distance"].as_double(), 1e-12);
    EXPECT_NEAR(test.probability, row["probability"].as_double(), 1e-9);
  }
  for (const Json& row : all["pageHinkley"].as_array()) {
    SCOPED_TRACE(codec::write_json(row));
    PageHinkley detector;
    for (const Json& value : row["values"].as_array())
      detector.add(value.as_double(), row["delta"].as_double());
    EXPECT_NEAR(detector.statistic(), row["statistic"].as_double(), 1e-12);
    EXPECT_EQ(page_hinkley_of(to_json(detector)), detector);
  }
}

TEST(Statistics, DriftOfEmptyOrDifferentHistogramsIsNone) {
  const Histogram none, zeros(4), some = {1, 2, 3, 4};
  for (const Histogram& other : {none, zeros, Histogram{1, 2}}) {
    EXPECT_EQ(population_stability(some, other), 0);
    EXPECT_EQ(kolmogorov_smirnov(other, some).probability, 1);
  }
  EXPECT_EQ(mean_score(zeros), 0);
  EXPECT_DOUBLE_EQ(mean_score(Histogram{0, 0, 0, 8}), 0.875);
}

TEST(Statistics, BootstrapIsRepeatableAndBounded) {
  const std::vector<double> gains = {0.3, -0.1, 0.2, 0.4, -0.2, 0.1};
  const BootstrapResult once = paired_bootstrap(gains, 1000, 7);
  EXPECT_EQ(once.probability, paired_bootstrap(gains, 1000, 7).probability);
  EXPECT_NEAR(once.mean, 0.7 / 6, 1e-12);
  // The mean of the gains is 1.36 standard errors above 0.
  EXPECT_GT(once.probability, 0.03);
  EXPECT_LT(once.probability, 0.2);
  EXPECT_EQ(paired_bootstrap({}, 1000, 7).probability, 1);
  const std::vector<double> better(20, 1.0), worse(20, -1.0);
  EXPECT_DOUBLE_EQ(paired_bootstrap(better, 999, 1).probability, 0.001);
  EXPECT_EQ(paired_bootstrap(worse, 999, 1).probability, 1);
}

}  // namespace tables_test
}  // namespace
}  // namespace varda::incremental
