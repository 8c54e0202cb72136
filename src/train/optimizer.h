// Optimizers: new weights from gradients, in plain C++ on the weights in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace varda::train {

struct OptimizerOptions {
  enum class Kind : std::uint8_t {
    kSgd,    // v = momentum * v + g; w -= rate * v, or rate * (g + momentum * v) with Nesterov
    kAdam,   // Kingma and Ba 2015, with bias correction; decay is added to the gradient
    kAdamW,  // Loshchilov and Hutter 2019: decay is subtracted from the weight
  };
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;
  double momentum = 0;  // SGD
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Adam, AdamW
  double weight_decay = 0;
};

/// State for a list of weights. All arithmetic is FP32 in a fixed order, so that equal inputs give
/// equal bytes. Not thread-safe.
class Optimizer {
 public:
  /// kInvalid: a value is out of range; the message names the option.
  static Result<Optimizer> create(const OptimizerOptions& options,
                                  std::span<const std::size_t> sizes);

  /// Begins step 1, 2, …; then update() follows for each weight. All gradients of the step are
  /// multiplied by `scale`.
  void begin_step(double learning_rate, double scale = 1);
  void update(std::size_t index, std::span<float> weight, std::span<const float> gradient);

  std::uint64_t steps() const { return steps_; }
  /// State of each weight, for checkpoints: none, one or two values an element.
  const std::vector<std::vector<float>>& state() const { return state_; }
  /// kInvalid: sizes differ from state()'s.
  Status restore(std::uint64_t steps, std::vector<std::vector<float>> state);

 private:
  explicit Optimizer(const OptimizerOptions& options) : options_(options) {}

  OptimizerOptions options_;
  double rate_ = 0, scale_ = 1;
  std::uint64_t steps_ = 0;
  std::vector<std::vector<float>> state_;
};

/// The sum of the squares, in a fixed order.
double squared_norm(std::span<const float> values);
/// sum += values
void add_values(std::span<float> sum, std::span<const float> values);

}  // namespace varda::train
