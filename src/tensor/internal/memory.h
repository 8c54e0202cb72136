// Memory for the values of tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/result.h"

namespace varda::tensor::internal {

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

/// Aligned to a cache line and to the widest vector loads. The bytes are undefined. kExhausted.
inline Result<Memory> allocate_memory(std::size_t size) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded =
      size > 0 ? (size + kAlignment - 1) / kAlignment * kAlignment : kAlignment;
  void* raw = std::aligned_alloc(kAlignment, rounded);
  if (raw == nullptr)
    return Error(Code::kExhausted, "no memory for a tensor of " + std::to_string(size) + " bytes");
  return Memory(static_cast<std::byte*>(raw));
}

}  // namespace varda::tensor::internal
