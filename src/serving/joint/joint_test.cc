// A model with tiers, from request to answer.
#include <atomic>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "codec/image.h"
#include "serving/testing/joint_fixture.h"

namespace varda::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Joint, EasyExampleStaysAndHardExampleGoesToTheCloud) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  EXPECT_EQ(cloud_.requests().size(), 0u);
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  ASSERT_EQ(cloud_.requests().size(), 1u);
  EXPECT_EQ(cloud_.requests()[0].body, hard());
  const Json json = codec::parse_json(call("POST", "/v2/models/m/infer", hard()).body).value();
  EXPECT_EQ(json["model_name"].as_string(), "m") << "users see one model";
  EXPECT_EQ(json["model_version"].as_string(), "3");
  EXPECT_EQ(counter("inferences"), "3");
  EXPECT_EQ(counter("hard"), "2");
  EXPECT_EQ(counter("answered"), R"({"cloud":2,"edge":1})");
  EXPECT_EQ(counter("bytesSent"), std::to_string(2 * hard().size()));
  EXPECT_EQ(reported().at("tiers/1/version").as_string(), "9");
  const std::string metrics = registry_.text();
  EXPECT_THAT(metrics, HasSubstr("varda_joint_inferences_total{model=\"m\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_hard_total{model=\"m\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_answered_total{model=\"m\",tier=\"cloud\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_seconds_count{model=\"m\",tier=\"edge\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("nv_inference_request_success{model=\"m\",version=\"3\"} 3\n"));
}

TEST_F(Joint, ModelWithoutAJointFileIsServedPlainly) {
  models_.add("m", "3", kModel);
  start();
  const net::Response response = call("POST", "/v2/models/m/infer", hard());
  EXPECT_EQ(
      response.body,
      R"({"model_name":"m","model_version":"3","id":"q","outputs":[{"name":"y","shape":[1,2],)"
      R"("datatype":"FP32","data":[0.5,0.5]}]})");
  EXPECT_EQ(call("GET", "/v2/models/m/joint").status, 404);
  EXPECT_THAT(registry_.text(), ::testing::Not(HasSubstr("varda_joint")));
}

TEST_F(Joint, RequestForAVersionBypassesJointInference) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(policy("CloudOnly")));
  start();
  const net::Response response = call("POST", "/v2/models/m/versions/3/infer", hard());
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, ::testing::Not(HasSubstr("parameters")));
  EXPECT_EQ(cloud_.requests().size(), 0u);
}

TEST_F(Joint, BinaryAnswersOfEitherTierContainParameters) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  const auto infer = [&](std::array<float, 2> values) {
    oip::InferRequest request;
    request.encoding = oip::Encoding::kBinary;
    request.inputs = {
        {"x", tensor::Tensor::of<float>(tensor::DType::kFp32, {1, 2}, values).value()}};
    const oip::Message message = oip::write_infer_request(request);
    const net::Response response =
        call("POST", "/v2/models/m/infer", message.body,
             {{"Content-Type", "application/octet-stream"},
              {std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}});
    EXPECT_EQ(response.headers.find("Content-Type"), "application/octet-stream");
    return oip::parse_infer_response(std::make_shared<const std::string>(response.body),
                                     response.headers.find(oip::kJsonLengthHeader))
        .value();
  };
  EXPECT_EQ(infer({1, 0}).parameters["tier"].as_string(), "edge");
  cloud_.infers([](const net::Request& request) {
    const std::array<float, 1> values = {42};
    const std::array<oip::Encoding, 1> encodings = {oip::Encoding::kBinary};
    const oip::Message message = oip::write_infer_response(
        {"big",
         "9",
         "",
         {{"y", tensor::Tensor::of<float>(tensor::DType::kFp32, {1}, values).value()}},
         Json::object({{"more", 1}})},
        encodings);
    EXPECT_EQ(request.headers.find("Content-Type"), "application/octet-stream");
    return net::Response{
        200,
        {{std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}},
        message.body,
        nullptr};
  });
  const oip::InferResponse answer = infer({0.5, 0.5});
  EXPECT_EQ(answer.model_name, "m");
  EXPECT_EQ(answer.outputs[0].tensor.values<float>()[0], 42.0f);
  EXPECT_EQ(codec::write_json(answer.parameters),
            R"({"more":1,"tier":"cloud","hard":true,"called":"cloud","tier_version":"9"})");
}

TEST_F(Joint, FailureOfTheNextTierFallsBackToTheFirst) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  struct Case {
    int status;
    std::string body;
    std::string reason;
  };
  // The breaker stays closed over these four failures.
  for (const Case& c : std::vector<Case>{{500, "{}", "Failed"},
                                         {429, "", "Overloaded"},
                                         {404, "{}", "Refused"},
                                         {200, "<html>welcome</html>", "Failed"}}) {
    cloud_.infers(c.status, c.body);
    EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, called cloud, fallback cloud: " + c.reason)
        << c.status;
  }
  cloud_.infers(200, kBig);
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  EXPECT_THAT(
      registry_.text(),
      HasSubstr("varda_joint_errors_total{model=\"m\",tier=\"cloud\",reason=\"Failed\"} 2\n"));
  EXPECT_EQ(counter("errors/cloud/Failed"), "2");
}

TEST_F(Joint, RepeatedFailuresOpenTheBreakerAndAreReported) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  cloud_.infers(500, "{}");
  std::string last;
  for (int i = 0; i < 30 && last.find("BreakerOpen") == std::string::npos; ++i)
    last = infer(hard());
  EXPECT_EQ(last, "0.5 by edge 3 hard, fallback cloud: BreakerOpen");
  EXPECT_EQ(reported().at("degraded/reason").as_string(), "BreakerOpen");
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 200) << "the endpoint answers";
}

TEST_F(Joint, TierWithoutAnAddressIsNotCalled) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), ""));
  start();
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, fallback cloud: NoAddress");
  EXPECT_EQ(cloud_.requests().size(), 0u);
}

TEST_F(Joint, SlowTierIsAbandonedAtTheDeadline) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 64, 50));
  start();
  cloud_.hold();
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  // A stalled machine may have no time left for the call at all.
  for (std::string got; got != "0.5 by edge 3 hard, called cloud, fallback cloud: Timeout";) {
    ASSERT_TRUE(ctx.check().ok()) << got;
    got = infer(hard());
    ASSERT_THAT(got, StartsWith("0.5 by edge 3 hard"));
  }
  cloud_.release();
}

TEST_F(Joint, EarlierDeadlineOfTheRequestApplies) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 64, 3600000));
  start();
  cloud_.hold();
  const std::string body =
      R"({"parameters":{"timeout":50000},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.5,0.5]}]})";
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  // A stalled machine may have no time left for the run or the call.
  for (std::string got; got != "0.5 by edge 3 hard, called cloud, fallback cloud: Timeout";) {
    ASSERT_TRUE(ctx.check().ok()) << got;
    got = infer(body);
  }
  cloud_.release();
}

TEST_F(Joint, AnswerHasTheIdOfItsRequest) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(policy("CloudOnly")));
  start();
  const auto id_of = [&](const std::string& body) {
    return codec::parse_json(call("POST", "/v2/models/m/infer", body).body)
        .value()["id"]
        .as_string();
  };
  EXPECT_EQ(id_of(hard()), "q");
  std::string other = kBig;
  cloud_.infers(200, other.insert(1, R"("id":"of somebody else",)"));
  EXPECT_EQ(id_of(hard()), "q");
  EXPECT_EQ(id_of(R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.5,0.5]}]})"),
            "");
}

TEST_F(Joint, LongVersionOfATierDoesNotInflateTheStatus) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(policy("CloudOnly")));
  start();
  cloud_.infers(200, R"({"model_version":")" + std::string(3000000, 'v') +
                         R"(","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[1]}]})");
  EXPECT_THAT(infer(hard()), StartsWith("1 by cloud vvv"));
  EXPECT_LT(call("GET", "/v2/models/m/joint").body.size(), 10000u);
}

TEST_F(Joint, RequestsInFlightToTheNextTierAreLimited) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 1));
  start();
  cloud_.hold();
  auto first = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(1);
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, fallback cloud: InFlightLimit");
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  cloud_.release();
  EXPECT_EQ(outcome(first.get()), "0.125 by cloud 9 hard, called cloud");
}

// Answers may be large, and writing one may block.
TEST_F(Joint, BlockedAnswerAtADeadlineDoesNotDelayOthers) {
  // Never ends a call, so that only the timer can end the request.
  class Stubborn final : public net::HttpClient {
   public:
    Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
      end.wait();
      return Error(Code::kUnavailable, "too late");
    }
    std::latch end{1};
  };
  Stubborn stubborn;
  upstream_ = &stubborn;
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 2\nwarmup: {runs: 0}\n");
  models_.joint_file(
      "m",
      R"({"version":1,"service":"default/m","deadlineMs":500,"inFlightMax":8,"tiers":[{"name":"edge","deadlineMs":1,)"
      R"("policy":)" +
          margin() + R"(},{"name":"cloud","url":"http://cloud","model":"big"}]})");
  start();
  repository_->find("m", "").value()->executor().expect(
      std::chrono::seconds(1));  // nothing runs on this thread
  std::latch others_answer(1);
  std::promise<void> first;
  handler_({.method = "POST", .target = "/v2/models/m/infer", .body = hard()},
           net::Responder([&](const net::Response&) {
             others_answer.wait();
             first.set_value();
           }));
  auto second = begin("POST", "/v2/models/m/infer", hard());
  models_.release("run");
  EXPECT_EQ(second.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  others_answer.count_down();
  first.get_future().get();
  stubborn.end.count_down();
  tiers_->stop();  // all calls have ended
}

TEST_F(Joint, CloudOnlyPolicySkipsTheRunAndFallsBackToIt) {
  const auto runs = models_.path() / ".runs";
  models_.add("m", "3", kModel + ("count_runs " + runs.string() + "\n"), "warmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(policy("CloudOnly")));
  start();
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 hard, called cloud");
  EXPECT_EQ(lines(runs), 0u);
  cloud_.infers(500, "{}");
  EXPECT_EQ(infer(easy()), "1 by edge 3 hard, called cloud, fallback cloud: Failed");
  EXPECT_EQ(lines(runs), 1u);
  models_.joint_file("m", joint_file(policy("EdgeOnly")));
  settle();
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 easy");
}

TEST_F(Joint, PolicyReadsItsOutputEvenIfNotRequested) {
  models_.add("m", "3", "tensor FP32 -1 2\ntensor FP32 -1 1\n");  // outputs y and y1
  models_.joint_file("m", joint_file(policy("Margin", R"({"output":"y"})")));
  start();
  const auto infer = [&](const std::string& numbers) {
    return outcome(call(
        "POST", "/v2/models/m/infer",
        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":)" + numbers +
            R"(},{"name":"x1","shape":[1,1],"datatype":"FP32","data":[3]}],"outputs":[{"name":"y1"}]})"));
  };
  EXPECT_EQ(infer("[1,0]"), "3 by edge 3 easy");
  EXPECT_EQ(infer("[0.5,0.5]"), "0.125 by cloud 9 hard, called cloud");
  EXPECT_EQ(counter("invalid"), "0");
}

TEST_F(Joint, ImageIsForwardedUnchangedAndThePolicyReadsTensors) {
  models_.add("m", "3", kModel,
              "preprocess: {image: {channels: grey, layout: NHW, resize: {width: 2, height: 1, "
              "filter: nearest}, scale: 0.1}}\n"
              "postprocess: {softmax: {}, top_k: {k: 1}}\n");
  models_.joint_file("m", joint_file(margin()));
  start();
  const auto infer = [&](std::vector<std::uint8_t> grey) {
    return call("POST", "/v2/models/m/infer", codec::encode_png({2, 1, 1, std::move(grey)}).value(),
                {{"Content-Type", "image/png"}});
  };
  EXPECT_EQ(outcome(infer({0, 200})), "\"1\" by edge 3 easy")
      << "answers are what the request gets, not what the policy reads";
  EXPECT_EQ(outcome(infer({100, 101})), "0.125 by cloud 9 hard, called cloud");
  ASSERT_EQ(cloud_.requests().size(), 1u);
  EXPECT_EQ(cloud_.requests()[0].headers.find("Content-Type"), "image/png");
  EXPECT_EQ(cloud_.requests()[0].body, codec::encode_png({2, 1, 1, {100, 101}}).value());
}

TEST_F(Joint, NextTierAnswersForAFailingModelButNotForABadRequest) {
  models_.add("m", "3", std::string(kModel) + "fail_run no luck\n", "warmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin()));
  start();
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, called cloud");
  EXPECT_THAT(infer("{"), StartsWith("400 "));
  EXPECT_EQ(cloud_.requests().size(), 1u);
  cloud_.infers(500, "{}");
  EXPECT_THAT(infer(easy()), HasSubstr("no luck")) << "the first tier's own words";
}

TEST_F(Joint, FullQueueSendsTheRequestToTheNextTier) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nqueue: {max: 1}\nwarmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin()));
  start();
  repository_->find("m", "").value()->executor().expect(
      std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (repository_->find("m", "").value()->executor().waiting() > 0)
    ASSERT_TRUE(ctx.check().ok());
  auto second = begin("POST", "/v2/models/m/infer", easy());
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, called cloud");
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(outcome(second.get()), "1 by edge 3 easy");
}

TEST_F(Joint, HangingModelReturns504AtTheDeadline) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nwarmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin(), "", 64, 50));
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(1));
  EXPECT_THAT(infer(easy()), StartsWith("504 "));
  models_.release("run");
}

TEST_F(Joint, AnsweredRequestKeepsNoTimer) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nwarmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin(), "", 64, 3600000));
  start();
  repository_->find("m", "").value()->executor().expect(
      std::chrono::seconds(1));  // nothing runs on this thread
  std::vector<std::future<net::Response>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(begin("POST", "/v2/models/m/infer", easy()));
  EXPECT_EQ(tiers_->timers(), answers.size()) << "one each";
  models_.release("run");
  for (auto& answer : answers) EXPECT_EQ(outcome(answer.get()), "1 by edge 3 easy");
  EXPECT_EQ(tiers_->timers(), 0u) << "their deadline is an hour away";
}

TEST_F(Joint, RequestThatTimedOutInTheQueueIsNotRun) {
  const auto runs = models_.path() / ".runs";
  models_.add("m", "3",
              std::string(kModel) + "hold_run " + models_.hold("run") + "\ncount_runs " +
                  runs.string() + "\n",
              "instances: 1\nwarmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin(), ""));
  start();
  const std::shared_ptr<ModelVersion> version = repository_->find("m", "").value();
  version->executor().expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (lines(runs) < 1) ASSERT_TRUE(ctx.check().ok());  // it holds the only instance
  models_.joint_file("m", joint_file(margin(), "", 64, 50));
  settle();
  // A stalled machine may have no time left to queue the request at all.
  while (version->executor().waiting() == 0) {
    ASSERT_TRUE(ctx.check().ok());
    EXPECT_THAT(infer(easy()), StartsWith("504 "));
  }
  EXPECT_EQ(version->executor().waiting(), 1u);
  models_.joint_file("m", joint_file(margin(), ""));
  settle();
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  EXPECT_EQ(lines(runs), 2u);
}

TEST_F(Joint, VersionThatThePolicyCannotReadIsRefused) {
  models_.add("m", "3", kModel);
  models_.target("m", "3");
  models_.joint_file("m", joint_file(margin()));
  start();
  models_.add("m", "4", "tensor INT64 -1 2\n");
  models_.target("m", "4");
  settle();
  EXPECT_THAT(index(), ElementsAre("m/3 READY", "m/4 UNAVAILABLE PolicyMismatch"));
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  // A file that fits the new version arrives later: then both take effect.
  models_.joint_file("m", joint_file(policy("EdgeOnly")));
  settle();
  EXPECT_THAT(index(), ElementsAre("m/4 READY"));
  EXPECT_FALSE(reported().contains("problem"));
}

TEST_F(Joint, InvalidJointFileKeepsTheOldPolicyAndReportsAProblem) {
  models_.add("m", "3", "tensor FP32 -1 2\n");
  models_.joint_file("m", joint_file(margin()));
  start();
  models_.joint_file("m", joint_file(policy("Margin", R"({"output":"probabilities"})")));
  settle();
  EXPECT_EQ(reported().at("problem/reason").as_string(), "PolicyMismatch");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  models_.joint_file("m", R"({"version":1,"tiers":[]})");
  settle();
  EXPECT_EQ(reported().at("problem/reason").as_string(), "Invalid");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  models_.joint_file("m", joint_file(margin("0")));
  settle();
  EXPECT_FALSE(reported().contains("problem"));
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 easy");
  EXPECT_EQ(counter("inferences"), "3") << "counts outlive what they were counted under";
}

TEST_F(Joint, MismatchAtStartIsListedInTheIndexAndTheCloudAnswers) {
  models_.add("m", "3", "tensor INT64 -1 2\n");
  models_.joint_file("m", joint_file(margin()));
  start();
  EXPECT_THAT(index(), ElementsAre("m/3 UNAVAILABLE PolicyMismatch"));
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, called cloud");
  models_.joint_file("m", joint_file(policy("EdgeOnly")));
  settle();
  EXPECT_THAT(index(), ElementsAre("m/3 READY"));
}

TEST_F(Joint, EndpointServedOnlyByTheCloudFollowsItsReadiness) {
  models_.add("m", "3", std::string(kModel) + "fail_load torn\n");
  models_.joint_file("m", joint_file(margin()));
  cloud_.is_ready(503);
  start({.check_interval = std::chrono::milliseconds(1), .idle_max = std::chrono::milliseconds(1)});
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (!reported().contains("degraded"))
    ASSERT_TRUE(ctx.check().ok()) << "nobody asks it anything, and still it is known";
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 503);
  cloud_.is_ready(200);
  while (call("GET", "/v2/models/m/ready").status != 200) ASSERT_TRUE(ctx.check().ok());
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, called cloud");
}

TEST_F(Joint, RemovedJointFileEndsJointInferenceAndKeepsCounters) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  models_.remove("m/joint.json");
  settle();
  EXPECT_THAT(call("POST", "/v2/models/m/infer", hard()).body,
              ::testing::Not(HasSubstr("parameters")));
  EXPECT_EQ(call("GET", "/v2/models/m/joint").status, 404);
  models_.joint_file("m", joint_file(margin()));
  settle();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  EXPECT_EQ(counter("inferences"), "2");
}

TEST_F(Joint, MiddleTierAppliesItsOwnPolicy) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", three_tiers());
  start();
  const auto middle = [](const std::string& data) {
    return R"({"model_name":"middle","model_version":"5","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":)" +
           data + "}]}";
  };
  const auto answering = [&](const std::string& data) {
    cloud_.infers([=](const net::Request& request) {
      return net::Response{
          200,
          {},
          request.target.find("/middle/") != std::string::npos ? middle(data) : kBig,
          nullptr};
    });
  };
  answering("[0.97,0.03]");
  EXPECT_EQ(infer(hard()), "0.97 by edge 5 hard, called edge");
  answering("[0.6,0.4]");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called edge,cloud");
  EXPECT_EQ(infer(easy()), "1 by device 3 easy");
  EXPECT_EQ(counter("called"), R"({"cloud":1,"edge":2})");
  EXPECT_EQ(counter("forwarded"), "2") << "a request that asks two tiers goes up once";
}

TEST_F(Joint, UnreadableAnswerOfTheMiddleTierIsReported) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", three_tiers());
  start();
  const auto answering = [&](const std::string& outputs) {
    cloud_.infers([=](const net::Request&) {
      return net::Response{
          200,
          {},
          R"({"model_name":"middle","model_version":"5","outputs":[)" + outputs + "]}",
          nullptr};
    });
  };
  const auto problem = [&] { return reported().at("tiers/1/problem"); };
  const std::string readable = R"({"name":"y","shape":[1,2],"datatype":"FP32","data":[0.97,0.03]})";
  answering(readable);
  infer(hard());
  EXPECT_TRUE(problem().is_null());
  answering(R"({"name":"y","shape":[1,2],"datatype":"INT64","data":[9,3]})");
  std::string chosen = hard();
  chosen.insert(chosen.rfind('}'), R"(,"outputs":[{"name":"y"}])");
  infer(chosen);
  EXPECT_TRUE(problem().is_null()) << "who asks for some outputs only gets some only";
  infer(hard());
  EXPECT_EQ(problem()["reason"].as_string(), "PolicyMismatch");
  EXPECT_THAT(problem()["message"].as_string(), HasSubstr("y INT64"));
  EXPECT_EQ(counter("invalid"), "2");
  answering(readable);
  infer(hard());
  EXPECT_TRUE(problem().is_null());
  answering(R"({"name":")" + std::string(100000, 'n') +
            R"(","shape":[1],"datatype":"INT64","data":[1]})");
  infer(hard());
  EXPECT_LT(problem()["message"].as_string().size(), 1000u);
}

TEST(PolicyMismatch, MessageIsShortAndLoggedOnceAMinute) {
  joint::PolicyMismatch mismatch;
  SteadyTime now{std::chrono::hours(1)};
  int lines = 0;
  for (int i = 0; i < 1210; ++i, now += std::chrono::milliseconds(100)) {
    mismatch.set(i % 2 == 0 ? std::string(1000000, 'n') : "");
    if (i % 2 == 0 && mismatch.should_log(now)) ++lines;
  }
  EXPECT_EQ(lines, 3) << "in two minutes";
  mismatch.set(std::string(1000000, 'n'));
  EXPECT_LT(mismatch.why().size(), 520u);
}

TEST_F(Joint, StoppedServerAnswersFromTheFirstTier) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  cloud_.hold();
  auto answer = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(1);
  tiers_->stop();
  EXPECT_EQ(outcome(answer.get()), "0.5 by edge 3 hard, called cloud, fallback cloud: Failed");
  EXPECT_THAT(infer(hard()), StartsWith("0.5 by edge 3 hard"));
  EXPECT_EQ(cloud_.requests().size(), 1u) << "a stopped server calls no other tier";
}

TEST_F(Joint, NoRequestFailsWhilePoliciesAddressesAndVersionsChange) {
  models_.add("m", "3", kModel);
  models_.add("m", "4", kModel);
  models_.target("m", "3");
  models_.joint_file("m", joint_file(margin()));
  start();
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0};
  Mutex mutex;
  std::set<std::string> wrong;
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      for (int n = 0; !stop; ++n) {
        const std::string got = infer((n + i) % 2 == 0 ? easy() : hard());
        ++sent;
        if (got.find(" by ") != std::string::npos) continue;
        MutexLock lock(mutex);
        wrong.insert(got);
      }
    });
  }
  const std::vector<std::string> files = {joint_file(margin("0.9"), "http://other"),
                                          joint_file(policy("CloudOnly")), joint_file(margin(), ""),
                                          joint_file(policy("EdgeOnly")),
                                          joint_file(margin(), "http://cloud", 1)};
  for (std::size_t i = 0; i < 15; ++i) {
    models_.target("m", i % 2 == 0 ? "4" : "3");
    models_.joint_file("m", files[i % files.size()]);
    settle();
  }
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (sent <= 10 && ctx.check().ok()) std::this_thread::yield();
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_THAT(wrong, ::testing::IsEmpty());
  EXPECT_GT(sent, 10);
}

}  // namespace
}  // namespace varda::serving
