// Serves a directory of archives over static HTTP, for users and clusters without a file server.
//
//   GET, HEAD /PATH        the file; 206 for one Range, which If-Range makes depend on ETag or
//                          Last-Modified; 304 if If-None-Match or If-Modified-Since match
//
// It neither lists nor writes. Links are followed as long as they stay below the root (the files of
// a ConfigMap volume are links). Paths that leave the root do not exist.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::artifact {

/// Answers one request. Blocks on the disk at the start; the body is read as it is sent. `root` is
/// a real directory, not a link; `fs` outlives the response. Thread-safe.
net::Response serve_file(os::FileSystem& fs, const os::Path& root, const net::Request& request);

/// Opens the bytes [first, first + length).
using OpenBytes = std::function<Result<std::unique_ptr<net::BodyStream>>(std::uint64_t first,
                                                                         std::uint64_t length)>;
/// Opens the bytes of an open file, once.
OpenBytes bytes_of_file(std::unique_ptr<os::File> file);

struct Content {
  std::uint64_t size_bytes = 0;
  std::string tag;  // the ETag, quoted
  WallTime modified;
  OpenBytes open;  // called at most once
};
/// Answers a GET or HEAD: ranges and conditions as serve_file().
net::Response serve_content(const Content& content, const net::Request& request);

}  // namespace varda::artifact
