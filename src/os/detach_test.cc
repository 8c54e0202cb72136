#include "os/detach.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/testing/child.h"

namespace varda::os {
namespace {

using os::testing::Ended;
using os::testing::TestDirectory;
using ::testing::HasSubstr;
using ::testing::Not;

/// Detaches in a test process and returns its end; `background` runs in the detached child.
Ended detaching(const std::filesystem::path& log, const std::function<void(Detached)>& background) {
  return os::testing::run_in_child([&] {
    auto detached = detach(log);
    if (!detached.ok()) {
      std::fprintf(stderr, "%s\n", detached.error().message().c_str());
      return 50;
    }
    background(std::move(detached).value());
    return 51;  // exit code of the background, which no process waits for
  });
}

TEST(Detach, ParentPrintsTheReadyLineAndSucceeds) {
  const TestDirectory root;
  const Ended ended = detaching(root / "log", [](Detached parent) {
    parent.ready("varda is ready: https://127.0.0.1:6443");
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "varda is ready: https://127.0.0.1:6443\n");
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(root.mode("log"), 0600u);
}

TEST(Detach, ParentPrintsTheErrorAndFails) {
  const TestDirectory root;
  const Ended ended =
      detaching(root / "log", [](Detached parent) { parent.failed("the port is taken"); });
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err, "error: the port is taken\n");
}

TEST(Detach, LongMessagesArriveWhole) {
  const TestDirectory root;
  const std::string line(300'000, 'x');  // more than a pipe holds
  const Ended ended = detaching(root / "log", [&](Detached parent) { parent.ready(line); });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.out == line + "\n");
}

TEST(Detach, OnlyTheFirstReportCounts) {
  const TestDirectory root;
  const Ended ended = detaching(root / "log", [](Detached parent) {
    Detached moved = std::move(parent);
    moved.ready("ready");
    moved.failed("later");
    parent.failed("of what was moved from");
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out + ended.err, "ready\n");
}

TEST(Detach, ParentPrintsTheLastLogLinesIfTheChildEndsEarly) {
  const TestDirectory root;
  root.write("log", "of an earlier run\n");
  const Ended ended = detaching(root / "log", [](const Detached&) {
    for (int i = 1; i <= 12; ++i) std::printf("line %d\n", i);
    std::fflush(nullptr);
    ::raise(SIGKILL);
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("error: varda ended before it was ready; the last lines of " +
                                   (root / "log").string() + ":\n"));
  EXPECT_THAT(ended.err, HasSubstr("  line 3\n"));
  EXPECT_TRUE(ended.err.ends_with("  line 12\n")) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("line 2\n")));
  EXPECT_THAT(root.read("log"), HasSubstr("of an earlier run\nline 1\n"));  // appended
}

TEST(Detach, BackgroundProcessLeadsASessionAndWritesToTheLog) {
  const TestDirectory root;
  const Ended ended = detaching(root / "log", [](Detached parent) {
    std::printf("out, leader %d\n", ::getsid(0) == ::getpid());
    std::fprintf(stderr, "err\n");
    char byte = 0;
    std::printf("read %zd\n", ::read(STDIN_FILENO, &byte, 1));
    std::fflush(nullptr);
    parent.ready("");
  });
  EXPECT_EQ(ended.code, 0);
  const std::string log = root.read("log");
  EXPECT_THAT(log, HasSubstr("out, leader 1\n"));
  EXPECT_THAT(log, HasSubstr("err\n"));
  EXPECT_THAT(log, HasSubstr("read 0\n"));
}

TEST(Detach, ALogThatCannotBeOpenedIsAnError) {
  const TestDirectory root;
  const Ended ended = detaching(root / "missing/log", [](const Detached&) {});
  EXPECT_EQ(ended.code, 50);
  EXPECT_THAT(ended.err,
              HasSubstr("open " + (root / "missing/log").string() + ": No such file or directory"));
}

}  // namespace
}  // namespace varda::os
