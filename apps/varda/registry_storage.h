// Storage of a registry: a directory, or a bucket with a directory for bytes on their way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/context.h"
#include "base/metrics.h"
#include "net/http.h"
#include "os/file_system.h"
#include "registry/blob_store.h"
#include "registry/bucket.h"
#include "registry/versions.h"

namespace varda::app {

struct RegistryStorage {
  struct Options {
    os::Path root;  // exists
    std::uint64_t quota_bytes = 0;
    std::string s3;               // s3://BUCKET/PREFIX; "": everything is below the root
    std::string s3_endpoint;      // "": of the credentials, else AWS
    std::string credentials_dir;  // "": requests are not signed
  };
  /// Requests to a bucket end when `ctx` stops. The metrics outlive the storage.
  static Result<RegistryStorage> open(const Context& ctx, const Options& options,
                                      metrics::Registry& metrics);

  // Each uses the members before it.
  std::unique_ptr<os::FileLock> lock;
  std::unique_ptr<net::HttpClient> http;
  std::unique_ptr<registry::Bucket> bucket;
  std::unique_ptr<registry::BlobStore> blobs;
  std::unique_ptr<registry::VersionStore> versions;
};

}  // namespace varda::app
