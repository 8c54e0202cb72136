// The repository and its handlers over a changing directory, with models of the echo engine: no
// sockets.
#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <thread>

#include "codec/json.h"
#include "serving/handler.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {
namespace serving_test {

using codec::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::infer_body;

constexpr auto kModel = "tensor FP32 -1 1\n";

class Serving : public ::testing::Test {
 protected:
  void start(std::chrono::milliseconds check_interval = std::chrono::hours(1)) {
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {.instances = 2},
                                    .check_interval = check_interval},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    handler_ = make_handler({*repository_, registry_, draining_});
    settle();
  }
  void settle() {
    const Status status =
        repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }

  // The answer may come later, on another thread.
  std::future<net::Response> begin(const std::string& method, const std::string& target,
                                   std::string body = "", net::Headers headers = {}) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    auto future = promise->get_future();
    handler_({.method = method,
              .target = target,
              .headers = std::move(headers),
              .body = std::move(body)},
             net::Responder(
                 [promise](net::Response response) { promise->set_value(std::move(response)); }));
    return future;
  }
  net::Response call(const std::string& method, const std::string& target, std::string body = "",
                     net::Headers headers = {}) {
    return begin(method, target, std::move(body), std::move(headers)).get();
  }
  // "VERSION=VALUE" of an inference, or "STATUS message".
  static std::string outcome(const net::Response& response) {
    const Json json = codec::parse_json(response.body).value_or(Json());
    if (response.status != 200)
      return std::to_string(response.status) + " " + json["error"].as_string();
    return json["model_version"].as_string() + "=" + codec::write_json(json.at("outputs/0/data/0"));
  }
  std::string infer(const std::string& target = "/v2/models/m/infer", float x = 1) {
    return outcome(call("POST", target, infer_body(x)));
  }
  std::vector<std::string> index() {
    std::vector<std::string> out;
    for (const oip::IndexEntry& e : repository_->index())
      out.push_back(e.name + "/" + e.version + " " + e.state +
                    (e.reason.empty() ? "" : ": " + e.reason));
    return out;
  }

  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  std::atomic<bool> draining_{false};
  std::unique_ptr<Repository> repository_;
  net::Handler handler_;
};

TEST_F(Serving, NewestVersionServesWithoutATarget) {
  models_.add("m", "9", std::string(kModel) + "scale 9\n");
  models_.add("m", "10", std::string(kModel) + "scale 10\n");
  start();
  EXPECT_EQ(infer(), "10=10");
  EXPECT_EQ(infer("/v2/models/m/versions/10/infer"), "10=10");
  EXPECT_EQ(infer("/v2/models/m/versions/9/infer"),
            "404 version 9 of model \"m\" is not loaded; 10 is");
  EXPECT_EQ(infer("/v2/models/n/infer"), "404 there is no model \"n\"");
  EXPECT_THAT(index(), ElementsAre("m/10 READY"));
}

TEST_F(Serving, ChangedTargetSwitchesVersionsBothWays) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  models_.add("m", "4", std::string(kModel) + "scale 4\n");
  models_.target("m", "3");
  start();
  EXPECT_EQ(infer(), "3=3");
  models_.target("m", "4");
  settle();
  EXPECT_EQ(infer(), "4=4");
  models_.target("m", "3");
  settle();
  EXPECT_EQ(infer(), "3=3");
  EXPECT_THAT(registry_.text(), HasSubstr("varda_model_switches_total{model=\"m\"} 2\n"));
}

TEST_F(Serving, ChangedFilesOfTheActiveVersionAreLoaded) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  models_.target("m", "3");
  start();
  EXPECT_EQ(infer(), "3=3");
  models_.remove("m/3");
  models_.add("m", "3", std::string(kModel) + "scale 30\n");
  settle();
  EXPECT_EQ(infer(), "3=30");
  models_.remove("m/3");
  models_.add("m", "3", "this is no model\n");
  settle();
  EXPECT_EQ(infer(), "3=30") << "what does not load replaces nothing";
  EXPECT_THAT(index(), ElementsAre("m/3 READY", HasSubstr("m/3 UNAVAILABLE: ")));
  models_.remove("m/3");
  models_.add("m", "3", std::string(kModel) + "scale 31\n");
  settle();
  EXPECT_EQ(infer(), "3=31");
  EXPECT_THAT(index(), ElementsAre("m/3 READY"));
}

TEST_F(Serving, ChangeIsDetectedBeforeTheNextScan) {
  models_.add("m", "3", kModel);
  start();  // the scan interval is one hour: only an event can be in time
  models_.add("m", "4", kModel);
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (infer() != "4=1") ASSERT_TRUE(ctx.check().ok());
}

TEST_F(Serving, RunningRequestsFinishOnTheOldVersion) {
  const std::string begun = (models_.path() / ".begun").string();
  models_.add("m", "3",
              std::string(kModel) + "scale 3\nhold_run " + models_.hold("run") + "\ncount_runs " +
                  begun + "\n",
              "warmup: {runs: 0}\n");
  start();
  // In a new thread: a model without a known duration runs on the caller's thread.
  auto old = std::async(std::launch::async, [&] { return infer(); });
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (!std::filesystem::exists(begun)) ASSERT_TRUE(ctx.check().ok());
  models_.add("m", "4", std::string(kModel) + "scale 4\n");
  settle();
  EXPECT_EQ(infer(), "4=4");
  models_.release("run");
  EXPECT_EQ(old.get(), "3=3");
}

TEST_F(Serving, FailingVersionIsReportedAndTheOldOneServes) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  models_.target("m", "3");
  start();
  models_.add("m", "4", "fail_load weights are torn\n");
  models_.target("m", "4");
  settle();
  EXPECT_EQ(infer(), "3=3");
  EXPECT_THAT(index(), ElementsAre("m/3 READY", "m/4 UNAVAILABLE: weights are torn"));
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 200);

  models_.add("m", "5", std::string(kModel) + "fail_run no luck\n");
  models_.target("m", "5");
  settle();
  EXPECT_EQ(infer(), "3=3");
  EXPECT_THAT(index(), ElementsAre("m/3 READY", "m/5 UNAVAILABLE: the first run failed: no luck"));

  models_.target("m", "6");
  settle();
  EXPECT_THAT(
      index(),
      ElementsAre("m/3 READY", "m/6 UNAVAILABLE: target names version 6, which does not exist"));

  models_.target("m", "3");
  settle();
  EXPECT_THAT(index(), ElementsAre("m/3 READY"));
}

TEST_F(Serving, FailedVersionIsLoadedAgainOnlyIfItsFilesChange) {
  models_.add("m", "1", "count_runs x\nfail_load bad\n");
  start(std::chrono::milliseconds(5));
  for (int i = 0; i < 3; ++i) settle();
  EXPECT_THAT(registry_.text(), HasSubstr("varda_model_load_failures_total{model=\"m\"} 1\n"));
  EXPECT_EQ(infer(), "503 model \"m\" is not ready: version 1 does not load: bad");
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 503);
  models_.remove("m/1");
  models_.add("m", "1", kModel);
  settle();
  EXPECT_EQ(infer(), "1=1");
}

TEST_F(Serving, ObsoleteLoadIsDropped) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  models_.add("m", "4", std::string(kModel) + "scale 4\nhold_load " + models_.hold("load") + "\n");
  models_.target("m", "3");
  start();
  models_.target("m", "4");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (index() != std::vector<std::string>{"m/3 READY", "m/4 LOADING"})
    ASSERT_TRUE(ctx.check().ok());
  EXPECT_EQ(infer(), "3=3");
  models_.target("m", "3");
  while (index() != std::vector<std::string>{"m/3 READY"}) ASSERT_TRUE(ctx.check().ok());
  models_.release("load");
  settle();
  EXPECT_EQ(infer(), "3=3");
}

TEST_F(Serving, ModelsAppearAndDisappearAtRuntime) {
  start();
  EXPECT_EQ(infer(), "404 there is no model \"m\"");
  models_.add("m", "1", kModel);
  settle();
  EXPECT_EQ(infer(), "1=1");
  models_.remove("m/1");
  settle();
  EXPECT_EQ(infer(), "503 model \"m\" is not ready: there is no version");
  models_.remove("m");
  settle();
  EXPECT_EQ(infer(), "404 there is no model \"m\"");
}

TEST_F(Serving, SingleThreadedEngineGetsOneModelPerInstance) {
  models_.add("m", "1",
              std::string(kModel) + "concurrent 1\ncount_runs " +
                  (models_.path() / "m" / ".runs").string() + "\n",
              "instances: 3\nwarmup: {runs: 2}\n");
  start();
  std::ifstream runs(models_.path() / "m" / ".runs");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(runs), {}, '\n'), 6);
  EXPECT_EQ(infer(), "1=1");
}

TEST_F(Serving, FullQueueReturns429AndLongWaitReturns504) {
  models_.add("m", "1", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nqueue: {max: 1}\nwarmup: {runs: 0}\n");
  start();
  repository_->find("m", "").value()->executor().expect(
      std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", infer_body(1));
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (repository_->find("m", "").value()->executor().waiting() > 0)
    ASSERT_TRUE(ctx.check().ok());
  std::string body = infer_body(2);
  body.insert(1, R"("parameters":{"timeout":1},)");
  auto second = begin("POST", "/v2/models/m/infer", body);
  const net::Response third = call("POST", "/v2/models/m/infer", infer_body(3));
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.headers.find("Retry-After"), "1");
  EXPECT_THAT(third.body, HasSubstr("model \\\"m\\\": the queue is full: 1 requests"));
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1=1");
  EXPECT_THAT(outcome(second.get()), HasSubstr("504 the request waited"));
}

TEST_F(Serving, WaitingRequestOfADisconnectedClientIsNotRun) {
  const auto runs = models_.path() / ".runs";
  models_.add("m", "3",
              std::string(kModel) + "hold_run " + models_.hold("run") + "\ncount_runs " +
                  runs.string() + "\n",
              "instances: 1\nqueue: {max: 1}\nwarmup: {runs: 0}\n");
  start();
  Executor& executor = repository_->find("m", "").value()->executor();
  executor.expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", infer_body(1));
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (executor.waiting() > 0) ASSERT_TRUE(ctx.check().ok());  // it holds the only instance
  net::Responder::OnDisconnect hang_up;
  std::atomic<int> answers{0};
  handler_({.method = "POST", .target = "/v2/models/m/infer", .body = infer_body(2)},
           net::Responder(
               [&](const net::Response&) { ++answers; },
               [&](net::Responder::OnDisconnect callback) { hang_up = std::move(callback); }));
  EXPECT_EQ(executor.waiting(), 1u);
  ASSERT_TRUE(hang_up);
  hang_up();
  EXPECT_EQ(executor.waiting(), 0u);
  EXPECT_EQ(answers, 1) << "the responder is gone with it, whoever hears it";
  hang_up();  // harmless: by contract an answer may be on its way
  auto third = begin("POST", "/v2/models/m/infer", infer_body(3));
  EXPECT_EQ(executor.waiting(), 1u) << "the place is free";
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "3=1");
  EXPECT_EQ(outcome(third.get()), "3=3");
  EXPECT_THAT(registry_.text(),
              HasSubstr("varda_requests_abandoned_total{model=\"m\",version=\"3\"} 1\n"));
  EXPECT_THAT(registry_.text(),
              HasSubstr("nv_inference_exec_count{model=\"m\",version=\"3\"} 2\n"));
}

TEST_F(Serving, BadRequestReturns400AndNamesTheInput) {
  models_.add("m", "1", kModel);
  start();
  EXPECT_EQ(outcome(call("POST", "/v2/models/m/infer", "")),
            "400 the body is empty: send JSON, {\"inputs\": [...]}");
  EXPECT_EQ(
      outcome(call("POST", "/v2/models/m/infer",
                   R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})")),
      "400 input \"x\" takes shape [-1,1], not [1,2]");
  EXPECT_EQ(
      outcome(call(
          "POST", "/v2/models/m/infer",
          R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}],"outputs":[{"name":"z"}]})")),
      "400 the model has no output \"z\"");
  EXPECT_EQ(call("GET", "/v2/models/m/infer").status, 405);
  EXPECT_EQ(call("GET", "/v3").status, 404);
}

TEST_F(Serving, BinaryTensorsAreReadAndWritten) {
  models_.add("m", "1", std::string(kModel) + "scale 2\n");
  start();
  oip::InferRequest request;
  request.encoding = oip::Encoding::kBinary;
  const std::array<float, 2> values = {1.5f, -2};
  request.inputs = {{"x", tensor::Tensor::of<float>(tensor::DType::kFp32, {2, 1}, values).value()}};
  const oip::Message message = oip::write_infer_request(request);
  const net::Response response =
      call("POST", "/v2/models/m/infer", message.body,
           {{std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}});
  ASSERT_EQ(response.status, 200) << response.body;
  const auto answer = oip::parse_infer_response(std::make_shared<const std::string>(response.body),
                                                response.headers.find(oip::kJsonLengthHeader))
                          .value();
  EXPECT_EQ(answer.outputs[0].tensor.values<float>()[1], -4.0f);
  EXPECT_THAT(registry_.text(), HasSubstr("nv_inference_count{model=\"m\",version=\"1\"} 2\n"));
}

TEST_F(Serving, InvalidUtf8OutputNeedsBinaryEncoding) {
  models_.add("m", "1", "tensor BYTES -1\n");
  start();
  const auto send = [&](const std::string& parameters, const std::string& bytes) {
    const std::string json =
        R"({"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":)" +
        std::to_string(4 + bytes.size()) + "}}]" + parameters + "}";
    const std::string length{static_cast<char>(bytes.size()), 0, 0, 0};
    return call("POST", "/v2/models/m/infer", json + length + bytes,
                {{std::string(oip::kJsonLengthHeader), std::to_string(json.size())}});
  };
  const std::string raw = "a\xff\xfe";
  const net::Response refused = send("", raw);
  EXPECT_EQ(refused.headers.find("Content-Type"), "application/json");
  EXPECT_THAT(outcome(refused), HasSubstr("400 output \"y\" has bytes that are not UTF-8"));
  EXPECT_THAT(outcome(refused), HasSubstr("binary_data_output"));
  for (const char* binary : {R"(,"parameters":{"binary_data_output":true})",
                             R"(,"outputs":[{"name":"y","parameters":{"binary_data":true}}])"}) {
    const net::Response answer = send(binary, raw);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const auto read = oip::parse_infer_response(std::make_shared<const std::string>(answer.body),
                                                answer.headers.find(oip::kJsonLengthHeader));
    EXPECT_EQ(read.value().outputs[0].tensor.strings()[0], raw);
  }
  const net::Response plain = send("", "ü");
  ASSERT_EQ(plain.status, 200) << plain.body;
  EXPECT_EQ(codec::parse_json(plain.body)->at("outputs/0/data/0").as_string(), "ü");
}

TEST_F(Serving, DrainingServerIsNotReadyButAnswers) {
  models_.add("m", "1", kModel);
  start();
  for (const char* path : {"/v2/health/ready", "/readyz", "/v2/models/m/ready"})
    EXPECT_EQ(call("GET", path).status, 200) << path;
  draining_ = true;
  for (const char* path : {"/v2/health/ready", "/readyz", "/v2/models/m/ready"})
    EXPECT_EQ(call("GET", path).status, 503) << path;
  for (const char* path : {"/v2/health/live", "/healthz"})
    EXPECT_EQ(call("GET", path).status, 200) << path;
  EXPECT_EQ(infer(), "1=1");
}

TEST_F(Serving, MetadataDescribesTheModel) {
  models_.add("m", "1", kModel);
  start();
  EXPECT_EQ(
      call("GET", "/v2/models/m").body,
      R"({"name":"m","versions":["1"],"platform":"echo_echo","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],)"
      R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]})");
}

TEST_F(Serving, NoRequestFailsWhileVersionsSwitch) {
  models_.add("m", "3", std::string(kModel) + "scale 3\n");
  models_.add("m", "4", std::string(kModel) + "scale 4\n");
  models_.target("m", "3");
  start();
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0}, wrong{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      while (!stop) {
        const std::string got = infer();
        ++sent;
        if (got != "3=3" && got != "4=4") ++wrong;
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    models_.target("m", i % 2 == 0 ? "4" : "3");
    settle();
  }
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (sent <= 10 && ctx.check().ok()) std::this_thread::yield();
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(sent, 10);
}

}  // namespace serving_test
}  // namespace varda::serving
