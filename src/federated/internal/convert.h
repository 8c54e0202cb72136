// Numbers of a file as floats, and back.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace varda::federated {

/// Integers and floating-point types; not BOOL, not BYTES.
bool is_numeric(tensor::DType dtype);

/// Rounds to the nearest float. `in` may be unaligned; CHECKs the sizes and is_numeric().
void to_floats(tensor::DType dtype, std::span<const std::byte> in, std::span<float> out);

/// Rounds to nearest, ties to even; integers saturate. `out` may be unaligned. kInvalid: a value is
/// not finite, or too large for F16.
Status from_floats(tensor::DType dtype, std::span<const float> in, std::span<std::byte> out);

}  // namespace varda::federated
