#include "agent/models/plan.h"

#include <gtest/gtest.h>

#include "codec/testing/golden_cases.h"
#include "codec/yaml.h"

namespace varda::agent::models {
namespace plan_test {

using artifact::Reason;
using codec::Json;
using codec::Sha256;

// A golden case of testdata/plan. Given: `spec` as in EdgeNode, `jobs` by version (sha256 of
// "VERSION"), `shown`, `serving`, `trials`. Expected: `plan`, `report`.
struct Case {
  api::EdgeNodeSpec spec;
  World world;
};

std::string digest(const std::string& version) { return Sha256::of(version).hex(); }

api::EdgeServingReport serving_of(const Json& json) {
  api::EdgeServingReport report;
  report.version = json["version"].as_string();
  report.state = json["state"].as_string();
  report.failed_version = json["failedVersion"].as_string();
  report.reason = json["reason"].as_string();
  report.message = json["message"].as_string();
  return report;
}

Json fill_digests(Json spec) {
  if (Json* models = spec.find("models")) {
    for (Json& model : models->array_items()) {
      if (Json* versions = model.find("versions")) {
        for (Json& version : versions->array_items()) {
          if (!version.contains("sha256"))
            version.set("sha256", digest(version["version"].as_string()));
          if (!version.contains("url"))
            version.set("url", "http://files/" + version["version"].as_string());
        }
      }
    }
  }
  return spec;
}

Case read_case(const Json& yaml) {
  Case out;
  const Json object = Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                                    {"kind", "EdgeNode"},
                                    {"metadata", Json::object({{"name", "edge0"}})},
                                    {"spec", fill_digests(yaml["spec"])}});
  auto node = api::EdgeNode::from_json(object);
  EXPECT_TRUE(node.ok()) << node.error();
  out.spec = node->spec;
  for (const auto& [version, job] : yaml["jobs"].as_object()) {
    JobReport report;
    const std::string& state = job["state"].as_string();
    report.state = state == "Ready"         ? JobReport::State::kReady
                   : state == "Failed"      ? JobReport::State::kFailed
                   : state == "Downloading" ? JobReport::State::kDownloading
                                            : JobReport::State::kPending;
    report.bytes = static_cast<std::uint64_t>(job["bytes"].as_integer());
    report.message = job["message"].as_string();
    report.done = static_cast<std::uint64_t>(job["done"].as_integer());
    report.total = static_cast<std::uint64_t>(job["total"].as_integer());
    for (int i = 0; i <= static_cast<int>(Reason::kCancelled); ++i)
      if (to_string(static_cast<Reason>(i)) == job["reason"].as_string())
        report.reason = static_cast<Reason>(i);
    out.world.jobs[{Sha256::of(version), "http://files/" + version, "onnx"}] = report;
  }
  for (const auto& [key, shown] : yaml["shown"].as_object()) {
    Shown& one = out.world.shown[key];
    if (shown.contains("target")) one.target = shown["target"].as_string();
    for (const Json& version : shown["versions"].as_array())
      one.versions.push_back(version.as_string());
    one.problem = shown["problem"].as_string();
    for (const auto& [number, version] : shown["numbers"].as_object())
      one.numbers.emplace(number, version.as_string());
  }
  for (const auto& [key, serving] : yaml["serving"].as_object())
    out.world.serving[key] = serving_of(serving);
  for (const auto& [key, trial] : yaml["trials"].as_object()) {
    if (auto report = api::ModelTrialStatus::of_server(trial))
      out.world.trials.emplace(key, std::move(*report));
  }
  return out;
}

Json write_plan(const std::vector<JobKey>& jobs, const Plan& plan) {
  Json out = Json::object();
  const auto put = [&out](std::string_view name, Json list) {
    if (!list.empty()) out.set(name, std::move(list));
  };
  Json install = Json::array(), expose = Json::array(), clear = Json::array(),
       keep = Json::object(), remove = Json::array(), poll = Json::array(), trials = Json::array();
  for (const JobKey& job : jobs) install.push_back(job.url);
  for (const auto& one : plan.expose) expose.push_back(one.key + "=" + one.version);
  for (const auto& one : plan.trials) trials.push_back(one.key + "=" + one.version);
  for (const std::string& key : plan.clear) clear.push_back(key);
  for (const auto& [key, versions] : plan.keep) {
    Json list = Json::array();
    for (const std::string& version : versions) list.push_back(version);
    keep.set(key, list);
  }
  for (const std::string& key : plan.remove) remove.push_back(key);
  for (const Poll& one : plan.poll) {
    std::string text = one.key + "=" + one.target + " " + one.url;
    for (const auto& [number, version] : one.numbers) text += " " + number + "=" + version;
    if (one.status_query != api::EdgeStatusQuery{})
      text += " " + one.status_query.method + " " + one.status_query.path;
    if (!one.trial.empty()) text += " trial";
    poll.push_back(text);
  }
  put("install", install);
  put("expose", expose);
  put("trials", trials);
  put("clear", clear);
  put("keep", keep);
  put("remove", remove);
  put("poll", poll);
  return out;
}

Json write_report(const std::vector<api::EdgeModelReport>& models) {
  api::EdgeNodeStatus status;
  status.models = models;
  Json out = status.to_json();
  return out.contains("models") ? out["models"] : Json::array();
}

codec::testing::GoldenCases& plan_cases() {
  static codec::testing::GoldenCases cases(VARDA_TESTDATA "/plan");
  return cases;
}

class AgentPlan : public ::testing::TestWithParam<std::string> {};

TEST_P(AgentPlan, PlanAndReportMatchGoldenFile) {
  const Case given = read_case(plan_cases().at(GetParam()).given);
  plan_cases().check(
      GetParam(),
      Json::object({{"plan", write_plan(jobs_of(given.spec), plan(given.spec, given.world))},
                    {"report", write_report(report(given.spec, given.world))}}));
}

INSTANTIATE_TEST_SUITE_P(Case, AgentPlan, ::testing::ValuesIn(plan_cases().names()),
                         [](const auto& test) { return test.param; });

// Answers of TensorFlow Serving (tensorflow.org/tfx/serving/api_rest), read with the operator's
// pointers.
TEST(AgentServing, ForeignServerStatusIsReadByConfiguredPointers) {
  Poll poll{"default/digits", "digits", "http://127.0.0.1", "v4"};
  poll.numbers = {{"3", "3"}, {"40", "v4"}};
  poll.status_query = {.path = "/v1/models/digits",
                       .method = "GET",
                       .list = "/model_version_status",
                       .name = "",
                       .version = "/version",
                       .state = "/state",
                       .ready = {"AVAILABLE"},
                       .loading = {"START", "LOADING"},
                       .code = "",
                       .message = "/status/error_message",
                       .ignored_messages = {"OK"},
                       .unknown = {}};
  struct Row {
    const char* versions;
    const char* published;  // STATE VERSION FAILED MESSAGE
  };
  const Row rows[] = {
      {R"({"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}})",
       "Ready 3  "},
      {R"({"version": 40, "state": "AVAILABLE"})", "Ready v4  "},
      {R"({"version": "40", "state": "LOADING", "status": {"error_code": "OK", "error_message": ""}}, {"version": "3", "state": "AVAILABLE"})",
       "Ready 3  "},
      {R"({"version": "40", "state": "END", "status": {"error_code": "INVALID_ARGUMENT", "error_message": "no graph"}},
          {"version": "3", "state": "AVAILABLE"})",
       "Ready 3 v4 no graph"},
      {R"({"version": "40", "state": "END", "status": {"error_message": "no graph"}})",
       "Failed  v4 no graph"},
      {R"({"version": "40", "state": "UNLOADING", "status": {"error_message": "OK"}})",
       "Loading   "},
      // Both serve while the server switches; requests get the greater one.
      {R"({"version": "3", "state": "AVAILABLE"}, {"version": "40", "state": "AVAILABLE"})",
       "Ready v4  "},
      {R"({"version": "7", "state": "AVAILABLE"})", "Loading   "},  // hidden meanwhile
      {"", "Loading   "},
  };
  for (const Row& row : rows) {
    const auto answer =
        codec::parse_json(std::string(R"({"model_version_status": [)") + row.versions + "]}");
    ASSERT_TRUE(answer.ok()) << row.versions;
    const auto report = read_index(*answer, poll);
    EXPECT_EQ(
        report.state + " " + report.version + " " + report.failed_version + " " + report.message,
        row.published)
        << row.versions;
  }
}

TEST(AgentServing, SingleObjectAnswerIsReadAsListOfOne) {
  Poll poll{"default/digits", "digits", "http://127.0.0.1", "3"};
  poll.status_query.list = "/a~1b/1";
  poll.status_query.name = poll.status_query.state = "";
  poll.status_query.version = "/v~0";
  const auto answer = codec::parse_json(R"({"a/b": [null, {"v~": "3"}]})");
  EXPECT_EQ(read_index(*answer, poll).version, "3");
  EXPECT_EQ(read_index(codec::Json("text"), poll).state, api::EdgeServingReport::kLoading);
  EXPECT_EQ(read_index(codec::Json(), poll).state, api::EdgeServingReport::kLoading);
}

TEST(AgentServing, RepositoryIndexGivesServingState) {
  struct Row {
    const char* index;
    const char* state;
    const char* version;
    const char* failed;
  };
  const Poll poll{"default/digits", "digits", "http://h", "4"};
  const Row rows[] = {
      {R"([{"name":"digits","version":"4","state":"READY"}])", "Ready", "4", ""},
      {R"([{"name":"digits","version":"3","state":"READY"},{"name":"digits","version":"4","state":"LOADING"}])",
       "Ready", "3", ""},
      {R"([{"name":"digits","version":"3","state":"READY"},{"name":"digits","version":"4","state":"UNAVAILABLE","reason":"bad"}])",
       "Ready", "3", "4"},
      {R"([{"name":"digits","version":"3","state":"READY"},{"name":"digits","version":"4","state":"READY"}])",
       "Ready", "4", ""},
      // Different files under the serving version, and they fail to load.
      {R"([{"name":"digits","version":"4","state":"READY"},{"name":"digits","version":"4","state":"UNAVAILABLE","reason":"bad"}])",
       "Ready", "4", "4"},
      {R"([{"name":"digits","version":"4","state":"UNAVAILABLE","reason":"bad"}])", "Failed", "",
       "4"},
      {R"([{"name":"digits","version":"4","state":"UNAVAILABLE"}])", "Loading", "", ""},
      {R"([{"name":"digits","version":"3","state":"UNAVAILABLE","reason":"bad"}])", "Loading", "",
       ""},
      {R"([{"name":"digits","version":"4","state":"LOADING"}])", "Loading", "", ""},
      {R"([{"name":"other","version":"4","state":"READY"}])", "Loading", "", ""},
      {"[]", "Loading", "", ""},
      {R"({"error":"what"})", "Loading", "", ""},
  };
  for (const Row& row : rows) {
    const auto report = read_index(*codec::parse_json(row.index), poll);
    EXPECT_EQ(report.state, row.state) << row.index;
    EXPECT_EQ(report.version, row.version) << row.index;
    EXPECT_EQ(report.failed_version, row.failed) << row.index;
    EXPECT_EQ(report.reason, *row.failed != '\0' ? "LoadFailed" : "") << row.index;
  }
}

TEST(AgentServing, VardaServerReportsFailureCodeAndServingFiles) {
  const Poll poll{"default/digits", "digits", "http://h", "4"};
  const auto index = *codec::parse_json(
      R"([{"name":"digits","version":"3","state":"READY","files":"abc"},
          {"name":"digits","version":"4","state":"UNAVAILABLE","reason":"SIGSEGV","code":"LoadCrashed"}])");
  const auto report = read_index(index, poll);
  EXPECT_EQ(report.reason, "LoadCrashed");
  EXPECT_EQ(report.message, "SIGSEGV");
  EXPECT_EQ(read_last_good(index, poll), "3 abc");
  EXPECT_EQ(read_last_good(
                *codec::parse_json(R"([{"name":"digits","version":"4","state":"READY"}])"), poll),
            "");
  EXPECT_EQ(read_last_good(*codec::parse_json(
                               R"([{"name":"other","version":"4","state":"READY","files":"a"}])"),
                           poll),
            "");
}

TEST(AgentDisk, FiguresAreRoundedWithHysteresis) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30, kMiB = 1 << 20;
  const auto first = round_disk(100 * kGiB, 50 * kGiB + 5 * kMiB, {});
  EXPECT_EQ(first.capacity_bytes, static_cast<std::int64_t>(100 * kGiB));
  EXPECT_EQ(first.available_bytes, static_cast<std::int64_t>(50 * kGiB));
  EXPECT_EQ(round_disk(100 * kGiB, 50 * kGiB - 5 * kMiB, first).available_bytes,
            first.available_bytes);
  EXPECT_EQ(round_disk(100 * kGiB, 51 * kGiB + 5 * kMiB, first).available_bytes,
            first.available_bytes);
  EXPECT_EQ(round_disk(100 * kGiB, 49 * kGiB, first).available_bytes,
            static_cast<std::int64_t>(49 * kGiB));
  EXPECT_EQ(round_disk(8 * kGiB, 1777 * kMiB, {}).available_bytes,
            static_cast<std::int64_t>(1700 * kMiB));
  EXPECT_EQ(round_disk(8 * kGiB, 777 * kMiB, {}).available_bytes,
            static_cast<std::int64_t>(770 * kMiB));
  EXPECT_EQ(round_disk(8 * kGiB, 10 * kMiB + 5, {}).available_bytes,
            static_cast<std::int64_t>(10 * kMiB));
  EXPECT_EQ(round_disk(8 * kGiB, kMiB / 2, {}).available_bytes, 0);
  const auto small = round_disk(20 * kMiB, 9 * kMiB, {});
  EXPECT_EQ(small.capacity_bytes, static_cast<std::int64_t>(20 * kMiB)) << "not nothing";
  EXPECT_EQ(round_disk(20 * kMiB, 9 * kMiB - 1000, small).available_bytes, small.available_bytes);
  EXPECT_EQ(round_disk(20 * kMiB, 8 * kMiB, small).available_bytes,
            static_cast<std::int64_t>(8 * kMiB));
}

}  // namespace plan_test
}  // namespace varda::agent::models
