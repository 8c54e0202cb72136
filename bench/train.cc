// Time of a training step: forward, backward, and SGD with momentum, on random data.
//
// Networks have random weights, which changes no time. Opening a trainer includes the traced run
// and the load of the training graph.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "tensor/tensor.h"
#include "train/testing/model_builder.h"
#include "train/trainer.h"

namespace varda::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Integers = std::vector<std::int64_t>;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr std::int64_t kClasses = 10;

Tensor random(const Shape& shape, double range) {
  static const auto rng = seeded_rng(3);
  Tensor out = Tensor::allocate(DType::kFp32, shape).value();
  for (float& value : out.mutable_values<float>())
    value = static_cast<float>(range * (2 * rng->unit() - 1));
  return out;
}

/// A chain of layers; the output of each is the input of the next.
class Network {
 public:
  explicit Network(const Shape& sample) {
    Shape shape = {-1};
    shape.insert(shape.end(), sample.begin(), sample.end());
    builder_.input("x", DType::kFp32, shape);
  }
  const std::string& last() const { return last_; }
  /// Continues at an earlier tensor.
  std::string swap(std::string tensor) { return std::exchange(last_, std::move(tensor)); }

  void layer(const std::string& op, std::vector<std::pair<std::string, Tensor>> weights,
             std::vector<onnx::Attribute> attributes = {}) {
    const std::string number = std::to_string(layers_++);
    onnx::Node node{.op_type = op, .inputs = {last_}, .attributes = std::move(attributes)};
    for (auto& [name, value] : weights) {
      node.inputs.push_back(name + number);
      builder_.initializer(name + number, value);
    }
    last_ = op + number;
    node.outputs = {last_};
    builder_.node(std::move(node));
  }
  void convolve(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride,
                std::int64_t pad) {
    const double range = 1 / std::sqrt(static_cast<double>(from * kernel * kernel));
    layer("Conv", {{"w", random({to, from, kernel, kernel}, range)}},
          {{"strides", Integers{stride, stride}}, {"pads", Integers{pad, pad, pad, pad}}});
  }
  void normalize(std::int64_t channels) {
    layer("BatchNormalization", {{"scale", random({channels}, 1)},
                                 {"bias", random({channels}, 0)},
                                 {"mean", random({channels}, 0)},
                                 {"variance", random({channels}, 1)}});
  }
  void pool(std::int64_t kernel, std::int64_t pad) {
    layer("MaxPool", {},
          {{"kernel_shape", Integers{kernel, kernel}},
           {"strides", Integers{2, 2}},
           {"pads", Integers{pad, pad, pad, pad}}});
  }
  void dense(std::int64_t from, std::int64_t to) {
    layer("Gemm",
          {{"w", random({to, from}, 1 / std::sqrt(static_cast<double>(from)))},
           {"b", random({to}, 0)}},
          {{"transB", std::int64_t{1}}});
  }
  void add(const std::string& other) {
    const std::string out = "sum" + std::to_string(layers_++);
    builder_.node({.op_type = "Add", .inputs = {last_, other}, .outputs = {out}});
    last_ = out;
  }
  std::string file() { return builder_.output(last_).bytes(); }

 private:
  train::testing::ModelBuilder builder_;
  std::string last_ = "x";
  int layers_ = 0;
};

std::string mlp() {
  Network out({784});
  out.dense(784, 256);
  out.layer("Relu", {});
  out.dense(256, kClasses);
  return out.file();
}

std::string lenet() {
  Network out({1, 28, 28});
  out.convolve(1, 6, 5, 1, 2);
  out.layer("Relu", {});
  out.pool(2, 0);
  out.convolve(6, 16, 5, 1, 0);
  out.layer("Relu", {});
  out.pool(2, 0);
  out.layer("Flatten", {});
  out.dense(400, 120);
  out.layer("Relu", {});
  out.dense(120, 84);
  out.layer("Relu", {});
  out.dense(84, kClasses);
  return out.file();
}

std::string resnet18() {
  Network out({3, 64, 64});
  out.convolve(3, 64, 7, 2, 3);
  out.normalize(64);
  out.layer("Relu", {});
  out.pool(3, 1);
  std::int64_t from = 64;
  for (const std::int64_t to : {64, 64, 128, 128, 256, 256, 512, 512}) {
    const std::int64_t stride = from == to ? 1 : 2;
    const std::string input = out.last();
    out.convolve(from, to, 3, stride, 1);
    out.normalize(to);
    out.layer("Relu", {});
    out.convolve(to, to, 3, 1, 1);
    out.normalize(to);
    std::string shortcut = input;
    if (from != to) {
      const std::string main = out.swap(input);
      out.convolve(from, to, 1, stride, 0);
      out.normalize(to);
      shortcut = out.swap(main);
    }
    out.add(shortcut);
    out.layer("Relu", {});
    from = to;
  }
  out.layer("GlobalAveragePool", {});
  out.layer("Flatten", {});
  out.dense(512, kClasses);
  return out.file();
}

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

void measure(infer::Engine& engine, const char* name, std::string file, Shape input, int steps,
             unsigned threads) {
  const std::vector<tensor::Named> example = {{"x", random(input, 1)}};
  const auto begin = Clock::now();
  const auto trainer = train::Trainer::open(engine, std::move(file), example,
                                            {.optimizer = {.momentum = 0.9}, .threads = threads});
  if (!trainer.ok()) {
    std::fprintf(stderr, "%s: %s\n", name, trainer.error().message().c_str());
    return;
  }
  const double open = milliseconds(begin);
  Integers labels;
  for (std::int64_t i = 0; i < input[0]; ++i) labels.push_back(i % kClasses);
  const train::Batch batch = {example, train::one_hot(labels, kClasses).value(),
                              train::equal_weights(labels.size())};
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    if (const auto step = (*trainer)->step(batch, 1e-4); !step.ok()) {
      std::fprintf(stderr, "%s: %s\n", name, step.error().message().c_str());
      return;
    }
    times.push_back(milliseconds(start));
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  std::printf("| %s | %d | %u | %.2f | %.0f |\n", name, static_cast<int>(input[0]), threads,
              times[times.size() / 2], open);
  std::fflush(stdout);
}

int run() {
  infer::Engines engines({VARDA_ENGINES});
  const auto engine = engines.get("onnxruntime");
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.error().message().c_str());
    return 1;
  }
  std::printf(
      "| model | batch | threads | ms a step, median | ms to open |\n|---|---|---|---|---|\n");
  for (const unsigned threads : {1u, 2u}) {
    for (const std::int64_t batch : {8, 32})
      measure(**engine, "MLP 784-256-10", mlp(), {batch, 784}, 1000, threads);
    measure(**engine, "LeNet", lenet(), {32, 1, 28, 28}, 200, threads);
    measure(**engine, "ResNet-18 at 64x64", resnet18(), {32, 3, 64, 64}, 10, threads);
  }
  return 0;
}

}  // namespace
}  // namespace varda::bench

int main() { return varda::bench::run(); }
