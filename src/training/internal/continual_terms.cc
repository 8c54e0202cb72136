#include "training/internal/continual_terms.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace varda::training {

void add_elastic_term(std::span<float> gradient, std::span<const float> weight,
                      std::span<const float> start, std::span<const float> fisher, double lambda,
                      double stiffness_max) {
  CHECK(gradient.size() == weight.size() && gradient.size() == start.size() &&
        gradient.size() == fisher.size());
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] += static_cast<float>(std::min(lambda * double{fisher[i]}, stiffness_max)) *
                   (weight[i] - start[i]);
}

FisherSum::FisherSum(std::span<const std::size_t> sizes) {
  for (const std::size_t size : sizes) sums_.emplace_back(size);
}

void FisherSum::add(const Values& gradient) {
  CHECK(gradient.size() == sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i)
    for (std::size_t j = 0; j < sums_[i].size(); ++j)
      sums_[i][j] += double{gradient[i][j]} * double{gradient[i][j]};
  ++samples_;
}

Values FisherSum::mean() const {
  CHECK(samples_ > 0);
  Values out;
  for (const std::vector<double>& sum : sums_) {
    std::vector<float>& values = out.emplace_back(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i)
      values[i] = static_cast<float>(sum[i] / static_cast<double>(samples_));
  }
  return out;
}

std::vector<float> soften(std::span<const float> row, train::Activation activation,
                          double temperature) {
  std::vector<double> scores;
  for (const float value : row)
    scores.push_back((activation == train::Activation::kProbabilities
                          ? std::log(std::max(double{value}, 1e-30))
                          : double{value}) /
                     temperature);
  const double most = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  std::vector<float> out;
  for (const double score : scores) out.push_back(static_cast<float>(score / sum));
  return out;
}

std::int64_t draw_class(std::span<const float> row, train::Activation activation, double unit) {
  const std::vector<float> chances = soften(row, activation, 1);
  double sum = 0;
  for (std::size_t i = 0; i < chances.size(); ++i) {
    sum += double{chances[i]};
    if (unit < sum) return static_cast<std::int64_t>(i);
  }
  return static_cast<std::int64_t>(chances.size()) - 1;
}

bool project(Values& gradient, const Values& reference) {
  CHECK(gradient.size() == reference.size());
  double product = 0, square = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    for (std::size_t j = 0; j < gradient[i].size(); ++j) {
      product += double{gradient[i][j]} * double{reference[i][j]};
      square += double{reference[i][j]} * double{reference[i][j]};
    }
  if (!(product < 0) || !(square > 0)) return false;
  const double factor = product / square;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    for (std::size_t j = 0; j < gradient[i].size(); ++j)
      gradient[i][j] =
          static_cast<float>(double{gradient[i][j]} - factor * double{reference[i][j]});
  return true;
}

}  // namespace varda::training
