// Fetches one version into one directory, for init containers and manual use (`varda fetch`).
#pragma once

#include <vector>

#include "artifact/failure.h"
#include "artifact/limits.h"
#include "artifact/request.h"
#include "artifact/store.h"
#include "artifact/transport.h"

namespace varda::artifact {

struct FetchOptions {
  Request request;
  os::Path to;                       // "/models/digits/3"; the parent directory is created
  std::vector<os::Path> file_roots;  // file URLs are read below these only
  Limits limits;
  /// Files at the archive's root that are also linked beside the directory (config.pbtxt of a
  /// Triton repository). If the archive lacks one, the file there is removed.
  std::vector<std::string> extra_files;
  bool spooled = true;  // keeps the download for an attempt after a kill; writes every byte twice
  // Attempts at failures that may heal, with back-off from 1 s to 30 s. A refusal (4xx except 408,
  // 425 and 429) is final at once.
  int attempts_max = 5;
  Transport transport = {};
  /// Directories that may share parts of the archive, besides an earlier version in `to`.
  std::vector<os::Path> bases = {};
};

/// The directory appears complete or not at all. It holds `.varda-sha256`, by which a later call
/// finds it complete and succeeds without the network. Another digest replaces the directory. A
/// file, or a directory with other files, is never replaced (kInvalid). Work in progress is beside
/// it, in ".NAME.fetch", and the next attempt resumes it, also after a kill.
Outcome<Installed> fetch(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                         const FetchOptions& options, const ProgressSink& progress = {});

}  // namespace varda::artifact
