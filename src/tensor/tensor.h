// Tensor: a type, a shape and the bytes, owned or borrowed.
//
// Bytes are dense, row-major and little-endian. A kBytes tensor holds, for each element, a 32-bit little-endian length and that
// many bytes: the form in which the Open Inference Protocol's binary extension carries it, so that it passes through unchanged.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace varda::tensor {

/// Cheap to copy: copies share the bytes. Safe to read from several threads; writing through mutable_bytes() is the business of
/// whoever has the only copy.
class Tensor {
 public:
  /// An FP32 tensor without elements, shape [0].
  Tensor() = default;

  /// Zeroed memory of its own, aligned to 64 bytes. kInvalid: shape, or kBytes (whose size a shape does not tell).
  static Result<Tensor> allocate(DType dtype, Shape shape);
  /// Over bytes that `keeper` keeps alive; with a null keeper the caller sees to that. kInvalid: the number of bytes is not what
  /// the shape asks for, the elements of a kBytes tensor do not add up, or a byte of a kBool tensor is neither 0 nor 1. Bytes that
  /// are not aligned for the type are copied.
  static Result<Tensor> over(DType dtype, Shape shape, std::span<const std::byte> bytes, std::shared_ptr<const void> keeper);
  /// A copy of values.
  template <typename T>
  static Result<Tensor> of(DType dtype, Shape shape, std::span<const T> values) {
    return copy(dtype, std::move(shape), std::as_bytes(values));
  }
  static Result<Tensor> copy(DType dtype, Shape shape, std::span<const std::byte> bytes);
  /// A kBytes tensor. kInvalid: shape and number of items differ, or an item has 2^32 bytes or more.
  static Result<Tensor> of_strings(Shape shape, std::span<const std::string> items);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t size() const { return elements_; }  // elements
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Only of a tensor that allocate() made.
  std::span<std::byte> mutable_bytes();

  /// The elements as T, whose size is the element's: CHECKed.
  template <typename T>
  std::span<const T> values() const {
    CHECK(sizeof(T) == element_bytes(dtype_));
    return {reinterpret_cast<const T*>(bytes_.data()), elements_};
  }
  template <typename T>
  std::span<T> mutable_values() {
    CHECK(sizeof(T) == element_bytes(dtype_));
    return {reinterpret_cast<T*>(mutable_bytes().data()), elements_};
  }
  /// The elements of a kBytes tensor, valid as long as the tensor.
  std::vector<std::string_view> strings() const;

  /// The same bytes under another shape of as many elements; kInvalid otherwise.
  Result<Tensor> reshaped(Shape shape) const;

 private:
  DType dtype_ = DType::kFp32;
  bool writable_ = false;
  Shape shape_ = {0};
  std::size_t elements_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keeper_;
};

/// A tensor as a model's input or output.
struct Named {
  std::string name;
  Tensor tensor;
};

/// What a model takes or gives: -1 in the shape for any size.
struct Spec {
  std::string name;
  DType dtype = DType::kFp32;
  Shape shape;
  friend bool operator==(const Spec&, const Spec&) = default;
};

}  // namespace varda::tensor
