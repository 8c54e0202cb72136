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

}  // namespace serving_poller_test
}  // namespace varda::agent::models
