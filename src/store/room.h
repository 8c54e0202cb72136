// Free disk space for a store.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::store {

/// Size of FILE.reserve beside the file, kept for writes that free space.
inline constexpr std::uint64_t kReserveBytes = 4 << 20;

/// Checks whether the store of that file (open_sqlite()) accepts new objects. Reads the disk's free
/// space and writes nothing. kExhausted: refused now or after the next few; the message has the
/// remaining space.
Status room_for_objects(os::FileSystem& fs, const std::filesystem::path& file);
/// The error for a full disk that holds `file`.
Error disk_is_full(os::FileSystem& fs, const std::filesystem::path& file);

}  // namespace varda::store
