// Blobs in a bucket:
//
//   blobs/HEX             the object; from a multipart upload if larger than one part
//   uploads/HEX-TOTAL     the identifier of that multipart upload
//
// A blob is visible if it has no object below uploads/. One process uses the bucket at a time, and
// keeps the names and sizes in memory. The bytes behind the last whole part wait in a local file,
// HEX-TOTAL-PART. An upload without that file continues behind the last whole part.
#pragma once

#include <cstdint>
#include <memory>

#include "base/context.h"
#include "os/file_system.h"
#include "registry/blob_store.h"
#include "registry/bucket.h"

namespace varda::registry {

struct BucketStoreOptions {
  os::Path spool;  // directory for bytes that are not yet in the bucket; created
  std::uint64_t quota_bytes = 0;
  std::size_t running_max = 64;        // each needs up to three parts of disk
  std::size_t unfinished_max = 1000;   // each needs up to one part of disk
  std::uint64_t part_bytes = 8 << 20;  // S3 allows no smaller parts than 5 MiB
};

/// Lists the bucket. The caller owns the bucket's prefix. Requests end when `ctx` stops. `bucket`
/// and `fs` outlive the store.
Result<std::unique_ptr<BlobStore>> open_bucket_store(const Context& ctx, BucketStoreOptions options,
                                                     Bucket& bucket, os::FileSystem& fs);

}  // namespace varda::registry
