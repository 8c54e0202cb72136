#include "oip/envelope.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::oip {
namespace {

using codec::Json;
using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

Result<Envelope> open(const std::string& json, std::optional<std::string> binary = std::nullopt) {
  const auto body = std::make_shared<const std::string>(json + binary.value_or(""));
  std::optional<std::string> length;
  if (binary) length = std::to_string(json.size());
  return open_infer_response(body, length);
}

TEST(Envelope, ResealReplacesTheEnvelopeAndKeepsTheTensors) {
  const auto envelope =
      open(R"({"model_name":"big","model_version":"7","id":"q1","parameters":{"was":1},)"
           R"("outputs":[ {"name":"p","shape":[2],"datatype":"FP32","data":[0.10,null]} ]})")
          .value();
  EXPECT_EQ(envelope.model_version, "7");
  EXPECT_EQ(envelope.parameters["was"].as_integer(), 1);
  const Message out = reseal(envelope, "digits", "3", Json::object({{"tier", "cloud"}}));
  EXPECT_EQ(out.body,
            R"({"model_name":"digits","model_version":"3","id":"q1","parameters":{"tier":"cloud"},)"
            R"("outputs":[ {"name":"p","shape":[2],"datatype":"FP32","data":[0.10,null]} ]})");
  EXPECT_FALSE(out.json_length);
}

TEST(Envelope, BinaryTensorsFollowTheNewHeader) {
  const std::array<float, 2> values = {0.25f, -1};
  const std::array<Encoding, 2> encodings = {Encoding::kBinary, Encoding::kJson};
  const Message message = write_infer_response(
      {"big",
       "7",
       "",
       {{"p", Tensor::of<float>(DType::kFp32, {2}, values).value()},
        {"s", Tensor::of_strings({1}, std::vector<std::string>{"}]"}).value()}}},
      encodings);
  const auto envelope = open_infer_response(std::make_shared<const std::string>(message.body),
                                            std::to_string(*message.json_length))
                            .value();
  const Message out = reseal(envelope, "a rather longer name", "3", nullptr);
  const auto back = parse_infer_response(std::make_shared<const std::string>(out.body),
                                         std::to_string(out.json_length.value()))
                        .value();
  EXPECT_EQ(back.model_name, "a rather longer name");
  EXPECT_EQ(back.outputs[0].tensor.values<float>()[1], -1.0f);
  EXPECT_EQ(back.outputs[1].tensor.strings()[0], "}]");
}

TEST(Envelope, InvalidResponsesAreRefused) {
  const std::string output = R"({"name":"p","shape":[1],"datatype":"FP32","data":[1]})";
  const std::string binary =
      R"({"name":"p","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}})";
  EXPECT_TRUE(open(R"({"outputs":[)" + output + "]}").ok());
  EXPECT_TRUE(open(R"({"outputs":[)" + binary + "]}", "abcd").ok());
  for (
      const std::string text : {
          "",
          "<html>busy</html>",
          "[]",
          "{}",
          R"({"error":"no"})",
          R"({"outputs":{}})",
          R"({"outputs":[1]})",
          R"({"outputs":[]})",
          R"({"outputs":[{"name":"p","shape":[1,1000],"datatype":"FP32","data":[1]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[1,2]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":["1"]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"BYTES","data":[1]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[{}]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[one]}]})",
          R"({"outputs":[{"name":"p","shape":[9223372036854775807,9223372036854775807],"datatype":"FP32","data":[1]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32"}]})",
          R"({"outputs":[{"name":"p","shape":[-1],"datatype":"FP32","data":[1]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP99","data":[1]}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":1}]})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[1})",
          R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[1]}]} and more)",
      }) {
    EXPECT_EQ(open(text).error().code(), Code::kInvalid) << text;
  }
  EXPECT_THAT(open(R"({"outputs":[)" + binary + "]}", "abc").error().message(),
              HasSubstr("4 bytes of binary data, the body has 3"));
  EXPECT_FALSE(open(R"({"outputs":[)" + binary + "]}").ok());
  EXPECT_FALSE(open(R"({"outputs":[)" + output + "]}", "abcd").ok());
}

TEST(Envelope, DataMayBeNestedLikeTheShapeAndPrecedeIt) {
  EXPECT_TRUE(
      open(
          R"({"outputs":[{"data":[[1,null],[true,4.5]],"name":"p","shape":[2,2],"datatype":"FP32"}]})")
          .ok());
  EXPECT_TRUE(
      open(R"({"outputs":[{"name":"s","shape":[2],"datatype":"BYTES","data":["]","}"]}]})").ok());
  EXPECT_TRUE(open(R"({"outputs":[{"name":"p","shape":[0],"datatype":"INT64","data":[]}]})").ok());
  for (const std::size_t depth : {18U, 200000U}) {
    const std::string data = std::string(depth, '[') + "1" + std::string(depth, ']');
    EXPECT_FALSE(
        open(R"({"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":)" + data + "}]}")
            .ok())
        << depth;
  }
}

TEST(Envelope, BinaryDataMustMatchTheShape) {
  const auto of = [](const std::string& shape, const std::string& type, std::size_t bytes) {
    return open(R"({"outputs":[{"name":"p","shape":)" + shape + R"(,"datatype":")" + type +
                    R"(","parameters":{"binary_data_size":)" + std::to_string(bytes) + "}}]}",
                std::string(bytes, 'x'))
        .ok();
  };
  EXPECT_TRUE(of("[2]", "FP32", 8) && of("[2,2]", "FP16", 8) && of("[8]", "BOOL", 8) &&
              of("[3]", "BYTES", 8));
  EXPECT_FALSE(of("[1000]", "FP32", 8) || of("[2]", "FP32", 9) || of("[2]", "FP64", 8));
}

TEST(Envelope, LongVersionsAreTruncatedAtACharacterBoundary) {
  const std::string rest =
      R"(","outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[1]}]})";
  std::string version(127, 'v');
  EXPECT_EQ(open(R"({"model_version":")" + version + "\u00e4" + rest)->model_version, version)
      << "no half characters";
  EXPECT_EQ(open(R"({"model_version":")" + std::string(3000000, 'v') + rest)->model_version.size(),
            128U);
}

TEST(Preamble, PreambleContainsIdAndTimeout) {
  const auto read = [](const std::string& text,
                       std::optional<std::string_view> length = std::nullopt) {
    const Preamble preamble = read_preamble(std::make_shared<const std::string>(text), length);
    return preamble.id + " " + (preamble.timeout ? std::to_string(preamble.timeout->count()) : "-");
  };
  EXPECT_EQ(
      read(R"({"id":"q","inputs":[{"parameters":{"timeout":1}}],"parameters":{"timeout":2500}})"),
      "q 2500");
  EXPECT_EQ(read(R"({"id":"q"}binary)", "10"), "q -");
  EXPECT_EQ(read(R"({"parameters":{"timeout":9000000000000000000}})"), " 86400000000");
  EXPECT_EQ(read(R"({"parameters":{"timeout":0}})"), " -");
  for (const std::string text : {"", "{", "\xff\xd8\xff", "[]", R"({"id":7})", R"({"id":"q")",
                                 R"({"parameters":{"timeout":-1}})"}) {
    EXPECT_EQ(read(text), " -") << text;
  }
  EXPECT_EQ(read(R"({"id":"q"})", "1000"), " -");
}

TEST(InferResponse, ParametersSurviveARoundTrip) {
  const Message message = write_infer_response(
      {"m", "1", "", {{"p", Tensor()}}, Json::object({{"tier", "edge"}, {"hard", false}})}, {});
  EXPECT_THAT(
      message.body,
      HasSubstr(R"("model_version":"1","parameters":{"tier":"edge","hard":false},"outputs":)"));
  const auto back =
      parse_infer_response(std::make_shared<const std::string>(message.body), std::nullopt).value();
  EXPECT_EQ(back.parameters["tier"].as_string(), "edge");
}

}  // namespace
}  // namespace varda::oip
