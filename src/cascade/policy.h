// Policy: which examples are hard, that is, better asked of the next tier.
//
//   TRY(auto policy, make_policy("CrossEntropy", {{"threshold_cross_entropy", "0.8"}}));
//   TRY(const BoundPolicy bound, BoundPolicy::bind(policy, model.outputs(), labels));     // at load: refused if the model lacks it
//   if (const auto hard = bound.policy().before(rng)) …                                    // decided without a run
//   const Judgement judgement = bound.after(outputs);                                      // of all samples of an answer
//
// What a policy cannot judge is not hard: nothing goes up because of values that make no sense. They are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "cascade/policy_table.h"
#include "tensor/tensor.h"

namespace varda::cascade {

/// One sample of an answer, as far as the policy's input goes.
struct Sample {
  std::span<const double> values;                  // of each class, or of each box
  std::string_view label;                          // of the best class or box; "" where there is none
  tensor::DType precision = tensor::DType::kFp64;  // of the values, before they became doubles

  /// The value of the sample's precision next to `threshold`, so that a score that a model gave as 0.9 equals the threshold 0.9.
  double rounded(double threshold) const;
};

enum class Verdict : std::uint8_t { kEasy, kHard, kInvalid };

/// Immutable: safe from several threads at once.
class Policy {
 public:
  virtual ~Policy() = default;

  const PolicyRow& row() const { return *row_; }
  /// The parameter `output`; "" if it was not given.
  const std::string& output() const { return output_; }

  /// Mining before inference: whether a request is hard, for a policy that needs no answer; nothing for one that does.
  virtual std::optional<bool> before(Rng& rng) const;
  /// Mining after inference. Only called if before() says nothing.
  virtual Verdict after(const Sample& sample) const;

 protected:
  Policy(const PolicyRow& row, std::string output) : row_(&row), output_(std::move(output)) {}

 private:
  const PolicyRow* row_;
  std::string output_;
};

/// kInvalid: what check_policy() finds, "parameters[1].value: must be …".
Result<std::shared_ptr<const Policy>> make_policy(std::string_view name, std::span<const PolicyParameter> parameters);

/// Of one answer.
struct Judgement {
  bool hard = false;  // of the whole: a sample is
  std::uint32_t samples = 0;
  std::uint32_t samples_hard = 0;
  std::uint32_t samples_invalid = 0;
  friend bool operator==(const Judgement&, const Judgement&) = default;
};

/// A policy and where in an answer its input stands. Immutable.
class BoundPolicy {
 public:
  /// `outputs` is all that can be asked of the model by name, `labels` the names of its classes (empty: numbers). kInvalid: the
  /// model does not put the policy's input out; the message says what is looked for, and what the model has. Integers, and outputs
  /// of a shape that cannot be it, are not taken. A policy that decides before inference fits every model.
  static Result<BoundPolicy> bind(std::shared_ptr<const Policy> policy, std::span<const tensor::Spec> outputs,
                                  std::vector<std::string> labels = {});

  const Policy& policy() const { return *policy_; }
  const std::shared_ptr<const Policy>& shared_policy() const { return policy_; }
  /// The outputs that after() must get, besides others and in any order.
  const std::vector<std::string>& reads() const { return reads_; }

  /// An answer whose tensors are missing, of other types or of other shapes than bound is one invalid sample.
  Judgement after(std::span<const tensor::Named> outputs) const;

 private:
  // How the samples lie in the tensor.
  enum class Layout : std::uint8_t {
    kRows,    // [N,n]: one a row, best first where it is labels
    kEach,    // [N]: a label each
    kSingle,  // [n]: one sample altogether
    kFlat,    // [n]: one after the other
    kBoxes,   // [N,n,5 or more], or without N: boxes with the score behind four coordinates
  };
  struct Place {
    std::string values;  // the output with the input; "" if none is read
    std::string counts;  // the output that says how many boxes of each sample are meant; "" if all are
    Layout layout = Layout::kRows;
  };
  struct Finder;
  class Reader;
  BoundPolicy() = default;

  std::shared_ptr<const Policy> policy_;
  std::vector<std::string> labels_;
  std::vector<std::string> reads_;
  Place place_;
};

/// For an answer of a tier whose outputs nobody knew before it: binds to what came, and judges it. What does not fit is one invalid
/// sample; why it does not is told in `misfit`, where given, which is "" for what fits.
Judgement judge(const std::shared_ptr<const Policy>& policy, std::span<const tensor::Named> outputs, std::string* misfit = nullptr);

}  // namespace varda::cascade
