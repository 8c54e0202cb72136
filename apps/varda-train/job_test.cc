// Model, data and settings that do not fit each other, with the real engine.
#include "job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "os/testing/test_directory.h"
#include "train/testing/model_builder.h"

// The library keeps some memory until the process ends.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libonnxruntime.so"; }
// The leak check of clang 14 crashes on the thread-local memory of OpenMP, which oneDNN brings.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }

namespace varda::trainapp {
namespace job_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NoObserver final : public training::Observer {
 public:
  void progress(const training::Progress&) override {}
  void epoch(const training::EpochRecord&) override {}
};

/// scores[N, classes] = x[N, features] * w
std::string linear_model(std::int64_t features, std::int64_t classes) {
  std::vector<float> values(static_cast<std::size_t>(features * classes), 0.125f);
  const auto w = tensor::Tensor::of<float>(tensor::DType::kFp32, {features, classes}, values);
  return train::testing::ModelBuilder()
      .input("x", tensor::DType::kFp32, {-1, features})
      .initializer("w", *w)
      .node({.op_type = "MatMul", .inputs = {"x", "w"}, .outputs = {"scores"}, .name = "layer"})
      .output("scores")
      .bytes();
}

class Jobs : public ::testing::Test {
 protected:
  Jobs() {
    job_.model = directory_.write("m.onnx", linear_model(2, 3));
    job_.data.path = directory_.write("train.csv", rows({"0", "1", "2"}));
    job_.directory = directory_ / "out";
    job_.hold_out = 0;
    job_.settings.epochs = 2;
    job_.settings.batch_size = 8;
    job_.settings.threads = 1;
    std::filesystem::create_directories(job_.directory);
  }

  static std::string rows(const std::vector<std::string>& labels) {
    std::string out = "a,b,label\n";
    for (int i = 0; i < 60; ++i)
      out += std::to_string(i % 7) + "," + std::to_string(i % 5) + "," +
             labels[static_cast<std::size_t>(i) % labels.size()] + "\n";
    return out;
  }

  Result<Trained> run() {
    NoObserver observer;
    return train(Context::background(), job_, engines_, os::real_file_system(), observer);
  }
  std::string wrong_input() {
    const auto trained = run();
    if (trained.ok()) return "";
    EXPECT_TRUE(is_wrong_input(trained.error())) << trained.error();
    return trained.error().message();
  }

  const os::testing::TestDirectory directory_;
  infer::Engines engines_{{VARDA_ENGINES}};
  Job job_;
};

TEST_F(Jobs, TrainsATable) {
  const auto trained = run();
  ASSERT_TRUE(trained.ok()) << trained.error();
  EXPECT_EQ(trained->outcome.model, job_.directory / "model.onnx");
  EXPECT_EQ(trained->outcome.history.size(), 2u);
  EXPECT_EQ(trained->digest, codec::Sha256::of(directory_.read("out/model.onnx")));
  EXPECT_NE(directory_.read("out/model.onnx"), directory_.read("m.onnx"));
  EXPECT_EQ(directory_.read("out/labels.txt"), "0\n1\n2\n");
  EXPECT_THAT(trained->engine, HasSubstr("onnxruntime"));
}

TEST_F(Jobs, MoreClassesThanOutputsNamesBothNumbersAndTheFlag) {
  directory_.write("train.csv", rows({"0", "1", "2", "3", "4"}));
  EXPECT_THAT(wrong_input(),
              HasSubstr("train.csv has 5 classes, but output \"scores\" of the model has 3: "
                        "--classes 5 replaces the last layer"));
  job_.classes_setting = "head.classes";
  EXPECT_THAT(wrong_input(), HasSubstr("head.classes 5 replaces"));
}

TEST_F(Jobs, FewerNamesThanOutputsAreRefused) {
  directory_.write("train.csv", rows({"cat", "dog"}));
  EXPECT_THAT(wrong_input(), HasSubstr("has 2 classes, but output \"scores\" of the model has 3"));
}

TEST_F(Jobs, MissingNumbersKeepTheirOutputs) {
  directory_.write("train.csv", rows({"0", "2"}));
  const auto trained = run();
  ASSERT_TRUE(trained.ok()) << trained.error();
  EXPECT_THAT(trained->outcome.classes, ElementsAre("0", "1", "2"));
}

TEST_F(Jobs, OtherNumberOfClassesThanTheNewLayerIsRefused) {
  job_.settings.head_classes = 4;
  directory_.write("train.csv", rows({"cat", "dog"}));
  EXPECT_THAT(wrong_input(), HasSubstr("has 2 classes, but --classes is 4"));
}

TEST_F(Jobs, LabelsOfTheModelGiveTheOrder) {
  directory_.write("model/model.onnx", linear_model(2, 3));
  directory_.write("model/labels.txt", "owl\ncat\ndog\n");
  job_.model = directory_ / "model";
  directory_.write("train.csv", rows({"cat", "dog", "owl"}));
  const auto trained = run();
  ASSERT_TRUE(trained.ok()) << trained.error();
  EXPECT_THAT(trained->outcome.classes, ElementsAre("owl", "cat", "dog"));
  EXPECT_EQ(directory_.read("out/labels.txt"), "owl\ncat\ndog\n");
}

TEST_F(Jobs, MissingFilesAreNamed) {
  job_.model = directory_ / "none.onnx";
  EXPECT_THAT(wrong_input(), HasSubstr("none.onnx does not exist"));
  job_.model = directory_ / "m.onnx";
  job_.data.path = directory_ / "none.csv";
  EXPECT_THAT(wrong_input(), HasSubstr("none.csv"));
}

TEST_F(Jobs, FileThatIsNoModelIsNamed) {
  directory_.write("m.onnx", "this is no model");
  EXPECT_THAT(wrong_input(), HasSubstr("m.onnx"));
}

TEST_F(Jobs, OtherNumberOfFeaturesIsRefused) {
  directory_.write("train.csv", "a,b,c,label\n1,2,3,0\n1,2,3,1\n1,2,3,2\n");
  EXPECT_THAT(wrong_input(), HasSubstr("3"));
}

TEST_F(Jobs, LabelOutOfRangeNamesTheLine) {
  directory_.write("model/model.onnx", linear_model(2, 3));
  directory_.write("model/labels.txt", "a\nb\nc\n");
  job_.model = directory_ / "model";
  directory_.write("train.csv", "x,y,label\n1,2,0\n1,2,1\n1,2,7\n");
  const std::string message = wrong_input();
  EXPECT_THAT(message, HasSubstr("line 4"));
  EXPECT_THAT(message, HasSubstr("7"));
}

TEST_F(Jobs, ModelWithTwoInputsIsRefused) {
  directory_.write("m.onnx", train::testing::ModelBuilder()
                                 .input("x", tensor::DType::kFp32, {-1, 3})
                                 .input("y", tensor::DType::kFp32, {-1, 3})
                                 .node({.op_type = "Add", .inputs = {"x", "y"}, .outputs = {"z"}})
                                 .output("z")
                                 .bytes());
  EXPECT_THAT(wrong_input(), HasSubstr("has 2 inputs (x, y)"));
}

TEST_F(Jobs, ConfinedDataMayNotLinkOutside) {
  directory_.write("secret.csv", rows({"0", "1", "2"}));
  std::filesystem::create_directories(directory_ / "data");
  std::filesystem::create_symlink(directory_ / "secret.csv", directory_ / "data/train.csv");
  job_.data = {directory_ / "data", "csv"};
  job_.confine_data = true;
  EXPECT_FALSE(run().ok());
}

TEST_F(Jobs, EvaluationUsesTheColumnsAndClassesOfTheTraining) {
  job_.settings.label_column = "label";
  job_.evaluation = DataSource{directory_.write("test.csv", "b,label,a\n1,2,3\n1,0,3\n"), ""};
  const auto trained = run();
  ASSERT_TRUE(trained.ok()) << trained.error();
  ASSERT_EQ(trained->outcome.confusion.size(), 3u);
}

}  // namespace job_test
}  // namespace varda::trainapp
