// Tensor: a type, a shape and the bytes, owned or borrowed.
//
// Bytes are dense, row-major and little-endian. Each element of a kBytes tensor is a 32-bit
// little-endian length and that many bytes. The binary extension of the Open Inference Protocol has
// the same form, so these bytes pass through unchanged.
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

/// Cheap to copy: copies share the bytes. Concurrent reads are safe; only the owner of the single
/// copy may write through mutable_bytes().
class Tensor {
 public:
  /// An FP32 tensor without elements, shape [0].
  Tensor() = default;

  enum class Fill { kZero, kNone };  // kNone: the values are undefined, and the caller writes all

  /// New memory, aligned to 64 bytes. kInvalid: bad shape, or kBytes, where the shape does not
  /// determine the size.
  static Result<Tensor> allocate(DType dtype, Shape shape, Fill fill = Fill::kZero);
  /// A view of bytes that `owner` keeps alive; with a null keeper the caller keeps them alive.
  /// Bytes that are not aligned for the type are copied. kInvalid: the number of bytes differs from
  /// the shape's, lengths in a kBytes tensor are wrong, or a kBool byte exceeds 1.
  static Result<Tensor> over(DType dtype, Shape shape, std::span<const std::byte> bytes,
                             std::shared_ptr<const void> owner);
  /// Copies the values.
  template <typename T>
  static Result<Tensor> of(DType dtype, Shape shape, std::span<const T> values) {
    return copy(dtype, std::move(shape), std::as_bytes(values));
  }
  static Result<Tensor> copy(DType dtype, Shape shape, std::span<const std::byte> bytes);
  /// A kBytes tensor. kInvalid: shape and number of items differ, or an item has 2^32 bytes or
  /// more.
  static Result<Tensor> of_strings(Shape shape, std::span<const std::string> items);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t size() const { return elements_; }  // elements
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Only for tensors made by allocate(), copy() or a Pool.
  std::span<std::byte> mutable_bytes();

  /// The elements as T; CHECKs that sizeof(T) is the element size.
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

  /// The same bytes in another shape; kInvalid if the number of elements differs.
  Result<Tensor> reshaped(Shape shape) const;

 private:
  friend class Pool;
  static Result<std::size_t> bytes_of(DType dtype, const Shape& shape);  // errors: as allocate()
  /// A writable tensor in memory that is large enough.
  static Result<Tensor> in(std::shared_ptr<std::byte> memory, DType dtype, Shape shape);

  DType dtype_ = DType::kFp32;
  bool writable_ = false;
  Shape shape_ = {0};
  std::size_t elements_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// A tensor as a model's input or output.
struct Named {
  std::string name;
  Tensor tensor;
};

/// An input or output of a model: -1 in the shape for any size.
struct Spec {
  std::string name;
  DType dtype = DType::kFp32;
  Shape shape;
  friend bool operator==(const Spec&, const Spec&) = default;
};

}  // namespace varda::tensor
