// The header of NumPy's file format .npy: read and written.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace varda::tensor {

struct NpyHeader {
  DType dtype = DType::kFp32;
  Shape shape;
  bool fortran_order = false;  // the first index varies fastest
  std::size_t data_at = 0;     // offset of the values: little-endian
  std::size_t data_bytes = 0;  // by type and shape; the file may be shorter
};

/// Headers that numpy.save() writes are shorter.
inline constexpr std::size_t kNpyHeaderBytesMax = 64 << 10;

enum class NpyOrder { kRowMajor, kAny };

/// Reads the beginning of a file written by numpy.save() (format versions 1 to 3). kInvalid:
/// another format, or torn. kUnsupported: big-endian numbers, Fortran order unless `order` allows
/// it, and element types that tensors lack (strings, dates, objects, complex numbers).
Result<NpyHeader> parse_npy_header(std::string_view bytes, NpyOrder order = NpyOrder::kRowMajor);

/// The bytes before row-major values, as numpy.save() writes them. CHECKs that the format has the
/// type: kBf16 and kBytes are missing.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace varda::tensor
