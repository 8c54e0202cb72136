// The operator's reader of files for Models without a digest.
#pragma once

#include <memory>

#include "artifact/digest_reader.h"
#include "base/result.h"
#include "download_flags.h"
#include "hosting/servers.h"
#include "net/http.h"

namespace varda::app {

/// Owns the threads that read, and their client.
class FileDigests {
 public:
  static Result<std::unique_ptr<FileDigests>> create(const DownloadFlags& flags);
  /// Valid as long as this object.
  hosting::FileDigestReader reader();

 private:
  explicit FileDigests(std::unique_ptr<net::HttpClient> http);

  const std::unique_ptr<net::HttpClient> http_;
  artifact::DigestReader files_;
};

}  // namespace varda::app
