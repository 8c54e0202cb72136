// Sends files and versions to a registry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/context.h"
#include "net/http.h"
#include "os/file_system.h"
#include "registry/request.h"

namespace varda::registry {

struct Target {
  std::string url;    // of the registry: "https://registry:8090"
  std::string token;  // "": none
};

/// The URL of a blob, for downloads.
std::string blob_url(const Target& target, const codec::Sha256& digest);
/// The URL of its list of chunks.
std::string chunks_url(const Target& target, const codec::Sha256& digest);
/// The header of requests to the target.
net::Headers headers_of(const Target& target);

struct UploadProgress {
  std::uint64_t done = 0, total = 0;  // bytes of the file; `done` is the registry's offset
  std::uint64_t sent = 0;             // bytes that upload() sent
};

struct UploadOptions {
  std::uint64_t piece_bytes = 8 << 20;  // in memory at a time
  int attempts_max = 10;                // without progress, 1 s to 30 s apart
  std::function<void(const UploadProgress&)> progress;
  /// A blob that may have parts of the file: the registry copies them. Need not exist.
  std::optional<codec::Sha256> base;
};

/// Sends the bytes of the file that the registry lacks. Continues after broken connections and
/// restarts of either side. kCorrupt: the file has another digest. kExhausted: no room.
Status upload(const Context& ctx, net::HttpClient& http, const Target& target, os::FileSystem& fs,
              const os::Path& file, const codec::Sha256& digest, const UploadOptions& options);

/// The bytes [offset, offset + length) of the blob to send.
using ReadAt = std::function<Result<std::string>(std::uint64_t offset, std::uint64_t length)>;
/// The same for `total` bytes that `read` returns.
Status upload(const Context& ctx, net::HttpClient& http, const Target& target, const ReadAt& read,
              std::uint64_t total, const codec::Sha256& digest, const UploadOptions& options);

/// Reads a blob into memory, in requests of at most 1 MiB, which every gateway forwards. Checks the
/// digest. kNotFound: the registry lacks the blob. kExhausted: the blob is larger than `bytes_max`.
Result<std::string> download(const Context& ctx, net::HttpClient& http, const Target& target,
                             const codec::Sha256& digest, std::uint64_t bytes_max);

/// Creates or replaces the document. kConflict: the blob is missing, or the version has another
/// digest.
Status put_version(const Context& ctx, net::HttpClient& http, const Target& target,
                   const VersionKey& key, const Version& version);
/// Replaces the list of the blobs that the objects of a cluster name. `holder` is a DNS label.
Status put_names(const Context& ctx, net::HttpClient& http, const Target& target,
                 const std::string& holder, const std::set<codec::Sha256>& digests);
/// kNotFound: no such version.
Result<Version> get_version(const Context& ctx, net::HttpClient& http, const Target& target,
                            const VersionKey& key);

}  // namespace varda::registry
