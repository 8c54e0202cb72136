#include "agent/datasets/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/kind.h"
#include "codec/json.h"

namespace varda::agent::datasets {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const WallTime kNow = WallTime(std::chrono::hours(24 * 365 * 55));

dataset::Counted counted(std::map<std::string, std::uint64_t> classes = {},
                         std::uint64_t further = 0) {
  dataset::Counted out;
  out.tally.samples = 5;
  out.tally.has_classes = true;
  out.tally.classes = std::move(classes);
  out.tally.further_classes = further;
  out.bytes = 100;
  out.fingerprint = "xxh3:1";
  return out;
}

TEST(DatasetReport, ClassesBeyondTheLimitAreSummed) {
  std::map<std::string, std::uint64_t> classes;
  for (int i = 100; i < 200; ++i) classes["class " + std::to_string(i)] = 2;
  api::EdgeDatasetReport report;
  put_figures(counted(classes, 7), 64, kNow, report);
  ASSERT_EQ(report.classes.size(), 64U);
  EXPECT_EQ(report.classes.front().name, "class 100");
  EXPECT_EQ(report.classes.back().name, "class 163");
  EXPECT_EQ(report.further_classes, 36 * 2 + 7);
}

TEST(DatasetReport, ClassNamesBecomeValidAndUnique) {
  const std::string longest(256, 'x'), wide = longest + "\xC3\xA4";
  api::EdgeDatasetReport report;
  put_figures(
      counted({{"", 1}, {"\xFF", 1}, {"\xFE", 2}, {longest, 4}, {wide, 8}, {"\xC3\xA4", 16}}), 64,
      kNow, report);
  std::map<std::string, std::int64_t> published;
  for (const auto& one : report.classes) published[one.name] = one.count;
  const std::map<std::string, std::int64_t> expected = {
      {"\xEF\xBF\xBD", 3}, {longest, 12}, {"\xC3\xA4", 16}};
  EXPECT_EQ(published, expected);
  EXPECT_EQ(report.classes.size(), expected.size()) << "a name stands once";
  EXPECT_EQ(report.further_classes, 1);
}

TEST(DatasetReport, TimeChangesOnlyWithTheFingerprint) {
  api::EdgeDatasetReport report;
  put_figures(counted(), 64, kNow, report);
  EXPECT_EQ(report.time, "2024-12-18T00:00:00Z");
  const std::string first = report.time;
  dataset::Counted same = counted();
  same.tally.inexact = "a folder cannot be listed";
  put_figures(same, 64, kNow + std::chrono::hours(1), report);
  EXPECT_EQ(report.time, first);
  EXPECT_EQ(report.inexact, "a folder cannot be listed");
  dataset::Counted other = counted();
  other.fingerprint = "xxh3:2";
  put_figures(other, 64, kNow + std::chrono::hours(1), report);
  EXPECT_EQ(report.time, "2024-12-18T01:00:00Z");
  // The clock of a node may be set back: a changed report may have an earlier time.
  put_figures(counted(), 64, kNow - std::chrono::hours(1), report);
  EXPECT_EQ(report.time, "2024-12-17T23:00:00Z");
}

TEST(DatasetReport, TextIsCutBetweenCharactersAndIsAlwaysUtf8) {
  struct Case {
    std::string text;
    std::size_t max;
    std::string expected;
  };
  const std::string bad = "\xEF\xBF\xBD";
  const std::vector<Case> cases = {
      {"abc", 3, "abc"},
      {"abc", 2, "ab"},
      {"a\xC3\xA4", 2, "a"},
      {"\xE2\x82\xAC", 3, "\xE2\x82\xAC"},
      {"\xF0\x9F\x98\x80!", 4, "\xF0\x9F\x98\x80"},
      {"\xF0\x9F\x98\x80", 3, ""},
      {"a\x80z", 9, "a" + bad + "z"},
      {"\xC0\xAF", 9, bad + bad},                       // overlong
      {"\xED\xA0\x80", 9, bad + bad + bad},             // a surrogate
      {"\xF4\x90\x80\x80", 12, bad + bad + bad + bad},  // beyond Unicode
      {"\xE2\x82", 9, bad + bad},                       // ends too early
  };
  for (const Case& one : cases) EXPECT_EQ(fit(one.text, one.max), one.expected) << one.text;
}

TEST(DatasetReport, FailureNamesPathAndAllowedRoots) {
  struct Case {
    std::string claim, path;
    std::vector<os::Path> roots;
    Error error;
    std::string reason;
    std::vector<std::string> substrings;
    std::string hides;
  };
  const Error missing(Code::kNotFound, "/data/a: No such file or directory");
  const std::vector<Case> cases = {
      {"not there",
       "/data/a",
       {"/data"},
       missing,
       "PathNotFound",
       {"/data/a: No such", "paths below /data"},
       ""},
      {"below a root with a slash",
       "/data/a",
       {"/data/"},
       missing,
       "PathNotFound",
       {"/data/a"},
       ""},
      {"not there, and not allowed either",
       "/etc/a",
       {"/data", "/srv"},
       Error(Code::kNotFound, "/etc/a: No such file"),
       "PathForbidden",
       {"/etc/a may not be read", "/data, /srv"},
       "No such"},
      {"another folder's name begins like a root",
       "/database",
       {"/data"},
       missing,
       "PathForbidden",
       {"/database"},
       "No such"},
      {"a way out",
       "/data/../etc/a",
       {"/data"},
       missing,
       "PathForbidden",
       {"/data/../etc/a"},
       "No such"},
      {"a link that leads out",
       "/data/a",
       {"/data"},
       Error(Code::kForbidden, "/data/a, which is /etc/a, does not lie below"),
       "PathForbidden",
       {"which is /etc/a", "paths below /data"},
       ""},
      {"a folder where a file is wanted",
       "/data/a",
       {"/data"},
       Error(Code::kInvalid, "/data/a is a folder"),
       "FormatInvalid",
       {"/data/a is a folder"},
       ""},
      {"a disk that breaks",
       "/data/a",
       {"/data"},
       Error(Code::kInternal, "read /data/a: Input/output error"),
       "ReadFailed",
       {"Input/output error"},
       ""},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.claim);
    const Failure failure = failure_of(one.error, one.path, one.roots);
    EXPECT_EQ(failure.reason, one.reason);
    for (const std::string& text : one.substrings) EXPECT_THAT(failure.message, HasSubstr(text));
    if (!one.hides.empty()) {
      EXPECT_THAT(failure.message, Not(HasSubstr(one.hides)));
    }
  }
  EXPECT_EQ(refusal_of("data/a", {"/data"}).reason, "PathForbidden");
  EXPECT_THAT(refusal_of("data/a", {"/data"}).message, HasSubstr("not an absolute path"));
  EXPECT_THAT(refusal_of("/data/a", {}).message, HasSubstr("--dataset-root DIR"));
  EXPECT_EQ(refusal_of("/data/a", {"/data"}).reason, "");
}

TEST(DatasetReport, StatusWithMostDatasetsPassesValidation) {
  const std::string path = "/" + std::string(4094, 'p');
  std::map<std::string, std::uint64_t> classes;
  for (int i = 0; i < 10'000; ++i) classes[std::to_string(i) + std::string(250, 'c')] = 1;
  dataset::Counted big = counted(classes);
  big.tally.first_malformed =
      dataset::Malformed{std::string(4096, '\xFF'), 1, 2, std::string(4096, 'w')};
  big.tally.inexact = std::string(4096, 'i');
  constexpr std::size_t kDatasets = 128;
  api::EdgeNode node;
  node.metadata.name = "edge0";
  for (std::size_t i = 0; i < kDatasets; ++i) {
    api::EdgeDatasetReport report;
    report.key = "datasets.edgeai.io/default/" + std::to_string(i);
    report.state = "Failed";
    const Failure failure = failure_of(Error(Code::kNotFound, path + ": No such file or directory"),
                                       path, {"/", path, path});
    report.reason = failure.reason;
    report.message = failure.message;
    put_figures(big, classes_max(kDatasets), kNow, report);
    node.status.datasets.push_back(report);
  }
  const codec::Json json = node.to_json();
  EXPECT_LT(codec::write_json(json).size(), std::size_t{1} << 20);
  EXPECT_TRUE(codec::parse_json(codec::write_json(json)).ok());
  const auto problems = api::validate(api::EdgeNode::kind(), json);
  EXPECT_TRUE(problems.empty()) << problems.front().message;
}

}  // namespace
}  // namespace varda::agent::datasets
