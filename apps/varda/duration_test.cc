#include "duration.h"

#include <gtest/gtest.h>

namespace varda::app {
namespace {

using std::chrono::milliseconds;

TEST(ParseDuration, TakesNumbersWithAndWithoutUnits) {
  const std::pair<const char*, milliseconds> cases[] = {
      {"30s", milliseconds(30'000)},    {"30", milliseconds(30'000)},
      {"5m", milliseconds(300'000)},    {"1h", milliseconds(3'600'000)},
      {"250ms", milliseconds(250)},     {"1.5s", milliseconds(1500)},
      {".5h", milliseconds(1'800'000)}, {"007", milliseconds(7000)},
      {"0", milliseconds(0)},           {"0ms", milliseconds(0)},
      {"1.001s", milliseconds(1001)},  // 1.001 * 1000 is 1000.9999999999999
      {"0.29s", milliseconds(290)},     {"1000000000s", milliseconds(1'000'000'000'000)},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = parse_duration("--wait", text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(ParseDuration, TinyPositiveTimesBecomeOneMillisecond) {
  for (const char* text : {"0.1ms", "0.0001s", "0.000000001h"})
    EXPECT_EQ(parse_duration("--wait", text).value(), milliseconds(1)) << text;
}

TEST(ParseDuration, InvalidTimesAreRefused) {
  const std::string huge(400, '9');
  for (const std::string& text : {std::string(),
                                  std::string("s"),
                                  std::string("."),
                                  std::string("-1s"),
                                  std::string("-0"),
                                  std::string("+5s"),
                                  std::string(" 5s"),
                                  std::string("5 s"),
                                  std::string("5s "),
                                  std::string("5s\n"),
                                  std::string("5sec"),
                                  std::string("5S"),
                                  std::string("1d"),
                                  std::string("1h30m"),
                                  std::string("1,5s"),
                                  std::string("1.2.3"),
                                  std::string("1e3s"),
                                  std::string("0x10"),
                                  std::string("inf"),
                                  std::string("infinity"),
                                  std::string("nan"),
                                  std::string("nans"),
                                  std::string("1000000001s"),
                                  std::string("277778h"),
                                  huge,
                                  huge + "h",
                                  std::string("5s\0", 3)}) {
    const auto parsed = parse_duration("--wait", text);
    ASSERT_FALSE(parsed.ok()) << '"' << text << '"';
    EXPECT_EQ(parsed.error().code(), Code::kInvalid);
    EXPECT_EQ(parsed.error().message(),
              "--wait must be a time such as 30s, 5m or 1h, not \"" + text + "\"");
  }
}

}  // namespace
}  // namespace varda::app
