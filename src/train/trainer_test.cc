// Steps on the digits of examples/digits, from random weights to a served file.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/protobuf.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "onnx/weights.h"
#include "train/order.h"
#include "train/testing/model_builder.h"

namespace varda::train {
namespace {

namespace trainer_test {

namespace testing = varda::train::testing;
using tensor::DType;
using tensor::Named;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kBatch = 36, kPixels = 64;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

struct Digits {
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
};
const Digits& digits() {
  static const Digits all = [] {
    Digits out;
    for (const char c : bytes_of(VARDA_DIGITS "/test-images.idx3-ubyte").substr(16))
      out.pixels.push_back(static_cast<float>(static_cast<unsigned char>(c)));
    for (const char c : bytes_of(VARDA_DIGITS "/test-labels.idx1-ubyte").substr(8))
      out.labels.push_back(static_cast<unsigned char>(c));
    return out;
  }();
  return all;
}

Tensor images(std::span<const std::size_t> samples) {
  auto out =
      Tensor::allocate(DType::kFp32, {static_cast<std::int64_t>(samples.size()), 8, 8}).value();
  auto values = out.mutable_values<float>();
  for (std::size_t i = 0; i < samples.size(); ++i)
    std::copy_n(&digits().pixels[samples[i] * kPixels], kPixels, &values[i * kPixels]);
  return out;
}

Batch batch_of(std::span<const std::size_t> samples) {
  std::vector<std::int64_t> labels;
  for (const std::size_t sample : samples) labels.push_back(digits().labels.at(sample));
  return {
      {{"images", images(samples)}}, one_hot(labels, 10).value(), equal_weights(samples.size())};
}

/// The network with one hidden layer, with random weights.
std::string untrained() {
  const std::string file = bytes_of(VARDA_DIGITS "/models/4/model.onnx");
  const auto model = onnx::parse(file).value();
  const auto rng = seeded_rng(5);
  std::map<std::string, Tensor> weights;
  for (const onnx::Tensor& initializer : model.graph.initializers) {
    if (initializer.dims.empty()) continue;
    Tensor value = Tensor::allocate(DType::kFp32, initializer.dims).value();
    const double range = std::sqrt(6.0 / static_cast<double>(initializer.dims[0]));
    if (initializer.dims.size() == 2)
      for (float& one : value.mutable_values<float>())
        one = static_cast<float>(range * (2 * rng->unit() - 1));
    weights.emplace(initializer.name, std::move(value));
  }
  return onnx::replace_weights(file, weights).value();
}

std::unique_ptr<Trainer> open(const std::string& file, const Trainer::Options& options) {
  std::vector<std::size_t> first(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) first[i] = i;
  const std::vector<Named> example = {{"images", images(first)}};
  auto out = Trainer::open(engine(), file, example, options);
  EXPECT_TRUE(out.ok()) << out.error();
  return std::move(out).value();
}

constexpr OptimizerOptions kSgd = {.momentum = 0.9};

/// Steps `begin` to `end` - 1 of a run, counted from 0; the loss of the last.
double run(Trainer& trainer, std::size_t begin, std::size_t end, double rate = 0.05) {
  double loss = 0;
  const std::size_t each = digits().labels.size() / kBatch;
  for (std::size_t step = begin; step < end; ++step) {
    const auto order = epoch_order(digits().labels.size(), 1, step / each);
    const auto samples = std::span(order).subspan(step % each * kBatch, kBatch);
    const auto done = trainer.step(batch_of(samples), rate);
    EXPECT_TRUE(done.ok()) << done.error();
    loss = done->loss;
  }
  return loss;
}

int correct(const std::string& file) {
  auto model = engine().load({.model = file}).value();
  std::vector<std::size_t> all(digits().labels.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto outputs = model->run(std::vector<Named>{{"images", images(all)}}, {}).value();
  const auto rows = outputs.at(0).tensor.values<float>();
  int right = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto row = rows.subspan(i * 10, 10);
    right += std::max_element(row.begin(), row.end()) - row.begin() == digits().labels[i];
  }
  return right;
}

TEST(Trainer, MlpLearnsTheDigitsAndTheSameFileServesThem) {
  const std::string file = untrained();
  const auto trainer = open(file, {.optimizer = kSgd});
  EXPECT_THAT(trainer->weights(), ElementsAre("weights0", "bias0", "weights1", "bias1"))
      << "the scale of the pixels is no weight";
  EXPECT_NEAR(run(*trainer, 0, 1), std::log(10), 1);
  EXPECT_LT(run(*trainer, 1, 300), 0.1);
  const std::string trained = trainer->save().value();
  EXPECT_GE(correct(trained), 349);  // 0.97 of 360
  EXPECT_LT(correct(file), 100);

  // All bytes that are not weights are the same.
  ASSERT_EQ(trained.size(), file.size());
  std::map<std::string, Tensor> same;
  const auto before = onnx::parse(file).value();
  for (const std::string& name : trainer->weights())
    same.emplace(name, before.graph.initializer(name)->value().value());
  EXPECT_EQ(onnx::replace_weights(trained, same).value(), file);
}

TEST(Trainer, PredictionEqualsTheSavedFile) {
  const auto trainer = open(untrained(), {.optimizer = kSgd});
  run(*trainer, 0, 20);
  const auto order = epoch_order(digits().labels.size(), 1, 7);
  const std::vector<Named> inputs = {{"images", images(std::span(order).first(kBatch))}};
  const Tensor predicted = trainer->predict(inputs).value();
  const std::string file = trainer->save().value();
  const auto served = engine().load({.model = file}).value()->run(inputs, {}).value();
  EXPECT_THAT(predicted.values<float>(),
              ::testing::Pointwise(::testing::FloatEq(), served.at(0).tensor.values<float>()));
}

/// Convolutions, BatchNormalization and poolings before one layer of scores, with random weights.
std::string convolutional() {
  const auto rng = seeded_rng(11);
  const auto random = [&](const Shape& shape, double range) {
    Tensor out = Tensor::allocate(DType::kFp32, shape).value();
    for (float& value : out.mutable_values<float>())
      value = static_cast<float>(range * (2 * rng->unit() - 1));
    return out;
  };
  const auto constant = [](const Shape& shape, float value) {
    Tensor out = Tensor::allocate(DType::kFp32, shape).value();
    std::ranges::fill(out.mutable_values<float>(), value);
    return out;
  };
  using Integers = std::vector<std::int64_t>;
  testing::ModelBuilder out;
  out.input("images", DType::kFp32, {-1, 8, 8})
      .initializer("shape", Tensor::of<std::int64_t>(DType::kInt64, {4}, {{-1, 1, 8, 8}}).value())
      .initializer("scale", constant({}, 1 / 255.0f))
      .initializer("conv", random({16, 1, 3, 3}, 0.6))
      .initializer("gamma", constant({16}, 1))
      .initializer("beta", constant({16}, 0))
      .initializer("mean", constant({16}, 0))
      .initializer("variance", constant({16}, 1))
      .initializer("depthwise", random({16, 1, 3, 3}, 0.6))
      .initializer("pointwise", random({32, 16, 1, 1}, 0.4))
      .initializer("dense", random({10, 128}, 0.2))
      .initializer("bias", constant({10}, 0))
      .node({.op_type = "Reshape", .inputs = {"images", "shape"}, .outputs = {"planes"}})
      .node({.op_type = "Mul", .inputs = {"planes", "scale"}, .outputs = {"scaled"}})
      .node({.op_type = "Conv",
             .inputs = {"scaled", "conv"},
             .outputs = {"c0"},
             .attributes = {{"pads", Integers{1, 1, 1, 1}}}})
      .node({.op_type = "BatchNormalization",
             .inputs = {"c0", "gamma", "beta", "mean", "variance"},
             .outputs = {"n0"}})
      .node({.op_type = "Relu", .inputs = {"n0"}, .outputs = {"r0"}})
      .node({.op_type = "Conv",
             .inputs = {"r0", "depthwise"},
             .outputs = {"c1"},
             .attributes = {{"pads", Integers{1, 1, 1, 1}},
                            {"strides", Integers{2, 2}},
                            {"group", std::int64_t{16}}}})
      .node({.op_type = "Conv", .inputs = {"c1", "pointwise"}, .outputs = {"c2"}})
      .node({.op_type = "Relu", .inputs = {"c2"}, .outputs = {"r1"}})
      .node({.op_type = "MaxPool",
             .inputs = {"r1"},
             .outputs = {"pool"},
             .attributes = {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}}})
      .node({.op_type = "Flatten", .inputs = {"pool"}, .outputs = {"flat"}})
      .node({.op_type = "Gemm",
             .inputs = {"flat", "dense", "bias"},
             .outputs = {"scores"},
             .attributes = {{"transB", std::int64_t{1}}}})
      .output("scores");
  return out.bytes();
}

TEST(Trainer, ConvolutionalNetworkLearnsTheDigits) {
  const std::string file = convolutional();
  const auto trainer = open(file, {.optimizer = {.kind = OptimizerOptions::Kind::kAdam}});
  EXPECT_THAT(trainer->weights(),
              ElementsAre("conv", "gamma", "beta", "depthwise", "pointwise", "dense", "bias"));
  EXPECT_LT(run(*trainer, 0, 120, 0.005), 0.1);
  const std::string trained = trainer->save().value();
  EXPECT_GE(correct(trained), 349) << "with the stored statistics, as in serving";
  const auto before = onnx::parse(file).value(), after = onnx::parse(trained).value();
  for (const char* name : {"mean", "variance"})
    EXPECT_NE(before.graph.initializer(name)->message.view,
              after.graph.initializer(name)->message.view);
  EXPECT_EQ(before.graph.initializer("scale")->message.view,
            after.graph.initializer("scale")->message.view);
}

/// The engine without oneDNN beside it.
class PlainEngine final : public infer::Engine {
 public:
  const std::string& name() const override { return engine().name(); }
  std::string library_version() const override { return engine().library_version(); }
  Result<std::unique_ptr<infer::Model>> load(const infer::LoadOptions& options) override {
    if (options.options.contains("operators")) return Error(Code::kUnavailable, "no such file");
    return engine().load(options);
  }
};

/// 30 steps, with the frozen beginning apart if the trainer can separate it.
std::string separated(const std::string& file, const Trainer::Options& options, bool& apart) {
  const auto trainer = open(file, options);
  run(*trainer, 0, 3);
  std::vector<std::size_t> first(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) first[i] = i;
  const auto part = trainer->separate(batch_of(first), 1 << 20).value();
  apart = part != nullptr;
  if (!apart) return run(*trainer, 3, 30), trainer->save().value();
  const std::size_t each = digits().labels.size() / kBatch;
  for (std::size_t step = 3; step < 30; ++step) {
    const auto order = epoch_order(digits().labels.size(), 1, step / each);
    Batch batch = batch_of(std::span(order).subspan(step % each * kBatch, kBatch));
    batch.inputs = {{part->name(), part->run(batch.inputs).value()}};
    EXPECT_EQ(batch.inputs[0].tensor.shape(), part->shape());
    EXPECT_TRUE(trainer->step(batch, 0.05).ok());
  }
  return trainer->save().value();
}

TEST(Trainer, SeparateFrozenLayersGiveTheBytesOfTheWholeModel) {
  struct Case {
    std::string file;
    std::vector<std::string> freeze;
    bool apart;
  };
  const Case cases[] = {
      {untrained(), {"weights0", "bias0"}, true},
      {convolutional(), {"conv", "gamma", "beta", "depthwise", "pointwise"}, true},
      {convolutional(), {"conv", "gamma", "beta", "depthwise"}, true},
      {convolutional(), {"conv"}, true},  // statistics of the batch are in the rest
      {convolutional(), {"pointwise"}, false},
      {untrained(), {"weights1"}, false},
  };
  for (const Case& c : cases) {
    for (const Operators operators : {Operators::kOneDnn, Operators::kStandard}) {
      const Trainer::Options options{
          .gradients = {.freeze = c.freeze}, .operators = operators, .optimizer = kSgd};
      const auto whole = open(c.file, options);
      run(*whole, 0, 30);
      bool apart = false;
      EXPECT_EQ(separated(c.file, options, apart), whole->save().value()) << c.freeze.back();
      EXPECT_EQ(apart, c.apart) << c.freeze.back();
    }
  }
}

TEST(Trainer, LayersWithLargeFeaturesStayInTheModel) {
  const auto trainer = open(untrained(), {.gradients = {.freeze = {"*0"}}, .optimizer = kSgd});
  std::vector<std::size_t> first(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) first[i] = i;
  EXPECT_EQ(trainer->separate(batch_of(first), 4).value(), nullptr);
  EXPECT_LT(run(*trainer, 0, 100), 1);
}

TEST(Trainer, LayersThatMixSamplesStayInTheModel) {
  const auto weights = [](Shape shape, std::uint64_t seed) {
    const auto rng = seeded_rng(seed);
    Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
    for (float& value : out.mutable_values<float>()) value = static_cast<float>(rng->unit() - 0.5);
    return out;
  };
  const std::string file =
      testing::ModelBuilder()
          .input("images", DType::kFp32, {-1, 8, 8})
          .initializer("shape", Tensor::of<std::int64_t>(DType::kInt64, {2}, {{-1, 64}}).value())
          .initializer("frozen", weights({64, 16}, 1))
          .initializer("dense", weights({16, 10}, 2))
          .node({.op_type = "Reshape", .inputs = {"images", "shape"}, .outputs = {"x"}})
          .node({.op_type = "MatMul", .inputs = {"x", "frozen"}, .outputs = {"h"}})
          .node({.op_type = "ReduceMean",
                 .inputs = {"h"},
                 .outputs = {"mean"},
                 .attributes = {{"axes", std::vector<std::int64_t>{0}}}})
          .node({.op_type = "Sub", .inputs = {"h", "mean"}, .outputs = {"features"}})
          .node({.op_type = "MatMul", .inputs = {"features", "dense"}, .outputs = {"scores"}})
          .output("scores")
          .bytes();
  const auto trainer = open(file, {.gradients = {.freeze = {"frozen"}}, .optimizer = kSgd});
  std::vector<std::size_t> first(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) first[i] = i;
  EXPECT_EQ(trainer->separate(batch_of(first), 1 << 20).value(), nullptr);
}

TEST(Trainer, BothFormsOfConvolutionsGiveAboutTheSameWeights) {
  PlainEngine plain;
  std::vector<std::size_t> first(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) first[i] = i;
  const std::vector<Named> example = {{"images", images(first)}};
  const std::string file = convolutional();
  std::vector<double> losses;
  for (infer::Engine* one : {static_cast<infer::Engine*>(&plain), &engine()}) {
    auto trainer = Trainer::open(*one, file, example, {.optimizer = kSgd});
    ASSERT_TRUE(trainer.ok()) << trainer.error();
    losses.push_back(run(**trainer, 0, 10));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-3 * losses[0]);
}

TEST(Trainer, ConvolutionsOnTwoThreadsGiveEqualBytes) {
  const Trainer::Options options{.optimizer = kSgd, .threads = 2};
  std::vector<std::string> files;
  for (int i = 0; i < 2; ++i) {
    const auto trainer = open(convolutional(), options);
    run(*trainer, 0, 10);
    files.push_back(trainer->save().value());
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST(Trainer, WeightsOfConstantNodesAreTrainedInTheFile) {
  const Tensor weights = Tensor::allocate(DType::kFp32, {64, 10}).value();
  const std::string file =
      testing::ModelBuilder()
          .input("images", DType::kFp32, {-1, 8, 8})
          .node({.op_type = "Constant",
                 .outputs = {"w"},
                 .attributes = {{"value", onnx::Tensor::of("", weights)}}})
          .node({.op_type = "Flatten", .inputs = {"images"}, .outputs = {"pixels"}})
          .node({.op_type = "MatMul", .inputs = {"pixels", "w"}, .outputs = {"scores"}})
          .output("scores")
          .bytes(13);
  const auto trainer = open(file, {.optimizer = kSgd});
  EXPECT_THAT(trainer->weights(), ElementsAre("w"));
  run(*trainer, 0, 60, 1e-6);
  const std::string trained = trainer->save().value();
  EXPECT_EQ(trained.size(), file.size());
  EXPECT_GE(correct(trained), 300);
}

TEST(Trainer, WeightWithoutAPlaceInTheFileIsRefusedAtOnce) {
  testing::ModelBuilder builder;
  builder.input("images", DType::kFp32, {-1, 8, 8})
      .initializer("w", Tensor::allocate(DType::kFp32, {64, 2}).value())
      .node({.op_type = "Constant",
             .outputs = {"bias"},
             .attributes = {{"value_floats", std::vector<float>{0, 0}}}})
      .node({.op_type = "Flatten", .inputs = {"images"}, .outputs = {"pixels"}})
      .node({.op_type = "Gemm", .inputs = {"pixels", "w", "bias"}, .outputs = {"scores"}})
      .output("scores");
  const std::vector<std::size_t> samples = {0, 1};
  const std::vector<Named> example = {{"images", images(samples)}};
  const auto trainer = Trainer::open(engine(), builder.bytes(), example, {});
  ASSERT_FALSE(trainer.ok());
  EXPECT_EQ(trainer.error(), Error(Code::kNotFound, "the file has no weight \"bias\""));
  EXPECT_TRUE(
      Trainer::open(engine(), builder.bytes(), example, {.gradients = {.freeze = {"bias"}}}).ok());
}

TEST(Trainer, UnusableFilesAreRefused) {
  const std::vector<std::size_t> samples = {0, 1};
  const std::vector<Named> example = {{"images", images(samples)}};
  const auto error = [&](std::string file, std::span<const Named> batch) {
    const auto made = Trainer::open(engine(), std::move(file), batch, {});
    return made.ok() ? Error(Code::kInternal, "") : made.error();
  };
  const std::string file = untrained();
  EXPECT_EQ(error("<html>not found</html>", example).code(), Code::kInvalid);
  EXPECT_EQ(error(file.substr(0, 9000), example).code(), Code::kInvalid);
  EXPECT_THAT(error(file, {}).message(), HasSubstr("input \"images\" is missing"));

  auto model = onnx::parse(file).value();
  onnx::Tensor& weights = model.graph.initializers.at(1);
  weights.message = onnx::Bytes::of(
      codec::ProtoWriter()
          .item(1, 64)
          .item(1, 96)
          .number(2, 1)
          .message(13, [](auto& entry) { entry.text(1, "location").text(2, "weights.bin"); })
          .number(14, 1)
          .bytes());
  EXPECT_EQ(error(onnx::serialize(model), example),
            Error(Code::kUnsupported, "tensor \"" + weights.name +
                                          "\" has its values in another file; store them in the "
                                          "model's file"));
}

TEST(Trainer, BatchOfAnotherSizeIsRefused) {
  const auto trainer = open(untrained(), {.optimizer = kSgd});
  const auto order = epoch_order(digits().labels.size(), 1, 0);
  const auto step = trainer->step(batch_of(std::span(order).first(kBatch - 1)), 0.1);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error(),
            Error(Code::kInvalid, "input \"targets\" takes shape [36,10], not [35,10]"));
  EXPECT_EQ(trainer->steps(), 0u);
}

TEST(Trainer, EqualRunsGiveEqualBytes) {
  const std::string file = untrained();
  for (const auto kind : {OptimizerOptions::Kind::kSgd, OptimizerOptions::Kind::kAdam,
                          OptimizerOptions::Kind::kAdamW}) {
    const Trainer::Options options = {.optimizer = {.kind = kind, .weight_decay = 1e-4},
                                      .threads = 2};
    const auto first = open(file, options), second = open(file, options);
    run(*first, 0, 25, 0.01);
    run(*second, 0, 25, 0.01);
    EXPECT_EQ(first->checkpoint(), second->checkpoint());
    EXPECT_EQ(first->save().value(), second->save().value());
  }
}

TEST(Trainer, RunFromACheckpointGivesTheBytesOfAnUninterruptedRun) {
  const std::string file = untrained();
  for (const OptimizerOptions& optimizer :
       {kSgd, OptimizerOptions{.kind = OptimizerOptions::Kind::kAdamW, .weight_decay = 0.01}}) {
    const auto whole = open(file, {.optimizer = optimizer});
    run(*whole, 0, 17, 0.01);
    const std::string checkpoint = whole->checkpoint();
    run(*whole, 17, 30, 0.01);
    const auto resumed = open(file, {.optimizer = optimizer});
    ASSERT_TRUE(resumed->restore(checkpoint).ok());
    EXPECT_EQ(resumed->steps(), 17u);
    EXPECT_EQ(resumed->checkpoint(), checkpoint);
    run(*resumed, 17, 30, 0.01);
    EXPECT_EQ(resumed->save().value(), whole->save().value());
  }
}

TEST(Trainer, DamagedOrForeignCheckpointIsRefused) {
  const auto trainer = open(untrained(), {.optimizer = kSgd});
  const std::string before = trainer->checkpoint();
  for (std::size_t at = 0; at < before.size(); at += 997) {
    std::string damaged = before;
    damaged[at] ^= 1;
    EXPECT_EQ(trainer->restore(damaged).error().code(), Code::kCorrupt) << at;
    EXPECT_EQ(trainer->restore(before.substr(0, at)).error().code(), Code::kCorrupt) << at;
  }
  const auto adam = open(untrained(), {.optimizer = {.kind = OptimizerOptions::Kind::kAdam}});
  EXPECT_EQ(trainer->restore(adam->checkpoint()).error().code(), Code::kInvalid);
  EXPECT_EQ(trainer->checkpoint(), before);
}

TEST(Trainer, FrozenWeightsKeepTheirBytes) {
  const std::string file = untrained();
  const auto trainer = open(file, {.gradients = {.freeze = {"*0"}}, .optimizer = kSgd});
  EXPECT_THAT(trainer->weights(), ElementsAre("weights1", "bias1"));
  run(*trainer, 0, 5);
  const auto before = onnx::parse(file).value(),
             after = onnx::parse(trainer->save().value()).value();
  EXPECT_EQ(before.graph.initializer("weights0")->message.view,
            after.graph.initializer("weights0")->message.view);
  EXPECT_NE(before.graph.initializer("weights1")->message.view,
            after.graph.initializer("weights1")->message.view);
}

TEST(Trainer, SampleOfWeightZeroDoesNotCount) {
  const std::string file = untrained();
  const auto first = open(file, {.optimizer = kSgd}), second = open(file, {.optimizer = kSgd});
  const auto order = epoch_order(digits().labels.size(), 1, 0);
  Batch batch = batch_of(std::span(order).first(kBatch));
  const auto weights = batch.sample_weights.mutable_values<float>();
  std::fill(weights.begin(), weights.begin() + 20, 1.0f / 20);
  std::fill(weights.begin() + 20, weights.end(), 0.0f);
  const double loss = first->step(batch, 0.1)->loss;
  auto pixels = batch.inputs[0].tensor.mutable_values<float>();
  std::fill(pixels.begin() + 20 * kPixels, pixels.end(), 255.0f);
  EXPECT_EQ(second->step(batch, 0.1)->loss, loss);
  EXPECT_EQ(first->save().value(), second->save().value());
}

TEST(Trainer, LossThatIsNotFiniteChangesNothing) {
  const auto trainer = open(untrained(), {.optimizer = kSgd});
  const std::string before = trainer->checkpoint();
  const auto order = epoch_order(digits().labels.size(), 1, 0);
  Batch batch = batch_of(std::span(order).first(kBatch));
  batch.inputs[0].tensor.mutable_values<float>()[0] = std::nanf("");
  const auto step = trainer->step(batch, 0.1);
  ASSERT_FALSE(step.ok());
  EXPECT_THAT(step.error().message(), HasSubstr("the loss is not a number; lower"));
  EXPECT_EQ(trainer->checkpoint(), before);
}

/// The same batch with other weights of the samples `begin` to `end` - 1, and 0 elsewhere.
Batch weighted(Batch batch, std::size_t begin, std::size_t end, float weight) {
  batch.sample_weights = Tensor::allocate(DType::kFp32, {kBatch}).value();
  const auto values = batch.sample_weights.mutable_values<float>();
  for (std::size_t i = begin; i < end; ++i) values[i] = weight;
  return batch;
}

double norm_of_difference(const std::string& a, const std::string& b) {
  const auto first = onnx::parse(a).value(), second = onnx::parse(b).value();
  double squares = 0;
  for (const onnx::Tensor& tensor : first.graph.initializers) {
    const auto left = tensor.value().value();
    const auto right = second.graph.initializer(tensor.name)->value().value();
    if (left.dtype() != DType::kFp32) continue;
    for (std::size_t i = 0; i < left.size(); ++i)
      squares += std::pow(left.values<float>()[i] - right.values<float>()[i], 2);
  }
  return std::sqrt(squares);
}

TEST(Trainer, AccumulatedBatchesGiveTheUpdateOfOneBatch) {
  const std::string file = untrained();
  const auto whole = open(file, {.optimizer = kSgd}), parts = open(file, {.optimizer = kSgd});
  const auto order = epoch_order(digits().labels.size(), 1, 0);
  const Batch batch = batch_of(std::span(order).first(kBatch));
  const double loss = whole->step(batch, 0.1)->loss;
  const float each = 1.0f / kBatch;
  const std::string before = parts->save().value();
  const auto first = parts->accumulate(weighted(batch, 0, 20, each));
  EXPECT_EQ(parts->save().value(), before) << "weights change with the update only";
  EXPECT_EQ(parts->steps(), 0u);
  const auto second = parts->step(weighted(batch, 20, kBatch, each), 0.1);
  EXPECT_EQ(parts->steps(), 1u);
  EXPECT_NEAR(first->loss + second->loss, loss, 1e-5);
  EXPECT_GT(norm_of_difference(before, parts->save().value()), 1e-2);
  EXPECT_LT(norm_of_difference(whole->save().value(), parts->save().value()), 1e-5);
  // The sums of an update have no part in the next one.
  EXPECT_TRUE(whole->step(batch, 0.1).ok());
  EXPECT_TRUE(parts->step(batch, 0.1).ok());
  EXPECT_LT(norm_of_difference(whole->save().value(), parts->save().value()), 1e-5);
}

TEST(Trainer, ClippedGradientsHaveTheLimitAsTheirNorm) {
  const std::string file = untrained();
  const auto order = epoch_order(digits().labels.size(), 1, 0);
  const Batch batch = batch_of(std::span(order).first(kBatch));
  const auto moved = [&](double clip_norm) {
    const auto trainer = open(file, {.clip_norm = clip_norm});
    EXPECT_TRUE(trainer->step(batch, 1).ok());
    return norm_of_difference(file, trainer->save().value());
  };
  const double free = moved(0);
  EXPECT_GT(free, 0.5);
  EXPECT_NEAR(moved(0.25), 0.25, 1e-4);
  EXPECT_EQ(moved(free + 1), free);
}

TEST(Trainer, TakenGradientsAppliedGiveTheUpdateOfAStep) {
  const std::string file = convolutional();
  const Trainer::Options options = {.optimizer = {.kind = OptimizerOptions::Kind::kAdam},
                                    .clip_norm = 0.5};
  const auto whole = open(file, options), parts = open(file, options);
  std::vector<std::size_t> samples(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) samples[i] = i;
  const Batch batch = batch_of(samples);
  ASSERT_TRUE(whole->step(batch, 0.01).ok());
  ASSERT_TRUE(parts->accumulate(batch).ok());
  const auto gradients = parts->take_gradients();
  ASSERT_EQ(gradients.size(), parts->weights().size());
  ASSERT_TRUE(parts->apply(gradients, 0.01).ok());
  EXPECT_EQ(parts->checkpoint(), whole->checkpoint());
  EXPECT_TRUE(parts->take_gradients().empty());
}

TEST(Trainer, SetValuesAndAResetOptimizerGiveTheFirstStepAgain) {
  const auto trainer =
      open(convolutional(), {.optimizer = {.kind = OptimizerOptions::Kind::kAdam}});
  std::vector<Named> start;
  for (const Named& one : trainer->values())
    start.push_back(
        {one.name, Tensor::copy(DType::kFp32, one.tensor.shape(), one.tensor.bytes()).value()});
  EXPECT_EQ(start.size(), trainer->weights().size() + 2) << "mean and variance follow the weights";
  const std::string fresh = trainer->checkpoint();
  run(*trainer, 0, 3, 0.005);
  EXPECT_NE(trainer->checkpoint(), fresh);
  ASSERT_TRUE(trainer->set_values(start).ok());
  trainer->reset_optimizer();
  EXPECT_EQ(trainer->checkpoint(), fresh);
  const Named unknown[] = {{"nothing", start[0].tensor}};
  EXPECT_EQ(trainer->set_values(unknown).error().message(),
            "\"nothing\" is no trained tensor of the model");
  const Named wrong[] = {start[0], {start[1].name, start[0].tensor}};
  EXPECT_EQ(trainer->set_values(wrong).error().code(), Code::kInvalid);
  EXPECT_EQ(trainer->checkpoint(), fresh);
}

TEST(Trainer, OutputIsDescribed) {
  const auto trainer = open(untrained(), {});
  EXPECT_EQ(trainer->output_shape(), (Shape{kBatch, 10}));
  EXPECT_EQ(trainer->activation(), Activation::kProbabilities);
}

TEST(OneHot, LabelOutOfRangeNamesTheSample) {
  EXPECT_EQ(one_hot(std::vector<std::int64_t>{1, 10}, 10).error().message(),
            "sample 1 has the label 10; the model has 10 classes, from 0");
  const auto smooth = one_hot(std::vector<std::int64_t>{1}, 4, 0.2).value();
  EXPECT_THAT(smooth.values<float>(), ElementsAre(0.05f, 0.85f, 0.05f, 0.05f));
}

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  auto order = epoch_order(100, 1, 0);
  EXPECT_EQ(order, epoch_order(100, 1, 0));
  EXPECT_NE(order, epoch_order(100, 1, 1));
  EXPECT_NE(order, epoch_order(100, 2, 0));
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(epoch_order(0, 1, 0).empty());
}

}  // namespace trainer_test
}  // namespace
}  // namespace varda::train
