#include "base/testing/golden.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "base/check.h"

namespace varda {
namespace {

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() {
    if (const char* original = std::getenv("UPDATE_GOLDEN")) original_ = original;
    ::unsetenv("UPDATE_GOLDEN");
    std::string pattern = ::testing::TempDir() + "golden_test_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~GoldenTest() override {
    if (original_) ::setenv("UPDATE_GOLDEN", original_->c_str(), 1);
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  static void update() { ::setenv("UPDATE_GOLDEN", "1", 1); }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path()).rdbuf();
    return out.str();
  }
  std::filesystem::path path() const { return root_ / "cases/one.yaml"; }
  void write(const std::string& text) const {
    std::filesystem::create_directories(path().parent_path());
    std::ofstream(path()) << text;
  }

  std::filesystem::path root_;
  std::optional<std::string> original_;
};

TEST_F(GoldenTest, EqualTextPassesInBothModes) {
  write("a: 1\n");
  check_golden(path(), "a: 1\n");
  update();
  check_golden(path(), "a: 1\n");
}

TEST_F(GoldenTest, DifferentTextFailsAndKeepsTheFile) {
  write("a: 1\n");
  EXPECT_NONFATAL_FAILURE(check_golden(path(), "a: 2\n"), "UPDATE_GOLDEN=1 rewrites it");
  EXPECT_EQ(text(), "a: 1\n");
}

TEST_F(GoldenTest, MissingFileFailsEvenForEmptyText) {
  EXPECT_NONFATAL_FAILURE(check_golden(path(), ""), "is missing");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(GoldenTest, UpdateRewritesTheFileAndFailsOnce) {
  write("a: 1\n");
  update();
  EXPECT_NONFATAL_FAILURE(check_golden(path(), "a: 2\n"), "read the difference");
  EXPECT_EQ(text(), "a: 2\n");
  check_golden(path(), "a: 2\n");
}

TEST_F(GoldenTest, UpdateCreatesAMissingFileAndFails) {
  update();
  EXPECT_NONFATAL_FAILURE(check_golden(path(), "a: 1\n"), "read the difference");
  EXPECT_EQ(text(), "a: 1\n");
}

}  // namespace
}  // namespace varda
