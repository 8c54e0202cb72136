#include "store/room.h"

#include <cstdio>

namespace varda::store {

Status room_for_objects(os::FileSystem& fs, const std::filesystem::path& file) {
  constexpr std::uint64_t kScarceBytes = 1 << 20;
  TRY(const os::Space space, fs.space(file.parent_path()));
  TRY(const auto info, fs.stat(file.string() + ".reserve"));
  const bool reserved = info && info->size_bytes == kReserveBytes;
  // Without the reserve, requires space for two reserves.
  if (space.available_bytes >= (reserved ? kScarceBytes : 2 * kReserveBytes)) return {};
  return disk_is_full(fs, file);
}

Error disk_is_full(os::FileSystem& fs, const std::filesystem::path& file) {
  char left[32] = "";
  if (const auto space = fs.space(file.parent_path()); space.ok()) {
    std::snprintf(left, sizeof left, " (%.1f MiB left)",
                  static_cast<double>(space->available_bytes) / (1 << 20));
  }
  return Error(Code::kExhausted, "the disk of " + file.parent_path().string() + " is full" + left);
}

}  // namespace varda::store
