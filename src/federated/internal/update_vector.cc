#include "federated/internal/update_vector.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "federated/internal/convert.h"
#include "federated/internal/kernels.h"
#include "federated/internal/shown.h"

namespace varda::federated {
namespace {

using tensor::DType;

constexpr std::size_t kCheckBlock = 4096;  // the norm is a sum over blocks of this size

Refusal refusal(RefusalReason reason, std::string message) {
  return {reason, Error(Code::kInvalid, std::move(message))};
}

template <typename T>
T value_at(std::span<const std::byte> bytes, std::size_t index) {
  T out;
  std::memcpy(&out, bytes.data() + index * sizeof(T), sizeof(T));
  return out;
}

bool is_float(DType dtype) {
  return dtype == DType::kFp32 || dtype == DType::kFp16 || dtype == DType::kBf16 ||
         dtype == DType::kFp64;
}

/// The first place in the rising indexes with a value of at least `begin`.
std::size_t lower_place(std::span<const std::byte> indexes, std::size_t begin) {
  std::size_t low = 0, high = indexes.size() / sizeof(std::uint32_t);
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (value_at<std::uint32_t>(indexes, middle) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::size_t blocks_of(std::size_t size) { return (size + kInt8Block - 1) / kInt8Block; }

}  // namespace

Result<void, Refusal> UpdateVector::add(const LayoutTensor& tensor, const EncodedTensor& encoded,
                                        const Safetensors& file) {
  const std::string name = "tensor " + shown(tensor.name);
  Part part;
  part.first = tensor.first;
  part.size = tensor.size;
  part.name = tensor.name;
  if (encoded.values != nullptr && (encoded.index != nullptr || encoded.kept != nullptr))
    return refusal(RefusalReason::kFormat, name + " is both dense and topk");
  if (encoded.values != nullptr) {
    const SafetensorsEntry& values = *encoded.values;
    if (values.shape != tensor.shape) {
      return refusal(RefusalReason::kShape, name + " has the shape " +
                                                tensor::to_string(values.shape) + ", the model's " +
                                                tensor::to_string(tensor.shape));
    }
    part.values = file.bytes(values);
    part.dtype = values.dtype;
    if (encoded.scales != nullptr) {
      const SafetensorsEntry& scales = *encoded.scales;
      if (values.dtype != DType::kInt8 || scales.dtype != DType::kFp32)
        return refusal(RefusalReason::kFormat, name + " with scales must be I8, its scales F32");
      const auto blocks = static_cast<std::int64_t>(blocks_of(tensor.size));
      if (scales.shape != tensor::Shape{blocks}) {
        return refusal(RefusalReason::kShape, name + " has scales of shape " +
                                                  tensor::to_string(scales.shape) + ", not [" +
                                                  std::to_string(blocks) + "]");
      }
      part.form = Form::kInt8;
      part.scales_or_indexes = file.bytes(scales);
    } else if (!is_float(values.dtype)) {
      return refusal(RefusalReason::kFormat, name + " has the type " +
                                                 std::string(tensor::to_string(values.dtype)) +
                                                 ", not F32, F16, BF16, F64 or I8 with scales");
    }
  } else {
    if (encoded.index == nullptr || encoded.kept == nullptr)
      return refusal(RefusalReason::kFormat,
                     name + " lacks a part: topk needs #index and #value, #scale needs I8 values");
    const SafetensorsEntry& index = *encoded.index;
    const SafetensorsEntry& kept = *encoded.kept;
    if (encoded.scales != nullptr || index.dtype != DType::kUint32 ||
        (kept.dtype != DType::kFp32 && kept.dtype != DType::kFp16)) {
      return refusal(RefusalReason::kFormat,
                     name + " in topk needs #index in U32 and #value in F32 or F16");
    }
    if (index.shape.size() != 1 || index.shape != kept.shape || index.elements > tensor.size) {
      return refusal(RefusalReason::kShape,
                     name + " has indexes of shape " + tensor::to_string(index.shape) +
                         " and values of shape " + tensor::to_string(kept.shape));
    }
    part.form = Form::kTopK;
    part.dtype = kept.dtype;
    part.values = file.bytes(kept);
    part.scales_or_indexes = file.bytes(index);
  }
  if (part.size == 0) return {};
  // FP32 tensors that follow each other in the file become one part, so that view() reaches over
  // their borders.
  if (!parts_.empty()) {
    Part& last = parts_.back();
    if (last.form == Form::kDense && part.form == Form::kDense && last.dtype == part.dtype &&
        last.first + last.size == part.first &&
        last.values.data() + last.values.size() == part.values.data()) {
      last.size += part.size;
      last.values = {last.values.data(), last.values.size() + part.values.size()};
      return {};
    }
  }
  parts_.push_back(part);
  return {};
}

Result<void, Refusal> UpdateVector::check_sparse(const Part& part) const {
  const std::span<const std::byte> side = part.scales_or_indexes;
  if (part.form == Form::kInt8) {
    for (std::size_t i = 0; i * sizeof(float) < side.size(); ++i)
      if (!std::isfinite(value_at<float>(side, i)))
        return refusal(RefusalReason::kNotFinite,
                       "tensor " + shown(part.name) + " has a scale that is not finite");
  } else if (part.form == Form::kTopK) {
    std::uint64_t least = 0;
    for (std::size_t i = 0; i * sizeof(std::uint32_t) < side.size(); ++i) {
      const auto index = value_at<std::uint32_t>(side, i);
      if (index < least || index >= part.size)
        return refusal(RefusalReason::kFormat, "the indexes of tensor " + shown(part.name) +
                                                   " must rise and stay below " +
                                                   std::to_string(part.size));
      least = std::uint64_t{index} + 1;
    }
  }
  return {};
}

Result<double, Refusal> UpdateVector::check(std::size_t size) const {
  for (const Part& part : parts_)
    if (auto sparse = check_sparse(part); !sparse.ok()) return std::move(sparse).error();
  std::vector<float> scratch(std::min(size, kCheckBlock));
  double sum = 0;
  for (std::size_t first = 0; first < size; first += kCheckBlock) {
    const std::span<const float> block =
        view(first, std::span(scratch).first(std::min(kCheckBlock, size - first)));
    const double squares = kernels::sum_of_squares(block.data(), block.size());
    if (!std::isfinite(squares)) [[unlikely]] {
      const auto bad = std::find_if(block.begin(), block.end(),
                                    [](float value) { return !std::isfinite(value); });
      const std::size_t at = first + static_cast<std::size_t>(bad - block.begin());
      const Part& part = parts_[part_at(at)];
      return refusal(RefusalReason::kNotFinite, "a value of tensor " + shown(part.name) +
                                                    " or a tensor after it is not finite, at " +
                                                    std::to_string(at) + " of all values");
    }
    sum += squares;
  }
  return std::sqrt(sum);
}

std::size_t UpdateVector::part_at(std::size_t first) const {
  const auto after = std::upper_bound(
      parts_.begin(), parts_.end(), first,
      [](std::size_t at, const Part& part) { return at < part.first + part.size; });
  return static_cast<std::size_t>(after - parts_.begin());
}

void UpdateVector::read_part(const Part& part, std::size_t begin, std::span<float> out) {
  switch (part.form) {
    case Form::kDense: {
      const std::size_t bytes = tensor::element_bytes(part.dtype);
      to_floats(part.dtype, part.values.subspan(begin * bytes, out.size() * bytes), out);
      return;
    }
    case Form::kInt8:
      for (std::size_t done = 0; done < out.size();) {
        const std::size_t at = begin + done;
        const std::size_t count = std::min(kInt8Block - at % kInt8Block, out.size() - done);
        kernels::from_int8(part.values.data() + at,
                           value_at<float>(part.scales_or_indexes, at / kInt8Block),
                           out.data() + done, count);
        done += count;
      }
      return;
    case Form::kTopK: {
      std::fill(out.begin(), out.end(), 0.0f);
      const std::size_t entries = part.scales_or_indexes.size() / sizeof(std::uint32_t);
      for (std::size_t i = lower_place(part.scales_or_indexes, begin); i < entries; ++i) {
        // An index below `begin` wraps: a file that was damaged after its check writes nowhere
        // else.
        const std::size_t at = value_at<std::uint32_t>(part.scales_or_indexes, i) - begin;
        if (at >= out.size()) break;
        const std::size_t bytes = tensor::element_bytes(part.dtype);
        to_floats(part.dtype, part.values.subspan(i * bytes, bytes), out.subspan(at, 1));
      }
      return;
    }
  }
}

void UpdateVector::read(std::size_t first, std::span<float> out) const {
  std::size_t done = 0;
  for (std::size_t i = part_at(first); i < parts_.size() && done < out.size(); ++i) {
    const Part& part = parts_[i];
    const std::size_t at = first + done;
    if (part.first > at) {
      const std::size_t gap = std::min(part.first - at, out.size() - done);
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(done), gap, 0.0f);
      done += gap;
      if (done == out.size()) return;
    }
    const std::size_t begin = first + done - part.first;
    const std::size_t count = std::min(part.size - begin, out.size() - done);
    read_part(part, begin, out.subspan(done, count));
    done += count;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), 0.0f);
}

std::span<const float> UpdateVector::view(std::size_t first, std::span<float> scratch) const {
  const std::size_t i = part_at(first);
  if (i < parts_.size() && parts_[i].first <= first && parts_[i].dtype == DType::kFp32 &&
      parts_[i].form == Form::kDense &&
      first + scratch.size() <= parts_[i].first + parts_[i].size) {
    const std::byte* const at = parts_[i].values.data() + (first - parts_[i].first) * sizeof(float);
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
      return {reinterpret_cast<const float*>(at), scratch.size()};
  }
  read(first, scratch);
  return scratch;
}

void UpdateVector::release(const Safetensors& file, std::size_t first, std::size_t count) const {
  for (std::size_t i = part_at(first); i < parts_.size() && parts_[i].first < first + count; ++i) {
    const Part& part = parts_[i];
    // Indexes of topk are spread over the file; those files are small.
    if (part.form == Form::kTopK) continue;
    const std::size_t begin = std::max(first, part.first) - part.first;
    const std::size_t end = std::min(first + count, part.first + part.size) - part.first;
    const std::size_t bytes = tensor::element_bytes(part.dtype);
    file.release(part.values.subspan(begin * bytes, (end - begin) * bytes));
  }
}

}  // namespace varda::federated
