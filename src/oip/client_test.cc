#include "oip/client.h"

#include <array>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "oip/route.h"

namespace varda::oip {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

std::string digits(const std::string& name) {
  std::ifstream file(VARDA_DIGITS "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A server in this process with a model that returns the brightest of the first three pixels as the
// class.
net::Response serve(const net::Request& request) {
  const auto found = parse_route(request.method, request.path());
  if (!found.route || found.route->model != "brightest")
    return {404, {}, error_body("there is no such model"), nullptr};
  if (found.route->call == Call::kModelReady) return {503, {}, R"({"ready":false})", nullptr};
  if (found.route->call == Call::kModelMetadata) {
    return {200,
            {},
            write(ModelMetadata{"brightest",
                                {"1"},
                                "test",
                                {{"image", DType::kFp32, {-1, 1, 1, 3}}},
                                {{"p", DType::kFp32, {-1, 3}}},
                                {"a", "b", "c"}}),
            nullptr};
  }
  auto infer = parse_infer_request(std::make_shared<const std::string>(request.body),
                                   request.headers.find(kJsonLengthHeader));
  if (!infer.ok()) return {400, {}, error_body(infer.error().message()), nullptr};
  const Tensor scores = infer->inputs[0].tensor.reshaped({1, 3}).value();
  const std::array<Encoding, 1> encodings = {infer->outputs[0].encoding};
  Message message = write_infer_response({"brightest", "1", "", {{"p", scores}}}, encodings);
  net::Response response{200, {}, std::move(message.body), nullptr};
  if (message.json_length)
    response.headers.add(std::string(kJsonLengthHeader), std::to_string(*message.json_length));
  return response;
}

TEST(Client, ClientPredictsImagesThroughAnyHttpClient) {
  const auto http = net::loopback(net::inline_handler(serve));
  const Client client(*http, "http://server/");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  const Predictor predictor = Predictor::open(ctx, client, "brightest").value();
  const Images images{2, 1, 3, 1, {1, 9, 3, 7, 2, 5}};
  const Prediction second = predictor.predict(ctx, images, 1).value();
  EXPECT_EQ(second.guess.label, "a");
  EXPECT_EQ(second.guess.probability, 7.0);
  EXPECT_EQ(second.version, "1");
  EXPECT_EQ(predictor.predict(ctx, images, 0)->guess.label, "b");
  EXPECT_EQ(client.ready(ctx, "brightest").value(), false);
}

// A server with a model that takes files and classifies by the first pixel.
net::Response serve_files(const net::Request& request) {
  const auto found = parse_route(request.method, request.path());
  if (found.route->call == Call::kModelMetadata) {
    const std::vector<tensor::Spec> outputs = {{"labels", DType::kBytes, {-1, 2}},
                                               {"scores", DType::kFp32, {-1, 2}}};
    return {
        200,
        {},
        write(ModelMetadata{
            "files", {"1"}, "test", {{"image", DType::kBytes, {-1}}}, outputs, {"dark", "bright"}}),
        nullptr};
  }
  auto infer = parse_infer_request(std::make_shared<const std::string>(request.body),
                                   request.headers.find(kJsonLengthHeader))
                   .value();
  const Images image = parse_images(infer.inputs[0].tensor.strings().at(0)).value();
  const bool bright = image.pixels[0] > 127;
  const std::vector<std::string> class_names = {bright ? "bright" : "dark",
                                                bright ? "dark" : "bright"};
  const std::array<float, 2> scores = {0.75f, 0.25f};
  EXPECT_EQ(infer.outputs.size(), 2u);
  const std::vector<tensor::Named> outputs = {
      {"labels", Tensor::of_strings({1, 2}, class_names).value()},
      {"scores", Tensor::of<float>(DType::kFp32, {1, 2}, scores).value()}};
  return {200, {}, write_infer_response({"files", "1", "", outputs}, {}).body, nullptr};
}

TEST(Client, FilesAreSentToFileModelsAndLabelsAreRead) {
  const auto http = net::loopback(net::inline_handler(serve_files));
  const Client client(*http, "http://server/");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  const Predictor predictor = Predictor::open(ctx, client, "files").value();
  const Images images{2, 1, 1, 1, {200, 3}};
  const Prediction first = predictor.predict(ctx, images, 0).value();
  EXPECT_EQ(first.guess.label, "bright");
  EXPECT_EQ(first.guess.index, 1u);
  EXPECT_EQ(first.guess.probability, 0.75);
  EXPECT_EQ(predictor.predict(ctx, images, 1)->guess.label, "dark");
  EXPECT_EQ(predictor.predict(ctx, parse_images(digits("png/digit-0.png")).value(), 0)->guess.label,
            "dark");
}

// A server with a detector that finds as many objects as the first pixel's value.
net::Response serve_boxes(const net::Request& request) {
  const auto found = parse_route(request.method, request.path());
  if (found.route->call == Call::kModelMetadata) {
    const std::vector<tensor::Spec> outputs = {{"boxes", DType::kFp32, {-1, 4}},
                                               {"scores", DType::kFp32, {-1}},
                                               {"labels", DType::kBytes, {-1}}};
    return {200,
            {},
            write(ModelMetadata{
                "boxes", {"1"}, "test", {{"image", DType::kBytes, {-1}}}, outputs, {"cat", "dog"}}),
            nullptr};
  }
  auto infer = parse_infer_request(std::make_shared<const std::string>(request.body),
                                   request.headers.find(kJsonLengthHeader))
                   .value();
  const std::int64_t count = parse_images(infer.inputs[0].tensor.strings().at(0)).value().pixels[0];
  std::vector<std::string> names;
  std::vector<float> scores, boxes;
  for (std::int64_t i = 0; i < count; ++i) {
    names.push_back(i % 2 == 0 ? "dog" : "cat");
    scores.push_back(0.75f - 0.25f * static_cast<float>(i));
    for (int side = 0; side < 4; ++side) boxes.push_back(static_cast<float>(10 * i + side));
  }
  const std::vector<tensor::Named> outputs = {
      {"boxes", Tensor::of<float>(DType::kFp32, {count, 4}, boxes).value()},
      {"scores", Tensor::of<float>(DType::kFp32, {count}, scores).value()},
      {"labels", Tensor::of_strings({count}, names).value()}};
  return {200, {}, write_infer_response({"boxes", "1", "", outputs}, {}).body, nullptr};
}

TEST(Client, EveryDetectionIsReadWithItsBox) {
  const auto http = net::loopback(net::inline_handler(serve_boxes));
  const Client client(*http, "http://server/");
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  const Predictor predictor = Predictor::open(ctx, client, "boxes").value();
  const Images images{2, 1, 1, 1, {2, 0}};
  const Prediction two = predictor.predict(ctx, images, 0).value();
  ASSERT_TRUE(two.detections);
  ASSERT_EQ(two.detections->size(), 2u);
  EXPECT_EQ(two.guess.label, "dog");
  EXPECT_EQ(two.detections->at(1).guess.label, "cat");
  EXPECT_EQ(two.detections->at(1).guess.probability, 0.5);
  EXPECT_EQ(two.detections->at(1).box, (std::array<float, 4>{10, 11, 12, 13}));
  const Prediction none = predictor.predict(ctx, images, 1).value();
  ASSERT_TRUE(none.detections);
  EXPECT_TRUE(none.detections->empty());
}

TEST(Client, ErrorsContainTheMessageOfTheServer) {
  const auto http = net::loopback(net::inline_handler(serve));
  const Client client(*http, "http://server");
  EXPECT_EQ(client.metadata(Context::background(), "other").error(),
            Error(Code::kNotFound, "there is no such model"));
}

TEST(Top, TopReturnsTheHighestScoreOfARow) {
  const std::array<float, 6> values = {0.1f, 0.7f, 0.2f, 0.5f, 0.2f, 0.3f};
  const Tensor scores = Tensor::of<float>(DType::kFp32, {2, 3}, values).value();
  EXPECT_EQ(top(scores, 0, {})->label, "1");
  EXPECT_EQ(top(scores, 1, {"zero"})->label, "zero");
  EXPECT_FALSE(top(scores, 2, {}).ok());
}

TEST(Images, IdxFilesOfTheExampleAreRead) {
  const Images images = parse_images(digits("test-images.idx3-ubyte")).value();
  EXPECT_EQ(images.count, 360u);
  EXPECT_EQ(images.height, 8u);
  EXPECT_EQ(images.width, 8u);
  EXPECT_EQ(parse_labels(digits("test-labels.idx1-ubyte"))->size(), 360u);
}

TEST(Images, PngAndIdxFilesHoldTheSamePixels) {
  const Images all = parse_images(digits("test-images.idx3-ubyte")).value();
  const std::vector<int> labels = parse_labels(digits("test-labels.idx1-ubyte")).value();
  for (int digit = 0; digit < 10; ++digit) {
    const Images png = parse_images(digits("png/digit-" + std::to_string(digit) + ".png")).value();
    const auto at =
        static_cast<std::size_t>(std::find(labels.begin(), labels.end(), digit) - labels.begin());
    EXPECT_EQ(png.pixels,
              std::vector<std::uint8_t>(all.pixels.begin() + static_cast<long>(at * 64),
                                        all.pixels.begin() + static_cast<long>(at * 64 + 64)));
  }
}

TEST(Images, TruncatedAndForeignFilesAreRefused) {
  const std::string idx = digits("test-images.idx3-ubyte"), png = digits("png/digit-0.png");
  EXPECT_EQ(parse_images("hello").error().message(),
            "neither a JPEG, a PNG nor an IDX file of images");
  EXPECT_EQ(parse_images("").error().message(), "neither a JPEG, a PNG nor an IDX file of images");
  EXPECT_THAT(parse_images(idx.substr(0, 100)).error().message(),
              HasSubstr("its header says 23040"));
  EXPECT_THAT(parse_images(digits("test-labels.idx1-ubyte")).error().message(),
              HasSubstr("not an IDX file of images"));
  EXPECT_THAT(parse_labels(idx).error().message(), HasSubstr("not an IDX file of labels"));
  EXPECT_FALSE(
      parse_images(std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16))
          .ok());
  for (std::size_t cut = 8; cut + 16 < png.size(); ++cut)
    EXPECT_FALSE(parse_images(png.substr(0, cut)).ok()) << cut;
}

TEST(Images, FileModelsGetTheOriginalFile) {
  const std::string png = digits("png/digit-0.png");
  const Images file = parse_images(png).value();
  EXPECT_EQ(image_tensor(file, 0, 1, {"image", DType::kBytes, {-1}})->strings().at(0), png);
  const Images idx = parse_images(digits("test-images.idx3-ubyte")).value();
  const Tensor two = image_tensor(idx, 3, 2, {"image", DType::kBytes, {-1}}).value();
  EXPECT_EQ(parse_images(two.strings().at(1))->pixels,
            std::vector<std::uint8_t>(idx.pixels.begin() + 4 * 64, idx.pixels.begin() + 5 * 64));
  EXPECT_EQ(image_tensor(idx, 0, 2, {"image", DType::kBytes, {1}}).error().message(),
            "the model's input \"image\" takes strings in the shape [1], not [2]");
}

TEST(Images, LayoutFollowsTheInputOfTheModel) {
  const Images colour{1, 1, 2, 3, {10, 20, 30, 40, 50, 60}};
  const auto values = [&](const Images& images, tensor::Shape shape) {
    const Tensor t = image_tensor(images, 0, 1, {"x", DType::kUint8, std::move(shape)}).value();
    return std::vector<int>(t.values<std::uint8_t>().begin(), t.values<std::uint8_t>().end());
  };
  EXPECT_EQ(values(colour, {-1, 1, 2, 3}), (std::vector<int>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(values(colour, {-1, 3, 1, 2}), (std::vector<int>{10, 40, 20, 50, 30, 60}));
  EXPECT_EQ(values(colour, {1, 2}), (std::vector<int>{18, 48}));
  const Images grey{1, 1, 2, 1, {7, 8}};
  EXPECT_EQ(values(grey, {-1, 3, -1, -1}), (std::vector<int>{7, 8, 7, 8, 7, 8}));
  EXPECT_EQ(image_tensor(grey, 0, 1, {"x", DType::kFp32, {-1, 28, 28}}).error().message(),
            "images of 2x1 pixels do not fit the model's input \"x\" of shape [-1,28,28]");
  EXPECT_EQ(image_tensor(grey, 0, 1, {"x", DType::kFp32, {4, 1, 2}}).error().message(),
            "the model's input \"x\" takes 4 images at a time");
  EXPECT_EQ(image_tensor(grey, 0, 1, {"x", DType::kInt64, {-1, 2}}).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda::oip
