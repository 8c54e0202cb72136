#include "onnx/model.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <span>

#include "codec/protobuf.h"
#include "onnx/names.h"
#include "onnx/upgrade.h"
#include "onnx/weights.h"

namespace varda::onnx {
namespace {

namespace model_test {

using codec::ProtoWriter;
using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string digits() {
  std::ifstream file("examples/digits/models/4/model.onnx", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

tensor::Tensor reals(tensor::Shape shape, std::vector<float> values) {
  return tensor::Tensor::of<float>(DType::kFp32, std::move(shape), std::span(values)).value();
}
std::vector<float> values_of(const tensor::Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

/// y = a + w, with room for changes.
Model sum() {
  Model out;
  out.ir_version = 8;
  out.opsets[""] = 17;
  out.graph.name = "sum";
  out.graph.inputs.push_back(
      {.name = "a", .data_type = 1, .shape = {{{.symbol = "N"}, {.size = 2}}}});
  out.graph.initializers.push_back(Tensor::of("w", reals({2}, {1, 2})));
  out.graph.nodes.push_back({.op_type = "Add", .inputs = {"a", "w"}, .outputs = {"y"}});
  out.graph.outputs.push_back({.name = "y"});
  return out;
}

std::string error_of(const Model& model) {
  const auto parsed = parse(serialize(model));
  return parsed.ok() ? "" : parsed.error().message();
}

TEST(OnnxModel, DigitsAreReadWithNodesShapesAndValues) {
  const auto model = parse(digits());
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ(model->opset(), 13);
  std::vector<std::string> operators;
  for (const Node& node : model->graph.nodes) operators.push_back(node.op_type);
  EXPECT_THAT(operators, ElementsAre("Flatten", "Mul", "Gemm", "Relu", "Gemm", "Softmax"));
  EXPECT_EQ(model->graph.nodes[0].integer("axis", -7), 1);
  ASSERT_EQ(model->graph.inputs.size(), 1u);
  const ValueInfo& images = model->graph.inputs[0];
  EXPECT_EQ(images.data_type, 1);
  EXPECT_EQ(images.shape->at(0).symbol, "batch");
  EXPECT_EQ(images.shape->at(2).size, 8);
  const auto scale = model->graph.initializer("scale")->value().value();
  EXPECT_EQ(scale.shape(), tensor::Shape{});
  EXPECT_THAT(values_of(scale), ElementsAre(1 / 255.0f));
}

TEST(OnnxModel, WrittenModelReadsBackEqual) {
  const std::string written = serialize(parse(digits()).value());
  const auto model = parse(written);
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_EQ(serialize(*model), written);
  EXPECT_EQ(model->graph.nodes.size(), 6u);
}

TEST(OnnxModel, UnknownFieldsAreKept) {
  Model model = sum();
  model.rest = ProtoWriter().text(99, "model").bytes();
  model.graph.rest = ProtoWriter().text(99, "graph").bytes();
  model.graph.nodes[0].rest = ProtoWriter().text(99, "node").bytes();
  model.graph.inputs[0].rest = ProtoWriter().text(99, "input").bytes();
  model.graph.nodes[0].attributes.push_back(
      {"body", Attribute::Kept{ProtoWriter()
                                   .text(1, "body")
                                   .message(6, [](ProtoWriter& graph) { graph.text(2, "inner"); })
                                   .number(20, 5)
                                   .bytes()}});
  const Model again = parse(serialize(model)).value();
  EXPECT_EQ(again.rest, model.rest);
  EXPECT_EQ(again.graph.rest, model.graph.rest);
  EXPECT_EQ(again.graph.nodes[0].rest, model.graph.nodes[0].rest);
  EXPECT_EQ(again.graph.inputs[0].rest, model.graph.inputs[0].rest);
  EXPECT_EQ(std::get<Attribute::Kept>(again.graph.nodes[0].attributes[0].value).message,
            std::get<Attribute::Kept>(model.graph.nodes[0].attributes[0].value).message);
}

TEST(OnnxModel, AttributesOfEachTypeAreReadBack) {
  Model model = sum();
  model.graph.nodes[0].attributes = {{"i", std::int64_t{-3}},
                                     {"zero", std::int64_t{0}},
                                     {"f", 0.25f},
                                     {"s", std::string("text")},
                                     {"is", std::vector<std::int64_t>{0, -1, 5}},
                                     {"fs", std::vector<float>{0, 1.5f}},
                                     {"ss", std::vector<std::string>{"a", ""}},
                                     {"t", Tensor::of("", reals({1, 2}, {3, 4}))}};
  const Model again = parse(serialize(model)).value();
  const Node& node = again.graph.nodes[0];
  EXPECT_EQ(node.integer("i", 1), -3);
  EXPECT_EQ(node.integer("zero", 1), 0);
  EXPECT_EQ(node.integer("absent", 1), 1);
  EXPECT_EQ(node.real("f", 1), 0.25f);
  EXPECT_EQ(node.text("s", ""), "text");
  EXPECT_THAT(node.integers("is"), ElementsAre(0, -1, 5));
  EXPECT_THAT(std::get<std::vector<float>>(node.find("fs")->value), ElementsAre(0, 1.5f));
  EXPECT_THAT(std::get<std::vector<std::string>>(node.find("ss")->value), ElementsAre("a", ""));
  EXPECT_THAT(values_of(std::get<Tensor>(node.find("t")->value).value().value()),
              ElementsAre(3, 4));
}

TEST(OnnxModel, ValuesAreReadFromEveryFieldOfATensor) {
  const auto read = [](std::int64_t type, std::int64_t size, ProtoWriter data) {
    ProtoWriter message;
    message.item(1, size).number(2, type).raw(data.bytes());
    Tensor tensor{.name = "t", .data_type = type, .dims = {size}};
    tensor.message = Bytes::of(message.bytes());
    return tensor.value();
  };
  const std::string floats("\0\0\x80\x3f\0\0\0\x40", 8);  // 1, 2
  EXPECT_THAT(values_of(read(1, 2, ProtoWriter().element(9, floats)).value()), ElementsAre(1, 2));
  EXPECT_THAT(values_of(read(1, 2, ProtoWriter().element(4, floats)).value()), ElementsAre(1, 2));
  EXPECT_THAT(values_of(read(1, 2, ProtoWriter().real(4, 1).real(4, 2)).value()),
              ElementsAre(1, 2));
  const auto longs = read(7, 2, ProtoWriter().item(7, -1).item(7, 0)).value();
  EXPECT_THAT(longs.values<std::int64_t>(), ElementsAre(-1, 0));
  const auto bytes = read(3, 2, ProtoWriter().element(5, "\x05\x7f")).value();  // packed
  EXPECT_THAT(bytes.values<std::int8_t>(), ElementsAre(5, 127));
  const auto halves = read(10, 1, ProtoWriter().item(5, 0x3c00)).value();
  EXPECT_THAT(halves.values<std::uint16_t>(), ElementsAre(0x3c00));
  const auto texts = read(8, 2, ProtoWriter().element(6, "a").element(6, "")).value();
  EXPECT_THAT(texts.strings(), ElementsAre("a", ""));

  EXPECT_EQ(read(1, 3, ProtoWriter().element(9, floats)).error().code(), Code::kInvalid);
  EXPECT_EQ(read(1, 3, ProtoWriter()).error().code(), Code::kInvalid);
  EXPECT_EQ(read(9, 1, ProtoWriter().item(5, 7)).error().code(), Code::kInvalid) << "a BOOL of 7";
  EXPECT_EQ(read(14, 1, ProtoWriter()).error().code(), Code::kUnsupported) << "complex";
}

TEST(OnnxModel, ExternalValuesAreNamed) {
  Tensor tensor{.name = "w", .data_type = 1, .dims = {2}, .external = true};
  EXPECT_EQ(tensor.value().error(),
            Error(Code::kUnsupported, "tensor \"w\" has its values in another file"));
}

TEST(OnnxModel, GraphThatBreaksARuleOfNamesIsRefused) {
  Model model = sum();
  EXPECT_EQ(error_of(model), "");
  model.graph.nodes[0].inputs[0] = "b";
  EXPECT_EQ(error_of(model),
            "not a usable ONNX file: node \"y\" (Add) reads \"b\", which nothing before it makes");
  model = sum();
  model.graph.nodes[0].outputs[0] = "w";
  model.graph.nodes[0].name = "plus";
  EXPECT_THAT(error_of(model), HasSubstr("node \"plus\" (Add) makes \"w\", which exists already"));
  model = sum();
  model.graph.outputs.push_back({.name = "z"});
  EXPECT_THAT(error_of(model), HasSubstr("nothing makes the output \"z\""));
  model = sum();
  model.graph.initializers.push_back(model.graph.initializers[0]);
  EXPECT_THAT(error_of(model), HasSubstr("there are two initializers \"w\""));
  model = sum();
  model.graph.inputs.push_back({.name = "w"});
  EXPECT_EQ(error_of(model), "") << "old files list initializers among the inputs";
  EXPECT_EQ(parse(serialize(model))->graph.inputs.size(), 1u);
}

TEST(OnnxModel, OtherAndTornFilesAreInvalid) {
  for (const std::string& bytes :
       {std::string(), std::string("<html>"), digits().substr(0, 5000)}) {
    const auto model = parse(bytes);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code(), Code::kInvalid);
    EXPECT_THAT(model.error().message(), StartsWith("not a usable ONNX file"));
  }
}

TEST(OnnxModel, HostileSizesAreRefused) {
  ProtoWriter tensor, deep;
  tensor.item(1, std::int64_t{1} << 40).item(1, std::int64_t{1} << 40).number(2, 1).text(8, "w");
  for (int i = 0; i < 65; ++i) deep.item(1, 1);
  for (const ProtoWriter& message : {tensor, deep}) {
    ProtoWriter graph, model;
    graph.element(5, message.bytes());
    model.number(1, 8).element(7, graph.bytes());
    EXPECT_FALSE(parse(model.bytes()).ok());
  }
  ProtoWriter graph, model;
  for (int i = 0; i < 200'001; ++i) graph.element(1, "");
  model.number(1, 8).element(7, graph.bytes());
  EXPECT_EQ(parse(model.bytes()).error().code(), Code::kExhausted);
}

TEST(OnnxWeights, OnlyTheValuesChange) {
  const std::string file = digits();
  const auto before = parse(file).value();
  std::map<std::string, tensor::Tensor> weights;
  for (const char* name : {"weights1", "bias0"}) {
    auto zeros =
        tensor::Tensor::allocate(DType::kFp32, before.graph.initializer(name)->dims).value();
    weights.emplace(name, std::move(zeros));
  }
  const std::string changed = replace_weights(file, weights).value();
  ASSERT_EQ(changed.size(), file.size());
  const auto after = parse(changed).value();
  for (const Tensor& tensor : before.graph.initializers) {
    const auto was = values_of(tensor.value().value());
    const auto is = values_of(after.graph.initializer(tensor.name)->value().value());
    if (weights.contains(tensor.name))
      EXPECT_EQ(is, std::vector<float>(was.size(), 0));
    else
      EXPECT_EQ(is, was);
  }
  for (auto& [name, value] : weights) value = before.graph.initializer(name)->value().value();
  EXPECT_EQ(replace_weights(changed, weights).value(), file);
}

TEST(OnnxWeights, UnusualEncodingsOfOtherFieldsStay) {
  // Unknown fields before and after, an overlong varint, and a graph with a two-byte length.
  const std::string tensor = ProtoWriter()
                                 .text(99, "x")
                                 .item(1, 2)
                                 .number(2, 1)
                                 .real(4, 1)
                                 .real(4, 2)
                                 .text(8, "w")
                                 .bytes();
  const std::string node = ProtoWriter().element(1, "w").element(2, "y").text(4, "Neg").bytes();
  const std::string graph = ProtoWriter().element(5, tensor).element(1, node).bytes();
  const std::string model = ProtoWriter().text(98, "y").bytes() + std::string("\x08\x88\x00", 3) +
                            "\x3a" + static_cast<char>(graph.size() | 0x80) + std::string(1, '\0') +
                            graph;
  EXPECT_EQ(replace_weights(model, {}).value(), model);
  const auto changed = replace_weights(model, {{"w", reals({2}, {3, 4})}}).value();
  const auto read = parse(changed).value();
  EXPECT_THAT(values_of(read.graph.initializer("w")->value().value()), ElementsAre(3, 4));
  EXPECT_THAT(changed, StartsWith(model.substr(0, 8)));
  EXPECT_THAT(read.graph.initializer("w")->message.view, StartsWith(tensor.substr(0, 8)));
}

TEST(OnnxWeights, TensorOfAConstantNodeIsReplaced) {
  Model model = sum();
  model.graph.initializers.clear();
  model.graph.nodes.insert(model.graph.nodes.begin(),
                           {.op_type = "Constant",
                            .outputs = {"w"},
                            .attributes = {{"value", Tensor::of("inner", reals({2}, {1, 2}))}}});
  const auto changed = replace_weights(serialize(model), {{"w", reals({2}, {3, 4})}}).value();
  const auto read = parse(changed).value();
  EXPECT_THAT(values_of(std::get<Tensor>(read.graph.nodes[0].attributes[0].value).value().value()),
              ElementsAre(3, 4));
}

TEST(OnnxWeights, WrongWeightsAreNamed) {
  const std::string file = serialize(sum());
  EXPECT_EQ(replace_weights(file, {{"v", reals({2}, {3, 4})}}).error(),
            Error(Code::kNotFound, "the file has no weight \"v\""));
  EXPECT_EQ(replace_weights(file, {{"w", reals({1, 2}, {3, 4})}}).error().code(), Code::kInvalid);
  EXPECT_EQ(replace_weights("<html>", {}).error().code(), Code::kInvalid);
}

TEST(OnnxUpgrade, ConstantsBecomeInitializers) {
  Model model = sum();
  model.graph.initializers.clear();
  model.graph.nodes.insert(model.graph.nodes.begin(),
                           {.op_type = "Constant",
                            .outputs = {"w"},
                            .attributes = {{"value_floats", std::vector<float>{1, 2}}}});
  ASSERT_TRUE(upgrade(model).ok());
  EXPECT_EQ(model.graph.nodes.size(), 1u);
  EXPECT_THAT(values_of(model.graph.initializer("w")->value().value()), ElementsAre(1, 2));
}

TEST(OnnxUpgrade, AxesOfOldOperatorsBecomeInputs) {
  Model model = sum();
  model.opsets[""] = 11;
  model.graph.nodes.push_back(
      {.op_type = "ReduceSum",
       .inputs = {"y"},
       .outputs = {"z"},
       .attributes = {{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{0}}}});
  ASSERT_TRUE(upgrade(model).ok());
  EXPECT_EQ(model.opset(), 17);
  const Node& node = model.graph.nodes.back();
  EXPECT_EQ(node.find("axes"), nullptr);
  EXPECT_EQ(node.integer("keepdims", 1), 0);
  const auto axes = model.graph.initializer(node.input(1))->value().value();
  EXPECT_THAT(axes.values<std::int64_t>(), ElementsAre(-1));
}

TEST(OnnxUpgrade, OldSoftmaxWorksOnAMatrix) {
  Model model = sum();
  model.opsets[""] = 12;
  model.graph.nodes.push_back({.op_type = "Softmax", .inputs = {"y"}, .outputs = {"p"}});
  ASSERT_TRUE(upgrade(model).ok());
  std::vector<std::string> operators;
  for (const Node& node : model.graph.nodes) operators.push_back(node.op_type);
  EXPECT_THAT(operators, ElementsAre("Add", "Flatten", "Softmax", "Shape", "Reshape"));
  EXPECT_EQ(model.graph.nodes[2].integer("axis", 7), -1);
  EXPECT_EQ(model.graph.nodes[4].output(0), "p");
}

TEST(OnnxUpgrade, NewModelsStayAndOlderOnesAreRefused) {
  Model model = sum();
  model.opsets[""] = 21;
  const std::string before = serialize(model);
  ASSERT_TRUE(upgrade(model).ok());
  EXPECT_EQ(serialize(model), before);
  model.opsets[""] = 10;
  EXPECT_EQ(upgrade(model).error(),
            Error(Code::kUnsupported, "the model has opset 10; export it with opset 11 or newer"));
}

TEST(OnnxNames, FreshNamesDifferFromAllOthers) {
  const Model model = sum();
  Names names(model.graph);
  EXPECT_EQ(names.fresh("w"), "w_2");
  EXPECT_EQ(names.fresh("w"), "w_3");
  EXPECT_EQ(names.fresh("new"), "new");
}

}  // namespace model_test
}  // namespace
}  // namespace varda::onnx
