#include "worker/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/test_directory.h"
#include "train/testing/model_builder.h"

namespace varda::worker {
namespace model_directory_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

os::FileSystem& fs() { return os::real_file_system(); }

std::string model_bytes() {
  return train::testing::ModelBuilder()
      .input("x", tensor::DType::kFp32, {-1, 2})
      .node({.op_type = "Relu", .inputs = {"x"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

std::string error_of(const os::Path& path) {
  const auto model = read_model(fs(), path);
  return model.ok() ? "" : model.error().message();
}

TEST(ModelDirectory, FileIsReadAlone) {
  const os::testing::TestDirectory directory;
  directory.write("a.onnx", model_bytes());
  directory.write("model.yaml", "nonsense: true\n");
  const auto model = read_model(fs(), directory / "a.onnx");
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ(model->bytes, model_bytes());
  EXPECT_THAT(model->yaml, IsEmpty());
}

TEST(ModelDirectory, DirectoryIsReadAsTheServerReadsIt) {
  const os::testing::TestDirectory directory;
  directory.write("only.onnx", model_bytes());
  directory.write("names.txt", "cat\ndog\n");
  directory.write("model.yaml",
                  "labels: names.txt\npreprocess: {image: {channels: grey, scale: 0.5}}\n");
  const auto model = read_model(fs(), directory.path());
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ(model->bytes, model_bytes());
  EXPECT_EQ(model->labels_file, "names.txt");
  EXPECT_THAT(model->labels, ElementsAre("cat", "dog"));
  ASSERT_TRUE(model->preprocess.image);
  EXPECT_EQ(model->preprocess.image->scale, 0.5);
}

TEST(ModelDirectory, LinksAreFollowed) {
  const os::testing::TestDirectory directory;
  directory.write("v3/model.onnx", model_bytes());
  std::filesystem::create_directory_symlink(directory / "v3", directory / "now");
  std::filesystem::create_symlink(directory / "v3/model.onnx", directory / "m.onnx");
  EXPECT_EQ(error_of(directory / "now"), "");
  EXPECT_EQ(error_of(directory / "m.onnx"), "");
}

TEST(ModelDirectory, WrongPathIsNamed) {
  const os::testing::TestDirectory directory;
  EXPECT_THAT(error_of(directory / "none.onnx"), HasSubstr("none.onnx does not exist"));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("/dev/null is not a file"));
  directory.write("empty/readme", "");
  EXPECT_THAT(error_of(directory / "empty"), HasSubstr("no model.onnx"));
  directory.write("two/a.onnx", "");
  directory.write("two/b.onnx", "");
  EXPECT_THAT(error_of(directory / "two"), HasSubstr("several model files"));
  directory.write("frozen/a.pb", "");
  EXPECT_THAT(error_of(directory / "frozen"), HasSubstr("only ONNX models can be trained"));
}

TEST(ModelDirectory, ResultServesAsTheSourceDid) {
  const os::testing::TestDirectory source, result;
  source.write("digits.onnx", model_bytes());
  source.write("names.txt", "0\n1\n");
  source.write("model.yaml", "file: digits.onnx\nlabels: names.txt\ninstances: 2\n");
  const auto model = read_model(fs(), source.path());
  ASSERT_TRUE(model.ok()) << model.error();
  result.write("model.onnx", model_bytes());
  ASSERT_TRUE(write_beside(fs(), result.path(), *model, {"cat", "dog", "owl"}).ok());
  const auto again = read_model(fs(), result.path());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->bytes, model_bytes());
  EXPECT_THAT(again->labels, ElementsAre("cat", "dog", "owl"));
  EXPECT_THAT(result.read("model.yaml"), HasSubstr("instances: 2"));
}

TEST(ModelDirectory, UnchangedSettingsKeepTheirText) {
  const os::testing::TestDirectory source, result;
  source.write("model.onnx", model_bytes());
  source.write("model.yaml", "# why two\ninstances: 2\n");
  const auto model = read_model(fs(), source.path());
  ASSERT_TRUE(model.ok()) << model.error();
  ASSERT_TRUE(write_beside(fs(), result.path(), *model, {}).ok());
  EXPECT_EQ(result.read("model.yaml"), "# why two\ninstances: 2\n");
  EXPECT_EQ(result.read("labels.txt"), "<none>");
}

TEST(ModelDirectory, ClassWithALineBreakGivesNoFile) {
  const os::testing::TestDirectory result;
  ASSERT_TRUE(write_beside(fs(), result.path(), {}, {"a\nb", "c"}).ok());
  EXPECT_EQ(result.read("labels.txt"), "<none>");
}

}  // namespace model_directory_test
}  // namespace varda::worker
