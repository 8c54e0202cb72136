#include "train/optimizer.h"

#include <cmath>
#include <string>

#include "base/check.h"

namespace varda::train {
namespace {

using Kind = OptimizerOptions::Kind;

Status in_range(const char* name, double value, double low, double high) {
  if (value >= low && value < high) return {};  // false for NaN
  return Error(Code::kInvalid, std::string(name) + " is " + std::to_string(value) +
                                   "; it must be at least " + std::to_string(low) + " and below " +
                                   std::to_string(high));
}

}  // namespace

Result<Optimizer> Optimizer::create(const OptimizerOptions& options,
                                    std::span<const std::size_t> sizes) {
  TRY_VOID(in_range("learningRate", options.learning_rate, 0, 1e6));
  TRY_VOID(in_range("momentum", options.momentum, 0, 1));
  TRY_VOID(in_range("beta1", options.beta1, 0, 1));
  TRY_VOID(in_range("beta2", options.beta2, 0, 1));
  TRY_VOID(in_range("epsilon", options.epsilon, 1e-30, 1));
  TRY_VOID(in_range("weightDecay", options.weight_decay, 0, 1e6));
  if (options.nesterov && options.momentum == 0)
    return Error(Code::kInvalid, "nesterov needs a momentum above 0");
  Optimizer out(options);
  const std::size_t values = options.kind != Kind::kSgd ? 2 : options.momentum > 0 ? 1 : 0;
  for (const std::size_t size : sizes) out.state_.emplace_back(size * values);
  return out;
}

void Optimizer::begin_step(double learning_rate, double scale) {
  ++steps_;
  rate_ = learning_rate;
  scale_ = scale;
}

void Optimizer::update(std::size_t index, std::span<float> weight,
                       std::span<const float> gradient) {
  CHECK(weight.size() == gradient.size());
  std::vector<float>& state = state_.at(index);
  const auto rate = static_cast<float>(rate_), decay = static_cast<float>(options_.weight_decay);
  const auto scale = static_cast<float>(scale_);  // 1 changes no bit
  const std::size_t count = weight.size();
  float* const w = weight.data();
  const float* const g = gradient.data();
  if (options_.kind == Kind::kSgd) {
    const auto momentum = static_cast<float>(options_.momentum);
    if (momentum == 0) {
      for (std::size_t i = 0; i < count; ++i) w[i] -= rate * (scale * g[i] + decay * w[i]);
      return;
    }
    CHECK(state.size() == count);
    // With Nesterov's form the step is slope + momentum * speed, otherwise the speed alone.
    const float now = options_.nesterov ? 1.0f : 0.0f;
    const float later = options_.nesterov ? momentum : 1.0f;
    float* const speed = state.data();
    for (std::size_t i = 0; i < count; ++i) {
      const float slope = scale * g[i] + decay * w[i];
      speed[i] = momentum * speed[i] + slope;
      w[i] -= rate * (now * slope + later * speed[i]);
    }
    return;
  }
  CHECK(state.size() == 2 * count);
  float* const mean = state.data();
  float* const square = state.data() + count;
  const auto steps = static_cast<double>(steps_);
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto step = static_cast<float>(rate_ / (1 - std::pow(options_.beta1, steps)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, steps)));
  const auto epsilon = static_cast<float>(options_.epsilon);
  const bool decoupled = options_.kind == Kind::kAdamW;
  const float added = decoupled ? 0 : decay, kept = decoupled ? 1 - rate * decay : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = scale * g[i] + added * w[i];
    mean[i] = beta1 * mean[i] + (1 - beta1) * slope;
    square[i] = beta2 * square[i] + (1 - beta2) * slope * slope;
    w[i] = kept * w[i] - step * mean[i] / (std::sqrt(square[i]) * correction + epsilon);
  }
}

Status Optimizer::restore(std::uint64_t steps, std::vector<std::vector<float>> state) {
  bool fits = state.size() == state_.size();
  for (std::size_t i = 0; fits && i < state.size(); ++i) fits = state[i].size() == state_[i].size();
  if (!fits) return Error(Code::kInvalid, "the state belongs to another optimizer or model");
  steps_ = steps;
  state_ = std::move(state);
  return {};
}

double squared_norm(std::span<const float> values) {
  // Several sums allow vector instructions; a compiler must not reorder a single sum.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t j = 0; j < kSums; ++j)
      sums[j] += double{values[i + j]} * double{values[i + j]};
  for (; i < values.size(); ++i) sums[0] += double{values[i]} * double{values[i]};
  double out = 0;
  for (const double sum : sums) out += sum;
  return out;
}

void add_values(std::span<float> sum, std::span<const float> values) {
  CHECK(sum.size() == values.size());
  float* const out = sum.data();
  const float* const in = values.data();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] += in[i];
}

}  // namespace varda::train
