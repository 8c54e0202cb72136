// Trainings against forgetting, on the engine that serves: exact where numpy gives the result, and
// otherwise their effect.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "codec/json.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "os/testing/memory_file_system.h"
#include "train/testing/model_builder.h"
#include "training/comparison.h"
#include "training/run.h"

namespace varda::training {
namespace {

namespace continual_test {

using codec::Json;
using os::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

/// Points with two features, in memory.
class Cloud final : public samples::Dataset {
 public:
  explicit Cloud(std::size_t classes, std::string name = "cloud") : name_(std::move(name)) {
    for (std::size_t i = 0; i < classes; ++i) names_.push_back(std::to_string(i));
  }
  void add(float a, float b, std::int64_t label) {
    values_.insert(values_.end(), {a, b});
    labels_.push_back(label);
  }
  std::size_t size() const override { return labels_.size(); }
  const std::vector<std::string>& classes() const override { return names_; }
  std::size_t outputs() const override { return names_.size(); }
  std::vector<std::uint64_t> class_counts() const override {
    std::vector<std::uint64_t> out(names_.size());
    for (const std::int64_t label : labels_) ++out.at(static_cast<std::size_t>(label));
    return out;
  }
  std::string fingerprint() const override {
    std::string out = name_ + std::to_string(size());
    for (const std::int64_t label : labels_) out += std::to_string(label);
    return out;
  }
  std::string place(std::size_t index) const override {
    return name_ + ", row " + std::to_string(index);
  }
  Result<std::string> picture(std::size_t) const override { return std::string(); }
  Result<samples::Batch> read(std::span<const std::size_t> indices, const samples::Augment&,
                              std::uint64_t) const override {
    samples::Batch out;
    std::vector<float> rows;
    for (const std::size_t index : indices) {
      rows.insert(rows.end(), {values_.at(2 * index), values_.at(2 * index + 1)});
      out.labels.push_back(labels_.at(index));
      out.indices.push_back(index);
    }
    TRY(out.input, Tensor::of<float>(DType::kFp32, {static_cast<std::int64_t>(indices.size()), 2},
                                     std::span(std::as_const(rows))));
    return out;
  }

 private:
  std::string name_;
  std::vector<std::string> names_;
  std::vector<float> values_;
  std::vector<std::int64_t> labels_;
};

Tensor of(tensor::Shape shape, const std::vector<float>& values) {
  return Tensor::of<float>(DType::kFp32, std::move(shape), std::span(values)).value();
}

std::string linear(const std::vector<float>& weights, const std::vector<float>& bias,
                   const std::string& activation) {
  train::testing::ModelBuilder builder;
  const auto classes = static_cast<std::int64_t>(bias.size());
  builder.input("x", DType::kFp32, {-1, 2})
      .initializer("w", of({2, classes}, weights))
      .initializer("b", of({classes}, bias))
      .node({.op_type = "Gemm", .inputs = {"x", "w", "b"}, .outputs = {"scores"}});
  if (activation.empty()) return builder.output("scores").bytes();
  return builder.node({.op_type = activation, .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

/// A hidden layer with a head for four classes.
std::string hidden() {
  const auto rng = seeded_rng(5);
  const auto random = [&](tensor::Shape shape, double range) {
    Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
    for (float& one : out.mutable_values<float>())
      one = static_cast<float>(range * (2 * rng->unit() - 1));
    return out;
  };
  return train::testing::ModelBuilder()
      .input("x", DType::kFp32, {-1, 2})
      .initializer("w0", random({2, 24}, 1.5))
      .initializer("b0", random({24}, 0.5))
      .initializer("w1", random({24, 4}, 0.5))
      .initializer("b1", random({4}, 0.1))
      .node({.op_type = "Gemm", .inputs = {"x", "w0", "b0"}, .outputs = {"h0"}})
      .node({.op_type = "Relu", .inputs = {"h0"}, .outputs = {"h1"}})
      .node({.op_type = "Gemm", .inputs = {"h1", "w1", "b1"}, .outputs = {"scores"}})
      .node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

class Silent final : public Observer {
 public:
  void progress(const Progress&) override {}
  void epoch(const EpochRecord&) override {}
};

struct RunSetup {
  std::string model;
  std::shared_ptr<Cloud> data, old;
  Json settings = Json::object();
  MemoryFileSystem* fs = nullptr;
  std::stop_token stop = {};
};

Result<std::string> trained(const RunSetup& setup) {
  MemoryFileSystem own;
  MemoryFileSystem& fs = setup.fs != nullptr ? *setup.fs : own;
  Silent observer;
  Json json = setup.settings;
  json.set("threads", 1);
  TRY(const Settings settings, parse_settings(json));
  TRY(const Outcome outcome, run(Context(setup.stop), engine(), fs,
                                 {.model = setup.model,
                                  .train = setup.data,
                                  .old = setup.old,
                                  .hold_out = 0,
                                  .classes_min = 1,
                                  .settings = settings,
                                  .directory = "/out",
                                  .checkpoint_every = std::chrono::milliseconds(0)},
                                 observer));
  return os::read_file(fs, outcome.model);
}

std::vector<float> weights_of(const std::string& file, const std::string& name) {
  const auto model = onnx::parse(file);
  const Tensor value = model->graph.initializer(name)->value().value();
  const auto values = value.values<float>();
  return {values.begin(), values.end()};
}

std::vector<float> floats(const Json& list) {
  std::vector<float> out;
  for (const Json& one : list.as_array()) out.push_back(static_cast<float>(one.as_double()));
  return out;
}

TEST(Continual, DistillationTrainsAsNumpyDoesForEachFormOfTheOutput) {
  const Json all =
      codec::parse_json(
          os::read_file(os::real_file_system(), VARDA_TESTDATA "/continual.json").value())
          .value();
  const Json& one = all["training"];
  const auto x = floats(one["x"]);
  for (const std::string variant : {"plain", "lwf"})
    for (const std::string activation : {"", "Softmax", "LogSoftmax"}) {
      RunSetup setup{.model = linear(floats(one["weights"]), floats(one["bias"]), activation),
                     .data = std::make_shared<Cloud>(3),
                     .old = nullptr};
      for (std::size_t i = 0; i < one["y"].size(); ++i)
        setup.data->add(x[2 * i], x[2 * i + 1], one["y"].as_array()[i].as_integer());
      setup.settings = Json::object({{"epochs", one["epochs"]},
                                     {"batchSize", std::uint64_t{one["y"].size()}},
                                     {"optimizer", Json::object({{"learningRate", one["rate"]}})}});
      if (variant == "lwf")
        setup.settings.set(
            "continual",
            Json::object({{"lwf", Json::object({{"lambda", one["lambda"]},
                                                {"temperature", one["temperature"]}})}}));
      const auto file = trained(setup);
      ASSERT_TRUE(file.ok()) << file.error();
      const auto weights = weights_of(*file, "w"), bias = weights_of(*file, "b");
      const auto wanted = floats(one["expected"][variant]["weights"]);
      const auto wanted_bias = floats(one["expected"][variant]["bias"]);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(weights[i], wanted[i], 2e-5) << variant << " " << activation << " " << i;
      for (std::size_t i = 0; i < wanted_bias.size(); ++i)
        EXPECT_NEAR(bias[i], wanted_bias[i], 2e-5) << variant << " " << activation << " " << i;
    }
}

/// Four clusters; `classes` chooses which.
std::shared_ptr<Cloud> clusters(const std::string& name, const std::vector<int>& classes, int count,
                                std::uint64_t seed) {
  auto out = std::make_shared<Cloud>(4, name);
  const auto rng = seeded_rng(seed);
  for (int i = 0; i < count; ++i) {
    const int label = classes[static_cast<std::size_t>(i) % classes.size()];
    const double a = label % 2 == 0 ? -1 : 1, b = label / 2 == 0 ? -1 : 1;
    const auto noise = [&] { return 0.9 * (rng->unit() - 0.5); };
    out->add(static_cast<float>(a + noise()), static_cast<float>(b + noise()), label);
  }
  return out;
}

Json quick(int epochs, Json continual = {}) {
  Json out =
      Json::object({{"epochs", epochs},
                    {"batchSize", 8},
                    {"optimizer", Json::object({{"learningRate", 0.2}, {"momentum", 0.9}})}});
  if (!continual.is_null()) out.set("continual", std::move(continual));
  return out;
}

const std::string& base() {
  static const std::string file = trained({.model = hidden(),
                                           .data = clusters("first", {0, 1, 2}, 120, 1),
                                           .old = nullptr,
                                           .settings = quick(20)})
                                      .value();
  return file;
}

/// Right answers of the file among 100 samples of the classes.
std::uint64_t right(const std::string& file, const std::vector<int>& classes) {
  const auto out = compare(Context::background(), engine(),
                           {.base = file,
                            .candidate = file,
                            .slices = {{"all", clusters("test", classes, 100, 77)}},
                            .settings = parse_settings(Json::object({{"threads", 1}})).value()});
  EXPECT_TRUE(out.ok()) << out.error();
  return out->slices.at(0).candidate_right;
}

std::string next(Json continual, bool has_old = true) {
  const auto file = trained({.model = base(),
                             .data = clusters("second", {3, 3, 3, 0}, 40, 2),
                             .old = has_old ? clusters("old", {0, 1, 2}, 90, 3) : nullptr,
                             .settings = quick(10, std::move(continual))});
  EXPECT_TRUE(file.ok()) << file.error();
  return file.ok() ? *file : std::string();
}

TEST(Continual, EachMethodKeepsOldClassesThatAPlainTrainingForgets) {
  EXPECT_GE(right(base(), {0, 1, 2}), 97u);
  EXPECT_EQ(right(base(), {3}), 0u);
  const std::string plain = next({});
  EXPECT_LE(right(plain, {0, 1, 2}), 70u) << "the test needs a training that forgets";
  const struct {
    const char* settings;
    std::uint64_t old_min, new_min;
  } cases[] = {{R"({"replay": {"samples": 60}})", 95, 95}, {R"({"slda": {}})", 95, 95}};
  for (const auto& one : cases) {
    const std::string file = next(codec::parse_json(one.settings).value());
    EXPECT_GE(right(file, {0, 1, 2}), one.old_min) << one.settings;
    EXPECT_GE(right(file, {3}), one.new_min) << one.settings;
  }
  // These two know old samples only through the model or few numbers, so they forget something.
  for (const char* settings : {R"({"ewc": {"lambda": 1e7}})", R"({"lwf": {"lambda": 3}})"}) {
    const std::string file = next(codec::parse_json(settings).value());
    EXPECT_GE(right(file, {0, 1, 2}), right(plain, {0, 1, 2}) + 5) << settings;
  }
}

TEST(Continual, StoppedRunContinuesWithTheSameBytes) {
  for (const char* settings :
       {R"({"ewc": {"lambda": 50, "samples": 20}, "agem": {"samples": 30}, "lwf": {}})",
        R"({"replay": {"samples": 20, "perClass": 5}})", R"({"slda": {}})"}) {
    RunSetup setup{.model = base(),
                   .data = clusters("second", {3}, 24, 2),
                   .old = clusters("old", {0, 1, 2}, 60, 3),
                   .settings = quick(2, codec::parse_json(settings).value())};
    const auto whole = trained(setup);
    ASSERT_TRUE(whole.ok()) << whole.error();
    MemoryFileSystem fs;
    setup.fs = &fs;
    int processes = 0;
    Result<std::string> last = std::string();
    for (;; ++processes) {
      ASSERT_LT(processes, 40);
      std::stop_source stop;
      setup.stop = stop.get_token();
      fs.on_call([stop](std::string_view call, const os::Path& path) mutable -> Status {
        if (call == "write" && path.filename().string().starts_with("checkpoint"))
          stop.request_stop();
        return {};
      });
      last = trained(setup);
      if (last.ok()) break;
      ASSERT_EQ(last.error().code(), Code::kCancelled) << last.error();
    }
    EXPECT_EQ(*last, *whole) << settings;
    if (std::string(settings).find("slda") == std::string::npos) {
      EXPECT_GT(processes, 3);
    }
  }
}

TEST(Continual, ChangedDataTrainAgainAlsoWithReplayedSamples) {
  MemoryFileSystem fs;
  RunSetup setup{.model = base(),
                 .data = clusters("second", {3}, 24, 2),
                 .old = clusters("old", {0, 1, 2}, 60, 3),
                 .settings = quick(1, Json::object({{"replay", Json::object({{"samples", 20}})}})),
                 .fs = &fs};
  setup.data->add(1, 1, 3);
  const auto first = trained(setup);
  ASSERT_TRUE(first.ok()) << first.error();
  const auto metrics = codec::parse_json(os::read_file(fs, "/out/metrics.json").value());
  EXPECT_EQ((*metrics)["fingerprint"].as_string(), setup.data->fingerprint());
  EXPECT_EQ(trained(setup).value(), *first);
  // The same places, and another label.
  setup.data = clusters("second", {3}, 24, 2);
  setup.data->add(1, 1, 0);
  EXPECT_NE(trained(setup).value(), *first);
}

TEST(Continual, ElasticTermHoldsTheWeightsThatMatter) {
  const auto distance = [](const std::string& file) {
    double sum = 0;
    for (const char* name : {"w0", "b0", "w1", "b1"}) {
      const auto a = weights_of(base(), name), b = weights_of(file, name);
      for (std::size_t i = 0; i < a.size(); ++i)
        sum += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    }
    return sum;
  };
  const double loose = distance(next(codec::parse_json(R"({"ewc": {"lambda": 0.001}})").value()));
  const double firm = distance(next(codec::parse_json(R"({"ewc": {"lambda": 300}})").value()));
  EXPECT_LT(firm, loose);
  EXPECT_GT(firm, 0);
}

TEST(Continual, StreamingLayerWithoutOldSamplesOrStateIsRefused) {
  const auto out = trained({.model = base(),
                            .data = clusters("second", {3}, 24, 2),
                            .old = nullptr,
                            .settings = quick(2, codec::parse_json(R"({"slda": {}})").value())});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code(), Code::kInvalid);
  EXPECT_THAT(out.error().message(), HasSubstr("old data"));
}

TEST(Continual, StreamingLayerIgnoresAStateThatAnotherTrainingMadeStale) {
  const std::string learned = next(codec::parse_json(R"({"slda": {}})").value());
  const auto later = [&](const std::string& model) {
    return trained({.model = model,
                    .data = clusters("third", {3}, 16, 9),
                    .old = nullptr,
                    .settings = quick(2, codec::parse_json(R"({"slda": {}})").value())});
  };
  EXPECT_TRUE(later(learned).ok());
  // Wrong labels, because right ones have no gradient after this layer.
  auto wrong = std::make_shared<Cloud>(4, "wrong");
  for (int i = 0; i < 16; ++i) wrong->add(-1, -1, 3);
  const auto changed =
      trained({.model = learned, .data = wrong, .old = nullptr, .settings = quick(1)});
  ASSERT_TRUE(changed.ok()) << changed.error();
  EXPECT_FALSE(later(*changed).ok()) << "the layer is not that of the state";
}

TEST(Continual, SettingsReadBackAndExcludeEachOther) {
  const char* good = R"({"continual": {"replay": {"samples": 7, "perClass": 2}, "ewc": {},
                         "lwf": {"temperature": 3}, "agem": {"samples": 9}}})";
  const auto settings = parse_settings(codec::parse_json(good).value());
  ASSERT_TRUE(settings.ok()) << settings.error();
  EXPECT_EQ(settings->continual.replay->per_class, 2);
  EXPECT_EQ(settings->continual.ewc->samples, 200);
  EXPECT_EQ(settings->continual.lwf->temperature, 3);
  const auto again = parse_settings(to_json(*settings));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_TRUE(to_json(*again) == to_json(*settings));
  const struct {
    const char *text, *part;
  } bad[] = {{R"({"continual": {"replay": {"samples": 0}}})", "continual.replay.samples"},
             {R"({"continual": {"ewc": {"lambda": 0}}})", "continual.ewc.lambda"},
             {R"({"continual": {"lwf": {"temperature": 0.5}}})", "continual.lwf.temperature"},
             {R"({"continual": {"si": {}}})", "si"},
             {R"({"continual": {"slda": {}, "replay": {}}})", "continual.slda excludes"},
             {R"({"task": "regression", "continual": {"ewc": {}}})", "continual.ewc needs"},
             {R"({"head": {"classes": 3}, "continual": {"lwf": {}}})", "remove head"},
             {R"({"task": "multilabel", "continual": {"slda": {}}})", "continual.slda needs"}};
  for (const auto& one : bad) {
    const auto out = parse_settings(codec::parse_json(one.text).value());
    ASSERT_FALSE(out.ok()) << one.text;
    EXPECT_THAT(out.error().message(), HasSubstr(one.part)) << one.text;
  }
}

TEST(Comparison, CountsArePaired) {
  // The base answers class 0 left and class 1 right; the candidate does the opposite below.
  const std::string base_file = linear({-1, 1, 0, 0}, {0, 0}, "Softmax");
  const std::string candidate = linear({0, 0, 1, -1}, {0, 0}, "");
  auto data = std::make_shared<Cloud>(2);
  data->add(-1, 1, 0);   // both right
  data->add(-1, -1, 0);  // base
  data->add(-1, -1, 0);  // base
  data->add(1, 1, 0);    // candidate
  data->add(1, 1, 1);    // base
  data->add(-1, 1, 1);   // none
  const auto out = compare(Context::background(), engine(),
                           {.base = base_file,
                            .candidate = candidate,
                            .slices = {{"empty", nullptr}, {"all", data}},
                            .settings = parse_settings(Json::object({{"batchSize", 4}})).value()});
  ASSERT_TRUE(out.ok()) << out.error();
  ASSERT_EQ(out->slices.size(), 2u);
  EXPECT_EQ(out->slices[0].samples, 0u);
  const Slice& all = out->slices[1];
  EXPECT_EQ(all.samples, 6u);
  EXPECT_EQ(all.base_right, 4u);
  EXPECT_EQ(all.candidate_right, 2u);
  EXPECT_EQ(all.only_base, 3u);
  EXPECT_EQ(all.only_candidate, 1u);
  ASSERT_EQ(all.classes.size(), 2u);
  EXPECT_EQ(all.classes[0].samples, 4u);
  EXPECT_EQ(all.classes[0].base_right, 3u);
  EXPECT_EQ(all.classes[1].candidate_right, 0u);
  EXPECT_NEAR(out->base.at("accuracy"), 4.0 / 6, 1e-9);
  EXPECT_NEAR(out->candidate.at("accuracy"), 2.0 / 6, 1e-9);
}

}  // namespace continual_test

}  // namespace
}  // namespace varda::training
