#include "registry/bucket.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace varda::registry {
namespace {

using Answer = net::HttpClient::Answer;

constexpr std::uint64_t kBytesPerSecondMin = 64 << 10;
constexpr std::uint64_t kAnswerBytesMax = 16u << 20;

std::string code_of(const Answer& answer) {
  const std::string code = xml_text(answer.body, "Code").value_or("");
  const bool plain = code.size() <= 64 && std::all_of(code.begin(), code.end(), [](char c) {
                       return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
                     });
  return plain ? code : "";
}

Error refusal_by(const Answer& answer, Code code) {
  const std::string s3_code = code_of(answer);
  return {code, "the bucket answered " + std::to_string(answer.status) +
                    (s3_code.empty() ? "" : " " + s3_code)};
}

/// Answers of S3 that ask for another attempt.
bool is_transient(const Answer& answer) {
  return answer.status >= 500 || answer.status == 429 || answer.status == 408 ||
         code_of(answer) == "RequestTimeout";
}

/// The error of an answer. Only S3's own words mean kNotFound: a proxy's 404 proves nothing.
Status checked(const Answer& answer) {
  if (answer.status >= 200 && answer.status < 300) return {};
  const std::string code = code_of(answer);
  const bool missing = code == "NoSuchKey" || code == "NoSuchUpload" || code == "InvalidPart";
  return refusal_by(answer, missing ? Code::kNotFound : Code::kInternal);
}

Bucket::Body text_body(std::string text) {
  return [text = std::move(text)]() -> Result<std::string> { return text; };
}

std::string upload_query(const std::string& id) { return "uploadId=" + net::percent_encode(id); }

}  // namespace

Bucket::Bucket(BucketOptions options, net::Url root, std::string prefix, net::HttpClient& http)
    : options_(std::move(options)),
      root_(std::move(root)),
      prefix_(std::move(prefix)),
      key_(artifact::aws_key(options_.credentials)),
      http_(http) {
  if (options_.metrics == nullptr) return;
  requests_ = &options_.metrics->counter("varda_registry_bucket_requests_total",
                                         "Requests to the bucket, with repeated ones");
  failures_ = &options_.metrics->counter("varda_registry_bucket_failures_total",
                                         "Requests that the bucket or the network failed");
}

Result<std::unique_ptr<Bucket>> Bucket::create(BucketOptions options, net::HttpClient& http) {
  const Error wrong(Code::kInvalid, "must be s3://BUCKET or s3://BUCKET/PREFIX");
  TRY(net::Url url, net::Url::parse(options.url));
  if (url.scheme != "s3" || url.host.empty()) return wrong;
  TRY(std::string prefix, net::percent_decode(std::string_view(url.target).substr(1)));
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.empty()) prefix += '/';
  // The address of an object leads to the address of the bucket.
  constexpr std::string_view kAnyKey = "x";
  url.target = "/" + std::string(kAnyKey);
  TRY(net::Url root, artifact::s3_address(url, options.credentials));
  root.target.resize(root.target.size() - kAnyKey.size());
  return std::unique_ptr<Bucket>(new Bucket(std::move(options), std::move(root), std::move(prefix),
                                            http));  // NOLINT: the constructor is private
}

Result<Answer> Bucket::attempt(const Context& ctx, const Call& call) {
  net::ClientRequest request{.method = call.method, .max_response_bytes = kAnswerBytesMax};
  if (call.body) {
    TRY(request.body, call.body());
  }
  if (!call.range.empty()) request.headers.add("Range", call.range);
  std::string target = root_.target;
  if (!call.key.empty()) target += artifact::aws_encode_path(prefix_ + call.key);
  if (!call.query.empty()) target += "?" + call.query;
  const std::string origin = root_.origin();
  const std::string host = origin.substr(origin.find("://") + 3);
  request.headers.set("Host", host);
  if (!key_.id.empty()) artifact::aws_sign(request, host, target, key_, system_clock().wall());
  request.url = origin + target;
  const std::chrono::seconds time(request.body.size() / kBytesPerSecondMin);
  return http_.call(ctx.with_timeout(call.patience + time), std::move(request));
}

Result<Answer> Bucket::call(const Context& ctx, const Call& call) {
  Duration pause = options_.first_pause;
  for (int number = 1;; ++number) {
    auto answer = attempt(ctx, call);
    if (requests_ != nullptr) requests_->add();
    if (answer.ok() && !is_transient(*answer)) return answer;
    if (failures_ != nullptr) failures_->add();
    TRY_VOID(ctx.check());
    const Error error = answer.ok() ? refusal_by(*answer, Code::kUnavailable) : answer.error();
    const bool again =
        answer.ok() || error.code() == Code::kUnavailable || error.code() == Code::kTimeout;
    if (!again) return error;
    log::warn("bucket request failed",
              {{"method", call.method}, {"key", call.key}, {"attempt", number}, {"error", error}});
    if (number >= options_.attempts_max) return Error(Code::kUnavailable, error.message());
    TRY_VOID(ctx.sleep_for(pause));
    pause *= 2;
  }
}

Status Bucket::put(const Context& ctx, const std::string& key, const Body& body) {
  TRY(const Answer answer, call(ctx, {.method = "PUT", .key = key, .body = body}));
  return checked(answer);
}

Result<std::string> Bucket::get(const Context& ctx, const std::string& key, std::uint64_t first,
                                std::uint64_t length) {
  if (length == 0) return std::string();
  Call request{.method = "GET", .key = key};
  request.range = "bytes=" + std::to_string(first) + "-" + std::to_string(first + length - 1);
  request.patience += std::chrono::seconds(length / kBytesPerSecondMin);
  TRY(Answer answer, call(ctx, request));
  if (answer.status == 416) return std::string();
  TRY_VOID(checked(answer));
  // A server without ranges sends the whole object.
  if (answer.status != 206 && (first > 0 || answer.body.size() > length))
    return Error(Code::kInternal, "the bucket ignores ranges");
  return std::move(answer.body);
}

Status Bucket::remove(const Context& ctx, const std::string& key) {
  TRY(const Answer answer, call(ctx, {.method = "DELETE", .key = key}));
  return checked(answer);
}

Result<std::vector<BucketObject>> Bucket::list(const Context& ctx, const std::string& prefix) {
  std::vector<BucketObject> out;
  const std::string whole = prefix_ + prefix;
  std::string continuation;
  do {
    Call page{.method = "GET"};
    if (!continuation.empty())
      page.query = "continuation-token=" + net::percent_encode(continuation) + "&";
    page.query += "list-type=2&prefix=" + net::percent_encode(whole);
    TRY(const Answer answer, call(ctx, page));
    TRY_VOID(checked(answer));
    TRY(BucketListing listing, parse_listing(answer.body));
    for (BucketObject& object : listing.objects) {
      if (!object.key.starts_with(whole)) continue;
      object.key.erase(0, prefix_.size());
      out.push_back(std::move(object));
    }
    continuation = std::move(listing.continuation);
  } while (!continuation.empty());
  return out;
}

Result<std::string> Bucket::begin_upload(const Context& ctx, const std::string& key) {
  TRY(const Answer answer, call(ctx, {.method = "POST", .key = key, .query = "uploads="}));
  TRY_VOID(checked(answer));
  return parse_upload_id(answer.body);
}

Result<BucketPart> Bucket::put_part(const Context& ctx, const std::string& key,
                                    const std::string& id, int number, const Body& body) {
  TRY(const Answer answer,
      call(ctx, {.method = "PUT",
                 .key = key,
                 .query = "partNumber=" + std::to_string(number) + "&" + upload_query(id),
                 .body = body}));
  TRY_VOID(checked(answer));
  const auto tag = answer.headers.find("ETag");
  if (!tag) return Error(Code::kUnavailable, "the bucket's answer has no ETag");
  return BucketPart{.number = number, .tag = std::string(*tag)};
}

Result<std::vector<BucketPart>> Bucket::parts(const Context& ctx, const std::string& key,
                                              const std::string& id) {
  std::vector<BucketPart> out;
  int after = 0;
  do {
    TRY(const Answer answer,
        call(ctx, {.method = "GET",
                   .key = key,
                   .query = (after > 0 ? "part-number-marker=" + std::to_string(after) + "&" : "") +
                            upload_query(id)}));
    TRY_VOID(checked(answer));
    TRY(BucketParts page, parse_parts(answer.body));
    if (!page.parts.empty() && page.parts.front().number <= after)
      return Error(Code::kUnavailable, "the bucket repeats a page of parts");
    for (BucketPart& part : page.parts) out.push_back(std::move(part));
    after = page.after;
  } while (after > 0);
  return out;
}

Status Bucket::complete(const Context& ctx, const std::string& key, const std::string& id,
                        const std::vector<BucketPart>& parts) {
  Call request{.method = "POST", .key = key, .query = upload_query(id)};
  request.body = text_body(write_parts(parts));
  request.patience = std::chrono::minutes(5);  // S3 copies the parts meanwhile
  TRY(const Answer answer, call(ctx, request));
  TRY_VOID(checked(answer));
  // S3 sends 200 before it begins, and an error may follow in the body.
  if (answer.body.find("<CompleteMultipartUploadResult") == std::string::npos)
    return refusal_by(answer, Code::kUnavailable);
  return {};
}

Status Bucket::abort(const Context& ctx, const std::string& key, const std::string& id) {
  TRY(const Answer answer, call(ctx, {.method = "DELETE", .key = key, .query = upload_query(id)}));
  Status aborted = checked(answer);
  if (!aborted.ok() && aborted.error().code() == Code::kNotFound) return {};
  return aborted;
}

}  // namespace varda::registry
