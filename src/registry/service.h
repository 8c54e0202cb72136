// The registry over HTTP: docs/design/022-registry.md has the protocol.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "net/http.h"
#include "net/server.h"
#include "registry/blob_store.h"
#include "registry/chunk_lists.h"
#include "registry/request.h"
#include "registry/versions.h"

namespace varda::registry {

/// Thread-safe. Outlives its server. Destroying it waits for running verifications.
class Service {
 public:
  struct Options {
    std::uint64_t quota_bytes = 0;  // larger blobs get 413; 0: no limit
    Duration grace = std::chrono::hours(24);
    std::string token;  // every request needs it as bearer token; "": none
    /// kByDigest: GET and HEAD of a blob need no token, because the digest is a secret of its own.
    enum class Reads { kWithToken, kByDigest };
    Reads reads = Reads::kWithToken;
    std::size_t threads = 8;            // for requests that block, and for verifications
    ChunkLists* chunk_lists = nullptr;  // null: no lists for deltas; outlives the service
    metrics::Registry* metrics = nullptr;
  };
  /// `blobs`, `versions` and the metrics outlive the service.
  Service(BlobStore& blobs, VersionStore& versions, const Options& options);

  /// Limits and streaming of bodies; the caller adds the address and TLS.
  net::Server::Options server_options();
  net::Handler handler();

  struct Collected {
    std::size_t blobs = 0, uploads = 0;
    std::uint64_t bytes = 0;
  };
  /// Removes blobs that no version, no list of a cluster and not `named` names, and unfinished
  /// uploads, if older than the grace period. A blob is as young as the last answer that a client
  /// need not send it.
  Result<Collected> collect(WallTime now, const std::set<codec::Sha256>& named = {})
      EXCLUDES(changes_);

 private:
  class Receiver;
  class Ignore;

  net::Reception receive(const net::Request& head);
  net::Response answer(const net::Request& request);
  /// `copy` follows the bytes of the body.
  net::Response finish(BlobUpload& upload, const codec::Sha256& digest,
                       const std::optional<CopySource>& copy);
  Status check_copy(const CopySource& copy, const Piece& piece);
  net::Response blob(const codec::Sha256& digest, const net::Request& request);
  net::Response blobs(const net::Request& request);
  net::Response models(const net::Request& request);
  net::Response versions(const VersionKey& model, const net::Request& request);
  net::Response version(const VersionKey& key, const net::Request& request);
  net::Response names(const std::string& holder, const net::Request& request);
  Result<bool> put_version(const VersionKey& key, Version version) REQUIRES(changes_);
  Status remove_blob(const codec::Sha256& digest) EXCLUDES(changes_);
  net::Response refuse_upload(const Error& error, const codec::Sha256& digest);
  bool allowed(const net::Request& request) const;
  void answered_stored(const codec::Sha256& digest) EXCLUDES(answers_);

  BlobStore& blobs_;
  VersionStore& versions_;
  const Options options_;
  // Held over calls of the stores, so that no version names a blob that is removed meanwhile.
  // Downloads and uploads do not take this mutex.
  Mutex changes_;
  Mutex answers_;
  // When a client last heard that a blob is stored. It may name the blob afterwards.
  std::map<codec::Sha256, WallTime> answered_ GUARDED_BY(answers_);

  metrics::Counter* stored_ = nullptr;
  metrics::Counter* failed_ = nullptr;
  metrics::Counter* received_bytes_ = nullptr;
  metrics::Counter* copied_bytes_ = nullptr;
  metrics::Counter* collected_ = nullptr;
  const metrics::SourceGuard gauges_;
  net::HandlerPool pool_;  // last, because running requests use the members above
};

}  // namespace varda::registry
