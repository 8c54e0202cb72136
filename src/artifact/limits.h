// What an archive may cost before it is refused. Defaults fit large vision models; every number can be set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace varda::artifact {

struct Limits {
  std::uint64_t archive_bytes_max = std::uint64_t{16} << 30;    // as downloaded
  std::uint64_t extracted_bytes_max = std::uint64_t{16} << 30;  // sum of all files
  std::size_t entries_max = 100'000;                            // files, links and directories, implied ones too
  std::uint64_t ratio_max = 200;                                // extracted : downloaded ...
  std::uint64_t ratio_free_bytes = 64u << 20;                   // ... looked at beyond this many extracted bytes
  std::size_t path_bytes_max = 1024;
  std::size_t depth_max = 32;
};

}  // namespace varda::artifact
