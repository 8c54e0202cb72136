#include "tensor/dtype.h"

#include <array>

namespace varda::tensor {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Entry, 14> kEntries = {{
    {DType::kBool, "BOOL", 1},
    {DType::kUint8, "UINT8", 1},
    {DType::kUint16, "UINT16", 2},
    {DType::kUint32, "UINT32", 4},
    {DType::kUint64, "UINT64", 8},
    {DType::kInt8, "INT8", 1},
    {DType::kInt16, "INT16", 2},
    {DType::kInt32, "INT32", 4},
    {DType::kInt64, "INT64", 8},
    {DType::kFp16, "FP16", 2},
    {DType::kFp32, "FP32", 4},
    {DType::kFp64, "FP64", 8},
    {DType::kBytes, "BYTES", 0},
    {DType::kBf16, "BF16", 2},
}};

// Checks that the table is sorted by number, since it is indexed by number.
constexpr bool in_order() {
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (static_cast<std::size_t>(kEntries[i].dtype) != i + 1) return false;
  }
  return true;
}
static_assert(in_order());

const Entry& entry(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype) - 1;
  CHECK(index < kEntries.size());
  return kEntries[index];
}

constexpr std::size_t kElementsMax = std::size_t{1} << 48;

}  // namespace

std::string_view to_string(DType dtype) { return entry(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(int number) {
  if (number < 1 || number > static_cast<int>(kEntries.size())) return std::nullopt;
  return static_cast<DType>(number);
}

std::size_t element_bytes(DType dtype) { return entry(dtype).bytes; }

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

Result<std::size_t> elements(const Shape& shape) {
  std::size_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0)
      return Error(Code::kInvalid, "shape " + to_string(shape) + " has a negative dimension");
    if (size == 0) {
      empty = true;
    } else if (static_cast<std::uint64_t>(size) > kElementsMax / count) {
      return Error(Code::kInvalid, "shape " + to_string(shape) + " has too many elements");
    } else {
      count *= static_cast<std::size_t>(size);
    }
  }
  return empty ? 0 : count;
}

bool fits(const Shape& shape, const Shape& specification) {
  if (shape.size() != specification.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (specification[i] >= 0 && specification[i] != shape[i]) return false;
  }
  return true;
}

}  // namespace varda::tensor
