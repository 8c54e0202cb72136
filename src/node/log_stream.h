// Logs of a container, as `kubectl logs` requests them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::node {

struct LogOptions {
  std::optional<std::uint64_t> tail_lines;
  std::optional<std::uint64_t> limit_bytes;
  enum class Follow { kNo, kYes } follow = Follow::kNo;
  enum class Run { kCurrent, kPrevious } run = Run::kCurrent;

  /// Parses the query of GET …/pods/NAME/log: tailLines, limitBytes, follow, previous. Other
  /// parameters are ignored. timestamps and sinceSeconds have no effect, because log lines have no
  /// times. kInvalid names the parameter.
  static Result<LogOptions> parse(std::string_view query);
};

/// The directory of a pod below a runner's root.
os::Path pod_directory(const os::Path& root, std::string_view ns, std::string_view name,
                       std::string_view uid);

/// A stream of the container's log, to be sent as text/plain. With follow, it ends when that run of
/// the container has ended. It needs no thread, and memory for one piece only. kNotFound: the
/// container has not run, or with kPrevious, not twice.
Result<std::unique_ptr<net::BodyStream>> open_log(const os::Path& pod_directory,
                                                  const std::string& container,
                                                  const LogOptions& options);

/// Truncates a log that exceeds `bytes_max`. The last whole lines within that limit replace FILE.1,
/// and the file starts again. Writers append, so they continue. If FILE.1 cannot be written, the
/// file is truncated anyway, so that a log never fills the disk.
Status rotate_log(const os::Path& log, std::uint64_t bytes_max);

}  // namespace varda::node
