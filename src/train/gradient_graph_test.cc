// The choice of weights, and models that cannot be trained.
#include "train/gradient_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>

#include "codec/protobuf.h"
#include "infer/engine.h"
#include "onnx/upgrade.h"
#include "train/testing/model_builder.h"

namespace varda::train {
namespace {

namespace gradient_graph_test {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

Tensor halves(const Shape& shape) {
  Tensor out = Tensor::allocate(DType::kFp32, shape).value();
  for (float& value : out.mutable_values<float>()) value = 0.5f;
  return out;
}

Result<GradientGraph> make(onnx::Model model, const Shape& input, const GradientOptions& options) {
  TRY_VOID(onnx::upgrade(model));
  const std::vector<tensor::Named> batch = {{"x", halves(input)}};
  TRY(const Facts facts, trace(engine(), model, batch));
  return make_gradient_graph(model, facts, options);
}

std::vector<std::string> names(const GradientGraph& graph) {
  std::vector<std::string> out;
  for (const auto& weight : graph.weights) out.push_back(weight.name);
  return out;
}

/// x [-1,4] -> (x - mean) / deviation -> MatMul, Add -> Relu -> Gemm, as exporters write it.
testing::ModelBuilder network() {
  testing::ModelBuilder out;
  out.input("x", DType::kFp32, {-1, 4})
      .initializer("mean", halves({1, 4}))
      .initializer("deviation", halves({1, 4}))
      .initializer("w0", halves({4, 3}))
      .initializer("b0", halves({3}))
      .initializer("w1", halves({2, 3}))
      .initializer("b1", halves({2}))
      .node({.op_type = "Sub", .inputs = {"x", "mean"}, .outputs = {"centered"}})
      .node({.op_type = "Div", .inputs = {"centered", "deviation"}, .outputs = {"scaled"}})
      .node({.op_type = "MatMul", .inputs = {"scaled", "w0"}, .outputs = {"product"}})
      .node({.op_type = "Add", .inputs = {"product", "b0"}, .outputs = {"sum"}})
      .node({.op_type = "Relu", .inputs = {"sum"}, .outputs = {"hidden"}})
      .node({.op_type = "Gemm",
             .inputs = {"hidden", "w1", "b1"},
             .outputs = {"y"},
             .attributes = {{"transB", std::int64_t{1}}}})
      .output("y");
  return out;
}

TEST(GradientGraph, WeightsAreTrainedAndConstantsOfTheInputAreNot) {
  const auto graph = make(network().model(), {3, 4}, {});
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_THAT(names(*graph), ElementsAre("w0", "b0", "w1", "b1"));
}

TEST(GradientGraph, WeightBehindATransposeIsTrained) {
  const auto model = testing::ModelBuilder()
                         .input("x", DType::kFp32, {-1, 4})
                         .initializer("w", halves({2, 4}))
                         .node({.op_type = "Transpose", .inputs = {"w"}, .outputs = {"t"}})
                         .node({.op_type = "MatMul", .inputs = {"x", "t"}, .outputs = {"y"}})
                         .output("y")
                         .model();
  EXPECT_THAT(names(make(model, {3, 4}, {}).value()), ElementsAre("w"));
}

TEST(GradientGraph, FrozenPrefixHasNoGradients) {
  const auto whole = make(network().model(), {3, 4}, {}).value();
  const auto last = make(network().model(), {3, 4}, {.freeze = {"?0"}}).value();
  EXPECT_THAT(names(last), ElementsAre("w1", "b1"));
  EXPECT_LT(last.model.graph.nodes.size(), whole.model.graph.nodes.size());
}

TEST(GradientGraph, FreezingNothingOrEverythingIsRefused) {
  EXPECT_EQ(make(network().model(), {3, 4}, {.freeze = {"conv*"}}).error().message(),
            "no weight to freeze has the name \"conv*\"; the model has \"b0\", \"b1\", \"w0\", "
            "\"w1\"");
  EXPECT_EQ(make(network().model(), {3, 4}, {.freeze = {"*"}}).error().message(),
            "all weights of the model are frozen");
}

TEST(GradientGraph, UnknownGradientNamesNodeOperatorAndTheWayOut) {
  auto builder = network();
  builder.node({.op_type = "Atan", .inputs = {"y"}, .outputs = {"z"}, .name = "angles"})
      .initializer("w2", halves({2, 2}))
      .node({.op_type = "MatMul", .inputs = {"z", "w2"}, .outputs = {"scores"}})
      .output("scores");
  const auto graph = make(builder.model(), {3, 4}, {.output = "scores"});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code(), Code::kUnsupported);
  EXPECT_EQ(graph.error().message(),
            "node \"angles\" (Atan): its gradient is not known; to train what is behind it, freeze "
            "\"b0\", \"b1\", \"w0\", \"w1\"");
  const auto rest = make(builder.model(), {3, 4}, {.output = "scores", .freeze = {"?0", "?1"}});
  ASSERT_TRUE(rest.ok()) << rest.error();
  EXPECT_THAT(names(*rest), ElementsAre("w2"));
}

/// An attribute with a graph of one node from `input`.
onnx::Attribute branch(const std::string& name, const std::string& op, const std::string& input) {
  const std::string output = name + "/y";
  const std::string model = testing::ModelBuilder()
                                .node({.op_type = op, .inputs = {input}, .outputs = {output}})
                                .output(output)
                                .bytes();
  std::string graph;
  codec::ProtoReader in(model);
  while (in.next())
    if (in.field() == 7) graph = in.text();
  codec::ProtoWriter out;
  out.text(1, name).element(6, graph).number(20, 5);
  return {name, onnx::Attribute::Kept{std::move(out).bytes()}};
}

/// If `condition`: Sigmoid, else Atan, which has no gradient.
testing::ModelBuilder with_branches(const std::string& condition) {
  auto out = network();
  out.initializer("first", Tensor::of<std::int64_t>(DType::kInt64, {}, {{1}}).value())
      .initializer("four", Tensor::of<std::int64_t>(DType::kInt64, {}, {{4}}).value())
      .initializer("zero", Tensor::of<float>(DType::kFp32, {}, {{0}}).value())
      .node({.op_type = "Shape", .inputs = {"x"}, .outputs = {"shape"}})
      .node({.op_type = "Gather", .inputs = {"shape", "first"}, .outputs = {"size"}})
      .node({.op_type = "Equal", .inputs = {"size", "four"}, .outputs = {"of_shape"}})
      .node({.op_type = "ReduceMax",
             .inputs = {"x"},
             .outputs = {"largest"},
             .attributes = {{"keepdims", std::int64_t{0}}}})
      .node({.op_type = "Greater", .inputs = {"largest", "zero"}, .outputs = {"of_data"}})
      .node({.op_type = "If",
             .inputs = {condition},
             .outputs = {"chosen"},
             .attributes = {branch("then_branch", "Sigmoid", "y"),
                            branch("else_branch", "Atan", "y")},
             .name = "choice"})
      .output("chosen");
  return out;
}

TEST(GradientGraph, BranchThatShapesChooseIsTrained) {
  const auto graph =
      make(with_branches("of_shape").model(), {3, 4}, {.loss = Loss::kMse, .output = "chosen"});
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_THAT(names(*graph), ElementsAre("w0", "b0", "w1", "b1"));
  for (const onnx::Node& node : graph->model.graph.nodes) EXPECT_NE(node.op_type, "If");
}

TEST(GradientGraph, BranchThatDataChooseHasNoGradient) {
  const auto graph =
      make(with_branches("of_data").model(), {3, 4}, {.loss = Loss::kMse, .output = "chosen"});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code(), Code::kUnsupported);
  EXPECT_EQ(graph.error().message(),
            "node \"choice\" (If): its gradient is not known; to train what is behind it, freeze "
            "\"b0\", \"b1\", \"w0\", \"w1\"");
}

TEST(GradientGraph, QuantizedModelIsRefusedAsSuch) {
  const auto model =
      testing::ModelBuilder()
          .input("x", DType::kFp32, {-1, 4})
          .initializer("w", Tensor::allocate(DType::kInt8, {4, 3}).value())
          .initializer("scale", halves({}))
          .node({.op_type = "DequantizeLinear", .inputs = {"w", "scale"}, .outputs = {"real"}})
          .node({.op_type = "MatMul", .inputs = {"x", "real"}, .outputs = {"y"}})
          .output("y")
          .model();
  EXPECT_EQ(make(model, {3, 4}, {}).error(),
            Error(Code::kUnsupported, "quantized models cannot be trained"));
}

TEST(GradientGraph, OutputMustFitTheLoss) {
  EXPECT_EQ(make(network().model(), {3, 4}, {.output = "z"}).error().message(),
            "the model has no output \"z\"");
  const auto model = testing::ModelBuilder()
                         .input("x", DType::kFp32, {-1, 4})
                         .initializer("w", halves({4, 1}))
                         .node({.op_type = "MatMul", .inputs = {"x", "w"}, .outputs = {"y"}})
                         .output("y")
                         .model();
  EXPECT_EQ(make(model, {3, 4}, {}).error().message(),
            "cross-entropy takes an output of shape [N,classes], not [3,1] of \"y\"");
  EXPECT_TRUE(make(model, {3, 4}, {.loss = Loss::kMse}).ok());
}

TEST(GradientGraph, SoftmaxOverAnotherAxisIsRefused) {
  auto builder = network();
  builder
      .node({.op_type = "Softmax",
             .inputs = {"y"},
             .outputs = {"p"},
             .attributes = {{"axis", std::int64_t{0}}}})
      .output("p");
  EXPECT_EQ(make(builder.model(), {3, 4}, {.output = "p"}).error().message(),
            "node \"p\" (Softmax) is not over the classes of output \"p\"");
}

TEST(GradientGraph, ModelOfOpset11IsTrained) {
  auto builder = network();
  builder.node({.op_type = "Softmax", .inputs = {"y"}, .outputs = {"p"}}).output("p");
  const auto graph = make(builder.model(11), {3, 4}, {.output = "p"});
  ASSERT_TRUE(graph.ok()) << graph.error();
  // The loss reads the scores before Softmax, not the logarithm of probabilities.
  for (const onnx::Node& node : graph->model.graph.nodes) EXPECT_NE(node.op_type, "Log");
  EXPECT_EQ(graph->model.opset(), 17);
}

/// The engine, with models that only describe themselves.
class DescribingEngine final : public infer::Engine {
 public:
  const std::string& name() const override { return engine().name(); }
  std::string library_version() const override { return engine().library_version(); }
  Result<std::unique_ptr<infer::Model>> load(const infer::LoadOptions& options) override {
    TRY(auto loaded, engine().load(options));
    return std::make_unique<Model>(std::move(loaded));
  }

 private:
  class Model final : public infer::Model {
   public:
    explicit Model(std::unique_ptr<infer::Model> loaded) : loaded_(std::move(loaded)) {}
    const std::vector<tensor::Spec>& inputs() const override { return loaded_->inputs(); }
    const std::vector<tensor::Spec>& outputs() const override { return loaded_->outputs(); }
    unsigned concurrent_runs_max() const override { return 0; }
    Result<std::vector<tensor::Named>> run(std::span<const tensor::Named>,
                                           std::span<const std::string>) override {
      return Error(Code::kInternal, "the model ran");
    }

   private:
    std::unique_ptr<infer::Model> loaded_;
  };
};

TEST(Trace, ModelRunsOnlyIfShapesOrIntegersAreUnknown) {
  DescribingEngine describing;
  const std::vector<tensor::Named> batch = {{"x", halves({3, 4})}};
  onnx::Model plain = network().model();
  const auto inferred = trace(describing, plain, batch);
  ASSERT_TRUE(inferred.ok()) << inferred.error();
  const Facts known = trace(engine(), plain, batch).value();
  EXPECT_EQ(inferred->size(), known.size());
  EXPECT_EQ(inferred->at("hidden").shape, (Shape{3, 3}));
  EXPECT_EQ(inferred->at("y").shape, (Shape{3, 2}));

  auto with_integers = network();
  with_integers.node({.op_type = "Shape", .inputs = {"y"}, .outputs = {"size"}}).output("size");
  onnx::Model computed = with_integers.model();
  EXPECT_EQ(trace(describing, computed, batch).error().message(), "the model ran");
  onnx::Model same = network().model();
  const std::vector<tensor::Named> wrong = {{"x", halves({3, 5})}};
  EXPECT_EQ(trace(describing, same, wrong).error().message(), "the model ran");
}

}  // namespace gradient_graph_test
}  // namespace
}  // namespace varda::train
