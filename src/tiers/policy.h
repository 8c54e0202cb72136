// Policy: decides which examples are hard, so that the next tier should answer them.
//
//   TRY(auto policy, make_policy("CrossEntropy", {{"threshold_cross_entropy", "0.8"}}));
//   // At load: an error if the model lacks the output.
//   TRY(const BoundPolicy bound, BoundPolicy::bind(policy, model.outputs(), labels));
//   if (const auto hard = bound.policy().before(rng)) …    // decided without a run
//   const Judgement judgement = bound.after(outputs);      // for all samples of an answer
//
// A sample with invalid values is counted, and is not hard: senseless values send nothing up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "tensor/tensor.h"
#include "tiers/policy_table.h"

namespace varda::tiers {

/// One sample of an answer, reduced to the policy's input.
struct Sample {
  std::span<const double> values;                  // one per class or box
  std::string_view label;                          // of the best class or box, or ""
  tensor::DType precision = tensor::DType::kFp64;  // original type of the values

  /// The number nearest to `threshold` in the sample's precision: a model's score 0.9 equals the
  /// threshold 0.9.
  double rounded(double threshold) const;
};

enum class Verdict : std::uint8_t { kEasy, kHard, kInvalid };

/// Immutable, thus thread-safe.
class Policy {
 public:
  virtual ~Policy() = default;

  const PolicyRow& row() const { return *row_; }
  /// The parameter `output`; "" if not set.
  const std::string& output() const { return output_; }

  /// Decides before inference, for a policy that needs no answer; empty: the policy needs an
  /// answer.
  virtual std::optional<bool> before(Rng& rng) const;
  /// Decides after inference; called only if before() returned empty.
  virtual Verdict after(const Sample& sample) const;

 protected:
  Policy(const PolicyRow& row, std::string output) : row_(&row), output_(std::move(output)) {}

 private:
  const PolicyRow* row_;
  std::string output_;
};

/// kInvalid: a finding of check_policy(), "parameters[1].value: must be …".
Result<std::shared_ptr<const Policy>> make_policy(std::string_view name,
                                                  std::span<const PolicyParameter> parameters);

/// Result for one answer.
struct Judgement {
  bool hard = false;  // true if any sample is hard
  std::uint32_t samples = 0;
  std::uint32_t samples_hard = 0;
  std::uint32_t samples_invalid = 0;
  friend bool operator==(const Judgement&, const Judgement&) = default;
};

/// A policy with the location of its input in an answer. Immutable.
class BoundPolicy {
 public:
  /// `outputs` is every output that the model can return by name. `labels` are the class names
  /// (empty: numbers). kInvalid: the model lacks the policy's input; the message lists the expected
  /// and the present outputs. Integers and outputs of an unsuitable shape do not qualify. A policy
  /// that decides before inference fits every model.
  static Result<BoundPolicy> bind(std::shared_ptr<const Policy> policy,
                                  std::span<const tensor::Spec> outputs,
                                  std::vector<std::string> labels = {});

  const Policy& policy() const { return *policy_; }
  const std::shared_ptr<const Policy>& shared_policy() const { return policy_; }
  /// Outputs that after() needs, in any order; further outputs are ignored.
  const std::vector<std::string>& reads() const { return reads_; }

  /// Counts an answer as one invalid sample if tensors are missing, or differ from the bound types
  /// and shapes.
  Judgement after(std::span<const tensor::Named> outputs) const;
  /// Called with each sample of an answer; `sample` is valid during the call.
  using Visit = std::function<void(std::size_t index, const Sample& sample, Verdict verdict)>;
  /// The same as after(), and shows each sample. Samples without values are not shown.
  Judgement each(std::span<const tensor::Named> outputs, const Visit& visit) const;

 private:
  // Arrangement of the samples in the tensor.
  enum class Layout : std::uint8_t {
    kRows,    // [N,n]: one sample per row, labels best first
    kEach,    // [N]: one label per sample
    kSingle,  // [n]: a single sample
    kFlat,    // [n]: the samples one after the other
    kBoxes,   // [N,n,5 or more], or without N: four coordinates, then the score
  };
  struct Place {
    std::string values;  // output with the values; "" if none is read
    std::string counts;  // output with the number of valid boxes per sample; "" if all are valid
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

/// For an answer with outputs that were not known in advance: binds to the present outputs and
/// judges them. An answer that does not fit is one invalid sample. `mismatch`, if not null, gets
/// the reason, or "" for an answer that fits.
Judgement judge(const std::shared_ptr<const Policy>& policy, std::span<const tensor::Named> outputs,
                std::string* mismatch = nullptr);

}  // namespace varda::tiers
