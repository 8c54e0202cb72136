// Trials over a changing directory, with models of the echo engine: no sockets.
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "codec/json.h"
#include "serving/handler.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {
namespace trial_test {

using codec::Json;
using ::testing::HasSubstr;
using testing::infer_body;

constexpr auto kModel = "tensor FP32 -1 1\n";
constexpr auto kShadow = R"({"version":"5","mode":"shadow"})";

std::string canary(double share) {
  return R"({"version":"5","mode":"canary","share":)" + std::to_string(share) + "}";
}

class Probe final : public LoadProbe {
 public:
  std::optional<LoadFailure> probe(const Context&, const ModelVersion::Source& source) override {
    ++probed[source.version];
    if (source.version == "crashes") return LoadFailure{"LoadCrashed", "SIGSEGV", std::nullopt};
    return std::nullopt;
  }
  std::map<std::string, int> probed;
};

class Trials : public ::testing::Test {
 protected:
  void start() {
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {.instances = 2},
                                    .check_interval = std::chrono::hours(1),
                                    .probe = &probe_,
                                    .available_memory = [this] { return available_; }},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    handler_ = make_handler({*repository_, registry_, draining_});
    settle();
  }
  // Versions 4, which serves, and 5.
  void start_with(const std::string& five, const std::string& yaml = "") {
    models_.add("m", "4", std::string(kModel) + "scale 4\n", yaml);
    models_.target("m", "4");
    models_.add("m", "5", std::string(kModel) + five, yaml);
    start();
  }
  void settle() {
    const Status status =
        repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }
  void set_trial(const std::string& text) {
    models_.trial_file("m", text);
    settle();
  }

  std::future<net::Response> begin(const std::string& method, const std::string& target,
                                   std::string body = "") {
    auto promise = std::make_shared<std::promise<net::Response>>();
    auto future = promise->get_future();
    handler_({.method = method, .target = target, .headers = {}, .body = std::move(body)},
             net::Responder(
                 [promise](net::Response response) { promise->set_value(std::move(response)); }));
    return future;
  }
  // "VERSION=VALUE" of an inference, or "STATUS message".
  static std::string outcome(const net::Response& response) {
    const Json json = codec::parse_json(response.body).value_or(Json());
    if (response.status != 200)
      return std::to_string(response.status) + " " + json["error"].as_string();
    return json["model_version"].as_string() + "=" + codec::write_json(json.at("outputs/0/data/0"));
  }
  std::string infer(const std::string& target = "/v2/models/m/infer", float x = 1) {
    return outcome(begin("POST", target, infer_body(x)).get());
  }
  Json report() {
    const net::Response response = begin("GET", "/v2/models/m/trial").get();
    EXPECT_EQ(response.status, 200);
    return codec::parse_json(response.body).value();
  }
  // Waits for shadow requests, which run behind the answers.
  Json report_with(const std::string& member, std::int64_t count) {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    for (;;) {
      Json now = report();
      if (now.at(member).as_integer() >= count || !ctx.check().ok()) return now;
    }
  }

  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  Probe probe_;
  std::optional<std::uint64_t> available_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<Repository> repository_;
  net::Handler handler_;
};

TEST_F(Trials, ModelWithoutATrialReportsTheServingVersion) {
  start_with("");
  EXPECT_EQ(infer(), "4=4");
  const Json now = report();
  EXPECT_FALSE(now.contains("version"));
  EXPECT_EQ(now.at("serving/version").as_string(), "4");
  EXPECT_EQ(now.at("serving/answers").as_integer(), 1);
  EXPECT_EQ(begin("GET", "/v2/models/n/trial").get().status, 404);
}

TEST_F(Trials, ShadowAnswersNoRequestAndIsCompared) {
  start_with("scale 4\nadd 0.001\n");
  set_trial(kShadow);
  EXPECT_EQ(report()["state"].as_string(), "Ready");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(infer(), "4=4");
  const Json now = report_with("compared", 10);
  EXPECT_EQ(now["version"].as_string(), "5");
  EXPECT_EQ(now["mode"].as_string(), "shadow");
  EXPECT_EQ(now["answers"].as_integer(), 10);
  EXPECT_EQ(now["agreed"].as_integer(), 10);
  EXPECT_EQ(now["failures"].as_integer(), 0);
  EXPECT_EQ(now["dropped"].as_integer(), 0);
  EXPECT_EQ(now.at("serving/answers").as_integer(), 10);
  EXPECT_GT(now.at("microseconds/trial").as_integer(), 0);
  EXPECT_THAT(
      registry_.text(),
      HasSubstr("varda_trial_agreed_total{model=\"m\",version=\"5\",mode=\"shadow\"} 10\n"));
}

TEST_F(Trials, ShadowCountsDisagreement) {
  start_with("scale 5\n");
  set_trial(kShadow);
  EXPECT_EQ(infer(), "4=4");
  const Json now = report_with("compared", 1);
  EXPECT_EQ(now["agreed"].as_integer(), 0);
}

TEST_F(Trials, ShadowDropsWhatItCannotRunInTime) {
  start_with("hold_run " + models_.hold("run") + "\n", "warmup: {runs: 0}\n");
  set_trial(kShadow);
  const int more = 8, queued = static_cast<int>(trial::ShadowRunner::kQueueMax);
  for (int i = 0; i < queued + more; ++i) EXPECT_EQ(infer(), "4=4") << "answers never wait";
  EXPECT_EQ(report_with("dropped", more)["dropped"].as_integer(), more);
  models_.release("run");
  EXPECT_EQ(report_with("compared", queued)["compared"].as_integer(), queued);
}

TEST_F(Trials, ShadowFailureIsCountedOnlyIfTheServingVersionAnswered) {
  start_with("fail_run no luck\n", "warmup: {runs: 0}\n");
  set_trial(kShadow);
  EXPECT_THAT(outcome(begin("POST", "/v2/models/m/infer", "").get()), HasSubstr("400"));
  EXPECT_EQ(infer(), "4=4");
  const Json now = report_with("failures", 1);
  EXPECT_EQ(now["failures"].as_integer(), 1);
  EXPECT_EQ(now["answers"].as_integer(), 0);
  EXPECT_EQ(now.at("serving/failures").as_integer(), 0) << "the request was wrong";
}

TEST_F(Trials, CanaryAnswersItsShare) {
  start_with("scale 5\n");
  set_trial(canary(0.25));
  int on_trial = 0;
  for (int i = 0; i < 100; ++i) on_trial += infer() == "5=5" ? 1 : 0;
  EXPECT_EQ(on_trial, 25);
  EXPECT_EQ(report_with("answers", 25)["answers"].as_integer(), 25);
  EXPECT_EQ(report_with("serving/answers", 75).at("serving/answers").as_integer(), 75);
  set_trial(canary(1));
  EXPECT_EQ(infer(), "5=5");
  EXPECT_EQ(report_with("answers", 26)["answers"].as_integer(), 26)
      << "another share keeps the counts";
}

TEST_F(Trials, RequestThatNamesAVersionIsNoPartOfTheTrial) {
  start_with("scale 5\n");
  set_trial(canary(1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(infer("/v2/models/m/versions/4/infer"), "4=4");
  EXPECT_EQ(infer("/v2/models/m/versions/5/infer"), "5=5");
  EXPECT_EQ(report()["answers"].as_integer(), 0);
}

TEST_F(Trials, ServingVersionAnswersWhatTheCanaryFails) {
  start_with("fail_run no luck\n", "warmup: {runs: 0}\n");
  set_trial(canary(1));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(infer(), "4=4");
  EXPECT_THAT(outcome(begin("POST", "/v2/models/m/infer", "").get()), HasSubstr("400"));
  const Json now = report();
  EXPECT_EQ(now["failures"].as_integer(), 5) << "a bad request is no failure of the version";
  EXPECT_EQ(now["answers"].as_integer(), 0);
  EXPECT_EQ(now.at("serving/answers").as_integer(), 5);
  EXPECT_THAT(
      registry_.text(),
      ::testing::Not(HasSubstr("nv_inference_request_failure{model=\"m\",version=\"5\"} 5")));
}

TEST_F(Trials, FullQueueOfTheCanaryFallsBack) {
  start_with("hold_run " + models_.hold("run") + "\n",
             "instances: 1\nqueue: {max: 1}\nwarmup: {runs: 0}\n");
  set_trial(canary(1));
  Executor& executor = repository_->find("m", "5").value()->executor();
  executor.expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", infer_body(1));
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (executor.waiting() > 0) ASSERT_TRUE(ctx.check().ok());
  auto second = begin("POST", "/v2/models/m/infer", infer_body(1));
  EXPECT_EQ(infer(), "4=4");
  EXPECT_EQ(report_with("failures", 1)["failures"].as_integer(), 1);
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "5=1");
  EXPECT_EQ(outcome(second.get()), "5=1");
}

TEST_F(Trials, PromotionUsesTheLoadedVersion) {
  const std::string runs = (models_.path() / ".runs").string();
  start_with("scale 5\ncount_runs " + runs + "\n", "instances: 1\nwarmup: {runs: 3}\n");
  set_trial(canary(0.5));
  const ModelVersion* loaded = repository_->find("m", "5").value().get();
  for (int i = 0; i < 4; ++i) infer();
  models_.target("m", "5");
  settle();
  EXPECT_EQ(infer(), "5=5");
  EXPECT_EQ(repository_->find("m", "").value().get(), loaded);
  EXPECT_EQ(probe_.probed["5"], 1);
  const Json now = report();
  EXPECT_EQ(now["state"].as_string(), "Ended");
  EXPECT_EQ(now["answers"].as_integer(), 2) << "the last counts stay";
  EXPECT_THAT(infer("/v2/models/m/versions/4/infer"), HasSubstr("404"));
  models_.remove("m/trial.json");
  settle();
  EXPECT_FALSE(report().contains("state"));
  EXPECT_EQ(infer(), "5=5");
}

TEST_F(Trials, PromotionAndEndAtOnceNeedNoSecondLoad) {
  start_with("scale 5\n");
  set_trial(canary(0.5));
  models_.target("m", "5");
  models_.remove("m/trial.json");
  settle();
  EXPECT_EQ(infer(), "5=5");
  EXPECT_EQ(probe_.probed["5"], 1);
}

TEST_F(Trials, TargetBecomesTheLoadInProgress) {
  start_with("scale 5\nhold_load " + models_.hold("load") + "\n");
  models_.trial_file("m", kShadow);
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (report()["state"].as_string() != "Loading") ASSERT_TRUE(ctx.check().ok());
  models_.target("m", "5");
  models_.release("load");
  settle();
  EXPECT_EQ(infer(), "5=5");
  EXPECT_EQ(probe_.probed["5"], 1);
}

TEST_F(Trials, RemovedFileEndsTheTrial) {
  start_with("scale 5\n");
  set_trial(canary(1));
  EXPECT_EQ(infer(), "5=5");
  models_.remove("m/trial.json");
  settle();
  EXPECT_EQ(infer(), "4=4");
  EXPECT_EQ(infer("/v2/models/m/versions/5/infer"),
            "404 version 5 of model \"m\" is not loaded; 4 is");
}

TEST_F(Trials, FailedLoadLeavesServingAlone) {
  start_with("fail_load torn\n");
  set_trial(kShadow);
  EXPECT_EQ(infer(), "4=4");
  Json now = report();
  EXPECT_EQ(now["state"].as_string(), "Failed");
  EXPECT_EQ(now["reason"].as_string(), "LoadFailed");
  EXPECT_EQ(now["message"].as_string(), "torn");
  set_trial(R"({"version":"6","mode":"shadow"})");
  now = report();
  EXPECT_EQ(now["reason"].as_string(), "VersionMissing");
  set_trial("{");
  EXPECT_EQ(report()["reason"].as_string(), "Invalid");
  models_.add("m", "crashes", kModel);
  set_trial(R"({"version":"crashes","mode":"shadow"})");
  EXPECT_EQ(report()["reason"].as_string(), "LoadCrashed");
  EXPECT_EQ(infer(), "4=4");
}

TEST_F(Trials, VersionTooLargeForTwoIsNotLoaded) {
  start_with("scale 5\n");
  available_ = 1;
  set_trial(canary(1));
  const Json now = report();
  EXPECT_EQ(now["state"].as_string(), "Failed");
  EXPECT_EQ(now["reason"].as_string(), "MemoryShort");
  EXPECT_THAT(now["message"].as_string(), HasSubstr("0 MiB are available"));
  EXPECT_EQ(probe_.probed["5"], 0);
  EXPECT_EQ(infer(), "4=4");
}

TEST_F(Trials, AnotherServingVersionStartsNewCounts) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  start_with("scale 5\n");
  set_trial(canary(1));
  EXPECT_EQ(infer(), "5=5");
  models_.target("m", "3");
  settle();
  EXPECT_EQ(infer(), "5=5");
  EXPECT_EQ(report_with("answers", 1)["answers"].as_integer(), 1);
  EXPECT_EQ(report().at("serving/version").as_string(), "3");
  EXPECT_EQ(probe_.probed["5"], 1);
}

TEST_F(Trials, ModelWithTiersHasNone) {
  start_with("scale 5\n");
  models_.joint_file("m", "{}");
  set_trial(canary(1));
  EXPECT_EQ(report()["reason"].as_string(), "TiersUnsupported");
  EXPECT_EQ(infer(), "4=4");
}

TEST_F(Trials, NoRequestFailsWhileTrialsComeAndGo) {
  start_with("scale 5\n");
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, answered{0};
  std::vector<std::jthread> clients;
  for (int i = 0; i < 3; ++i)
    clients.emplace_back([&] {
      while (!stop) {
        const std::string out = infer();
        ++(out == "4=4" || out == "5=5" ? answered : failed);
      }
    });
  for (int round = 0; round < 5; ++round) {
    set_trial(kShadow);
    set_trial(canary(0.5));
    models_.target("m", "5");
    settle();
    models_.remove("m/trial.json");
    settle();
    models_.target("m", "4");
    settle();
  }
  stop = true;
  clients.clear();
  EXPECT_EQ(failed, 0);
  EXPECT_GT(answered, 0);
}

}  // namespace trial_test
}  // namespace varda::serving
