// A directory of archives as a static HTTP server: for users without one, and for clusters where nothing else serves files.
//
//   GET, HEAD /PATH        the file; 206 for one Range, which If-Range makes depend on ETag or Last-Modified; 304 where
//                          If-None-Match or If-Modified-Since say so
//
// Nothing is listed, nothing is written. Links are followed as long as they stay below the root (the files of a ConfigMap volume
// are links); whatever leads out of it is not there.
#pragma once

#include "net/http.h"
#include "os/file_system.h"

namespace varda::artifact {

/// The answer to one request. Blocks for the disk when it begins; the body is read as it is sent. `root` is a real directory, no
/// link to one; `fs` outlives the response. Thread-safe.
net::Response serve_file(os::FileSystem& fs, const os::Path& root, const net::Request& request);

}  // namespace varda::artifact
