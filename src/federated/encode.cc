// encode_update() of update.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "codec/json.h"
#include "federated/internal/convert.h"
#include "federated/internal/kernels.h"
#include "federated/internal/shown.h"
#include "federated/internal/update_names.h"
#include "federated/update.h"

namespace varda::federated {
namespace {

using tensor::DType;

// Smaller blocks become zero: 127 / greatest would overflow.
constexpr float kInt8GreatestMin = 0x1p-119f;

/// SplitMix64 (Steele, Lea, Flood 2014): independent keys from one seed.
std::uint32_t key_of(std::uint64_t seed, std::uint64_t block) {
  std::uint64_t z = seed + (block + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((z ^ z >> 31) >> 16);
}

std::size_t int8_blocks(std::size_t size) { return (size + kInt8Block - 1) / kInt8Block; }

/// Tensors of an update: their places first, then the values.
class UpdateWriter {
 public:
  struct Piece {
    SafetensorsSpec spec;
    std::size_t at = 0;  // begin in the file
    std::size_t bytes = 0;
  };
  std::size_t add(std::string name, DType dtype, tensor::Shape shape, std::size_t elements) {
    pieces_.push_back(
        {{std::move(name), dtype, std::move(shape)}, 0, elements * tensor::element_bytes(dtype)});
    return pieces_.size() - 1;
  }
  Status begin(const SafetensorsMetadata& metadata) {
    std::vector<std::size_t> order(pieces_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return tensor::element_bytes(pieces_[a].spec.dtype) >
             tensor::element_bytes(pieces_[b].spec.dtype);
    });
    std::vector<SafetensorsSpec> specs;
    for (const std::size_t i : order) specs.push_back(pieces_[i].spec);
    TRY(out_, safetensors_header(specs, metadata));
    std::size_t at = out_.size();
    for (const std::size_t i : order) {
      pieces_[i].at = at;
      at += pieces_[i].bytes;
    }
    out_.resize(at);
    return {};
  }
  std::span<std::byte> bytes(std::size_t piece) {
    return std::as_writable_bytes(std::span(out_.data(), out_.size()))
        .subspan(pieces_[piece].at, pieces_[piece].bytes);
  }
  std::string take() { return std::move(out_); }

 private:
  std::vector<Piece> pieces_;
  std::string out_;
};

/// The values of a vector that travel: the greatest by magnitude; of equal ones the first.
class Selection {
 public:
  Selection(std::span<const float> values, double keep) : values_(values) {
    const auto wanted =
        static_cast<std::size_t>(std::clamp(std::ceil(keep * static_cast<double>(values.size())),
                                            1.0, static_cast<double>(values.size())));
    // Magnitudes have the order of their bits. Two counts, of the high and of the low half, find
    // the threshold without sorting.
    std::vector<std::size_t> counts(kHalf);
    for (const float value : values) ++counts[magnitude(value) >> 16];
    std::size_t above = 0, high = kHalf - 1;
    for (; high > 0 && above + counts[high] < wanted; --high) above += counts[high];
    std::vector<std::size_t> low_counts(kHalf);
    for (const float value : values)
      if (magnitude(value) >> 16 == high) ++low_counts[magnitude(value) & 0xffff];
    std::size_t low = kHalf - 1;
    for (; low > 0 && above + low_counts[low] < wanted; --low) above += low_counts[low];
    threshold_ = static_cast<std::uint32_t>(high << 16 | low);
    equals_ = wanted - above;
  }

  /// Indexes in values[first, first + size), relative to `first`. Call in the order of the tensors.
  std::vector<std::uint32_t> next(std::size_t first, std::size_t size) {
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t bits = magnitude(values_[first + i]);
      const bool equal = bits == threshold_ && equals_ > 0;
      if (equal) --equals_;
      // Zeros carry nothing.
      if ((bits > threshold_ || equal) && bits != 0) out.push_back(static_cast<std::uint32_t>(i));
    }
    return out;
  }

 private:
  static constexpr std::size_t kHalf = std::size_t{1} << 16;
  static std::uint32_t magnitude(float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  }
  std::span<const float> values_;
  std::uint32_t threshold_ = 0;
  std::size_t equals_ = 0;  // values of the threshold itself that still travel
};

/// One vector (the delta, or the control variates) on its way into a file.
class VectorEncoder {
 public:
  VectorEncoder(const Layout& layout, std::span<const float> values, std::string_view prefix,
                Encoding encoding, const EncodeOptions& options)
      : layout_(layout), values_(values), prefix_(prefix), encoding_(encoding), options_(options) {}

  void plan(UpdateWriter& writer) {
    std::optional<Selection> selection;
    if (encoding_ == Encoding::kTopK && !values_.empty()) selection.emplace(values_, options_.keep);
    for (const LayoutTensor& tensor : layout_.tensors()) {
      // Tensors of zeros travel as nothing.
      if (kernels::max_magnitude(values_.data() + tensor.first, tensor.size) == 0) {
        if (!selection || tensor.size == 0) continue;
      }
      const std::string name = std::string(prefix_) + tensor.name;
      Piece piece;
      piece.tensor = &tensor;
      if (encoding_ == Encoding::kInt8) {
        const std::size_t blocks = int8_blocks(tensor.size);
        piece.side = writer.add(name + std::string(kScaleSuffix), DType::kFp32,
                                {static_cast<std::int64_t>(blocks)}, blocks);
        piece.values = writer.add(name, DType::kInt8, tensor.shape, tensor.size);
      } else if (encoding_ == Encoding::kTopK) {
        piece.indexes = selection->next(tensor.first, tensor.size);
        if (piece.indexes.empty()) continue;
        const tensor::Shape shape = {static_cast<std::int64_t>(piece.indexes.size())};
        piece.side = writer.add(name + std::string(kIndexSuffix), DType::kUint32, shape,
                                piece.indexes.size());
        piece.values = writer.add(name + std::string(kValueSuffix), options_.dtype, shape,
                                  piece.indexes.size());
      } else {
        piece.values = writer.add(name, options_.dtype, tensor.shape, tensor.size);
      }
      pieces_.push_back(std::move(piece));
    }
  }

  /// Writes the values. `residual`, if not empty, loses what travels; it starts as the values.
  /// `block` counts blocks of int8 over both vectors.
  Status write(UpdateWriter& writer, std::span<float> residual, std::uint64_t& block) {
    for (const Piece& piece : pieces_) {
      const std::span<const float> in = values_.subspan(piece.tensor->first, piece.tensor->size);
      const std::span<float> rest =
          residual.empty() ? residual : residual.subspan(piece.tensor->first, piece.tensor->size);
      Status status;
      if (encoding_ == Encoding::kInt8)
        write_int8(writer.bytes(piece.side), writer.bytes(piece.values), in, rest, block);
      else if (encoding_ == Encoding::kTopK)
        status = write_topk(writer.bytes(piece.side), writer.bytes(piece.values), piece.indexes, in,
                            rest);
      else
        status = write_dense(writer.bytes(piece.values), in, rest);
      if (!status.ok()) return std::move(status).context("tensor " + shown(piece.tensor->name));
    }
    return {};
  }

 private:
  struct Piece {
    const LayoutTensor* tensor = nullptr;
    std::size_t values = 0, side = 0;  // of the writer
    std::vector<std::uint32_t> indexes;
  };

  void write_int8(std::span<std::byte> scales, std::span<std::byte> out, std::span<const float> in,
                  std::span<float> rest, std::uint64_t& block) const {
    float decoded[kInt8Block];
    for (std::size_t first = 0; first < in.size(); first += kInt8Block, ++block) {
      const std::size_t count = std::min(kInt8Block, in.size() - first);
      const float greatest = kernels::max_magnitude(in.data() + first, count);
      const float scale = greatest < kInt8GreatestMin ? 0 : greatest / 127;
      const float inverse = scale == 0 ? 0 : 127 / greatest;
      std::memcpy(scales.data() + first / kInt8Block * sizeof(float), &scale, sizeof scale);
      if (scale == 0)
        std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(first), count, std::byte{0});
      else
        kernels::to_int8(in.data() + first, inverse, key_of(options_.seed, block),
                         out.data() + first, count);
      if (rest.empty()) continue;
      kernels::from_int8(out.data() + first, scale, decoded, count);
      for (std::size_t i = 0; i < count; ++i) rest[first + i] -= decoded[i];
    }
  }

  Status write_topk(std::span<std::byte> indexes, std::span<std::byte> out,
                    const std::vector<std::uint32_t>& chosen, std::span<const float> in,
                    std::span<float> rest) const {
    std::vector<float> kept;
    kept.reserve(chosen.size());
    for (const std::uint32_t i : chosen) kept.push_back(in[i]);
    std::memcpy(indexes.data(), chosen.data(), indexes.size());
    TRY_VOID(from_floats(options_.dtype, kept, out));
    if (rest.empty()) return {};
    to_floats(options_.dtype, out, kept);
    for (std::size_t i = 0; i < chosen.size(); ++i) rest[chosen[i]] -= kept[i];
    return {};
  }

  Status write_dense(std::span<std::byte> out, std::span<const float> in,
                     std::span<float> rest) const {
    TRY_VOID(from_floats(options_.dtype, in, out));
    if (rest.empty()) return {};
    std::vector<float> decoded(in.size());
    to_floats(options_.dtype, out, decoded);
    for (std::size_t i = 0; i < in.size(); ++i) rest[i] -= decoded[i];
    return {};
  }

  const Layout& layout_;
  const std::span<const float> values_;
  const std::string_view prefix_;
  const Encoding encoding_;
  const EncodeOptions& options_;
  std::vector<Piece> pieces_;
};

Status check_arguments(const UpdateInfo& info, const Layout& layout, std::span<const float> delta,
                       const EncodeOptions& options) {
  const auto invalid = [](std::string message) {
    return Error(Code::kInvalid, std::move(message));
  };
  if (delta.size() != layout.size() ||
      (!options.residual.empty() && options.residual.size() != layout.size()) ||
      (!options.control.empty() && options.control.size() != layout.size())) {
    return invalid(
        "the update, its residual or its control variates have another length than the "
        "model's " +
        std::to_string(layout.size()) + " values");
  }
  if (info.samples == 0 || info.samples > (std::uint64_t{1} << 53))
    return invalid("samples must be between 1 and 2^53");
  if (!info.metrics.is_object()) return invalid("metrics must be an object of numbers");
  for (const auto& [name, value] : info.metrics.as_object())
    if (!value.is_number() || !std::isfinite(value.as_double()))
      return invalid("the metric " + shown(name) + " is no finite number");
  const bool is_half = options.dtype == DType::kFp16;
  const bool is_dense = is_half || options.dtype == DType::kFp32 || options.dtype == DType::kBf16 ||
                        options.dtype == DType::kFp64;
  if (!is_dense) return invalid("dense values are F32, F16, BF16 or F64");
  if (options.encoding == Encoding::kTopK) {
    if (!is_half && options.dtype != DType::kFp32) return invalid("values of topk are F32 or F16");
    if (!(options.keep > 0 && options.keep <= 1)) return invalid("keep must be above 0, at most 1");
    for (const LayoutTensor& tensor : layout.tensors())
      if (tensor.size > UINT32_MAX)
        return invalid("tensor " + shown(tensor.name) + " has too many values for topk");
  }
  return {};
}

}  // namespace

Result<std::string> encode_update(const UpdateInfo& info, const Layout& layout,
                                  std::span<const float> delta, const EncodeOptions& options) {
  TRY_VOID(check_arguments(info, layout, delta, options));
  std::vector<float> whole;  // with the residual; the caller's changes only on success
  std::span<const float> values = delta;
  if (!options.residual.empty()) {
    whole.assign(delta.begin(), delta.end());
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += options.residual[i];
    values = whole;
  }
  if (!std::isfinite(kernels::max_magnitude(values.data(), values.size())) ||
      !std::isfinite(kernels::max_magnitude(options.control.data(), options.control.size())))
    return Error(Code::kInvalid, "the update has a value that is not finite");

  UpdateWriter writer;
  VectorEncoder update(layout, values, "", options.encoding, options);
  update.plan(writer);
  std::optional<VectorEncoder> control;
  if (!options.control.empty()) {
    control.emplace(layout, options.control, kControlPrefix,
                    options.encoding == Encoding::kInt8 ? Encoding::kInt8 : Encoding::kDense,
                    options);
    control->plan(writer);
  }
  SafetensorsMetadata metadata = {{"format", std::string(kUpdateFormat)},
                                  {"task", info.task},
                                  {"base", info.base.hex()},
                                  {"samples", std::to_string(info.samples)},
                                  {"steps", std::to_string(info.steps)},
                                  {"encoding", std::string(to_string(options.encoding))},
                                  {"metrics", codec::write_json(codec::sorted(info.metrics))}};
  // Zeros leave no tensors: without this member such an update would seem to lack its control
  // variates.
  if (control) metadata.emplace("control", "yes");
  TRY_VOID(writer.begin(metadata));
  std::vector<float> rest;
  if (!options.residual.empty()) rest = whole;
  std::uint64_t block = 0;
  TRY_VOID(update.write(writer, rest, block));
  if (control) TRY_VOID(control->write(writer, {}, block));
  if (!rest.empty()) std::copy(rest.begin(), rest.end(), options.residual.begin());
  return writer.take();
}

}  // namespace varda::federated
