#include "command.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session_sources.h"
#include "testing/parse.h"

namespace varda::app {
namespace {

namespace fs = std::filesystem;

/// Sets a variable of the environment, or removes it with null. The destructor restores the
/// variable.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_);
  }

  const char* const name_;
  std::optional<std::string> before_;
};

TEST(DefaultDataDir, FollowsTheEnvironment) {
  struct Case {
    const char *xdg, *home, *expected;
  };
  const Case cases[] = {{"/xdg", "/home/me", "/xdg/varda"},
                        {"", "/home/me", "/home/me/.local/share/varda"},
                        {nullptr, "/home/me", "/home/me/.local/share/varda"},
                        {nullptr, "", nullptr},
                        {nullptr, nullptr, nullptr}};
  for (const Case& one : cases) {
    const Variable xdg("XDG_DATA_HOME", one.xdg), home("HOME", one.home);
    const auto directory = default_data_dir();
    if (one.expected != nullptr) {
      EXPECT_EQ(*directory, one.expected);
      EXPECT_EQ(*data_dir_of(""), one.expected);
      EXPECT_EQ(default_kubeconfig(), fs::path(one.expected) / "kubeconfig");
    } else {
      EXPECT_THAT(directory.error().message(),
                  ::testing::HasSubstr("neither $HOME nor $XDG_DATA_HOME is set"));
      EXPECT_EQ(data_dir_of("").error().code(), Code::kInvalid);
      EXPECT_EQ(default_kubeconfig(), fs::path());
    }
    EXPECT_EQ(*data_dir_of("/a/./b/../c"), "/a/c");
  }
}

TEST(Daemon, DaemonRefusesUnknownLogLevelAndFormat) {
  Globals globals;
  app::Run chosen;
  std::function<Status()> before;
  const auto add = [&](CLI::App& parser) {
    Program{parser, globals, chosen, before}.daemon("serve", "serves");
  };
  ASSERT_EQ(testing::parse(add, {"serve", "--log-level=warn", "--log-format=json"}), "");
  EXPECT_EQ(globals.log_level, "warn");
  EXPECT_EQ(globals.log_format, "json");
  EXPECT_NE(testing::parse(add, {"serve", "--log-level=loud"}), "");
  EXPECT_NE(testing::parse(add, {"serve", "--log-format=xml"}), "");
}

// A node is connected while either server has a watch of it.
TEST(SessionSources, NodeIsConnectedWhileEitherServerHasASession) {
  cluster::NodeSessions sessions;
  std::vector<std::string> changes;
  sessions.on_change([&](const std::string& node) { changes.push_back(node); });
  SessionSources sources(sessions);
  const apiserver::Identity edge{"system:node:edge0", {"system:nodes"}};
  sources.opened(edge);
  sources.opened(std::string("edge0"));
  sources.closed(edge);
  EXPECT_TRUE(sessions.of("edge0").connected);
  EXPECT_EQ(changes.size(), 1u);
  sources.closed(std::string("edge0"));
  EXPECT_FALSE(sessions.of("edge0").connected);
  sources.opened(std::string("edge0"));
  sources.opened(std::string("edge1"));
  EXPECT_TRUE(sessions.of("edge0").connected);
  EXPECT_THAT(changes, ::testing::ElementsAre("edge0", "edge0", "edge0", "edge1"));
}

}  // namespace
}  // namespace varda::app
