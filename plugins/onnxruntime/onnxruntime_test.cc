// The plug-in over the real library and the real models of examples/digits.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace varda {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;
using testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class OnnxRuntime : public testing::Test {
 protected:
  static Result<std::unique_ptr<infer::Model>> load(const std::string& file, infer::LoadOptions options = {}) {
    options.file = file;
    return engines().get("onnxruntime").value()->load(options);
  }
  static std::string digits(const std::string& version) { return VARDA_DIGITS "/models/" + version + "/model.onnx"; }
  static infer::Engines& engines() {
    static infer::Engines all({VARDA_ENGINES});
    return all;
  }
};

// How many held-out images the model labels rightly.
int correct(infer::Model& model) {
  const std::string images = bytes_of(VARDA_DIGITS "/test-images.idx3-ubyte").substr(16);
  const std::string labels = bytes_of(VARDA_DIGITS "/test-labels.idx1-ubyte").substr(8);
  std::vector<float> pixels;
  for (const char c : images) pixels.push_back(static_cast<float>(static_cast<unsigned char>(c)));
  const auto count = static_cast<std::int64_t>(labels.size());
  const std::vector<Named> inputs = {{"images", Tensor::of<float>(DType::kFp32, {count, 8, 8}, pixels).value()}};
  const auto outputs = model.run(inputs, {}).value();
  const auto probabilities = outputs.at(0).tensor.values<float>();
  int right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = probabilities.subspan(i * 10, 10);
    right += std::max_element(row.begin(), row.end()) - row.begin() == labels[i];
  }
  return right;
}

TEST_F(OnnxRuntime, DigitModelsAreAsAccurateAsTheirTrainingSaid) {
  const std::string report = bytes_of(VARDA_DIGITS "/report.json");
  for (const char* version : {"3", "4"}) {
    auto model = load(digits(version)).value();
    EXPECT_THAT(report, HasSubstr("\"correct\": " + std::to_string(correct(*model)) + ","));
  }
}

TEST_F(OnnxRuntime, ModelIsDescribedWithOpenBatchAndFixedRest) {
  const auto model = load(digits("4")).value();
  EXPECT_EQ(model->inputs(), (std::vector<tensor::Spec>{{"images", DType::kFp32, {-1, 8, 8}}}));
  EXPECT_EQ(model->outputs(), (std::vector<tensor::Spec>{{"probabilities", DType::kFp32, {-1, 10}}}));
  EXPECT_THAT(engines().get("onnxruntime").value()->library_version(), HasSubstr("1."));
}

TEST_F(OnnxRuntime, ThreadsMemoryAndOptimizationChangeNoResult) {
  auto plain = load(digits("4")).value();
  auto tuned = load(digits("4"), {.intra_op_threads = 2, .memory_arena = false, .options = {{"optimization", "none"}}}).value();
  EXPECT_EQ(correct(*plain), correct(*tuned));
}

TEST_F(OnnxRuntime, UnknownOptionIsRefusedByName) {
  EXPECT_EQ(load(digits("4"), {.options = {{"warp", "9"}}}).error(),
            Error(Code::kInvalid, "the ONNX Runtime engine has no option \"warp\""));
  EXPECT_EQ(load(digits("4"), {.options = {{"optimization", "max"}}}).error().code(), Code::kInvalid);
}

TEST_F(OnnxRuntime, MissingAndTornFilesAreInvalid) {
  EXPECT_EQ(load("/nowhere/model.onnx").error().code(), Code::kInvalid);
  const std::string torn = testing::TempDir() + "/torn.onnx";
  std::ofstream(torn, std::ios::binary) << bytes_of(digits("4")).substr(0, 9000);
  EXPECT_EQ(load(torn).error().code(), Code::kInvalid);
  std::ofstream(torn, std::ios::binary) << "<html>not found</html>";
  EXPECT_EQ(load(torn).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda
