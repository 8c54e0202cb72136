// NumPy's file format .npy, converted to tensors.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::oip {

/// Reads a file written by numpy.save() (format versions 1 to 3). kInvalid: another format, or
/// torn. kUnsupported: big-endian numbers, Fortran order, and element types that the protocol lacks
/// (strings, dates, objects, complex numbers).
Result<tensor::Tensor> parse_npy(std::string_view bytes);

}  // namespace varda::oip
