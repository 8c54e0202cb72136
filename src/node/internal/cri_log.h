// Converts log files of the container runtime interface, "TIME STREAM TAGS TEXT" per line, to the
// container's output.
#pragma once

#include <string>
#include <string_view>

namespace varda::node::internal {

/// Accepts the file in pieces of any size. A line without that prefix, for example cut by rotation,
/// is kept as is.
class CriLog {
 public:
  /// The output of the lines that are now complete.
  std::string take(std::string_view piece);
  /// The output of an unterminated line at the end of the file.
  std::string finish();

 private:
  std::string partial_;  // an incomplete line
};

}  // namespace varda::node::internal
