// What a container that failed said last, for the message of its end.
#pragma once

#include <string>

#include "node/driver.h"
#include "os/file_system.h"

namespace varda::node::internal {

/// The end of a log as `terminationMessagePolicy: FallbackToLogsOnError` has it: at most 2048 bytes and 80 lines, whole lines where
/// they fit. Bytes that are no UTF-8 become '?', since a status is JSON. Empty: there is no log, or it cannot be read.
std::string last_words(os::FileSystem& fs, const os::Path& log, LogFormat format);

/// The first bytes of a file that a container may have written, at most `bytes_max`, as text for a status. Empty: there is none.
std::string file_words(os::FileSystem& fs, const os::Path& file, std::size_t bytes_max);

}  // namespace varda::node::internal
