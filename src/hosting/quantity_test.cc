#include "hosting/quantity.h"

#include <gtest/gtest.h>

namespace varda::hosting {
namespace {

// Left: the text that people write. Right: the text that kube-apiserver returns.
TEST(Quantity, IsWrittenAsTheApiServerWritesIt) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"1", "1"},
      {"1000m", "1"},
      {"0.5", "500m"},
      {"1.5", "1500m"},
      {"2000", "2k"},
      {"1500", "1500"},
      {"100m", "100m"},
      {"0", "0"},
      {"0m", "0"},
      {"1024Mi", "1Gi"},
      {"1.5Gi", "1536Mi"},
      {"0.5Gi", "512Mi"},
      {"512Ki", "512Ki"},
      {"0.5Ki", "512"},
      {"1024", "1024"},
      {"1000000", "1M"},
      {"10.0", "10"},
      {"0.5m", "1m"},
      {"1Gi", "1Gi"},
      {"0.001Ki", "1024m"},
      {"001", "1"},
      {"1000Ti", "1000Ti"},
      {"1024Ti", "1Pi"},
      {"3000000k", "3G"},
      {"999999999999999T", "9223372036854775807"},
  };
  for (const auto& [written, given] : kCases)
    EXPECT_EQ(canonical_quantity(written), given) << written;
}

TEST(Quantity, WhatIsWrittenOnceIsNotChangedAgain) {
  for (const char* text :
       {"0.3Gi", "1e3", "-1", "abc", "", "1.2.3", "12345678901234567890", "7Pi", ".5", "5."})
    EXPECT_EQ(canonical_quantity(canonical_quantity(text)), canonical_quantity(text)) << text;
}

}  // namespace
}  // namespace varda::hosting
