#include "oip/infer.h"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace varda::oip {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

Result<InferRequest> parse(std::string json, std::string binary = "") {
  const std::string length = std::to_string(json.size());
  const bool plain = binary.empty();
  return parse_infer_request(std::make_shared<const std::string>(json + binary),
                             plain ? std::nullopt : std::optional<std::string_view>(length));
}

std::string input(std::string_view dtype, std::string_view shape, std::string_view data) {
  return R"({"inputs":[{"name":"x","datatype":")" + std::string(dtype) + R"(","shape":)" +
         std::string(shape) + R"(,"data":)" + std::string(data) + "}]}";
}

TEST(InferRequest, JsonDataIsReadFlatOrNested) {
  for (const char* data : {"[1,2.5,-3e0,4]", "[[1,2.5],[-3,4]]", " [ [ 1 , 2.5 ] , -3, 4 ] "}) {
    const auto request = parse(input("FP32", "[2,2]", data)).value();
    ASSERT_EQ(request.inputs.size(), 1u);
    const auto values = request.inputs[0].tensor.values<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), (std::vector<float>{1, 2.5, -3, 4}))
        << data;
  }
}

TEST(InferRequest, DataMayComeBeforeTypeAndShape) {
  const auto request =
      parse(
          R"({"inputs":[{"data":[[7],[8]],"shape":[2,1],"name":"x","datatype":"INT64"}],"id":"a"})")
          .value();
  EXPECT_EQ(request.inputs[0].tensor.values<std::int64_t>()[1], 8);
  EXPECT_EQ(request.id, "a");
}

TEST(InferRequest, EveryTypeAcceptsItsExtremes) {
  EXPECT_TRUE(parse(input("UINT64", "[2]", "[0,18446744073709551615]")).ok());
  EXPECT_EQ(parse(input("INT64", "[1]", "[-9223372036854775808]"))
                ->inputs[0]
                .tensor.values<std::int64_t>()[0],
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse(input("INT8", "[2]", "[-128,127]"))->inputs[0].tensor.values<std::int8_t>()[0],
            -128);
  EXPECT_EQ(parse(input("BOOL", "[3]", "[true,false,1]"))->inputs[0].tensor.values<bool>()[2],
            true);
  EXPECT_EQ(parse(input("UINT8", "[2]", "[255,3.0]"))->inputs[0].tensor.values<std::uint8_t>()[1],
            3);
  EXPECT_EQ(parse(input("FP64", "[]", "[0.1]"))->inputs[0].tensor.values<double>()[0], 0.1);
  EXPECT_EQ(parse(input("BYTES", "[2]", R"(["","ü\n"])"))->inputs[0].tensor.strings()[1], "ü\n");
}

TEST(InferRequest, ErrorNamesNumbersOutOfRange) {
  const auto error = [](std::string_view dtype, std::string_view data) {
    return parse(input(dtype, "[1]", data)).error().message();
  };
  EXPECT_THAT(error("INT8", "[128]"), HasSubstr("\"x\""));
  for (const auto& [dtype, data] :
       std::vector<std::pair<const char*, const char*>>{{"INT8", "[128]"},
                                                        {"INT8", "[-129]"},
                                                        {"UINT8", "[-1]"},
                                                        {"UINT32", "[4294967296]"},
                                                        {"INT64", "[9223372036854775808]"},
                                                        {"INT32", "[1.5]"},
                                                        {"INT32", "[1e300]"},
                                                        {"BOOL", "[2]"},
                                                        {"FP32", "[1e39]"}}) {
    EXPECT_THAT(error(dtype, data),
                HasSubstr("element 0 of data does not fit " + std::string(dtype)))
        << data;
  }
}

TEST(InferRequest, ErrorDescribesTheInvalidPart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "offset 0: expected '{'"},
      {"[]", "offset 0: expected '{'"},
      {"{}", "no inputs"},
      {R"({"inputs":[]})", "no inputs"},
      {R"({"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]})", "input 0: has no name"},
      {R"({"inputs":[{"name":"x","shape":[1],"data":[1]}]})", "input 0: \"x\" has no datatype"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","data":[1]}]})", "input 0: \"x\" has no shape"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]})", "input 0: \"x\" has no data"},
      {input("FP31", "[1]", "[1]"), "no datatype \"FP31\""},
      {input("FP32", "[-1]", "[1]"), "each dimension of shape must be an integer of 0 or more"},
      {input("FP32", "[1.5]", "[1]"), "each dimension of shape must be an integer of 0 or more"},
      {input("FP32", "[2]", "[1]"), "data has 1 elements, the shape [2] has 2"},
      {input("FP32", "[1]", "[1,2]"), "data has more elements than the shape, which has 1"},
      {input("FP32", "[60000000]", "[1]"), "asks for more elements than data can hold"},
      {input("FP32", "[67108864,67108864,4]", "[1]"), "too many elements"},
      {input("FP32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[1]"), "more than 16 dimensions"},
      {input("FP32", "[0,150000000]", "[]"), "a dimension larger than 67108864"},
      {input("FP32", "[67108864,0]", "[]"), "multiply to more than 1048576"},
      {input("FP32", "[2048,0,2048]", "[]"), "multiply to more than 1048576"},
      {input("FP32", "[67108864,67108864,67108864,67108864,0]", "[]"),
       "multiply to more than 1048576"},
      {input("FP32", "[1]", "[null]"), "expected a number"},
      {input("FP32", "[1]", "[\"1\"]"), "expected a number"},
      {input("FP32", "[1]", "[NaN]"), "expected a number"},
      {input("FP32", "[1]", "1"), "expected '['"},
      {input("FP16", "[1]", "[65520]"), "does not fit FP16"},
      {input("BF16", "[1]", "[3.4e38]"), "does not fit BF16"},
      {input("FP32", "[1]", std::string(40, '[') + "1" + std::string(40, ']')), "nested deeper"},
      {input("FP32", "[1]", "[1]") + "x", "text follows the value"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"data":[1]}]})",
       "data occurs twice"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]},{"name":"x","datatype":"FP32","shape":[0],"data":[]}]})",
       "input \"x\" occurs twice"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]}],"outputs":[{}]})",
       "output 0 has no name"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]}],"outputs":[{"name":"y"},{"name":"y"}]})",
       "requested twice"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]}],"parameters":{"timeout":"soon"}})",
       "timeout"},
  };
  for (const auto& [json, expected] : cases) {
    const auto result = parse(json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_EQ(result.error().code(), Code::kInvalid) << json;
    EXPECT_THAT(result.error().message(), HasSubstr(expected)) << json;
  }
}

TEST(InferRequest, BinaryTensorsAreReadInOrderAndKeepTheBodyAlive) {
  const std::string json =
      R"({"inputs":[{"name":"a","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}},{"name":"b","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}]})";
  const auto request = parse(json, std::string("abc\x01\0\0\0z", 8)).value();
  EXPECT_EQ(request.inputs[0].tensor.values<std::uint8_t>()[2], 'c');
  EXPECT_EQ(request.inputs[1].tensor.strings()[0], "z");
}

TEST(InferRequest, BinaryLengthsMustMatchTheBody) {
  const auto body = [](int size) {
    return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":)" +
           std::to_string(size) + "}}]}";
  };
  EXPECT_TRUE(parse(body(4), "abcd").ok());
  EXPECT_THAT(parse(body(3), "abc").error().message(), HasSubstr("takes 4 bytes, not 3"));
  EXPECT_THAT(parse(body(4), "abc").error().message(),
              HasSubstr("has 4 bytes of binary data, 3 are left"));
  EXPECT_THAT(parse(body(4), "abcde").error().message(),
              HasSubstr("1 bytes of the body belong to no tensor"));
  EXPECT_THAT(parse(body(-1), "abcd").error().message(), HasSubstr("binary_data_size"));
  const auto both = std::make_shared<const std::string>("{}");
  EXPECT_THAT(parse_infer_request(both, "3").error().message(),
              HasSubstr("says 3 bytes, the body has 2"));
  EXPECT_THAT(parse_infer_request(both, "two").error().message(), HasSubstr("is not a number"));
}

TEST(InferRequest, EmptyTensorsOfOrdinaryShapesAreAccepted) {
  const auto request =
      parse(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0,3,224,224],"data":[]}]})")
          .value();
  EXPECT_EQ(request.inputs[0].tensor.size(), 0u);
}

TEST(InferRequest, ParametersHaveASizeLimit) {
  const auto zeros = [](std::size_t count) {
    std::string out = "[0";
    for (std::size_t i = 1; i < count; ++i) out += ",0";
    return out + "]";
  };
  const std::string large = R"({"a":)" + zeros(40'000) + "}";
  const std::string small = R"({"a":)" + zeros(1000) + "}";
  const auto with = [](const std::string& of_request, const std::string& of_input,
                       const std::string& of_output) {
    return parse(R"({"parameters":)" + of_request +
                 R"(,"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[],"parameters":)" +
                 of_input + R"(}],"outputs":[{"name":"y","parameters":)" + of_output + "}]}");
  };
  EXPECT_TRUE(with(small, small, small).ok());
  EXPECT_THAT(with(large, small, small).error().message(), HasSubstr("larger than 65536 bytes"));
  EXPECT_THAT(with(small, large, small).error().message(), HasSubstr("larger than 65536 bytes"));
  EXPECT_THAT(with(small, small, large).error().message(), HasSubstr("larger than 65536 bytes"));
}

TEST(InferRequest, BooleansMustBeZeroOrOne) {
  const std::string json =
      R"({"inputs":[{"name":"a","datatype":"BOOL","shape":[3],"parameters":{"binary_data_size":3}}]})";
  EXPECT_TRUE(parse(json, std::string("\0\1\0", 3)).ok());
  EXPECT_THAT(parse(json, std::string("\0\1\2", 3)).error().message(),
              HasSubstr("BOOL element 2 is 2, neither 0 nor 1"));
}

TEST(InferRequest, OutputParametersSelectTheEncoding) {
  const auto request =
      parse(
          R"({"parameters":{"binary_data_output":true,"timeout":2500},"outputs":[{"name":"p"},)"
          R"({"name":"q","parameters":{"binary_data":false}}],"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]}]})")
          .value();
  EXPECT_EQ(request.outputs[0].encoding, Encoding::kBinary);
  EXPECT_EQ(request.outputs[1].encoding, Encoding::kJson);
  EXPECT_EQ(request.timeout, std::chrono::microseconds(2500));
}

TEST(InferRequest, ClassificationIsUnsupported) {
  EXPECT_EQ(parse(R"({"outputs":[{"name":"p","parameters":{"classification":3}}],"inputs":[]})")
                .error()
                .code(),
            Code::kUnsupported);
}

TEST(InferRequest, WrittenRequestsReadBackTheSame) {
  InferRequest request;
  request.id = "7";
  request.encoding = Encoding::kBinary;
  request.timeout = std::chrono::milliseconds(5);
  request.inputs = {{"x", Tensor::of<float>(DType::kFp32, {2}, std::array<float, 2>{1, 2}).value()},
                    {"t", Tensor::of_strings({1}, std::vector<std::string>{"hello"}).value()}};
  request.outputs = {{"p", Encoding::kBinary}, {"q", Encoding::kJson}};
  const Message message = write_infer_request(request);
  const std::string length = std::to_string(message.json_length.value());
  const auto back =
      parse_infer_request(std::make_shared<const std::string>(message.body), length).value();
  EXPECT_EQ(back.id, "7");
  EXPECT_EQ(back.timeout, request.timeout);
  EXPECT_EQ(back.inputs[0].tensor.values<float>()[1], 2.0f);
  EXPECT_EQ(back.inputs[1].tensor.strings()[0], "hello");
  EXPECT_EQ(back.outputs[1].encoding, Encoding::kJson);
}

TEST(InferResponse, NumbersAreShortestAndNonFiniteValuesAreNull) {
  const std::array<float, 4> values = {0.1f, 1, std::numeric_limits<float>::quiet_NaN(), -2.5e-8f};
  const Message message = write_infer_response(
      {"digits", "4", "q\"1", {{"p", Tensor::of<float>(DType::kFp32, {4}, values).value()}}}, {});
  EXPECT_EQ(
      message.body,
      R"({"model_name":"digits","model_version":"4","id":"q\"1","outputs":[{"name":"p","shape":[4],"datatype":"FP32",)"
      R"("data":[0.1,1,null,-2.5e-08]}]})");
  EXPECT_EQ(message.content_type(), "application/json");
}

TEST(InferResponse, InvalidUtf8StringsAreSentInBinary) {
  const auto encoded = [](const std::string& item) {
    const std::vector<std::string> items = {"plain", item};
    return write_infer_response({"m", "1", "", {{"s", Tensor::of_strings({2}, items).value()}}}, {})
        .json_length.has_value();
  };
  EXPECT_FALSE(encoded("ü"));
  EXPECT_TRUE(encoded("\xff\xfe"));
}

TEST(InferResponse, ErrorNamesTheOutputThatJsonCannotHold) {
  const auto strings = [](const std::string& item) {
    return Tensor::of_strings({1}, std::vector<std::string>{item}).value();
  };
  const std::vector<tensor::Named> outputs = {{"plain", strings("ü")},
                                              {"raw", strings("\xff\xfe")}};
  const std::array<Encoding, 2> json = {Encoding::kJson, Encoding::kJson},
                                mixed = {Encoding::kJson, Encoding::kBinary};
  EXPECT_TRUE(check_encodings(outputs, mixed).ok());
  for (const Status& status : {check_encodings(outputs, json), check_encodings(outputs, {})}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::kInvalid);
    EXPECT_THAT(status.error().message(), HasSubstr("output \"raw\" has bytes that are not UTF-8"));
    EXPECT_THAT(status.error().message(), HasSubstr("binary_data"));
  }
}

TEST(InferResponse, HalfPrecisionIsWrittenAsNumbersInJson) {
  const std::array<std::uint16_t, 5> half = {0x3c00, 0x2e66, 0x7c00, 0x0001, 0x8000};
  const std::array<std::uint16_t, 2> brain = {0x3f80, 0x3dcd};
  const InferResponse response{
      "m",
      "1",
      "",
      {{"h", Tensor::of<std::uint16_t>(DType::kFp16, {5}, half).value()},
       {"b", Tensor::of<std::uint16_t>(DType::kBf16, {2}, brain).value()}}};
  const Message message = write_infer_response(response, {});
  EXPECT_FALSE(message.json_length);
  EXPECT_THAT(message.body, HasSubstr(R"("datatype":"FP16","data":[1,0.099975586,null,)"));
  EXPECT_TRUE(codec::parse_json(message.body).ok()) << message.body;
  const auto back =
      parse(R"({"inputs":[{"name":"h","datatype":"FP16","shape":[3],"data":[1,0.099975586,-0.0]},)"
            R"({"name":"b","datatype":"BF16","shape":[2],"data":[1,0.100097656]}]})")
          .value();
  EXPECT_EQ(back.inputs[0].tensor.values<std::uint16_t>()[0], 0x3c00);
  EXPECT_EQ(back.inputs[0].tensor.values<std::uint16_t>()[1], 0x2e66);
  EXPECT_EQ(back.inputs[1].tensor.values<std::uint16_t>()[1], 0x3dcd);
}

TEST(InferResponse, MixedBinaryAndJsonOutputsReadBack) {
  const std::array<std::int32_t, 2> whole = {1, -2};
  const std::array<std::uint16_t, 1> half = {0x3c00};
  const InferResponse response{
      "m",
      "1",
      "",
      {{"a", Tensor::of<std::int32_t>(DType::kInt32, {2}, whole).value()},
       {"b", Tensor::of<std::uint16_t>(DType::kFp16, {1}, half).value()},
       {"c", Tensor::of_strings({1}, std::vector<std::string>{"k"}).value()}}};
  const std::array<Encoding, 3> encodings = {Encoding::kBinary, Encoding::kJson, Encoding::kJson};
  const Message message = write_infer_response(response, encodings);
  EXPECT_EQ(message.body.size() - message.json_length.value(), 8u);
  const auto back = parse_infer_response(std::make_shared<const std::string>(message.body),
                                         std::to_string(*message.json_length))
                        .value();
  EXPECT_EQ(back.outputs[0].tensor.values<std::int32_t>()[1], -2);
  EXPECT_EQ(back.outputs[1].tensor.values<std::uint16_t>()[0], 0x3c00);
  EXPECT_EQ(back.outputs[2].tensor.strings()[0], "k");
}

}  // namespace
}  // namespace varda::oip
