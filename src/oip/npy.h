// NumPy's file format .npy, made into the tensors a model takes.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::oip {

/// Reads the file that numpy.save() writes (format versions 1 to 3). kInvalid: no such file, or torn. kUnsupported: big-endian
/// numbers, Fortran order, and element types that the protocol does not have (strings, dates, objects, complex numbers).
Result<tensor::Tensor> parse_npy(std::string_view bytes);

}  // namespace varda::oip
