#include "os/memory.h"

#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/eventually.h"

namespace varda::os {
namespace {

constexpr bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
  return false;
#endif
}

TEST(TrimMemory, TrimReducesResidentMemoryAndKeepsData) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer replaces malloc";
  static std::vector<int> numbers(1 << 18);
  std::iota(numbers.begin(), numbers.end(), 0);
  { const std::vector<std::string> freed(10'000, std::string(1000, 'x')); }
  const std::uint64_t before = resident_bytes();
  trim_memory();
  const std::uint64_t after = resident_bytes();
  EXPECT_LT(after, before);
  EXPECT_GT(after, 0u);
  for (int i = 0; i < static_cast<int>(numbers.size()); i += 1000)
    ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  // Dropped pages return on use. Locale, exceptions and virtual calls use relocated pages, which
  // must have stayed.
  EXPECT_THROW((void)std::stoi("x"), std::invalid_argument);
}

TEST(TrimPolicy, FirstCallTrimsAndLaterCallsNeedGrowth) {
  constexpr std::uint64_t kMiB = 1 << 20;
  TrimPolicy policy;
  EXPECT_TRUE(policy.should_trim(1)) << "what a start needs nobody knows";
  policy.trimmed(5 * kMiB);
  EXPECT_FALSE(policy.should_trim(5 * kMiB));
  EXPECT_FALSE(policy.should_trim(8 * kMiB)) << "some of it is needed at rest";
  EXPECT_TRUE(policy.should_trim(8 * kMiB + 1));
  policy.trimmed(7 * kMiB);  // the heap has grown
  EXPECT_FALSE(policy.should_trim(10 * kMiB));
  EXPECT_TRUE(policy.should_trim(14 * kMiB));
}

TEST(KeepMemoryTrimmed, LoopEndsWithItsContext) {
  const Context brief = Context::background().with_timeout(std::chrono::milliseconds(5));
  keep_memory_trimmed(brief);
  EXPECT_TRUE(brief.expired());

  std::stop_source stop;
  std::atomic<bool> ended{false};
  const std::jthread trimmer([&] {
    keep_memory_trimmed(Context(stop.get_token()));
    ended = true;
  });
  stop.request_stop();
  EXPECT_TRUE(eventually("the trimmer ends", [&] { return ended.load(); }));
}

}  // namespace
}  // namespace varda::os
