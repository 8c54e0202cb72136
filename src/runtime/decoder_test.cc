#include "runtime/internal/decoder.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace varda::runtime {
namespace {

using codec::Json;

/// Decodes numbers; throws at "throw" and fails on other texts.
class DecoderTest : public ::testing::Test {
 protected:
  Decoder make(std::size_t cached_max) {
    return Decoder(
        [this](const Json& json) -> Result<std::shared_ptr<const void>> {
          ++decoded_;
          if (json.as_string() == "throw") throw std::runtime_error("thrown by the test");
          if (!json.is_integer()) return Error(Code::kInvalid, "no number");
          return std::shared_ptr<const void>(
              std::make_shared<const std::int64_t>(json.as_integer()));
        },
        cached_max);
  }
  static std::int64_t number(const std::shared_ptr<const void>& object) {
    return object ? *static_cast<const std::int64_t*>(object.get()) : -1;
  }
  static std::shared_ptr<const void> object(std::int64_t value) {
    return std::make_shared<const std::int64_t>(value);
  }
  std::atomic<int> decoded_{0};
};

TEST_F(DecoderTest, MostRecentlyUsedObjectsAreCached) {
  Decoder decoder = make(2);
  const auto one = decoder.add(object(1)), two = decoder.add(object(2));
  EXPECT_EQ(number(decoder.object(one, "1")), 1);
  const auto three = decoder.add(object(3));  // evicts two, the least recently used
  EXPECT_EQ(decoded_, 0);
  EXPECT_EQ(number(decoder.object(one, "1")), 1);
  EXPECT_EQ(number(decoder.object(three, "3")), 3);
  EXPECT_EQ(decoded_, 0);
  EXPECT_EQ(number(decoder.object(two, "2")), 2);
  EXPECT_EQ(decoded_, 1);
  EXPECT_EQ(number(decoder.object(two, "2")), 2);
  EXPECT_EQ(number(decoder.object(three, "3")), 3);
  EXPECT_EQ(decoded_, 1);
  EXPECT_EQ(number(decoder.object(one, "1")), 1);
  EXPECT_EQ(decoded_, 2);
  EXPECT_EQ(decoder.cached(), 2u);
}

TEST_F(DecoderTest, ZeroCapacityDecodesOnEachCall) {
  Decoder decoder = make(0);
  const auto one = decoder.add(object(1));
  const auto held = decoder.object(one, "1");
  EXPECT_EQ(number(decoder.object(one, "1")), 1);
  EXPECT_EQ(decoded_, 2);
  EXPECT_EQ(decoder.cached(), 0u);
  EXPECT_EQ(number(held), 1) << "who holds one keeps it";
}

TEST_F(DecoderTest, UndecodableObjectIsErrorOrNull) {
  Decoder decoder = make(1);
  EXPECT_EQ(decoder.decode(Json("text")).error().message(), "no number");
  EXPECT_EQ(decoder.decode(Json("throw")).error().message(), "exception: thrown by the test");
  EXPECT_EQ(decoder.object(7, "\"throw\""), nullptr);
  EXPECT_EQ(decoder.object(7, "{"), nullptr);
  EXPECT_EQ(decoder.cached(), 0u);
}

TEST_F(DecoderTest, ConcurrentReadsReturnTheRightObject) {
  Decoder decoder = make(3);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(decoder.add(object(i)));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t at = static_cast<std::size_t>(i * (t + 1)) % ids.size();
        EXPECT_EQ(number(decoder.object(ids[at], std::to_string(at))),
                  static_cast<std::int64_t>(at));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(decoder.cached(), 3u);
}

}  // namespace
}  // namespace varda::runtime
