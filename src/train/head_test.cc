// replace_head() gives the last layer another number of classes.
#include "train/head.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "codec/protobuf.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "train/testing/model_builder.h"

namespace varda::train {
namespace {

namespace head_test {

using onnx::Node;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

Tensor ones(const Shape& shape) {
  Tensor out = Tensor::allocate(DType::kFp32, shape).value();
  std::ranges::fill(out.mutable_values<float>(), 1.0f);
  return out;
}

/// x [-1,3] -> w0 -> features [-1,4]
testing::ModelBuilder features() {
  testing::ModelBuilder out;
  out.input("x", DType::kFp32, {-1, 3})
      .initializer("w0", ones({3, 4}))
      .node({.op_type = "MatMul", .inputs = {"x", "w0"}, .outputs = {"features"}});
  return out;
}

Shape shape_of(const onnx::Model& model, const std::string& name) {
  return model.graph.initializer(name)->dims;
}

/// The shape of the first output for two samples.
Shape output_of(const std::string& file) {
  const auto model = engine().load({.model = file});
  EXPECT_TRUE(model.ok()) << model.error();
  const std::vector<tensor::Named> batch = {{"x", ones({2, 3})}};
  return (*model)->run(batch, {}).value().at(0).tensor.shape();
}

TEST(ReplaceHead, GemmInBothOrdersGetsTheClasses) {
  for (const std::int64_t transposed : {0, 1}) {
    auto builder = features();
    builder.initializer("w1", ones(transposed != 0 ? Shape{5, 4} : Shape{4, 5}))
        .initializer("b1", ones({5}))
        .node({.op_type = "Gemm",
               .inputs = {"features", "w1", "b1"},
               .outputs = {"scores"},
               .attributes = {{"transB", transposed}}})
        .node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
        .output("y");
    const auto file = replace_head(builder.bytes(), 3, 1);
    ASSERT_TRUE(file.ok()) << file.error();
    const auto model = onnx::parse(*file).value();
    EXPECT_EQ(shape_of(model, "w1"), (transposed != 0 ? Shape{3, 4} : Shape{4, 3}));
    EXPECT_EQ(model.graph.initializer("w0")->message.view,
              onnx::parse(builder.bytes())->graph.initializer("w0")->message.view);
    EXPECT_EQ(output_of(*file), (Shape{2, 3}));
    // Uniform within sqrt(6/4) around 0, and a bias of 0.
    const Tensor weights = model.graph.initializer("w1")->value().value();
    const std::set<float> values(weights.values<float>().begin(), weights.values<float>().end());
    EXPECT_EQ(values.size(), 12u);
    EXPECT_GE(*values.begin(), -1.2248f);
    EXPECT_LT(*values.begin(), -0.3f);
    EXPECT_GT(*values.rbegin(), 0.3f);
    EXPECT_LE(*values.rbegin(), 1.2248f);
    const Tensor bias = model.graph.initializer("b1")->value().value();
    EXPECT_THAT(bias.values<float>(), ::testing::ElementsAre(0, 0, 0));
    EXPECT_EQ(replace_head(builder.bytes(), 3, 1).value(), *file);
    EXPECT_NE(replace_head(builder.bytes(), 3, 2).value(), *file);
  }
}

TEST(ReplaceHead, MatMulWithAndWithoutBiasGetsTheClasses) {
  for (const bool first : {true, false}) {
    auto builder = features();
    builder.initializer("w1", ones({4, 5}))
        .node({.op_type = "Constant",
               .outputs = {"b1"},
               .attributes = {{"value", onnx::Tensor::of("", ones({1, 5}))}}})
        .node({.op_type = "MatMul", .inputs = {"features", "w1"}, .outputs = {"product"}})
        .node({.op_type = "Add",
               .inputs = first ? std::vector<std::string>{"b1", "product"}
                               : std::vector<std::string>{"product", "b1"},
               .outputs = {"y"}})
        .output("y");
    const auto file = replace_head(builder.bytes(), 7, 1);
    ASSERT_TRUE(file.ok()) << file.error();
    EXPECT_EQ(output_of(*file), (Shape{2, 7}));
  }
  auto plain = features();
  plain.initializer("w1", ones({4, 5}))
      .node({.op_type = "MatMul", .inputs = {"features", "w1"}, .outputs = {"y"}})
      .output("y");
  EXPECT_EQ(output_of(replace_head(plain.bytes(), 7, 1).value()), (Shape{2, 7}));
}

TEST(ReplaceHead, DeclaredShapesAreCorrected) {
  auto builder = features();
  builder.initializer("w1", ones({4, 5}))
      .node({.op_type = "MatMul", .inputs = {"features", "w1"}, .outputs = {"scores"}})
      .node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
      .output("y");
  onnx::Model model = builder.model();
  const auto info = [](const char* name, std::int64_t size) {
    return onnx::ValueInfo{
        .name = name, .data_type = 1, .shape = {{{.symbol = "n"}, {.size = size}}}};
  };
  model.graph.outputs = {info("y", 5)};
  // GraphProto.value_info, as shape inference writes it.
  for (const auto& [name, size] : {std::pair{"features", 4}, {"scores", 5}}) {
    onnx::Model other;
    other.graph.outputs = {info(name, size)};
    const std::string bytes = onnx::serialize(other);
    codec::ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() != 7) continue;
      codec::ProtoReader graph(in.bytes());
      while (graph.next())
        if (graph.field() == 12)
          model.graph.rest += codec::ProtoWriter().element(13, graph.bytes()).bytes();
    }
  }
  const auto file = replace_head(onnx::serialize(model), 9, 1);
  ASSERT_TRUE(file.ok()) << file.error();
  const auto changed = onnx::parse(*file).value();
  EXPECT_EQ(changed.graph.outputs[0].shape->at(1).size, 9);
  EXPECT_EQ(changed.graph.outputs[0].shape->at(0).symbol, "n");
  EXPECT_NE(changed.graph.rest.find("features"), std::string::npos);
  EXPECT_EQ(changed.graph.rest.find("scores"), std::string::npos);
  EXPECT_EQ(output_of(*file), (Shape{2, 9}));
}

TEST(ReplaceHead, OtherLayersAreRefusedByName) {
  const auto error = [](testing::ModelBuilder builder) {
    const auto file = replace_head(builder.bytes(), 3, 1);
    return file.ok() ? Error(Code::kInternal, "") : file.error();
  };
  EXPECT_EQ(
      error(features()
                .node({.op_type = "Relu", .inputs = {"features"}, .outputs = {"y"}, .name = "last"})
                .output("y")),
      Error(Code::kUnsupported,
            "node \"last\" (Relu) is before the output; only Gemm, and MatMul with or without "
            "Add, can be replaced by a layer for another number of classes"));
  EXPECT_EQ(error(features().output("x")),
            Error(Code::kUnsupported, "no layer computes output \"x\""));
  EXPECT_EQ(error(features()
                      .node({.op_type = "Add",
                             .inputs = {"features", "features"},
                             .outputs = {"y"},
                             .name = "sum"})
                      .output("y"))
                .code(),
            Code::kUnsupported);
  EXPECT_EQ(
      error(
          features()
              .initializer("w1", ones({4, 4}))
              .node({.op_type = "MatMul", .inputs = {"features", "w1"}, .outputs = {"h"}})
              .node({.op_type = "MatMul", .inputs = {"h", "w1"}, .outputs = {"y"}, .name = "tied"})
              .output("y")),
      Error(Code::kUnsupported, "node \"tied\" (MatMul): other nodes also read \"w1\""));
  EXPECT_EQ(error(features()
                      .node({.op_type = "MatMul",
                             .inputs = {"features", "features"},
                             .outputs = {"y"},
                             .name = "product"})
                      .output("y")),
            Error(Code::kUnsupported,
                  "node \"product\" (MatMul): the weights \"features\" are "
                  "computed, not stored in the file"));
  EXPECT_EQ(replace_head("no model", 3, 1).error().code(), Code::kInvalid);
}

}  // namespace head_test
}  // namespace
}  // namespace varda::train
