#include "samples/internal/array.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/gzip.h"
#include "samples/samples.h"
#include "tensor/npy.h"
#include "tensor/visit.h"

namespace varda::samples::internal {
namespace {

constexpr std::size_t kGzipReadBytes = 256 << 10;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kNpyMagic = "\x93NUMPY";

Error too_large_unpacked() {
  return Error(Code::kExhausted, "the unpacked arrays have more than " +
                                     std::to_string(kUnpackedBytesMax >> 20) +
                                     " MiB; unpack the file, or save X.npy and y.npy");
}

Result<std::string> gunzip(const Context& ctx, os::ReadableFile& file, std::uint64_t bytes_max) {
  const auto decoder = codec::GzipDecoder::create();
  std::string out, piece;
  std::uint64_t offset = 0;
  // One byte more than allowed, to notice that.
  const auto out_max = static_cast<std::size_t>(bytes_max) + 1;
  while (!decoder->ended()) {
    TRY_VOID(ctx.check());
    piece.resize(kGzipReadBytes);
    TRY(const std::size_t count, file.read(offset, piece));
    if (count == 0) return Error(Code::kCorrupt, "the compressed file ends too early");
    piece.resize(count);
    offset += count;
    TRY(const std::size_t used, decoder->feed(piece, out, out_max));
    if (out.size() > bytes_max) return too_large_unpacked();
    if (used < count && !decoder->ended())
      return Error(Code::kCorrupt, "the compressed file is damaged");
  }
  return out;
}

Result<ArrayHeader> parse_header(std::string_view beginning) {
  if (beginning.starts_with(kNpyMagic)) {
    TRY(const tensor::NpyHeader npy, tensor::parse_npy_header(beginning));
    return ArrayHeader{.dtype = npy.dtype,
                       .big_endian = false,
                       .shape = npy.shape,
                       .data_at = npy.data_at,
                       .data_bytes = npy.data_bytes};
  }
  return parse_idx_header(beginning);
}

/// One value at `bytes`, as a number.
template <typename T>
double number_at(const char* bytes, bool big_endian) {
  char raw[sizeof(T)];
  std::memcpy(raw, bytes, sizeof(T));
  if (big_endian) std::reverse(raw, raw + sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return raw[0] != 0 ? 1 : 0;
  } else if constexpr (tensor::kIsHalf<T>) {
    T value;
    std::memcpy(&value, raw, sizeof(T));
    return static_cast<double>(value.value());
  } else {
    T value;
    std::memcpy(&value, raw, sizeof(T));
    return static_cast<double>(value);
  }
}

}  // namespace

Result<ArrayHeader> parse_idx_header(std::string_view bytes) {
  using tensor::DType;
  constexpr struct {
    unsigned char code;
    DType dtype;
  } kTypes[] = {{0x08, DType::kUint8}, {0x09, DType::kInt8}, {0x0B, DType::kInt16},
                {0x0C, DType::kInt32}, {0x0D, DType::kFp32}, {0x0E, DType::kFp64}};
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0)
    return Error(Code::kInvalid, "neither an idx nor a npy file");
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const auto& one) { return one.code == byte(2); });
  const std::size_t rank = byte(3);
  if (type == std::end(kTypes) || rank == 0 || rank > 8)
    return Error(Code::kInvalid, "the idx file has a damaged header");
  ArrayHeader out{.dtype = type->dtype, .big_endian = true, .shape = {}, .data_at = 4 + 4 * rank};
  if (bytes.size() < out.data_at)
    return Error(Code::kInvalid, "the idx file ends within its header");
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t size = 0;
    for (std::size_t j = 0; j < 4; ++j) size = size << 8 | byte(4 + 4 * i + j);
    out.shape.push_back(size);
  }
  TRY(const std::size_t values, tensor::elements(out.shape));
  out.data_bytes = std::uint64_t{values} * tensor::element_bytes(out.dtype);
  return out;
}

Status Array::check_size(std::uint64_t bytes) {
  const std::uint64_t data = bytes - std::min(bytes, header_.data_at);
  if (data != header_.data_bytes)
    return Error(Code::kInvalid, "the file has " + std::to_string(data) +
                                     " bytes of values, but its header says " +
                                     std::to_string(header_.data_bytes) + "; copy the file again");
  if (header_.shape.empty()) return Error(Code::kInvalid, "the array is one number, without rows");
  rows_ = static_cast<std::size_t>(header_.shape[0]);
  row_bytes_ = rows_ == 0 ? 0 : header_.data_bytes / rows_;
  if (row_bytes_ > kImageBytesMax)
    return Error(Code::kExhausted,
                 "a row has more than " + std::to_string(kImageBytesMax >> 20) + " MiB");
  return {};
}

Result<Array> Array::open(const Context& ctx, os::ReadableTree& tree, const os::Path& path,
                          std::uint64_t& memory_left) {
  const auto opened = [&]() -> Result<Array> {
    TRY(const auto file, tree.open(path));
    std::string beginning(tensor::kNpyHeaderBytesMax, '\0');
    TRY(const std::size_t count, file->read(0, beginning));
    beginning.resize(count);
    if (beginning.starts_with(kGzipMagic)) {
      TRY(std::string bytes, gunzip(ctx, *file, memory_left));
      memory_left -= bytes.size();
      return of_bytes(path.filename().string(), std::move(bytes));
    }
    Array out;
    out.name_ = path.filename().string();
    TRY(out.header_, parse_header(beginning));
    TRY(out.facts_, file->facts());
    TRY_VOID(out.check_size(out.facts_.size_bytes));
    out.tree_ = &tree;
    out.path_ = path;
    return out;
  };
  return opened().context(path.filename().string());
}

Result<Array> Array::of_bytes(std::string name, std::string bytes) {
  Array out;
  out.name_ = std::move(name);
  TRY(out.header_, parse_header(bytes));
  TRY_VOID(out.check_size(bytes.size()));
  out.memory_ = std::make_shared<const std::string>(std::move(bytes));
  return out;
}

Result<std::string_view> Array::Rows::bytes(std::size_t row) {
  const std::uint64_t at = row * array_.row_bytes_;
  const auto size = static_cast<std::size_t>(array_.row_bytes_);
  if (array_.memory_)
    return std::string_view(*array_.memory_)
        .substr(static_cast<std::size_t>(array_.header_.data_at + at), size);
  if (!file_) {
    TRY(file_, array_.tree_->open(array_.path_));
    TRY_VOID(check_unchanged(*file_, array_.facts_));
  }
  if (at < block_at_ || at + size > block_at_ + block_.size()) {
    const std::uint64_t left = array_.header_.data_bytes - at;
    block_.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(left, std::max(size, block_bytes_))));
    block_at_ = at;
    TRY_VOID(read_exactly(*file_, array_.header_.data_at + at, block_));
  }
  return std::string_view(block_).substr(static_cast<std::size_t>(at - block_at_), size);
}

Result<std::span<const double>> Array::Rows::values(std::size_t row) {
  TRY(const std::string_view raw, bytes(row));
  const ArrayHeader& header = array_.header_;
  const std::size_t step = tensor::element_bytes(header.dtype);
  values_.resize(raw.size() / step);
  tensor::visit_dtype(header.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, tensor::Bytes>) {
      for (std::size_t i = 0; i < values_.size(); ++i)
        values_[i] = number_at<T>(raw.data() + i * step, header.big_endian);
    }
  });
  return std::span<const double>(values_);
}

}  // namespace varda::samples::internal
