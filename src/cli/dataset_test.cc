#include "cli/dataset.h"

#include <gtest/gtest.h>

namespace varda::cli {
namespace {

TEST(DescribeCount, TellsTheLargestClassesAndWhatIsWrong) {
  dataset::Counted counted;
  counted.tally.samples = 40;
  counted.tally.malformed = 1;
  counted.tally.first_malformed = dataset::Malformed{"Annotations/\x1b[2J.xml", 3, 70, "mismatched tag"};
  counted.tally.has_classes = true;
  for (int i = 0; i < 25; ++i) counted.tally.classes["class" + std::to_string(i)] = static_cast<std::uint64_t>(i);
  counted.tally.further_classes = 7;
  counted.tally.inexact = "a: Permission denied";
  const std::string text = describe_count(counted);
  EXPECT_NE(text.find("samples       40\n"), std::string::npos) << text;
  EXPECT_NE(text.find("no: a: Permission denied"), std::string::npos) << text;
  EXPECT_NE(text.find("Annotations/?[2J.xml, line 3, byte 70: mismatched tag"), std::string::npos) << text;
  EXPECT_LT(text.find("class24"), text.find("class5 ")) << text;
  EXPECT_EQ(text.find("class4 "), std::string::npos) << text;
  EXPECT_NE(text.find("(others)    17\n"), std::string::npos) << text;  // 0 + 1 + 2 + 3 + 4, and 7
  EXPECT_NE(text.find("25+"), std::string::npos) << text;
}

}  // namespace
}  // namespace varda::cli
