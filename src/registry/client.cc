#include "registry/client.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "codec/chunks.h"
#include "net/url.h"
#include "registry/upload_plan.h"
#include "registry/versions.h"

namespace varda::registry {
namespace {

using codec::Json;
using codec::Sha256;

constexpr auto kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
// A registry reads the whole blob again before the last answer.
constexpr std::uint64_t kVerifiedBytesPerSecond = 20 << 20;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::uint64_t kDownloadPieceBytes = 1 << 20;

std::string base_of(const Target& target) {
  std::string url = target.url;
  while (url.ends_with('/')) url.pop_back();
  return url + "/v1/";
}

std::string version_url(const Target& target, const VersionKey& key) {
  return base_of(target) + "models/" + key.ns + "/" + key.name + "/versions/" + key.version;
}

/// The registry's own words, or the status.
Error refusal_of(const net::HttpClient::Answer& answer) {
  Code code = Code::kInvalid;
  if (answer.status == 401) code = Code::kUnauthenticated;
  if (answer.status == 403) code = Code::kForbidden;
  if (answer.status == 404) code = Code::kNotFound;
  if (answer.status == 409) code = Code::kConflict;
  if (answer.status == 413 || answer.status == 507) code = Code::kExhausted;
  if (answer.status == 422) code = Code::kCorrupt;
  if (answer.status == 408 || answer.status == 429 ||
      (answer.status >= 500 && answer.status != 507))
    code = Code::kUnavailable;
  const auto body = codec::parse_json(answer.body);
  // A gateway in between refuses with a Status of Kubernetes.
  const std::string why =
      body.ok() ? (*body)["error"].string_or((*body)["message"].as_string()) : "";
  return {code, "the registry answered " + std::to_string(answer.status) +
                    (why.empty() ? "" : ": " + why)};
}

bool transient(const Error& error) {
  return error.code() == Code::kUnavailable || error.code() == Code::kTimeout ||
         error.code() == Code::kConflict;
}

class Upload {
 public:
  Upload(net::HttpClient& http, const Target& target, const ReadAt& read, std::uint64_t total,
         const Sha256& digest, const UploadOptions& options)
      : http_(http),
        target_(target),
        read_(read),
        total_(total),
        digest_(digest),
        options_(options) {}

  /// Sends until the blob is stored or an error occurs.
  Status attempt(const Context& ctx) {
    TRY(std::optional<std::uint64_t> offset, held(ctx));
    if (offset && *offset > 0) foreign_ = true;
    if (offset && !std::exchange(compared_, true)) TRY_VOID(compare(ctx, *offset));
    while (offset) {
      report(*offset);
      TRY(offset, send(ctx, *offset));
    }
    report(total_);
    return {};
  }
  /// True if bytes arrived since the last call.
  bool take_progress() { return std::exchange(progressed_, false); }

 private:
  void report(std::uint64_t done) {
    if (options_.progress) options_.progress({.done = done, .total = total_, .sent = sent_});
  }

  net::ClientRequest request(std::string method) const {
    return {.method = std::move(method),
            .url = blob_url(target_, digest_),
            .headers = headers_of(target_),
            .body = ""};
  }

  /// The next missing byte; nothing: the blob is stored.
  Result<std::optional<std::uint64_t>> held(const Context& ctx) {
    TRY(const auto answer, http_.call(ctx.with_timeout(kPatience), request("HEAD")));
    if (answer.status == 200) return std::optional<std::uint64_t>();
    // An answer to HEAD has no body. The refusal of PUT explains itself.
    if (answer.status == 401 || answer.status == 403) return std::optional<std::uint64_t>(0);
    if (answer.status != 404) return refusal_of(answer);
    const auto offset =
        parse_integer<std::uint64_t>(answer.headers.find("Upload-Offset").value_or("0"));
    // A registry with another idea of the total starts over at 0.
    return std::optional<std::uint64_t>(offset && *offset < total_ ? *offset : 0);
  }

  /// Finds the parts of the file that the base has. Without a list, it has none.
  Status compare(const Context& ctx, std::uint64_t offset) {
    // The list costs about a thousandth of the file.
    if (!options_.base || total_ < codec::kDeltaBytesMin || total_ - offset < total_ / 256)
      return {};
    const auto list =
        download_chunk_list(ctx, http_, target_, *options_.base, options_.piece_bytes);
    if (!list.ok()) {
      log::info("uploading the whole file",
                {{"base", options_.base->hex()}, {"why", list.error().message()}});
      return ctx.check();
    }
    TRY(parts_, find_shared_parts(ctx, read_, total_, *list));
    return {};
  }

  Result<std::optional<std::uint64_t>> send(const Context& ctx, std::uint64_t offset) {
    const UploadStep step = next_step(parts_, offset, total_, options_.piece_bytes);
    net::ClientRequest put = request("PUT");
    TRY(put.body, read_(offset, step.length));
    if (step.length > 0 && step.length < total_)
      put.headers.add("Content-Range", "bytes " + std::to_string(offset) + "-" +
                                           std::to_string(offset + step.length - 1) + "/" +
                                           std::to_string(total_));
    if (step.copied > 0) {
      foreign_ = true;
      put.headers.add("Upload-Copy", write_copy_source({.digest = *options_.base,
                                                        .first = step.copy_first,
                                                        .length = step.copied}));
    }
    const std::uint64_t end = offset + step.length + step.copied;
    const auto verifying =
        std::chrono::seconds(end == total_ ? total_ / kVerifiedBytesPerSecond : 0);
    TRY(const auto answer, http_.call(ctx.with_timeout(kPatience + verifying), std::move(put)));
    if (answer.status < 300) sent_ += step.length;
    if (answer.status == 200 || answer.status == 201) return std::optional<std::uint64_t>();
    if (answer.status == 422 && std::exchange(foreign_, false)) {
      // The registry removed the upload. Its bytes did not all come from this file.
      log::warn("upload is damaged, sending the whole file", {{"digest", digest_.hex()}});
      parts_.clear();
      return std::optional<std::uint64_t>(0);
    }
    if (step.copied > 0 && (answer.status == 400 || answer.status == 404 || answer.status == 409)) {
      parts_.clear();  // the base is gone or cannot be read
      return held(ctx);
    }
    if (answer.status != 202) return refusal_of(answer);
    const auto next =
        parse_integer<std::uint64_t>(answer.headers.find("Upload-Offset").value_or(""));
    if (!next || *next <= offset || *next >= total_)
      return Error(Code::kUnavailable, "the registry sent no usable Upload-Offset");
    if (*next < end) parts_.clear();  // the registry does not copy
    progressed_ = true;
    return std::optional(*next);
  }

  net::HttpClient& http_;
  const Target& target_;
  const ReadAt& read_;
  const std::uint64_t total_;
  const Sha256& digest_;
  const UploadOptions& options_;
  std::vector<SharedPart> parts_;  // of the file, in the base
  std::uint64_t sent_ = 0;
  bool compared_ = false;
  bool foreign_ = false;  // the registry has bytes that this object did not send
  bool progressed_ = false;
};

}  // namespace

std::string blob_url(const Target& target, const Sha256& digest) {
  return base_of(target) + "blobs/" + write_digest(digest);
}

std::string chunks_url(const Target& target, const Sha256& digest) {
  return blob_url(target, digest) + ".chunks";
}

net::Headers headers_of(const Target& target) {
  net::Headers out;
  if (!target.token.empty()) out.add("Authorization", "Bearer " + target.token);
  return out;
}

Status upload(const Context& ctx, net::HttpClient& http, const Target& target, os::FileSystem& fs,
              const os::Path& file, const Sha256& digest, const UploadOptions& options) {
  TRY(const auto opened, fs.open(file, os::Open::kRead));
  TRY(const std::uint64_t total, opened->size());
  const auto read = [&opened](std::uint64_t offset, std::uint64_t length) -> Result<std::string> {
    TRY_VOID(opened->seek(offset));
    std::string out;
    while (out.size() < length) {
      TRY(const std::string bytes, opened->read(static_cast<std::size_t>(length - out.size())));
      if (bytes.empty()) return Error(Code::kCorrupt, "the file became shorter");
      out += bytes;
    }
    return out;
  };
  return upload(ctx, http, target, read, total, digest, options);
}

Status upload(const Context& ctx, net::HttpClient& http, const Target& target, const ReadAt& read,
              std::uint64_t total, const Sha256& digest, const UploadOptions& options) {
  Upload work(http, target, read, total, digest, options);
  Duration pause = kFirstPause;
  for (int failures = 0;;) {
    const Status sent = work.attempt(ctx);
    if (sent.ok() || !transient(sent.error()) || ctx.done()) return sent;
    if (work.take_progress()) {
      failures = 0;
      pause = kFirstPause;
    }
    if (++failures >= options.attempts_max) return sent;
    log::warn("upload interrupted, retrying", {{"error", sent.error()}});
    TRY_VOID(ctx.sleep_for(pause));
    pause = std::min<Duration>(pause * 2, kLongestPause);
  }
}

Result<std::string> download(const Context& ctx, net::HttpClient& http, const Target& target,
                             const Sha256& digest, std::uint64_t bytes_max) {
  std::string out;
  for (std::optional<std::uint64_t> total; !total || out.size() < *total;) {
    net::ClientRequest get{.method = "GET",
                           .url = blob_url(target, digest),
                           .headers = headers_of(target),
                           .body = "",
                           .max_response_bytes = kDownloadPieceBytes};
    const std::uint64_t last = out.size() + kDownloadPieceBytes - 1;
    get.headers.add("Range", "bytes=" + std::to_string(out.size()) + "-" + std::to_string(last));
    TRY(const auto answer, http.call(ctx.with_timeout(kPatience), std::move(get)));
    if (answer.status != 206) return refusal_of(answer);
    const auto range = parse_content_range(answer.headers.find("Content-Range").value_or(""));
    if (!range.ok() || range->first != out.size() || range->length != answer.body.size() ||
        range->length == 0 || (total && *total != range->total))
      return Error(Code::kUnavailable, "the registry sent another range than requested");
    total = range->total;
    if (*total > bytes_max)
      return Error(Code::kExhausted, "the blob " + write_digest(digest) + " has " +
                                         std::to_string(*total) + " bytes, more than " +
                                         std::to_string(bytes_max));
    out += answer.body;
  }
  if (Sha256::of(out) != digest)
    return Error(Code::kCorrupt, "the bytes do not match the digest " + write_digest(digest));
  return out;
}

Status put_version(const Context& ctx, net::HttpClient& http, const Target& target,
                   const VersionKey& key, const Version& version) {
  TRY(const auto answer,
      http.call(ctx.with_timeout(kPatience), {.method = "PUT",
                                              .url = version_url(target, key),
                                              .headers = headers_of(target),
                                              .body = codec::write_json(version.to_json())}));
  if (answer.status == 200 || answer.status == 201) return {};
  return refusal_of(answer);
}

Status put_names(const Context& ctx, net::HttpClient& http, const Target& target,
                 const std::string& holder, const std::set<codec::Sha256>& digests) {
  TRY(const auto answer,
      http.call(ctx.with_timeout(kPatience), {.method = "PUT",
                                              .url = target.url + "/v1/names/" + holder,
                                              .headers = headers_of(target),
                                              .body = write_names(digests)}));
  if (answer.status == 204) return {};
  return refusal_of(answer);
}

Result<Version> get_version(const Context& ctx, net::HttpClient& http, const Target& target,
                            const VersionKey& key) {
  TRY(const auto answer, http.call(ctx.with_timeout(kPatience), {.method = "GET",
                                                                 .url = version_url(target, key),
                                                                 .headers = headers_of(target),
                                                                 .body = ""}));
  if (answer.status != 200) return refusal_of(answer);
  TRY(const Json body, codec::parse_json(answer.body).context("version"));
  return Version::from_json(body);
}

}  // namespace varda::registry
