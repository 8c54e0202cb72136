#include "meta/quantity.h"

#include <gtest/gtest.h>
#include <utility>

namespace varda::meta {
namespace quantity_test {

// Left: the text that people write. Right: the text that kube-apiserver returns.
TEST(Quantity, QuantitiesHaveTheCanonicalFormOfKubernetes) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"0", "0"},
      {"0m", "0"},
      {"-0", "0"},
      {"001", "1"},
      {"1", "1"},
      {"4", "4"},
      {"+2", "2"},
      {"-2", "-2"},
      {".5", "500m"},
      {"5.", "5"},
      {"0.5", "500m"},
      {"1.5", "1500m"},
      {"10.0", "10"},
      {"100m", "100m"},
      {"1000m", "1"},
      {"0.5m", "500u"},
      {"0.0000000001", "1n"},
      {"1500", "1500"},
      {"2000", "2k"},
      {"16000", "16k"},
      {"100k", "100k"},
      {"3000000k", "3G"},
      {"1000000", "1M"},
      {"1000P", "1E"},
      {"999999999999999T", "999999999999999T"},
      // Long amounts.
      {"12345678901234567890", "12345678901234567890"},
      {"1234567890123456789012345678.91", "1234567890123456789012345678910m"},
      // Powers of 1024.
      {"1024", "1024"},
      {"512Ki", "512Ki"},
      {"0.5Ki", "512"},
      {"0.001Ki", "1024m"},
      {"15.625Ki", "16000"},
      {"1024Mi", "1Gi"},
      {"1500Mi", "1500Mi"},
      {"1Gi", "1Gi"},
      {"8Gi", "8Gi"},
      {"0.5Gi", "512Mi"},
      {"1.5Gi", "1536Mi"},
      {"0.3Gi", "322122547200m"},
      {"1000Ti", "1000Ti"},
      {"1024Ti", "1Pi"},
      {"7Pi", "7Pi"},
      {"7.5Ei", "7680Pi"},
      {"1Ei", "1Ei"},
      // Powers of 1024 end at 64 bits.
      {"10008921904464218.8921Gi", "9223372036854775807"},
      {"-99999999999999999999Ei", "-9223372036854775807"},
      // Exponents are multiples of three.
      {"1e3", "1e3"},
      {"1E3", "1e3"},
      {"1e+3", "1e3"},
      {"10e2", "1e3"},
      {"15e4", "150e3"},
      {"1.5e3", "1500"},
      {"1e0", "1"},
      {"1e-3", "1e-3"},
      {"99.9e-3", "99900e-6"},
      {"0e9", "0"},
      {"1e-10", "1e-9"},
      {"25e-10", "3e-9"},
      {"1e-99", "1e-9"},
      {"0e-99", "0"},
      {"-1e20", "-100e18"},
      {"1e99", "1e99"},  // beyond 128 bits
  };
  for (const auto& [input, wanted] : kCases) {
    const auto got = canonical_quantity(input);
    ASSERT_TRUE(got.ok()) << input;
    EXPECT_EQ(*got, wanted) << input;
    // Like Kubernetes, a small amount in powers of 1024 becomes decimal, and then has a new form.
    if (!input.ends_with("Ki")) {
      EXPECT_EQ(canonical_quantity(wanted).value(), wanted);
    }
  }
}

TEST(Quantity, InvalidQuantitiesAreRefused) {
  for (const char* wrong :
       {"", ".", "+", "x", "abc", "m", "1.2.3", "1 Gi", "1x", "1ki", "1e", "1e+", "1e+-3", "1Ee3",
        "--1", "nan", "inf", "99999999999999999999999999999999999999999",
        "99999999999999999999999E"})
    EXPECT_EQ(canonical_quantity(wrong).error().code(), Code::kInvalid) << wrong;
}

TEST(Quantity, QuantitiesAreComparedExactly) {
  const std::pair<const char*, const char*> above[] = {
      {"2", "1"},     {"1001m", "1"},      {"1Gi", "1G"}, {"1n", "0"}, {"1e3", "999"},
      {"2", "1.5e0"}, {"100m", "99.9e-3"}, {"1", "-1"},   {"-1", "-2"}};
  for (const auto& [more, less] : above) {
    EXPECT_TRUE(exceeds(more, less)) << more << " " << less;
    EXPECT_FALSE(exceeds(less, more)) << more << " " << less;
  }
  for (const auto& [a, b] : {std::pair{"1", "1000m"},
                             {"1Ki", "1024"},
                             {"1e3", "1k"},
                             {"", "1"},
                             {"1", ""},
                             {"1e99", "1"}})
    EXPECT_FALSE(exceeds(a, b)) << a << " " << b;
}

TEST(Quantity, QuantitiesAreReadInThousandthsAndRoundedUp) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"0", 0},           {"1", 1000},        {"250m", 250},
      {"0.1", 100},       {"1.5", 1500},      {".5", 500},
      {"100u", 1},        {"1n", 1},          {"1k", 1'000'000},
      {"1Ki", 1'024'000}, {"1e3", 1'000'000}, {"64Mi", 67'108'864'000},
      {"+2", 2000},       {"1e-3", 1},        {"2G", 2'000'000'000'000},
  };
  for (const auto& [text, millis] : cases) {
    EXPECT_EQ(quantity_millis(text), millis) << text;
  }
  for (const char* text : {"", "x", "-1", "1x", "1 Gi", "m", "1e400", "16Ei", "nan", "inf"})
    EXPECT_FALSE(quantity_millis(text)) << text;
}

TEST(Quantity, QuantitiesAreReadAsDoubles) {
  EXPECT_EQ(quantity_value("100Mi"), 100.0 * 1024 * 1024);
  EXPECT_EQ(quantity_value("2G"), 2e9);
  EXPECT_EQ(quantity_value("-1.5"), -1.5);
  EXPECT_FALSE(quantity_value("1 G"));
}

}  // namespace quantity_test
}  // namespace varda::meta
