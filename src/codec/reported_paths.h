// Paths in a document ("spec.replicas") that are reported to the sender. A sender chooses how many there are and how long each
// is, so only so much of them is kept.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "codec/text.h"

namespace varda::codec {

inline constexpr std::size_t kReportedPathsMax = 64;
inline constexpr std::size_t kReportedPathBytesMax = 256;

/// Adds what `path()` returns, which is called only if there is room for it.
template <typename Path>
void report_path(std::vector<std::string>& paths, Path path) {
  if (paths.size() < kReportedPathsMax) paths.push_back(clipped(path(), kReportedPathBytesMax));
}

}  // namespace varda::codec
