// Samples of several datasets as one.
#include "samples/mixed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "os/readable_tree.h"
#include "os/testing/test_directory.h"

namespace varda::samples {
namespace {

namespace mixed_test {

using ::testing::ElementsAre;

class Mixes : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> open(const std::string& name, const std::string& text) {
    directory_.write(name, text);
    auto data =
        Dataset::open(Context::background(), *tree_, directory_ / name,
                      {.classes = {"cat", "dog"},
                       .input = {.name = "x", .dtype = tensor::DType::kFp32, .shape = {-1, 2}}});
    EXPECT_TRUE(data.ok()) << data.error();
    return *data;
  }

  const os::testing::TestDirectory directory_;
  const std::unique_ptr<os::ReadableTree> tree_ = *os::open_readable_tree({directory_.path()});
};

TEST_F(Mixes, RowsKeepTheOrderOfTheBatch) {
  const auto a = open("a.csv", "1,2,cat\n3,4,dog\n5,6,cat\n");
  const auto b = open("b.csv", "7,8,dog\n9,10,dog\n");
  const auto all = mix(Context::background(), {{a, {2, 0}}, {b, {1}}});
  ASSERT_TRUE(all.ok()) << all.error();
  EXPECT_EQ((*all)->size(), 3u);
  EXPECT_THAT((*all)->class_counts(), ElementsAre(2, 1));
  const std::vector<std::size_t> order = {2, 0, 1};
  const auto batch = (*all)->read(order, {}, 0);
  ASSERT_TRUE(batch.ok()) << batch.error();
  EXPECT_THAT(batch->input.values<float>(), ElementsAre(9, 10, 5, 6, 1, 2));
  EXPECT_THAT(batch->labels, ElementsAre(1, 0, 0));
  EXPECT_THAT(batch->indices, ElementsAre(2, 0, 1));
  EXPECT_EQ((*all)->place(0), "a.csv, line 3");
  EXPECT_EQ((*all)->line(2).value(), "9,10,dog");
  EXPECT_THAT((*all)->labels(Context::background(), order).value(), ElementsAre(1, 0, 0));
}

TEST_F(Mixes, FingerprintIgnoresOtherSamplesOfAGrowingFile) {
  const auto before = open("a.csv", "1,2,cat\n3,4,dog\n");
  const auto first = mix(Context::background(), {{before, {1}}});
  const auto after = open("a.csv", "1,2,cat\n3,4,dog\n5,6,cat\n");
  const auto second = mix(Context::background(), {{after, {1}}});
  EXPECT_EQ((*first)->fingerprint(), (*second)->fingerprint());
  const auto other = mix(Context::background(), {{after, {2}}});
  EXPECT_NE((*first)->fingerprint(), (*other)->fingerprint());
}

TEST_F(Mixes, LinesOfATableReadBackWithTheirHeader) {
  const auto table = open("a.csv", "\"x, first\",y,kind\n1,2,cat\r\n\n3,4,\"dog\"\n");
  EXPECT_EQ(table->header(), "\"x, first\",y,kind");
  EXPECT_EQ(table->line(0).value(), "1,2,cat");
  EXPECT_EQ(table->line(1).value(), "3,4,\"dog\"");
}

TEST_F(Mixes, OutOfRangeIsRefused) {
  const auto a = open("a.csv", "1,2,cat\n3,4,dog\n");
  const auto all = mix(Context::background(), {{a, {1}}});
  const std::vector<std::size_t> order = {1};
  EXPECT_FALSE((*all)->read(order, {}, 0).ok());
}

}  // namespace mixed_test

}  // namespace
}  // namespace varda::samples
