#include "registry/service.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "meta/object.h"
#include "net/url.h"
#include "registry/blob_reader.h"

namespace varda::registry {
namespace {

using codec::Json;
using codec::Sha256;
using net::Request;
using net::Response;

constexpr std::size_t kDocumentBytesMax = 64 << 10;
constexpr std::size_t kPageMax = 1000;

Response json(int status, const Json& body) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"}},
          .body = codec::write_json(body) + "\n"};
}

Response refuse(int status, const std::string& why) {
  return json(status, Json::object({{"error", why}}));
}

Response refuse(const Error& error) {
  int status = 500;
  switch (error.code()) {
    case Code::kInvalid:
      status = 400;
      break;
    case Code::kNotFound:
      status = 404;
      break;
    case Code::kConflict:
    case Code::kAlreadyExists:
      status = 409;
      break;
    case Code::kCorrupt:
      status = 422;
      break;
    case Code::kUnavailable:
      status = 503;
      break;
    case Code::kExhausted:
      status = 507;
      break;
    default:
      log::error("request failed", {{"error", error}});
  }
  Response out = refuse(status, error.message());
  if (status == 503) out.headers.add("Retry-After", "1");
  return out;
}

Response not_allowed(const std::string& methods) {
  Response out = refuse(405, "the methods here are " + methods);
  out.headers.add("Allow", methods);
  return out;
}

struct Page {
  std::size_t limit = kPageMax;
  std::string after;
};

Result<Page> parse_page(const Request& request) {
  const net::Query query = net::Query::parse(request.query());
  Page page;
  page.after = query.get("continue");
  if (const auto limit = query.find("limit")) {
    const auto number = parse_integer<std::size_t>(*limit);
    if (!number || *number == 0) return Error(Code::kInvalid, "limit: must be a positive number");
    page.limit = std::min(*number, kPageMax);
  }
  return page;
}

/// The answer to a list. `more`: the key of the last item, if items follow.
Response page_of(Json items, const std::string& more) {
  Json out = Json::object({{"items", std::move(items)}});
  if (!more.empty()) out.set("continue", more);
  return json(200, out);
}

std::string time_text(WallTime time) { return meta::format_time(time); }

Json version_json(const VersionKey& key, const Version& version) {
  Json out = Json::object({{"version", key.version}});
  const Json document = version.to_json();
  for (const auto& [name, value] : document.as_object()) out.set(name, value);
  return out;
}

/// The piece that a PUT announces.
Result<Piece> parse_piece(const Request& head, const Sha256& digest) {
  const auto length =
      parse_integer<std::uint64_t>(head.headers.find("Content-Length").value_or(""));
  if (!length) return Error(Code::kUnsupported, "an upload needs Content-Length");
  const auto range = head.headers.find("Content-Range");
  if (!range) return Piece{.digest = digest, .first = 0, .length = *length, .total = *length};
  TRY(const ContentRange parsed, parse_content_range(*range));
  if (parsed.length != *length)
    return Error(Code::kInvalid, "Content-Range has " + std::to_string(parsed.length) +
                                     " bytes, but the body has " + std::to_string(*length));
  return Piece{
      .digest = digest, .first = parsed.first, .length = parsed.length, .total = parsed.total};
}

}  // namespace

/// Writes the body of one piece.
class Service::Receiver final : public net::BodyReceiver {
 public:
  Receiver(Service& service, const Sha256& digest, std::unique_ptr<BlobUpload> upload,
           std::optional<CopySource> copy)
      : service_(service), digest_(digest), upload_(std::move(upload)), copy_(std::move(copy)) {}

  std::optional<Response> write(std::string_view bytes) override {
    const Status written = upload_->write(bytes);
    if (!written.ok()) return service_.refuse_upload(written.error(), digest_);
    if (service_.received_bytes_ != nullptr)
      service_.received_bytes_->add(static_cast<double>(bytes.size()));
    return std::nullopt;
  }
  bool ready() override { return upload_->ready(); }
  void on_ready(std::function<void()> wake) override { upload_->on_ready(std::move(wake)); }
  void finish(net::Responder respond) override {
    service_.pool_.wrap([&service = service_, upload = upload_, digest = digest_, copy = copy_](
                            const Request&) { return service.finish(*upload, digest, copy); })(
        Request(), std::move(respond));
  }

 private:
  Service& service_;
  const Sha256 digest_;
  const std::shared_ptr<BlobUpload> upload_;
  const std::optional<CopySource> copy_;
};

/// Drops the body of a blob that is stored already. Many clients cannot read an answer before they
/// have sent the body.
class Service::Ignore final : public net::BodyReceiver {
 public:
  std::optional<Response> write(std::string_view) override { return std::nullopt; }
  void finish(net::Responder respond) override { respond(json(200, Json::object())); }
};

Service::Service(BlobStore& blobs, VersionStore& versions, const Options& options)
    : blobs_(blobs),
      versions_(versions),
      options_(options),
      pool_({.threads = options.threads, .queue_max = 1024}) {
  if (options_.metrics == nullptr) return;
  metrics::Registry& all = *options_.metrics;
  constexpr const char* kUploads = "varda_registry_uploads_total";
  constexpr const char* kUploadsHelp = "Uploads that ended, by result";
  stored_ = &all.counter(kUploads, kUploadsHelp, {{"result", "stored"}});
  failed_ = &all.counter(kUploads, kUploadsHelp, {{"result", "refused"}});
  received_bytes_ =
      &all.counter("varda_registry_received_bytes_total", "Bytes of blobs received from clients");
  copied_bytes_ = &all.counter("varda_registry_copied_bytes_total",
                               "Bytes of uploads that came from other stored blobs");
  collected_ = &all.counter("varda_registry_collected_blobs_total",
                            "Blobs removed because no version named them");
  const auto gauge = [&](const char* name, const char* help, std::uint64_t Usage::*member) {
    all.gauge_from(name, help, {}, gauges_.guarded([&blobs, member] {
      return static_cast<double>(blobs.usage().*member);
    }));
  };
  gauge("varda_registry_stored_bytes", "Bytes of stored blobs", &Usage::stored_bytes);
  gauge("varda_registry_blobs", "Stored blobs", &Usage::blobs);
  gauge("varda_registry_reserved_bytes", "Total bytes of unfinished uploads",
        &Usage::reserved_bytes);
  gauge("varda_registry_unfinished_uploads", "Unfinished uploads", &Usage::uploads);
  all.gauge("varda_registry_quota_bytes", "Limit of stored and reserved bytes; 0: no limit")
      .set(static_cast<double>(options_.quota_bytes));
}

net::Server::Options Service::server_options() {
  net::Server::Options out;
  out.io_threads = 2;  // a write that waits for the disk delays half of the connections
  out.connections_max = 1024;
  out.json_refusals = true;
  out.body_bytes_max = std::numeric_limits<std::size_t>::max();
  out.body_bytes_max_of = [](std::string_view, std::string_view path) {
    return path.starts_with("/v1/names/") ? kNamesBytesMax : kDocumentBytesMax;
  };
  out.stream_buffer_bytes_max = 256 << 10;
  out.receive = [this](const Request& head) { return receive(head); };
  return out;
}

net::Handler Service::handler() {
  return pool_.wrap([this](const Request& request) {
    Response response = answer(request);
    log::info("request", {{"peer", request.peer.address},
                          {"method", request.method},
                          {"target", request.target},
                          {"status", response.status}});
    return response;
  });
}

bool Service::allowed(const Request& request) const {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && options_.reads == Options::Reads::kByDigest &&
      request.path().starts_with("/v1/blobs/sha256:"))
    return true;
  return options_.token.empty() ||
         codec::same_secret(request.headers.find("Authorization").value_or(""),
                            "Bearer " + options_.token);
}

Response Service::refuse_upload(const Error& error, const Sha256& digest) {
  if (failed_ != nullptr) failed_->add();
  Response out = refuse(error);
  if (error.code() == Code::kUnsupported) out.status = 411;
  if (error.code() == Code::kConflict)
    out.headers.add("Upload-Offset", std::to_string(blobs_.offset(digest).value_or(0)));
  log::info("upload refused", {{"digest", digest.hex()}, {"status", out.status}, {"error", error}});
  return out;
}

net::Reception Service::receive(const Request& head) {
  if (head.method != "PUT" || !head.path().starts_with("/v1/blobs/")) return {};
  const auto refusal = [](Response response) {
    return net::Reception{.receiver = nullptr, .refusal = std::move(response)};
  };
  if (!allowed(head)) return refusal(answer(head));
  const auto route = parse_route(head.path());
  if (!route.ok()) return refusal(refuse(route.error()));
  if (route->kind != Route::Kind::kBlob || route->named) return {};
  const Sha256& digest = route->digest;
  auto piece = parse_piece(head, digest);
  if (!piece.ok()) return refusal(refuse_upload(piece.error(), digest));
  std::optional<CopySource> copy;
  if (const auto text = head.headers.find("Upload-Copy")) {
    const auto parsed = parse_copy_source(*text);
    const Status checked = parsed.ok() ? check_copy(*parsed, *piece) : parsed.error();
    if (!checked.ok()) return refusal(refuse_upload(checked.error(), digest));
    copy = *parsed;
    piece->length += copy->length;
  }
  if (options_.quota_bytes > 0 && piece->total > options_.quota_bytes) {
    Response out =
        refuse_upload(Error(Code::kExhausted, "the blob has " + std::to_string(piece->total) +
                                                  " bytes, more than the whole quota of " +
                                                  std::to_string(options_.quota_bytes) + " bytes"),
                      digest);
    out.status = 413;
    return refusal(std::move(out));
  }
  auto upload = blobs_.begin(*piece);
  if (!upload.ok() && upload.error().code() == Code::kAlreadyExists) answered_stored(digest);
  if (!upload.ok() && upload.error().code() == Code::kAlreadyExists)
    return {.receiver = std::make_unique<Ignore>(), .refusal = std::nullopt};
  if (!upload.ok()) return refusal(refuse_upload(upload.error(), digest));
  return {.receiver = std::make_unique<Receiver>(*this, digest, std::move(*upload), copy),
          .refusal = std::nullopt};
}

Status Service::check_copy(const CopySource& copy, const Piece& piece) {
  if (copy.length > kCopyBytesMax)
    return Error(Code::kInvalid,
                 "Upload-Copy: at most " + std::to_string(kCopyBytesMax) + " bytes at a time");
  if (copy.length > piece.total - piece.first - piece.length)
    return Error(Code::kInvalid, "Upload-Copy: the copy would exceed the blob");
  TRY(const auto base, blobs_.find(copy.digest));
  if (!base) return Error(Code::kNotFound, "Upload-Copy: the blob to copy from is not stored");
  if (copy.first >= base->size_bytes || copy.length > base->size_bytes - copy.first)
    return Error(Code::kInvalid, "Upload-Copy: the blob to copy from has only " +
                                     std::to_string(base->size_bytes) + " bytes");
  return {};
}

Response Service::finish(BlobUpload& upload, const Sha256& digest,
                         const std::optional<CopySource>& copy) {
  if (copy) {
    const Status copied = copy_into(upload, blobs_, copy->digest, copy->first, copy->length);
    if (!copied.ok() && copied.error().code() == Code::kNotFound)  // removed or damaged meanwhile
      return refuse_upload(Error(Code::kConflict, copied.error().message()), digest);
    if (!copied.ok()) return refuse_upload(copied.error(), digest);
    if (copied_bytes_ != nullptr) copied_bytes_->add(static_cast<double>(copy->length));
  }
  const auto state = upload.finish();
  if (!state.ok()) return refuse_upload(state.error(), digest);
  if (*state == BlobUpload::State::kPartial) {
    Response out{.status = 202};
    out.headers.add("Upload-Offset", std::to_string(blobs_.offset(digest).value_or(0)));
    return out;
  }
  if (stored_ != nullptr) stored_->add();
  log::info("blob stored", {{"digest", digest.hex()}});
  Response out = json(201, Json::object({{"digest", write_digest(digest)}}));
  out.headers.add("Location", "/v1/blobs/" + write_digest(digest));
  return out;
}

Response Service::answer(const Request& request) {
  if (!allowed(request)) {
    Response out = refuse(401, "the request needs the registry's token");
    out.headers.add("WWW-Authenticate", "Bearer");
    return out;
  }
  const auto route = parse_route(request.path());
  if (!route.ok()) return refuse(route.error());
  switch (route->kind) {
    case Route::Kind::kBlob:
      if (route->named && request.method != "GET" && request.method != "HEAD")
        return refuse(Error(Code::kNotFound, "only reads may have a file name after the digest"));
      return blob(route->digest, request);
    case Route::Kind::kChunks:
      if (request.method != "GET" && request.method != "HEAD") return not_allowed("GET, HEAD");
      if (options_.chunk_lists == nullptr) return refuse(404, "this registry has no chunk lists");
      return options_.chunk_lists->serve(route->digest, request);
    case Route::Kind::kBlobs:
      return blobs(request);
    case Route::Kind::kModels:
      return models(request);
    case Route::Kind::kVersions:
      return versions(route->key, request);
    case Route::Kind::kVersion:
      return version(route->key, request);
    case Route::Kind::kNames:
      return names(route->holder, request);
  }
  return refuse(404, "no such path");
}

Response Service::blob(const Sha256& digest, const Request& request) {
  if (request.method == "GET" || request.method == "HEAD") {
    Response out = blobs_.serve(digest, request);
    if (out.status == 200 && request.method == "HEAD") answered_stored(digest);
    if (out.status != 404) return out;
    out = refuse(404, "the blob is not stored");
    if (const auto offset = blobs_.offset(digest))
      out.headers.add("Upload-Offset", std::to_string(*offset));
    return out;
  }
  if (request.method != "DELETE") return not_allowed("GET, HEAD, PUT, DELETE");
  const Status removed = remove_blob(digest);
  return removed.ok() ? Response{.status = 204} : refuse(removed.error());
}

Status Service::remove_blob(const Sha256& digest) {
  const MutexLock lock(changes_);
  TRY(const auto named, versions_.references());
  if (named.contains(digest))
    return Error(Code::kConflict,
                 "a version, or an object of a cluster, names the blob; delete that first");
  return blobs_.remove(digest);
}

Response Service::blobs(const Request& request) {
  if (request.method != "GET") return not_allowed("GET");
  const auto page = parse_page(request);
  if (!page.ok()) return refuse(page.error());
  std::optional<Sha256> after;
  if (!page->after.empty()) {
    const auto digest = parse_digest(page->after);
    if (!digest.ok()) return refuse(digest.error().context("continue"));
    after = *digest;
  }
  const auto found = blobs_.list(after, page->limit + 1);
  if (!found.ok()) return refuse(found.error());
  Json items = Json::array();
  std::string last;
  for (const BlobInfo& blob : *found) {
    if (items.size() == page->limit) return page_of(std::move(items), last);
    last = write_digest(blob.digest);
    items.push_back(Json::object(
        {{"digest", last}, {"size", blob.size_bytes}, {"createdAt", time_text(blob.created)}}));
  }
  return page_of(std::move(items), "");
}

Response Service::models(const Request& request) {
  if (request.method != "GET") return not_allowed("GET");
  const auto page = parse_page(request);
  if (!page.ok()) return refuse(page.error());
  VersionKey after;
  const std::size_t slash = page->after.find('/');
  after.ns = page->after.substr(0, slash);
  if (slash != std::string::npos) after.name = page->after.substr(slash + 1);
  Result<std::vector<VersionKey>> found = std::vector<VersionKey>();
  {
    const MutexLock lock(changes_);
    found = versions_.models(after, page->limit + 1);
  }
  if (!found.ok()) return refuse(found.error());
  Json items = Json::array();
  std::string last;
  for (const VersionKey& model : *found) {
    if (items.size() == page->limit) return page_of(std::move(items), last);
    last = model.ns + "/" + model.name;
    items.push_back(Json::object({{"namespace", model.ns}, {"name", model.name}}));
  }
  return page_of(std::move(items), "");
}

Response Service::versions(const VersionKey& model, const Request& request) {
  if (request.method != "GET") return not_allowed("GET");
  const auto page = parse_page(request);
  if (!page.ok()) return refuse(page.error());
  Result<std::vector<std::pair<std::string, Version>>> found =
      std::vector<std::pair<std::string, Version>>();
  {
    const MutexLock lock(changes_);
    found = versions_.list(model, page->after, page->limit + 1);
  }
  if (!found.ok()) return refuse(found.error());
  Json items = Json::array();
  VersionKey key = model;
  for (const auto& [name, document] : *found) {
    if (items.size() == page->limit) return page_of(std::move(items), key.version);
    key.version = name;
    items.push_back(version_json(key, document));
  }
  return page_of(std::move(items), "");
}

Response Service::names(const std::string& holder, const Request& request) {
  if (request.method != "PUT" && request.method != "DELETE") return not_allowed("PUT, DELETE");
  Result<std::set<Sha256>> digests = std::set<Sha256>();
  if (request.method == "PUT") digests = parse_names(request.body);
  if (!digests.ok()) return refuse(digests.error());
  const MutexLock lock(changes_);
  const Status put = versions_.put_names(holder, *digests);
  return put.ok() ? Response{.status = 204} : refuse(put.error());
}

void Service::answered_stored(const Sha256& digest) {
  const MutexLock lock(answers_);
  answered_[digest] = system_clock().wall();
}

Response Service::version(const VersionKey& key, const Request& request) {
  const MutexLock lock(changes_);
  if (request.method == "GET" || request.method == "HEAD") {
    const auto found = versions_.get(key);
    return found.ok() ? json(200, found->to_json()) : refuse(found.error());
  }
  if (request.method == "DELETE") {
    const Status removed = versions_.remove(key);
    return removed.ok() ? Response{.status = 204} : refuse(removed.error());
  }
  if (request.method != "PUT") return not_allowed("GET, HEAD, PUT, DELETE");
  const auto body = codec::parse_json(request.body);
  if (!body.ok()) return refuse(body.error());
  auto parsed = Version::from_json(*body);
  if (!parsed.ok()) return refuse(parsed.error());
  const auto created = put_version(key, std::move(*parsed));
  if (!created.ok()) return refuse(created.error());
  return json(*created ? 201 : 200, Json::object());
}

Result<bool> Service::put_version(const VersionKey& key, Version version) {
  const auto missing = [](const Sha256& digest) {
    return Error(Code::kConflict, "the blob " + write_digest(digest) +
                                      " is not stored; upload it before the version");
  };
  TRY(const auto blob, blobs_.find(version.digest));
  if (!blob) return missing(version.digest);
  if (version.size_bytes && *version.size_bytes != blob->size_bytes)
    return Error(Code::kInvalid,
                 "size: the blob has " + std::to_string(blob->size_bytes) + " bytes");
  if (version.chunks) {
    TRY(const auto chunks, blobs_.find(*version.chunks));
    if (!chunks) return missing(*version.chunks);
  }
  version.size_bytes = blob->size_bytes;
  version.created_at = time_text(system_clock().wall());
  const auto existing = versions_.get(key);
  if (!existing.ok() && existing.error().code() != Code::kNotFound) return existing.error();
  if (existing.ok()) {
    if (existing->digest != version.digest)
      return Error(Code::kConflict, "the version has the digest " + write_digest(existing->digest) +
                                        "; use another version, or delete this one first");
    version.created_at = existing->created_at;
  }
  TRY_VOID(versions_.put(key, version));
  return !existing.ok();
}

Result<Service::Collected> Service::collect(WallTime now, const std::set<Sha256>& named) {
  const MutexLock lock(changes_);
  const WallTime limit = now - std::chrono::duration_cast<WallTime::duration>(options_.grace);
  Collected out;
  TRY(out.uploads, blobs_.expire_uploads(limit));
  TRY(const auto versions, versions_.references());
  std::set<Sha256> answered;
  {
    const MutexLock answers(answers_);
    std::erase_if(answered_, [&](const auto& one) { return one.second < limit; });
    for (const auto& [digest, at] : answered_) answered.insert(digest);
  }
  std::optional<Sha256> after;
  while (true) {
    TRY(const std::vector<BlobInfo> page, blobs_.list(after, kPageMax));
    if (page.empty()) break;
    after = page.back().digest;
    for (const BlobInfo& blob : page) {
      if (versions.contains(blob.digest) || named.contains(blob.digest) ||
          answered.contains(blob.digest) || blob.created >= limit)
        continue;
      TRY_VOID(blobs_.remove(blob.digest));
      ++out.blobs;
      out.bytes += blob.size_bytes;
    }
  }
  if (collected_ != nullptr) collected_->add(static_cast<double>(out.blobs));
  return out;
}

}  // namespace varda::registry
