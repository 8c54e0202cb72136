#include "gateway/uploads.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "meta/status.h"
#include "registry/request.h"

namespace varda::gateway {
namespace {

using net::Request;
using net::Response;

constexpr std::string_view kBlobs = "/v1/blobs/";
// The registry reads the whole file again before the answer to the last piece.
constexpr std::uint64_t kVerifiedBytesPerSecond = 20u << 20;
constexpr std::chrono::seconds kRegistryPatience{60}, kVerificationMax{3600};

Response upload_status(int code, const char* reason, std::string message) {
  meta::ApiStatus status;
  status.code = code;
  status.reason = reason;
  status.message = std::move(message);
  Response out{.status = code,
               .headers = {{"Content-Type", "application/json"}},
               .body = codec::write_json(status.to_json()) + "\n"};
  if (code == 503) out.headers.add("Retry-After", "1");
  return out;
}

Response bad_upload(const Error& error) {
  return error.code() == Code::kNotFound ? upload_status(404, "NotFound", error.message())
                                         : upload_status(400, "BadRequest", error.message());
}

/// The length of the body: of the bytes that arrived, or as announced.
std::uint64_t length_of(const Request& request) {
  if (!request.body.empty()) return request.body.size();
  return parse_integer<std::uint64_t>(request.headers.find("Content-Length").value_or(""))
      .value_or(0);
}

Response wrong_method(const char* message, const char* allowed) {
  Response out = upload_status(405, "MethodNotAllowed", message);
  out.headers.add("Allow", allowed);
  return out;
}

/// The size of the whole file of a PUT.
Result<std::uint64_t> total_of(const Request& request) {
  const auto range = request.headers.find("Content-Range");
  if (!range) return length_of(request);
  TRY(const registry::ContentRange parsed, registry::parse_content_range(*range));
  return parsed.total;
}

}  // namespace

Uploads::Uploads(net::HttpClient& http, Options options)
    : http_(http), options_(std::move(options)), pool_(options_.pool) {
  if (options_.metrics == nullptr) return;
  bytes_ = &options_.metrics->counter("varda_gateway_upload_bytes_total",
                                      "Bytes of files that nodes sent to the registry.");
}

bool Uploads::is_for(const Request& request) { return request.path().starts_with(kBlobs); }

BlobRights Uploads::rights_of(const codec::Json& edge_node) {
  BlobRights out;
  for (const codec::Json& worker : edge_node.at("spec/workers").as_array()) {
    if (worker["bucket"].is_object()) continue;  // nothing of this worker goes to the registry
    const std::int64_t limit = worker["uploads"]["maxBytes"].as_integer();
    if (limit > 0) out.upload_bytes_max = std::max(out.upload_bytes_max, std::uint64_t(limit));
  }
  for (const codec::Json& share : edge_node.at("spec/shares").as_array()) {
    if (share["relay"].as_bool())
      out.upload_bytes_max = std::max(out.upload_bytes_max, kRelayedBytesMax);
  }
  for (const codec::Json& replica : edge_node.at("spec/replicas").as_array())
    out.reads = out.reads || replica["relay"].as_bool();
  return out;
}

std::optional<Response> Uploads::refusal(const std::string& node, const BlobRights& rights,
                                         const Request& head) const {
  const auto route = registry::parse_route(head.path());
  if (!route.ok()) return bad_upload(route.error());
  const bool list = route->kind == registry::Route::Kind::kChunks;
  if ((!list && route->kind != registry::Route::Kind::kBlob) || route->named ||
      !head.query().empty())
    return upload_status(404, "NotFound", "there is no such path");
  if (list && head.method != "GET")
    return wrong_method("a node may only read a list of chunks", "GET");
  if (!list && head.method != "PUT" && head.method != "HEAD" && head.method != "GET")
    return wrong_method("the methods here are PUT, HEAD and GET", "PUT, HEAD, GET");
  const bool reads_blob = !list && head.method == "GET";
  if (reads_blob && !rights.reads)
    return upload_status(
        403, "Forbidden",
        "node \"" + node + "\" may not read files: no replica of its work list is relayed");
  if (!reads_blob && rights.upload_bytes_max == 0)
    return upload_status(
        403, "Forbidden",
        "node \"" + node +
            "\" may not upload files: no worker of its work list has uploads, and no share is "
            "relayed");
  if (head.method == "GET") return range_refusal(head);
  if (head.method == "HEAD") return std::nullopt;
  if (const auto copy = head.headers.find("Upload-Copy")) {
    const auto parsed = registry::parse_copy_source(*copy);
    if (!parsed.ok()) return bad_upload(parsed.error());
  }
  const auto total = total_of(head);
  if (!total.ok()) return bad_upload(total.error());
  if (*total > rights.upload_bytes_max)
    return upload_status(413, "RequestEntityTooLarge",
                         "the file has " + std::to_string(*total) +
                             " bytes, and the work list of node \"" + node + "\" allows " +
                             std::to_string(rights.upload_bytes_max));
  if (length_of(head) > options_.piece_bytes_max)
    return upload_status(413, "RequestEntityTooLarge",
                         "send the file in pieces of at most " +
                             std::to_string(options_.piece_bytes_max) +
                             " bytes, with Content-Range");
  return std::nullopt;
}

std::optional<Response> Uploads::range_refusal(const Request& head) const {
  // An answer must fit into memory.
  const auto range = registry::parse_range(head.headers.find("Range").value_or(""));
  if (range.ok() && range->last - range->first < options_.piece_bytes_max) return std::nullopt;
  return upload_status(416, "BadRequest",
                       "read the file in pieces of at most " +
                           std::to_string(options_.piece_bytes_max) +
                           " bytes, with Range: bytes=FIRST-LAST");
}

void Uploads::serve(const std::string& node, std::function<Result<BlobRights>()> rights,
                    Request request, net::Responder respond) {
  const std::size_t bytes = request.body.size() + request.target.size();
  // std::function must be copyable, and these are not. It runs once.
  const auto held =
      std::make_shared<std::pair<Request, net::Responder>>(std::move(request), std::move(respond));
  const bool taken = pool_.submit(node, bytes, [this, node, held, rights = std::move(rights)] {
    const auto allowed = rights();
    if (!allowed.ok())
      return held->second(upload_status(503, "ServiceUnavailable", allowed.error().message()));
    if (auto refused = refusal(node, *allowed, held->first)) {
      log::info("blob of a node refused", {{"node", node}, {"status", refused->status}});
      return held->second(std::move(*refused));
    }
    held->second(forward(held->first));
  });
  if (!taken)
    held->second(
        upload_status(503, "ServiceUnavailable", "too many uploads wait for the registry"));
}

Response Uploads::forward(const Request& request) {
  const auto route = *registry::parse_route(request.path());
  const bool list = route.kind == registry::Route::Kind::kChunks;
  net::ClientRequest out{.method = request.method,
                         .url = list ? registry::chunks_url(options_.registry, route.digest)
                                     : registry::blob_url(options_.registry, route.digest),
                         .headers = registry::headers_of(options_.registry),
                         .body = request.body,
                         .max_response_bytes = options_.piece_bytes_max + (64u << 10)};
  for (const char* name : {"Content-Range", "Upload-Copy", "Range"}) {
    if (const auto value = request.headers.find(name)) out.headers.add(name, std::string(*value));
  }
  std::chrono::seconds patience = kRegistryPatience;
  if (const auto range = request.headers.find("Content-Range")) {
    const auto parsed = registry::parse_content_range(*range);
    const auto copy = registry::parse_copy_source(request.headers.find("Upload-Copy").value_or(""));
    if (parsed.ok() &&
        parsed->first + parsed->length + (copy.ok() ? copy->length : 0) == parsed->total)
      patience +=
          std::min(kVerificationMax, std::chrono::seconds(parsed->total / kVerifiedBytesPerSecond));
  }
  auto answer = http_.call(Context(stop_.get_token()).with_timeout(patience), std::move(out));
  if (!answer.ok()) {
    log::warn("registry not reachable", {{"error", answer.error()}});
    return upload_status(503, "ServiceUnavailable",
                         "the registry is not reachable: " + answer.error().message());
  }
  if (answer->status == 401 || answer->status == 403) {
    log::warn("registry rejects the token of the gateway", {{"status", answer->status}});
    return upload_status(503, "ServiceUnavailable", "the registry rejects the gateway's token");
  }
  if (bytes_ != nullptr && answer->status < 300)
    bytes_->add(static_cast<double>(request.body.size()));
  Response response{.status = answer->status, .headers = {}, .body = {}};
  for (const char* name : {"Upload-Offset", "Retry-After", "Content-Type", "Content-Range"}) {
    if (const auto value = answer->headers.find(name))
      response.headers.add(name, std::string(*value));
  }
  if (request.method != "HEAD") response.body = std::move(answer->body);
  return response;
}

}  // namespace varda::gateway
