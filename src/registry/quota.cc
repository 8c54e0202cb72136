#include "registry/quota.h"

#include <string>

namespace varda::registry {

Status check_room(const Usage& used, const Quota& quota, std::uint64_t total) {
  if (used.uploads >= quota.unfinished_max)
    return Error(Code::kExhausted,
                 std::to_string(used.uploads) + " uploads are unfinished; finish or delete some");
  if (quota.bytes == 0) return {};
  const std::uint64_t taken = used.stored_bytes + used.reserved_bytes;
  if (taken <= quota.bytes && total <= quota.bytes - taken) return {};
  return Error(Code::kExhausted,
               "the blob has " + std::to_string(total) + " bytes, but of the quota of " +
                   std::to_string(quota.bytes) + " bytes, stored blobs use " +
                   std::to_string(used.stored_bytes) + " and unfinished uploads " +
                   std::to_string(used.reserved_bytes) +
                   "; delete versions or unfinished uploads, or raise --quota");
}

}  // namespace varda::registry
