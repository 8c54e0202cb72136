// Rules that some wrong updates cannot move far. All but RFA ignore samples and staleness: clients
// choose those numbers themselves.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "federated/internal/kernels.h"
#include "federated/internal/rule_base.h"

namespace varda::federated {
namespace {

using codec::kAboveLow;
using codec::kBelowHigh;
using codec::SettingsReader;

constexpr std::int64_t kByzantineMax = 1'000'000;
constexpr std::int64_t kAutomatic = -1;

class RobustRule : public RuleBase {
 public:
  RobustRule(std::string name, LayoutPointer layout, double learning_rate)
      : RuleBase(std::move(name), std::move(layout)), learning_rate_(learning_rate) {}

 protected:
  static double read_learning_rate(SettingsReader& in) {
    double out = 1;
    in.number("learningRate", out, {0, 1e6, kAboveLow});
    return out;
  }
  Sink sink(std::span<float> global) const {
    return [this, global](std::size_t first, std::span<double> step) {
      return kernels::add_step(global.data() + first, step.data(), learning_rate_, step.size());
    };
  }
  /// The mean of the chosen updates, with equal weights.
  Result<double> mean_of(const RoundUpdates& round, const std::vector<std::size_t>& chosen,
                         std::span<float> global, Applied& applied) const {
    std::vector<double> weights(round.contributions.size());
    for (const std::size_t i : chosen) weights[i] = 1 / static_cast<double>(chosen.size());
    std::vector<Term> terms;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (weights[i] > 0) terms.push_back({round.contributions[i].update, weights[i]});
    add_shares(round, weights, applied);
    return fold(round.ctx, terms, global.size(), round.threads, UpdateSource::kDelta, sink(global));
  }
  static void add_equal_shares(const RoundUpdates& round, Applied& applied) {
    const auto n = static_cast<double>(round.contributions.size());
    add_shares(round, std::vector<double>(round.contributions.size(), 1 / n), applied);
  }

 private:
  const double learning_rate_;
};

/// Median and trimmed mean by coordinate (Yin et al. 2018). The median of an even number of values
/// is the mean of the two in the middle. The trimmed mean drops floor(trim * n) values at each end.
class CoordinateRule final : public RobustRule {
 public:
  CoordinateRule(std::string name, LayoutPointer layout, double learning_rate, double trim)
      : RobustRule(std::move(name), std::move(layout), learning_rate), trim_(trim) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    const double learning_rate = read_learning_rate(in);
    double trim = 0.1;
    if (name == "TrimmedMean") in.number("trim", trim, {0, 0.5, kBelowHigh});
    return std::make_unique<CoordinateRule>(name, std::move(layout), learning_rate, trim);
  }

 private:
  Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                           Applied& applied) override {
    const std::size_t n = round.contributions.size();
    ColumnMean mean;
    if (name() == "Median") {
      mean.from = (n - 1) / 2;
      mean.to = n / 2 + 1;
    } else {
      mean.from = static_cast<std::size_t>(trim_ * static_cast<double>(n));
      mean.to = n - mean.from;
    }
    add_equal_shares(round, applied);
    return fold_sorted(round.ctx, round.updates(), global.size(), round.threads, mean,
                       sink(global));
  }

  const double trim_;
};

/// Krum's score (Blanchard et al. 2017) of an update among m candidates: the sum of squared
/// distances to the nearest m - f - 2 others; to at least one.
class KrumScores {
 public:
  /// `distances`: n * n numbers. Sorts once, since Bulyan asks for n - 2f sets of candidates.
  KrumScores(const std::vector<double>& distances, std::size_t n, std::size_t byzantine)
      : distances_(distances), n_(n), byzantine_(byzantine), nearest_(n), is_candidate_(n, true) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j)
        if (j != i) nearest_[i].push_back(j);
      const double* const row = distances.data() + i * n;
      std::stable_sort(nearest_[i].begin(), nearest_[i].end(),
                       [&](std::size_t a, std::size_t b) { return row[a] < row[b]; });
    }
  }
  /// The scores of these updates, all of which are candidates, added from the nearest on.
  std::vector<double> of(const std::vector<std::size_t>& candidates) const {
    const std::size_t m = candidates.size();
    const std::size_t neighbours = m > byzantine_ + 3 ? m - byzantine_ - 2 : 1;
    std::vector<double> out;
    for (const std::size_t i : candidates) {
      double sum = 0;
      std::size_t found = 0;
      for (const std::size_t j : nearest_[i]) {
        if (!is_candidate_[j]) continue;
        sum += distances_[i * n_ + j];
        if (++found == neighbours) break;
      }
      out.push_back(sum);
    }
    return out;
  }
  void remove(std::size_t candidate) { is_candidate_[candidate] = false; }

 private:
  const std::vector<double>& distances_;
  const std::size_t n_, byzantine_;
  std::vector<std::vector<std::size_t>> nearest_;
  std::vector<bool> is_candidate_;
};

/// A rule for f wrong updates of n; `byzantine` of the settings, or as many as n allows.
class ByzantineRule : public RobustRule {
 public:
  ByzantineRule(std::string name, LayoutPointer layout, double learning_rate,
                std::int64_t byzantine, std::size_t factor)
      : RobustRule(std::move(name), std::move(layout), learning_rate),
        byzantine_(byzantine),
        factor_(factor) {}

  std::size_t updates_min() const override {
    return factor_ * static_cast<std::size_t>(std::max<std::int64_t>(byzantine_, 0)) + 3;
  }

 protected:
  static std::int64_t read_byzantine(SettingsReader& in) {
    std::int64_t out = kAutomatic;
    in.integer("byzantine", out, 0, kByzantineMax);
    return out;
  }
  std::string too_few(std::size_t updates) const override {
    if (updates >= updates_min()) return "";
    return name() + (byzantine_ > 0 ? " with byzantine " + std::to_string(byzantine_) : "") +
           " needs at least " + std::to_string(updates_min()) + " updates, the round has " +
           std::to_string(updates);
  }
  /// f for n updates, n >= factor * f + 3.
  std::size_t wrong_updates(std::size_t n) const {
    return byzantine_ == kAutomatic ? (n - 3) / factor_ : static_cast<std::size_t>(byzantine_);
  }

 private:
  const std::int64_t byzantine_;
  const std::size_t factor_;
};

/// Krum and multi-Krum (Blanchard et al. 2017), n >= 2f + 3. Of equal scores the first client wins.
class KrumRule final : public ByzantineRule {
 public:
  KrumRule(std::string name, LayoutPointer layout, double learning_rate, std::int64_t byzantine,
           std::int64_t selected)
      : ByzantineRule(std::move(name), std::move(layout), learning_rate, byzantine, 2),
        selected_(selected) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    const double learning_rate = read_learning_rate(in);
    const std::int64_t byzantine = read_byzantine(in);
    std::int64_t selected = name == "Krum" ? 1 : 0;
    if (name == "MultiKrum") in.integer("selected", selected, 1, kByzantineMax);
    return std::make_unique<KrumRule>(name, std::move(layout), learning_rate, byzantine, selected);
  }

 private:
  Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                           Applied& applied) override {
    const std::size_t n = round.contributions.size(), f = wrong_updates(n);
    TRY(const std::vector<double> distances,
        squared_distances(round.ctx, round.updates(), global.size(), round.threads));
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::vector<double> scores = KrumScores(distances, n, f).of(order);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
    order.resize(std::min(n, selected_ == 0 ? n - f : static_cast<std::size_t>(selected_)));
    return mean_of(round, order, global, applied);
  }

  const std::int64_t selected_;  // 0: n - f
};

/// Bulyan over Krum (El Mhamdi et al. 2018), n >= 4f + 3: selects n - 2f updates, each the winner
/// of Krum among those left. Then takes by coordinate the mean of the n - 4f values closest to the
/// median of the selected ones; of equally close values the smaller.
class BulyanRule final : public ByzantineRule {
 public:
  BulyanRule(std::string name, LayoutPointer layout, double learning_rate, std::int64_t byzantine)
      : ByzantineRule(std::move(name), std::move(layout), learning_rate, byzantine, 4) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    const double learning_rate = read_learning_rate(in);
    const std::int64_t byzantine = read_byzantine(in);
    return std::make_unique<BulyanRule>(name, std::move(layout), learning_rate, byzantine);
  }

 private:
  Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                           Applied& applied) override {
    const std::size_t n = round.contributions.size(), f = wrong_updates(n);
    TRY(const std::vector<double> distances,
        squared_distances(round.ctx, round.updates(), global.size(), round.threads));
    std::vector<std::size_t> left(n), selected;
    std::iota(left.begin(), left.end(), std::size_t{0});
    KrumScores krum(distances, n, f);
    while (selected.size() < n - 2 * f) {
      const std::vector<double> scores = krum.of(left);
      const auto best = std::min_element(scores.begin(), scores.end()) - scores.begin();
      selected.push_back(left[static_cast<std::size_t>(best)]);
      krum.remove(selected.back());
      left.erase(left.begin() + best);
    }
    std::sort(selected.begin(), selected.end());
    std::vector<const UpdateReader*> updates;
    std::vector<double> weights(n);
    for (const std::size_t i : selected) {
      updates.push_back(round.contributions[i].update);
      weights[i] = 1 / static_cast<double>(selected.size());
    }
    add_shares(round, weights, applied);
    ColumnMean mean;
    mean.kind = ColumnMean::Kind::kNearMedian;
    mean.count = selected.size() - 2 * f;
    return fold_sorted(round.ctx, updates, global.size(), round.threads, mean, sink(global));
  }
};

/// RFA (Pillutla et al. 2022): the geometric median by the smoothed Weiszfeld algorithm. It begins
/// at the weighted mean; each iteration weighs an update by weight / max(smoothing, distance).
class GeometricMedianRule final : public RobustRule {
 public:
  GeometricMedianRule(std::string name, LayoutPointer layout, double learning_rate,
                      Weighting weighting, std::int64_t iterations, double smoothing)
      : RobustRule(std::move(name), std::move(layout), learning_rate),
        weighting_(weighting),
        iterations_(iterations),
        smoothing_(smoothing) {}

  static std::unique_ptr<Rule> make(SettingsReader& in, const std::string& name,
                                    LayoutPointer layout) {
    constexpr codec::Choice<Weighting> kChoices[] = {{"samples", Weighting::kSamples},
                                                     {"uniform", Weighting::kUniform}};
    const double learning_rate = read_learning_rate(in);
    Weighting weighting = Weighting::kSamples;
    std::int64_t iterations = 4;
    double smoothing = 1e-6;
    in.choice("weighting", weighting, kChoices);
    in.integer("iterations", iterations, 1, 1000);
    in.number("smoothing", smoothing, {0, 1e6, kAboveLow});
    return std::make_unique<GeometricMedianRule>(name, std::move(layout), learning_rate, weighting,
                                                 iterations, smoothing);
  }

 private:
  Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                           Applied& applied) override {
    const std::vector<double> given = normalized_weights(round, weighting_);
    std::vector<Term> terms;
    for (std::size_t i = 0; i < given.size(); ++i)
      terms.push_back({round.contributions[i].update, given[i]});
    for (std::int64_t iteration = 0; iteration < iterations_; ++iteration) {
      TRY(const std::vector<double> squares,
          squared_distances_to_sum(round.ctx, terms, global.size(), round.threads));
      double sum = 0;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        terms[i].factor = given[i] / std::max(smoothing_, std::sqrt(squares[i]));
        sum += terms[i].factor;
      }
      for (Term& term : terms) term.factor /= sum;
    }
    std::vector<double> weights;
    for (const Term& term : terms) weights.push_back(term.factor);
    add_shares(round, weights, applied);
    return fold(round.ctx, terms, global.size(), round.threads, UpdateSource::kDelta, sink(global));
  }

  const Weighting weighting_;
  const std::int64_t iterations_;
  const double smoothing_;
};

constexpr RuleEntry kRobustRules[] = {
    {"Median", CoordinateRule::make}, {"TrimmedMean", CoordinateRule::make},
    {"Krum", KrumRule::make},         {"MultiKrum", KrumRule::make},
    {"Bulyan", BulyanRule::make},     {"RFA", GeometricMedianRule::make},
};

}  // namespace

std::span<const RuleEntry> robust_rules() { return kRobustRules; }

}  // namespace varda::federated
