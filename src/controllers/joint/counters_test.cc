#include "controllers/joint/counters.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::controllers {
namespace {

using api::JointCounters;
using codec::Json;

Json yaml(std::string_view text) { return codec::parse_yaml(text).value(); }

Count count(std::string node, std::string epoch, std::string_view counters, Count::Back back = Count::Back::kOldWord) {
  return {.node = std::move(node), .epoch = std::move(epoch), .counters = yaml(counters), .back = back};
}

std::int64_t inferences(const std::vector<JointCounters>& kept) { return total(kept)["inferences"].as_integer(); }

TEST(JointCounters, AreSummedUpOverNodesMemberByMember) {
  const auto kept = gather(
      {}, {count("a", "1", "{inferences: 3, asked: {cloud: 1}}"), count("b", "1", "{inferences: 4, asked: {cloud: 2, edge: 5}}")});
  EXPECT_EQ(total(kept), yaml("{inferences: 7, asked: {cloud: 3, edge: 5}}"));
}

TEST(JointCounters, ToldAgainChangeNothing) {
  const std::vector<Count> told = {count("a", "1", "{inferences: 3}"), count("b", "9", "{inferences: 4}")};
  const auto once = gather({}, told);
  EXPECT_EQ(gather(once, told), once);
}

TEST(JointCounters, OfANodeThatIsSilentOrHasLeftStay) {
  const auto kept = gather(gather({}, {count("a", "1", "{inferences: 3}")}), {count("b", "1", "{inferences: 4}")});
  EXPECT_EQ(inferences(kept), 7);
  EXPECT_EQ(inferences(gather(kept, {count("a", "1", "{inferences: 5}")})), 9);
}

TEST(JointCounters, ANewEpochComesOnTopOfTheOldOne) {
  auto kept = gather({}, {count("a", "1", "{inferences: 3}")});
  kept = gather(kept, {count("a", "2", "{inferences: 1}")});
  EXPECT_EQ(inferences(kept), 4);
}

TEST(JointCounters, AnOldEpochThatComesBackIsNotCountedTwice) {
  auto kept = gather({}, {count("a", "1", "{inferences: 3}")});
  kept = gather(kept, {count("a", "2", "{inferences: 1}")});
  kept = gather(kept, {count("a", "1", "{inferences: 4}")});
  EXPECT_EQ(inferences(kept), 5);
}

TEST(JointCounters, ValuesThatGoBackWithinAnEpochAreAnOldWord) {
  auto kept = gather({}, {count("a", "1", "{inferences: 30, hard: 2}")});
  kept = gather(kept, {count("a", "1", "{inferences: 20, hard: 3}")});
  EXPECT_EQ(total(kept), yaml("{inferences: 30, hard: 3}"));
}

TEST(JointCounters, ValuesThatGoBackInWhoCountsSinceItsStartAreANewStart) {
  const auto worker = [](std::string_view counters) { return count("a", "w", counters, Count::Back::kNewStart); };
  auto kept = gather({}, {worker("{inferences: 30, asked: {cloud: 4}}")});
  kept = gather(kept, {worker("{inferences: 2, asked: {cloud: 1}}")});
  EXPECT_EQ(total(kept), yaml("{inferences: 32, asked: {cloud: 5}}"));
  kept = gather(kept, {worker("{inferences: 3, asked: {cloud: 1}}")});
  EXPECT_EQ(total(kept), yaml("{inferences: 33, asked: {cloud: 5}}"));
}

TEST(JointCounters, OldEpochsOfANodeAreBounded) {
  std::vector<JointCounters> kept;
  for (int epoch = 0; epoch < 100; ++epoch) kept = gather(kept, {count("a", std::to_string(epoch), "{inferences: 1}")});
  EXPECT_EQ(inferences(kept), 100);
  EXPECT_EQ(kept.size(), 2 + kOldEpochsMax);  // the current one, and the nameless one
}

TEST(JointCounters, RecordsAreBounded) {
  constexpr std::size_t kMax = api::JointInferenceServiceStatus::kCountersMax;
  std::vector<Count> told;
  for (std::size_t node = 0; node < kMax + 100; ++node) told.push_back(count("n" + std::to_string(node), "1", "{inferences: 1}"));
  const auto kept = gather({}, told);
  EXPECT_LE(kept.size(), kMax);
  EXPECT_EQ(gather(kept, told), kept);
}

TEST(JointCounters, WhatIsNoCountIsLeftOut) {
  const auto kept =
      gather({}, {count("a", "1", "{inferences: 3, name: text, ratio: 0.5, list: [1], less: -2, deep: {none: null}}")});
  EXPECT_EQ(total(kept), yaml("{inferences: 3, deep: {}}"));
}

TEST(JointCounters, SumsStopAtTheGreatestNumber) {
  const auto kept = gather({}, {count("a", "1", "{inferences: 9223372036854775807}"), count("b", "1", "{inferences: 2}")});
  EXPECT_EQ(inferences(kept), 9223372036854775807);
}

}  // namespace
}  // namespace varda::controllers
