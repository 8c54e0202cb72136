// Format of a data directory, and upgrades from older formats (docs/design/012-data-directory.md).
#pragma once

#include <filesystem>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::datadir {

/// The format in version.json: which files a data directory has. The files have their own formats
/// (store/internal/format.h).
inline constexpr int kDirectoryFormat = 2;

/// Marks a new directory, or upgrades an older one. A killed step is repeated at the next start.
/// The caller holds the directory's lock if other processes may use the directory. kUnsupported:
/// the format is newer; the message names the required program.
Status prepare_data_directory(const std::filesystem::path& data_dir);

/// kExhausted: the directory has no store yet, and the disk has too little space for one.
Status check_first_room(const std::filesystem::path& data_dir,
                        os::FileSystem& files = os::real_file_system());

}  // namespace varda::datadir
