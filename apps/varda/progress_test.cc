#include "progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "os/testing/child.h"

namespace varda::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HumanBytes, UnitKeepsNumbersBelow1024) {
  const std::pair<std::uint64_t, const char*> cases[] = {
      {0, "0 B"},
      {1, "1 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {1536, "1.5 KiB"},
      {1'468'006, "1.4 MiB"},
      {(1 << 20) - 1, "1.0 MiB"},  // and not "1024.0 KiB"
      {1023 << 10, "1023.0 KiB"},
      {std::uint64_t{1} << 30, "1.0 GiB"},
      {std::uint64_t{5} << 40, "5.0 TiB"},
      {std::uint64_t{3} << 50, "3.0 PiB"},
      {UINT64_MAX, "16.0 EiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(human_bytes(bytes), text) << bytes;
}

TEST(ProgressBar, BarPrintsNothingWithoutATerminal) {
  const os::testing::Ended ended = os::testing::run_in_child([] {
    ProgressBar bar("model");
    bar.update("downloading", 1, 2);
    bar.clear();
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

/// Returns the text that `draw` writes to a terminal.
std::string on_terminal(const std::function<void(ProgressBar&)>& draw) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  CHECK(terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  const std::string name = ::ptsname(terminal);
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    const int end = ::open(name.c_str(), O_RDWR | O_NOCTTY);
    termios raw{};
    if (end < 0 || ::tcgetattr(end, &raw) != 0) return 1;
    ::cfmakeraw(&raw);
    if (::tcsetattr(end, TCSANOW, &raw) != 0 || ::dup2(end, STDERR_FILENO) < 0) return 2;
    ProgressBar bar("model");
    draw(bar);
    std::fputs("<end>", stderr);
    // The child reads here, since a terminal drops unread text when its last end is closed.
    std::string text;
    char piece[256];
    while (text.find("<end>") == std::string::npos) {
      const ssize_t count = ::read(terminal, piece, sizeof piece);
      if (count <= 0) return 3;
      text.append(piece, static_cast<std::size_t>(count));
    }
    std::printf("%s", text.substr(0, text.find("<end>")).c_str());
    return 0;
  });
  ::close(terminal);
  EXPECT_EQ(ended.code, 0);
  return ended.out;
}

TEST(ProgressBar, BarDrawsProgressAndClearsTheLine) {
  const std::string half =
      on_terminal([](ProgressBar& bar) { bar.update("downloading", 512, 1024); });
  EXPECT_THAT(
      half,
      StartsWith("\r\033[Kmodel downloading [===============               ] 512 B of 1.0 KiB"));
  const std::string cleared = on_terminal([](ProgressBar& bar) {
    bar.update("downloading", 512, 1024);
    bar.clear();
    bar.clear();  // nothing is left to clear
  });
  EXPECT_TRUE(cleared.ends_with("\r\033[K")) << cleared;
  EXPECT_FALSE(cleared.ends_with("\r\033[K\r\033[K")) << cleared;
}

TEST(ProgressBar, UnknownAndExceededTotalsAreDrawn) {
  const std::string unknown = on_terminal([](ProgressBar& bar) { bar.update("saving", 2048, 0); });
  EXPECT_THAT(unknown, StartsWith("\r\033[Kmodel saving 2.0 KiB"));
  const std::string beyond =
      on_terminal([](ProgressBar& bar) { bar.update("downloading", 3072, 1024); });
  EXPECT_THAT(beyond, HasSubstr("[==============================] 3.0 KiB of 1.0 KiB"));
}

}  // namespace
}  // namespace varda::app
