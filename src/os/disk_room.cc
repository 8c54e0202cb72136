#include "os/disk_room.h"

#include <algorithm>
#include <string>

namespace varda::os {

Status DiskRoom::take(std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 256 << 10, kReserveMax = 64 << 20, kReservePart = 20;
  if (bytes <= left_) {
    left_ -= bytes;
    return {};
  }
  const std::uint64_t wanted = std::max(bytes, kStep);
  TRY(const Space space, fs_.space(place_));
  const std::uint64_t reserve = std::min(kReserveMax, space.capacity_bytes / kReservePart);
  if (space.available_bytes < reserve + bytes) {
    return Error(Code::kExhausted, "the disk is full: " + std::to_string(space.available_bytes) +
                                       " bytes are free, of which " + std::to_string(reserve) +
                                       " are reserved for other writers");
  }
  left_ = std::min(wanted, space.available_bytes - reserve) - bytes;
  return {};
}

}  // namespace varda::os
