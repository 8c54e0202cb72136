// The last output of a failed container, for its termination message.
#pragma once

#include <string>

#include "node/driver.h"
#include "os/file_system.h"

namespace varda::node::internal {

/// The end of a log as in `terminationMessagePolicy: FallbackToLogsOnError`: at most 2048 bytes and
/// 80 lines, whole lines if possible. Invalid UTF-8 becomes '?', because a status is JSON. Empty:
/// no readable log.
std::string last_output(os::FileSystem& fs, const os::Path& log, LogFormat format);

/// The first `bytes_max` bytes of a file that a container may have written, as text for a status.
/// Empty: no file.
std::string file_fields(os::FileSystem& fs, const os::Path& file, std::size_t bytes_max);

}  // namespace varda::node::internal
