// The rule for new uploads, of every store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/blob_store.h"

namespace varda::registry {

struct Quota {
  std::uint64_t bytes = 0;  // of blobs and of the totals of unfinished uploads; 0: no limit
  std::size_t unfinished_max = 0;
};

/// kExhausted: no room for another upload of `total` bytes.
Status check_room(const Usage& used, const Quota& quota, std::uint64_t total);

}  // namespace varda::registry
