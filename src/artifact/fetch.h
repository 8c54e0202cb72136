// One version into one directory, for init containers and by hand: what `varda fetch` does.
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
  os::Path to;                       // "/models/digits/3"; its parent is made
  std::vector<os::Path> file_roots;  // file URLs are read below these only
  Limits limits;
  /// Files at the root of the archive that belong beside the directory as well (config.pbtxt of a Triton repository); one that it
  /// does not have is taken away there.
  std::vector<std::string> beside;
  bool spooled = true;  // keep what was downloaded till a kill for the next attempt: twice the bytes to write
  // Of failures that time may heal; back-off from 1 s to 30 s between them. A peer that refuses (a 4xx other than 408, 425 and 429)
  // is believed at once.
  int attempts_max = 5;
  Transport transport = {};
};

/// The directory appears complete or not at all and holds `.varda-sha256`, by which a later call knows that it is complete: then
/// it succeeds without the network. Another digest replaces it; a directory with other people's files, or a file, is never replaced
/// (kInvalid). Work in progress stands beside it, as ".NAME.fetch", and serves
/// the next attempt, also after a kill.
Outcome<Installed> fetch(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, const FetchOptions& options,
                         const ProgressSink& progress = {});

}  // namespace varda::artifact
