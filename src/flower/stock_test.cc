// Flower's protocol with a client of another make: Python's grpcio and protobuf, where Debian's
// python3-grpcio is installed.
#include <array>
#include <cstdio>
#include <gtest/gtest.h>
#include <thread>

#include "flower/adapter.h"
#include "flower/testing/mean_rounds.h"

namespace varda::flower {
namespace stock_test {

using namespace std::chrono_literals;

std::string output_of(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> piece;
  while (pipe && std::fgets(piece.data(), static_cast<int>(piece.size()), pipe))
    out += piece.data();
  if (pipe) ::pclose(pipe);
  return out;
}

TEST(FlowerStock, ThreePythonClientsTrainTwoRounds) {
  if (output_of("/usr/bin/python3 -c 'import grpc; print(1)'") != "1\n")
    GTEST_SKIP() << "python3-grpcio is not installed";
  testing::MeanRounds rounds({.clients = 3, .rounds = 2, .evaluate = true});
  Adapter adapter({}, rounds);
  const auto server = net::GrpcServer::create(
      {}, net::grpc_methods({{std::string(kJoinMethod), adapter.handler()}}));
  ASSERT_TRUE(server.ok());
  std::vector<std::string> outputs(3);
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      clients.emplace_back([&, i] {
        outputs[i] = output_of("/usr/bin/python3 tests/support/flower_wire.py " +
                               (*server)->address() + " " + std::to_string(i + 1) + " 10");
      });
    }
  }
  int asked = 0;
  for (const std::string& output : outputs) {
    asked += output.starts_with("['get_parameters_ins', ") ? 1 : 0;
    EXPECT_TRUE(output.ends_with("'fit_ins', 'fit_ins', 'evaluate_ins', 'reconnect_ins']\n"))
        << output;
  }
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(rounds.weights(), (std::vector<std::vector<float>>{{4, 4}}));
  EXPECT_EQ(rounds.evaluations().size(), 3u);
  (*server)->stop(0ms);
}

}  // namespace stock_test
}  // namespace varda::flower
