#include "agent/workers/bucket_upload.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "registry/bucket.h"

namespace varda::agent::workers {
namespace {

using registry::Bucket;
using registry::BucketPart;

Error wrong_digest() { return {Code::kCorrupt, "the file has another digest"}; }

/// One artifact on its way: the file, the bucket, and the progress so far.
class Transfer {
 public:
  Transfer(const ArtifactStore::Pending& pending, std::uint64_t part_bytes, ArtifactStore& store,
           Bucket& bucket, os::File& file, const BucketUpload::Progress& progress)
      : pending_(pending),
        part_bytes_(std::max(
            {part_bytes, std::uint64_t{1}, pending.artifact.bytes / BucketPart::kNumberMax + 1})),
        key_(api::EdgeBucket::key_of(pending.artifact.sha256.hex(), pending.artifact.name)),
        store_(store),
        bucket_(bucket),
        file_(file),
        progress_(progress) {}

  Status run(const Context& ctx) {
    const std::uint64_t total = pending_.artifact.bytes;
    if (total <= part_bytes_) return put(ctx, total);
    TRY(const std::string id, find_upload(ctx));
    std::vector<BucketPart> parts;
    for (std::uint64_t first = 0; first < total; first += part_bytes_) {
      TRY_VOID(ctx.check());
      const std::uint64_t length = std::min(part_bytes_, total - first);
      TRY(const std::string bytes, read(first, length));
      hash_.update(bytes);
      const int number = static_cast<int>(parts.size()) + 1;
      const auto stored = stored_.find(number);
      if (stored != stored_.end() && stored->second.size_bytes == length) {
        parts.push_back(stored->second);
      } else {
        TRY(BucketPart part, bucket_.put_part(ctx, key_, id, number,
                                              [&bytes]() -> Result<std::string> { return bytes; }));
        parts.push_back(std::move(part));
        sent_ += length;
      }
      progress_(first + length, sent_);
    }
    if (hash_.finish() != pending_.artifact.sha256) {
      TRY_VOID(bucket_.abort(ctx, key_, id));
      return wrong_digest();
    }
    return bucket_.complete(ctx, key_, id, parts);
  }

 private:
  Status put(const Context& ctx, std::uint64_t total) {
    TRY(const std::string bytes, read(0, total));
    if (codec::Sha256::of(bytes) != pending_.artifact.sha256) return wrong_digest();
    TRY_VOID(bucket_.put(ctx, key_, [&bytes]() -> Result<std::string> { return bytes; }));
    progress_(total, total);
    return {};
  }

  /// The recorded upload with its stored parts, or a new one.
  Result<std::string> find_upload(const Context& ctx) {
    if (const std::string& id = pending_.artifact.upload; !id.empty()) {
      auto parts = bucket_.parts(ctx, key_, id);
      if (parts.ok()) {
        for (BucketPart& part : *parts) stored_.insert_or_assign(part.number, std::move(part));
        return id;
      }
      if (parts.error().code() != Code::kNotFound) return parts.error();
    }
    TRY(std::string id, bucket_.begin_upload(ctx, key_));
    TRY_VOID(store_.set_upload(pending_, id));
    return id;
  }

  Result<std::string> read(std::uint64_t first, std::uint64_t length) {
    TRY_VOID(file_.seek(first));
    std::string out;
    while (out.size() < length) {
      TRY(const std::string bytes, file_.read(length - out.size()));
      if (bytes.empty()) return wrong_digest();
      out += bytes;
    }
    return out;
  }

  const ArtifactStore::Pending& pending_;
  const std::uint64_t part_bytes_;
  const std::string key_;
  ArtifactStore& store_;
  Bucket& bucket_;
  os::File& file_;
  const BucketUpload::Progress& progress_;
  codec::Sha256Stream hash_;
  std::map<int, BucketPart> stored_;
  std::uint64_t sent_ = 0;
};

}  // namespace

Status BucketUpload::send(const Context& ctx, const ArtifactStore::Pending& pending,
                          const Progress& progress) {
  const api::EdgeBucket& to = *pending.bucket;
  if (options_.http == nullptr)
    return Error(Code::kUnsupported, "this agent uploads nothing to buckets");
  artifact::Credentials credentials;
  if (!to.credentials.empty()) {
    if (options_.credentials == nullptr)
      return Error(Code::kUnsupported, "this agent reads no credentials");
    auto read = options_.credentials->read(ctx, to.credentials);
    if (!read.ok()) return read.error().error;
    credentials = std::move(*read);
  }
  std::unique_ptr<net::HttpClient> trusting;
  if (!credentials.ca_pem.empty()) {
    if (!options_.trusting)
      return Error(Code::kUnsupported, "this agent accepts no ca.crt in Secrets");
    trusting = options_.trusting(credentials.ca_pem);
  }
  TRY(const auto bucket, Bucket::create({.url = to.url,
                                         .credentials = std::move(credentials),
                                         .first_pause = options_.first_pause},
                                        trusting ? *trusting : *options_.http));
  TRY(const auto file, fs_.open(pending.path, os::Open::kRead));
  return Transfer(pending, options_.part_bytes, store_, *bucket, *file, progress).run(ctx);
}

}  // namespace varda::agent::workers
