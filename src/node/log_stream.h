// What a container wrote, as `kubectl logs` asks for it.
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

  /// The query of GET …/pods/NAME/log: tailLines, limitBytes, follow, previous. Other parameters are ignored: the lines carry no
  /// times of their own, so timestamps and sinceSeconds have no effect. kInvalid names the parameter.
  static Result<LogOptions> parse(std::string_view query);
};

/// The directory of a pod below a runner's root.
os::Path pod_directory(const os::Path& root, std::string_view ns, std::string_view name, std::string_view uid);

/// A stream of the container's log, to be sent as text/plain. With follow it ends when that run of the container has ended; it
/// costs no thread of its own, and memory for one piece however large the log is. kNotFound: that container has not run (or, with
/// kPrevious, not twice).
Result<std::unique_ptr<net::BodyStream>> open_log(const os::Path& pod_directory, const std::string& container,
                                                  const LogOptions& options);

/// Bounds a log that has outgrown `bytes_max`: its last lines of at most that many bytes replace FILE.1, and the file starts again.
/// Its writers append, so they go on. When FILE.1 cannot be written the file starts again all the same: a log does not fill the
/// disk.
Status rotate_log(const os::Path& log, std::uint64_t bytes_max);

}  // namespace varda::node
