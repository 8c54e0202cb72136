// Models with preprocess and postprocess in model.yaml, through the server's handler: no sockets.
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "codec/digest.h"
#include "codec/image.h"
#include "codec/json.h"
#include "serving/handler.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {
namespace transform_test {

using codec::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four grey pixels are the scores of four classes.
constexpr auto kModel = "tensor FP32 -1 4\n";
constexpr auto kImage =
    "preprocess: {image: {channels: grey, layout: NHW, resize: {width: 2, height: 2, filter: "
    "nearest}, scale: 0.01}}\n";
constexpr auto kClassify = "postprocess: {softmax: {}, top_k: {k: 2}}\n";

std::string png(std::vector<std::uint8_t> grey) {
  return codec::encode_png({2, 2, 1, std::move(grey)}).value();
}

class Transforms : public ::testing::Test {
 protected:
  void start(const std::string& yaml, const std::string& model = kModel) {
    models_.add("m", "1", model, yaml);
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {.instances = 1},
                                    .check_interval = std::chrono::hours(1)},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    handler_ = make_handler({*repository_, registry_, draining_});
    const Status status =
        repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }
  net::Response post(std::string body, net::Headers headers = {}) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    auto future = promise->get_future();
    handler_({.method = "POST",
              .target = "/v2/models/m/infer",
              .headers = std::move(headers),
              .body = std::move(body)},
             net::Responder(
                 [promise](net::Response response) { promise->set_value(std::move(response)); }));
    return future.get();
  }
  // "NAME=DATA …" of an answer in JSON, or "STATUS message".
  static std::string outcome(const net::Response& response) {
    const Json json = codec::parse_json(response.body).value_or(Json());
    if (response.status != 200)
      return std::to_string(response.status) + " " + json["error"].as_string();
    std::string out;
    for (const Json& output : json["outputs"].as_array())
      out += (out.empty() ? "" : " ") + output["name"].as_string() + "=" +
             codec::write_json(output["data"]);
    return out;
  }
  std::string failure() {
    const std::vector<oip::IndexEntry> index = repository_->index();
    return index.size() == 1 ? index[0].state + " " + index[0].code + ": " + index[0].reason : "";
  }

  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  std::atomic<bool> draining_{false};
  std::unique_ptr<Repository> repository_;
  net::Handler handler_;
};

TEST_F(Transforms, ImageIsAcceptedAsTheRequestBody) {
  start(std::string(kImage) + "postprocess: {top_k: {k: 2}}\n");
  // JSON has the shortest decimals that round-trip to these floats: 200 * 0.01f and 100 * 0.01f.
  EXPECT_EQ(outcome(post(png({0, 200, 50, 100}), {{"Content-Type", "image/png"}})),
            R"(labels=["1","3"] scores=[2,1])");
  EXPECT_EQ(outcome(post(png({9, 0, 0, 0}), {{"Content-Type", "IMAGE/JPEG ; q=1"}})).substr(0, 16),
            R"(labels=["0","1"])");
  EXPECT_EQ(outcome(post("hello", {{"Content-Type", "image/png"}})),
            "400 image 0: neither a JPEG nor a PNG, nor the base64 of one");
  EXPECT_EQ(outcome(post("RIFF", {{"Content-Type", "image/webp"}})),
            "400 image 0: neither a JPEG nor a PNG, nor the base64 of one");
}

TEST_F(Transforms, ErrorForAnInvalidBodyExplainsWhatToSend) {
  start(kImage);
  const std::string hint =
      ": send JSON, {\"inputs\": [...]}, or a JPEG or PNG with Content-Type: image/jpeg or "
      "image/png";
  EXPECT_EQ(outcome(post("")), "400 the body is empty" + hint);
  EXPECT_EQ(outcome(post("", {{"Content-Type", "image/png"}})), "400 the body is empty" + hint);
  EXPECT_EQ(outcome(post(png({1, 2, 3, 4}))),
            "400 the body is a PNG: send it with Content-Type: image/png");
  EXPECT_EQ(outcome(post("\xff\xd8\xff", {{"Content-Type", "application/x-www-form-urlencoded"}})),
            "400 the body is a JPEG: send it with Content-Type: image/jpeg");
  EXPECT_EQ(outcome(post("--x\r\n", {{"Content-Type", "multipart/form-data; boundary=x"}})),
            "400 the body is an upload of a form" + hint);
  EXPECT_EQ(outcome(post("a=b", {{"Content-Type", "application/x-www-form-urlencoded"}})),
            "400 the body is not a JSON object" + hint);
  EXPECT_EQ(outcome(post(" [1]")), "400 the body is not a JSON object" + hint);
}

TEST_F(Transforms, ErrorForAnImageToATensorModelExplainsWhy) {
  start("");
  EXPECT_EQ(outcome(post(png({1, 2, 3, 4}))),
            "400 the body is a PNG, and model \"m\" takes tensors: its model.yaml declares no "
            "preprocess");
  EXPECT_EQ(outcome(post("")), "400 the body is empty: send JSON, {\"inputs\": [...]}");
}

TEST_F(Transforms, ImagesAreAcceptedAsBinaryTensorsAndBase64) {
  start(std::string(kImage) + kClassify);
  const std::string a = png({0, 0, 0, 255}), b = png({0, 255, 0, 0});
  oip::InferRequest request;
  request.id = "7";
  request.outputs = {{"labels", oip::Encoding::kJson}};
  request.inputs = {{"image", tensor::Tensor::of_strings({2}, std::vector{a, b}).value()}};
  const oip::Message message = oip::write_infer_request(request);
  const net::Response binary = post(
      message.body, {{std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length)}});
  EXPECT_EQ(outcome(binary), R"(labels=["3","0","1","0"])");
  EXPECT_EQ(codec::parse_json(binary.body)->at("outputs/0/shape"), Json::array({2, 2}));
  const std::string json =
      R"({"inputs":[{"name":"image","shape":[1],"datatype":"BYTES","data":[")" + codec::base64(b) +
      R"("]}]})";
  EXPECT_EQ(outcome(post(json)).substr(0, 16), R"(labels=["1","0"])");
}

// Threads of connections never decode, however short earlier requests were: a few kilobytes may be
// millions of pixels.
TEST_F(Transforms, ImagesAreNeverDecodedOnTheThreadOfTheCaller) {
  start(std::string(kImage) + kClassify);
  const std::string json =
      R"({"inputs":[{"name":"image","shape":[1],"datatype":"BYTES","data":[")" +
      codec::base64(png({1, 2, 3, 4})) + R"("]}]})";
  for (int i = 0; i < 20; ++i) {
    for (const auto& [body, type] :
         {std::pair(png({1, 2, 3, 4}), "image/png"), std::pair(json, "application/json")}) {
      auto ran = std::make_shared<std::promise<std::pair<int, std::thread::id>>>();
      auto future = ran->get_future();
      handler_({.method = "POST",
                .target = "/v2/models/m/infer",
                .headers = {{"Content-Type", type}},
                .body = body},
               net::Responder([ran](const net::Response& response) {
                 ran->set_value({response.status, std::this_thread::get_id()});
               }));
      const auto [status, thread] = future.get();
      EXPECT_EQ(status, 200);
      EXPECT_NE(thread, std::this_thread::get_id());
    }
  }
}

TEST_F(Transforms, TensorsOfTheModelAreAcceptedAndEveryOutputAvailable) {
  start(std::string(kImage) + kClassify);
  const std::string input =
      R"("inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0,0,8,0]}])";
  EXPECT_EQ(outcome(post("{" + input + "}")).substr(0, 16), R"(labels=["2","0"])");
  EXPECT_EQ(outcome(post("{" + input + R"(,"outputs":[{"name":"y"},{"name":"raw.y"}]})")),
            "y=[0,0,8,0] raw.y=[0,0,8,0]");
  EXPECT_THAT(outcome(post("{" + input + R"(,"outputs":[{"name":"probabilities"}]})")),
              HasSubstr("probabilities=[0.000"));
  EXPECT_EQ(outcome(post("{" + input + R"(,"outputs":[{"name":"z"}]})")),
            "400 the model has no output \"z\"; it has labels, scores, probabilities, y");
}

TEST_F(Transforms, MetadataShowsImageInputAndLabelOutputs) {
  start(std::string(kImage) + kClassify);
  EXPECT_THAT(
      oip::write(repository_->find("m", "").value()->metadata()),
      HasSubstr(
          R"("inputs":[{"name":"image","datatype":"BYTES","shape":[-1]}],)"
          R"("outputs":[{"name":"labels","datatype":"BYTES","shape":[-1,2]},{"name":"scores","datatype":"FP32","shape":[-1,2]}])"));
}

TEST_F(Transforms, MismatchedPostprocessFailsTheLoadWithAReason) {
  start("postprocess: {top_k: {k: 5}}\n");
  EXPECT_EQ(failure(),
            "UNAVAILABLE LoadFailed: model.yaml: postprocess.top_k.k is 5, but output \"y\" of "
            "shape [-1,4] has 4 classes");
  EXPECT_THAT(outcome(post("{}")), HasSubstr("503 model \"m\" is not ready: version 1 does not "
                                             "load: model.yaml: postprocess.top_k.k is 5"));
}

TEST_F(Transforms, WarmUpFindsErrorsThatOpenDimensionsHide) {
  // Boxes of five numbers: the model leaves the size open, so only a run finds the error.
  start("postprocess: {nms: {boxes: 'y', scores: y1}}\nwarmup: {shapes: {x: [3, 5], x1: [3]}}\n",
        "tensor FP32 -1 -1\ntensor FP32 -1\n");
  EXPECT_THAT(failure(),
              HasSubstr("LoadFailed: the first run failed: postprocess.nms takes boxes [n,4]"));
}

TEST_F(Transforms, WarmUpSendsAnImageOfTheDeclaredSize) {
  const std::string runs = (models_.path() / ".runs").string();
  start("preprocess: {image: {layout: NCHW, resize: {width: 2, height: 3}}}\nwarmup: {runs: 2}\n",
        "tensor FP32 -1 3 -1 -1\ncount_runs " + runs + "\n");
  EXPECT_TRUE(std::filesystem::exists(runs));
  EXPECT_EQ(codec::parse_json(post(png({1, 2, 3, 4}), {{"Content-Type", "image/png"}}).body)
                ->at("outputs/0/shape"),
            Json::array({1, 3, 3, 2}));
}

TEST_F(Transforms, ModelWithoutPreprocessRefusesImages) {
  start("postprocess: {top_k: {k: 1}}\n");
  EXPECT_EQ(outcome(post(png({1, 2, 3, 4}), {{"Content-Type", "image/png"}})),
            "400 model \"m\" takes tensors, not images: its model.yaml declares no preprocess");
}

TEST_F(Transforms, PreprocessAndPostprocessTimesAreCountedSeparately) {
  start(std::string(kImage) + kClassify);
  post(png({1, 2, 3, 4}), {{"Content-Type", "image/png"}});
  EXPECT_THAT(registry_.text(), HasSubstr("nv_inference_count{model=\"m\",version=\"1\"} 1\n"));
  for (const char* name :
       {"nv_inference_compute_input_duration_us", "nv_inference_compute_output_duration_us"}) {
    const std::string text = registry_.text();
    const std::size_t at = text.find(std::string(name) + "{model=\"m\",version=\"1\"} ");
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_NE(text.substr(text.find("} ", at) + 2, 2), "0\n") << name;
  }
}

}  // namespace transform_test
}  // namespace varda::serving
