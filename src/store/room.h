// Room on the disk of a store.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::store {

/// Put aside beside the file, in FILE.reserve, for what frees room.
inline constexpr std::uint64_t kReserveBytes = 4 << 20;

/// Whether a store with that file (open_sqlite()) takes new objects. Asks the disk, and writes nothing. kExhausted: they are
/// refused, or will be after the next few; the message says how much room is left.
Status room_for_objects(os::FileSystem& fs, const std::filesystem::path& file);
/// The message of a full disk, which `file` is on.
Error disk_is_full(os::FileSystem& fs, const std::filesystem::path& file);

}  // namespace varda::store
