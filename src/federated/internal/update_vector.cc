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

constexpr std::size_t kChunk = 16'384;  // values that are converted at once

Refusal refusal(RefusalReason reason, std::string message) {
  return {reason, Error(Code::kInvalid, std::move(message))};
}

Refusal unreadable(Error error) { return {RefusalReason::kIo, std::move(error)}; }

template <typename T>
T value_at(const std::byte* bytes, std::size_t index) {
  T out;
  std::memcpy(&out, bytes + index * sizeof(T), sizeof(T));
  return out;
}

bool is_float(DType dtype) {
  return dtype == DType::kFp32 || dtype == DType::kFp16 || dtype == DType::kBf16 ||
         dtype == DType::kFp64;
}

std::size_t blocks_of(std::size_t size) { return (size + kInt8Block - 1) / kInt8Block; }

}  // namespace

Result<void, Refusal> UpdateVector::add(const LayoutTensor& tensor, const EncodedTensor& encoded) {
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
    part.values_at = values.offset;
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
      part.side_at = scales.offset;
      part.side_size = scales.elements;
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
    part.values_at = kept.offset;
    part.side_at = index.offset;
    part.side_size = index.elements;
  }
  if (part.size == 0) return {};
  // FP32 tensors that follow each other in the file become one part, so that view() reaches over
  // their borders.
  if (!parts_.empty()) {
    Part& last = parts_.back();
    if (last.form == Form::kDense && part.form == Form::kDense && last.dtype == part.dtype &&
        last.first + last.size == part.first &&
        last.values_at + last.size * tensor::element_bytes(last.dtype) == part.values_at) {
      last.size += part.size;
      return {};
    }
  }
  parts_.push_back(part);
  return {};
}

Result<const std::byte*> UpdateVector::bytes(std::uint64_t at, std::size_t size,
                                             std::vector<std::byte>& scratch) const {
  // parse() of the header checked that all tensors lie inside the file.
  if (const std::span<const std::byte> memory = file_->bytes(); !memory.empty())
    return memory.data() + at;
  if (scratch.size() < size) scratch.resize(size);
  TRY_VOID(file_->read(at, std::span(scratch).first(size)));
  return static_cast<const std::byte*>(scratch.data());
}

Result<void, Refusal> UpdateVector::check_side(const Part& part) const {
  std::vector<std::byte> scratch;
  std::uint64_t least = 0;
  for (std::size_t first = 0; first < part.side_size; first += kChunk) {
    const std::size_t count = std::min(kChunk, part.side_size - first);
    // Scales and indexes have four bytes.
    const auto side = bytes(part.side_at + 4 * first, 4 * count, scratch);
    if (!side.ok()) return unreadable(side.error());
    for (std::size_t i = 0; i < count; ++i) {
      if (part.form == Form::kInt8) {
        if (!std::isfinite(value_at<float>(*side, i)))
          return refusal(RefusalReason::kNotFinite,
                         "tensor " + shown(part.name) + " has a scale that is not finite");
        continue;
      }
      const auto index = value_at<std::uint32_t>(*side, i);
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
    if (auto side = check_side(part); !side.ok()) return std::move(side).error();
  std::vector<float> scratch(std::min(size, kNormBlock));
  double sum = 0;
  for (std::size_t first = 0; first < size; first += kNormBlock) {
    const auto viewed = view(first, std::span(scratch).first(std::min(kNormBlock, size - first)));
    if (!viewed.ok()) return unreadable(viewed.error());
    const std::span<const float> block = *viewed;
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

Status UpdateVector::read_dense(const Part& part, std::size_t begin, std::span<float> out) const {
  const std::size_t width = tensor::element_bytes(part.dtype);
  if (part.dtype == DType::kFp32)
    return file_->read(part.values_at + begin * width, std::as_writable_bytes(out));
  std::vector<std::byte> scratch;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min(kChunk, out.size() - done);
    TRY(const std::byte* const in,
        bytes(part.values_at + (begin + done) * width, count * width, scratch));
    to_floats(part.dtype, {in, count * width}, out.subspan(done, count));
    done += count;
  }
  return {};
}

Status UpdateVector::read_int8(const Part& part, std::size_t begin, std::span<float> out) const {
  std::vector<std::byte> value_scratch, scale_scratch;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t at = begin + done;
    const std::size_t count = std::min(kChunk - at % kInt8Block, out.size() - done);
    const std::size_t first_block = at / kInt8Block;
    TRY(const std::byte* const values, bytes(part.values_at + at, count, value_scratch));
    TRY(const std::byte* const scales,
        bytes(part.side_at + first_block * sizeof(float),
              (blocks_of(at + count) - first_block) * sizeof(float), scale_scratch));
    for (std::size_t i = 0; i < count;) {
      const std::size_t piece = std::min(kInt8Block - (at + i) % kInt8Block, count - i);
      kernels::from_int8(values + i, value_at<float>(scales, (at + i) / kInt8Block - first_block),
                         out.data() + done + i, piece);
      i += piece;
    }
    done += count;
  }
  return {};
}

/// The first place in the rising indexes with an index of at least `begin`.
Result<std::size_t> UpdateVector::lower_place(const Part& part, std::size_t begin) const {
  std::vector<std::byte> scratch;
  std::size_t low = 0, high = part.side_size;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    TRY(const std::byte* const index,
        bytes(part.side_at + middle * sizeof(std::uint32_t), sizeof(std::uint32_t), scratch));
    if (value_at<std::uint32_t>(index, 0) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Status UpdateVector::read_topk(const Part& part, std::size_t begin, std::span<float> out) const {
  constexpr std::size_t kEntries = 512;
  std::fill(out.begin(), out.end(), 0.0f);
  const std::size_t width = tensor::element_bytes(part.dtype);
  std::vector<std::byte> index_scratch, value_scratch;
  float values[kEntries];
  TRY(std::size_t place, lower_place(part, begin));
  for (; place < part.side_size; place += kEntries) {
    const std::size_t count = std::min(kEntries, part.side_size - place);
    TRY(const std::byte* const indexes, bytes(part.side_at + place * sizeof(std::uint32_t),
                                              count * sizeof(std::uint32_t), index_scratch));
    TRY(const std::byte* const kept,
        bytes(part.values_at + place * width, count * width, value_scratch));
    to_floats(part.dtype, {kept, count * width}, std::span(values).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      // An index below `begin` wraps: a file that was damaged after its check writes nowhere else.
      const std::size_t at = value_at<std::uint32_t>(indexes, i) - begin;
      if (at >= out.size()) return {};
      out[at] = values[i];
    }
  }
  return {};
}

Status UpdateVector::read_part(const Part& part, std::size_t begin, std::span<float> out) const {
  switch (part.form) {
    case Form::kDense:
      return read_dense(part, begin, out);
    case Form::kInt8:
      return read_int8(part, begin, out);
    case Form::kTopK:
      return read_topk(part, begin, out);
  }
  return {};
}

Status UpdateVector::read(std::size_t first, std::span<float> out) const {
  std::size_t done = 0;
  for (std::size_t i = part_at(first); i < parts_.size() && done < out.size(); ++i) {
    const Part& part = parts_[i];
    if (part.first > first + done) {
      const std::size_t gap = std::min(part.first - first - done, out.size() - done);
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(done), gap, 0.0f);
      done += gap;
      if (done == out.size()) return {};
    }
    const std::size_t begin = first + done - part.first;
    const std::size_t count = std::min(part.size - begin, out.size() - done);
    TRY_VOID(read_part(part, begin, out.subspan(done, count)));
    done += count;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), 0.0f);
  return {};
}

Result<std::span<const float>> UpdateVector::view(std::size_t first,
                                                  std::span<float> scratch) const {
  const std::span<const std::byte> memory = file_->bytes();
  const std::size_t i = memory.empty() ? parts_.size() : part_at(first);
  if (i < parts_.size()) {
    const Part& part = parts_[i];
    const bool is_inside = part.first <= first && first + scratch.size() <= part.first + part.size;
    const std::byte* const at =
        memory.data() + part.values_at + (is_inside ? (first - part.first) * sizeof(float) : 0);
    if (is_inside && part.form == Form::kDense && part.dtype == DType::kFp32 &&
        reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
      return std::span<const float>(reinterpret_cast<const float*>(at), scratch.size());
  }
  TRY_VOID(read(first, scratch));
  return std::span<const float>(scratch);
}

}  // namespace varda::federated
