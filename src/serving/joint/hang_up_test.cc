// Clients that hang up while a model with tiers serves them.
#include <atomic>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "serving/testing/joint_fixture.h"

namespace varda::serving {
namespace {

using ::testing::HasSubstr;

TEST_F(Joint, ClientThatHangsUpFreesItsPlaceAndEndsTheCall) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 1, 3600000));
  start();
  cloud_.hold();
  Watched first = begin_watched(hard());
  cloud_.wait_for_requests(1);
  ASSERT_TRUE(first.hang_up);
  first.hang_up();
  EXPECT_TRUE(cloud_.wait_for_ended(1)) << "the call upwards has ended too";
  auto second = begin("POST", "/v2/models/m/infer", hard());
  cloud_.wait_for_requests(2);  // holds the only place
  cloud_.release();
  EXPECT_EQ(outcome(second.get()), "0.125 by cloud 9 hard, called cloud");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (counter("errors") != R"({"cloud":{"ClientGone":1}})")
    ASSERT_TRUE(ctx.check().ok()) << counter("errors");
  EXPECT_EQ(counter("inferences"), "1");
  EXPECT_EQ(counter("called"), R"({"cloud":2})");
  EXPECT_EQ(counter("bytesSent"), std::to_string(2 * hard().size()));
  EXPECT_THAT(
      registry_.text(),
      HasSubstr("varda_joint_errors_total{model=\"m\",tier=\"cloud\",reason=\"ClientGone\"} 1\n"));
  EXPECT_EQ(tiers_->timers(), 0u);
}

TEST_F(Joint, ClientsThatHangUpDoNotOpenTheBreaker) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 1, 3600000));
  start();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  cloud_.hold();
  for (std::size_t i = 1; i <= 30; ++i) {
    Watched one = begin_watched(hard());
    cloud_.wait_for_requests(1 + i);
    one.hang_up();
  }
  cloud_.release();
  EXPECT_EQ(infer(hard()), "0.125 by cloud 9 hard, called cloud");
  EXPECT_EQ(reported().at("tiers/1/state").as_string(), "Ready");
  EXPECT_FALSE(reported().contains("degraded"));
  EXPECT_TRUE(reported().at("tiers/1/lastError").is_null());
}

TEST_F(Joint, WaitingRequestOfADisconnectedClientIsNotRun) {
  models_.add("m", "3", std::string(kModel) + "hold_run " + models_.hold("run") + "\n",
              "instances: 1\nwarmup: {runs: 0}\n");
  models_.joint_file("m", joint_file(margin(), "", 64, 3600000));
  start();
  Executor& executor = repository_->find("m", "").value()->executor();
  executor.expect(std::chrono::seconds(1));  // nothing runs on this thread
  auto first = begin("POST", "/v2/models/m/infer", easy());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (executor.waiting() > 0) ASSERT_TRUE(ctx.check().ok());  // holds the only instance
  Watched second = begin_watched(easy());
  EXPECT_EQ(executor.waiting(), 1u);
  second.hang_up();
  EXPECT_EQ(executor.waiting(), 0u);
  EXPECT_EQ(counter("errors"), R"({"edge":{"ClientGone":1}})");
  EXPECT_EQ(tiers_->timers(), 1u) << "the other's";
  models_.release("run");
  EXPECT_EQ(outcome(first.get()), "1 by edge 3 easy");
  EXPECT_EQ(counter("inferences"), "1");
  EXPECT_THAT(registry_.text(),
              HasSubstr("varda_requests_abandoned_total{model=\"m\",version=\"3\"} 1\n"));
}

TEST_F(Joint, ImmediateEasyAnswerRegistersNoDisconnectCallback) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  start();
  repository_->find("m", "").value()->executor().expect(
      std::chrono::seconds(0));  // runs on this thread
  Watched one = begin_watched(easy());
  EXPECT_FALSE(one.hang_up);
  EXPECT_EQ(outcome(one.answer.get()), "1 by edge 3 easy");
}

TEST_F(Joint, ClientsThatHangUpAtAnyMomentLeaveNoState) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin(), "http://cloud", 4, 3600000));
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
        one.answer.get();  // every request ends exactly once
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(hung_up, 0);
  EXPECT_EQ(tiers_->timers(), 0u);
  cloud_.hold();
  std::vector<std::future<net::Response>> last;
  const std::size_t before = cloud_.requests().size();
  for (int i = 0; i < 4; ++i) last.push_back(begin("POST", "/v2/models/m/infer", hard()));
  cloud_.wait_for_requests(before + 4);  // all places are free
  cloud_.release();
  for (auto& answer : last) EXPECT_EQ(outcome(answer.get()), "0.125 by cloud 9 hard, called cloud");
}

}  // namespace
}  // namespace varda::serving
