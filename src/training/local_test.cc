// Rounds on small made-up data, on the engine that serves. References are computed with
// train::Trainer, one gradient at a time.
#include "training/local.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numbers>
#include <stop_token>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/json.h"
#include "os/testing/memory_file_system.h"
#include "train/order.h"
#include "train/testing/model_builder.h"
#include "train/trainer.h"

namespace varda::training {
namespace {

namespace local_test {

using codec::Json;
using os::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Named;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

/// Two half circles; sample i has the class i % 2.
class Moons final : public samples::Dataset {
 public:
  explicit Moons(std::size_t count) {
    const auto rng = seeded_rng(3);
    for (std::size_t i = 0; i < count; ++i) {
      const bool upper = i % 2 == 0;
      const double angle = std::numbers::pi * rng->unit();
      values.push_back(static_cast<float>(upper ? std::cos(angle) : 1 - std::cos(angle)));
      values.push_back(static_cast<float>(upper ? std::sin(angle) : 0.5 - std::sin(angle)));
      labels.push_back(upper ? 0 : 1);
    }
  }
  std::vector<float> values;
  std::vector<std::int64_t> labels;
  std::vector<std::string> names = {"left", "right"};
  std::function<void(std::size_t)> on_read;  // with the number of the call, from 0
  mutable std::atomic<std::size_t> reads = 0;

  std::size_t size() const override { return labels.size(); }
  const std::vector<std::string>& classes() const override { return names; }
  std::size_t outputs() const override { return 2; }
  std::vector<std::uint64_t> class_counts() const override {
    std::vector<std::uint64_t> out(2);
    for (const std::int64_t label : labels) ++out.at(static_cast<std::size_t>(label));
    return out;
  }
  std::string fingerprint() const override { return "moons"; }
  std::string place(std::size_t index) const override { return "moon " + std::to_string(index); }
  Result<std::string> picture(std::size_t) const override { return std::string(); }
  Result<samples::Batch> read(std::span<const std::size_t> indices, const samples::Augment&,
                              std::uint64_t) const override {
    const std::size_t call = reads++;
    if (on_read) on_read(call);
    samples::Batch out;
    std::vector<float> rows;
    for (const std::size_t index : indices) {
      rows.insert(rows.end(), &values.at(2 * index), &values.at(2 * index) + 2);
      out.labels.push_back(labels[index]);
      out.indices.push_back(index);
    }
    TRY(out.input, Tensor::of<float>(DType::kFp32, {static_cast<std::int64_t>(indices.size()), 2},
                                     std::span(rows)));
    return out;
  }
};

Tensor random_tensor(tensor::Shape shape, double range, std::uint64_t seed) {
  const auto rng = seeded_rng(seed);
  Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
  for (float& one : out.mutable_values<float>())
    one = static_cast<float>(range * (2 * rng->unit() - 1));
  return out;
}

Tensor filled_tensor(tensor::Shape shape, float value) {
  Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
  std::ranges::fill(out.mutable_values<float>(), value);
  return out;
}

train::testing::ModelBuilder builder() {
  train::testing::ModelBuilder out;
  out.input("x", DType::kFp32, {-1, 2})
      .initializer("w0", random_tensor({2, 8}, 1.5, 1))
      .initializer("b0", random_tensor({8}, 0.5, 2))
      .initializer("w1", random_tensor({8, 2}, 0.6, 3))
      .initializer("b1", random_tensor({2}, 0.1, 4));
  return out;
}

std::string network() {
  auto out = builder();
  return out.node({.op_type = "Gemm", .inputs = {"x", "w0", "b0"}, .outputs = {"h0"}})
      .node({.op_type = "Relu", .inputs = {"h0"}, .outputs = {"h1"}})
      .node({.op_type = "Gemm", .inputs = {"h1", "w1", "b1"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

std::string normalized_network() {
  auto out = builder();
  return out.initializer("scale", filled_tensor({8}, 1))
      .initializer("bias", filled_tensor({8}, 0))
      .initializer("mean", filled_tensor({8}, 0))
      .initializer("variance", filled_tensor({8}, 1))
      .node({.op_type = "Gemm", .inputs = {"x", "w0", "b0"}, .outputs = {"h0"}})
      .node({.op_type = "BatchNormalization",
             .inputs = {"h0", "scale", "bias", "mean", "variance"},
             .outputs = {"h1"}})
      .node({.op_type = "Relu", .inputs = {"h1"}, .outputs = {"h2"}})
      .node({.op_type = "Gemm", .inputs = {"h2", "w1", "b1"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

class Silent final : public Observer {
 public:
  void progress(const Progress&) override {}
  void epoch(const EpochRecord&) override {}
};

struct Case {
  std::string model = network();
  std::shared_ptr<Moons> data = std::make_shared<Moons>(40);
  Json json = Json::object(
      {{"batchSize", 8}, {"threads", 1}, {"optimizer", Json::object({{"learningRate", 0.1}})}});
  double hold_out = 0;
  std::optional<PrivacyOptions> privacy;
  MemoryFileSystem fs;

  Result<std::unique_ptr<LocalTrainer>> open() {
    TRY(const Settings settings, parse_settings(json));
    return LocalTrainer::open(Context::background(), engine(), fs,
                              {.model = model,
                               .train = data,
                               .hold_out = hold_out,
                               .settings = settings,
                               .privacy = privacy});
  }
  std::unique_ptr<LocalTrainer> opened() {
    auto out = open();
    EXPECT_TRUE(out.ok()) << out.error();
    return out.ok() ? std::move(*out) : nullptr;
  }
};

RoundResult trained(LocalTrainer& trainer, const LocalRound& round) {
  Silent observer;
  auto out = trainer.train(Context::background(), round, observer);
  EXPECT_TRUE(out.ok()) << out.error();
  return out.ok() ? std::move(*out) : RoundResult{};
}
Error error_of(LocalTrainer& trainer, const LocalRound& round) {
  Silent observer;
  const auto out = trainer.train(Context::background(), round, observer);
  return out.ok() ? Error(Code::kInternal, "no error") : out.error();
}

using Numbers = std::map<std::string, std::vector<double>>;

Numbers numbers_of(std::span<const Named> tensors) {
  Numbers out;
  for (const Named& one : tensors) {
    const auto values = one.tensor.values<float>();
    out[one.name] = {values.begin(), values.end()};
  }
  return out;
}

std::string bytes_of(std::span<const Named> tensors) {
  std::string out;
  for (const Named& one : tensors) {
    const auto bytes = one.tensor.bytes();
    out += one.name;
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

void expect_near(const Numbers& a, const Numbers& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(values.size(), b.at(name).size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], b.at(name)[i], tolerance) << name << "[" << i << "]";
  }
}

/// Gradients of the reference: plain calls of train::Trainer at any weights.
class Reference {
 public:
  explicit Reference(const Case& setup, std::int64_t batch) : data_(*setup.data) {
    const std::vector<Named> example = {{"x", Tensor::allocate(DType::kFp32, {batch, 2}).value()}};
    trainer_ = train::Trainer::open(engine(), setup.model, example, {}).value();
  }
  Numbers start() const { return numbers_of(trainer_->values()); }

  Numbers gradient(const Numbers& weights, std::span<const std::size_t> samples) {
    std::vector<Named> values;
    for (const Named& one : trainer_->values()) {
      std::vector<float> floats;
      for (const double value : weights.at(one.name)) floats.push_back(static_cast<float>(value));
      values.push_back({one.name, Tensor::of<float>(DType::kFp32, one.tensor.shape(),
                                                    std::span<const float>(floats))
                                      .value()});
    }
    EXPECT_TRUE(trainer_->set_values(values).ok());
    const samples::Batch batch = data_.read(samples, {}, 0).value();
    EXPECT_TRUE(trainer_
                    ->accumulate({{{"x", batch.input}},
                                  train::one_hot(batch.labels, 2).value(),
                                  train::equal_weights(samples.size())})
                    .ok());
    Numbers out;
    const auto gradients = trainer_->take_gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i)
      out[trainer_->weights()[i]] = {gradients[i].begin(), gradients[i].end()};
    return out;
  }

 private:
  const Moons& data_;
  std::unique_ptr<train::Trainer> trainer_;
};

Numbers combined(const Numbers& a, double factor, const Numbers& b) {
  Numbers out = a;
  for (auto& [name, values] : out)
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += factor * b.at(name)[i];
  return out;
}

std::vector<std::vector<std::size_t>> batches(std::size_t count, std::size_t size,
                                              std::uint64_t seed, std::uint64_t epochs) {
  std::vector<std::vector<std::size_t>> out;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = train::epoch_order(count, seed, epoch);
    for (std::size_t at = 0; at < count; at += size)
      out.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(at),
                       order.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, count)));
  }
  return out;
}

// --- formulas

TEST(LocalTrainer, PlainRoundIsGradientDescent) {
  Case setup;
  Reference reference(setup, 8);
  const Numbers start = reference.start();
  Numbers weights = start;
  double loss_seen = 0;
  for (const auto& batch : batches(40, 8, 17, 2))
    weights = combined(weights, -0.1, reference.gradient(weights, batch));
  const auto trainer = setup.opened();
  const RoundResult result = trained(*trainer, {.epochs = 2, .seed = 17});
  expect_near(numbers_of(result.delta), combined(weights, -1, start), 1e-5);
  EXPECT_EQ(result.steps, 10u);
  EXPECT_EQ(result.samples, 40u);
  loss_seen = result.loss;
  EXPECT_GT(loss_seen, 0);
  EXPECT_LT(trained(*trainer, {.epochs = 2, .seed = 18}).loss, 1.5 * loss_seen);
}

TEST(LocalTrainer, ProximalTermIsThatOfFedProx) {
  Case setup;
  Reference reference(setup, 8);
  const Numbers start = reference.start();
  Numbers weights = start;
  for (const auto& batch : batches(40, 8, 5, 2)) {
    const Numbers gradient =
        combined(reference.gradient(weights, batch), 0.7, combined(weights, -1, start));
    weights = combined(weights, -0.1, gradient);
  }
  const auto trainer = setup.opened();
  const RoundResult result = trained(*trainer, {.epochs = 2, .seed = 5, .proximal = 0.7});
  expect_near(numbers_of(result.delta), combined(weights, -1, start), 1e-5);
  const auto norm = [](const Numbers& numbers) {
    double out = 0;
    for (const auto& [name, values] : numbers)
      for (const double value : values) out += value * value;
    return std::sqrt(out);
  };
  const auto other = setup.opened();
  EXPECT_LT(norm(numbers_of(result.delta)),
            norm(numbers_of(trained(*other, {.epochs = 2, .seed = 5}).delta)));
}

TEST(LocalTrainer, ControlVariatesFollowOptionTwoOfScaffold) {
  Case setup;
  Reference reference(setup, 8);
  const Numbers start = reference.start();
  ControlVariates control;
  std::uint64_t seed = 30;
  for (const auto& [name, values] : start) {
    tensor::Shape shape = {static_cast<std::int64_t>(values.size())};
    if (name == "w0") shape = {2, 8};
    if (name == "w1") shape = {8, 2};
    control.server.push_back({name, random_tensor(shape, 0.3, seed++)});
    control.own.push_back({name, random_tensor(shape, 0.3, seed++)});
  }
  const Numbers server = numbers_of(control.server), own = numbers_of(control.own);
  Numbers weights = start, mean;
  for (const auto& [name, values] : start) mean[name].resize(values.size());
  const auto steps = batches(40, 8, 9, 1);
  for (const auto& batch : steps) {
    const Numbers gradient = reference.gradient(weights, batch);
    mean = combined(mean, 1.0 / static_cast<double>(steps.size()), gradient);
    weights = combined(weights, -0.1, combined(combined(gradient, 1, server), -1, own));
  }
  const auto trainer = setup.opened();
  const RoundResult result = trained(*trainer, {.seed = 9, .control = control});
  expect_near(numbers_of(result.delta), combined(weights, -1, start), 1e-5);
  // With a constant rate, c_i - c + (x - y) / (K eta) is the mean of the gradients.
  expect_near(numbers_of(result.control), mean, 1e-4);
  expect_near(numbers_of(result.control_delta), combined(mean, -1, own), 1e-4);
}

TEST(LocalTrainer, FirstRoundHasZeroVariates) {
  Case setup;
  const auto trainer = setup.opened(), plain = setup.opened();
  const RoundResult result = trained(*trainer, {.control = ControlVariates{}});
  EXPECT_EQ(bytes_of(result.control), bytes_of(result.control_delta));
  expect_near(numbers_of(result.delta), numbers_of(trained(*plain, {}).delta), 1e-6);
}

TEST(LocalTrainer, PrivateStepWithoutNoiseOrClippingIsAPlainStep) {
  Case setup;
  setup.json.set("batchSize", 40);
  Reference reference(setup, 40);
  const Numbers start = reference.start();
  Numbers weights = start;
  for (const auto& batch : batches(40, 40, 1, 3))
    weights = combined(weights, -0.1, reference.gradient(weights, batch));
  setup.privacy = PrivacyOptions{.clip_norm = 1e6, .noise = 0};
  const auto trainer = setup.opened();
  EXPECT_EQ(trainer->sampling_rate(), 1);
  const RoundResult result = trained(*trainer, {.epochs = 3});
  EXPECT_EQ(result.steps, 3u);
  expect_near(numbers_of(result.delta), combined(weights, -1, start), 1e-5);
}

TEST(LocalTrainer, PrivateStepClipsEachSample) {
  Case setup;
  setup.json.set("batchSize", 40);
  Reference reference(setup, 1);
  const Numbers start = reference.start();
  constexpr double kClip = 0.25;
  Numbers sum;
  for (const auto& [name, values] : start) sum[name].resize(values.size());
  for (std::size_t i = 0; i < 40; ++i) {
    const std::size_t one[] = {i};
    const Numbers gradient = reference.gradient(start, one);
    double squares = 0;
    for (const auto& [name, values] : gradient)
      for (const double value : values) squares += value * value;
    sum = combined(sum, std::min(1.0, kClip / std::sqrt(squares)), gradient);
  }
  for (auto& [name, values] : sum)
    for (double& value : values) value *= -0.1 / 40;
  setup.privacy = PrivacyOptions{.clip_norm = kClip, .noise = 0};
  const auto trainer = setup.opened();
  expect_near(numbers_of(trained(*trainer, {.steps = 1}).delta), sum, 1e-6);
}

TEST(LocalTrainer, PrivateNoiseHasTheDeviationOfTheMechanism) {
  Case setup;
  setup.json.set("batchSize", 40);
  setup.privacy = PrivacyOptions{.clip_norm = 0.5, .noise = 0};
  const auto quiet = setup.opened();
  const Numbers without = numbers_of(trained(*quiet, {.steps = 1}).delta);
  double squares = 0;
  std::size_t count = 0;
  for (std::uint8_t i = 0; i < 40; ++i) {
    setup.privacy->noise = 2;
    setup.privacy->key[0] = i;
    const auto noisy = setup.opened();
    const Numbers with = numbers_of(trained(*noisy, {.steps = 1}).delta);
    for (const auto& [name, values] : combined(with, -1, without))
      for (const double value : values) {
        squares += value * value;
        ++count;
      }
  }
  const double deviation = 0.1 * 2 * 0.5 / 40;  // rate * noise * clip norm / expected samples
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), deviation,
              5 * deviation / std::sqrt(2.0 * static_cast<double>(count)));
}

TEST(LocalTrainer, PrivateNoiseFollowsTheKeyOfTheClient) {
  Case setup;
  setup.privacy = PrivacyOptions{.clip_norm = 1, .noise = 1};
  const auto first = setup.opened();
  const std::string bytes = bytes_of(trained(*first, {.seed = 4}).delta);
  const auto second = setup.opened();
  EXPECT_EQ(bytes_of(trained(*second, {.seed = 4}).delta), bytes);
  setup.privacy->key[31] = 1;
  const auto third = setup.opened();
  EXPECT_NE(bytes_of(trained(*third, {.seed = 4}).delta), bytes);
}

// --- rounds

TEST(LocalTrainer, EachRoundStartsFromTheGivenWeights) {
  Case setup;
  setup.hold_out = 0.2;
  setup.json.set("optimizer", Json::object({{"name", "adam"}, {"learningRate", 0.02}}));
  const auto trainer = setup.opened();
  const std::string first = bytes_of(trained(*trainer, {.epochs = 3}).delta);
  const double after = trainer->evaluate(Context::background()).value().metrics.at("loss");
  std::vector<Named> start;
  for (const auto& [name, shape, range, seed] : {std::tuple("w0", tensor::Shape{2, 8}, 1.5, 1),
                                                 {"b0", {8}, 0.5, 2},
                                                 {"w1", {8, 2}, 0.6, 3},
                                                 {"b1", {2}, 0.1, 4}})
    start.push_back({name, random_tensor(shape, range, static_cast<std::uint64_t>(seed))});
  ASSERT_TRUE(trainer->set_weights(start).ok());
  const double before = trainer->evaluate(Context::background()).value().metrics.at("loss");
  EXPECT_LT(after, before);
  EXPECT_EQ(bytes_of(trained(*trainer, {.epochs = 3}).delta), first) << "the optimizer is new too";
  EXPECT_EQ(trainer->samples(), 32u);
  EXPECT_EQ(trainer->evaluation_samples(), 8u);
}

TEST(LocalTrainer, StepsReplaceEpochs) {
  Case setup;
  Reference reference(setup, 8);
  const Numbers start = reference.start();
  Numbers weights = start;
  auto all = batches(40, 8, 2, 2);
  all.resize(7);
  for (const auto& batch : all)
    weights = combined(weights, -0.1, reference.gradient(weights, batch));
  const auto trainer = setup.opened();
  const RoundResult result = trained(*trainer, {.steps = 7, .seed = 2});
  expect_near(numbers_of(result.delta), combined(weights, -1, start), 1e-5);
  EXPECT_EQ(result.steps, 7u);
  const auto other = setup.opened();
  EXPECT_EQ(trained(*other, {.steps = 2}).samples, 16u) << "samples that trained";
}

TEST(LocalTrainer, ScheduleCountsRoundsAsEpochs) {
  Case setup;
  setup.json.set("epochs", 10);
  setup.json.set("schedule", Json::object({{"name", "step"}, {"everyEpochs", 3}, {"factor", 0.5}}));
  const auto delta = [&](std::int64_t round) {
    const auto trainer = setup.opened();
    return numbers_of(trained(*trainer, {.round = round, .steps = 1}).delta).at("w1")[0];
  };
  EXPECT_NEAR(delta(3), delta(1), 1e-9);
  EXPECT_NEAR(delta(4), delta(1) / 2, 1e-6);
  EXPECT_NEAR(delta(7), delta(1) / 4, 1e-6);
}

TEST(LocalTrainer, KeptOptimizerContinuesOverRounds) {
  Case setup;
  setup.json.set("batchSize", 40);
  setup.json.set("optimizer", Json::object({{"learningRate", 0.05}, {"momentum", 0.9}}));
  const auto whole = setup.opened();
  const Numbers expected = numbers_of(trained(*whole, {.epochs = 6}).delta);
  const auto parts = setup.opened();
  const RoundResult first = trained(*parts, {.epochs = 3, .keep_optimizer = true});
  ASSERT_TRUE(parts->set_weights({}).ok()) << "the next round starts from the present weights";
  const RoundResult second =
      trained(*parts, {.epochs = 3, .keep_optimizer = true, .optimizer = first.optimizer});
  expect_near(combined(numbers_of(first.delta), 1, numbers_of(second.delta)), expected, 1e-5);
  EXPECT_TRUE(trained(*parts, {}).optimizer.empty());
}

TEST(LocalTrainer, FrozenWeightsAreSetButNeverSent) {
  Case setup;
  setup.hold_out = 0.2;
  setup.json.set("freeze", Json::array({"w0", "b0"}));
  const auto trainer = setup.opened();
  EXPECT_EQ(trainer->weights().size(), 4u);
  const double before = trainer->evaluate(Context::background()).value().metrics.at("loss");
  const std::vector<Named> other = {{"w0", random_tensor({2, 8}, 1.5, 77)}};
  ASSERT_TRUE(trainer->set_weights(other).ok());
  EXPECT_NE(trainer->evaluate(Context::background()).value().metrics.at("loss"), before);
  const RoundResult result = trained(*trainer, {});
  ASSERT_EQ(result.delta.size(), 2u);
  EXPECT_EQ(result.delta[0].name, "b1");
  EXPECT_EQ(result.delta[1].name, "w1");
  Case direct;
  direct.hold_out = 0.2;
  direct.json = setup.json;
  const auto same = direct.opened();
  ASSERT_TRUE(same->set_weights(other).ok());
  EXPECT_EQ(bytes_of(trained(*same, {}).delta), bytes_of(result.delta));
}

TEST(LocalTrainer, StatisticsOfBatchNormalizationTravel) {
  Case setup;
  setup.model = normalized_network();
  const auto trainer = setup.opened();
  const Numbers delta = numbers_of(trained(*trainer, {}).delta);
  ASSERT_TRUE(delta.contains("mean") && delta.contains("variance"));
  EXPECT_NE(delta.at("variance")[0], 0);
  setup.privacy = PrivacyOptions{};
  const auto refused = setup.open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  setup.json.set("freeze", Json::array({"scale", "bias"}));
  EXPECT_TRUE(setup.open().ok());
}

TEST(LocalTrainer, TrainingLossIsThatOfTheFirstFullStep) {
  Case setup;
  setup.json.set("batchSize", 40);
  const auto trainer = setup.opened();
  const double before = trainer->training_loss(Context::background()).value();
  EXPECT_NEAR(before, trained(*trainer, {.steps = 1}).loss, 1e-5);
  EXPECT_LT(trainer->training_loss(Context::background()).value(), before);
}

TEST(LocalTrainer, OneClassIsEnough) {
  Case setup;
  std::ranges::fill(setup.data->labels, 1);
  const auto trainer = setup.opened();
  EXPECT_EQ(trained(*trainer, {}).samples, 40u);
}

TEST(LocalTrainer, LossWithoutNumbersNamesTheStep) {
  Case setup;
  setup.data->values[3] = NAN;
  const auto trainer = setup.opened();
  EXPECT_THAT(error_of(*trainer, {.seed = 1}).message(), HasSubstr("of 5: "));
  setup.privacy = PrivacyOptions{};
  setup.json.set("batchSize", 40);
  const auto private_trainer = setup.opened();
  EXPECT_EQ(error_of(*private_trainer, {}).code(), Code::kInvalid);
}

TEST(LocalTrainer, RefusesWeightsThatDoNotFit) {
  Case setup;
  const auto trainer = setup.opened();
  const auto message = [&](const char* name, Tensor tensor) {
    const Named one[] = {{name, std::move(tensor)}};
    const Status status = trainer->set_weights(one);
    return status.ok() ? std::string("accepted") : status.error().message();
  };
  EXPECT_EQ(message("w9", random_tensor({2}, 1, 1)), "the model has no weight \"w9\"");
  EXPECT_EQ(message("b1", random_tensor({3}, 1, 1)),
            "weight \"b1\" is FP32 [3]; the model has FP32 [2]");
  EXPECT_EQ(message("b1", filled_tensor({2}, INFINITY)), "weight \"b1\" is not finite");
  EXPECT_EQ(message("b1", filled_tensor({2}, 1)), "accepted");
}

TEST(LocalTrainer, RefusesRoundsThatDoNotFitTheOptimizer) {
  Case setup;
  setup.json.set("optimizer", Json::object({{"learningRate", 0.1}, {"momentum", 0.9}}));
  const auto trainer = setup.opened();
  EXPECT_THAT(error_of(*trainer, {.control = ControlVariates{}}).message(),
              HasSubstr("sgd without momentum"));
  EXPECT_EQ(error_of(*trainer, {.proximal = -1}).code(), Code::kInvalid);
  EXPECT_EQ(error_of(*trainer, {.epochs = 0}).code(), Code::kInvalid);
}

// --- kills

struct Kill {
  bool stopped = false;
  std::string result;
};

/// Trains, and stops at the read `at`, as SIGTERM does. With `write` false the checkpoint of the
/// stop is lost, as after a kill -9.
Kill train_until(Case& setup, const LocalRound& round, std::size_t at) {
  std::stop_source stop;
  setup.data->reads = 0;
  setup.data->on_read = [&](std::size_t call) {
    if (call == at) stop.request_stop();
  };
  auto trainer = setup.open();
  EXPECT_TRUE(trainer.ok()) << trainer.error();
  Silent observer;
  const auto out = (*trainer)->train(Context(stop.get_token()), round, observer);
  setup.data->on_read = nullptr;
  if (!out.ok()) {
    EXPECT_EQ(out.error().code(), Code::kCancelled) << out.error();
    return {true, ""};
  }
  return {false, bytes_of(out->delta) + bytes_of(out->control) + std::to_string(out->loss) + " " +
                     std::to_string(out->samples)};
}

void expect_equal_results_after_stops(Case& setup, LocalRound round) {
  const std::string undisturbed = train_until(setup, round, SIZE_MAX).result;
  ASSERT_FALSE(undisturbed.empty());
  round.checkpoint = "/checkpoint";
  round.checkpoint_every = std::chrono::milliseconds(0);
  int stops = 0;
  for (std::size_t at = 3; at < 60; ++at) {
    const Kill first = train_until(setup, round, at);
    stops += first.stopped ? 1 : 0;
    const Kill second = first.stopped ? train_until(setup, round, SIZE_MAX) : first;
    ASSERT_EQ(second.result, undisturbed) << "stopped at read " << at;
    ASSERT_TRUE(setup.fs.remove("/checkpoint").ok());
  }
  EXPECT_GT(stops, 3);
}

TEST(LocalTrainer, StoppedRoundContinuesWithTheSameBytes) {
  Case setup;
  setup.json.set("optimizer", Json::object({{"learningRate", 0.1}, {"momentum", 0.9}}));
  setup.json.set("accumulate", 2);
  expect_equal_results_after_stops(setup, {.epochs = 3, .seed = 8, .proximal = 0.1});
}

TEST(LocalTrainer, StoppedScaffoldRoundContinuesWithTheSameBytes) {
  Case setup;
  ControlVariates control;
  control.server.push_back({"w0", random_tensor({2, 8}, 0.2, 5)});
  expect_equal_results_after_stops(setup, {.epochs = 3, .seed = 8, .control = control});
}

TEST(LocalTrainer, StoppedPrivateRoundContinuesWithTheSameBytes) {
  Case setup;
  setup.privacy = PrivacyOptions{.clip_norm = 0.5, .noise = 1};
  expect_equal_results_after_stops(setup, {.epochs = 3, .seed = 8});
}

TEST(LocalTrainer, CheckpointOfAnotherRoundIsIgnored) {
  Case setup;
  const LocalRound other{.epochs = 3,
                         .seed = 8,
                         .checkpoint = "/checkpoint",
                         .checkpoint_every = std::chrono::milliseconds(0)};
  ASSERT_FALSE(train_until(setup, other, SIZE_MAX).stopped);
  const LocalRound plain{.epochs = 3, .seed = 9};
  const std::string undisturbed = train_until(setup, plain, SIZE_MAX).result;
  LocalRound round = other;
  round.seed = 9;
  EXPECT_EQ(train_until(setup, round, SIZE_MAX).result, undisturbed);
  ASSERT_TRUE(os::write_file_atomically(setup.fs, "/checkpoint", "garbage").ok());
  EXPECT_EQ(train_until(setup, round, SIZE_MAX).result, undisturbed);
}

}  // namespace local_test

}  // namespace
}  // namespace varda::training
