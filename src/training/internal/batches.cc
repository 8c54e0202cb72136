#include "training/internal/batches.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace varda::training {
namespace {

using samples::Task;
using tensor::DType;
using tensor::Tensor;

}  // namespace

Result<Tensor> filled(const Tensor& tensor, std::int64_t rows) {
  tensor::Shape shape = tensor.shape();
  if (shape.empty() || shape[0] < 1 || shape[0] > rows)
    return Error(Code::kInvalid, "a batch of shape " + tensor::to_string(shape) +
                                     " is not one of 1 to " + std::to_string(rows) + " samples");
  if (shape[0] == rows) return tensor;
  const auto present = static_cast<std::size_t>(std::exchange(shape[0], rows));
  const std::span<const std::byte> from = tensor.bytes();
  const std::size_t row = from.size() / present;
  TRY(Tensor out, Tensor::allocate(tensor.dtype(), std::move(shape)));
  const std::span<std::byte> to = out.mutable_bytes();
  std::ranges::copy(from, to.begin());
  for (std::size_t at = from.size(); at < to.size(); at += row)
    std::ranges::copy(from.subspan(at % from.size(), row),
                      to.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

std::size_t Batches::values() const {
  std::size_t out = 1;
  for (std::size_t i = 1; i < output.size(); ++i) out *= static_cast<std::size_t>(output[i]);
  return out;
}

Result<std::vector<tensor::Named>> Batches::inputs(const samples::Batch& batch) const {
  TRY(Tensor whole, filled(batch.input, size));
  return std::vector<tensor::Named>{{input, std::move(whole)}};
}

Status Batches::check(const samples::Batch& batch, const samples::Dataset& data, Task task) const {
  const std::size_t count = batch.indices.size(), width = values();
  const bool is_classification = task == Task::kClassification;
  if (count == 0 || batch.input.shape().empty() ||
      batch.input.shape()[0] != static_cast<std::int64_t>(count) ||
      (is_classification && batch.labels.size() != count))
    return Error(Code::kInternal, "a batch has parts of different sizes");
  if (!is_classification && batch.targets.size() != count * width)
    return Error(Code::kInvalid, data.place(batch.indices[0]) + " has " +
                                     std::to_string(batch.targets.size() / count) +
                                     " targets; the model has " + std::to_string(width) +
                                     " outputs");
  for (std::size_t i = 0; i < batch.labels.size() && is_classification; ++i)
    if (batch.labels[i] < 0 || static_cast<std::size_t>(batch.labels[i]) >= classes)
      return Error(Code::kInvalid, data.place(batch.indices[i]) + " has the class " +
                                       std::to_string(batch.labels[i]) +
                                       "; the model has the classes 0 to " +
                                       std::to_string(classes - 1));
  return {};
}

Result<train::Batch> Batches::make(const samples::Batch& batch, const samples::Dataset& data,
                                   const Settings& settings, std::size_t samples) const {
  TRY_VOID(check(batch, data, settings.task));
  const std::size_t count = batch.indices.size(), width = values();
  train::Batch out;
  TRY(out.inputs, inputs(batch));
  TRY(out.sample_weights, Tensor::allocate(DType::kFp32, {size}));
  const auto sample_weights = out.sample_weights.mutable_values<float>();
  std::fill_n(sample_weights.begin(), count, 1 / static_cast<float>(samples));
  for (std::size_t i = 0; i < count && !weights.empty(); ++i)
    sample_weights[i] *= weights[static_cast<std::size_t>(batch.labels[i])];
  Tensor targets;
  if (settings.task != Task::kClassification) {
    TRY(targets,
        Tensor::of<float>(DType::kFp32,
                          {static_cast<std::int64_t>(count), static_cast<std::int64_t>(width)},
                          std::span(batch.targets)));
  } else if (width == 1) {
    TRY(targets, Tensor::allocate(DType::kFp32, {static_cast<std::int64_t>(count)}));
    std::ranges::copy(batch.labels, targets.mutable_values<float>().begin());
  } else {
    TRY(targets,
        train::one_hot(batch.labels, static_cast<std::int64_t>(width), settings.label_smoothing));
  }
  TRY(const Tensor whole, filled(targets, size));
  TRY(out.targets, whole.reshaped(output));
  return out;
}

}  // namespace varda::training
