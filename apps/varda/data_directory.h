// The layout of a data directory: which version it has, and how an older one becomes a new one (docs/design/012-data-directory.md).
#pragma once

#include <filesystem>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::app {

/// Of version.json. Files inside have formats of their own (store/internal/format.h); this is of which files there are.
inline constexpr int kDirectoryFormat = 2;

/// Marks a new directory, brings one of an older format up, and refuses a newer one (kUnsupported: the message names the program it
/// takes). Each step may be killed and is done again. Whoever calls holds the directory's lock, if others could be in it.
Status prepare_data_directory(const std::filesystem::path& data_dir);

/// kExhausted: the directory has no store yet, and its disk no room for one.
Status check_first_room(const std::filesystem::path& data_dir, os::FileSystem& files = os::real_file_system());

}  // namespace varda::app
