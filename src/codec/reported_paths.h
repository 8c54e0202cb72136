// Document paths ("spec.replicas") reported to the sender. The sender controls number and length,
// so both are limited.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "codec/text.h"

namespace varda::codec {

inline constexpr std::size_t kReportedPathsMax = 64;
inline constexpr std::size_t kReportedPathBytesMax = 256;

/// Appends path(), which is called only below the limit.
template <typename Path>
void report_path(std::vector<std::string>& paths, Path path) {
  if (paths.size() < kReportedPathsMax) paths.push_back(clipped(path(), kReportedPathBytesMax));
}

}  // namespace varda::codec
