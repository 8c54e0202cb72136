// Limits of an archive. Defaults fit large vision models; every number is configurable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace varda::artifact {

struct Limits {
  std::uint64_t archive_bytes_max = std::uint64_t{16} << 30;    // as downloaded
  std::uint64_t extracted_bytes_max = std::uint64_t{16} << 30;  // sum of all files
  std::size_t entries_max = 100'000;  // files, links and directories, including implied ones
  std::uint64_t ratio_max = 200;      // extracted : downloaded ...
  std::uint64_t ratio_free_bytes = 64u << 20;  // ... checked beyond this many extracted bytes
  std::size_t path_bytes_max = 1024;
  std::size_t depth_max = 32;
};

}  // namespace varda::artifact
