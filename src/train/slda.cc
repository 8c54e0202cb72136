#include "train/slda.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace varda::train {
namespace {

namespace slda {

constexpr std::string_view kMagic = "VARDALD1";

std::size_t half(std::size_t features) { return features * (features + 1) / 2; }

template <typename T>
void append(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

template <typename T>
bool take(std::string_view& bytes, std::span<T> values) {
  if (bytes.size() < values.size_bytes()) return false;
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size_bytes());
  bytes.remove_prefix(values.size_bytes());
  return true;
}

/// The rows of the lower factor in place (Cholesky). False: not positive definite.
bool factor(std::vector<double>& a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    double* const row = &a[half(i)];
    for (std::size_t j = 0; j <= i; ++j) {
      const double* const other = &a[half(j)];
      double sum = row[j];
      for (std::size_t k = 0; k < j; ++k) sum -= row[k] * other[k];
      if (i == j) {
        if (!(sum > 0) || !std::isfinite(sum)) return false;
        row[i] = std::sqrt(sum);
      } else {
        row[j] = sum / other[j];
      }
    }
  }
  return true;
}

/// Solves L L^T x = b in place.
void solve(const std::vector<double>& lower, std::size_t n, std::span<double> b) {
  for (std::size_t i = 0; i < n; ++i) {
    const double* const row = &lower[half(i)];
    for (std::size_t k = 0; k < i; ++k) b[i] -= row[k] * b[k];
    b[i] /= row[i];
  }
  for (std::size_t i = n; i-- > 0;) {
    const double* const row = &lower[half(i)];
    b[i] /= row[i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= row[k] * b[i];
  }
}

}  // namespace slda

}  // namespace

StreamingLda::StreamingLda(std::size_t features)
    : features_(features), covariance_(slda::half(features)), difference_(features) {
  CHECK(features >= 1 && features <= kFeaturesMax);
}

Status StreamingLda::update(std::span<const float> features, std::int64_t label) {
  if (features.size() != features_)
    return Error(Code::kInvalid, "a sample has " + std::to_string(features.size()) +
                                     " features, not " + std::to_string(features_));
  if (label < 0 || label >= static_cast<std::int64_t>(kClassesMax))
    return Error(Code::kInvalid, "the label " + std::to_string(label) + " is out of range");
  for (const float value : features)
    if (!std::isfinite(value)) return Error(Code::kInvalid, "a feature is not finite");
  const auto at = static_cast<std::size_t>(label);
  if (at >= counts_.size()) {
    counts_.resize(at + 1);
    means_.resize(counts_.size() * features_);
  }
  double* const mean = &means_[at * features_];
  const auto count = static_cast<double>(counts_[at]);
  const auto total = static_cast<double>(samples_);
  const double keep = total / (total + 1);
  // The factor of the outer product is 0 for the first sample of a class.
  const double gain = counts_[at] == 0 ? 0 : keep / (total + 1);
  for (std::size_t i = 0; i < features_; ++i) difference_[i] = double{features[i]} - mean[i];
  double* cell = covariance_.data();
  for (std::size_t i = 0; i < features_; ++i) {
    const double scaled = gain * difference_[i];
    for (std::size_t j = 0; j <= i; ++j) cell[j] = keep * cell[j] + scaled * difference_[j];
    cell += i + 1;
  }
  for (std::size_t i = 0; i < features_; ++i)
    mean[i] = (count * mean[i] + double{features[i]}) / (count + 1);
  ++counts_[at];
  ++samples_;
  return {};
}

Result<LinearLayer> StreamingLda::layer(double shrinkage, std::size_t classes) const {
  if (samples_ == 0) return Error(Code::kInvalid, "no samples for the last layer");
  if (!(shrinkage > 0 && shrinkage <= 1))
    return Error(Code::kInvalid, "shrinkage must be above 0 and at most 1");
  if (classes < counts_.size())
    return Error(Code::kInvalid, "the layer needs " + std::to_string(counts_.size()) + " classes");
  std::vector<double> lower(covariance_.size());
  for (std::size_t i = 0; i < features_; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      lower[slda::half(i) + j] =
          (1 - shrinkage) * covariance_[slda::half(i) + j] + (i == j ? shrinkage : 0);
  if (!slda::factor(lower, features_))
    return Error(Code::kInvalid, "the covariance of the features is singular; raise shrinkage");
  LinearLayer out{.inputs = features_,
                  .classes = classes,
                  .weights = std::vector<float>(features_ * classes),
                  .bias = std::vector<float>(classes)};
  double least = 0;
  std::vector<double> solved(features_);
  for (std::size_t at = 0; at < counts_.size(); ++at) {
    if (counts_[at] == 0) continue;
    const double* const mean = &means_[at * features_];
    std::copy_n(mean, features_, solved.begin());
    slda::solve(lower, features_, solved);
    double product = 0;
    for (std::size_t i = 0; i < features_; ++i) {
      product += mean[i] * solved[i];
      out.weights[i * classes + at] = static_cast<float>(solved[i]);
    }
    out.bias[at] = static_cast<float>(-0.5 * product);
    least = std::min(least, -0.5 * product);
  }
  for (std::size_t at = 0; at < classes; ++at)
    if (at >= counts_.size() || counts_[at] == 0)
      out.bias[at] = static_cast<float>(4 * least - 1e4);
  return out;
}

std::string StreamingLda::encode() const {
  std::string out(slda::kMagic);
  const std::uint64_t sizes[] = {features_, counts_.size(), samples_};
  slda::append(out, std::span<const std::uint64_t>(sizes));
  slda::append(out, std::span<const std::uint64_t>(counts_));
  slda::append(out, std::span<const double>(means_));
  slda::append(out, std::span<const double>(covariance_));
  return out;
}

Result<StreamingLda> StreamingLda::decode(std::string_view bytes) {
  const Error corrupt(Code::kCorrupt, "the state of the streaming layer is damaged");
  if (!bytes.starts_with(slda::kMagic)) return corrupt;
  bytes.remove_prefix(slda::kMagic.size());
  std::uint64_t sizes[3] = {};
  if (!slda::take(bytes, std::span<std::uint64_t>(sizes))) return corrupt;
  if (sizes[0] < 1 || sizes[0] > kFeaturesMax || sizes[1] > kClassesMax) return corrupt;
  const std::uint64_t wanted =
      8 * (sizes[1] + sizes[1] * sizes[0] + slda::half(static_cast<std::size_t>(sizes[0])));
  if (bytes.size() != wanted) return corrupt;
  StreamingLda out(static_cast<std::size_t>(sizes[0]));
  out.samples_ = sizes[2];
  out.counts_.resize(static_cast<std::size_t>(sizes[1]));
  out.means_.resize(out.counts_.size() * out.features_);
  slda::take(bytes, std::span<std::uint64_t>(out.counts_));
  slda::take(bytes, std::span<double>(out.means_));
  slda::take(bytes, std::span<double>(out.covariance_));
  std::uint64_t sum = 0;
  for (const std::uint64_t count : out.counts_) {
    if (count > out.samples_) return corrupt;
    sum += count;
  }
  if (sum != out.samples_) return corrupt;
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(out.means_, is_finite) ||
      !std::ranges::all_of(out.covariance_, is_finite))
    return corrupt;
  return out;
}

}  // namespace varda::train
