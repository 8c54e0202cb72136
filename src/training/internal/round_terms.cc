#include "training/internal/round_terms.h"

#include <cmath>

#include "base/check.h"
#include "train/optimizer.h"

namespace varda::training {
namespace {

float value_at(std::span<const float> variate, std::size_t i) {
  return variate.empty() ? 0.0f : variate[i];
}

}  // namespace

void add_proximal_term(std::span<float> gradient, std::span<const float> weight,
                       std::span<const float> start, double mu) {
  CHECK(gradient.size() == weight.size() && gradient.size() == start.size());
  const auto factor = static_cast<float>(mu);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += factor * (weight[i] - start[i]);
}

void add_control(std::span<float> gradient, std::span<const float> server,
                 std::span<const float> own) {
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] += value_at(server, i) - value_at(own, i);
}

std::vector<float> next_control(std::span<const float> server, std::span<const float> own,
                                std::span<const float> start, std::span<const float> trained,
                                double rates) {
  CHECK(start.size() == trained.size() && rates > 0);
  std::vector<float> out(start.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(double{value_at(own, i)} - double{value_at(server, i)} +
                                (double{start[i]} - double{trained[i]}) / rates);
  return out;
}

std::vector<std::size_t> poisson_sample(std::span<const std::size_t> samples, double rate,
                                        KeyStream& stream) {
  std::vector<std::size_t> out;
  for (const std::size_t sample : samples)
    if (stream.unit() < rate) out.push_back(sample);
  return out;
}

PrivateSum::PrivateSum(std::span<const std::size_t> sizes, double clip_norm)
    : clip_norm_(clip_norm) {
  for (const std::size_t size : sizes) sums_.emplace_back(size);
}

bool PrivateSum::add(const Values& gradient) {
  CHECK(gradient.size() == sums_.size());
  double squares = 0;
  for (const std::vector<float>& values : gradient) squares += train::squared_norm(values);
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) return false;
  const double scale = norm > clip_norm_ ? clip_norm_ / norm : 1.0;
  for (std::size_t i = 0; i < sums_.size(); ++i)
    for (std::size_t j = 0; j < sums_[i].size(); ++j) sums_[i][j] += scale * double{gradient[i][j]};
  return true;
}

Values PrivateSum::finish(double noise, double expected_samples, KeyStream& stream) const {
  CHECK(expected_samples > 0);
  const double deviation = noise * clip_norm_;
  Values out;
  for (const std::vector<double>& sum : sums_) {
    std::vector<float>& values = out.emplace_back(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double added = deviation > 0 ? deviation * stream.normal() : 0.0;
      values[i] = static_cast<float>((sum[i] + added) / expected_samples);
    }
  }
  return out;
}

}  // namespace varda::training
