#include "tiers/policy.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "tiers/scores.h"

namespace varda::tiers {
namespace {

using tensor::DType;

/// False for NaN.
bool all_within_0_and_1(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return value >= 0 && value <= 1; });
}

/// Rounds `value` to `bits` bits of mantissa, ties to even, in the range of FP16 or BF16, which
/// includes [0,1].
double to_bits(double value, int bits, int exponent_min) {
  if (value <= 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int shift = bits - std::max(exponent, exponent_min);
  return std::ldexp(std::nearbyint(std::ldexp(value, shift)), -shift);
}

/// Distance between adjacent numbers of a precision, at `value`; 0 for doubles.
double step(DType precision, double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  switch (precision) {
    case DType::kFp32:
      return std::ldexp(1, std::max(exponent, -125) - 24);
    case DType::kFp16:
      return std::ldexp(1, std::max(exponent, -13) - 11);
    case DType::kBf16:
      return std::ldexp(1, std::max(exponent, -125) - 8);
    default:
      return 0;
  }
}

Verdict verdict(bool hard) { return hard ? Verdict::kHard : Verdict::kEasy; }

/// Parameters of a policy that passed check_policy().
class Arguments {
 public:
  Arguments(const PolicyRow& row, std::span<const PolicyParameter> parameters)
      : row_(row), parameters_(parameters) {}

  std::string text(std::string_view key) const {
    for (const PolicyParameter& parameter : parameters_) {
      if (parameter.key == key) return parameter.value;
    }
    return std::string(known(key).initial.value_or(""));
  }
  double number(std::string_view key) const {
    return parse_number(text(key), known(key).min, known(key).max).value();
  }
  std::vector<std::string> list(std::string_view key) const {
    return parse_text_list(text(key)).value();
  }

  const PolicyRow& row() const { return row_; }
  std::string output() const {
    return find_parameter(row_, "output") == nullptr ? "" : text("output");
  }

 private:
  const ParameterRow& known(std::string_view key) const {
    const ParameterRow* found = find_parameter(row_, key);
    CHECK(found != nullptr);
    return *found;
  }
  const PolicyRow& row_;
  std::span<const PolicyParameter> parameters_;
};

class Threshold final : public Policy {
 public:
  explicit Threshold(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()), threshold_(arguments.number("threshold")) {}

  Verdict after(const Sample& sample) const override {
    if (sample.values.empty()) return Verdict::kEasy;
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    double sum = 0;
    for (const double score : sample.values) sum += score;
    return verdict(sum / static_cast<double>(sample.values.size()) < sample.rounded(threshold_));
  }

 private:
  const double threshold_;
};

class CrossEntropy final : public Policy {
 public:
  explicit CrossEntropy(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_(arguments.number("threshold_cross_entropy")) {}

  Verdict after(const Sample& sample) const override {
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    if (sample.values.size() < 2)
      return Verdict::kEasy;  // ln 1 is 0: a single class leaves no doubt
    double sum = 0;
    for (const double p : sample.values) {
      if (p > 0) sum += p * std::log(p);
    }
    return verdict(1 + sum / std::log(static_cast<double>(sample.values.size())) < threshold_);
  }

 private:
  const double threshold_;
};

class Ibt final : public Policy {
 public:
  explicit Ibt(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_img_(arguments.number("threshold_img")),
        threshold_box_(arguments.number("threshold_box")) {}

  // "At least 1 - threshold_img uncertain" equals "at most threshold_img certain". The second form
  // avoids a rounded difference. Example: 3 of 10 boxes are hard at 0.7, though 1 - 0.7 slightly
  // exceeds 0.3.
  Verdict after(const Sample& sample) const override {
    if (sample.values.empty()) return Verdict::kEasy;
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    const double threshold = sample.rounded(threshold_box_);
    const auto sure = std::count_if(sample.values.begin(), sample.values.end(),
                                    [&](double score) { return score > threshold; });
    return verdict(static_cast<double>(sure) / static_cast<double>(sample.values.size()) <=
                   threshold_img_);
  }

 private:
  const double threshold_img_;
  const double threshold_box_;
};

class Random final : public Policy {
 public:
  explicit Random(const Arguments& arguments)
      : Policy(arguments.row(), ""), ratio_(arguments.number("random_ratio")) {}
  std::optional<bool> before(Rng& rng) const override { return rng.unit() < ratio_; }

 private:
  const double ratio_;
};

class Constant final : public Policy {
 public:
  Constant(const Arguments& arguments, Verdict verdict)
      : Policy(arguments.row(), ""), hard_(verdict == Verdict::kHard) {}
  std::optional<bool> before(Rng& /*rng*/) const override { return hard_; }

 private:
  const bool hard_;
};

class Margin final : public Policy {
 public:
  explicit Margin(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_(arguments.number("threshold_margin")) {}

  Verdict after(const Sample& sample) const override {
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    if (sample.values.size() < 2) return Verdict::kEasy;
    double first = -1;
    double second = -1;
    for (const double p : sample.values) {
      second = std::max(second, std::min(first, p));
      first = std::max(first, p);
    }
    // Compares sums, since a difference has a larger rounding error: 0.7 leads 0.2 by 0.5, though
    // 0.7 - 0.2 is a little less in doubles. In the model's precision each value may be off by half
    // a step, in opposite directions.
    const double rounding = (step(sample.precision, first) + step(sample.precision, second)) / 2;
    return verdict(first + rounding < second + threshold_);
  }

 private:
  const double threshold_;
};

class LeastConfidence final : public Policy {
 public:
  explicit LeastConfidence(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_(arguments.number("threshold_confidence")) {}

  Verdict after(const Sample& sample) const override {
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    if (sample.values.size() < 2) return Verdict::kEasy;
    return verdict(*std::max_element(sample.values.begin(), sample.values.end()) <
                   sample.rounded(threshold_));
  }

 private:
  const double threshold_;
};

class Entropy final : public Policy {
 public:
  explicit Entropy(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_(arguments.number("threshold_entropy")) {}

  Verdict after(const Sample& sample) const override {
    if (!all_within_0_and_1(sample.values)) return Verdict::kInvalid;
    if (sample.values.size() < 2) return Verdict::kEasy;
    return verdict(class_scores(sample.values).entropy > threshold_);
  }

 private:
  const double threshold_;
};

class Energy final : public Policy {
 public:
  explicit Energy(const Arguments& arguments)
      : Policy(arguments.row(), arguments.output()),
        threshold_(arguments.number("threshold_energy")),
        temperature_(arguments.number("temperature")) {}

  // Logits have any value. NaN and infinities make the sum senseless.
  Verdict after(const Sample& sample) const override {
    const double energy = negative_energy(sample.values, temperature_);
    if (!std::isfinite(energy)) return Verdict::kInvalid;
    return verdict(sample.values.size() > 1 && energy < threshold_);
  }

 private:
  const double threshold_;
  const double temperature_;
};

class Labels final : public Policy {
 public:
  explicit Labels(const Arguments& arguments) : Policy(arguments.row(), arguments.output()) {
    for (std::string& label : arguments.list("labels")) hard_.insert(std::move(label));
  }

  // Any numbers have a best one: they need not be probabilities.
  Verdict after(const Sample& sample) const override {
    if (std::any_of(sample.values.begin(), sample.values.end(),
                    [](double value) { return std::isnan(value); }))
      return Verdict::kInvalid;
    return verdict(hard_.contains(sample.label));
  }

 private:
  std::set<std::string, std::less<>> hard_;
};

std::shared_ptr<const Policy> make(const Arguments& arguments) {
  const std::string_view name = arguments.row().name;
  if (name == "Threshold") return std::make_shared<Threshold>(arguments);
  if (name == "CrossEntropy") return std::make_shared<CrossEntropy>(arguments);
  if (name == "IBT") return std::make_shared<Ibt>(arguments);
  if (name == "Random") return std::make_shared<Random>(arguments);
  if (name == "AlwaysCloud") return std::make_shared<Constant>(arguments, Verdict::kHard);
  if (name == "NeverCloud") return std::make_shared<Constant>(arguments, Verdict::kEasy);
  if (name == "Margin") return std::make_shared<Margin>(arguments);
  if (name == "LeastConfidence") return std::make_shared<LeastConfidence>(arguments);
  if (name == "Entropy") return std::make_shared<Entropy>(arguments);
  if (name == "Energy") return std::make_shared<Energy>(arguments);
  if (name == "Labels") return std::make_shared<Labels>(arguments);
  return nullptr;
}

}  // namespace

double Sample::rounded(double threshold) const {
  switch (precision) {
    case DType::kFp32:
      return static_cast<float>(threshold);
    case DType::kFp16:
      return to_bits(threshold, 11, -13);
    case DType::kBf16:
      return to_bits(threshold, 8, -125);
    default:
      return threshold;
  }
}

std::optional<bool> Policy::before(Rng& /*rng*/) const { return std::nullopt; }

Verdict Policy::after(const Sample& /*sample*/) const { return Verdict::kEasy; }

Result<std::shared_ptr<const Policy>> make_policy(std::string_view name,
                                                  std::span<const PolicyParameter> parameters) {
  const auto faults = check_policy(name, parameters);
  if (!faults.empty())
    return Error(Code::kInvalid, faults.front().where + ": " + faults.front().what);
  std::shared_ptr<const Policy> policy = make(Arguments(*find_policy(name), parameters));
  CHECK(policy != nullptr);  // a row of the table without a class
  return policy;
}

}  // namespace varda::tiers
