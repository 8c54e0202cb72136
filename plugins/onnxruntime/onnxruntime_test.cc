// The plug-in with the real library and the models of examples/digits.
#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <onnxruntime_c_api.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "infer/engine.h"
#include "test_model.h"

// ONNX Runtime 1.30 leaks a message when it rejects a model.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libonnxruntime.so"; }

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
  static Result<std::unique_ptr<infer::Model>> load(const std::string& file,
                                                    infer::LoadOptions options = {}) {
    options.file = file;
    return engines().get("onnxruntime").value()->load(options);
  }
  static std::string digits(const std::string& version) {
    return VARDA_DIGITS "/models/" + version + "/model.onnx";
  }
  static infer::Engines& engines() {
    static infer::Engines all({VARDA_ENGINES});
    return all;
  }
};

// Number of held-out images that the model classifies correctly.
int correct(infer::Model& model) {
  const std::string images = bytes_of(VARDA_DIGITS "/test-images.idx3-ubyte").substr(16);
  const std::string labels = bytes_of(VARDA_DIGITS "/test-labels.idx1-ubyte").substr(8);
  std::vector<float> pixels;
  for (const char c : images) pixels.push_back(static_cast<float>(static_cast<unsigned char>(c)));
  const auto count = static_cast<std::int64_t>(labels.size());
  const std::vector<Named> inputs = {
      {"images", Tensor::of<float>(DType::kFp32, {count, 8, 8}, pixels).value()}};
  const auto outputs = model.run(inputs, {}).value();
  const auto probabilities = outputs.at(0).tensor.values<float>();
  int right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = probabilities.subspan(i * 10, 10);
    right += std::max_element(row.begin(), row.end()) - row.begin() == labels[i];
  }
  return right;
}

TEST_F(OnnxRuntime, DigitModelsMatchTheAccuracyOfTheTrainingReport) {
  const std::string report = bytes_of(VARDA_DIGITS "/report.json");
  for (const char* version : {"3", "4"}) {
    auto model = load(digits(version)).value();
    EXPECT_THAT(report, HasSubstr("\"correct\": " + std::to_string(correct(*model)) + ","));
  }
}

TEST_F(OnnxRuntime, ModelDescriptionHasOpenBatchAndFixedDimensions) {
  const auto model = load(digits("4")).value();
  EXPECT_EQ(model->inputs(), (std::vector<tensor::Spec>{{"images", DType::kFp32, {-1, 8, 8}}}));
  EXPECT_EQ(model->outputs(),
            (std::vector<tensor::Spec>{{"probabilities", DType::kFp32, {-1, 10}}}));
  EXPECT_THAT(engines().get("onnxruntime").value()->library_version(), HasSubstr("1."));
}

TEST_F(OnnxRuntime, ThreadsMemoryAndOptimizationChangeNoResult) {
  auto plain = load(digits("4")).value();
  auto tuned = load(digits("4"), {.intra_op_threads = 2,
                                  .memory_arena = false,
                                  .options = {{"optimization", "none"}, {"memory_pattern", "off"}}})
                   .value();
  EXPECT_EQ(correct(*plain), correct(*tuned));
}

TEST_F(OnnxRuntime, UnknownOptionIsRefusedByName) {
  EXPECT_EQ(load(digits("4"), {.options = {{"warp", "9"}}}).error(),
            Error(Code::kInvalid, "the ONNX Runtime engine has no option \"warp\""));
  EXPECT_EQ(load(digits("4"), {.options = {{"optimization", "max"}}}).error().code(),
            Code::kInvalid);
  EXPECT_EQ(load(digits("4"), {.options = {{"memory_pattern", "none"}}}).error().code(),
            Code::kInvalid);
  EXPECT_EQ(load(digits("4"), {.options = {{"operators", "all"}}}).error().code(), Code::kInvalid);
}

#ifdef VARDA_ONEDNN
TEST_F(OnnxRuntime, FurtherOperatorsChangeNoResultOfOtherModels) {
  auto plain = load(digits("4")).value();
  auto extended = load(digits("4"), {.options = {{"operators", "onednn"}}});
  ASSERT_TRUE(extended.ok()) << extended.error();
  EXPECT_EQ(correct(*plain), correct(**extended));
}
#endif

/// Models that output the content of another file on this machine, or of memory.
class HostileModels : public OnnxRuntime {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(root_ / "7");
    std::ofstream(root_ / "secret") << "secret";
    std::filesystem::create_symlink("../secret", root_ / "7/link");
    std::filesystem::create_hard_link(root_ / "secret", root_ / "7/own");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string model(const std::string& location, const std::string& offset = "0") const {
    const auto file = root_ / "7/model.onnx";
    std::ofstream(file, std::ios::binary) << varda_onnxruntime::testing::leak(location, 6, offset);
    return file.string();
  }
  /// External locations, each with an offset.
  std::vector<std::pair<std::string, std::string>> ways() const {
    return {{(root_ / "secret").string(), "0"},
            {"../secret", "0"},
            {"link", "0"},
            {"*/_ORT_MEM_ADDR_/*", "4194304"}};
  }
  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("hostile-" + std::to_string(::getpid()));
};

TEST_F(HostileModels, VardaRefusesExternalTensorsBeforeTheLibraryLoads) {
  for (const auto& [location, offset] : ways()) {
    const auto loaded = load(model(location, offset));
    ASSERT_FALSE(loaded.ok()) << location;
    EXPECT_EQ(loaded.error().code(), Code::kInvalid);
    EXPECT_THAT(loaded.error().message(), HasSubstr("it keeps a tensor in")) << location;
  }
  const auto own = load(model("own"));
  ASSERT_TRUE(own.ok()) << own.error();
  const auto outputs = own.value()->run({}, {}).value();
  const auto bytes = outputs.at(0).tensor.values<std::uint8_t>();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "secret")
      << "so a model does put out what it may read";
}

// Tests the library's own check, with the check in model_file.h bypassed.
TEST_F(HostileModels, OnnxRuntimeRefusesExternalTensorsItself) {
  void* const library = ::dlopen(VARDA_ENGINES "/libonnxruntime.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto base = reinterpret_cast<const OrtApiBase* (*)()>(::dlsym(library, "OrtGetApiBase"))();
  const OrtApi* const api = base->GetApi(14);
  OrtEnv* env = nullptr;
  ASSERT_EQ(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "test", &env), nullptr);
  OrtSessionOptions* options = nullptr;
  ASSERT_EQ(api->CreateSessionOptions(&options), nullptr);
  const auto opens = [&](const std::string& file) {
    OrtSession* session = nullptr;
    OrtStatus* const status = api->CreateSession(env, file.c_str(), options, &session);
    const bool ok = status == nullptr;
    if (ok) api->ReleaseSession(session);
    api->ReleaseStatus(status);
    return ok;
  };
  EXPECT_TRUE(opens(model("own")));
  for (const auto& [location, offset] : ways())
    EXPECT_FALSE(opens(model(location, offset))) << location;
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(env);
}

TEST_F(OnnxRuntime, ModelInMemoryGivesTheResultsOfTheFile) {
  const std::string bytes = bytes_of(digits("4"));
  auto from_memory = load("", {.model = bytes});
  ASSERT_TRUE(from_memory.ok()) << from_memory.error();
  auto from_file = load(digits("4")).value();
  EXPECT_EQ(correct(**from_memory), correct(*from_file));
  EXPECT_EQ(load("", {.model = std::string_view(bytes).substr(0, 9000)}).error().code(),
            Code::kInvalid);
}

TEST_F(HostileModels, ModelInMemoryMayReferToNoFile) {
  for (const std::string& location : {(root_ / "7/own").string(), std::string("own")}) {
    const std::string bytes = varda_onnxruntime::testing::leak(location, 6, "0");
    const auto loaded = load("", {.directory = root_ / "7", .model = bytes});
    ASSERT_FALSE(loaded.ok()) << location;
    EXPECT_THAT(loaded.error().message(), HasSubstr("has no directory"));
  }
  const std::string orphan = "0000ORTM";
  EXPECT_THAT(load("", {.model = orphan}).error().message(), HasSubstr("own format"));
}

TEST_F(OnnxRuntime, MissingAndTornFilesAreInvalid) {
  EXPECT_EQ(load("/nowhere/model.onnx").error().code(), Code::kInvalid);
  const std::string torn = testing::TempDir() + "/torn.onnx";
  std::ofstream(torn, std::ios::binary) << bytes_of(digits("4")).substr(0, 9000);
  EXPECT_EQ(load(torn).error().code(), Code::kInvalid);
  std::ofstream(torn, std::ios::binary) << "<html>not found</html>";
  EXPECT_EQ(load(torn).error().code(), Code::kInvalid);
}

// A length-delimited protobuf field, shorter than 128 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) +
         bytes;
}
std::string varint_field(int number, int value) {
  return std::string(1, static_cast<char>(number << 3)) + static_cast<char>(value);
}

// c = a + b, all FP32 [N].
std::string sum_model() {
  const auto value = [](const std::string& name) {
    const std::string shape = field(1, field(2, "N"));
    return field(1, name) + field(2, field(1, varint_field(1, 1) + field(2, shape)));
  };
  const std::string node = field(1, "a") + field(1, "b") + field(2, "c") + field(4, "Add");
  const std::string graph = field(1, node) + field(2, "g") + field(11, value("a")) +
                            field(11, value("b")) + field(12, value("c"));
  return varint_field(1, 8) + field(7, graph) + field(8, varint_field(2, 13));
}

TEST_F(OnnxRuntime, ErrorNamesInputsWithDifferentDimensions) {
  const std::string file = testing::TempDir() + "/sum.onnx";
  std::ofstream(file, std::ios::binary) << sum_model();
  const auto model = load(file);
  ASSERT_TRUE(model.ok()) << model.error();
  const auto sum = [&](std::vector<float> a, std::vector<float> b) {
    const auto tensor = [](const std::vector<float>& values) {
      return Tensor::of<float>(DType::kFp32, {static_cast<std::int64_t>(values.size())}, values)
          .value();
    };
    return (*model)->run(std::vector<Named>{{"a", tensor(a)}, {"b", tensor(b)}}, {});
  };
  EXPECT_EQ(sum({1, 2}, {3, 4})->at(0).tensor.values<float>()[1], 6);
  const auto wrong = sum({1, 2, 3}, {4, 5});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code(), Code::kInvalid);
  EXPECT_THAT(wrong.error().message(),
              testing::StartsWith("inputs \"a\" and \"b\" differ in N: 3 and 2: "));
  EXPECT_TRUE(sum({1, 2, 3}, {4}).ok()) << "what the engine broadcasts is no error";
}

}  // namespace
}  // namespace varda
