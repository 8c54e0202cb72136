#include "broker.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace varda::serve::broker_test {
namespace {

namespace fs = std::filesystem;

class BrokerTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void replace(const fs::path& file, const std::string& text) const {
    std::ofstream(root_ / "next") << text;
    fs::rename(root_ / "next", file);
  }
  const fs::path root_ = fs::path(::testing::TempDir()) / ("broker-" + std::to_string(::getpid()));
};

TEST_F(BrokerTest, BrokerReadsTheCurrentFileContent) {
  const fs::path token = root_ / "token";
  replace(token, "first");
  const auto broker = Broker::start({token}).value();
  EXPECT_EQ(broker->read(token).value(), "first");
  const std::string large(300'000, 'x');
  replace(token, large);
  EXPECT_EQ(broker->read(token).value(), large);
  fs::remove(token);
  EXPECT_EQ(broker->read(token).error().code(), Code::kNotFound);
}

TEST_F(BrokerTest, BrokerRefusesFilesThatWereNotListed) {
  const fs::path token = root_ / "token", other = root_ / "other";
  replace(token, "token");
  replace(other, "secret");
  const auto broker = Broker::start({token}).value();
  for (const fs::path& path :
       {other, root_ / "./other", token.parent_path(), fs::path("/etc/passwd")})
    EXPECT_EQ(broker->read(path).error().code(), Code::kForbidden) << path;
  EXPECT_FALSE(broker->read(root_ / std::string(10'000, 'x')).ok());
  EXPECT_EQ(broker->read(token).value(), "token") << "the broker still answers";
}

TEST_F(BrokerTest, LooksUpNames) {
  const auto broker = Broker::start({}).value();
  EXPECT_EQ(broker->look_up("127.0.0.1").numeric, std::vector<std::string>{"127.0.0.1"});
  const net::HostAddresses unknown = broker->look_up("no such name");
  EXPECT_NE(unknown.error, 0);
  EXPECT_TRUE(unknown.numeric.empty());
}

TEST_F(BrokerTest, RaisesTheOomScoreOfAChildOnly) {
  const auto broker = Broker::start({}).value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_TRUE(broker->sacrifice(child).ok());
  std::ifstream score("/proc/" + std::to_string(child) + "/oom_score_adj");
  int found = 0;
  score >> found;
  EXPECT_EQ(found, 1000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(broker->sacrifice(::getpid()).error().code(), Code::kForbidden);
  EXPECT_EQ(broker->sacrifice(1).error().code(), Code::kForbidden);
}

TEST_F(BrokerTest, BrokerProcessEndsWithTheBrokerObject) {
  pid_t process = 0;
  {
    const auto broker = Broker::start({}).value();
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    children >> process;
  }
  if (process == 0) GTEST_SKIP() << "this kernel does not list children";
  EXPECT_NE(::kill(process, 0), 0);
}

}  // namespace
}  // namespace varda::serve::broker_test
