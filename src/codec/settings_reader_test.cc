#include "codec/settings_reader.h"

#include <gtest/gtest.h>

namespace varda::codec {
namespace {
namespace settings_reader_test {

std::string period_of(Json value, std::chrono::milliseconds* out = nullptr) {
  Status status;
  std::chrono::milliseconds got{0};
  const Json json = Json::object({{"every", std::move(value)}});
  SettingsReader in(json, "a", status);
  in.period("every", got, std::chrono::seconds(1), std::chrono::hours(24 * 30));
  in.end();
  if (out != nullptr) *out = got;
  return status.ok() ? std::to_string(got.count()) : status.error().message();
}

TEST(SettingsReader, PeriodIsANumberOfSecondsOrATextWithUnits) {
  EXPECT_EQ(period_of(90), "90000");
  EXPECT_EQ(period_of(1.5), "1500");
  EXPECT_EQ(period_of("90"), "90000");
  EXPECT_EQ(period_of("90s"), "90000");
  EXPECT_EQ(period_of("2m"), "120000");
  EXPECT_EQ(period_of("1d12h"), "129600000");
}

TEST(SettingsReader, OtherPeriodIsRefused) {
  for (const Json& wrong : {Json(0), Json(-1), Json(1e300), Json(""), Json("2x"), Json("m"),
                            Json("9999999999s"), Json("31d"), Json(true),
                            Json("1m2m3m4m5m6m7m8m9m"
                                 "1m2m3m4m5m6m7m8m")})
    EXPECT_TRUE(period_of(wrong).starts_with("a.every must be a period such as 90s"))
        << write_json(wrong) << ": " << period_of(wrong);
}

TEST(SettingsReader, UnknownNameGetsTheNearestKnownName) {
  const std::vector<std::string> names{"rounds", "roundDeadline", "quorum", "to"};
  EXPECT_EQ(nearest_name("quorom", names), "quorum");
  EXPECT_EQ(nearest_name("Rounds", names), "rounds");
  EXPECT_EQ(nearest_name("round_deadline", names), "roundDeadline");
  EXPECT_EQ(nearest_name("deadline", names), "");
  EXPECT_EQ(nearest_name("x", names), "");
  EXPECT_EQ(nearest_name(std::string(100, 'r'), names), "");
}

TEST(SettingsReader, FirstErrorWins) {
  Status status;
  const Json json = codec::parse_json(R"({"b": 2, "a": "x", "c": 1})").value();
  SettingsReader in(json, "", status);
  std::int64_t a = 7, b = 7;
  in.integer("a", a, 0, 5);
  in.integer("b", b, 0, 5);
  in.end();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message(), "a must be a whole number from 0 to 5, not \"x\"");
  EXPECT_EQ(a, 7);
  EXPECT_EQ(b, 7);
}

}  // namespace settings_reader_test
}  // namespace
}  // namespace varda::codec
