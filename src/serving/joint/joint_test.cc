// A model with tiers, from the request to the answer: a repository of echo models, and a server above it that does as a test says.
#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <latch>
#include <thread>

#include "base/mutex.h"
#include "codec/image.h"
#include "codec/json.h"
#include "serving/handler.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {
namespace {

using codec::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kModel = "tensor FP32 -1 2\n";
constexpr auto kBig =
    R"({"model_name":"big","model_version":"9","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.125,7]}]})";

// The server above. Thread-safe.
class Cloud {
 public:
  using Answer = std::function<net::Response(const net::Request&)>;

  void handle(net::Request request, net::Responder respond) {
    Answer chosen;
    {
      MutexLock lock(mutex_);
      const bool infers = request.method == "POST";
      if (infers) respond.on_gone([this] { ++ended_; });
      chosen = infers ? infer_ : ready_;
      if (infers) requests_.push_back(request);
      if (infers && holds_) {
        held_.push_back(std::move(respond));
        return;
      }
    }
    respond(chosen(request));
  }
  void infers(Answer answer) {
    MutexLock lock(mutex_);
    infer_ = std::move(answer);
  }
  void infers(int status, const std::string& body) {
    infers([=](const net::Request&) { return net::Response{status, {}, body, nullptr}; });
  }
  void is_ready(int status) {
    MutexLock lock(mutex_);
    ready_ = [=](const net::Request&) { return net::Response{status, {}, "{}", nullptr}; };
  }
  /// From now on requests are not answered, before release().
  void hold() {
    MutexLock lock(mutex_);
    holds_ = true;
  }
  void release() {
    std::vector<net::Responder> held;
    {
      MutexLock lock(mutex_);
      holds_ = false;
      held.swap(held_);
    }
    for (net::Responder& respond : held) respond({200, {}, kBig, nullptr});
  }
  std::vector<net::Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }
  /// Until so many calls were given up by who made them.
  [[nodiscard]] bool wait_for_ended(int count) const {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    while (ended_ < count && ctx.check().ok()) std::this_thread::yield();
    return ended_ >= count;
  }
  void wait_for_requests(std::size_t count) const {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    while (requests().size() < count) ASSERT_TRUE(ctx.check().ok());
  }

 private:
  mutable Mutex mutex_;
  Answer infer_ GUARDED_BY(mutex_) = [](const net::Request&) { return net::Response{200, {}, kBig, nullptr}; };
  Answer ready_ GUARDED_BY(mutex_) = [](const net::Request&) { return net::Response{200, {}, "{}", nullptr}; };
  std::vector<net::Request> requests_ GUARDED_BY(mutex_);
  bool holds_ GUARDED_BY(mutex_) = false;
  std::atomic<int> ended_{0};
  std::vector<net::Responder> held_ GUARDED_BY(mutex_);
};

class Joint : public ::testing::Test {
 protected:
  static std::string policy(const std::string& name, const std::string& parameters = "{}") {
    return R"({"name":")" + name + R"(","parameters":)" + parameters + "}";
  }
  static std::string margin(const std::string& threshold = "0.5") {
    return policy("Margin", R"({"threshold_margin":")" + threshold + "\"}");
  }
  static std::string cascade(const std::string& policy, const std::string& url = "http://cloud", int in_flight_max = 64,
                             int deadline_ms = 60000) {
    return R"({"version":1,"service":"default/m","deadlineMs":)" + std::to_string(deadline_ms) + R"(,"inFlightMax":)" +
           std::to_string(in_flight_max) + R"(,"tiers":[{"name":"edge","policy":)" + policy + R"(},{"name":"cloud","url":")" + url +
           R"(","model":"big"}]})";
  }

  void start(joint::Center::Options options = {.look_interval = std::chrono::hours(1)}) {
    center_ = std::make_unique<joint::Center>(options, joint::Upstream::Clients{*upstream_, *upstream_}, registry_, *rng_);
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {.instances = 2},
                                    .look_interval = std::chrono::hours(1),
                                    .joint = center_.get()},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    handler_ = make_handler({*repository_, registry_, draining_, "varda-serve", {}, center_.get()});
    settle();
  }
  void settle() {
    const Status status = repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }
  void TearDown() override {
    if (center_ != nullptr) center_->stop();
  }

  std::future<net::Response> begin(const std::string& method, const std::string& target, std::string body = "",
                                   net::Headers headers = {}) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    auto future = promise->get_future();
    handler_({.method = method, .target = target, .headers = std::move(headers), .body = std::move(body)},
             net::Responder([promise](net::Response response) { promise->set_value(std::move(response)); }));
    return future;
  }
  // A hard example, and what a connection would call if its client hung up.
  struct Watched {
    std::future<net::Response> answer;
    net::Responder::Gone hang_up;
  };
  Watched begin_watched(std::string body) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    Watched out{promise->get_future(), {}};
    handler_({.method = "POST", .target = "/v2/models/m/infer", .body = std::move(body)},
             net::Responder([promise](net::Response response) { promise->set_value(std::move(response)); },
                            [&out](net::Responder::Gone gone) { out.hang_up = std::move(gone); }));
    return out;
  }
  net::Response call(const std::string& method, const std::string& target, std::string body = "", net::Headers headers = {}) {
    return begin(method, target, std::move(body), std::move(headers)).get();
  }
  // Of one sample: easy for Margin where one of the numbers is much larger than the other.
  static std::string body(float a, float b) {
    return R"({"id":"q","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[)" + std::to_string(a) + "," +
           std::to_string(b) + "]}]}";
  }
  static std::string easy() { return body(1, 0); }
  static std::string hard() { return body(0.5, 0.5); }

  // "VALUE by TIER hard|easy asked … fallback …", or "STATUS message".
  static std::string outcome(const net::Response& response) {
    const Json json = codec::parse_json(response.body).value_or(Json());
    if (response.status != 200) return std::to_string(response.status) + " " + json["error"].as_string();
    const Json& told = std::as_const(json)["parameters"];
    std::string out = codec::write_json(json.at("outputs/0/data/0")) + " by " + told["tier"].as_string() + " " +
                      told["tier_version"].as_string() + (told["hard"].as_bool() ? " hard" : " easy");
    if (!told["asked"].as_string().empty()) out += ", asked " + told["asked"].as_string();
    if (told.contains("fallback")) out += ", fallback " + told["fallback"].as_string();
    return out;
  }
  std::string infer(std::string body) { return outcome(call("POST", "/v2/models/m/infer", std::move(body))); }
  Json told() { return codec::parse_json(call("GET", "/v2/models/m/cascade").body).value_or(Json()); }
  std::string counter(const std::string& path) { return codec::write_json(told().at("counters/" + path)); }
  std::vector<std::string> index() {
    std::vector<std::string> out;
    for (const oip::IndexEntry& e : repository_->index())
      out.push_back(e.name + "/" + e.version + " " + e.state + (e.code.empty() ? "" : " " + e.code));
    return out;
  }
  static std::size_t lines(const std::filesystem::path& file) {
    std::ifstream in(file);
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }

  Cloud cloud_;
  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  std::atomic<bool> draining_{false};
  const std::unique_ptr<net::HttpClient> http_ = net::loopback(
      [this](net::Request request, net::Responder respond) { cloud_.handle(std::move(request), std::move(respond)); });
  net::HttpClient* upstream_ = http_.get();
  const std::unique_ptr<Rng> rng_ = seeded_rng(7);
  std::unique_ptr<joint::Center> center_;
  std::unique_ptr<Repository> repository_;
  net::Handler handler_;
};

TEST_F(Joint, EasyExampleStaysAndHardOneGoesUp) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  EXPECT_EQ(cloud_.requests().size(), 0u);
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  ASSERT_EQ(cloud_.requests().size(), 1u);
  EXPECT_EQ(cloud_.requests()[0].body, hard());
  const Json json = codec::parse_json(call("POST", "/v2/models/m/infer", hard()).body).value();
  EXPECT_EQ(json["model_name"].as_string(), "m") << "users see one model";
  EXPECT_EQ(json["model_version"].as_string(), "3");
  EXPECT_EQ(counter("inferences"), "3");
  EXPECT_EQ(counter("hard"), "2");
  EXPECT_EQ(counter("answered"), R"({"cloud":2,"edge":1})");
  EXPECT_EQ(counter("bytesUp"), std::to_string(2 * hard().size()));
  EXPECT_EQ(told().at("tiers/1/version").as_string(), "9");
  const std::string metrics = registry_.text();
  EXPECT_THAT(metrics, HasSubstr("varda_joint_inferences_total{model=\"m\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_hard_total{model=\"m\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_answered_total{model=\"m\",tier=\"cloud\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("varda_joint_seconds_count{model=\"m\",tier=\"edge\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("nv_inference_request_success{model=\"m\",version=\"3\"} 3\n"));
}

TEST_F(Joint, WithoutTheFileNothingChanges) {
  models_.add("m", "3", kModel);
  start();
  const net::Response response = call("POST", "/v2/models/m/infer", hard());
  EXPECT_EQ(response.body, R"({"model_name":"m","model_version":"3","id":"q","outputs":[{"name":"y","shape":[1,2],)"
                           R"("datatype":"FP32","data":[0.5,0.5]}]})");
  EXPECT_EQ(call("GET", "/v2/models/m/cascade").status, 404);
  EXPECT_THAT(registry_.text(), ::testing::Not(HasSubstr("varda_joint")));
}

TEST_F(Joint, RequestThatNamesAVersionAsksThatOneAlone) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(policy("CloudOnly")));
  start();
  const net::Response response = call("POST", "/v2/models/m/versions/3/infer", hard());
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, ::testing::Not(HasSubstr("parameters")));
  EXPECT_EQ(cloud_.requests().size(), 0u);
}

TEST_F(Joint, BinaryAnswersOfEitherTierHaveTheirParameters) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  const auto ask = [&](std::array<float, 2> values) {
    oip::InferRequest request;
    request.encoding = oip::Encoding::kBinary;
    request.inputs = {{"x", tensor::Tensor::of<float>(tensor::DType::kFp32, {1, 2}, values).value()}};
    const oip::Message message = oip::write_infer_request(request);
    const net::Response response = call("POST", "/v2/models/m/infer", message.body,
                                        {{"Content-Type", "application/octet-stream"},
                                         {std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}});
    EXPECT_EQ(response.headers.find("Content-Type"), "application/octet-stream");
    return oip::parse_infer_response(std::make_shared<const std::string>(response.body),
                                     response.headers.find(oip::kJsonLengthHeader))
        .value();
  };
  EXPECT_EQ(ask({1, 0}).parameters["tier"].as_string(), "edge");
  cloud_.infers([](const net::Request& request) {
    const std::array<float, 1> values = {42};
    const std::array<oip::Encoding, 1> encodings = {oip::Encoding::kBinary};
    const oip::Message message =
        oip::write_infer_response({"big",
                                   "9",
                                   "",
                                   {{"y", tensor::Tensor::of<float>(tensor::DType::kFp32, {1}, values).value()}},
                                   Json::object({{"more", 1}})},
                                  encodings);
    EXPECT_EQ(request.headers.find("Content-Type"), "application/octet-stream");
    return net::Response{200, {{std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}}, message.body, nullptr};
  });
  const oip::InferResponse answer = ask({0.5, 0.5});
  EXPECT_EQ(answer.model_name, "m");
  EXPECT_EQ(answer.outputs[0].tensor.values<float>()[0], 42.0f);
  EXPECT_EQ(codec::write_json(answer.parameters), R"({"more":1,"tier":"cloud","hard":true,"asked":"cloud","tier_version":"9"})");
}

TEST_F(Joint, WhateverGoesWrongAboveTheBestAnswerIsGiven) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  struct Case {
    int status;
    std::string body;
    std::string reason;
  };
  // No breaker opens over the first four.
  for (const Case& c : std::vector<Case>{
           {500, "{}", "Failed"}, {429, "", "Overloaded"}, {404, "{}", "Refused"}, {200, "<html>welcome</html>", "Failed"}}) {
    cloud_.infers(c.status, c.body);
    EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, asked cloud, fallback cloud: " + c.reason) << c.status;
  }
  cloud_.infers(200, kBig);
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  EXPECT_THAT(registry_.text(), HasSubstr("varda_joint_errors_total{model=\"m\",tier=\"cloud\",reason=\"Failed\"} 2\n"));
  EXPECT_EQ(counter("errors/cloud/Failed"), "2");
}

TEST_F(Joint, TierThatFailsAgainAndAgainIsNotAskedAndToldOf) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  cloud_.infers(500, "{}");
  std::string last;
  for (int i = 0; i < 30 && last.find("BreakerOpen") == std::string::npos; ++i) last = infer(hard());
  EXPECT_EQ(last, "0.5 by edge 3 hard, fallback cloud: BreakerOpen");
  EXPECT_EQ(told().at("degraded/reason").as_string(), "BreakerOpen");
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 200) << "the endpoint answers";
}

TEST_F(Joint, TierWithoutAnAddressIsNotAsked) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), ""));
  start();
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, fallback cloud: NoAddress");
  EXPECT_EQ(cloud_.requests().size(), 0u);
}

TEST_F(Joint, SlowTierIsGivenUpAtTheDeadline) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 64, 50));
  start();
  cloud_.hold();
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  // A machine that stands still for so long has no time left to ask at all.
  for (std::string got; got != "0.5 by edge 3 hard, asked cloud, fallback cloud: Timeout";) {
    ASSERT_TRUE(ctx.check().ok()) << got;
    got = infer(hard());
    ASSERT_THAT(got, StartsWith("0.5 by edge 3 hard"));
  }
  cloud_.release();
}

TEST_F(Joint, TheRequestsOwnDeadlineCountsIfItIsSooner) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 64, 3600000));
  start();
  cloud_.hold();
  const std::string body =
      R"({"parameters":{"timeout":50000},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.5,0.5]}]})";
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  // A machine that stands still for so long has no time left to run it, or to ask.
  for (std::string got; got != "0.5 by edge 3 hard, asked cloud, fallback cloud: Timeout";) {
    ASSERT_TRUE(ctx.check().ok()) << got;
    got = infer(body);
  }
  cloud_.release();
}

TEST_F(Joint, AnswersHaveTheIdOfTheirRequestWhateverTheTierAboveSays) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(policy("CloudOnly")));
  start();
  const auto id_of = [&](const std::string& body) {
    return codec::parse_json(call("POST", "/v2/models/m/infer", body).body).value()["id"].as_string();
  };
  EXPECT_EQ(id_of(hard()), "q");
  std::string other = kBig;
  cloud_.infers(200, other.insert(1, R"("id":"of somebody else",)"));
  EXPECT_EQ(id_of(hard()), "q");
  EXPECT_EQ(id_of(R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.5,0.5]}]})"), "");
}

TEST_F(Joint, ManyWordsOfATierAboveDoNotMakeTheStatusLong) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(policy("CloudOnly")));
  start();
  cloud_.infers(200, R"({"model_version":")" + std::string(3000000, 'v') +
                         R"(","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[1]}]})");
  EXPECT_THAT(infer(hard()), StartsWith("1 by cloud vvv"));
  EXPECT_LT(call("GET", "/v2/models/m/cascade").body.size(), 10000u);
}

TEST_F(Joint, NoMoreThanTheBoundAreOnTheirWayUp) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 1));
  start();
  cloud_.hold();
  auto first = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(1);
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 hard, fallback cloud: InFlightLimit");
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  cloud_.release();
  EXPECT_EQ(outcome(first.get()), "0.125 by cloud 9 hard, asked cloud");
}

TEST_F(Joint, ClientThatHangsUpFreesItsPlaceAndEndsTheCall) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 1, 3600000));
  start();
  cloud_.hold();
  Watched first = begin_watched(hard());
  cloud_.wait_for_requests(1);
  ASSERT_TRUE(first.hang_up);
  first.hang_up();
  EXPECT_TRUE(cloud_.wait_for_ended(1)) << "the call upwards has ended too";
  auto second = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(2);  // in the only place there is
  cloud_.release();
  EXPECT_EQ(outcome(second.get()), "0.125 by cloud 9 hard, asked cloud");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (counter("errors") != R"({"cloud":{"ClientGone":1}})") ASSERT_TRUE(ctx.check().ok()) << counter("errors");
  EXPECT_EQ(counter("inferences"), "1");
  EXPECT_EQ(counter("asked"), R"({"cloud":2})");
  EXPECT_EQ(counter("bytesUp"), std::to_string(2 * hard().size()));
  EXPECT_THAT(registry_.text(), HasSubstr("varda_joint_errors_total{model=\"m\",tier=\"cloud\",reason=\"ClientGone\"} 1\n"));
  EXPECT_EQ(center_->alarms(), 0u);
}

TEST_F(Joint, ClientsThatHangUpAgainAndAgainAreNoFaultOfTheTier) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 1, 3600000));
  start();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  cloud_.hold();
  for (std::size_t i = 1; i <= 30; ++i) {
    Watched one = begin_watched(hard());
    cloud_.wait_for_requests(1 + i);
    one.hang_up();
  }
  cloud_.release();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  EXPECT_EQ(told().at("tiers/1/state").as_string(), "Ready");
  EXPECT_FALSE(told().contains("degraded"));
  EXPECT_TRUE(told().at("tiers/1/lastError").is_null());
}

TEST_F(Joint, RequestWhoseClientHangsUpWhileItWaitsIsNotRun) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n", "instances: 1\nwarmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin(), "", 64, 3600000));
  start();
  Executor& executor = repository_->find("m", "").value()->executor();
  executor.expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (executor.waiting() > 0) ASSERT_TRUE(ctx.check().ok());  // it holds the only instance
  Watched second = begin_watched(easy());
  EXPECT_EQ(executor.waiting(), 1u);
  second.hang_up();
  EXPECT_EQ(executor.waiting(), 0u);
  EXPECT_EQ(counter("errors"), R"({"edge":{"ClientGone":1}})");
  EXPECT_EQ(center_->alarms(), 1u) << "the other's";
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(counter("inferences"), "1");
  EXPECT_THAT(registry_.text(), HasSubstr("varda_requests_abandoned_total{model=\"m\",version=\"3\"} 1\n"));
}

TEST_F(Joint, EasyExampleThatIsAnsweredAtOnceAsksForNothing) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(0));  // it runs on this thread
  Watched one = begin_watched(easy());
  EXPECT_FALSE(one.hang_up);
  EXPECT_EQ(outcome(one.answer.get()), "1 by edge 3 easy");
}

TEST_F(Joint, ClientsThatHangUpAtAnyMomentLeaveNothingBehind) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin(), "http://cloud", 4, 3600000));
  start();
  std::vector<std::thread> clients;
  std::atomic<int> hung_up{0};
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      const auto rng = seeded_rng(static_cast<std::uint64_t>(c + 1));
      for (int i = 0; i < 100; ++i) {
        Watched one = begin_watched(hard());
        for (std::uint64_t n = rng->below(200); n > 0; --n) std::this_thread::yield();
        if (rng->below(3) > 0 && one.hang_up) {
          one.hang_up();
          ++hung_up;
        }
        one.answer.get();  // each has its one end
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(hung_up, 0);
  EXPECT_EQ(center_->alarms(), 0u);
  cloud_.hold();
  std::vector<std::future<net::Response>> last;
  const std::size_t before = cloud_.requests().size();
  for (int i = 0; i < 4; ++i) last.push_back(begin("POST", "/v2/models/m/infer", hard()));
  cloud_.wait_for_requests(before + 4);  // all places are free
  cloud_.release();
  for (auto& answer : last) EXPECT_EQ(outcome(answer.get()), "0.125 by cloud 9 hard, asked cloud");
}

// Answers may be large, and whoever writes one may be held up.
TEST_F(Joint, RequestThatIsAnsweredAtItsDeadlineKeepsNoOtherFromItsOwn) {
  // It ends no call, so that only the alarm is left to end the request.
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
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n", "instances: 2\nwarmup: {runs: 0}\n");
  models_.cascade("m",
                  R"({"version":1,"service":"default/m","deadlineMs":500,"inFlightMax":8,"tiers":[{"name":"edge","deadlineMs":1,)"
                  R"("policy":)" +
                      margin() + R"(},{"name":"cloud","url":"http://cloud","model":"big"}]})");
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(1));  // nothing runs on this thread
  std::latch others_answer(1);
  std::promise<void> first;
  handler_({.method = "POST", .target = "/v2/models/m/infer", .body = hard()}, net::Responder([&](const net::Response&) {
             others_answer.wait();
             first.set_value();
           }));
  auto second = begin("POST", "/v2/models/m/infer", hard());
  models_.release("run");
  EXPECT_EQ(second.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  others_answer.count_down();
  first.get_future().get();
  stubborn.end.count_down();
  center_->stop();  // nobody is left in there
}

TEST_F(Joint, PolicyThatDecidesBeforeInferenceSparesTheRunAndFallsBackToIt) {
  const auto runs = models_.path() / ".runs";
  models_.add("m", "3", kModel + ("count_runs " + runs.string() + "\n"), "warmup: {runs: 0}\n");
  models_.cascade("m", cascade(policy("CloudOnly")));
  start();
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 hard, asked cloud");
  EXPECT_EQ(lines(runs), 0u);
  cloud_.infers(500, "{}");
  EXPECT_EQ(infer(easy()), "1 by edge 3 hard, asked cloud, fallback cloud: Failed");
  EXPECT_EQ(lines(runs), 1u);
  models_.cascade("m", cascade(policy("EdgeOnly")));
  settle();
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 easy");
}

TEST_F(Joint, PolicySeesItsOutputWhateverTheRequestAsksFor) {
  models_.add("m", "3", "tensor FP32 -1 2\ntensor FP32 -1 1\n");  // outputs y and y1
  models_.cascade("m", cascade(policy("Margin", R"({"output":"y"})")));
  start();
  const auto ask = [&](const std::string& numbers) {
    return outcome(call("POST", "/v2/models/m/infer",
                        R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":)" + numbers +
                            R"(},{"name":"x1","shape":[1,1],"datatype":"FP32","data":[3]}],"outputs":[{"name":"y1"}]})"));
  };
  EXPECT_EQ(ask("[1,0]"), "3 by edge 3 easy");
  EXPECT_EQ(ask("[0.5,0.5]"), "0.125 by cloud 9 hard, asked cloud");
  EXPECT_EQ(counter("invalid"), "0");
}

TEST_F(Joint, ImageGoesUpAsItCameAndThePolicySeesWhatStepsRead) {
  models_.add("m", "3", kModel,
              "preprocess: {image: {channels: grey, layout: NHW, resize: {width: 2, height: 1, filter: nearest}, scale: 0.1}}\n"
              "postprocess: {softmax: {}, top_k: {k: 1}}\n");
  models_.cascade("m", cascade(margin()));
  start();
  const auto ask = [&](std::vector<std::uint8_t> grey) {
    return call("POST", "/v2/models/m/infer", codec::encode_png({2, 1, 1, std::move(grey)}).value(),
                {{"Content-Type", "image/png"}});
  };
  EXPECT_EQ(outcome(ask({0, 200})), "\"1\" by edge 3 easy") << "answers are what the request gets, not what the policy reads";
  EXPECT_EQ(outcome(ask({100, 101})), "0.125 by cloud 9 hard, asked cloud");
  ASSERT_EQ(cloud_.requests().size(), 1u);
  EXPECT_EQ(cloud_.requests()[0].headers.find("Content-Type"), "image/png");
  EXPECT_EQ(cloud_.requests()[0].body, codec::encode_png({2, 1, 1, {100, 101}}).value());
}

TEST_F(Joint, ModelThatFailsIsHelpedOutAndBadRequestsAreNot) {
  models_.add("m", "3", std::string(kModel) + "fail_run no luck\n", "warmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin()));
  start();
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, asked cloud");
  EXPECT_THAT(infer("{"), StartsWith("400 "));
  EXPECT_EQ(cloud_.requests().size(), 1u);
  cloud_.infers(500, "{}");
  EXPECT_THAT(infer(easy()), HasSubstr("no luck")) << "the first tier's own words";
}

TEST_F(Joint, FullQueueGoesUp) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nqueue: {max: 1}\nwarmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin()));
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (repository_->find("m", "").value()->executor().waiting() > 0) ASSERT_TRUE(ctx.check().ok());
  auto second = begin("POST", "/v2/models/m/infer", easy());
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, asked cloud");
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(outcome(second.get()), "1 by edge 3 easy");
}

TEST_F(Joint, ModelThatHangsIsNotWaitedForBeyondTheDeadline) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n", "instances: 1\nwarmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin(), "", 64, 50));
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(1));
  EXPECT_THAT(infer(easy()), StartsWith("504 "));
  models_.release("run");
}

TEST_F(Joint, NothingIsKeptOfARequestThatWasAnswered) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n", "instances: 1\nwarmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin(), "", 64, 3600000));
  start();
  repository_->find("m", "").value()->executor().expect(std::chrono::seconds(1));  // nothing runs on this thread
  std::vector<std::future<net::Response>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(begin("POST", "/v2/models/m/infer", easy()));
  EXPECT_EQ(center_->alarms(), answers.size()) << "one each";
  models_.release("run");
  for (auto& answer : answers) EXPECT_EQ(outcome(answer.get()), "1 by edge 3 easy");
  EXPECT_EQ(center_->alarms(), 0u) << "their deadline is an hour away";
}

TEST_F(Joint, RequestThatWasAnsweredWhileItWaitedIsNotRun) {
  const auto runs = models_.path() / ".runs";
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\ncount_runs " + runs.string() + "\n",
              "instances: 1\nwarmup: {runs: 0}\n");
  models_.cascade("m", cascade(margin(), ""));
  start();
  const std::shared_ptr<ModelVersion> version = repository_->find("m", "").value();
  version->executor().expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (lines(runs) < 1) ASSERT_TRUE(ctx.check().ok());  // it holds the only instance
  models_.cascade("m", cascade(margin(), "", 64, 50));
  settle();
  // A machine that stands still for so long has no time left to queue it at all.
  while (version->executor().waiting() == 0) {
    ASSERT_TRUE(ctx.check().ok());
    EXPECT_THAT(infer(easy()), StartsWith("504 "));
  }
  EXPECT_EQ(version->executor().waiting(), 1u);
  models_.cascade("m", cascade(margin(), ""));
  settle();
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  EXPECT_EQ(lines(runs), 2u);
}

TEST_F(Joint, VersionThatThePolicyCannotReadIsRefusedAndTheOldOneServes) {
  models_.add("m", "3", kModel);
  models_.target("m", "3");
  models_.cascade("m", cascade(margin()));
  start();
  models_.add("m", "4", "tensor INT64 -1 2\n");
  models_.target("m", "4");
  settle();
  EXPECT_THAT(index(), ElementsAre("m/3 READY", "m/4 UNAVAILABLE PolicyMismatch"));
  EXPECT_EQ(infer(easy()), "1 by edge 3 easy");
  // The file that makes sense of the new version comes later: then both change.
  models_.cascade("m", cascade(policy("EdgeOnly")));
  settle();
  EXPECT_THAT(index(), ElementsAre("m/4 READY"));
  EXPECT_FALSE(told().contains("problem"));
}

TEST_F(Joint, FileThatDoesNotFitLeavesTheOldPolicyInForceAndSaysSo) {
  models_.add("m", "3", "tensor FP32 -1 2\n");
  models_.cascade("m", cascade(margin()));
  start();
  models_.cascade("m", cascade(policy("Margin", R"({"output":"probabilities"})")));
  settle();
  EXPECT_EQ(told().at("problem/reason").as_string(), "PolicyMismatch");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  models_.cascade("m", R"({"version":1,"tiers":[]})");
  settle();
  EXPECT_EQ(told().at("problem/reason").as_string(), "Invalid");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  models_.cascade("m", cascade(margin("0")));
  settle();
  EXPECT_FALSE(told().contains("problem"));
  EXPECT_EQ(infer(hard()), "0.5 by edge 3 easy");
  EXPECT_EQ(counter("inferences"), "3") << "counts outlive what they were counted under";
}

TEST_F(Joint, FileThatFitsNoVersionAtTheStartIsToldInTheIndexAndTiersAboveAnswer) {
  models_.add("m", "3", "tensor INT64 -1 2\n");
  models_.cascade("m", cascade(margin()));
  start();
  EXPECT_THAT(index(), ElementsAre("m/3 UNAVAILABLE PolicyMismatch"));
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, asked cloud");
  models_.cascade("m", cascade(policy("EdgeOnly")));
  settle();
  EXPECT_THAT(index(), ElementsAre("m/3 READY"));
}

TEST_F(Joint, EndpointThatOnlyTiersAboveAnswerIsReadyIfTheyAre) {
  models_.add("m", "3", std::string(kModel) + "fail_load torn\n");
  models_.cascade("m", cascade(margin()));
  cloud_.is_ready(503);
  start({.look_interval = std::chrono::milliseconds(1), .quiet_max = std::chrono::milliseconds(1)});
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (!told().contains("degraded")) ASSERT_TRUE(ctx.check().ok()) << "nobody asks it anything, and still it is known";
  EXPECT_EQ(call("GET", "/v2/models/m/ready").status, 503);
  cloud_.is_ready(200);
  while (call("GET", "/v2/models/m/ready").status != 200) ASSERT_TRUE(ctx.check().ok());
  EXPECT_EQ(infer(easy()), "0.125 by cloud 9 easy, asked cloud");
}

TEST_F(Joint, FileThatGoesAwayLeavesTheModelAlone) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  models_.remove("m/cascade.json");
  settle();
  EXPECT_THAT(call("POST", "/v2/models/m/infer", hard()).body, ::testing::Not(HasSubstr("parameters")));
  EXPECT_EQ(call("GET", "/v2/models/m/cascade").status, 404);
  models_.cascade("m", cascade(margin()));
  settle();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked cloud");
  EXPECT_EQ(counter("inferences"), "2");
}

TEST_F(Joint, TiersInTheMiddleJudgeForThemselves) {
  models_.add("m", "3", kModel);
  models_.cascade("m",
                  R"({"version":1,"service":"default/m","deadlineMs":60000,"inFlightMax":8,"tiers":[{"name":"device","policy":)" +
                      margin() + R"(},{"name":"edge","url":"http://edge","model":"middle","policy":)" + margin("0.9") +
                      R"(},{"name":"cloud","url":"http://cloud","model":"big"}]})");
  start();
  const auto middle = [](const std::string& data) {
    return R"({"model_name":"middle","model_version":"5","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":)" + data +
           "}]}";
  };
  const auto answering = [&](const std::string& data) {
    cloud_.infers([=](const net::Request& request) {
      return net::Response{200, {}, request.target.find("/middle/") != std::string::npos ? middle(data) : kBig, nullptr};
    });
  };
  answering("[0.97,0.03]");
  EXPECT_EQ(infer(hard()), "0.97 by edge 5 hard, asked edge");
  answering("[0.6,0.4]");
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, asked edge,cloud");
  EXPECT_EQ(infer(easy()), "1 by device 3 easy");
  EXPECT_EQ(counter("asked"), R"({"cloud":1,"edge":2})");
  EXPECT_EQ(counter("up"), "2") << "a request that asks two tiers goes up once";
}

TEST_F(Joint, PolicyInTheMiddleThatCannotReadItsTiersAnswersIsToldOf) {
  models_.add("m", "3", kModel);
  models_.cascade("m",
                  R"({"version":1,"service":"default/m","deadlineMs":60000,"inFlightMax":8,"tiers":[{"name":"device","policy":)" +
                      margin() + R"(},{"name":"edge","url":"http://edge","model":"middle","policy":)" + margin("0.9") +
                      R"(},{"name":"cloud","url":"http://cloud","model":"big"}]})");
  start();
  const auto answering = [&](const std::string& outputs) {
    cloud_.infers([=](const net::Request&) {
      return net::Response{200, {}, R"({"model_name":"middle","model_version":"5","outputs":[)" + outputs + "]}", nullptr};
    });
  };
  const auto problem = [&] { return told().at("tiers/1/problem"); };
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
  answering(R"({"name":")" + std::string(100000, 'n') + R"(","shape":[1],"datatype":"INT64","data":[1]})");
  infer(hard());
  EXPECT_LT(problem()["message"].as_string().size(), 1000u);
}

TEST(Misfit, IsShortAndLoggedOnceAMinuteWhateverGoesToAndFro) {
  joint::Misfit misfit;
  SteadyTime now{std::chrono::hours(1)};
  int lines = 0;
  for (int i = 0; i < 1210; ++i, now += std::chrono::milliseconds(100)) {
    misfit.set(i % 2 == 0 ? std::string(1000000, 'n') : "");
    if (i % 2 == 0 && misfit.is_news(now)) ++lines;
  }
  EXPECT_EQ(lines, 3) << "in two minutes";
  misfit.set(std::string(1000000, 'n'));
  EXPECT_LT(misfit.why().size(), 520u);
}

TEST_F(Joint, ServerThatGoesAwayAnswersWithWhatItHas) {
  models_.add("m", "3", kModel);
  models_.cascade("m", cascade(margin()));
  start();
  cloud_.hold();
  auto answer = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(1);
  center_->stop();
  EXPECT_EQ(outcome(answer.get()), "0.5 by edge 3 hard, asked cloud, fallback cloud: Failed");
  EXPECT_THAT(infer(hard()), StartsWith("0.5 by edge 3 hard")) << "nothing goes up any more";
}

TEST_F(Joint, NoRequestFailsWhilePoliciesAddressesAndVersionsChange) {
  models_.add("m", "3", kModel);
  models_.add("m", "4", kModel);
  models_.target("m", "3");
  models_.cascade("m", cascade(margin()));
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
  const std::vector<std::string> files = {cascade(margin("0.9"), "http://other"), cascade(policy("CloudOnly")),
                                          cascade(margin(), ""), cascade(policy("EdgeOnly")), cascade(margin(), "http://cloud", 1)};
  for (std::size_t i = 0; i < 15; ++i) {
    models_.target("m", i % 2 == 0 ? "4" : "3");
    models_.cascade("m", files[i % files.size()]);
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
