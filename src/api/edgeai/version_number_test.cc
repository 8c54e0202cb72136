#include "api/edgeai/version_number.h"

#include <gtest/gtest.h>

namespace varda::api {
namespace {

TEST(VersionNumber, WholeNumberNameKeepsItsNumber) {
  for (const char* version : {"1", "3", "42", "20240501", "999999999"})
    EXPECT_EQ(std::to_string(version_number(version)), version);
}

TEST(VersionNumber, OtherNamesHaveStableHigherNumbers) {
  // Nodes have these numbers on disk, so they must never change.
  EXPECT_EQ(version_number("v4"), 129229026309774u);
  EXPECT_EQ(version_number("2024-05-01"), 468948596467656u);
  EXPECT_EQ(version_number("007"), 490477208201996u);
  EXPECT_EQ(version_number("0"), 165268717386040u);
  EXPECT_EQ(version_number("1000000000"), 405823837197486u);
}

TEST(VersionNumber, ChangedArchiveHasNumberAboveAllNames) {
  EXPECT_GE(version_number("3", "aa"), 1'000'000'000'000'000u);
  EXPECT_NE(version_number("3", "aa"), version_number("3", "bb"));
  EXPECT_LT(version_number("3", "aa"), 1ull << 53);
}

}  // namespace
}  // namespace varda::api
