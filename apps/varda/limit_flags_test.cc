#include "limit_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/parse.h"

namespace varda::app {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Limits>
std::string parse_limits(Limits& limits, const std::vector<std::string>& arguments) {
  return testing::parse([&](CLI::App& parser) { add_limit_flags(parser, limits); }, arguments);
}

TEST(ApiLimits, EachFlagSetsItsLimit) {
  ApiLimits limits;
  const std::string wrong =
      parse_limits(limits, {"--request-bytes-max=1", "--object-bytes-max=2", "--header-bytes-max=3",
                            "--connections-max=4", "--header-timeout=0.5", "--idle-timeout=6",
                            "--write-timeout=86400", "--json-depth-max=8", "--patch-operations-max",
                            "9", "--watches-max=10", "--watch-queue-events-max=11",
                            "--history-events-max", "12", "--history-bytes-max=13",
                            "--events-max=14", "--handler-threads=15", "--handler-queue-max=16"});
  ASSERT_EQ(wrong, "");
  EXPECT_EQ(limits.api.body_bytes_max, 1u);
  EXPECT_EQ(limits.api.object_bytes_max, 2u);
  EXPECT_EQ(limits.http.header_bytes_max, 3u);
  EXPECT_EQ(limits.http.connections_max, 4u);
  EXPECT_EQ(limits.http.header_timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(limits.http.idle_timeout, std::chrono::seconds(6));
  EXPECT_EQ(limits.http.write_timeout, std::chrono::hours(24));
  EXPECT_EQ(limits.api.json_depth_max, 8u);
  EXPECT_EQ(limits.api.patch_operations_max, 9u);
  EXPECT_EQ(limits.api.watches_max, 10u);
  EXPECT_EQ(limits.store.watch_queue_events_max, 11u);
  EXPECT_EQ(limits.store.history_events_max, 12u);
  EXPECT_EQ(limits.store.history_bytes_max, 13u);
  EXPECT_EQ(limits.api.events_max, 14u);
  EXPECT_EQ(limits.api.handler_threads, 15u);
  EXPECT_EQ(limits.api.handler_queue_max, 16u);
}

TEST(ApiLimits, DefaultsApplyWithoutFlags) {
  ApiLimits limits;
  const ApiLimits usual;
  ASSERT_EQ(parse_limits(limits, {}), "");
  EXPECT_EQ(limits.api.body_bytes_max, usual.api.body_bytes_max);
  EXPECT_EQ(limits.http.idle_timeout, usual.http.idle_timeout);
}

TEST(Limits, NumbersMustBeDecimalAndPositive) {
  for (const char* number :
       {"0", "-1", "-18446744073709551615", "+5", "010", "0x10", "1e3", "1.5", "5k", "5 ", " 5", "",
        "nan", "inf", "18446744073709551616", "99999999999999999999999999"}) {
    ApiLimits api;
    EXPECT_THAT(parse_limits(api, {std::string("--watches-max=") + number}),
                HasSubstr("--watches-max"))
        << '"' << number << '"';
    NodeLimits node;
    EXPECT_THAT(parse_limits(node, {std::string("--archive-bytes-max=") + number}),
                HasSubstr("--archive-bytes-max"))
        << number;
    if (number == std::string("0")) continue;
    EXPECT_THAT(parse_limits(node, {std::string("--artifact-bytes-max=") + number}),
                HasSubstr("--artifact-bytes-max"))
        << number;
  }
  NodeLimits node;
  ASSERT_EQ(
      parse_limits(node, {"--archive-bytes-max=18446744073709551615", "--artifact-bytes-max=0"}),
      "");
  EXPECT_EQ(node.archives.archive_bytes_max, UINT64_MAX);
  EXPECT_EQ(node.artifact_bytes_max, 0u);
}

TEST(Limits, TimesMustBeFiniteAndAtMostOneDay) {
  for (const char* seconds :
       {"0", "0.09", "-1", "86400.1", "1e9", "nan", "-nan", "inf", "5s", ""}) {
    ApiLimits limits;
    EXPECT_THAT(parse_limits(limits, {std::string("--idle-timeout=") + seconds}),
                HasSubstr("--idle-timeout"))
        << '"' << seconds << '"';
    EXPECT_EQ(limits.http.idle_timeout, ApiLimits().http.idle_timeout);
  }
}

TEST(NodeLimits, ArgumentsRoundTripToAnotherProcess) {
  NodeLimits limits;
  limits.archives.archive_bytes_max = 1;
  limits.archives.extracted_bytes_max = UINT64_MAX;
  limits.archives.entries_max = 3;
  limits.archives.ratio_max = 4;
  limits.artifact_bytes_max = 5;
  limits.file_roots = {"/srv/models", "/with space,comma"};
  NodeLimits parsed;
  ASSERT_EQ(parse_limits(parsed, arguments_of(limits)), "");
  EXPECT_EQ(parsed.archives.archive_bytes_max, 1u);
  EXPECT_EQ(parsed.archives.extracted_bytes_max, UINT64_MAX);
  EXPECT_EQ(parsed.archives.entries_max, 3u);
  EXPECT_EQ(parsed.archives.ratio_max, 4u);
  EXPECT_EQ(parsed.artifact_bytes_max, 5u);
  EXPECT_EQ(parsed.file_roots, limits.file_roots);
}

TEST(NodeLimits, DefaultsNeedNoArguments) { EXPECT_THAT(arguments_of(NodeLimits()), IsEmpty()); }

TEST(ArchiveLimits, ArchiveFlagsSetLimitsAndExcludeArtifactBytes) {
  artifact::Limits limits;
  ASSERT_EQ(parse_limits(limits, {"--archive-entries-max=7", "--archive-ratio-max=8"}), "");
  EXPECT_EQ(limits.entries_max, 7u);
  EXPECT_EQ(limits.ratio_max, 8u);
  EXPECT_THAT(parse_limits(limits, {"--artifact-bytes-max=1"}), HasSubstr("--artifact-bytes-max"));
}

TEST(AuditFlags, NoAuditLogWithoutAFile) {
  AuditFlags flags;
  ASSERT_EQ(testing::parse([&](CLI::App& parser) { add_audit_flags(parser, flags); },
                           {"--audit-level=Request"}),
            "");
  EXPECT_EQ(audit_options(flags).value(), std::nullopt);
}

TEST(AuditFlags, FlagsSetAuditOptions) {
  AuditFlags flags;
  const auto add = [&](CLI::App& parser) { add_audit_flags(parser, flags); };
  ASSERT_EQ(testing::parse(add, {"--audit-log=logs/../audit.jsonl", "--audit-level=Request",
                                 "--audit-log-bytes-max=10", "--audit-log-files-max=2"}),
            "");
  const auto options = audit_options(flags).value().value();
  EXPECT_EQ(options.file, std::filesystem::current_path() / "audit.jsonl");
  EXPECT_EQ(options.level, apiserver::AuditLevel::kRequest);
  EXPECT_EQ(options.bytes_max, 10u);
  EXPECT_EQ(options.files_max, 2u);
  for (const char* wrong : {"--audit-level=request", "--audit-level=", "--audit-log-bytes-max=0",
                            "--audit-log-files-max=-1"})
    EXPECT_NE(testing::parse(add, {wrong}), "") << wrong;
}

}  // namespace
}  // namespace varda::app
