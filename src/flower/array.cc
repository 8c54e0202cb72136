#include "flower/array.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensor/visit.h"

namespace varda::flower {
namespace {

template <typename T>
float float_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (tensor::kIsHalf<T>) {
    return value.value();
  } else {
    return static_cast<float>(value);
  }
}

/// Calls `visit` with the row-major index of each value, in Fortran order.
template <typename Visit>
void each_in_fortran_order(const tensor::Shape& shape, std::size_t size, const Visit& visit) {
  const std::size_t rank = shape.size();
  std::vector<std::size_t> index(rank, 0), stride(rank, 1);
  for (std::size_t i = rank; i-- > 1;)
    stride[i - 1] = stride[i] * static_cast<std::size_t>(shape[i]);
  std::size_t at = 0;
  for (std::size_t n = 0; n < size; ++n) {
    visit(n, at);
    for (std::size_t axis = 0; axis < rank; ++axis) {
      at += stride[axis];
      if (++index[axis] < static_cast<std::size_t>(shape[axis])) break;
      at -= stride[axis] * index[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

Result<Array> Array::parse(std::string_view npy) {
  Array out;
  TRY(out.header_, tensor::parse_npy_header(npy, tensor::NpyOrder::kAny));
  TRY(out.size_, tensor::elements(out.header_.shape));
  out.data_ = npy.substr(out.header_.data_at);
  if (out.data_.size() != out.header_.data_bytes) {
    return Error(Code::kInvalid, "the array has " + std::to_string(out.data_.size()) +
                                     " bytes of values; its header says " +
                                     std::to_string(out.header_.data_bytes));
  }
  return out;
}

Status Array::to_floats(std::span<float> out) const {
  CHECK(out.size() == size_);
  if (header_.dtype == tensor::DType::kFp32 && !header_.fortran_order) {
    if (size_ > 0) std::memcpy(out.data(), data_.data(), data_.size());
  } else {
    tensor::visit_dtype(header_.dtype, [&]<typename T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<T, bool>) {
        for (std::size_t i = 0; i < size_; ++i) out[i] = data_[i] != '\0' ? 1.0f : 0.0f;
      } else if constexpr (!std::is_same_v<T, tensor::Bytes>) {
        if (header_.fortran_order) {
          each_in_fortran_order(header_.shape, size_, [&](std::size_t from, std::size_t to) {
            out[to] = float_at<T>(data_.data() + from * sizeof(T));
          });
        } else {
          for (std::size_t i = 0; i < size_; ++i)
            out[i] = float_at<T>(data_.data() + i * sizeof(T));
        }
      }
    });
  }
  for (std::size_t i = 0; i < size_; ++i) {
    if (!std::isfinite(out[i]))
      return Error(Code::kInvalid, "value " + std::to_string(i) + " of the array is not finite");
  }
  return {};
}

}  // namespace varda::flower
