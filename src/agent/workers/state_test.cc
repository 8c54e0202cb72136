// Messages of workers, and the resulting state.
#include "agent/workers/state.h"

#include <gtest/gtest.h>

#include "agent/workers/message.h"

namespace varda::agent::workers {
namespace state_test {

using codec::Json;

Json json(std::string_view text) { return codec::parse_json(text).value(); }
const Name kEval{"default", "eval"};
constexpr const char* kTime = "2026-01-01T00:00:00Z";

struct Case {
  const char* body;
  const char* message;  // "": accepted
};

std::string error_of(const Result<Json>& read) { return read.ok() ? "" : read.error().message(); }

TEST(WorkerMessages, ErrorNamesWrongMemberAndExpectedValue) {
  const Case registrations[] = {
      {R"({"version": "1.2"})", ""},
      {R"({"version": "1.2", "capabilities": ["resume"], "worker": "default/eval"})", ""},
      {"", "body: it is empty"},
      {"[]", "body: it is not a JSON object"},
      {R"({"capabilities": []})", "version: must be set to the version of the worker"},
      {R"({"vesrion": "1"})", "body: unknown member \"vesrion\", did you mean \"version\"?"},
      {R"({"version": "1", "colour": 1})",
       "body: unknown member \"colour\", expected version, instance, capabilities, worker"},
      {R"({"version": "1", "version": "2"})", "body: member \"version\" occurs twice"},
      {R"({"version": 1})", "version: it is not a string"},
      {R"({"version": "1", "capabilities": [""]})",
       "capabilities: each must be a string of 1 to 63 bytes"},
      {R"({"version": "1", "capabilities": "a"})", "capabilities: it is not a list"},
      {R"({"version": "1", "worker": "default/train"})",
       "worker: the token belongs to default/eval, not of \"default/train\""},
  };
  for (const Case& one : registrations)
    EXPECT_EQ(error_of(read_registration(kEval, one.body)), one.message) << one.body;
  const Case progress[] = {
      {R"({"fraction": 0.5})", ""},
      {R"({"phase": "train", "step": 3, "steps": 3, "message": "epoch 1"})", ""},
      {"{}", "body: must have at least one of phase, fraction, step, steps, message, data"},
      {R"({"fraction": 1.5})", "fraction: it is not a number from 0 to 1"},
      {R"({"fraction": "half"})", "fraction: it is not a number from 0 to 1"},
      {R"({"step": -1})", "step: must be an integer of 0 or more"},
      {R"({"step": 1.5})", "step: must be an integer of 0 or more"},
      {R"({"step": 4, "steps": 3})", "step: it is greater than steps"},
      {R"({"setps": 4})", "body: unknown member \"setps\", did you mean \"steps\"?"},
  };
  for (const Case& one : progress)
    EXPECT_EQ(error_of(read_progress(one.body)), one.message) << one.body;
  EXPECT_EQ(error_of(read_progress(R"({"data": {"loss": 0.5}})")), "");
  EXPECT_EQ(error_of(read_progress("{\"data\": \"" + std::string(4095, 'x') + "\"}")),
            "data: it is longer than 4096 bytes");
  const Case metrics[] = {
      {R"({"metrics": {"loss": 0.1, "epochs": 3}})", ""},
      {R"({"metrics": {}})", ""},
      {"{}", "metrics: it is not an object of names and numbers"},
      {R"({"metrics": {"loss": "low"}})", "metrics.\"loss\": it is not a number"},
      {R"({"metrics": {"": 1}})", "metrics: the name of a metric must have 1 to 253 bytes, not 0"},
  };
  for (const Case& one : metrics)
    EXPECT_EQ(error_of(read_metrics(one.body)), one.message) << one.body;
  const Case results[] = {
      {R"({"models": {"models.edgeai.io/default/digits": {"metrics": {"accuracy": 0.9}}}})", ""},
      {R"({"data": {"anything": ["goes"]}})", ""},
      {R"({"data": null})", "body: must have models or data"},
      {R"({"models": {"digits": {"metrics": {}}}})",
       "models.\"digits\": expected models.edgeai.io/NAMESPACE/NAME or "
       "models.sedna.io/NAMESPACE/NAME"},
      {R"({"models": {"models.edgeai.io/default/../x": {"metrics": {}}}})",
       "models.\"models.edgeai.io/default/../x\": expected models.edgeai.io/NAMESPACE/NAME or "
       "models.sedna.io/NAMESPACE/NAME"},
      {R"({"models": {"models.sedna.io/other/digits": {"metrics": {}}}})",
       "models.\"models.sedna.io/other/digits\": worker default/eval may report Models of its own "
       "namespace only"},
      {R"({"models": {"models.edgeai.io/default/digits": {"metric": {}}}})",
       "models.\"models.edgeai.io/default/digits\": unknown member \"metric\", did you mean "
       "\"metrics\"?"},
      {R"({"models": {"models.edgeai.io/default/digits": {"metrics": {"a": null}}}})",
       "models.\"models.edgeai.io/default/digits\".metrics.\"a\": it is not a number"},
  };
  for (const Case& one : results)
    EXPECT_EQ(error_of(read_result(kEval, one.body)), one.message) << one.body;
}

TEST(WorkerMessages, InvalidJsonUtf8OrDepthIsRefused) {
  for (const std::string& body :
       {std::string("{"), std::string("{\"version\": \"\xff\"}"),
        std::string("{\"version\": \"\\ud800\"}"), std::string("{} {}"), std::string("\0", 1),
        "{\"data\": " + std::string(100, '[') + std::string(100, ']') + "}"}) {
    const auto read = read_registration(kEval, body);
    ASSERT_FALSE(read.ok()) << body;
    EXPECT_EQ(read.error().code(), Code::kInvalid);
    EXPECT_TRUE(read.error().message().starts_with("body: it is not JSON: ")) << read.error();
  }
}

TEST(WorkerMessages, LongUnknownNameIsCutAtCharacterBoundary) {
  std::string name(63, 'x');
  for (int i = 0; i < 100; ++i) name += "é";
  const std::string message = error_of(read_progress("{\"" + name + "\": 1}"));
  EXPECT_EQ(message, "body: unknown member \"" + std::string(63, 'x') +
                         "…\", expected phase, fraction, step, steps, message, data");
}

TEST(WorkerNames, InvalidNamespaceOrNameIsRefused) {
  for (const char* bad : {"", "eval", "/eval", "default/", "../eval", "default/..", "default/a/b",
                          "Default/eval", "default/e val"})
    EXPECT_FALSE(Name::parse(bad).ok()) << bad;
  EXPECT_EQ(Name::parse("default/eval.0").value().key(), "default/eval.0");
}

TEST(ResultNames, ResultNameMustFitAPathSegment) {
  for (const char* good : {"a", "Round-7", "eval_2.json", "0"})
    EXPECT_EQ(check_result_name(good), "") << good;
  for (const char* bad : {"", ".", "..", "-a", "a/b", "a%2fb", "é", "a b"})
    EXPECT_NE(check_result_name(bad), "") << bad;
  EXPECT_NE(check_result_name(std::string(64, 'a')), "");
}

Json result(double accuracy) {
  return Json::object(
      {{"models",
        Json::object({{"models.edgeai.io/default/digits",
                       Json::object({{"metrics", Json::object({{"accuracy", accuracy}})}})}})},
       {"data", Json::object({{"n", 1}})}});
}

TEST(WorkerState, RepeatedMessageChangesNothing) {
  State state("u1");
  EXPECT_TRUE(state.set_result("a", result(0.9), kTime).value());
  EXPECT_TRUE(state.set_result("b", result(0.95), kTime).value());
  const Json before = state.to_json();
  EXPECT_FALSE(state.set_result("a", result(0.9), "2027-01-01T00:00:00Z").value())
      << "an answer was lost, and it came twice";
  EXPECT_EQ(state.to_json(), before) << "what was said of the Model since stays";
  EXPECT_TRUE(state.set_progress(json(R"({"step": 1})"), kTime).value());
  EXPECT_FALSE(state.set_progress(json(R"({"step": 1})"), "later").value());
  EXPECT_TRUE(state.set_registered(json(R"({"version": "1"})"), kTime).value());
  EXPECT_FALSE(state.set_registered(json(R"({"version": "1"})"), "later").value());
  EXPECT_TRUE(state.set_metrics(json(R"({"loss": 1})")).value());
  EXPECT_FALSE(state.set_metrics(json(R"({"loss": 1})")).value());
}

TEST(WorkerState, NewInstanceResetsMetrics) {
  State state("u1");
  const auto metrics = [&state] { return state.to_json().at("metrics/served").as_integer(-1); };
  ASSERT_TRUE(state.set_registered(json(R"({"version": "1"})"), kTime).value());
  ASSERT_TRUE(state.set_metrics(json(R"({"served": 7})")).value());
  ASSERT_TRUE(state.set_registered(json(R"({"version": "2"})"), kTime).value());
  EXPECT_EQ(metrics(), 7) << "who does not tell one run from another";
  ASSERT_TRUE(state.set_registered(json(R"({"version": "2", "instance": "a"})"), kTime).value());
  EXPECT_EQ(metrics(), -1);
  ASSERT_TRUE(state.set_metrics(json(R"({"served": 3})")).value());
  EXPECT_FALSE(state.set_registered(json(R"({"version": "2", "instance": "a"})"), "later").value());
  ASSERT_TRUE(state.set_registered(json(R"({"version": "3", "instance": "a"})"), kTime).value());
  EXPECT_EQ(metrics(), 3) << "the same run, once more";
  ASSERT_TRUE(state.set_registered(json(R"({"version": "3", "instance": "b"})"), kTime).value());
  EXPECT_EQ(metrics(), -1);
  EXPECT_EQ(state.to_json().at("registered/instance").as_string(), "b");
}

TEST(WorkerState, StateSurvivesJsonRoundTrip) {
  State state("u1");
  state.adopt(Json());
  ASSERT_TRUE(
      state.set_registered(json(R"({"version": "1", "capabilities": ["resume"]})"), kTime).ok());
  ASSERT_TRUE(state.set_progress(json(R"({"fraction": 0.5})"), kTime).ok());
  ASSERT_TRUE(state.set_metrics(json(R"({"loss": 0.25})")).ok());
  ASSERT_TRUE(state.set_result("final", result(0.9), kTime).ok());
  ASSERT_TRUE(state.pass_on(state.report(1 << 20)));
  const auto again = State::from_json(json(codec::write_json(state.to_json())));
  EXPECT_FALSE(state.report(1 << 20).contains("metrics")) << "not written yet";
  EXPECT_TRUE(state.set_written(state));
  EXPECT_FALSE(state.set_written(state)) << "nothing new";
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->to_json(), state.to_json());
  EXPECT_EQ(again->report(1 << 20), state.report(1 << 20));
  EXPECT_EQ(again->sequence(), 1);
  for (const char* none : {"null", "[]", "{}", R"({"uid": 1})"})
    EXPECT_FALSE(State::from_json(json(none)).has_value());
}

TEST(WorkerState, SequenceGrowsOnlyWithModelResults) {
  State state("u1");
  EXPECT_FALSE(state.pass_on(state.report(1 << 20))) << "how far it was is not known";
  state.adopt(json(R"({"sequence": 16})"));
  EXPECT_FALSE(state.pass_on(state.report(1 << 20))) << "nothing is said of Models";
  ASSERT_TRUE(state.set_result("a", result(0.9), kTime).ok());
  EXPECT_TRUE(state.pass_on(state.report(1 << 20)));
  EXPECT_EQ(state.sequence(), 17);
  ASSERT_TRUE(state.set_progress(json(R"({"step": 1})"), kTime).ok());
  EXPECT_FALSE(state.pass_on(state.report(1 << 20)));
  EXPECT_EQ(state.sequence(), 17);
  ASSERT_TRUE(state.set_result("a", result(0.8), kTime).ok());
  EXPECT_TRUE(state.pass_on(state.report(1 << 20)));
  EXPECT_EQ(state.sequence(), 18);
}

TEST(WorkerState, LostStateIsAdoptedFromServer) {
  State before("u1");
  before.adopt(Json());
  ASSERT_TRUE(before.set_result("a", result(0.9), kTime).ok());
  ASSERT_TRUE(before.set_progress(json(R"({"step": 1})"), kTime).ok());
  Json published = before.report(1 << 20);
  ASSERT_TRUE(before.pass_on(published));
  published.set("sequence", *before.sequence());

  State state("u1");  // data from before the server's answer counts
  ASSERT_TRUE(state.set_progress(json(R"({"step": 2})"), kTime).ok());
  state.adopt(published);
  EXPECT_EQ(state.sequence(), 1);
  const Json now = state.report(1 << 20);
  EXPECT_EQ(now["models"], published["models"]);
  EXPECT_EQ(now["results"], published["results"]);
  EXPECT_EQ(now.at("progress/step").as_integer(), 2);
  EXPECT_FALSE(state.pass_on(now)) << "of Models the same is said under the same number";
  ASSERT_TRUE(state.set_result("a", result(0.95), kTime).ok());
  EXPECT_TRUE(state.pass_on(state.report(1 << 20)));
  EXPECT_EQ(state.sequence(), 2);
}

TEST(WorkerState, ResultIsAdoptedOnlyWithItsFilesUploaded) {
  const auto adopted = [](const std::string& artifacts, const std::string& data) {
    State state("u1");
    const Json files = state.adopt(json(R"({"sequence": 3, "artifacts": {)" + artifacts +
                                        R"(}, "results": {"final": {"time": "t", "data": {)" +
                                        data + R"(}}, "notes": {"time": "t"}}})"));
    EXPECT_TRUE(state.report(1 << 20).at("results").contains("notes"));
    return std::pair(state.report(1 << 20).at("results").contains("final"), files);
  };
  const std::string uploaded = R"("m": {"sha256": "d", "bytes": 9, "state": "Uploaded"})",
                    sent = R"("m": {"sha256": "d", "bytes": 9, "state": "Uploading"})",
                    report = R"("r": {"sha256": "e", "bytes": 1, "state": "Waiting"})";
  EXPECT_FALSE(adopted(sent, R"("artifact": "m")").first);
  EXPECT_FALSE(adopted("", R"("artifact": "m")").first);
  EXPECT_FALSE(adopted(uploaded + "," + report, R"("artifact": "m", "report": "r")").first);
  EXPECT_TRUE(adopted("", R"("report": "all well")").first) << "text of a user's worker";
  const auto [kept, files] = adopted(uploaded + "," + report, R"("artifact": "m")");
  EXPECT_TRUE(kept);
  EXPECT_EQ(files, json("{" + uploaded + "}"));
  // The worker makes both files again, perhaps with other bytes.
  EXPECT_TRUE(adopted(sent, R"("artifact": "m")").second.empty());
}

TEST(WorkerState, RestoredOldStateGetsHigherSequence) {
  State state("u1");  // a restored disk
  state.adopt(Json());
  ASSERT_TRUE(state.set_result("a", result(0.9), kTime).ok());
  ASSERT_TRUE(state.pass_on(state.report(1 << 20)));
  state.adopt(json(
      R"({"sequence": 40, "models": {"models.edgeai.io/default/digits": {"metrics": {"accuracy": 0.95}}}})"));
  EXPECT_TRUE(state.pass_on(state.report(1 << 20)));
  EXPECT_EQ(state.sequence(), 41);
  state.adopt(json(R"({"sequence": 12})"));
  EXPECT_EQ(state.sequence(), 41) << "never back";
}

TEST(WorkerState, FullStateRefusesResultAndKeepsOthers) {
  State state("u1");
  for (std::size_t i = 0; i < State::kResultsMax; ++i)
    ASSERT_TRUE(state.set_result("r" + std::to_string(i), json(R"({"data": 1})"), kTime).ok());
  const Json before = state.to_json();
  const auto one_more = state.set_result("more", json(R"({"data": 1})"), kTime);
  ASSERT_FALSE(one_more.ok());
  EXPECT_EQ(one_more.error().code(), Code::kExhausted);
  EXPECT_EQ(state.to_json(), before);
  EXPECT_TRUE(state.set_result("r3", json(R"({"data": 2})"), kTime).value())
      << "one that is there can be replaced";

  State large("u1");
  const Json data = Json::object({{"data", std::string(30 << 10, 'x')}});
  ASSERT_TRUE(large.set_result("a", data, kTime).ok());
  EXPECT_EQ(large.set_result("b", data, kTime).error().code(), Code::kExhausted);
  ASSERT_TRUE(
      large.set_result("c", Json::object({{"data", std::string(25 << 10, 'x')}}), kTime).ok());
  EXPECT_EQ(large.set_metrics(Json::object({{std::string(5000, 'm'), 1}})).error().code(),
            Code::kExhausted);
  EXPECT_EQ(std::as_const(large).to_json()["metrics"], Json());
  EXPECT_LE(codec::write_json(large.to_json()).size(), State::kBytesMax);
}

TEST(WorkerState, ReportFitsLimitAndNamesOmittedResults) {
  State state("u1");
  ASSERT_TRUE(
      state.set_result("old", Json::object({{"data", std::string(3000, 'o')}}), kTime).ok());
  ASSERT_TRUE(state.set_result("eval", result(0.9), kTime).ok());
  ASSERT_TRUE(
      state.set_result("new", Json::object({{"data", std::string(1000, 'n')}}), kTime).ok());
  ASSERT_TRUE(state.set_progress(json(R"({"step": 1})"), kTime).ok());
  for (std::size_t room = 0; room < 6000; room += 50) {
    const Json report = state.report(room);
    EXPECT_LE(codec::write_json(report).size(), std::max<std::size_t>(room, 256)) << room;
    EXPECT_TRUE(!report.contains("results") || report.contains("models")) << room;
    EXPECT_EQ(report.contains("cut"), report["results"].size() < 3 || !report.contains("progress"))
        << room;
  }
  EXPECT_EQ(
      state.report(2048)["cut"].as_string(),
      "left out, because the reports of this node's workers exceed the size limit: 1 of 3 results");
  EXPECT_TRUE(state.report(2048).at("results").contains("new"));
  EXPECT_FALSE(state.report(6000).contains("cut"));
}

TEST(ShareOut, SmallNeedsAreMetAndRestIsSharedEvenly) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(share_out({10, 1000, 20, 1000}, 430), (Sizes{10, 200, 20, 200}));
  EXPECT_EQ(share_out({10, 20}, 100), (Sizes{10, 20}));
  EXPECT_EQ(share_out({}, 100), Sizes{});
}

}  // namespace state_test
}  // namespace varda::agent::workers
