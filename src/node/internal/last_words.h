// What a container that failed said last, for the message of its end.
#pragma once

#include <string>

#include "os/file_system.h"

namespace varda::node::internal {

/// The end of a log as `terminationMessagePolicy: FallbackToLogsOnError` has it: at most 2048 bytes and 80 lines, whole lines where
/// they fit. Bytes that are no UTF-8 become '?', since a status is JSON. Empty: there is no log, or it cannot be read.
std::string last_words(os::FileSystem& fs, const os::Path& log);

}  // namespace varda::node::internal
