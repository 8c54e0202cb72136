#include "flower/messages.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "flower/array.h"
#include "flower/testing/peer.h"

namespace varda::flower {
namespace messages_test {

using namespace std::string_literals;

/// The message that Google's protobuf and NumPy write, as tests/support/flower_wire.py made it.
std::string golden(const std::string& name) {
  std::ifstream file(std::string(VARDA_TESTDATA) + "/" + name + ".hex");
  EXPECT_TRUE(file) << name;
  std::string out, digits;
  while (file >> digits) {
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
      out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return out;
}

tensor::Named named(const std::string& name, tensor::Shape shape, std::vector<float> values) {
  return {
      .name = name,
      .tensor = tensor::Tensor::of<float>(tensor::DType::kFp32, std::move(shape), values).value()};
}

TEST(FlowerMessages, InstructionsAreThoseOfProtobufAndNumPy) {
  const std::vector<tensor::Named> model = {named("a", {2, 3}, {0, 1, 2, 3, 4, 5}),
                                            named("b", {1}, {-0.5f}), named("c", {}, {7})};
  // One entry: maps of protobuf have no order.
  EXPECT_EQ(encode_instruction(Instruction::kFit, model, {{"lr", 0.1}}).value(), golden("fit_ins"));
  EXPECT_EQ(
      encode_instruction(Instruction::kEvaluate, model, {{"batch", std::int64_t{-32}}}).value(),
      golden("evaluate_ins"));
  EXPECT_EQ(encode_instruction(Instruction::kFit, {}, {}).value(), golden("fit_ins_empty"));
  EXPECT_EQ(encode_get_parameters({{"flag", false}}), golden("get_parameters_ins"));
  EXPECT_EQ(encode_get_properties({{"text", "h\xC3\xA9"s}}), golden("get_properties_ins"));
  EXPECT_EQ(encode_reconnect(5), golden("reconnect_ins"));
  EXPECT_EQ(encode_reconnect(0), golden("reconnect_ins_0"));
}

TEST(FlowerMessages, TypesThatNumPyLacksAreUnsupported) {
  const std::vector<tensor::Named> model = {
      {.name = "half", .tensor = tensor::Tensor::allocate(tensor::DType::kBf16, {2}).value()}};
  const auto encoded = encode_instruction(Instruction::kFit, model, {});
  EXPECT_EQ(encoded.error().code(), Code::kUnsupported);
  EXPECT_EQ(encoded.error().message(), "half: NumPy has no type BF16");
}

TEST(FlowerMessages, FitAnswerOfProtobufIsRead) {
  const std::string bytes = golden("fit_res");
  const auto message = parse_client_message(bytes);
  ASSERT_TRUE(message.ok()) << message.error();
  const auto& fit = std::get<FitAnswer>(*message);
  EXPECT_TRUE(fit.outcome.ok());
  EXPECT_EQ(fit.outcome.message, "Success");
  EXPECT_EQ(fit.examples, 640);
  EXPECT_EQ(fit.metrics, (Scalars{{"accuracy", 0.75},
                                  {"epochs", std::int64_t{-3}},
                                  {"count", std::uint64_t{18446744073709551615u}},
                                  {"done", true},
                                  {"host", "edge0"s},
                                  {"raw", Blob{"\x00\xFF"s}}}));
  ASSERT_EQ(fit.parameters.tensors.size(), 2u);
  std::vector<float> first(6), second(3);
  EXPECT_TRUE(Array::parse(fit.parameters.tensors[0])->to_floats(first).ok());
  EXPECT_TRUE(Array::parse(fit.parameters.tensors[1])->to_floats(second).ok());
  EXPECT_EQ(first, (std::vector<float>{1, 2, 3, 4, 5, 6})) << "Fortran order";
  EXPECT_EQ(second, (std::vector<float>{1, 2, 3})) << "float64";
}

TEST(FlowerMessages, OtherAnswersOfProtobufAreRead) {
  const std::string bytes = golden("evaluate_res");
  const auto evaluate = std::get<EvaluateAnswer>(parse_client_message(bytes).value());
  EXPECT_EQ(evaluate.loss, 0.25f);
  EXPECT_EQ(evaluate.examples, 100);
  EXPECT_EQ(evaluate.metrics, (Scalars{{"accuracy", 0.5}}));
  const std::string refused = golden("fit_res_not_implemented");
  EXPECT_EQ(std::get<FitAnswer>(parse_client_message(refused).value()).outcome.code,
            Outcome::Code::kFitNotImplemented);
  const std::string parameters = golden("get_parameters_res");
  EXPECT_EQ(std::get<ParametersAnswer>(parse_client_message(parameters).value())
                .parameters.tensors.size(),
            1u);
  const std::string properties = golden("get_properties_res");
  EXPECT_EQ(std::get<Properties>(parse_client_message(properties).value()).properties,
            (Scalars{{"name", "edge0"s}}));
  const std::string disconnect = golden("disconnect_res");
  EXPECT_EQ(std::get<Disconnect>(parse_client_message(disconnect).value()).reason, 1);
}

TEST(FlowerMessages, EveryCutOfAMessageIsInvalid) {
  const std::string bytes = golden("fit_res");
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(parse_client_message(std::string_view(bytes).substr(0, size)).ok()) << size;
}

TEST(FlowerMessages, HostileMessagesAreInvalid) {
  EXPECT_FALSE(parse_client_message("").ok());
  EXPECT_FALSE(parse_client_message("\x0a").ok());
  EXPECT_FALSE(parse_client_message("\x22\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F").ok())
      << "a length of 2^63";
  EXPECT_FALSE(parse_client_message("\x32\x00"s).ok()) << "an unknown kind";
  codec::ProtoWriter other;
  other.message(4, [](codec::ProtoWriter& fit) {
    fit.message(2, [](codec::ProtoWriter& p) { p.element(1, "x").text(2, "pickle"); });
  });
  EXPECT_FALSE(parse_client_message(other.bytes()).ok()) << "another tensor_type";
  const std::vector<std::string> tensors(11, "x");
  const std::string many = testing::fit_answer(tensors, 1);
  EXPECT_FALSE(parse_client_message(many, {.tensors_max = 10}).ok());
  EXPECT_TRUE(parse_client_message(many, {.tensors_max = 11}).ok());
  EXPECT_FALSE(parse_client_message(golden("fit_res"), {.scalars_max = 5}).ok());
  EXPECT_FALSE(parse_client_message(golden("fit_res"), {.text_bytes_max = 4}).ok());
}

}  // namespace messages_test
}  // namespace varda::flower
