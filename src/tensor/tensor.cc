#include "tensor/tensor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/internal/memory.h"

namespace varda::tensor {
namespace {

std::uint32_t length_at(const std::byte* at) {
  std::uint32_t length = 0;
  std::memcpy(&length, at, sizeof length);
  return length;
}

Status check_strings(std::size_t elements, std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    if (bytes.size() - at < 4) {
      return Error(Code::kInvalid, "BYTES data ends within the length of element " +
                                       std::to_string(i) + " of " + std::to_string(elements));
    }
    const std::size_t length = length_at(bytes.data() + at);
    at += 4;
    if (bytes.size() - at < length) {
      return Error(Code::kInvalid, "BYTES element " + std::to_string(i) + " says " +
                                       std::to_string(length) + " bytes, " +
                                       std::to_string(bytes.size() - at) + " are left");
    }
    at += length;
  }
  if (at != bytes.size()) {
    return Error(Code::kInvalid, std::to_string(bytes.size() - at) + " bytes follow the last of " +
                                     std::to_string(elements) + " BYTES elements");
  }
  return {};
}

Status check_size(DType dtype, const Shape& shape, std::size_t count,
                  std::span<const std::byte> bytes) {
  if (dtype == DType::kBytes) return check_strings(count, bytes);
  if (bytes.size() != count * element_bytes(dtype)) {
    return Error(Code::kInvalid, "shape " + to_string(shape) + " of " +
                                     std::string(to_string(dtype)) + " takes " +
                                     std::to_string(count * element_bytes(dtype)) + " bytes, not " +
                                     std::to_string(bytes.size()));
  }
  if (dtype == DType::kBool) {
    // Engines read elements as C++ bool, where other values are undefined behaviour.
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte value) {
      return std::to_integer<unsigned>(value) > 1;
    });
    if (bad != bytes.end()) {
      return Error(Code::kInvalid, "BOOL element " + std::to_string(bad - bytes.begin()) + " is " +
                                       std::to_string(std::to_integer<unsigned>(*bad)) +
                                       ", neither 0 nor 1");
    }
  }
  return {};
}

}  // namespace

Result<std::size_t> Tensor::bytes_of(DType dtype, const Shape& shape) {
  if (dtype == DType::kBytes) return Error(Code::kInvalid, "a BYTES tensor is made of its items");
  TRY(const std::size_t count, elements(shape));
  return count * element_bytes(dtype);
}

Result<Tensor> Tensor::in(std::shared_ptr<std::byte> memory, DType dtype, Shape shape) {
  Tensor tensor;
  TRY(tensor.elements_, elements(shape));
  tensor.dtype_ = dtype;
  tensor.writable_ = true;
  tensor.shape_ = std::move(shape);
  tensor.bytes_ = {memory.get(), tensor.elements_ * element_bytes(dtype)};
  tensor.owner_ = std::move(memory);
  return tensor;
}

Result<Tensor> Tensor::allocate(DType dtype, Shape shape, Fill fill) {
  TRY(const std::size_t size, bytes_of(dtype, shape));
  TRY(internal::Memory data, internal::allocate_memory(size));
  if (fill == Fill::kZero) std::memset(data.get(), 0, size);
  return in(std::move(data), dtype, std::move(shape));
}

Result<Tensor> Tensor::over(DType dtype, Shape shape, std::span<const std::byte> bytes,
                            std::shared_ptr<const void> owner) {
  const std::size_t alignment = element_bytes(dtype);
  if (alignment > 1 && reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment != 0)
    return copy(dtype, std::move(shape), bytes);
  TRY(const std::size_t count, elements(shape));
  TRY_VOID(check_size(dtype, shape, count, bytes));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.elements_ = count;
  tensor.bytes_ = bytes;
  tensor.owner_ = std::move(owner);
  return tensor;
}

Result<Tensor> Tensor::copy(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  TRY(const std::size_t count, elements(shape));
  TRY_VOID(check_size(dtype, shape, count, bytes));
  TRY(internal::Memory data, internal::allocate_memory(bytes.size()));
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.writable_ = true;
  tensor.shape_ = std::move(shape);
  tensor.elements_ = count;
  tensor.bytes_ = {data.get(), bytes.size()};
  tensor.owner_ = std::shared_ptr<const std::byte>(std::move(data));
  return tensor;
}

Result<Tensor> Tensor::of_strings(Shape shape, std::span<const std::string> items) {
  TRY(const std::size_t count, elements(shape));
  if (count != items.size()) {
    return Error(Code::kInvalid, "shape " + to_string(shape) + " takes " + std::to_string(count) +
                                     " items, not " + std::to_string(items.size()));
  }
  auto encoded = std::make_shared<std::string>();
  std::size_t size = 0;
  for (const std::string& item : items) size += 4 + item.size();
  encoded->reserve(size);
  for (const std::string& item : items) {
    if (item.size() > std::numeric_limits<std::uint32_t>::max())
      return Error(Code::kInvalid, "a BYTES element is larger than 4 GiB");
    const auto length = static_cast<std::uint32_t>(item.size());
    char prefix[4];
    std::memcpy(prefix, &length, 4);
    encoded->append(prefix, 4).append(item);
  }
  const auto bytes = std::as_bytes(std::span<const char>(*encoded));
  return over(DType::kBytes, std::move(shape), bytes, std::move(encoded));
}

std::span<std::byte> Tensor::mutable_bytes() {
  CHECK(writable_ || bytes_.empty());
  return {const_cast<std::byte*>(bytes_.data()), bytes_.size()};
}

std::vector<std::string_view> Tensor::strings() const {
  CHECK(dtype_ == DType::kBytes);
  std::vector<std::string_view> out;
  out.reserve(elements_);
  const std::byte* at = bytes_.data();
  for (std::size_t i = 0; i < elements_; ++i) {
    const std::uint32_t length = length_at(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 4), length);
    at += 4 + length;
  }
  return out;
}

Result<Tensor> Tensor::reshaped(Shape shape) const {
  TRY(const std::size_t count, elements(shape));
  if (count != elements_) {
    return Error(Code::kInvalid,
                 "shape " + to_string(shape_) + " cannot become " + to_string(shape));
  }
  Tensor tensor = *this;
  tensor.shape_ = std::move(shape);
  return tensor;
}

}  // namespace varda::tensor
