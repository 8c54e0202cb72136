// Polls of model servers when the agent stops.
#include "agent/models/serving_poller.h"

#include <gtest/gtest.h>

#include "node/testing/fakes.h"

namespace varda::agent::models {
namespace serving_poller_test {

using std::chrono::seconds;

/// A server with a version and counters. `meet` runs before each answer and may replace it by an
/// error.
class Server final : public net::HttpClient {
 public:
  std::function<Status()> reconcile_with_server;

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    if (reconcile_with_server) TRY_VOID(reconcile_with_server());
    return answers_->send(ctx, std::move(request));
  }

 private:
  const std::unique_ptr<net::HttpClient> answers_ =
      net::loopback(net::inline_handler([](const net::Request& request) {
        net::Response out;
        out.body = request.method == "POST"
                       ? R"([{"name": "digits", "version": "3", "state": "READY"}])"
                       : R"({"counters": {}})";
        return out;
      }));
};

class LastOutput : public ::testing::Test {
 protected:
  void SetUp() override {
    poller_.set({{.key = "default/digits",
                  .model_name = "digits",
                  .url = "http://127.0.0.1:1",
                  .target = "3",
                  .joint = true}});
    poller_.step(Context());
    ASSERT_EQ(poller_.reports().at("default/digits").state, api::EdgeServingReport::kReady);
  }
  void poll(const Context& ctx) {
    clock_.advance(seconds(10));
    poller_.step(ctx);
  }
  int publications() {
    const int before = published_;
    server_.reconcile_with_server = nullptr;
    poller_.poll_counters(Context());
    return published_ - before;
  }

  node::testing::ManualClock clock_;
  Server server_;
  int published_ = 0;
  ServingPoller poller_{server_,
                        {.clock = &clock_},
                        [] {},
                        [this](const std::string&, const auto&) { ++published_; }};
};

TEST_F(LastOutput, FinalPollIncludesServerInterruptedByStop) {
  server_.reconcile_with_server = []() -> Status { return Error(Code::kTimeout, "late"); };
  poll(Context());
  std::stop_source end;
  server_.reconcile_with_server = [&]() -> Status {
    end.request_stop();
    return Error(Code::kCancelled, "the agent ends");
  };
  poll(Context(end.get_token()));
  EXPECT_EQ(poller_.reports().at("default/digits").state, api::EdgeServingReport::kReady);
  EXPECT_EQ(publications(), 1);
}

TEST_F(LastOutput, FinalPollSkipsServerAfterSecondTimeout) {
  server_.reconcile_with_server = []() -> Status { return Error(Code::kTimeout, "late"); };
  poll(Context());
  EXPECT_EQ(publications(), 1);
  server_.reconcile_with_server = []() -> Status { return Error(Code::kTimeout, "gone"); };
  poll(Context());
  EXPECT_EQ(poller_.reports().at("default/digits").state, api::EdgeServingReport::kUnreachable);
  EXPECT_EQ(publications(), 0);
}

class TrialPolls : public ::testing::Test {
 protected:
  void start(const std::string& trial) {
    poller_.set({{.key = "default/digits",
                  .model_name = "digits",
                  .url = "http://127.0.0.1:1",
                  .target = "3",
                  .trial = trial}});
    poller_.step(Context());
  }
  void poll_after(std::chrono::milliseconds time) {
    clock_.advance(time);
    poller_.step(Context());
  }
  api::ModelTrialStatus report() { return poller_.trials().at("default/digits"); }

  node::testing::ManualClock clock_;
  int status_ = 200;
  std::string body_;
  int changes_ = 0;
  const std::unique_ptr<net::HttpClient> server_ =
      net::loopback(net::inline_handler([this](const net::Request& request) {
        net::Response out;
        if (request.path() == "/v2/models/digits/trial") {
          out.status = status_;
          out.body = body_;
          return out;
        }
        out.body = R"([{"name": "digits", "version": "3", "state": "READY"}])";
        return out;
      }));
  ServingPoller poller_{*server_, {.clock = &clock_}, [this] { ++changes_; }};
};

TEST_F(TrialPolls, NoTrialIsNotAskedFor) {
  body_ = R"({"version": "4", "state": "Ready"})";
  start("");
  EXPECT_TRUE(poller_.trials().empty());
}

TEST_F(TrialPolls, LoadingTrialIsPolledSoon) {
  body_ = R"({"version": "4", "mode": "shadow", "state": "Loading"})";
  start("{}");
  EXPECT_EQ(report().state, "Loading");
  body_ = R"({"version": "4", "mode": "shadow", "state": "Ready"})";
  poll_after(std::chrono::milliseconds(300));
  EXPECT_EQ(report().state, "Ready");
}

TEST_F(TrialPolls, CountsAloneAreReportedAtMostEveryTwoSeconds) {
  body_ = R"({"version": "4", "mode": "shadow", "state": "Ready", "answers": 1})";
  start("{}");
  const int before = changes_;
  body_ = R"({"version": "4", "mode": "shadow", "state": "Ready", "answers": 2})";
  start("{ }");  // another file: polled at once
  EXPECT_EQ(report().answers, 1);
  EXPECT_EQ(changes_, before);
  poll_after(std::chrono::seconds(2));
  EXPECT_EQ(report().answers, 2);
  EXPECT_GT(changes_, before);
}

TEST_F(TrialPolls, OldServerFailsTheTrial) {
  status_ = 404;
  body_ = R"({"error": "there is nothing at /v2/models/digits/trial"})";
  start(R"({"version": "4"})");
  EXPECT_EQ(report().state, "Failed");
  EXPECT_EQ(report().reason, "TrialUnsupported");
  EXPECT_EQ(report().version, "4");
}

TEST_F(TrialPolls, SenselessAnswerIsNoReport) {
  for (const char* body : {"[]", "{", R"({"version": 4, "state": "Ready"})"}) {
    body_ = body;
    start(body);
    EXPECT_TRUE(poller_.trials().empty()) << body;
  }
}

class SamplePolls : public ::testing::Test {
 protected:
  void start(bool samples) {
    poller_.set({{.key = "default/digits",
                  .model_name = "digits",
                  .url = "http://127.0.0.1:1",
                  .target = "3",
                  .samples = samples}});
    poller_.step(Context());
  }
  /// The time to the next poll.
  Duration pause() const { return *poller_.due() - clock_.now(); }
  void poll_after(Duration time) {
    clock_.advance(time);
    poller_.step(Context());
  }

  node::testing::ManualClock clock_;
  std::string version_ = "3";
  const std::unique_ptr<net::HttpClient> server_ =
      net::loopback(net::inline_handler([this](const net::Request& request) {
        net::Response out;
        if (request.path() == "/v2/models/digits/samples") {
          out.body = R"({"version": "3", "answers": 1})";
        } else {
          out.body = R"([{"name": "digits", "version": ")" + version_ + R"(", "state": "READY"}])";
        }
        return out;
      }));
  ServingPoller poller_{*server_, {.clock = &clock_}, [] {}};
};

TEST_F(SamplePolls, NewVersionIsPolledMoreOftenForATime) {
  start(/*samples=*/true);
  EXPECT_EQ(pause(), std::chrono::milliseconds(500));
  poll_after(seconds(31));
  EXPECT_EQ(pause(), seconds(2));
  version_ = "2";
  poll_after(seconds(2));
  version_ = "3";
  poll_after(seconds(2));
  EXPECT_EQ(pause(), std::chrono::milliseconds(500));
}

TEST_F(SamplePolls, ServerWithoutSamplesIsPolledSlowly) {
  start(/*samples=*/false);
  EXPECT_EQ(pause(), seconds(2));
}

}  // namespace serving_poller_test
}  // namespace varda::agent::models
