#include "transform/pipeline.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "codec/digest.h"
#include "codec/image.h"
#include "codec/yaml.h"
#include "tensor/half.h"

namespace varda::transform {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Spec;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Declaration> declared(const std::string& yaml) {
  TRY(const codec::Json json, codec::parse_yaml(yaml));
  Declaration out;
  if (const codec::Json* pre = json.find("preprocess")) TRY_VOID(read_preprocess(*pre, out));
  if (const codec::Json* post = json.find("postprocess")) TRY_VOID(read_postprocess(*post, out));
  return out;
}

struct Model {
  std::vector<Spec> inputs;
  std::vector<Spec> outputs;
  std::vector<std::string> labels;
};

Result<Pipeline> compile(const std::string& yaml, const Model& model, const Limits& limits = {}) {
  TRY(const Declaration declaration, declared(yaml));
  return Pipeline::compile(declaration, model.inputs, model.outputs, model.labels, limits);
}

std::string text(const std::vector<Spec>& specs) {
  std::string out;
  for (const Spec& s : specs)
    out += (out.empty() ? "" : " ") + s.name + ":" + std::string(to_string(s.dtype)) +
           tensor::to_string(s.shape);
  return out;
}

std::string png(std::size_t width, std::size_t height, std::size_t channels,
                std::vector<std::uint8_t> pixels) {
  return codec::encode_png({width, height, channels, std::move(pixels)}).value();
}

std::vector<Named> images(const std::vector<std::string>& files) {
  return {{"image", Tensor::of_strings({static_cast<std::int64_t>(files.size())}, files).value()}};
}

Named floats(const std::string& name, tensor::Shape shape, const std::vector<float>& values) {
  return {name, Tensor::of<float>(DType::kFp32, std::move(shape), values).value()};
}

std::vector<float> values(const Tensor& tensor) {
  const auto v = tensor.values<float>();
  return {v.begin(), v.end()};
}

std::vector<std::string> strings(const Tensor& tensor) {
  std::vector<std::string> out;
  for (const std::string_view s : tensor.strings()) out.emplace_back(s);
  return out;
}

const Model kClassifier = {{{"x", DType::kFp32, {-1, 3, 2, 2}}},
                           {{"logits", DType::kFp32, {-1, 3}}},
                           {"cat", "dog", "eel"}};
const Model kDetector = {{{"x", DType::kFp32, {1, 3, 4, 4}}},
                         {{"boxes", DType::kFp32, {1, -1, 4}},
                          {"confidence", DType::kFp32, {1, -1, 2}},
                          {"features", DType::kFp32, {1, 8}}},
                         {"car", "tree"}};
constexpr auto kClassify = "{preprocess: {image: {}}, postprocess: {softmax: {}, top_k: {k: 2}}}";
constexpr auto kDetect =
    "{preprocess: {image: {}}, postprocess: {nms: {scores: confidence, normalized: true, "
    "threshold: 0.5}}}";

TEST(Pipeline, EmptyDeclarationPassesTensorsThrough) {
  const Pipeline pipeline = compile("{}", kDetector).value();
  EXPECT_TRUE(pipeline.empty());
  EXPECT_FALSE(pipeline.takes_images());
  EXPECT_EQ(pipeline.inputs(), kDetector.inputs);
  EXPECT_EQ(pipeline.outputs(), kDetector.outputs);
  EXPECT_EQ(pipeline.available(), kDetector.outputs);
  EXPECT_THAT(pipeline.needs({}).value(), ElementsAre("boxes", "confidence", "features"));
}

TEST(Pipeline, ClassifierTakesImagesAndReturnsLabels) {
  const Pipeline pipeline = compile(kClassify, kClassifier).value();
  EXPECT_EQ(text(pipeline.inputs()), "image:BYTES[-1]");
  EXPECT_EQ(text(pipeline.outputs()), "labels:BYTES[-1,2] scores:FP32[-1,2]");
  EXPECT_EQ(text(pipeline.available()),
            "labels:BYTES[-1,2] scores:FP32[-1,2] probabilities:FP32[-1,3] logits:FP32[-1,3]");
}

TEST(Pipeline, HiddenRawOutputsStayAvailable) {
  const Pipeline pipeline = compile(kDetect, kDetector).value();
  EXPECT_EQ(text(pipeline.outputs()),
            "boxes:FP32[-1,4] scores:FP32[-1] labels:BYTES[-1] counts:INT64[1] features:FP32[1,8]");
  EXPECT_EQ(text(pipeline.available()),
            "boxes:FP32[-1,4] scores:FP32[-1] labels:BYTES[-1] counts:INT64[1] features:FP32[1,8] "
            "confidence:FP32[1,-1,2]");
  EXPECT_THAT(pipeline.needs({}).value(), ElementsAre("boxes", "confidence", "features"));
  EXPECT_THAT(pipeline.needs(std::vector<std::string>{"labels"}).value(),
              ElementsAre("boxes", "confidence"));
  EXPECT_THAT(pipeline.needs(std::vector<std::string>{"raw.boxes", "features"}).value(),
              ElementsAre("boxes", "features"));
  EXPECT_EQ(pipeline.needs(std::vector<std::string>{"raw.x"}).error().message(),
            "the model has no output \"raw.x\"; it has boxes, scores, labels, counts, features, "
            "confidence");
}

TEST(Pipeline, ImagesFollowTheDeclaredChannelAndLayoutOrder) {
  // Red, green; blue, white.
  const std::string file = png(2, 2, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255});
  struct Case {
    std::string image;
    tensor::Shape shape;
    std::vector<float> want;
    tensor::Shape want_shape;
  };
  const std::vector<Case> cases = {
      {"{}", {-1, 3, 2, 2}, {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255}, {1, 3, 2, 2}},
      {"{channels: bgr}",
       {-1, 3, 2, 2},
       {0, 0, 255, 255, 0, 255, 0, 255, 255, 0, 0, 255},
       {1, 3, 2, 2}},
      {"{}", {1, 2, 2, 3}, {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}, {1, 2, 2, 3}},
      {"{}", {3, 2, 2}, {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255}, {3, 2, 2}},
      {"{channels: bgr}", {2, 2, 3}, {0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255}, {2, 2, 3}},
      // 0.299, 0.587, 0.114 of 255, rounded.
      {"{channels: grey}", {-1, 2, 2}, {76, 150, 29, 255}, {1, 2, 2}},
      {"{channels: grey}", {2, 2}, {76, 150, 29, 255}, {2, 2}},
      {"{channels: grey}", {-1, 1, 2, 2}, {76, 150, 29, 255}, {1, 1, 2, 2}},
      {"{channels: grey, layout: NHW, resize: {width: 2, height: 2}}",
       {-1, 4},
       {76, 150, 29, 255},
       {1, 4}},
      {"{layout: NHWC, resize: {width: 1, height: 1, filter: area}}",
       {-1, -1, -1, 3},
       {127.5f, 127.5f, 127.5f},
       {1, 1, 1, 3}},
      {"{layout: NHWC, resize: {width: 2, height: 1, filter: nearest}}",
       {1, 6},
       {0, 0, 255, 255, 255, 255},
       {1, 6}},
      {"{scale: 2, mean: [10, 20, 30], std: [1, 2, 4], resize: {width: 1, height: 1, filter: "
       "area}}",
       {-1, 3, 1, 1},
       {245, 117.5f, 56.25f},
       {1, 3, 1, 1}},
  };
  for (const Case& c : cases) {
    const auto pipeline =
        compile("preprocess: {image: " + c.image + "}", {{{"x", DType::kFp32, c.shape}}, {}, {}});
    ASSERT_TRUE(pipeline.ok()) << c.image << pipeline.error();
    const auto got = pipeline->before(images({file}));
    ASSERT_TRUE(got.ok()) << c.image << got.error();
    ASSERT_EQ(got->inputs.size(), 1u);
    EXPECT_EQ(got->inputs[0].name, "x");
    EXPECT_EQ(got->inputs[0].tensor.shape(), c.want_shape) << c.image;
    EXPECT_EQ(values(got->inputs[0].tensor), c.want) << c.image << tensor::to_string(c.shape);
    EXPECT_EQ(got->images.at(0).width, 2u);
  }
}

TEST(Pipeline, NormalizedValuesMatchTheGoldenNumbers) {
  std::ifstream in(VARDA_TESTDATA "/golden.json");
  const codec::Json golden =
      codec::parse_json(std::string(std::istreambuf_iterator<char>(in), {})).value()["normalised"];
  ASSERT_EQ(golden["values"].size(), 9u);
  std::vector<std::uint8_t> pixels;
  for (const codec::Json& p : golden["pixels"].as_array())
    pixels.push_back(static_cast<std::uint8_t>(p.as_integer()));
  const std::string numbers =
      "scale: 0.00392157, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]";
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFp32, 1e-5}, std::pair{DType::kFp64, 1e-5},
        std::pair{DType::kFp16, 2e-3}}) {
    const Model model = {{{"x", dtype, {1, 1, 3, 3}}}, {}, {}};
    const Pipeline pipeline =
        compile("preprocess: {image: {layout: NHWC, " + numbers + "}}", model).value();
    const Prepared got = pipeline.before(images({png(3, 1, 3, pixels)})).value();
    const Tensor& t = got.inputs[0].tensor;
    for (std::size_t i = 0; i < golden["values"].size(); ++i) {
      const double want = golden["values"].as_array()[i].as_double();
      const double value = dtype == DType::kFp32   ? t.values<float>()[i]
                           : dtype == DType::kFp64 ? t.values<double>()[i]
                                                   : tensor::float_of(t.values<std::uint16_t>()[i]);
      EXPECT_NEAR(value, want, tolerance) << to_string(dtype) << i;
    }
  }
}

TEST(Pipeline, Uint8InputsAreRounded) {
  const Model model = {{{"x", DType::kUint8, {1, 1, 1, 1}}}, {}, {}};
  const Pipeline pipeline =
      compile("preprocess: {image: {channels: grey, layout: NCHW, resize: {filter: area}}}", model)
          .value();
  EXPECT_EQ(
      pipeline.before(images({png(2, 1, 1, {10, 11})}))->inputs[0].tensor.values<std::uint8_t>()[0],
      11);
  EXPECT_EQ(pipeline.before(images({png(2, 1, 1, {255, 255})}))
                ->inputs[0]
                .tensor.values<std::uint8_t>()[0],
            255);
}

TEST(Pipeline, ImagesOfDifferentSizesFormOneBatch) {
  const Pipeline pipeline =
      compile("preprocess: {image: {channels: grey}}", {{{"x", DType::kFp32, {-1, 1, 2}}}, {}, {}})
          .value();
  const Prepared got = pipeline
                           .before(images({png(1, 1, 1, {9}), png(2, 3, 1, {1, 2, 3, 4, 5, 6}),
                                           png(1, 2, 3, {8, 8, 8, 8, 8, 8})}))
                           .value();
  EXPECT_EQ(got.inputs[0].tensor.shape(), (tensor::Shape{3, 1, 2}));
  EXPECT_EQ(values(got.inputs[0].tensor), (std::vector<float>{9, 9, 3, 4, 8, 8}));
  ASSERT_EQ(got.images.size(), 3u);
  EXPECT_EQ(got.images[1].height, 3u);
}

TEST(Pipeline, Base64ImagesAreDecoded) {
  const Pipeline pipeline =
      compile("preprocess: {image: {channels: grey}}", {{{"x", DType::kFp32, {-1, 1, 2}}}, {}, {}})
          .value();
  const std::string file = png(2, 1, 1, {3, 4});
  EXPECT_EQ(values(pipeline.before(images({codec::base64(file), file})).value().inputs[0].tensor),
            (std::vector<float>{3, 4, 3, 4}));
  EXPECT_THAT(pipeline.before(images({file, codec::base64(file) + "!"})).error().message(),
              HasSubstr("image 1: "));
  EXPECT_THAT(pipeline.before(images({codec::base64(file.substr(0, 30))})).error().message(),
              HasSubstr("image 0: PNG: "));
}

TEST(Pipeline, TensorsOfTheModelSkipPreprocessing) {
  const Pipeline pipeline = compile(kClassify, kClassifier).value();
  const std::vector<Named> own = {floats("x", {1, 3, 2, 2}, std::vector<float>(12, 7))};
  const Prepared got = pipeline.before(own).value();
  EXPECT_EQ(got.inputs[0].tensor.bytes().data(), own[0].tensor.bytes().data());
  EXPECT_TRUE(got.images.empty());
}

TEST(Pipeline, InputNamedImageIsDistinguishedByType) {
  const Pipeline pipeline = compile("preprocess: {image: {channels: grey}}",
                                    {{{"image", DType::kFp32, {-1, 1, 1}}}, {}, {}})
                                .value();
  EXPECT_EQ(text(pipeline.inputs()), "image:BYTES[-1]");
  EXPECT_EQ(values(pipeline.before(images({png(1, 1, 1, {5})}))->inputs[0].tensor),
            (std::vector<float>{5}));
  EXPECT_EQ(values(pipeline.before({floats("image", {1, 1, 1}, {6})})->inputs[0].tensor),
            (std::vector<float>{6}));
}

TEST(Pipeline, ErrorNamesTheIndexOfAnInvalidImage) {
  const std::string good = png(2, 2, 1, {1, 2, 3, 4});
  const Model model = {{{"x", DType::kFp32, {-1, 2, 2}}}, {}, {}};
  const Limits limits{.images_max = 3, .pixels_max = 10, .tensor_bytes_max = 32};
  const Pipeline pipeline = compile("preprocess: {image: {channels: grey}}", model, limits).value();
  const auto error = [&](std::vector<Named> inputs) {
    return pipeline.before(std::move(inputs)).error().message();
  };
  EXPECT_EQ(error(images({good, "GIF89a"})),
            "image 1: neither a JPEG nor a PNG, nor the base64 of one");
  EXPECT_EQ(error(images({std::string("\0\1", 2)})), "image 0: neither a JPEG nor a PNG");
  EXPECT_EQ(error(images({"/9j/AAA"})), "image 0: not valid base64");
  std::ifstream in(VARDA_TESTDATA "/../../codec/testdata/images/cmyk.jpg", std::ios::binary);
  const std::string cmyk(std::istreambuf_iterator<char>(in), {});
  const Pipeline large = compile("preprocess: {image: {channels: grey}}", model).value();
  EXPECT_EQ(large.before(images({good, cmyk})).error(),
            Error(Code::kInvalid, "image 1: JPEG: in CMYK, for print; RGB and grey are read"));
  EXPECT_THAT(error(images({good.substr(0, good.size() - 20)})), HasSubstr("image 0: PNG: "));
  EXPECT_EQ(error(images({})), "there is no image in the request");
  EXPECT_THAT(error(images({good, good, good})), HasSubstr("they become more than 32 bytes"));
  EXPECT_THAT(error(images({good, good, good, good})),
              HasSubstr("4 images in a request are too many: 3 may be sent"));
  EXPECT_THAT(error(images({good, png(7, 1, 1, std::vector<std::uint8_t>(7))})),
              HasSubstr("image 1 has 7x1 pixels: the images of a request may have 10 together"));
  std::vector<Named> both = images({good});
  both.push_back(floats("x", {1, 2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(
      error(both),
      "the request has both \"image\" and \"x\", which image replaces: send only one of them");
  EXPECT_EQ(error({{"image", Tensor::of_strings({1, 1}, std::vector{good}).value()}}),
            "input \"image\" takes shape [-1], not [1,1]");
  const Pipeline two =
      compile("preprocess: {image: {channels: grey}}", {{{"x", DType::kFp32, {2, 2, 2}}}, {}, {}})
          .value();
  EXPECT_EQ(two.before(images({good})).error().message(),
            "the model takes 2 images at a time, not 1");
  EXPECT_TRUE(two.before(images({good, good})).ok());
}

TEST(Pipeline, ScoresBecomeLabelsAndNamedOutputsAreReturned) {
  const Pipeline pipeline = compile(kClassify, kClassifier).value();
  // exp(0):exp(2):exp(1) = 1:7.389:2.718, sum 11.107
  const std::vector<Named> raw = {floats("logits", {2, 3}, {0, 2, 1, 5, 5, -100})};
  const std::vector<Named> got = pipeline.after({}, raw, {}).value();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].name, "labels");
  EXPECT_EQ(got[0].tensor.shape(), (tensor::Shape{2, 2}));
  EXPECT_THAT(strings(got[0].tensor), ElementsAre("dog", "eel", "cat", "dog"));
  EXPECT_THAT(values(got[1].tensor),
              ElementsAre(::testing::FloatNear(0.66524f, 1e-5f),
                          ::testing::FloatNear(0.24473f, 1e-5f), 0.5f, 0.5f));
  const std::vector<Named> named =
      pipeline
          .after({}, raw,
                 std::vector<std::string>{"raw.logits", "probabilities", "labels", "logits"})
          .value();
  ASSERT_EQ(named.size(), 4u);
  EXPECT_EQ(named[0].name, "raw.logits");
  EXPECT_EQ(values(named[0].tensor), values(raw[0].tensor));
  EXPECT_NEAR(named[1].tensor.values<float>()[0], 0.09003f, 1e-5f);
  EXPECT_EQ(values(named[3].tensor), values(raw[0].tensor));
  EXPECT_EQ(pipeline.after({}, raw, std::vector<std::string>{"boxes"}).error().code(),
            Code::kInvalid);
}

TEST(Pipeline, UnnamedClassesAreNumberedAndOpenDimensionsResolved) {
  const Pipeline pipeline =
      compile("postprocess: {top_k: {k: 3}}", {{}, {{"p", DType::kFp32, {-1, -1}}}, {}}).value();
  EXPECT_EQ(text(pipeline.outputs()), "labels:BYTES[-1,-1] scores:FP32[-1,-1]");
  const std::vector<Named> got =
      pipeline.after({}, {floats("p", {1, 2}, {0.25f, 0.75f})}, {}).value();
  EXPECT_THAT(strings(got[0].tensor), ElementsAre("1", "0"));
  EXPECT_EQ(got[1].tensor.shape(), (tensor::Shape{1, 2}));
  EXPECT_EQ(pipeline.after({}, {floats("p", {1, 0}, {})}, {}).error().message(),
            "the model gave no classes: output \"p\" of shape [-1,-1] is [1,0]");
}

TEST(Pipeline, BoxesAreInPixelsOfTheOriginalImage) {
  const Pipeline pipeline = compile(kDetect, kDetector).value();
  const std::vector<Named> raw = {
      floats("boxes", {1, 3, 4}, {0.25f, 0.5f, 0.5f, 1.75f, 0.25f, 0.5f, 0.5f, 1, 0, 0, 1, 1}),
      floats("confidence", {1, 3, 2}, {0, 0.75f, 0, 0.625f, 0.5f, 0}),
      floats("features", {1, 8}, std::vector<float>(8))};
  // An original image of 200x100, resized to the model's 4x4: fractions of it again.
  const Prepared sent{{}, {{200, 100}}};
  const std::vector<Named> got = pipeline.after(sent, raw, {}).value();
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(values(got[0].tensor),
            (std::vector<float>{50, 50, 100, 100, 50, 50, 100, 100, 0, 0, 200, 100}));
  EXPECT_EQ(values(got[1].tensor), (std::vector<float>{0.75f, 0.625f, 0.5f}));
  EXPECT_THAT(strings(got[2].tensor), ElementsAre("tree", "tree", "car"));
  EXPECT_EQ(got[3].tensor.values<std::int64_t>()[0], 3);
  EXPECT_EQ(got[4].name, "features");
  // Without an image the boxes stay in the model's units.
  EXPECT_EQ(values(pipeline.after({}, raw, {}).value()[0].tensor)[3], 1.75f);
  // In pixels of the model's input: 4x4 there is 200x100 here.
  const Pipeline pixels =
      compile("{preprocess: {image: {}}, postprocess: {nms: {scores: confidence, format: xywh}}}",
              kDetector)
          .value();
  const std::vector<Named> in_pixels = {floats("boxes", {1, 1, 4}, {1, 1, 2, 2}),
                                        floats("confidence", {1, 1, 2}, {0.9f, 0}), raw[2]};
  EXPECT_EQ(values(pixels.after(sent, in_pixels, {}).value()[0].tensor),
            (std::vector<float>{50, 25, 150, 75}));
}

TEST(Pipeline, BoxesOfSeveralImagesAreConcatenatedWithCounts) {
  Model model = kDetector;
  for (Spec& output : model.outputs) output.shape[0] = -1;
  const Pipeline pipeline = compile("postprocess: {nms: {scores: confidence}}", model).value();
  const std::vector<Named> raw = {floats("boxes", {3, 1, 4}, {0, 0, 1, 1, 0, 0, 2, 2, 0, 0, 3, 3}),
                                  floats("confidence", {3, 1, 2}, {0, 1, 0, 0, 1, 1}),
                                  floats("features", {3, 8}, std::vector<float>(24))};
  const std::vector<Named> got = pipeline.after({}, raw, {}).value();
  EXPECT_EQ(values(got[0].tensor), (std::vector<float>{0, 0, 1, 1, 0, 0, 3, 3, 0, 0, 3, 3}));
  const auto counts = got[3].tensor.values<std::int64_t>();
  EXPECT_THAT(std::vector<std::int64_t>(counts.begin(), counts.end()), ElementsAre(1, 0, 2));
  EXPECT_THAT(pipeline.after({{}, {{1, 1}}}, raw, {}).error().message(),
              HasSubstr("boxes of 3 images for 1"));
  const std::vector<Named> torn = {raw[0], floats("confidence", {3, 2, 2}, std::vector<float>(12)),
                                   raw[2]};
  EXPECT_THAT(pipeline.after({}, torn, {}).error().message(),
              HasSubstr("the model gave [3,1,4] and [3,2,2]"));
}

TEST(Pipeline, SingleClassScoresNeedNoClassDimension) {
  const Pipeline pipeline =
      compile("postprocess: {nms: {}}",
              {{}, {{"boxes", DType::kFp16, {-1, 4}}, {"scores", DType::kFp32, {-1}}}, {"face"}})
          .value();
  const std::vector<std::uint16_t> corners = {0, 0, 0x3c00, 0x4000};
  const std::vector<Named> raw = {
      {"boxes", Tensor::of<std::uint16_t>(DType::kFp16, {1, 4}, corners).value()},
      floats("scores", {1}, {0.5f})};
  const std::vector<Named> got = pipeline.after({}, raw, {}).value();
  EXPECT_EQ(values(got[0].tensor), (std::vector<float>{0, 0, 1, 2}));
  EXPECT_THAT(strings(got[2].tensor), ElementsAre("face"));
}

TEST(Pipeline, SoftmaxMayPrecedeSuppression) {
  const Pipeline pipeline = compile(
                                "postprocess: {softmax: {input: confidence}, nms: {scores: "
                                "probabilities, threshold: 0.9}}",
                                kDetector)
                                .value();
  const std::vector<Named> raw = {floats("boxes", {1, 2, 4}, {0, 0, 1, 1, 0, 0, 2, 2}),
                                  floats("confidence", {1, 2, 2}, {9, 0, 0, 0}),
                                  floats("features", {1, 8}, std::vector<float>(8))};
  EXPECT_EQ(pipeline.after({}, raw, {}).value()[1].tensor.size(), 1u);
}

TEST(Pipeline, SampleEqualsARealRequest) {
  const Pipeline pipeline =
      compile("preprocess: {image: {}}", {{{"x", DType::kFp32, {2, 3, 4, 5}}}, {}, {}}).value();
  const Prepared got = pipeline.before(pipeline.sample().value()).value();
  EXPECT_EQ(got.inputs[0].tensor.shape(), (tensor::Shape{2, 3, 4, 5}));
  EXPECT_TRUE(compile("{}", kClassifier)->sample()->empty());
}

TEST(Pipeline, ErrorForAMismatchedDeclarationGivesAdvice) {
  const auto input = [](DType dtype, tensor::Shape shape) {
    return Model{{{"x", dtype, std::move(shape)}}, {}, {}};
  };
  const Model two = {{{"a", DType::kFp32, {1, 3, 2, 2}}, {"image", DType::kInt64, {1}}}, {}, {}};
  const Model twins = {
      {},
      {{"a", DType::kFp32, {-1, 2}}, {"b", DType::kFp32, {-1, 2}}, {"n", DType::kInt64, {1}}},
      {"x"}};
  struct Case {
    std::string yaml;
    Model model;
    std::string want;
  };
  const std::vector<Case> cases = {
      {"preprocess: {image: {}}", two,
       "preprocess.input must name the model's input for images: a, image"},
      {"preprocess: {input: z, image: {}}", two,
       "preprocess.input: the model has no input \"z\"; it has a, image"},
      {"preprocess: {input: a, image: {}}", two, "the model already has an input called image"},
      {"preprocess: {image: {}}", input(DType::kInt64, {1, 3, 2, 2}),
       "is INT64; images become FP32, FP64, FP16 or UINT8"},
      {"preprocess: {image: {}}", input(DType::kFp32, {1, 3, 2, 3}),
       "preprocess.image.layout must be set: the shape of the model's input \"x\" of shape "
       "[1,3,2,3] does not define it"},
      {"preprocess: {image: {}}", input(DType::kFp32, {1, 4, 2, 2}),
       "preprocess.image.layout must be set"},
      {"preprocess: {image: {}}", input(DType::kFp32, {-1, 12}),
       "preprocess.image.layout must be set"},
      {"preprocess: {image: {}}", input(DType::kFp32, {12}), "preprocess.image.layout must be set"},
      {"preprocess: {image: {layout: NCHW}}", input(DType::kFp32, {3, 2, 2}),
       "preprocess.image.layout NCHW has 4 dimensions"},
      {"preprocess: {image: {layout: NHW}}", input(DType::kFp32, {-1, 2, 2}),
       "layout NHW has no channels: set channels: grey"},
      {"preprocess: {image: {layout: NCHW}}", input(DType::kFp32, {1, 1, 2, 2}),
       "preprocess.image.channels rgb are 3, but the model's input \"x\" of shape [1,1,2,2] takes "
       "1 (layout NCHW)"},
      {"preprocess: {image: {}}", input(DType::kFp32, {1, 3, -1, -1}),
       "preprocess.image.resize needs width and height"},
      {"preprocess: {image: {resize: {width: 3, height: 2}}}", input(DType::kFp32, {1, 3, 2, 2}),
       "preprocess.image.resize.width is 3, but the model's input \"x\" of shape [1,3,2,2] takes "
       "2"},
      {"preprocess: {image: {layout: NHWC, resize: {width: 3, height: 2}}}",
       input(DType::kFp32, {-1, 12}),
       "3x2 pixels in 3 channels are 18 values, but the model's input"},
      {"preprocess: {image: {channels: grey}}", input(DType::kFp32, {0, 2, 2}), "takes no image"},
      {"preprocess: {image: {channels: grey}}", input(DType::kFp32, {1000, 2, 2}),
       "1000 images of 2x2 pixels for the model's input \"x\" of shape [1000,2,2] are more than a "
       "request may have: 256 images"},
      {"preprocess: {image: {scale: 2}}", input(DType::kUint8, {1, 3, 2, 2}),
       "is UINT8: it takes no scale, mean or std"},
      {"preprocess: {image: {layout: NCHW, resize: {width: 16384, height: 16384}}}",
       input(DType::kFp32, {1, 3, -1, -1}), "images of 16384x16384 pixels are more than"},
      {"preprocess: {image: {channels: grey, layout: HW, resize: {width: 16384, height: 16384}}}",
       input(DType::kUint8, {-1, -1}), "1 images of 16384x16384 pixels"},
      {"postprocess: {softmax: {}}", twins,
       "postprocess.softmax.input must name the output to read: a, b, n"},
      {"postprocess: {softmax: {input: c}}", twins,
       "postprocess.softmax.input: the model has no output \"c\"; it has a, b, n"},
      {"postprocess: {softmax: {input: 'n'}}", twins,
       "output \"n\" of shape [1] is INT64, not a floating type"},
      {"postprocess: {softmax: {input: a, output: raw.a}}", twins, "must not begin with raw."},
      {"postprocess: {softmax: {input: a, output: scores}, top_k: {}}", twins,
       "another step's result is called scores"},
      {"postprocess: {top_k: {input: a, k: 3}}",
       {{}, twins.outputs, {}},
       "postprocess.top_k.k is 3, but output \"a\" of shape [-1,2] has 2 classes"},
      {"postprocess: {top_k: {input: a, k: 1}}", twins,
       "postprocess.top_k: there are 1 labels, but output \"a\" of shape [-1,2] has 2 classes"},
      {"postprocess: {top_k: {}}",
       {{}, {{"n", DType::kInt64, {1}}}, {}},
       "the model has no output of scores; it has n"},
      {"postprocess: {nms: {}}", twins,
       "postprocess.nms.boxes: the model has no output \"boxes\"; it has a, b, n"},
      {"postprocess: {nms: {boxes: a, scores: b}}", twins,
       "output \"a\" of shape [-1,2] is neither [n,4] nor [batch,n,4]"},
      {"postprocess: {nms: {scores: confidence}}",
       {{}, kDetector.outputs, {"a", "b", "c"}},
       "there are 3 labels, but output \"confidence\" of shape [1,-1,2] has 2 classes"},
      {"postprocess: {nms: {scores: features}}",
       {{}, {{"boxes", DType::kFp32, {1, 9, 4}}, {"features", DType::kFp32, {1, 8}}}, {}},
       "output \"features\" of shape [1,8] does not fit output \"boxes\" of shape [1,9,4]"},
  };
  for (const Case& c : cases) {
    const auto got = compile(c.yaml, c.model);
    ASSERT_FALSE(got.ok()) << c.yaml << " " << c.want;
    EXPECT_THAT(got.error().message(), HasSubstr(c.want)) << c.yaml;
    EXPECT_TRUE(got.error().terminal());
  }
}

}  // namespace
}  // namespace varda::transform
