#include "tensor/npy.h"

#include <charconv>
#include <optional>
#include <string>

#include "base/check.h"

namespace varda::tensor {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kNpyRankMax = 32;  // NumPy's limit

struct NpyDictionary {
  std::string type;  // "<f4"
  bool fortran_order = false;
  Shape shape;
  bool has_type = false, has_order = false, has_shape = false;
};

/// Reads a Python dictionary like {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(std::string_view text) : remaining_(text) {}

  std::optional<NpyDictionary> read() {
    NpyDictionary out;
    if (!take("{")) return std::nullopt;
    while (!take("}")) {
      std::string key;
      if (!read_string(key) || !take(":")) return std::nullopt;
      if (key == "descr") {
        // Structured types are lists, which no tensor type matches.
        if (peek() == '[') {
          out.type = "a structure";
          return out;
        }
        out.has_type = read_string(out.type);
        if (!out.has_type) return std::nullopt;
      } else if (key == "fortran_order") {
        out.has_order = true;
        out.fortran_order = take("True");
        if (!out.fortran_order && !take("False")) return std::nullopt;
      } else if (key == "shape") {
        out.has_shape = true;
        if (!read_shape(out.shape)) return std::nullopt;
      } else {
        return std::nullopt;
      }
      if (!take(",") && peek() != '}') return std::nullopt;
    }
    skip_blanks();
    if (!remaining_.empty() || !out.has_type || !out.has_order || !out.has_shape)
      return std::nullopt;
    return out;
  }

 private:
  void skip_blanks() {
    const std::size_t first = remaining_.find_first_not_of(" \t\n");
    remaining_.remove_prefix(first == std::string_view::npos ? remaining_.size() : first);
  }
  char peek() {
    skip_blanks();
    return remaining_.empty() ? '\0' : remaining_.front();
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (!remaining_.starts_with(token)) return false;
    remaining_.remove_prefix(token.size());
    return true;
  }
  bool read_string(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const std::size_t end = remaining_.find(quote, 1);
    if (end == std::string_view::npos) return false;
    out = std::string(remaining_.substr(1, end - 1));
    remaining_.remove_prefix(end + 1);
    return true;
  }
  bool read_shape(Shape& out) {
    if (!take("(")) return false;
    while (!take(")")) {
      skip_blanks();
      std::int64_t size = 0;
      const auto [end, error] =
          std::from_chars(remaining_.data(), remaining_.data() + remaining_.size(), size);
      if (error != std::errc() || size < 0 || out.size() == kNpyRankMax) return false;
      remaining_.remove_prefix(static_cast<std::size_t>(end - remaining_.data()));
      out.push_back(size);
      if (!take(",") && peek() != ')') return false;
    }
    return true;
  }

  std::string_view remaining_;
};

constexpr struct {
  std::string_view name;
  DType dtype;
} kNpyTypes[] = {{"|b1", DType::kBool},   {"|u1", DType::kUint8},  {"<u2", DType::kUint16},
                 {"<u4", DType::kUint32}, {"<u8", DType::kUint64}, {"|i1", DType::kInt8},
                 {"<i2", DType::kInt16},  {"<i4", DType::kInt32},  {"<i8", DType::kInt64},
                 {"<f2", DType::kFp16},   {"<f4", DType::kFp32},   {"<f8", DType::kFp64}};

std::optional<DType> npy_dtype(std::string_view type) {
  for (const auto& one : kNpyTypes)
    if (one.name == type) return one.dtype;
  return std::nullopt;
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view bytes, NpyOrder order) {
  if (!bytes.starts_with(kMagic)) return Error(Code::kInvalid, "not a NumPy file (.npy)");
  const Error torn(Code::kInvalid, "the NumPy file ends within its header");
  if (bytes.size() < 10) return torn;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3)
    return Error(Code::kUnsupported, "the NumPy file has format version " +
                                         std::to_string(version) + "; versions 1 to 3 are read");
  const std::size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) return torn;
  const std::size_t length = version == 1
                                 ? byte(8) | byte(9) << 8
                                 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (bytes.size() - start < length) return torn;
  const std::optional<NpyDictionary> header = NpyHeaderReader(bytes.substr(start, length)).read();
  if (!header) return Error(Code::kInvalid, "the NumPy file has a damaged header");
  const std::optional<DType> dtype = npy_dtype(header->type);
  if (!dtype) {
    std::string type = header->type.substr(0, 32);
    for (char& c : type)  // a terminal may show it
      if (c < ' ' || c > '~') c = '?';
    return Error(Code::kUnsupported, "the NumPy file holds elements of type " + type +
                                         "; little-endian numbers and booleans are read");
  }
  if (header->fortran_order && order == NpyOrder::kRowMajor)
    return Error(Code::kUnsupported,
                 "the NumPy file is in Fortran order; save numpy.ascontiguousarray(…) instead");
  TRY(const std::size_t values, elements(header->shape));
  return NpyHeader{.dtype = *dtype,
                   .shape = header->shape,
                   .fortran_order = header->fortran_order,
                   .data_at = start + length,
                   .data_bytes = values * element_bytes(*dtype)};
}

std::string npy_header(DType dtype, const Shape& shape) {
  std::string_view type;
  for (const auto& one : kNpyTypes)
    if (one.dtype == dtype) type = one.name;
  CHECK(!type.empty());
  std::string text = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t size : shape) text += std::to_string(size) + ", ";
  if (shape.size() > 1) text.resize(text.size() - 2);
  if (shape.size() == 1) text.pop_back();
  text += "), }";
  // The values begin at a multiple of 64.
  constexpr std::size_t kBefore = 10;
  text.resize((kBefore + text.size() + 1 + 63) / 64 * 64 - kBefore - 1, ' ');
  text += '\n';
  std::string out(kMagic);
  out += {'\1', '\0', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return out + text;
}

}  // namespace varda::tensor
