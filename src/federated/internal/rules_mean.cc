// Rules with a step that is a sum of the updates, with one factor for each client.
#include <algorithm>
#include <cmath>

#include "federated/internal/bounds.h"
#include "federated/internal/kernels.h"
#include "federated/internal/rule_base.h"
#include "privacy/mechanism.h"

namespace varda::federated {
namespace {

using codec::kAboveLow;
using codec::kBelowHigh;
using codec::SettingsReader;

constexpr codec::Choice<Weighting> kWeightings[] = {{"samples", Weighting::kSamples},
                                                    {"uniform", Weighting::kUniform}};

/// Members that all rules of this file have.
struct MeanSettings {
  double learning_rate = 1;
  Weighting weighting = Weighting::kSamples;

  void read(SettingsReader& in) {
    in.number("learningRate", learning_rate, {0, 1e6, kAboveLow});
    in.choice("weighting", weighting, kWeightings);
  }
};

class MeanRule : public RuleBase {
 public:
  MeanRule(std::string name, LayoutPointer layout, MeanSettings settings)
      : RuleBase(std::move(name), std::move(layout)), settings_(settings) {}
  bool weighs_samples() const override { return settings_.weighting == Weighting::kSamples; }

 protected:
  /// The factor of each update.
  virtual std::vector<double> factors(const RoundUpdates& round) const {
    return normalized_weights(round, settings_.weighting);
  }
  /// Changes the sum of a block into the step of the server.
  virtual void server_step(std::size_t /*first*/, std::span<double> /*sum*/) {}
  /// Called after the model.
  virtual Status after(const RoundUpdates& /*round*/, std::span<const double> /*factors*/) {
    return {};
  }

  Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                           Applied& applied) override {
    const std::vector<double> weights =
        round.privacy ? private_factors(round, applied) : factors(round);
    std::vector<Term> terms;
    for (std::size_t i = 0; i < weights.size(); ++i)
      terms.push_back({round.contributions[i].update, weights[i]});
    TRY(const double squares,
        fold(round.ctx, terms, global.size(), round.threads, UpdateSource::kDelta,
             [&](std::size_t first, std::span<double> sum) {
               if (const auto& mean = round.privacy)
                 privacy::add_noise(mean->seed, mean->deviation, first, sum);
               server_step(first, sum);
               return kernels::add_step(global.data() + first, sum.data(), settings_.learning_rate,
                                        sum.size());
             }));
    TRY_VOID(after(round, weights));
    add_shares(round, weights, applied);
    return squares;
  }

  const MeanSettings settings_;

 private:
  static std::vector<double> private_factors(const RoundUpdates& round, Applied& applied) {
    const PrivateMean& mean = *round.privacy;
    std::vector<double> out;
    for (const Contribution& c : round.contributions) {
      out.push_back(privacy::clip_factor(c.update->norm(), mean.clip) /
                    static_cast<double>(mean.clients));
      if (c.update->norm() <= mean.clip) ++applied.whole;
    }
    return out;
  }
};

/// The mean alone.
class AverageRule final : public MeanRule {
 public:
  using MeanRule::MeanRule;
  bool supports_privacy() const override { return true; }
};

/// FedAvg (McMahan et al. 2017), FedProx (Li et al. 2020): the proximal term is the client's.
std::unique_ptr<Rule> make_fedavg(SettingsReader& in, const std::string& name,
                                  LayoutPointer layout) {
  MeanSettings settings;
  settings.read(in);
  if (name == "FedProx") {
    double proximal = 0;
    in.number("proximal", proximal, {0, 1e6});
  }
  return std::make_unique<AverageRule>(name, std::move(layout), settings);
}

/// FedAvgM (Hsu et al. 2019): v = momentum * v + mean; model += learningRate * v.
/// FedBuff (Nguyen et al. 2022): the mean divides by the number of updates, not by the sum of their
/// staleness weights.
class MomentumRule final : public MeanRule {
 public:
  MomentumRule(std::string name, LayoutPointer layout, MeanSettings settings, double momentum)
      : MeanRule(std::move(name), std::move(layout), settings),
        momentum_(momentum),
        is_buffered_(this->name() == "FedBuff"),
        velocity_(momentum > 0 ? this->layout().size() : 0) {}
  bool supports_privacy() const override { return !is_buffered_; }

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    MeanSettings settings;
    double momentum = 0.9;
    if (name == "FedBuff") {
      settings.weighting = Weighting::kUniform;
      momentum = 0;
    }
    settings.read(in);
    in.number("momentum", momentum, {0, 1, kBelowHigh});
    return std::make_unique<MomentumRule>(name, std::move(layout), settings, momentum);
  }

 private:
  std::vector<double> factors(const RoundUpdates& round) const override {
    if (!is_buffered_) return MeanRule::factors(round);
    std::vector<double> out;
    double sum = 0;
    for (std::size_t i = 0; i < round.contributions.size(); ++i) {
      out.push_back(settings_.weighting == Weighting::kSamples ? round.samples[i] : 1);
      sum += out.back();
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = out[i] / sum * round.contributions[i].scale;
    return out;
  }
  void server_step(std::size_t first, std::span<double> sum) override {
    if (velocity_.empty()) return;
    kernels::momentum_step(velocity_.data() + first, sum.data(), momentum_, 1, sum.size());
  }
  std::vector<std::pair<std::string, std::vector<float>*>> buffers() override {
    if (momentum_ == 0) return {};
    return {{"momentum", &velocity_}};
  }

  const double momentum_;
  const bool is_buffered_;
  std::vector<float> velocity_;
};

/// FedAdagrad, FedAdam, FedYogi (Reddi et al. 2021, algorithm 2), without bias correction. The
/// second moment begins at tau².
class AdaptiveRule final : public MeanRule {
 public:
  AdaptiveRule(std::string name, LayoutPointer layout, MeanSettings settings,
               kernels::Adaptive constants)
      : MeanRule(std::move(name), std::move(layout), settings),
        constants_(constants),
        first_(this->layout().size()),
        second_(this->layout().size(), static_cast<float>(constants.tau * constants.tau)) {}
  bool supports_privacy() const override { return true; }

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    MeanSettings settings;
    settings.learning_rate = 0.01;
    settings.read(in);
    kernels::Adaptive constants;
    constants.tau = 1e-3;
    constants.beta1 = name == "FedAdagrad" ? 0 : 0.9;
    in.number("beta1", constants.beta1, {0, 1, kBelowHigh});
    in.number("tau", constants.tau, {0, 1e6, kAboveLow});
    double beta2 = 0.99;
    if (name != "FedAdagrad") in.number("beta2", beta2, {0, 1, kBelowHigh});
    constants.keep = name == "FedAdagrad" ? 1 : beta2;
    constants.add = name == "FedAdagrad" ? 1 : 1 - beta2;
    constants.yogi = name == "FedYogi";
    return std::make_unique<AdaptiveRule>(name, std::move(layout), settings, constants);
  }

 private:
  void server_step(std::size_t first, std::span<double> sum) override {
    kernels::adaptive_step(first_.data() + first, second_.data() + first, sum.data(), constants_,
                           sum.size());
  }
  std::vector<std::pair<std::string, std::vector<float>*>> buffers() override {
    return {{"first", &first_}, {"second", &second_}};
  }

  const kernels::Adaptive constants_;
  std::vector<float> first_, second_;
};

/// SCAFFOLD (Karimireddy et al. 2020, algorithm 1): model += learningRate * mean of the updates;
/// control += updates/clients * mean of the changes of control variates.
class ScaffoldRule final : public MeanRule {
 public:
  ScaffoldRule(std::string name, LayoutPointer layout, MeanSettings settings, std::int64_t clients)
      : MeanRule(std::move(name), std::move(layout), settings),
        clients_(static_cast<double>(clients)),
        control_(this->layout().size()) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    MeanSettings settings;
    settings.weighting = Weighting::kUniform;
    settings.read(in);
    std::int64_t clients = 0;
    in.integer("clients", clients, 0, 1'000'000'000);
    return std::make_unique<ScaffoldRule>(name, std::move(layout), settings, clients);
  }
  bool needs_control() const override { return true; }
  std::span<const float> control() const override { return control_; }

 private:
  Status after(const RoundUpdates& round, std::span<const double> factors) override {
    // Each client moved its control variate by all of its change, so that neither samples nor
    // staleness count here.
    std::vector<Term> terms;
    for (const Contribution& contribution : round.contributions)
      terms.push_back({contribution.update, 1 / static_cast<double>(factors.size())});
    // More updates than clients: clients that joined since the job began.
    const auto updates = static_cast<double>(terms.size());
    const double share = clients_ > updates ? updates / clients_ : 1;
    TRY(const double squares,
        fold(round.ctx, terms, control_.size(), round.threads, UpdateSource::kControl,
             [&](std::size_t first, std::span<double> sum) {
               return kernels::add_step(control_.data() + first, sum.data(), share, sum.size());
             }));
    if (!std::isfinite(squares))
      return Error(Code::kInternal, "the next control variates are not finite");
    return {};
  }
  std::vector<std::pair<std::string, std::vector<float>*>> buffers() override {
    return {{"control", &control_}};
  }

  const double clients_;  // 0: all of them are in each round
  std::vector<float> control_;
};

/// q-FedAvg (Li et al. 2020, algorithm 2), with L = 1/clientLearningRate and our update u = -Δw/L:
/// model += Σ L F^q u / Σ h, and h = q F^(q-1) |L u|² + L F^q.
class QFairRule final : public MeanRule {
 public:
  QFairRule(std::string name, LayoutPointer layout, MeanSettings settings, double q,
            double lipschitz)
      : MeanRule(std::move(name), std::move(layout), settings), q_(q), lipschitz_(lipschitz) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    MeanSettings settings;
    in.number("learningRate", settings.learning_rate, {0, 1e6, kAboveLow});
    double q = 1, client_rate = 0.1;
    in.number("q", q, {0, 100});
    in.number("clientLearningRate", client_rate, {0, 1e6, kAboveLow});
    return std::make_unique<QFairRule>(name, std::move(layout), settings, q, 1 / client_rate);
  }
  bool needs_loss() const override { return true; }

 private:
  std::vector<double> factors(const RoundUpdates& round) const override {
    std::vector<double> out;
    double sum = 0;
    for (const Contribution& c : round.contributions) {
      const Powers powers = powers_of(c);
      out.push_back(powers.weight * c.scale);
      sum += powers.divisor * c.scale;
    }
    for (double& factor : out) factor /= sum;
    return out;
  }
  /// The sum of the divisors of a million clients stays finite, too.
  bool usable_loss(const Contribution& c) const override {
    const Powers powers = powers_of(c);
    return powers.weight > 0 && powers.weight < kPowerMax && powers.divisor < kPowerMax;
  }

  struct Powers {
    double weight, divisor;  // L F^q, and h
  };
  Powers powers_of(const Contribution& c) const {
    const double power = std::pow(c.loss, q_), norm = lipschitz_ * c.update->norm();
    return {lipschitz_ * power, q_ * std::pow(c.loss, q_ - 1) * norm * norm + lipschitz_ * power};
  }
  static constexpr double kPowerMax = 1e300;

  const double q_, lipschitz_;
};

/// The mean of updates with a norm of at most `norm`, or `factor` times the median norm. Longer
/// ones are scaled down (Sun et al. 2019).
class ClippingRule final : public MeanRule {
 public:
  ClippingRule(std::string name, LayoutPointer layout, MeanSettings settings, double norm,
               double factor)
      : MeanRule(std::move(name), std::move(layout), settings), norm_(norm), factor_(factor) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    MeanSettings settings;
    settings.read(in);
    double norm = 0, factor = 1;
    in.number("norm", norm, {0, 1e12});
    in.number("factor", factor, {0, 1e6, kAboveLow});
    return std::make_unique<ClippingRule>(name, std::move(layout), settings, norm, factor);
  }

 private:
  std::vector<double> factors(const RoundUpdates& round) const override {
    std::vector<double> norms;
    for (const Contribution& c : round.contributions) norms.push_back(c.update->norm());
    const double limit = norm_ > 0 ? norm_ : factor_ * median_of(norms);
    std::vector<double> out = MeanRule::factors(round);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (norms[i] > limit) out[i] *= limit / norms[i];
    return out;
  }

  const double norm_, factor_;
};

constexpr RuleEntry kMeanRules[] = {
    {"FedAvg", make_fedavg},
    {"FedProx", make_fedavg},
    {"FedAvgM", MomentumRule::make},
    {"FedBuff", MomentumRule::make},
    {"FedAdagrad", AdaptiveRule::make},
    {"FedAdam", AdaptiveRule::make},
    {"FedYogi", AdaptiveRule::make},
    {"SCAFFOLD", ScaffoldRule::make},
    {"qFFL", QFairRule::make},
    {"NormClipping", ClippingRule::make},
};

}  // namespace

std::span<const RuleEntry> mean_rules() { return kMeanRules; }

}  // namespace varda::federated
