// Class folders with arrays: one sample in each .npy file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/test_directory.h"
#include "samples/samples.h"
#include "tensor/npy.h"

namespace varda::samples {
namespace array_folder_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ArrayFolder : public ::testing::Test {
 protected:
  void add(const std::string& name, tensor::Shape shape, const std::vector<float>& values) {
    std::string bytes = tensor::npy_header(tensor::DType::kFp32, shape);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    directory_.write(name, bytes);
  }
  Result<std::shared_ptr<const Dataset>> open(tensor::Shape input) {
    tree_ = os::open_readable_tree({directory_.path()}).value();
    Options options;
    options.input = {"x", tensor::DType::kFp32, std::move(input)};
    return Dataset::open(Context::background(), *tree_, directory_.path(), options);
  }
  os::testing::TestDirectory directory_;
  std::unique_ptr<os::ReadableTree> tree_;
};

TEST_F(ArrayFolder, EachFileIsOneSampleOfItsClass) {
  add("cat/a.npy", {2}, {1, 2});
  add("dog/b.NPY", {2}, {3, 4});
  const auto data = open({-1, 2}).value();
  EXPECT_THAT(data->classes(), ElementsAre("cat", "dog"));
  const std::vector<std::size_t> both{1, 0};
  const Batch batch = data->read(both, {}, 1).value();
  EXPECT_THAT(batch.labels, ElementsAre(1, 0));
  EXPECT_THAT(batch.input.values<float>(), ElementsAre(3, 4, 1, 2));
  EXPECT_EQ(data->picture(0).value(), "");
}

TEST_F(ArrayFolder, ArraysOfAnotherShapeAreRefusedWithTheirName) {
  add("cat/a.npy", {2}, {1, 2});
  add("dog/b.npy", {3}, {3, 4, 5});
  EXPECT_THAT(open({-1, 2}).error().message(),
              HasSubstr("dog/b.npy: the array has the shape [3], and that of cat/a.npy is [2]"));
}

TEST_F(ArrayFolder, ArrayThatDoesNotFitTheModelIsRefused) {
  add("cat/a.npy", {2}, {1, 2});
  EXPECT_THAT(open({-1, 5}).error().message(), HasSubstr("cat/a.npy: a sample of shape [2]"));
}

}  // namespace array_folder_test
}  // namespace varda::samples
