#include "infer/engine.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace varda::infer {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;
using ::testing::HasSubstr;

// A model file of the echo engine in a temporary directory.
class EchoModel : public ::testing::Test {
 protected:
  EchoModel()
      : directory_(std::filesystem::temp_directory_path() /
                   ("infer_test." + std::to_string(::getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~EchoModel() override { std::filesystem::remove_all(directory_); }

  Result<std::unique_ptr<Model>> load(const std::string& text,
                                      std::map<std::string, std::string> options = {}) {
    std::ofstream(directory_ / "model.echo") << text;
    Engine* engine = engines_.get("echo").value();
    return engine->load({.directory = directory_,
                         .file = directory_ / "model.echo",
                         .options = std::move(options)});
  }

  static Named floats(const std::string& name, tensor::Shape shape,
                      const std::vector<float>& values) {
    return {name, Tensor::of<float>(DType::kFp32, std::move(shape), values).value()};
  }

  const std::filesystem::path directory_;
  Engines engines_{{"/nowhere", VARDA_ENGINES}};
};

TEST_F(EchoModel, ModelDescribesItsTensorsAndRuns) {
  const auto model = load("tensor FP32 -1 2\ntensor BYTES -1\nscale 2\nadd 1\n").value();
  ASSERT_EQ(model->inputs().size(), 2u);
  EXPECT_EQ(model->inputs()[0], (tensor::Spec{"x", DType::kFp32, {-1, 2}}));
  EXPECT_EQ(model->outputs()[1], (tensor::Spec{"y1", DType::kBytes, {-1}}));
  const std::vector<Named> inputs = {
      floats("x", {2, 2}, {1, 2, 3, 4}),
      {"x1", Tensor::of_strings({1}, std::vector<std::string>{"word"}).value()}};
  const auto outputs = model->run(inputs, {}).value();
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].tensor.shape(), (tensor::Shape{2, 2}));
  EXPECT_EQ(outputs[0].tensor.values<float>()[3], 9.0f);
  EXPECT_EQ(outputs[1].tensor.strings()[0], "word");
}

TEST_F(EchoModel, RunReturnsOnlyRequestedOutputsInOrder) {
  const auto model = load("tensor FP32 1\ntensor FP32 1\n").value();
  const std::vector<Named> inputs = {floats("x1", {1}, {1}), floats("x", {1}, {0})};  // any order
  const std::array<std::string, 2> names = {"y1", "y"};
  const auto outputs = model->run(inputs, names).value();
  EXPECT_EQ(outputs[0].name, "y1");
  EXPECT_EQ(outputs[0].tensor.values<float>()[0], 1.0f);
  EXPECT_EQ(outputs[1].name, "y");
}

TEST_F(EchoModel, OutputsOutliveTheModel) {
  auto model = load("tensor INT64 1\nscale 3\n").value();
  const std::array<std::int64_t, 1> two = {2};
  const std::vector<Named> inputs = {
      {"x", Tensor::of<std::int64_t>(DType::kInt64, {1}, two).value()}};
  const auto outputs = model->run(inputs, {}).value();
  model.reset();
  EXPECT_EQ(outputs[0].tensor.values<std::int64_t>()[0], 6);
}

TEST_F(EchoModel, WrongInputsAreRefusedByName) {
  const auto model = load("tensor FP32 -1 2\n").value();
  const auto error = [&](std::vector<Named> inputs) {
    return model->run(inputs, {}).error().message();
  };
  EXPECT_EQ(error({}), "input \"x\" is missing; the model takes \"x\"");
  EXPECT_EQ(error({floats("z", {1, 2}, {1, 2})}), "input \"x\" is missing; the model takes \"x\"");
  EXPECT_EQ(error({floats("x", {1, 2}, {1, 2}), floats("z", {1, 2}, {1, 2})}),
            "the model has no input \"z\"; it takes \"x\"");
  EXPECT_EQ(error({floats("x", {1, 2}, {1, 2}), floats("x", {1, 2}, {1, 2})}),
            "an input occurs twice");
  EXPECT_EQ(error({floats("x", {2, 1}, {1, 2})}), "input \"x\" takes shape [-1,2], not [2,1]");
  EXPECT_EQ(error({{"x", Tensor::allocate(DType::kInt32, {1, 2}).value()}}),
            "input \"x\" is FP32, not INT32");
  const std::array<std::string, 1> names = {"z"};
  EXPECT_EQ(model->run(std::vector<Named>{floats("x", {1, 2}, {1, 2})}, names).error().message(),
            "the model has no output \"z\"");
}

TEST_F(EchoModel, ErrorsContainTheMessageOfTheEngine) {
  EXPECT_EQ(load("fail_load weights are torn").error(), Error(Code::kInvalid, "weights are torn"));
  const auto model = load("tensor FP32 1\nfail_run no luck").value();
  EXPECT_EQ(model->run(std::vector<Named>{floats("x", {1}, {1})}, {}).error(),
            Error(Code::kInternal, "no luck"));
  EXPECT_THAT(load("tensor FP32 1\n", {{"speed", "high"}}).error().message(),
              HasSubstr("no option \"speed\""));
}

TEST(Engines, MissingEngineErrorListsTheSearchedDirectories) {
  Engines engines({"/nowhere", "/elsewhere"});
  const Error error = engines.get("tflite").error();
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_EQ(error.message(),
            "no engine \"tflite\": varda-engine-tflite.so is not in /nowhere, /elsewhere");
  EXPECT_EQ(engines.get("../../etc/passwd").error().code(), Code::kInvalid);
}

TEST(Engines, ErrorNamesWhatALibraryLacksAsAPlugin) {
  EXPECT_EQ(open_engine("/nowhere/x.so").error().code(), Code::kNotFound);
  EXPECT_THAT(open_engine("/proc/self/exe").error().message(), HasSubstr("does not load"));
  EXPECT_THAT(open_engine(VARDA_ENGINES "/varda-engine-bad-symbol.so").error().message(),
              HasSubstr("no symbol varda_engine"));
}

TEST(Engines, PluginOfAnotherAbiVersionIsRefused) {
  EXPECT_THAT(open_engine(VARDA_ENGINES "/varda-engine-bad-version.so").error().message(),
              HasSubstr("another ABI version (7)"));
}

TEST(Engines, SecondGetReturnsTheSameEngine) {
  Engines engines({VARDA_ENGINES});
  EXPECT_EQ(engines.get("echo").value(), engines.get("echo").value());
}

}  // namespace
}  // namespace varda::infer
