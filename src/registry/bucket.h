// A bucket of an S3-compatible server: signed requests, retried while the server or the network
// fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/credentials.h"
#include "artifact/s3.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "net/http.h"
#include "registry/bucket_answers.h"

namespace varda::registry {

struct BucketOptions {
  std::string url;  // s3://BUCKET or s3://BUCKET/PREFIX
  artifact::Credentials credentials;
  int attempts_max = 4;
  Duration first_pause = std::chrono::milliseconds(200);  // doubles with each attempt
  metrics::Registry* metrics = nullptr;
};

/// Keys are relative to the URL. Thread-safe. Functions block. Their errors: kUnavailable, also
/// after all attempts; kNotFound; kInternal: the server refuses the request, as for wrong
/// credentials.
class Bucket {
 public:
  /// kInvalid: the URL or the endpoint of the credentials. `http` and the metrics outlive the
  /// bucket.
  static Result<std::unique_ptr<Bucket>> create(BucketOptions options, net::HttpClient& http);

  /// Produces the body for one attempt, so that no caller keeps a second copy of a large body.
  using Body = std::function<Result<std::string>()>;
  /// Creates or replaces the object; durable on return.
  Status put(const Context& ctx, const std::string& key, const Body& body);
  /// At most `length` bytes from `first` on.
  Result<std::string> get(const Context& ctx, const std::string& key, std::uint64_t first,
                          std::uint64_t length);
  /// Also succeeds without such an object.
  Status remove(const Context& ctx, const std::string& key);
  /// Lists all objects below the prefix of keys.
  Result<std::vector<BucketObject>> list(const Context& ctx, const std::string& prefix);

  /// Begins a multipart upload and returns its identifier.
  Result<std::string> begin_upload(const Context& ctx, const std::string& key);
  /// Stores a part, numbered from 1; durable on return. kNotFound: no such upload.
  Result<BucketPart> put_part(const Context& ctx, const std::string& key, const std::string& id,
                              int number, const Body& body);
  /// The stored parts. kNotFound: the upload is completed or aborted.
  Result<std::vector<BucketPart>> parts(const Context& ctx, const std::string& key,
                                        const std::string& id);
  /// Makes the object from the parts. kNotFound: a part is missing, or as parts(). If an
  /// answer was lost, the attempt may have completed the upload.
  Status complete(const Context& ctx, const std::string& key, const std::string& id,
                  const std::vector<BucketPart>& parts);
  /// Also succeeds without such an upload.
  Status abort(const Context& ctx, const std::string& key, const std::string& id);

 private:
  Bucket(BucketOptions options, net::Url root, std::string prefix, net::HttpClient& http);
  struct Call {
    std::string method = {};
    std::string key = {};    // "": the bucket itself
    std::string query = {};  // encoded and sorted
    std::string range = {};
    Body body = {};
    std::chrono::seconds patience{20};  // of one attempt, besides the time for its bytes
  };
  Result<net::HttpClient::Answer> call(const Context& ctx, const Call& call);
  Result<net::HttpClient::Answer> attempt(const Context& ctx, const Call& call);

  const BucketOptions options_;
  const net::Url root_;       // of the bucket; its target ends with '/'
  const std::string prefix_;  // "" or ends with '/'
  const artifact::AwsKey key_;
  net::HttpClient& http_;
  metrics::Counter* requests_ = nullptr;
  metrics::Counter* failures_ = nullptr;
};

}  // namespace varda::registry
