// Log files of the container runtime interface, "TIME STREAM TAGS TEXT" a line, as what the container wrote.
#pragma once

#include <string>
#include <string_view>

namespace varda::node::internal {

/// Takes the file in pieces of any size. A line that has no such prefix (rotation may cut one) is given as it stands.
class CriLog {
 public:
  /// What the lines that are complete now say.
  std::string take(std::string_view piece);
  /// What is left at the end of the file: a line without its end.
  std::string finish();

 private:
  std::string rest_;  // of an incomplete line
};

}  // namespace varda::node::internal
