// The operator's reader of files for Models without a digest.
#pragma once

#include <memory>
#include <vector>

#include "artifact/digest_reader.h"
#include "base/result.h"
#include "download_flags.h"
#include "hosting/servers.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::app {

/// Owns the threads that read, and their client.
class FileDigests {
 public:
  /// `file_roots`: file URLs are read below these only.
  static Result<std::unique_ptr<FileDigests>> create(const DownloadFlags& flags,
                                                     std::vector<os::Path> file_roots = {});
  /// Valid as long as this object.
  hosting::FileDigestReader reader();

 private:
  FileDigests(std::unique_ptr<net::HttpClient> http, std::vector<os::Path> file_roots);

  const std::unique_ptr<net::HttpClient> http_;
  artifact::DigestReader files_;
};

}  // namespace varda::app
