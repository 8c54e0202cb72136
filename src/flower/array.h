// One array of NumPy in a message: the bytes that numpy.save() writes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/npy.h"
#include "tensor/tensor.h"

namespace varda::flower {

/// A view of an array's bytes, possibly unaligned.
class Array {
 public:
  /// Borrows `npy`. kInvalid: torn, or another format. kUnsupported: big-endian numbers, and types
  /// that are no numbers, such as pickled objects.
  static Result<Array> parse(std::string_view npy);

  tensor::DType dtype() const { return header_.dtype; }
  const tensor::Shape& shape() const { return header_.shape; }
  std::size_t size() const { return size_; }  // elements
  /// The values as floats in row-major order; `out` has size() elements. F64 and integers are
  /// rounded. kInvalid: a value is not finite, or does not fit a float.
  Status to_floats(std::span<float> out) const;

 private:
  tensor::NpyHeader header_;
  std::size_t size_ = 0;
  std::string_view data_;
};

}  // namespace varda::flower
