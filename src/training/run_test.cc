// Runs on small made-up data, on the engine that serves.
#include "training/run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "codec/digest.h"
#include "codec/image.h"
#include "codec/json.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "os/testing/memory_file_system.h"
#include "samples/testing/folder.h"
#include "tensor/tensor.h"
#include "train/testing/model_builder.h"
#include "training/internal/run_checkpoint.h"

// ONNX Runtime 1.30 leaks 14 bytes when it opens its first model.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libonnxruntime.so"; }
// The leak check of clang 14 crashes on the thread-local memory of OpenMP, which oneDNN brings.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }

namespace varda::training {
namespace {

namespace run_test {

using codec::Json;
using os::testing::MemoryFileSystem;
using samples::Task;
using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const os::Path kOut = "/out";

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

/// Points with two features, in memory.
class Points final : public samples::Dataset {
 public:
  Points() = default;
  Points(const Points& other)
      : samples::Dataset(other),
        values(other.values),
        labels(other.labels),
        targets(other.targets),
        names(other.names),
        width(other.width),
        name(other.name),
        digest(other.digest) {}

  std::vector<float> values;         // two a sample
  std::vector<std::int64_t> labels;  // classification
  std::vector<float> targets;        // otherwise
  std::vector<std::string> names = {"left", "right"};
  std::size_t width = 2;  // outputs
  std::string name = "points.csv", digest = "fingerprint-1";
  std::function<Status(std::size_t)> on_read;  // with the number of the call, from 0
  mutable std::atomic<std::size_t> reads = 0;  // on the thread of a loader

  std::size_t size() const override { return values.size() / 2; }
  const std::vector<std::string>& classes() const override { return names; }
  std::size_t outputs() const override { return width; }
  std::vector<std::uint64_t> class_counts() const override {
    std::vector<std::uint64_t> out(width);
    for (const std::int64_t label : labels) ++out.at(static_cast<std::size_t>(label));
    return out;
  }
  std::string fingerprint() const override { return digest; }
  std::string place(std::size_t index) const override {
    return name + ", line " + std::to_string(index + 2);
  }
  Result<std::string> picture(std::size_t index) const override {
    return "picture " + std::to_string(index);
  }
  Result<samples::Batch> read(std::span<const std::size_t> indices, const samples::Augment&,
                              std::uint64_t) const override {
    const std::size_t call = reads++;
    if (on_read) TRY_VOID(on_read(call));
    samples::Batch out;
    std::vector<float> rows;
    for (const std::size_t index : indices) {
      rows.insert(rows.end(), &values.at(2 * index), &values.at(2 * index) + 2);
      if (!labels.empty()) out.labels.push_back(labels[index]);
      for (std::size_t i = 0; i < width && !targets.empty(); ++i)
        out.targets.push_back(targets[index * width + i]);
      out.indices.push_back(index);
    }
    TRY(out.input, Tensor::of<float>(DType::kFp32, {static_cast<std::int64_t>(indices.size()), 2},
                                     std::span(rows)));
    return out;
  }
};

/// Two half circles, one inside the other.
std::shared_ptr<Points> moons(std::size_t count, std::uint64_t seed = 3) {
  auto out = std::make_shared<Points>();
  const auto rng = seeded_rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const bool upper = i % 2 == 0;
    const double angle = std::numbers::pi * rng->unit();
    const auto noise = [&] { return 0.2 * (rng->unit() - 0.5); };
    out->values.push_back(
        static_cast<float>((upper ? std::cos(angle) : 1 - std::cos(angle)) + noise()));
    out->values.push_back(
        static_cast<float>((upper ? std::sin(angle) : 0.5 - std::sin(angle)) + noise()));
    out->labels.push_back(upper ? 0 : 1);
  }
  return out;
}

/// 2 features, 16 hidden values, `outputs`.
std::string network(std::int64_t outputs = 2, const std::string& activation = "Softmax",
                    std::int64_t batch = -1) {
  const auto rng = seeded_rng(11);
  const auto random = [&](tensor::Shape shape, double range) {
    Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
    for (float& one : out.mutable_values<float>())
      one = static_cast<float>(range * (2 * rng->unit() - 1));
    return out;
  };
  return train::testing::ModelBuilder()
      .input("x", DType::kFp32, {batch, 2})
      .initializer("w0", random({2, 16}, 1.5))
      .initializer("b0", random({16}, 0.5))
      .initializer("w1", random({16, outputs}, 0.6))
      .initializer("b1", random({outputs}, 0.1))
      .node({.op_type = "Gemm", .inputs = {"x", "w0", "b0"}, .outputs = {"h0"}})
      .node({.op_type = "Relu", .inputs = {"h0"}, .outputs = {"h1"}})
      .node({.op_type = "Gemm", .inputs = {"h1", "w1", "b1"}, .outputs = {"scores"}})
      .node({.op_type = activation, .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

Settings settings(const Json& json) {
  auto out = parse_settings(json);
  EXPECT_TRUE(out.ok()) << out.error();
  return *out;
}

/// Few steps: 4 epochs with 5 batches of 8, 8, 8, 8 and 4 samples.
Json small() {
  return Json::object({{"epochs", 4},
                       {"batchSize", 8},
                       {"threads", 1},
                       {"optimizer", Json::object({{"learningRate", 0.2}, {"momentum", 0.9}})}});
}
Json small_with(std::string_view name, Json value) {
  Json out = small();
  out.set(name, std::move(value));
  return out;
}

class Recorder final : public Observer {
 public:
  std::vector<Progress> reports;
  std::vector<EpochRecord> epochs;
  void progress(const Progress& progress) override { reports.push_back(progress); }
  void epoch(const EpochRecord& record) override { epochs.push_back(record); }
};

/// A run with a directory of its own, unless `fs` is given.
struct Case {
  std::string model = network();
  std::shared_ptr<Points> data = moons(40);
  std::shared_ptr<Points> evaluation;
  Json json = small();
  double hold_out = 0.1;
  std::chrono::milliseconds checkpoint_every{0};
  MemoryFileSystem* fs = nullptr;
  std::stop_token stop;
  Recorder* recorder = nullptr;
};

Result<Outcome> start(const Case& setup) {
  MemoryFileSystem own;
  Recorder recorder;
  return run(Context(setup.stop), engine(), setup.fs != nullptr ? *setup.fs : own,
             {.model = setup.model,
              .train = setup.data,
              .evaluation = setup.evaluation,
              .hold_out = setup.hold_out,
              .settings = settings(setup.json),
              .directory = kOut,
              .checkpoint_every = setup.checkpoint_every},
             setup.recorder != nullptr ? *setup.recorder : recorder);
}

/// The bytes of the trained model of an undisturbed run.
std::string trained(Case setup) {
  MemoryFileSystem fs;
  setup.fs = &fs;
  const auto outcome = start(setup);
  EXPECT_TRUE(outcome.ok()) << outcome.error();
  if (!outcome.ok()) return "";
  return os::read_file(fs, outcome->model).value();
}

Error error_of(const Case& setup) {
  const auto outcome = start(setup);
  return outcome.ok() ? Error(Code::kInternal, "no error") : outcome.error();
}

// --- learning

TEST(Run, SmallNetworkLearnsTwoMoons) {
  Recorder recorder;
  Case setup{.data = moons(600), .hold_out = 0.25, .recorder = &recorder};
  setup.json = Json::object(
      {{"epochs", 60}, {"optimizer", Json::object({{"name", "adam"}, {"learningRate", 0.01}})}});
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_GT(outcome->metrics.at("accuracy"), 0.95);
  EXPECT_GT(outcome->metrics.at("auc"), 0.98);
  EXPECT_LT(outcome->metrics.at("loss"), 0.2);
  EXPECT_EQ(outcome->samples, 450u);
  EXPECT_THAT(outcome->classes, ElementsAre("left", "right"));
  EXPECT_EQ(outcome->fingerprint, "fingerprint-1");
  ASSERT_EQ(outcome->confusion.size(), 2u);
  EXPECT_EQ(outcome->confusion[0][0] + outcome->confusion[0][1], 75u) << "held out by class";
  ASSERT_EQ(outcome->history.size(), 60u);
  EXPECT_EQ(outcome->history.back().metrics, outcome->metrics);
  EXPECT_GT(outcome->history.front().loss, 2 * outcome->history.back().loss);
  ASSERT_EQ(recorder.epochs.size(), 60u);
  EXPECT_EQ(recorder.epochs.back().epoch, 60);
  EXPECT_FALSE(outcome->stopped_early);
}

TEST(Run, EqualSeedsGiveEqualBytes) {
  Case setup;
  const std::string first = trained(setup);
  EXPECT_EQ(trained(setup), first);
  setup.json.set("seed", 2);
  EXPECT_NE(trained(setup), first);
}

/// A run with a frozen first layer.
Case frozen(std::int64_t cache) {
  Case setup;
  setup.json = small_with("freeze", Json::array({"w0", "b0"}));
  setup.json.set("featureCache", cache);
  return setup;
}

TEST(Run, FrozenLayersAreComputedOnceAndGiveEqualBytes) {
  const auto with = [](Case setup, std::string_view name, Json value) {
    setup.json.set(name, std::move(value));
    return setup;
  };
  const auto evaluated = [](Case setup) {
    setup.evaluation = moons(11);
    return setup;
  };
  const auto all = [&](std::int64_t cache) {
    return std::vector<Case>{
        frozen(cache), with(frozen(cache), "accumulate", 2), evaluated(frozen(cache)),
        with(frozen(cache), "earlyStopping", Json::object({{"metric", "loss"}, {"patience", 1}})),
        with(frozen(cache), "classWeights", "balanced")};
  };
  const std::vector<Case> cached = all(16), plain = all(0);
  for (std::size_t i = 0; i < cached.size(); ++i) {
    Recorder with_cache, without;
    Case a = cached[i], b = plain[i];
    a.recorder = &with_cache;
    b.recorder = &without;
    EXPECT_EQ(trained(a), trained(b)) << i;
    ASSERT_EQ(with_cache.epochs.size(), without.epochs.size());
    for (std::size_t epoch = 0; epoch < with_cache.epochs.size(); ++epoch) {
      EXPECT_EQ(with_cache.epochs[epoch].loss, without.epochs[epoch].loss);
      EXPECT_EQ(with_cache.epochs[epoch].metrics, without.epochs[epoch].metrics);
    }
    EXPECT_LT(a.data->reads, b.data->reads) << i;
  }
}

TEST(Run, CheckpointOfARunWithoutTheCacheContinuesWithIt) {
  const std::string whole = trained(frozen(0));
  for (const auto& [first, second] : {std::pair(0, 16), std::pair(16, 0)}) {
    MemoryFileSystem fs;
    std::stop_source stop;
    Case killed = frozen(first);
    killed.fs = &fs;
    killed.stop = stop.get_token();
    Recorder recorder;
    killed.recorder = &recorder;
    const std::size_t last = first == 0 ? 14 : 8;
    killed.data->on_read = [&stop, last](std::size_t call) {
      if (call == last) stop.request_stop();
      return Status();
    };
    EXPECT_EQ(error_of(killed).code(), Code::kCancelled);
    Case next = frozen(second);
    next.fs = &fs;
    EXPECT_EQ(trained(next), whole);
  }
}

TEST(Run, RandomChangesOfSamplesAndSmallMemoryKeepTheFeaturesInTheModel) {
  Case plain = frozen(0), augmented = frozen(16), unfrozen;
  (void)trained(plain);
  const std::size_t reads = plain.data->reads;
  augmented.json.set("augment", Json::object({{"flip", true}}));
  (void)trained(augmented);
  EXPECT_EQ(augmented.data->reads, reads);
  (void)trained(unfrozen);
  EXPECT_EQ(unfrozen.data->reads, reads);
}

TEST(Run, NumbersAreLearnedByMseAndHuber) {
  for (const char* loss : {"mse", "huber"}) {
    Case setup{.model = network(1, "Identity"), .data = moons(200)};
    setup.data->labels.clear();
    setup.data->names = {};
    setup.data->width = 1;
    for (std::size_t i = 0; i < 200; ++i)
      setup.data->targets.push_back(setup.data->values[2 * i] - 2 * setup.data->values[2 * i + 1]);
    setup.json = Json::object({{"task", "regression"},
                               {"loss", loss},
                               {"epochs", 40},
                               {"threads", 1},
                               {"batchSize", 16}});
    const auto outcome = start(setup);
    ASSERT_TRUE(outcome.ok()) << outcome.error();
    EXPECT_LT(outcome->metrics.at("rmse"), 0.15) << loss;
    EXPECT_LT(outcome->metrics.at("mae"), 0.15) << loss;
    EXPECT_TRUE(outcome->confusion.empty());
    EXPECT_EQ(outcome->worst.size(), 12u);
    EXPECT_TRUE(std::isfinite(std::stod(outcome->worst[0].expected)));
  }
}

TEST(Run, LabelsAreLearned) {
  Case setup{.model = network(2, "Sigmoid"), .data = moons(200)};
  setup.data->labels.clear();
  for (std::size_t i = 0; i < 200; ++i)
    for (int axis = 0; axis < 2; ++axis)
      setup.data->targets.push_back(setup.data->values[2 * i + axis] > 0.3f ? 1 : 0);
  setup.json = Json::object({{"task", "multilabel"}, {"epochs", 40}, {"threads", 1}});
  setup.json.set("optimizer", Json::object({{"name", "adam"}, {"learningRate", 0.05}}));
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_GT(outcome->metrics.at("accuracy"), 0.85);
  EXPECT_GT(outcome->metrics.at("f1"), 0.9);
  EXPECT_THAT(outcome->worst[0].expected, ::testing::AnyOf("none", "left", "right", "left, right"));
}

TEST(Run, TwoClassesAreLearnedByOneOutput) {
  Case setup{.model = network(1, "Sigmoid"), .data = moons(300)};
  setup.json = Json::object({{"loss", "binaryCrossEntropy"}, {"epochs", 40}, {"threads", 1}});
  setup.json.set("optimizer", Json::object({{"name", "adam"}, {"learningRate", 0.02}}));
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_GT(outcome->metrics.at("accuracy"), 0.9);
}

TEST(Run, HeadForTheClassesOfTheDataIsTrained) {
  Case setup{.model = network(7), .data = moons(300)};
  EXPECT_EQ(error_of(setup).message(),
            "the model has 7 outputs for a sample, the training data have 2 classes (left, right); "
            "set head: {classes: 2}, or give the model's labels");
  setup.json = Json::object({{"head", Json::object({{"classes", 2}})}, {"epochs", 30}});
  setup.json.set("optimizer", Json::object({{"name", "adam"}, {"learningRate", 0.02}}));
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_GT(outcome->metrics.at("accuracy"), 0.9);
  setup.json.set("head", Json::object({{"classes", 3}}));
  EXPECT_EQ(error_of(setup).message(),
            "head.classes is 3; the training data have 2 classes (left, right)");
}

TEST(Run, BalancedWeightsRaiseTheRareClass) {
  // The classes overlap, and a quarter has the second one.
  Case setup{.data = moons(400)};
  const auto rng = seeded_rng(5);
  for (std::size_t i = 0; i < 400; ++i) {
    setup.data->labels[i] = i % 4 == 0 ? 1 : 0;
    for (int axis = 0; axis < 2; ++axis)
      setup.data->values[2 * i + axis] = static_cast<float>(rng->unit() + (i % 4 == 0 ? 0.5 : 0));
  }
  const auto recall = [&](const char* weights) {
    setup.json = Json::object({{"epochs", 20}, {"threads", 1}, {"classWeights", weights}});
    setup.hold_out = 0.3;
    return start(setup).value().metrics.at("recall");
  };
  EXPECT_GT(recall("balanced"), recall("none") + 0.1);
}

TEST(Run, EvaluationDataAreUsedInsteadOfHeldOutSamples) {
  Case setup;
  setup.evaluation = moons(30, 9);
  setup.evaluation->name = "test.csv";
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->samples, 40u);
  EXPECT_EQ(outcome->confusion[0][0] + outcome->confusion[0][1], 15u);
  EXPECT_THAT(outcome->worst[0].place, StartsWith("test.csv, line "));
  setup.evaluation->names = {"left", "up"};
  EXPECT_EQ(error_of(setup).message(),
            "the evaluation data have other classes (left, up) than the training data (left, "
            "right)");
}

TEST(Run, WithoutEvaluationThereAreNoMetrics) {
  Case setup{.hold_out = 0};
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->samples, 40u);
  EXPECT_TRUE(outcome->metrics.empty());
  EXPECT_FALSE(outcome->history.front().evaluation_loss);
  setup.json.set("earlyStopping", Json::object());
  EXPECT_EQ(error_of(setup).message(), "earlyStopping needs an evaluation; set holdOut above 0");
}

TEST(Run, WorstSamplesHaveThePlaceAndThePicture) {
  Case setup{.data = moons(200), .hold_out = 0.5};
  setup.data->labels[7] = 0;  // a wrong label, in the evaluation or not
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  ASSERT_EQ(outcome->worst.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    const Worst& one = outcome->worst[i];
    EXPECT_EQ(one.place, "points.csv, line " + std::to_string(one.index + 2));
    EXPECT_EQ(one.picture, "picture " + std::to_string(one.index));
    EXPECT_EQ(one.expected,
              setup.data->names[static_cast<std::size_t>(setup.data->labels[one.index])]);
    if (i > 0) {
      EXPECT_LE(one.loss, outcome->worst[i - 1].loss);
    }
  }
}

TEST(Run, AccumulatedBatchesGiveAboutTheUpdatesOfLargeBatches) {
  Case large, parts;
  large.json.set("batchSize", 16);
  parts.json.set("accumulate", 2);
  EXPECT_EQ(start(large).value().history.size(), 4u);
  const auto whole = start(large).value(), sum = start(parts).value();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(whole.history[i].loss, sum.history[i].loss, 1e-4);
    EXPECT_NEAR(*whole.history[i].evaluation_loss, *sum.history[i].evaluation_loss, 1e-4);
  }
}

TEST(Run, EarlyStoppingKeepsTheBestEpoch) {
  Case setup{.data = moons(100), .hold_out = 0.4};
  setup.json = small_with("epochs", 60);
  setup.json.set("optimizer", Json::object({{"learningRate", 0.7}}));
  setup.json.set("earlyStopping", Json::object({{"metric", "loss"}, {"patience", 2}}));
  MemoryFileSystem fs;
  setup.fs = &fs;
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_TRUE(outcome->stopped_early);
  ASSERT_LT(outcome->history.size(), 60u);
  ASSERT_GT(outcome->history.size(), 2u);
  const EpochRecord& best = outcome->history[outcome->history.size() - 3];
  for (const EpochRecord& record : outcome->history)
    EXPECT_GE(*record.evaluation_loss, *best.evaluation_loss);
  EXPECT_EQ(outcome->metrics, best.metrics);
  // A run of so many epochs ends with the same weights.
  Case shorter{.data = setup.data, .json = setup.json, .hold_out = 0.4};
  shorter.json.erase("earlyStopping");
  shorter.json.set("epochs", best.epoch);
  EXPECT_EQ(os::read_file(fs, outcome->model).value(), trained(shorter));
}

// --- restarts

/// Requests the stop when the run begins to write checkpoint `number`, counted from 1.
void stop_at_checkpoint(MemoryFileSystem& fs, std::stop_source& stop, int number) {
  const auto left = std::make_shared<int>(number);
  fs.on_call([&stop, left](std::string_view call, const os::Path& path) -> Status {
    if (call == "write" && path.filename().string().starts_with("checkpoint") && --*left == 0)
      stop.request_stop();
    return {};
  });
}

TEST(RunCheckpoint, RunStoppedAfterEveryUpdateGivesEqualBytes) {
  for (const std::string variant : {"plain", "accumulate", "stopping"}) {
    Case setup;
    if (variant == "accumulate") setup.json.set("accumulate", 2);
    if (variant == "stopping")
      setup.json.set("earlyStopping", Json::object({{"metric", "loss"}, {"patience", 1}}));
    const std::string whole = trained(setup);
    MemoryFileSystem fs;
    setup.fs = &fs;
    int processes = 1;
    for (;; ++processes) {
      std::stop_source stop;
      setup.stop = stop.get_token();
      stop_at_checkpoint(fs, stop, 1);
      const auto outcome = start(setup);
      if (outcome.ok()) break;
      ASSERT_EQ(outcome.error().code(), Code::kCancelled) << outcome.error();
      ASSERT_LT(processes, 50);
    }
    EXPECT_EQ(os::read_file(fs, kOut / "model.onnx").value(), whole) << variant;
    // Each update and each evaluation but the last ends a process.
    EXPECT_EQ(processes, variant == "plain" ? 24 : variant == "accumulate" ? 16 : processes);
  }
}

/// Two classes of noisy images in files, some of another size than the model's input.
std::shared_ptr<const samples::Dataset> image_files(samples::testing::Folder& folder) {
  const auto rng = seeded_rng(5);
  for (std::size_t i = 0; i < 20; ++i) {
    const std::size_t size = 4 + i % 3;
    codec::Image image{size, size, 1, {}};
    while (image.pixels.size() < size * size)
      image.pixels.push_back(static_cast<std::uint8_t>(100 * (i % 2) + rng->below(150)));
    folder.put((i % 2 == 0 ? "dark/" : "light/") + std::to_string(10 + i) + ".png",
               codec::encode_png(image).value());
  }
  samples::Options options = samples::testing::options({-1, 1, 4, 4});
  options.preprocess.image = transform::ImageStep{};
  options.preprocess.image->channels = transform::Channels::kGrey;
  options.preprocess.image->scale = 1 / 255.0;
  return folder.open("", options).value();
}

std::string image_network() {
  const auto rng = seeded_rng(12);
  Tensor weights = Tensor::allocate(DType::kFp32, {16, 2}).value();
  for (float& one : weights.mutable_values<float>()) one = static_cast<float>(rng->unit() - 0.5);
  return train::testing::ModelBuilder()
      .input("x", DType::kFp32, {-1, 1, 4, 4})
      .initializer("w", weights)
      .node({.op_type = "Flatten", .inputs = {"x"}, .outputs = {"flat"}})
      .node({.op_type = "MatMul", .inputs = {"flat", "w"}, .outputs = {"scores"}})
      .node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

TEST(RunCheckpoint, RunOfChangedImagesStoppedAfterEveryUpdateGivesEqualBytes) {
  samples::testing::Folder folder;
  const auto data = image_files(folder);
  Json json = small_with("augment", Json::object({{"flip", true}, {"crop", 1}, {"jitter", 0.2}}));
  json.set("epochs", 2);
  const auto train = [&](MemoryFileSystem& fs, std::stop_token stop) {
    Recorder recorder;
    return run(Context(std::move(stop)), engine(), fs,
               {.model = image_network(),
                .train = data,
                .hold_out = 0.2,
                .settings = settings(json),
                .directory = kOut,
                .checkpoint_every = std::chrono::milliseconds(0)},
               recorder);
  };
  MemoryFileSystem undisturbed;
  ASSERT_TRUE(train(undisturbed, {}).ok());
  MemoryFileSystem fs;
  int processes = 1;
  for (;; ++processes) {
    std::stop_source stop;
    stop_at_checkpoint(fs, stop, 1);
    const auto outcome = train(fs, stop.get_token());
    if (outcome.ok()) break;
    ASSERT_EQ(outcome.error().code(), Code::kCancelled) << outcome.error();
    ASSERT_LT(processes, 10);
  }
  EXPECT_EQ(processes, 6);  // two updates and an evaluation in each epoch
  const os::Path model = kOut / "model.onnx";
  EXPECT_EQ(os::read_file(fs, model).value(), os::read_file(undisturbed, model).value());
}

TEST(RunCheckpoint, StoppedRunWritesACheckpointAtOnce) {
  MemoryFileSystem fs;
  std::stop_source stop;
  Case setup{.checkpoint_every = std::chrono::hours(1), .fs = &fs, .stop = stop.get_token()};
  setup.data->on_read = [&](std::size_t call) {
    if (call == 7) stop.request_stop();
    return Status();
  };
  EXPECT_EQ(error_of(setup).code(), Code::kCancelled);
  EXPECT_THAT(fs.list(kOut).value(), ElementsAre("checkpoint"));
}

TEST(RunCheckpoint, RunKilledBeforeAnyCallOfTheDiskGivesEqualBytes) {
  Case setup;
  setup.json.set("epochs", 2);
  const std::string whole = trained(setup);
  std::uint64_t calls = 0;
  {
    MemoryFileSystem fs;
    setup.fs = &fs;
    ASSERT_TRUE(start(setup).ok());
    calls = fs.calls();
  }
  ASSERT_GT(calls, 50u);
  for (std::uint64_t kill = 0; kill < calls; ++kill) {
    MemoryFileSystem fs;
    setup.fs = &fs;
    std::stop_source stop;
    setup.stop = stop.get_token();
    std::uint64_t call = 0;
    fs.on_call([&](std::string_view, const os::Path&) -> Status {
      if (call++ < kill) return {};
      stop.request_stop();  // ends the process soon; nothing reaches the disk
      return Error(Code::kInternal, "killed");
    });
    EXPECT_FALSE(start(setup).ok());
    fs.on_call(nullptr);
    setup.stop = {};
    const auto outcome = start(setup);
    ASSERT_TRUE(outcome.ok()) << kill << ": " << outcome.error();
    EXPECT_EQ(os::read_file(fs, outcome->model).value(), whole) << kill;
    EXPECT_THAT(fs.list(kOut).value(), ElementsAre("metrics.json", "model.onnx"));
  }
}

/// The checkpoint after eight batches.
std::string checkpoint_of(Case setup) {
  MemoryFileSystem fs;
  setup.fs = &fs;
  std::stop_source stop;
  setup.stop = stop.get_token();
  stop_at_checkpoint(fs, stop, 9);  // one of them follows the first epoch
  EXPECT_EQ(start(setup).error().code(), Code::kCancelled);
  return os::read_file(fs, kOut / "checkpoint").value();
}

/// Puts a checkpoint in place, and counts the reads of a run to the end.
std::size_t reads_from(const Case& setup, const std::string& checkpoint, std::string& model) {
  MemoryFileSystem fs;
  Case copy = setup;
  copy.fs = &fs;
  copy.data = std::make_shared<Points>(*setup.data);
  EXPECT_TRUE(fs.make_directories(kOut, 0755).ok());
  if (!checkpoint.empty()) {
    EXPECT_TRUE(os::write_file_atomically(fs, kOut / "checkpoint", checkpoint).ok());
  }
  const auto outcome = start(copy);
  EXPECT_TRUE(outcome.ok()) << outcome.error();
  model = os::read_file(fs, kOut / "model.onnx").value();
  return copy.data->reads;
}

TEST(RunCheckpoint, DamagedCheckpointMeansANewRun) {
  const Case setup;
  const std::string checkpoint = checkpoint_of(setup);
  std::string whole, model;
  const std::size_t all = reads_from(setup, "", whole);
  EXPECT_LT(reads_from(setup, checkpoint, model), all) << "the run continues";
  EXPECT_EQ(model, whole);
  for (std::size_t at = 0; at < checkpoint.size(); at += 397) {
    std::string damaged = checkpoint;
    damaged[at] ^= 4;
    EXPECT_EQ(reads_from(setup, damaged, model), all) << at;
    EXPECT_EQ(model, whole);
    if (at % 3 != 0) continue;
    EXPECT_EQ(reads_from(setup, checkpoint.substr(0, at) + "x", model), all) << at;
    EXPECT_EQ(model, whole);
  }
}

TEST(RunCheckpoint, CheckpointOfAnotherRunIsIgnored) {
  const std::string checkpoint = checkpoint_of({});
  const auto continues = [&](const Case& setup) {
    std::string model, whole;
    const std::size_t all = reads_from(setup, "", whole);
    const std::size_t reads = reads_from(setup, checkpoint, model);
    EXPECT_EQ(model, whole);
    return reads < all;
  };
  EXPECT_TRUE(continues({}));
  EXPECT_TRUE(continues({.json = small_with("threads", 2)}));
  EXPECT_FALSE(continues({.json = small_with("seed", 2)}));
  EXPECT_FALSE(continues({.json = small_with("epochs", 5)}));
  EXPECT_FALSE(continues({.model = network(2, "LogSoftmax")}));
  EXPECT_FALSE(continues({.hold_out = 0.2}));
  Case other;
  other.data->digest = "fingerprint-2";
  EXPECT_FALSE(continues(other));
  // The same file, read in another way: another preprocessing, or another order of classes.
  Case scaled;
  for (float& value : scaled.data->values) value *= 2;
  EXPECT_FALSE(continues(scaled));
  Case renamed;
  renamed.data->names = {"right", "left"};
  EXPECT_FALSE(continues(renamed));
}

TEST(RunCheckpoint, HistoryOfAllProcessesIsReported) {
  Case setup;
  const std::string checkpoint = checkpoint_of(setup);
  MemoryFileSystem fs;
  Recorder recorder;
  setup.fs = &fs;
  setup.recorder = &recorder;
  ASSERT_TRUE(fs.make_directories(kOut, 0755).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, kOut / "checkpoint", checkpoint).ok());
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  const auto whole = start(Case()).value();
  ASSERT_EQ(outcome->history.size(), 4u);
  ASSERT_EQ(recorder.epochs.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(recorder.epochs[i].epoch, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(outcome->history[i].loss, whole.history[i].loss);
    EXPECT_EQ(outcome->history[i].metrics, whole.history[i].metrics);
  }
  EXPECT_EQ(outcome->confusion, whole.confusion);
}

TEST(RunCheckpoint, FinishedRunIsNotRepeated) {
  MemoryFileSystem fs;
  Recorder recorder;
  Case setup{.fs = &fs, .recorder = &recorder};
  const auto first = start(setup);
  ASSERT_TRUE(first.ok()) << first.error();
  const std::string model = os::read_file(fs, first->model).value();
  const auto reads = [&] {
    setup.data->reads = 0;
    recorder.epochs.clear();
    const auto again = start(setup);
    EXPECT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(again->metrics, first->metrics);
    EXPECT_EQ(recorder.epochs.size(), 4u);
    return setup.data->reads.load();
  };
  ASSERT_TRUE(os::write_file_atomically(fs, kOut / "checkpoint", "of a killed process").ok());
  EXPECT_EQ(reads(), 1u) << "some samples have a part in the identity";
  EXPECT_THAT(fs.list(kOut).value(), ElementsAre("metrics.json", "model.onnx"));
  const auto again = start(setup);
  EXPECT_EQ(to_json(*again), to_json(*first));
  EXPECT_EQ(again->worst[0].picture, first->worst[0].picture);
  EXPECT_EQ(again->model, first->model);

  ASSERT_TRUE(os::write_file_atomically(fs, first->model, model + "x").ok());
  EXPECT_GT(reads(), 20u) << "the model is damaged";
  EXPECT_EQ(os::read_file(fs, first->model).value(), model);
  ASSERT_TRUE(os::write_file_atomically(fs, kOut / "metrics.json", "{").ok());
  EXPECT_GT(reads(), 20u);
  setup.json.set("seed", 2);
  EXPECT_TRUE(start(setup).ok());
  EXPECT_NE(os::read_file(fs, first->model).value(), model);
}

TEST(RunCheckpoint, DiskWithoutSpaceForACheckpointDoesNotEndTheRun) {
  MemoryFileSystem fs;
  Case setup{.fs = &fs};
  fs.on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (call == "write" && path.filename().string().starts_with("checkpoint"))
      return Error(Code::kExhausted, "disk full");
    return {};
  });
  const auto outcome = start(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  fs.on_call([&](std::string_view call, const os::Path&) -> Status {
    return call == "write" ? Status(Error(Code::kExhausted, "disk full")) : Status();
  });
  setup.json.set("seed", 2);
  EXPECT_EQ(error_of(setup).code(), Code::kExhausted) << "the model needs space";
}

TEST(RunCheckpoint, BytesReadBack) {
  RunCheckpoint one{.identity = "abc",
                    .epoch = 2,
                    .batch = 7,
                    .loss_sum = 0.1 + 0.2,
                    .samples = 56,
                    .learning_rate = 1e-3,
                    .epoch_seconds = 1.5,
                    .seconds = 9.25,
                    .stopped = true,
                    .best_epoch = 1,
                    .best_value = 1.0 / 3,
                    .trainer = std::string("a\0b", 3),
                    .best_model = "model"};
  one.history.push_back({1, 0.7, 0.6, {{"accuracy", 0.5}}, 0.01, 3});
  one.evaluation = Evaluation{{{"loss", 0.3}}, {{1, 2}, {3, 4}}, {}};
  one.evaluation->worst.push_back({5, "a.csv, line 7", "x", "y", 2.5, ""});
  const auto read = RunCheckpoint::decode(one.encode());
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->encode(), one.encode());
  EXPECT_EQ(read->loss_sum, one.loss_sum);
  EXPECT_EQ(read->trainer, one.trainer);
  EXPECT_EQ(read->best_model, "model");
}

// --- reports and errors

TEST(Run, FilesAndReportsAreComplete) {
  MemoryFileSystem fs;
  Recorder recorder;
  Case setup{.fs = &fs, .recorder = &recorder};
  const auto begin = system_clock().now();
  const auto outcome = start(setup);
  const auto seconds = std::chrono::duration<double>(system_clock().now() - begin).count();
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->model, kOut / "model.onnx");
  EXPECT_THAT(fs.list(kOut).value(), ElementsAre("metrics.json", "model.onnx"));
  const Json metrics = codec::parse_json(os::read_file(fs, kOut / "metrics.json").value()).value();
  for (const auto& [name, value] : to_json(*outcome).as_object()) EXPECT_EQ(metrics[name], value);
  EXPECT_EQ(metrics["sha256"].as_string(),
            codec::Sha256::of(os::read_file(fs, outcome->model).value()).hex());
  EXPECT_EQ(metrics.at("metrics/accuracy").as_double(), outcome->metrics.at("accuracy"));
  ASSERT_FALSE(recorder.reports.empty());
  EXPECT_LE(static_cast<double>(recorder.reports.size()), 1 + 5 * seconds);
  EXPECT_EQ(recorder.reports[0].phase, "Training");
  EXPECT_EQ(recorder.reports[0].epoch, 1);
  EXPECT_EQ(recorder.reports[0].epochs, 4);
  EXPECT_EQ(recorder.reports[0].step, 1u);
  EXPECT_EQ(recorder.reports[0].steps, 20u);
  EXPECT_GT(recorder.reports[0].loss, 0);
  EXPECT_GT(recorder.reports[0].remaining_seconds, 0);
  EXPECT_GT(recorder.reports[0].samples_per_second, 0);
}

TEST(Run, ValueThatIsNotFiniteIsReportedWithTheSample) {
  Case setup{.hold_out = 0};
  setup.data->values[2 * 13] = std::nanf("");
  EXPECT_THAT(error_of(setup).message(),
              AllOf(StartsWith("epoch 1, step "),
                    HasSubstr(" of 5: a value that is not finite is in points.csv, line 15")));
}

TEST(Run, ExplodingLossIsReportedWithTheRate) {
  Case setup{.model = network(1, "Identity")};
  setup.data->labels.clear();
  setup.data->names = {};
  setup.data->width = 1;
  setup.data->targets.assign(40, 1000);
  setup.json = small_with("task", "regression");
  setup.json.set("optimizer", Json::object({{"learningRate", 100}}));
  EXPECT_THAT(
      error_of(setup).message(),
      AllOf(StartsWith("epoch 1, step "),
            HasSubstr(", optimizer.learningRate 100.0, clipNorm 0.0, samples points.csv, line "),
            HasSubstr(" and 4 more: the loss is "),
            HasSubstr("; lower the learning rate, clip the gradients, or check the data")));
}

TEST(Run, DataThatDoNotFitAreRefused) {
  Case one_class;
  one_class.data->labels.assign(40, 1);
  EXPECT_EQ(error_of(one_class).message(),
            "all training data have the class \"right\"; classification needs samples of two "
            "classes or more");
  Case empty{.data = std::make_shared<Points>()};
  EXPECT_EQ(error_of(empty).message(), "the training data have no samples");
  Case share{.hold_out = 1};
  EXPECT_EQ(error_of(share).message(), "holdOut must be a number at least 0 and below 1, not 1.0");
  Case pair{.data = moons(2)};
  EXPECT_EQ(error_of(pair).message(),
            "the training data have too few samples to hold some out for the evaluation; add "
            "samples, or set holdOut: 0");
  Case fixed{.model = network(2, "Softmax", 16)};
  EXPECT_EQ(error_of(fixed).message(), "the model takes batches of 16 samples; set batchSize: 16");
  fixed.json.set("batchSize", 16);
  EXPECT_TRUE(start(fixed).ok());
  Case auc{.json = small_with("earlyStopping", Json::object({{"metric", "auc"}}))};
  auc.evaluation = moons(10);
  auc.evaluation->labels.assign(10, 1);
  EXPECT_EQ(error_of(auc).message(),
            "earlyStopping.metric auc is not defined for these evaluation data; they need samples "
            "of each class");
  Case label;
  label.data->on_read = [&](std::size_t call) {
    if (call == 2) label.data->labels.assign(40, 1000);
    return Status();
  };
  EXPECT_THAT(error_of(label).message(),
              HasSubstr("has the class 1000; the model has the classes 0 to 1"));
}

TEST(Run, LabelOutOfRangeInTheEvaluationIsRefused) {
  Case setup;
  setup.evaluation = moons(10);
  setup.evaluation->name = "test.csv";
  setup.evaluation->on_read = [&](std::size_t call) {
    if (call == 1) setup.evaluation->labels.assign(10, -1);
    return Status();
  };
  EXPECT_EQ(error_of(setup).message(),
            "epoch 1: test.csv, line 2 has the class -1; the model has the classes 0 to 1");
}

TEST(Run, ErrorsOfTheDataEndTheRun) {
  Case setup;
  setup.data->on_read = [](std::size_t call) {
    return call == 4 ? Status(Error(Code::kCorrupt, "points.csv, line 5: no number")) : Status();
  };
  EXPECT_EQ(error_of(setup), Error(Code::kCorrupt, "points.csv, line 5: no number"));
}

}  // namespace run_test
}  // namespace
}  // namespace varda::training
