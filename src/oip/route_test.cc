#include "oip/route.h"

#include <gtest/gtest.h>

#include "oip/metadata.h"

namespace varda::oip {
namespace {

TEST(Route, EveryPathOfTheProtocolIsRecognized) {
  const auto route = [](std::string_view method, std::string_view path) {
    return parse_route(method, path).route.value();
  };
  EXPECT_EQ(route("GET", "/v2").call, Call::kServerMetadata);
  EXPECT_EQ(route("GET", "/v2/").call, Call::kServerMetadata);
  EXPECT_EQ(route("GET", "/v2/health/live").call, Call::kServerLive);
  EXPECT_EQ(route("HEAD", "/v2/health/ready").call, Call::kServerReady);
  EXPECT_EQ(route("GET", "/v2/models/digits").call, Call::kModelMetadata);
  EXPECT_EQ(route("GET", "/v2/models/digits/ready").call, Call::kModelReady);
  EXPECT_EQ(route("POST", "/v2/repository/index").call, Call::kRepositoryIndex);
  EXPECT_EQ(route("GET", "/v2/models/digits/joint").call, Call::kModelJoint);
  EXPECT_EQ(route("GET", "/v2/models/digits/trial").call, Call::kModelTrial);
  const Route infer = route("POST", "/v2/models/a%20b/versions/1.2/infer");
  EXPECT_EQ(infer.call, Call::kModelInfer);
  EXPECT_EQ(infer.model, "a b");
  EXPECT_EQ(infer.version, "1.2");
  EXPECT_EQ(route("GET", "/v2/models/m/versions/4").version, "4");
}

TEST(Route, UnknownPathsDifferFromWrongMethods) {
  for (const char* path :
       {"/", "/v1/models/m", "/v2x", "/v2/models", "/v2/models/", "/v2/models/m/versions",
        "/v2/models/m/versions/1/x", "/v2/models/m/versions/1/joint", "/v2/models/m/infer/x",
        "/v2/models/%zz", "/v2/health", "//v2"}) {
    const RouteResult result = parse_route("GET", path);
    EXPECT_FALSE(result.route || result.wrong_method) << path;
  }
  EXPECT_EQ(parse_route("GET", "/v2/models/m/infer").wrong_method->allowed, "POST");
  EXPECT_EQ(parse_route("POST", "/v2/models/m").wrong_method->allowed, "GET");
}

TEST(Route, ErrorsHaveAStatusAndAJsonBody) {
  EXPECT_EQ(http_status(Code::kInvalid), 400);
  EXPECT_EQ(http_status(Code::kExhausted), 429);
  EXPECT_EQ(error_body("no \"x\""), R"({"error":"no \"x\""})");
}

TEST(Metadata, WrittenMetadataReadsBackTheSame) {
  const ModelMetadata model{"digits",
                            {"3", "4"},
                            "onnxruntime_onnx",
                            {{"images", tensor::DType::kFp32, {-1, 8, 8}}},
                            {{"p", tensor::DType::kFp32, {-1, 10}}},
                            {"zero", "one"}};
  const std::string text = write(model);
  EXPECT_EQ(
      text,
      R"({"name":"digits","versions":["3","4"],"platform":"onnxruntime_onnx","inputs":[{"name":"images","datatype":"FP32","shape":[-1,8,8]}],)"
      R"("outputs":[{"name":"p","datatype":"FP32","shape":[-1,10]}],"parameters":{"labels":["zero","one"]}})");
  const ModelMetadata back = parse_model_metadata(text).value();
  EXPECT_EQ(back.inputs, model.inputs);
  EXPECT_EQ(back.labels, model.labels);
  const std::vector<IndexEntry> index = {{"digits", "4", "READY", ""},
                                         {"digits", "5", "UNAVAILABLE", "torn"}};
  EXPECT_EQ(parse_index(write(index)).value(), index);
}

}  // namespace
}  // namespace varda::oip
