// Blobs in a directory of this machine:
//
//   ROOT/blobs/HEX             complete and verified
//   ROOT/uploads/HEX-TOTAL     unfinished; the length of the file is the offset
//
// The files are the only state.
#pragma once

#include <cstdint>
#include <memory>

#include "os/file_system.h"
#include "registry/blob_store.h"

namespace varda::registry {

struct DirectoryOptions {
  os::Path root;
  std::uint64_t quota_bytes = 0;  // for blobs and the totals of unfinished uploads; 0: no limit
  std::size_t running_max = 64;   // uploads with a client at a time
  std::size_t unfinished_max = 10'000;
};

/// Creates the directories; the caller owns ROOT (os::FileLock). `fs` outlives the store.
Result<std::unique_ptr<BlobStore>> open_directory_store(DirectoryOptions options,
                                                        os::FileSystem& fs);

}  // namespace varda::registry
