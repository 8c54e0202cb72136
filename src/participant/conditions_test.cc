#include "participant/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "codec/yaml.h"
#include "os/testing/memory_file_system.h"

namespace varda::participant {
namespace {

namespace conditions_test {

using std::chrono::minutes;

When when(const std::string& yaml) {
  auto out = parse_when(codec::parse_yaml(yaml).value());
  EXPECT_TRUE(out.ok()) << out.error();
  return *out;
}
std::string error_of(const std::string& yaml) {
  const auto out = parse_when(codec::parse_yaml(yaml).value());
  return out.ok() ? "accepted" : out.error().message();
}

bool permitted(const When& when, const MachineState& state) { return !reason_to_wait(when, state); }
bool permitted_at(const When& when, int hour, int minute) {
  return permitted(when, {.utc = minutes(60 * hour + minute)});
}

TEST(When, NoConditionAlwaysHolds) {
  EXPECT_TRUE(permitted(parse_when(codec::Json()).value(), {}));
  EXPECT_TRUE(permitted(when("{}"), {}));
}

TEST(When, WindowOfTheDay) {
  const When day = when("window: {start: '08:00', end: '17:30'}");
  EXPECT_FALSE(permitted_at(day, 7, 59));
  EXPECT_TRUE(permitted_at(day, 8, 0));
  EXPECT_TRUE(permitted_at(day, 17, 29));
  EXPECT_FALSE(permitted_at(day, 17, 30));
}

TEST(When, WindowOverMidnight) {
  const When night = when("window: {start: '22:00', end: '06:00', timezone: UTC}");
  EXPECT_TRUE(permitted_at(night, 23, 0));
  EXPECT_TRUE(permitted_at(night, 0, 0));
  EXPECT_TRUE(permitted_at(night, 5, 59));
  EXPECT_FALSE(permitted_at(night, 6, 0));
  EXPECT_FALSE(permitted_at(night, 21, 59));
  EXPECT_EQ(reason_to_wait(night, {.utc = minutes(720)}), "the window is from 22:00 to 06:00 UTC");
}

TEST(When, OpenEndsAndWholeDays) {
  const When evening = when("window: {start: '20:00'}");
  EXPECT_TRUE(permitted_at(evening, 23, 59));
  EXPECT_FALSE(permitted_at(evening, 0, 0));
  const When whole = when("window: {start: '00:00', end: '24:00'}");
  EXPECT_TRUE(permitted_at(whole, 0, 0));
  EXPECT_TRUE(permitted_at(whole, 23, 59));
}

TEST(When, LocalTimeIsAnotherClock) {
  const When local = when("window: {start: '08:00', end: '09:00', timezone: local}");
  EXPECT_TRUE(permitted(local, {.utc = minutes(0), .local = minutes(490)}));
  EXPECT_FALSE(permitted(local, {.utc = minutes(490), .local = minutes(0)}));
}

TEST(When, LoadAndPower) {
  const When quiet = when("{idle: 0.5, power: mains}");
  EXPECT_TRUE(permitted(quiet, {.load = 0.5, .mains = true}));
  EXPECT_EQ(reason_to_wait(quiet, {.load = 0.75, .mains = true}), "load 0.75 is above 0.50");
  EXPECT_EQ(reason_to_wait(quiet, {.load = 0, .mains = false}), "the machine runs on battery");
  EXPECT_EQ(reason_to_wait(quiet, {.mains = true}), "the load is unknown");
  EXPECT_EQ(reason_to_wait(quiet, {.load = 0}), "the power supply is unknown");
}

TEST(When, WrongMembersAreNamed) {
  EXPECT_EQ(error_of("window: {start: '25:00'}"),
            "window.start must be a time such as \"22:00\", not \"25:00\"");
  EXPECT_EQ(error_of("window: {end: '24:01'}"),
            "window.end must be a time such as \"22:00\", not \"24:01\"");
  EXPECT_THAT(error_of("window: {timezone: CET}"), ::testing::HasSubstr("window.timezone"));
  EXPECT_THAT(error_of("power: sun"), ::testing::HasSubstr("power"));
  EXPECT_THAT(error_of("idle: -1"), ::testing::HasSubstr("idle"));
  EXPECT_THAT(error_of("moon: full"), ::testing::HasSubstr("moon"));
}

class WallClock final : public Clock {
 public:
  SteadyTime now() const override { return {}; }
  WallTime wall() const override { return WallTime(std::chrono::hours(24 * 365) + minutes(615)); }
};

class MachineFiles : public ::testing::Test {
 protected:
  void write(const os::Path& path, const std::string& text) {
    ASSERT_TRUE(fs.make_directories(path.parent_path(), 0755).ok());
    ASSERT_TRUE(os::write_file_atomically(fs, path, text).ok());
  }
  void supply(const std::string& name, const std::string& type, const std::string& file,
              const std::string& text) {
    write("/sys/class/power_supply/" + name + "/type", type + "\n");
    write("/sys/class/power_supply/" + name + "/" + file, text + "\n");
  }
  MachineState look() { return make_machine(fs, clock)->look(); }

  os::testing::MemoryFileSystem fs;
  const WallClock clock{};
};

TEST_F(MachineFiles, LoadAndTimeAreRead) {
  write("/proc/loadavg", "1.73 0.90 0.50 2/311 4711\n");
  const MachineState state = look();
  EXPECT_EQ(state.load, 1.73);
  EXPECT_EQ(state.utc, minutes(615));
}

TEST_F(MachineFiles, MachineWithoutBatteryHasMains) {
  EXPECT_EQ(look().mains, true);
  EXPECT_FALSE(look().load);
  supply("mouse", "Battery", "scope", "Device");
  EXPECT_EQ(look().mains, true) << "the battery of a mouse";
}

TEST_F(MachineFiles, AdapterDecidesBesideABattery) {
  supply("BAT0", "Battery", "status", "Discharging");
  EXPECT_EQ(look().mains, false);
  supply("AC", "Mains", "online", "0");
  EXPECT_EQ(look().mains, false);
  supply("AC", "Mains", "online", "1");
  EXPECT_EQ(look().mains, true);
}

TEST_F(MachineFiles, ChargingBatteryMeansMains) {
  supply("BAT0", "Battery", "status", "Charging");
  EXPECT_EQ(look().mains, true);
}

}  // namespace conditions_test

}  // namespace
}  // namespace varda::participant
