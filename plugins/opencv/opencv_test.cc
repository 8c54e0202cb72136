// The plug-in with the real library and the models of testdata/make_models.py.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "codec/protobuf.h"
#include "infer/engine.h"

namespace varda {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Shape;
using tensor::Tensor;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

const std::filesystem::path kModels = VARDA_OPENCV_TESTDATA;

/// One input and the expected output, computed by make_models.py without OpenCV.
struct Example {
  std::vector<float> given, expected;
};

Example example_of(const std::string& model) {
  std::ifstream file(kModels / model / "example.txt");
  const auto row = [&file] {
    std::string line;
    std::getline(file, line);
    std::istringstream words(line);
    return std::vector<float>(std::istream_iterator<float>(words), {});
  };
  Example out;
  out.given = row();
  out.expected = row();
  return out;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class OpenCv : public testing::Test {
 protected:
  ~OpenCv() override { std::filesystem::remove_all(scratch_); }

  static infer::Engine& engine() {
    static infer::Engines all({VARDA_ENGINES});
    return *all.get("opencv").value();
  }
  static Result<std::unique_ptr<infer::Model>> load(const std::filesystem::path& file,
                                                    infer::LoadOptions options = {}) {
    options.file = file;
    return engine().load(options);
  }
  /// A file with these bytes in a scratch directory.
  std::filesystem::path file(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(scratch_);
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
    return scratch_ / name;
  }
  static Result<std::vector<Named>> run(infer::Model& model, const Shape& shape,
                                        const std::vector<float>& values) {
    const std::vector<Named> inputs = {
        {model.inputs().at(0).name, Tensor::of<float>(DType::kFp32, shape, values).value()}};
    return model.run(inputs, {});
  }
  static std::vector<float> values_of(const Result<std::vector<Named>>& outputs) {
    EXPECT_TRUE(outputs.ok()) << outputs.error();
    if (!outputs.ok()) return {};
    const auto values = outputs->at(0).tensor.values<float>();
    return {values.begin(), values.end()};
  }
  /// Runs the example of a model and compares the output.
  static void check(const std::string& directory, const std::string& name,
                    const std::vector<tensor::Spec>& inputs,
                    const std::vector<tensor::Spec>& outputs) {
    const auto model = load(kModels / directory / name);
    ASSERT_TRUE(model.ok()) << model.error();
    EXPECT_EQ((*model)->inputs(), inputs);
    EXPECT_EQ((*model)->outputs(), outputs);
    const Example example = example_of(directory);
    Shape shape = inputs.at(0).shape;
    shape[0] = 1;
    EXPECT_THAT(values_of(run(**model, shape, example.given)),
                Pointwise(FloatNear(1e-5F), example.expected));
  }

  const std::filesystem::path scratch_ =
      std::filesystem::path(testing::TempDir()) / ("opencv-" + std::to_string(::getpid()));
};

TEST_F(OpenCv, FrozenGraphAnswersAsComputedByHand) {
  for (const std::string version : {"faces/3", "faces/4"})
    check(version, "frozen.pb", {{"input", DType::kFp32, {-1, 12, 12, 1}}},
          {{"expression", DType::kFp32, {-1, 7}}});
}

TEST_F(OpenCv, ChannelsLastGraphTakesAndReturnsChannelsLast) {
  check("maps", "frozen.pb", {{"image", DType::kFp32, {-1, 4, 6, 3}}},
        {{"maps", DType::kFp32, {-1, 4, 6, 2}}});
}

TEST_F(OpenCv, ChannelsFirstGraphTakesAndReturnsChannelsFirst) {
  check("maps_nchw", "frozen.pb", {{"image", DType::kFp32, {-1, 3, 4, 6}}},
        {{"maps", DType::kFp32, {-1, 2, 4, 6}}});
}

TEST_F(OpenCv, CaffeNetworkAnswersAsComputedByHand) {
  check("caffe", "model.caffemodel", {{"data", DType::kFp32, {-1, 2, 3, 4}}},
        {{"prob", DType::kFp32, {-1, 5}}});
}

TEST_F(OpenCv, DarknetNetworkAnswersAsComputedByHand) {
  const auto model = load(kModels / "darknet/model.weights");
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ((*model)->inputs(), (std::vector<tensor::Spec>{{"data", DType::kFp32, {-1, 2, 4, 5}}}));
  const Example example = example_of("darknet");
  EXPECT_THAT(values_of(run(**model, {1, 2, 4, 5}, example.given)),
              Pointwise(FloatNear(1e-5F), example.expected));
}

TEST_F(OpenCv, InputOfAnotherTypeIsRefused) {
  codec::ProtoWriter node;
  node.message(1, [](codec::ProtoWriter& n) {
    n.text(1, "text").text(2, "Placeholder").message(5, [](codec::ProtoWriter& entry) {
      entry.text(1, "dtype").message(2, [](codec::ProtoWriter& value) { value.number(6, 7); });
    });
  });
  const auto loaded = load(file("frozen.pb", bytes_of(kModels / "maps/frozen.pb") + node.bytes()));
  EXPECT_EQ(loaded.error(),
            Error(Code::kUnsupported,
                  "input \"text\" is not FP32, the only type that the OpenCV engine takes"));
}

TEST_F(OpenCv, BatchAnswersEachSample) {
  const auto model = load(kModels / "faces/4/frozen.pb");
  ASSERT_TRUE(model.ok()) << model.error();
  const Example example = example_of("faces/4");
  std::vector<float> given, expected;
  for (int i = 0; i < 3; ++i) {
    given.insert(given.end(), example.given.begin(), example.given.end());
    expected.insert(expected.end(), example.expected.begin(), example.expected.end());
  }
  EXPECT_THAT(values_of(run(**model, {3, 12, 12, 1}, given)),
              Pointwise(FloatNear(1e-5F), expected));
  EXPECT_THAT(values_of(run(**model, {1, 12, 12, 1}, example.given)),
              Pointwise(FloatNear(1e-5F), example.expected))
      << "after a larger batch";
}

TEST_F(OpenCv, GraphForOneSampleGetsAFixedBatch) {
  std::string graph = bytes_of(kModels / "faces/4/frozen.pb");
  const std::string open("\xff\xff\xff\xff\x90\0\0\0", 8), fixed("\1\0\0\0\xff\xff\xff\xff", 8);
  ASSERT_NE(graph.find(open), std::string::npos) << "the shape [-1, 144]";
  // With the shape [1, -1] two samples become one row, which does not fit the weights.
  const auto model = load(file("frozen.pb", graph.replace(graph.find(open), 8, fixed)));
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ((*model)->inputs().at(0).shape, (Shape{1, 12, 12, 1}));
  EXPECT_EQ((*model)->outputs().at(0).shape, (Shape{1, 7}));
  const Example example = example_of("faces/4");
  EXPECT_THAT(values_of(run(**model, {1, 12, 12, 1}, example.given)),
              Pointwise(FloatNear(1e-5F), example.expected));
}

TEST_F(OpenCv, DeclaredBatchStaysFixed) {
  const auto model =
      load(kModels / "faces/4/frozen.pb", {.options = {{"inputs", "input=1x12x12x1"}}});
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ((*model)->inputs().at(0).shape, (Shape{1, 12, 12, 1}));
  EXPECT_EQ((*model)->outputs().at(0).shape, (Shape{1, 7}));
}

TEST_F(OpenCv, OptionInputsChoosesAmongPlaceholders) {
  codec::ProtoWriter node;
  node.message(1, [](codec::ProtoWriter& n) { n.text(1, "is_training").text(2, "Placeholder"); });
  const auto graph = file("frozen.pb", node.bytes() + bytes_of(kModels / "maps/frozen.pb"));
  EXPECT_FALSE(load(graph).ok()) << "is_training has no shape";
  const auto model = load(graph, {.options = {{"inputs", "image=-1x4x6x3"}}});
  ASSERT_TRUE(model.ok()) << model.error();
  const Example example = example_of("maps");
  EXPECT_THAT(values_of(run(**model, {1, 4, 6, 3}, example.given)),
              Pointwise(FloatNear(1e-5F), example.expected));
}

TEST_F(OpenCv, OneRunAtATimeIsAllowed) {
  EXPECT_EQ(load(kModels / "maps/frozen.pb").value()->concurrent_runs_max(), 1u)
      << "a net keeps the values of its run";
  EXPECT_THAT(engine().library_version(), HasSubstr("4."));
}

TEST_F(OpenCv, WantedOutputIsReturned) {
  const auto model = load(kModels / "maps/frozen.pb").value();
  const std::vector<Named> inputs = {
      {"image", Tensor::of<float>(DType::kFp32, {1, 4, 6, 3}, std::vector<float>(72)).value()}};
  const std::vector<std::string> wanted = {"maps"};
  EXPECT_EQ(model->run(inputs, wanted).value().at(0).name, "maps");
}

TEST_F(OpenCv, OptionInputsReplacesTheDeclaredShape) {
  const auto graph = kModels / "maps/frozen.pb";
  const auto model = load(graph, {.options = {{"inputs", "image=-1x8x10x3"}}});
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ((*model)->outputs(),
            (std::vector<tensor::Spec>{{"maps", DType::kFp32, {-1, 8, 10, 2}}}));
  const auto message = [&](const std::string& value) {
    return load(graph, {.options = {{"inputs", value}}}).error().message();
  };
  EXPECT_EQ(message("picture=1x2x2x3"),
            "option inputs names \"picture\", but the model's inputs are \"image\"");
  for (const char* wrong : {"", "image", "image=", "image=1x", "image=axb", "=1x2"})
    EXPECT_THAT(message(wrong), HasSubstr("option inputs is NAME=SIZExSIZE")) << wrong;
  EXPECT_THAT(message("image=1x-1x6x3"), HasSubstr("is open beyond its first size"));
  EXPECT_THAT(message("image=1x99999999999x6x3"), HasSubstr("elements"));
  EXPECT_EQ(load(graph, {.options = {{"warp", "9"}}}).error(),
            Error(Code::kInvalid, "the OpenCV engine has no option \"warp\""));
}

TEST_F(OpenCv, GraphWithoutAnInputShapeAsksForOne) {
  const std::string graph = bytes_of(kModels / "maps/frozen.pb");
  codec::ProtoWriter node;
  node.message(1, [](codec::ProtoWriter& n) {
    n.text(1, "other").text(2, "Placeholder").message(5, [](codec::ProtoWriter& entry) {
      entry.text(1, "dtype").message(2, [](codec::ProtoWriter& value) { value.number(6, 1); });
    });
  });
  const auto loaded = load(file("frozen.pb", graph + node.bytes()));
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message(), HasSubstr("input \"other\" has no shape: set it with"));
}

TEST_F(OpenCv, OtherFilesAreRefusedWithTheReason) {
  const auto problem = [this](const std::string& name, const std::string& bytes) {
    const auto loaded = load(file(name, bytes));
    return loaded.ok() ? "loaded" : loaded.error().message();
  };
  EXPECT_THAT(problem("frozen.pb", "this is no model"), HasSubstr("not a frozen TensorFlow graph"));
  EXPECT_THAT(problem("frozen.pb", ""), HasSubstr("not a frozen TensorFlow graph"));
  EXPECT_THAT(problem("saved_model.pb", "x"), HasSubstr("reads frozen graphs only"));
  EXPECT_THAT(problem("model.h5", "x"), HasSubstr("reads .pb, .caffemodel and .weights"));
  EXPECT_THAT(problem("model.caffemodel", "x"), HasSubstr("model.prototxt cannot be read"));
  EXPECT_THAT(problem("model.weights", "x"), HasSubstr("model.cfg cannot be read"));
  EXPECT_THAT(load(scratch_ / "gone.pb").error().message(), HasSubstr("cannot be read"));
}

TEST_F(OpenCv, UnknownOperationIsNamed) {
  std::string graph = bytes_of(kModels / "maps/frozen.pb");
  codec::ProtoWriter node;
  node.message(1, [](codec::ProtoWriter& n) {
    n.text(1, "warped").text(2, "WarpDrive").element(3, "maps");
  });
  const auto loaded = load(file("frozen.pb", graph + node.bytes()));
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message(), HasSubstr("WarpDrive"));
}

TEST_F(OpenCv, TruncatedFilesAreRefused) {
  for (const char* name : {"faces/3/frozen.pb", "maps/frozen.pb"}) {
    const std::string bytes = bytes_of(kModels / name);
    for (std::size_t size = 0; size < bytes.size(); size += 97)
      EXPECT_FALSE(load(file("frozen.pb", bytes.substr(0, size))).ok()) << name << " " << size;
  }
}

}  // namespace
}  // namespace varda
