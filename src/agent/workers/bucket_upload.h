// Sends an accepted artifact to a bucket, with the credentials of a Secret.
//
// A file of more than one part goes up as a multipart upload. The record of the artifact has the
// identifier of the upload, so an agent that was killed continues behind the last stored part. An
// upload that the bucket no longer knows starts over.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/workers/artifact_store.h"
#include "artifact/transport.h"
#include "base/clock.h"
#include "base/context.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::agent::workers {

class BucketUpload {
 public:
  struct Options {
    net::HttpClient* http = nullptr;  // reaches buckets; null: uploads to buckets fail
    artifact::CredentialReader* credentials = nullptr;
    /// As artifact::Transport::trusting.
    std::function<std::unique_ptr<net::HttpClient>(const std::string& ca_pem)> trusting;
    std::uint64_t part_bytes = 8 << 20;  // in memory; S3 takes parts of at least 5 MiB
    Duration first_pause = std::chrono::milliseconds(200);  // between attempts of one request
  };
  /// All references outlive the object.
  BucketUpload(Options options, ArtifactStore& store, os::FileSystem& fs)
      : options_(std::move(options)), store_(store), fs_(fs) {}

  /// Gets the number of bytes that the bucket has, and the number that were sent.
  using Progress = std::function<void(std::uint64_t done, std::uint64_t sent)>;
  /// Success: the object is in the bucket, durable. kCorrupt: the file has another digest, and
  /// no object was made. Other errors ask for another attempt. Messages contain no secrets.
  Status send(const Context& ctx, const ArtifactStore::Pending& pending, const Progress& progress);

 private:
  const Options options_;
  ArtifactStore& store_;
  os::FileSystem& fs_;
};

}  // namespace varda::agent::workers
