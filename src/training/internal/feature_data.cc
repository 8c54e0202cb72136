#include "training/internal/feature_data.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace varda::training {
namespace {

using tensor::DType;
using tensor::Tensor;

class FeatureData final : public samples::Dataset {
 public:
  FeatureData(std::shared_ptr<const samples::Dataset> data, tensor::Shape row)
      : data_(std::move(data)), row_(std::move(row)) {
    for (const std::int64_t size : row_) width_ *= static_cast<std::size_t>(size);
  }

  void reserve() { features_.reserve(data_->size() * width_); }
  /// The next samples in order; `features` may have more rows than the batch.
  void add(const samples::Batch& batch, std::span<const float> features) {
    const std::size_t count = batch.indices.size();
    features_.insert(features_.end(), features.begin(),
                     features.begin() + static_cast<std::ptrdiff_t>(count * width_));
    labels_.insert(labels_.end(), batch.labels.begin(), batch.labels.end());
    targets_.insert(targets_.end(), batch.targets.begin(), batch.targets.end());
    targets_each_ = batch.targets.size() / count;
  }

  std::size_t size() const override { return data_->size(); }
  const std::vector<std::string>& classes() const override { return data_->classes(); }
  std::size_t outputs() const override { return data_->outputs(); }
  std::vector<std::uint64_t> class_counts() const override { return data_->class_counts(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  std::string place(std::size_t index) const override { return data_->place(index); }
  Result<std::string> picture(std::size_t index) const override { return data_->picture(index); }
  std::vector<double> fill() const override { return data_->fill(); }
  std::vector<std::string> features() const override { return data_->features(); }

  Result<samples::Batch> read(std::span<const std::size_t> indices, const samples::Augment&,
                              std::uint64_t) const override {
    samples::Batch out;
    tensor::Shape shape = row_;
    shape.insert(shape.begin(), static_cast<std::int64_t>(indices.size()));
    TRY(out.input, Tensor::allocate(DType::kFp32, std::move(shape)));
    const std::span<float> rows = out.input.mutable_values<float>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::size_t index = indices[i];
      std::copy_n(&features_[index * width_], width_, &rows[i * width_]);
      if (!labels_.empty()) out.labels.push_back(labels_[index]);
      const auto target = targets_.begin() + static_cast<std::ptrdiff_t>(index * targets_each_);
      out.targets.insert(out.targets.end(), target,
                         target + static_cast<std::ptrdiff_t>(targets_each_));
    }
    out.indices.assign(indices.begin(), indices.end());
    return out;
  }

 private:
  const std::shared_ptr<const samples::Dataset> data_;
  const tensor::Shape row_;  // of the features of one sample
  std::size_t width_ = 1, targets_each_ = 0;
  std::vector<float> features_;
  std::vector<std::int64_t> labels_;
  std::vector<float> targets_;
};

}  // namespace

Result<std::shared_ptr<const samples::Dataset>> features_of(
    const Context& ctx, std::shared_ptr<const samples::Dataset> data, const Batches& batches,
    train::FrozenPart& part, const std::function<void()>& report) {
  std::vector<std::size_t> all(data->size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  auto out = std::make_shared<FeatureData>(
      data, tensor::Shape(part.shape().begin() + 1, part.shape().end()));
  out->reserve();
  samples::Loader loader(*data, std::move(all), static_cast<std::size_t>(batches.size), {}, 0);
  for (;;) {
    TRY(const auto batch, loader.next(ctx));
    if (!batch) break;
    TRY(const auto inputs, batches.inputs(*batch));
    TRY(const Tensor features, part.run(inputs));
    out->add(*batch, features.values<float>());
    report();
  }
  return std::shared_ptr<const samples::Dataset>(std::move(out));
}

}  // namespace varda::training
