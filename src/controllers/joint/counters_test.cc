#include "controllers/joint/counters.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::controllers::joint {
namespace counters_test {

using api::JointCounters;
using codec::Json;

Json yaml(std::string_view text) { return codec::parse_yaml(text).value(); }

Count count(std::string node, std::string epoch, std::string_view counters,
            Count::Back back = Count::Back::kOldReport) {
  return {
      .node = std::move(node), .epoch = std::move(epoch), .counters = yaml(counters), .back = back};
}

std::int64_t inferences(const std::vector<JointCounters>& records) {
  return total(records)["inferences"].as_integer();
}

TEST(JointCounters, CountersAreSummedOverNodesPerMember) {
  const auto records =
      gather({}, {count("a", "1", "{inferences: 3, called: {cloud: 1}}"),
                  count("b", "1", "{inferences: 4, called: {cloud: 2, edge: 5}}")});
  EXPECT_EQ(total(records), yaml("{inferences: 7, called: {cloud: 3, edge: 5}}"));
}

TEST(JointCounters, RepeatedCountersChangeNothing) {
  const std::vector<Count> counts = {count("a", "1", "{inferences: 3}"),
                                     count("b", "9", "{inferences: 4}")};
  const auto once = gather({}, counts);
  EXPECT_EQ(gather(once, counts), once);
}

TEST(JointCounters, CountersOfAbsentNodeStay) {
  const auto records = gather(gather({}, {count("a", "1", "{inferences: 3}")}),
                              {count("b", "1", "{inferences: 4}")});
  EXPECT_EQ(inferences(records), 7);
  EXPECT_EQ(inferences(gather(records, {count("a", "1", "{inferences: 5}")})), 9);
}

TEST(JointCounters, NewEpochIsAddedToOldEpoch) {
  auto records = gather({}, {count("a", "1", "{inferences: 3}")});
  records = gather(records, {count("a", "2", "{inferences: 1}")});
  EXPECT_EQ(inferences(records), 4);
}

TEST(JointCounters, AnOldEpochThatComesBackIsNotCountedTwice) {
  auto records = gather({}, {count("a", "1", "{inferences: 3}")});
  records = gather(records, {count("a", "2", "{inferences: 1}")});
  records = gather(records, {count("a", "1", "{inferences: 4}")});
  EXPECT_EQ(inferences(records), 5);
}

TEST(JointCounters, LowerValuesWithinAnEpochAreIgnored) {
  auto records = gather({}, {count("a", "1", "{inferences: 30, hard: 2}")});
  records = gather(records, {count("a", "1", "{inferences: 20, hard: 3}")});
  EXPECT_EQ(total(records), yaml("{inferences: 30, hard: 3}"));
}

TEST(JointCounters, LowerValuesOfAWorkerStartANewSum) {
  const auto worker = [](std::string_view counters) {
    return count("a", "w", counters, Count::Back::kNewStart);
  };
  auto records = gather({}, {worker("{inferences: 30, called: {cloud: 4}}")});
  records = gather(records, {worker("{inferences: 2, called: {cloud: 1}}")});
  EXPECT_EQ(total(records), yaml("{inferences: 32, called: {cloud: 5}}"));
  records = gather(records, {worker("{inferences: 3, called: {cloud: 1}}")});
  EXPECT_EQ(total(records), yaml("{inferences: 33, called: {cloud: 5}}"));
}

TEST(JointCounters, OldEpochsOfANodeAreBounded) {
  std::vector<JointCounters> records;
  for (int epoch = 0; epoch < 100; ++epoch)
    records = gather(records, {count("a", std::to_string(epoch), "{inferences: 1}")});
  EXPECT_EQ(inferences(records), 100);
  EXPECT_EQ(records.size(), 2 + kOldEpochsMax);  // the current one, and the nameless one
}

TEST(JointCounters, WorkersOfSilentNodeAreNotCountedTwice) {
  constexpr int kReplicas = 6;
  const Counting sources{.side_by_side = kReplicas, .nodes = {"a"}};
  std::vector<Count> counts;
  for (int worker = 0; worker < kReplicas; ++worker)
    counts.push_back(
        count("a", "w-" + std::to_string(worker), "{inferences: 10}", Count::Back::kNewStart));
  const auto once = gather({}, counts, sources);
  EXPECT_EQ(inferences(once), 10 * kReplicas);
  const auto unreported = gather(once, {}, sources);
  EXPECT_EQ(inferences(unreported), 10 * kReplicas);
  EXPECT_EQ(gather(unreported, counts, sources), once);
  // The workers return one by one.
  auto records = unreported;
  for (std::size_t some = 1; some <= counts.size(); ++some) {
    records = gather(records, {counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(some)},
                     sources);
    EXPECT_EQ(inferences(records), 10 * kReplicas) << some;
  }
}

TEST(JointCounters, CountersOfSilentNodeAreNotCountedTwiceAfterScaleDown) {
  const Counting one{.side_by_side = 1,
                     .nodes = {"a", "b"}};  // scaled down while the node is silent
  std::vector<Count> counts;
  for (int worker = 0; worker < 30; ++worker)
    counts.push_back(count("a", std::to_string(worker), "{inferences: 1}"));
  const auto records = gather(gather({}, counts, {.side_by_side = 30, .nodes = {"a", "b"}}),
                              {count("b", "1", "{inferences: 1}")}, one);
  EXPECT_EQ(inferences(records), 31);
  EXPECT_EQ(inferences(gather(records, counts, one)), 31);
}

TEST(JointCounters, MostRecentlyReportedEpochIsFoldedLast) {
  // The first worker outlives many others beside it, and then is silent for a moment.
  const Count first = count("a", "first", "{inferences: 100}");
  std::vector<JointCounters> records;
  for (int other = 0; other < 20; ++other)
    records = gather(records, {first, count("a", std::to_string(other), "{inferences: 1}")},
                     {.side_by_side = 2, .nodes = {"a"}});
  records =
      gather(records, {count("a", "19", "{inferences: 1}")}, {.side_by_side = 2, .nodes = {"a"}});
  EXPECT_EQ(inferences(records), 120);
  EXPECT_EQ(inferences(gather(records, {first}, {.side_by_side = 2, .nodes = {"a"}})), 120);
}

TEST(JointCounters, RecordsAreBoundedAndKeepTheSum) {
  std::vector<Count> counts;
  for (std::size_t node = 0; node < kRecordsMax + 100; ++node)
    counts.push_back(count("n" + std::to_string(node), "1", "{inferences: 1}"));
  const auto records = gather({}, counts);
  ASSERT_EQ(records.size(), kRecordsMax - 1);  // one place is left for the nameless record
  EXPECT_EQ(inferences(records), kRecordsMax - 1) << "sources without room are not counted";
  EXPECT_EQ(gather(records, counts), records);
  const std::vector<Count> others(counts.begin() + static_cast<std::ptrdiff_t>(records.size()),
                                  counts.end());
  const auto later = gather(records, others);
  EXPECT_LE(later.size(), kRecordsMax);
  EXPECT_EQ(inferences(later), counts.size());
}

TEST(JointCounters, RecordsOfDepartedNodesAreFoldedForNewNodes) {
  // One node is present but silent, while far more nodes come and go.
  const Count silent = count("silent", "1", "{inferences: 7}");
  std::vector<JointCounters> records = gather({}, {silent});
  constexpr int kNodes = kRecordsMax + 100;
  for (int node = 0; node < kNodes; ++node) {
    const std::string name = "n" + std::to_string(node);
    records = gather(std::move(records), {count(name, "1", "{inferences: 1}")},
                     {.side_by_side = 1, .nodes = {"silent", name}});
  }
  EXPECT_EQ(inferences(records), kNodes + 7);
  EXPECT_LE(records.size(), kRecordsMax);
  records = gather(std::move(records), {silent, count("new", "1", "{inferences: 1}")},
                   {.side_by_side = 1, .nodes = {"silent", "new"}});
  EXPECT_EQ(inferences(records), kNodes + 8);
}

TEST(JointCounters, ExcessRecordsOfOldStatusAreSummed) {
  std::vector<JointCounters> records(2 * kRecordsMax);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].node = "n" + std::to_string(i);
    records[i].counters = yaml("{inferences: 1}");
  }
  records = gather(std::move(records), {});
  EXPECT_LE(records.size(), kRecordsMax);
  EXPECT_EQ(inferences(records), 2 * kRecordsMax);
}

TEST(JointCounters, InvalidCountersAreIgnored) {
  const auto records = gather(
      {},
      {count("a", "1",
             "{inferences: 3, name: text, ratio: 0.5, list: [1], less: -2, deep: {none: null}}")});
  EXPECT_EQ(total(records), yaml("{inferences: 3, deep: {}}"));
}

TEST(JointCounters, InventedNamesInNamelessRecordAreBounded) {
  std::vector<JointCounters> records;
  for (int epoch = 0; epoch < 500; ++epoch) {
    const std::string number = std::to_string(epoch);
    records = gather(
        std::move(records),
        {count("a", number, "{inferences: 1, errors: {cloud: {made-up-" + number + ": 1}}}")});
  }
  ASSERT_EQ(records.front().node, "");
  EXPECT_EQ(records.front().counters["errors"]["cloud"].size(), 64u);
  EXPECT_EQ(inferences(records), 500);
}

TEST(JointCounters, SumsSaturateAtMaximum) {
  const auto records = gather({}, {count("a", "1", "{inferences: 9223372036854775807}"),
                                   count("b", "1", "{inferences: 2}")});
  EXPECT_EQ(inferences(records), 9223372036854775807);
}

}  // namespace counters_test
}  // namespace varda::controllers::joint
