// Memory for the values of tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <stdlib.h>
#include <string>

#include "base/result.h"

namespace varda::tensor::internal {

struct FreeMemory {
  void operator()(std::byte* p) const { ::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

/// A cache line, and the widest vector loads.
inline constexpr std::size_t kAlignment = 64;

/// The bytes are undefined. kExhausted.
inline Result<Memory> allocate_memory(std::size_t size, std::size_t alignment = kAlignment) {
  const std::size_t rounded =
      size > 0 ? (size + kAlignment - 1) / kAlignment * kAlignment : kAlignment;
  void* raw = nullptr;
  if (::posix_memalign(&raw, alignment, rounded) != 0)
    return Error(Code::kExhausted, "no memory for a tensor of " + std::to_string(size) + " bytes");
  return Memory(static_cast<std::byte*>(raw));
}

}  // namespace varda::tensor::internal
