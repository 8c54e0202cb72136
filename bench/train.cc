// Time of training steps: forward, backward, and SGD with momentum, on random data.
//
// varda_bench_train MODEL THREADS reads lines "BATCH SECONDS" and answers each with a line of three
// numbers: the median step in milliseconds, the peak memory of the process so far in MiB, and the
// milliseconds to open the trainer and run the first step. bench/train.py starts it. Networks have
// random weights, which changes no time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <sys/resource.h>
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
                std::int64_t pad, std::int64_t group = 1) {
    from /= group;
    const double range = 1 / std::sqrt(static_cast<double>(from * kernel * kernel));
    layer("Conv", {{"w", random({to, from, kernel, kernel}, range)}},
          {{"strides", Integers{stride, stride}},
           {"pads", Integers{pad, pad, pad, pad}},
           {"group", group}});
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
  /// The product with a matrix, plus a bias, for tensors of any rank.
  void project(std::int64_t from, std::int64_t to) {
    layer("MatMul", {{"w", random({from, to}, 1 / std::sqrt(static_cast<double>(from)))}});
    layer("Add", {{"b", random({to}, 0)}});
  }
  void add(const std::string& other) { combine("Add", {last_, other}); }
  void combine(const std::string& op, std::vector<std::string> inputs,
               std::vector<onnx::Attribute> attributes = {}) {
    last_ = op + std::to_string(layers_++);
    builder_.node({.op_type = op,
                   .inputs = std::move(inputs),
                   .outputs = {last_},
                   .attributes = std::move(attributes)});
  }
  std::string integers(const Integers& values) {
    const std::string name = "integers" + std::to_string(layers_++);
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    builder_.initializer(name, Tensor::of<std::int64_t>(DType::kInt64, shape, values).value());
    return name;
  }
  std::string number(float value) {
    const std::string name = "number" + std::to_string(layers_++);
    builder_.initializer(name, Tensor::of<float>(DType::kFp32, {}, {{value}}).value());
    return name;
  }
  std::string file() { return builder_.output(last_).bytes(20); }

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

std::string mobilenet() {
  Network out({3, 64, 64});
  const auto normalize = [&](std::int64_t channels) {
    out.normalize(channels);
    out.combine("Clip", {out.last(), out.number(0), out.number(6)});
  };
  out.convolve(3, 32, 3, 2, 1);
  normalize(32);
  struct Stage {
    std::int64_t expansion, channels, blocks, stride;
  };
  std::int64_t from = 32;
  for (const Stage& stage :
       {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
        Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      const std::int64_t stride = i == 0 ? stage.stride : 1, inner = from * stage.expansion;
      const std::string input = out.last();
      if (stage.expansion != 1) {
        out.convolve(from, inner, 1, 1, 0);
        normalize(inner);
      }
      out.convolve(inner, inner, 3, stride, 1, inner);
      normalize(inner);
      out.convolve(inner, stage.channels, 1, 1, 0);
      out.normalize(stage.channels);
      if (stride == 1 && from == stage.channels) out.add(input);
      from = stage.channels;
    }
  }
  out.convolve(from, 1280, 1, 1, 0);
  normalize(1280);
  out.layer("GlobalAveragePool", {});
  out.layer("Flatten", {});
  out.dense(1280, kClasses);
  return out.file();
}

// 64 tokens of width 128, 4 heads, 512 inner values, normalization first.
std::string transformer() {
  constexpr std::int64_t kTokens = 64, kWidth = 128, kHeads = 4, kInner = 512;
  Network out({kTokens, kWidth});
  const auto normalize = [&] {
    out.layer("LayerNormalization", {{"scale", random({kWidth}, 1)}, {"bias", random({kWidth}, 0)}},
              {{"axis", std::int64_t{-1}}});
  };
  const auto heads = [&](const std::string& normalized, const Integers& order) {
    out.swap(normalized);
    out.project(kWidth, kWidth);
    out.combine("Reshape", {out.last(), out.integers({-1, kTokens, kHeads, kWidth / kHeads})});
    out.layer("Transpose", {}, {{"perm", order}});
    return out.last();
  };
  const std::string input = out.last();
  normalize();
  const std::string normalized = out.last();
  const std::string queries = heads(normalized, {0, 2, 1, 3});
  const std::string keys = heads(normalized, {0, 2, 3, 1});
  const std::string values = heads(normalized, {0, 2, 1, 3});
  out.combine("MatMul", {queries, keys});
  out.combine("Div", {out.last(), out.number(std::sqrt(static_cast<float>(kWidth / kHeads)))});
  out.layer("Softmax", {});
  out.combine("MatMul", {out.last(), values});
  out.layer("Transpose", {}, {{"perm", Integers{0, 2, 1, 3}}});
  out.combine("Reshape", {out.last(), out.integers({-1, kTokens, kWidth})});
  out.project(kWidth, kWidth);
  out.add(input);
  const std::string middle = out.last();
  normalize();
  out.project(kWidth, kInner);
  out.layer("Gelu", {});
  out.project(kInner, kWidth);
  out.add(middle);
  out.combine("ReduceMean", {out.last(), out.integers({1})}, {{"keepdims", std::int64_t{0}}});
  out.dense(kWidth, kClasses);
  return out.file();
}

struct Model {
  std::string (*make)();
  Shape sample;
};
const std::map<std::string, Model> kModels = {{"mlp", {mlp, {784}}},
                                              {"lenet", {lenet, {1, 28, 28}}},
                                              {"mobilenet", {mobilenet, {3, 64, 64}}},
                                              {"resnet18", {resnet18, {3, 64, 64}}},
                                              {"transformer", {transformer, {64, 128}}}};

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

/// A trainer for one batch size.
struct Contender {
  std::unique_ptr<train::Trainer> trainer;
  train::Batch batch;
  double start = 0;  // milliseconds to open it and run the first step
};

Result<Contender> open(infer::Engine& engine, const Model& model, std::int64_t size,
                       unsigned threads) {
  Shape shape = model.sample;
  shape.insert(shape.begin(), size);
  Contender out;
  out.batch.inputs = {{"x", random(shape, 1)}};
  Integers labels;
  for (std::int64_t i = 0; i < size; ++i) labels.push_back(i % kClasses);
  TRY(out.batch.targets, train::one_hot(labels, kClasses));
  out.batch.sample_weights = train::equal_weights(labels.size());
  std::string file = model.make();
  const auto begin = Clock::now();
  TRY(out.trainer, train::Trainer::open(engine, std::move(file), out.batch.inputs,
                                        {.optimizer = {.momentum = 0.9}, .threads = threads}));
  TRY_VOID(out.trainer->step(out.batch, 1e-4));
  out.start = milliseconds(begin);
  return out;
}

Status run(const Model& model, unsigned threads) {
  infer::Engines engines({VARDA_ENGINES});
  TRY(const auto engine, engines.get("onnxruntime"));
  std::int64_t open_size = 0, size = 0;
  double seconds = 0;
  Contender contender;
  while (std::cin >> size >> seconds) {
    if (size != open_size) {
      contender = {};
      TRY(contender, open(*engine, model, size, threads));
      open_size = size;
    }
    std::vector<double> times;
    for (const auto begin = Clock::now();
         times.size() < 2 || milliseconds(begin) < seconds * 1000;) {
      const auto start = Clock::now();
      TRY_VOID(contender.trainer->step(contender.batch, 1e-4));
      times.push_back(milliseconds(start));
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    std::printf("%.4f %ld %.1f\n", *middle, usage.ru_maxrss / 1024, contender.start);
    std::fflush(stdout);
  }
  return {};
}

}  // namespace
}  // namespace varda::bench

int main(int argc, char** argv) {
  using namespace varda::bench;
  const auto model = argc == 3 ? kModels.find(argv[1]) : kModels.end();
  if (model == kModels.end()) {
    std::fprintf(stderr, "usage: varda_bench_train MODEL THREADS\n");
    return 2;
  }
  const auto done = run(model->second, static_cast<unsigned>(std::stoul(argv[2])));
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", argv[1], done.error().message().c_str());
  return 1;
}
