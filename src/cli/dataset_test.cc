#include "cli/dataset.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::cli {
namespace {

TEST(DescribeCount, TextShowsTheLargestClassesAndTheProblems) {
  dataset::Counted counted;
  counted.tally.samples = 40;
  counted.tally.malformed = 1;
  counted.tally.first_malformed =
      dataset::Malformed{"Annotations/\x1b[2J.xml", 3, 70, "mismatched tag"};
  counted.tally.has_classes = true;
  for (int i = 0; i < 25; ++i)
    counted.tally.classes["class" + std::to_string(i)] = static_cast<std::uint64_t>(i);
  counted.tally.further_classes = 7;
  counted.tally.inexact = "a: Permission denied";
  const std::string text = describe_count(counted);
  EXPECT_NE(text.find("samples       40\n"), std::string::npos) << text;
  EXPECT_NE(text.find("no: a: Permission denied"), std::string::npos) << text;
  EXPECT_NE(text.find("Annotations/?[2J.xml, line 3, byte 70: mismatched tag"), std::string::npos)
      << text;
  EXPECT_LT(text.find("class24"), text.find("class5 ")) << text;
  EXPECT_EQ(text.find("class4 "), std::string::npos) << text;
  EXPECT_NE(text.find("(others)    17\n"), std::string::npos) << text;  // 0 + 1 + 2 + 3 + 4, and 7
  EXPECT_NE(text.find("25+"), std::string::npos) << text;
}

TEST(CountDataset, CountResumesFromItsStateAndRestartsWithoutOne) {
  std::string made = ::testing::TempDir() + "varda-cli-XXXXXX";
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  const os::Path data = os::Path(made) / "lines.txt";
  std::ofstream(data) << "1\n2\n";
  os::testing::MemoryFileSystem fs;
  ASSERT_TRUE(fs.make_directories("/states", 0755).ok());
  const CountOptions options{.path = data, .format = "txt", .output = "", .state = "/states/lines"};
  const auto count = [&] { return count_dataset(Context::background(), fs, options).value(); };
  const auto contains = [](const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(contains(count(), " 2\n"));
  EXPECT_EQ(fs.list("/states").value(), std::vector<std::string>{"lines"});
  std::ofstream(data, std::ios::app) << "3\n";
  std::string text = count();
  EXPECT_TRUE(contains(text, " 3\n") && contains(text, "from byte 4 on")) << text;
  // Possible results of a power cut, because states are not synced.
  for (const std::string damaged : {"", "\0\0\0\0", "{\"count\":"}) {
    ASSERT_TRUE(os::write_file_atomically(fs, "/states/lines", damaged).ok());
    text = count();
    EXPECT_TRUE(contains(text, " 3\n") && contains(text, "all of it: the state is")) << text;
    EXPECT_TRUE(contains(count(), "from byte 6 on"));
  }
  const auto lost = count_dataset(Context::background(), fs,
                                  {.path = data, .format = "txt", .state = "/nowhere/lines"});
  ASSERT_FALSE(lost.ok());
  EXPECT_TRUE(contains(lost.error().message(), "/nowhere/lines")) << lost.error();
  std::filesystem::remove_all(made);
}

TEST(CountDataset, CountOfAFolderResumesFromItsState) {
  std::string made = ::testing::TempDir() + "varda-cli-XXXXXX";
  ASSERT_NE(::mkdtemp(made.data()), nullptr);
  for (const char* name : {"a.txt", "b.txt"}) std::ofstream(os::Path(made) / name) << "1\n2\n";
  os::testing::MemoryFileSystem fs;
  ASSERT_TRUE(fs.make_directories("/states", 0755).ok());
  const CountOptions options{.path = made, .format = "txt", .output = "", .state = "/states/lines"};
  const auto count = [&] { return count_dataset(Context::background(), fs, options).value(); };
  EXPECT_NE(count().find("samples       4\n"), std::string::npos);
  std::ofstream(os::Path(made) / "a.txt", std::ios::app) << "3\n";
  const std::string text = count();
  EXPECT_NE(text.find("samples       5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2 bytes: the others have not changed\n"), std::string::npos) << text;
  std::filesystem::remove_all(made);
}

}  // namespace
}  // namespace varda::cli
