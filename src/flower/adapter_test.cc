#include "flower/adapter.h"

#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "base/testing/eventually.h"
#include "flower/testing/mean_rounds.h"
#include "flower/testing/peer.h"

namespace varda::flower {
namespace adapter_test {

using namespace std::chrono_literals;
using testing::MeanRounds;
using testing::npy;
using testing::Peer;
using Weights = std::vector<std::vector<float>>;

class FlowerAdapter : public ::testing::Test {
 protected:
  void serve(MeanRounds::Options options, Adapter::Options adapter = {}) {
    // In the order of destruction: the adapter uses the former rounds.
    server_.reset();
    adapter_.reset();
    rounds_ = std::make_unique<MeanRounds>(std::move(options));
    adapter_ = std::make_unique<Adapter>(std::move(adapter), *rounds_);
    auto server = net::GrpcServer::create(
        {.message_bytes_max = 64u << 20},
        net::grpc_methods({{std::string(kJoinMethod), adapter_->handler()}}));
    ASSERT_TRUE(server.ok()) << server.error();
    server_ = std::move(server).value();
  }
  ~FlowerAdapter() override {
    if (server_) server_->stop(0ms);
  }
  int port() const { return server_->port(); }

  /// Answers a fit instruction with all weights plus `step`.
  static void train(Peer& peer, float step, std::int64_t examples) {
    const auto fit = peer.read();
    ASSERT_TRUE(fit);
    ASSERT_EQ(fit->kind, 4u);
    std::vector<std::string> tensors;
    for (std::size_t i = 0; i < fit->tensors.size(); ++i) {
      std::vector<float> values = fit->floats(i);
      for (float& value : values) value += step;
      tensors.push_back(npy(values));
    }
    peer.send(testing::fit_answer(tensors, examples));
  }
  static void leave(Peer& peer) {
    const auto end = peer.read();
    ASSERT_TRUE(end);
    ASSERT_EQ(end->kind, 1u);
    EXPECT_EQ(end->seconds, 0);
    peer.send("\x0a\x02\x08\x01");  // DisconnectRes with reason RECONNECT
    EXPECT_EQ(peer.wait_end().grpc_status, 0);
  }

  std::unique_ptr<MeanRounds> rounds_;
  std::unique_ptr<Adapter> adapter_;
  std::unique_ptr<net::GrpcServer> server_;
};

TEST_F(FlowerAdapter, TwoClientsTrainRoundsAndLeave) {
  serve({.clients = 2, .rounds = 3, .evaluate = true, .weights = {{0, 0, 0}, {10}}});
  Peer a(port()), b(port());
  for (int round = 0; round < 3; ++round) {
    train(a, 1, 30);
    train(b, 5, 10);
  }
  for (Peer* peer : {&a, &b}) {
    const auto evaluate = peer->read();
    ASSERT_TRUE(evaluate);
    EXPECT_EQ(evaluate->kind, 5u);
    EXPECT_EQ(evaluate->floats(0), (std::vector<float>{6, 6, 6}));
    peer->send(testing::evaluate_answer(0.25f, 7));
  }
  leave(a);
  leave(b);
  EXPECT_EQ(rounds_->weights(), (Weights{{6, 6, 6}, {16}}));
  const auto evaluations = rounds_->evaluations();
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_EQ(evaluations.begin()->first, "flower/127.0.0.1/0");
  EXPECT_EQ(evaluations.begin()->second.metrics.at("loss"), 0.25);
  EXPECT_TRUE(rounds_->refusals().empty());
  EXPECT_TRUE(eventually("both are gone", [&] { return rounds_->gone().size() == 2; }));
}

TEST_F(FlowerAdapter, SecondCallOfANamedClientEndsTheFirst) {
  serve({.clients = 1, .rounds = 1, .weights = {{2}}},
        {.name_of = [](const net::Peer&) -> Result<std::string> { return "default/worker"; }});
  Peer cut(port());
  ASSERT_TRUE(cut.read());  // the task
  Peer again(port());
  EXPECT_EQ(cut.wait_end().grpc_status, 14);
  train(again, 3, 1);
  leave(again);
  EXPECT_EQ(rounds_->weights(), (Weights{{5}}));
  EXPECT_TRUE(eventually("both calls are over", [&] { return adapter_->clients() == 0; }));
}

TEST_F(FlowerAdapter, ClientWithoutANameIsRefused) {
  serve({.clients = 1, .rounds = 1, .weights = {{2}}},
        {.name_of = [](const net::Peer&) -> Result<std::string> {
          return Error(Code::kUnauthenticated, "no name");
        }});
  Peer stranger(port());
  EXPECT_EQ(stranger.wait_end().grpc_status, 16);
  EXPECT_EQ(adapter_->clients(), 0u);
}

TEST_F(FlowerAdapter, FirstClientGivesTheInitialModel) {
  serve({.clients = 2, .rounds = 1});
  Peer a(port());
  const auto ask = a.read();
  ASSERT_TRUE(ask);
  ASSERT_EQ(ask->kind, 3u);
  Peer b(port());
  a.send(testing::parameters_answer(std::vector<std::string>{npy(std::vector<float>{2, 4})}));
  train(a, 0, 1);
  train(b, 2, 1);
  leave(a);
  leave(b);
  EXPECT_EQ(rounds_->weights(), (Weights{{3, 5}}));
}

TEST_F(FlowerAdapter, BadAnswersAreRefusedAndTheClientStays) {
  const std::vector<float> good = {1, 2};
  const struct {
    const char* what;
    std::string answer;
  } cases[] = {
      {"too few tensors", testing::fit_answer(std::vector<std::string>{}, 1)},
      {"too many tensors", testing::fit_answer(std::vector<std::string>{npy(good), npy(good)}, 1)},
      {"another shape",
       testing::fit_answer(std::vector<std::string>{npy(std::vector<float>(3))}, 1)},
      {"torn array", testing::fit_answer(std::vector<std::string>{npy(good).substr(0, 130)}, 1)},
      {"not NumPy", testing::fit_answer(std::vector<std::string>{"\x80\x04pickle"}, 1)},
      {"NaN",
       testing::fit_answer(std::vector<std::string>{npy(std::vector<float>{1, std::nanf("")})}, 1)},
      {"no examples", testing::fit_answer(std::vector<std::string>{npy(good)}, 0)},
      {"negative examples", testing::fit_answer(std::vector<std::string>{npy(good)}, -5)},
      {"another kind", testing::evaluate_answer(0, 1)},
      {"a status", testing::refusal(4, 3)},
  };
  for (const auto& one : cases) {
    serve({.clients = 1, .rounds = 1, .weights = {{0, 0}}});
    Peer peer(port());
    ASSERT_TRUE(peer.read());
    peer.send(one.answer);
    leave(peer);
    EXPECT_EQ(rounds_->refusals().size(), 1u) << one.what;
    EXPECT_EQ(rounds_->weights(), (Weights{{0, 0}})) << one.what;
    server_->stop(0ms);
  }
}

TEST_F(FlowerAdapter, MalformedMessageEndsTheCall) {
  serve({.clients = 1, .rounds = 1, .weights = {{0}}});
  Peer peer(port());
  ASSERT_TRUE(peer.read());
  peer.send("\xFF");
  EXPECT_EQ(peer.wait_end().grpc_status, 3);
  EXPECT_TRUE(eventually("the client has left", [&] { return rounds_->gone().size() == 1; }));
  EXPECT_EQ(rounds_->refusals().size(), 1u);
}

TEST_F(FlowerAdapter, LostClientLeavesAndGetsItsNameBack) {
  serve({.clients = 3, .rounds = 1, .weights = {{0}}});
  auto a = std::make_unique<Peer>(port());
  ASSERT_TRUE(eventually("the first is here", [&] { return rounds_->present().size() == 1; }));
  Peer b(port());
  ASSERT_TRUE(eventually("the second is here", [&] { return rounds_->present().size() == 2; }));
  a.reset();
  ASSERT_TRUE(eventually("the first is gone", [&] {
    return rounds_->present() == std::set<std::string>{"flower/127.0.0.1/1"};
  }));
  // The name is free only after the rounds know that its client left: a client may come too early.
  std::unique_ptr<Peer> again;
  EXPECT_TRUE(eventually("the name is back", [&] {
    again.reset();
    if (!eventually("one client is here", [&] { return rounds_->present().size() == 1; })) {
      return false;
    }
    again = std::make_unique<Peer>(port());
    return eventually("two clients are here", [&] { return rounds_->present().size() == 2; }) &&
           rounds_->present().contains("flower/127.0.0.1/0");
  }));
}

TEST_F(FlowerAdapter, StopAsksClientsToComeBack) {
  serve({.clients = 2, .rounds = 1, .weights = {{0}}});
  Peer idle(port());
  ASSERT_TRUE(eventually("the client is here", [&] { return rounds_->present().size() == 1; }));
  std::jthread stopper([&] { adapter_->stop(5s, 60s); });
  const auto reconnect = idle.read();
  ASSERT_TRUE(reconnect);
  EXPECT_EQ(reconnect->kind, 1u);
  EXPECT_EQ(reconnect->seconds, 5);
  idle.send("\x0a\x02\x08\x01");
  EXPECT_EQ(idle.wait_end().grpc_status, 0);
  stopper.join();
  EXPECT_EQ(adapter_->clients(), 0u);
  Peer late(port());
  EXPECT_EQ(late.wait_end().grpc_status, 14);
}

TEST_F(FlowerAdapter, AnswerOfAClientInTrainingCountsDuringStop) {
  serve({.clients = 1, .rounds = 5, .weights = {{0}}});
  Peer peer(port());
  const auto fit = peer.read();
  ASSERT_TRUE(fit);
  std::jthread stopper([&] { adapter_->stop(0s, 60s); });
  peer.send(testing::fit_answer(std::vector<std::string>{npy(std::vector<float>{3})}, 1));
  auto next = peer.read();
  // The stop may come after the next instruction.
  while (next && next->kind == 4) {
    peer.send(testing::fit_answer(next->tensors, 1));
    next = peer.read();
  }
  ASSERT_TRUE(next);
  EXPECT_EQ(next->kind, 1u);
  peer.grpc().reset(1);
  stopper.join();
  EXPECT_EQ(rounds_->weights(), (Weights{{3}}));
}

TEST_F(FlowerAdapter, LargeModelTravelsBothWays) {
  const std::vector<float> large(2'000'000, 0.5f);
  serve({.clients = 2, .rounds = 2, .weights = {large}});
  Peer a(port()), b(port());
  std::jthread other([&] {
    train(b, 1, 1);
    train(b, 1, 1);
    leave(b);
  });
  train(a, 3, 1);
  train(a, 3, 1);
  leave(a);
  other.join();
  EXPECT_EQ(rounds_->weights() == Weights{std::vector<float>(2'000'000, 4.5f)}, true);
}

}  // namespace adapter_test
}  // namespace varda::flower
