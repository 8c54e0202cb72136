#include "kube/client.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "base/text.h"
#include "kube/internal/unpacked_body.h"
#include "net/url.h"

namespace varda::kube {
namespace {

constexpr std::chrono::seconds kSilence{15};
constexpr std::size_t kWatchLineBytesMax = 64u << 20;
constexpr std::size_t kErrorBytesMax = 1u << 20;

/// The query of a request; parameters keep their order.
class QueryText {
 public:
  QueryText& add(std::string_view name, std::string_view value) {
    if (value.empty()) return *this;
    text_ += text_.empty() ? '?' : '&';
    text_.append(name).append("=").append(net::percent_encode(value));
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

std::string path_of(const Resource& resource, const ObjectKey& key,
                    std::string_view subresource = "") {
  std::string out = resource.path(net::percent_encode(key.ns), net::percent_encode(key.name));
  if (!subresource.empty()) out.append("/").append(subresource);
  return out;
}

ObjectKey key_of(const Json& object) {
  const Json& metadata = object["metadata"];
  return {metadata["namespace"].as_string(), metadata["name"].as_string()};
}

/// The request, as a prefix for error messages of answers without a Status.
std::string what(std::string_view method, std::string_view target) {
  return std::string(method) + " " + std::string(target.substr(0, target.find('?')));
}

Error error_of(int status, std::string_view body, std::string_view method,
               std::string_view target) {
  const auto json = codec::parse_json(body);
  if (json.ok() && (*json)["kind"].as_string() == "Status")
    return meta::ApiStatus::from_json(*json).to_error();
  meta::ApiStatus plain;
  plain.code = status;
  // Proxies and plain handlers answer with text. The first line has the reason.
  std::string text(body.substr(0, std::min<std::size_t>(body.find('\n'), 200)));
  plain.message = text.empty() ? "HTTP status " + std::to_string(status)
                               : "HTTP status " + std::to_string(status) + ": " + text;
  return plain.to_error().context(what(method, target));
}

void name_kind(Json& object, const Resource& resource) {
  if (!object.is_object()) return;
  if (object["kind"].as_string().empty()) object.set("kind", resource.kind);
  if (object["apiVersion"].as_string().empty()) object.set("apiVersion", resource.api_version());
}

std::string_view content_type(PatchType type) {
  switch (type) {
    case PatchType::kJson:
      return "application/json-patch+json";
    case PatchType::kMerge:
      return "application/merge-patch+json";
    case PatchType::kStrategic:
      break;
  }
  return "application/strategic-merge-patch+json";
}

class HttpWatch final : public Watch {
 public:
  HttpWatch(const Resource& resource, std::unique_ptr<net::BodyReader> body)
      : resource_(resource), body_(std::move(body)) {}

  Result<std::optional<WatchEvent>> next() override {
    TRY(const std::optional<std::string> line, next_line());
    if (!line) return std::optional<WatchEvent>();
    auto json = codec::parse_json(*line);
    if (!json.ok())
      return Error(Code::kCorrupt, "watch of " + resource_.plural + ": " + json.error().message());
    Json* const found = json->find("object");
    if (!found || !found->is_object())
      return Error(Code::kCorrupt, "watch of " + resource_.plural + ": an event without an object");
    Json& object = *found;
    const std::string& type = std::as_const(*json)["type"].as_string();
    WatchEvent event;
    if (type == "ADDED") {
      event.type = WatchEvent::Type::kAdded;
    } else if (type == "MODIFIED") {
      event.type = WatchEvent::Type::kModified;
    } else if (type == "DELETED") {
      event.type = WatchEvent::Type::kDeleted;
    } else if (type == "BOOKMARK") {
      event.type = WatchEvent::Type::kBookmark;
    } else if (type == "ERROR") {
      return meta::ApiStatus::from_json(object).to_error().context("watch of " + resource_.plural);
    } else {
      return Error(Code::kCorrupt,
                   "watch of " + resource_.plural + ": unknown event \"" + type + "\"");
    }
    event.object = std::move(object);
    name_kind(event.object, resource_);
    event.resource_version = std::as_const(event.object)["metadata"]["resourceVersion"].as_string();
    return std::optional<WatchEvent>(std::move(event));
  }

 private:
  /// The next line that is not empty; nothing at the end. Drops an incomplete last line, because
  /// the resumed watch sends the event again.
  Result<std::optional<std::string>> next_line() {
    while (true) {
      if (const auto end = buffer_.find('\n', searched_); end != std::string::npos) {
        std::string line = buffer_.substr(begin_, end - begin_);
        begin_ = searched_ = end + 1;
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        return std::optional<std::string>(std::move(line));
      }
      buffer_.erase(0, begin_);
      begin_ = 0;
      searched_ = buffer_.size();
      if (buffer_.size() > kWatchLineBytesMax)
        return Error(Code::kExhausted, "watch of " + resource_.plural + ": an event is too large");
      TRY(std::optional<std::string> more, body_->read());
      if (!more) return std::optional<std::string>();
      buffer_ += *more;
    }
  }

  Resource resource_;
  std::unique_ptr<net::BodyReader> body_;
  std::string buffer_;
  std::size_t begin_ = 0, searched_ = 0;
};

}  // namespace

struct Client::Impl {
  std::unique_ptr<net::HttpClient> owned;
  net::HttpClient& http;
  Options options;
  std::string host;  // with its port; label of metrics

  Impl(std::unique_ptr<net::HttpClient> own, net::HttpClient& client, Options opts)
      : owned(std::move(own)), http(client), options(std::move(opts)) {
    if (auto url = net::Url::parse(options.base_url); url.ok()) {
      host = url->origin();
      host.erase(0, host.find("://") + 3);
    }
  }

  /// One request.
  struct Call {
    std::string method = "GET", target;
    std::string body = {};
    std::string_view type = "application/json";
    std::string_view accept = "application/json";
    bool packed = false;  // the answer may be compressed
    net::Headers headers = {};
    std::optional<Duration> timeout = {};  // of each attempt
  };

  net::ClientRequest request(const Call& call, const std::string& token) const {
    net::ClientRequest out;
    out.method = call.method;
    out.url = options.base_url + call.target;
    if (!call.accept.empty()) out.headers.add("Accept", std::string(call.accept));
    if (call.packed) out.headers.add("Accept-Encoding", "gzip");
    out.headers.add("User-Agent", options.user_agent);
    if (!token.empty()) out.headers.add("Authorization", "Bearer " + token);
    if (!call.body.empty()) out.headers.add("Content-Type", std::string(call.type));
    for (const auto& [name, value] : call.headers.all()) out.headers.set(name, value);
    out.body = call.body;
    out.max_response_bytes = options.response_bytes_max;
    return out;
  }

  void count(const std::string& method, const std::string& code, Duration took) const {
    if (!options.metrics) return;
    options.metrics
        ->counter("rest_client_requests_total",
                  "Number of HTTP requests, partitioned by status code, method, and host.",
                  {{"code", code}, {"host", host}, {"method", method}})
        .add();
    options.metrics
        ->histogram("rest_client_request_duration_seconds",
                    "Request latency in seconds. Broken down by verb, and host.",
                    {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 45, 60},
                    {{"host", host}, {"verb", method}})
        .observe(std::chrono::duration<double>(took).count());
  }

  void count_retry(const std::string& method, int status) const {
    if (!options.metrics) return;
    options.metrics
        ->counter("rest_client_request_retries_total",
                  "Number of request retries, partitioned by status code, verb, and host.",
                  {{"code", std::to_string(status)}, {"host", host}, {"verb", method}})
        .add();
  }

  /// Sends the request and returns the answer. Repeats it once with a new token after a 401, and
  /// after each wait that an overloaded server asks for.
  Result<net::ClientResponse> send(const Context& ctx, const Call& call) const {
    bool renewed = false;
    std::string token = options.token_source ? options.token_source() : options.token;
    std::chrono::milliseconds waited{0};
    for (int waits = 0;;) {
      const SteadyTime begin = system_clock().now();
      auto response =
          http.send(call.timeout ? ctx.with_timeout(*call.timeout) : ctx, request(call, token));
      count(call.method, response.ok() ? std::to_string(response->status) : "<error>",
            system_clock().now() - begin);
      if (!response.ok())
        return std::move(response).error().context(what(call.method, call.target));
      const int status = response->status;
      if (status == 401 && options.token_again && !renewed) {
        renewed = true;
        std::string fresh = options.token_again(token);
        if (fresh != token) {
          token = std::move(fresh);
          count_retry(call.method, status);
          continue;
        }
      }
      const auto wait = waits < options.waits_max ? requested_wait(*response) : std::nullopt;
      if (!wait || waited + *wait > options.waits_total) return response;
      ++waits;
      waited += *wait;
      response->body.reset();
      // Clients with the same Retry-After must not return at the same moment.
      const auto pause = *wait + std::chrono::milliseconds(system_rng().below(
                                     static_cast<std::uint64_t>(wait->count()) / 4 + 1));
      const bool in_time = !ctx.deadline() || system_clock().now() + pause < *ctx.deadline();
      if (!in_time || !ctx.sleep_for(pause).ok())
        return Error(Code::kUnavailable, what(call.method, call.target) +
                                             ": the server has too much to do (HTTP status " +
                                             std::to_string(status) +
                                             "), and there is no time left to wait");
      count_retry(call.method, status);
    }
  }

  /// The time in Retry-After; nothing if the answer asks for no wait.
  std::optional<std::chrono::milliseconds> requested_wait(
      const net::ClientResponse& response) const {
    if (response.status != 429 && response.status < 500) return std::nullopt;
    const auto text = response.headers.find("Retry-After");
    if (!text) return std::nullopt;
    const int seconds = parse_integer<int>(*text).value_or(-1);
    if (seconds < 0) return std::nullopt;
    return std::min<std::chrono::milliseconds>(std::chrono::seconds(seconds), options.waits_total);
  }

  /// Sends and reads the whole answer. An answer of 400 or above is an Error.
  Result<std::string> call(const Context& ctx, Call call) const {
    call.timeout = options.timeout;
    call.packed = call.method == "GET";
    const std::string method = call.method, target = call.target;
    TRY(net::ClientResponse response, send(ctx, call));
    const int status = response.status;
    auto body = internal::unpacked(std::move(response));
    if (!body.ok()) return std::move(body).error().context(what(method, target));
    std::string text;
    while (true) {
      auto more = (*body)->read();
      if (!more.ok()) return std::move(more).error().context(what(method, target));
      if (!*more) break;
      if (text.size() + (*more)->size() > options.response_bytes_max)
        return Error(Code::kExhausted, what(method, target) + ": the answer is larger than " +
                                           std::to_string(options.response_bytes_max) + " bytes");
      if (text.empty()) {
        text = std::move(**more);
      } else {
        text += **more;
      }
    }
    if (status >= 400) return error_of(status, text, method, target);
    return text;
  }

  Result<Json> call_json(const Context& ctx, Call call) const {
    const std::string method = call.method, target = call.target;
    TRY(const std::string text, this->call(ctx, std::move(call)));
    auto json = codec::parse_json(text);
    if (!json.ok())
      return Error(Code::kCorrupt,
                   what(method, target) + ": the answer is not JSON: " + json.error().message());
    return std::move(*json);
  }

  Result<Json> write(const Context& ctx, const std::string& method, const Resource& resource,
                     const ObjectKey& key, std::string_view subresource, std::string body,
                     std::string_view type = "application/json") const {
    const std::string target = path_of(resource, key, subresource) +
                               QueryText().add("fieldManager", options.field_manager).str();
    TRY(Json object,
        call_json(ctx,
                  {.method = method, .target = target, .body = std::move(body), .type = type}));
    name_kind(object, resource);
    return object;
  }

  /// Opens a stream. An answer of 400 or above is an Error.
  Result<net::ClientResponse> open(const Context& ctx, const Call& call) const {
    TRY(net::ClientResponse response, send(ctx, call));
    if (response.status < 400) return response;
    std::string text;
    while (text.size() < kErrorBytesMax) {
      auto more = response.body->read();
      if (!more.ok() || !*more) break;
      text += **more;
    }
    return error_of(response.status, text, call.method, call.target);
  }
};

Client::Client(net::HttpClient& http, Options options)
    : impl_(std::make_unique<Impl>(nullptr, http, std::move(options))) {}
Client::Client(std::unique_ptr<net::HttpClient> http, Options options) {
  net::HttpClient& reference = *http;
  impl_ = std::make_unique<Impl>(std::move(http), reference, std::move(options));
}
Client::~Client() = default;

std::unique_ptr<Client> Client::without_waits() const {
  Options options = impl_->options;
  options.waits_max = 0;
  return std::make_unique<Client>(impl_->http, std::move(options));
}

Result<Json> Client::get(const Context& ctx, const Resource& resource, const ObjectKey& key) const {
  TRY(Json object, impl_->call_json(ctx, {.target = path_of(resource, key)}));
  name_kind(object, resource);
  return object;
}

Result<std::optional<Json>> Client::find(const Context& ctx, const Resource& resource,
                                         const ObjectKey& key) const {
  auto object = get(ctx, resource, key);
  if (object.ok()) return std::optional<Json>(std::move(*object));
  if (object.error().code() == Code::kNotFound) return std::optional<Json>();
  return std::move(object).error();
}

Result<List> Client::list(const Context& ctx, const Resource& resource,
                          const ListOptions& options) const {
  QueryText query;
  query.add("labelSelector", options.label_selector).add("fieldSelector", options.field_selector);
  if (options.limit > 0) query.add("limit", std::to_string(options.limit));
  query.add("continue", options.continue_token);
  // The token already contains the version. Servers refuse both together.
  if (options.continue_token.empty()) query.add("resourceVersion", options.resource_version);
  const std::string target = path_of(resource, {options.ns, ""}) + query.str();
  TRY(Json json, impl_->call_json(ctx, {.target = target}));
  // A proxy can answer 200 with other JSON. That must not look like an empty list.
  const Json& listed = std::as_const(json)["items"];
  const bool none = json.contains("items") && listed.is_null();
  if (!std::as_const(json)["metadata"].is_object() || !(listed.is_array() || none))
    return Error(Code::kCorrupt, what("GET", target) + ": the answer is not a list");
  List out;
  out.resource_version = std::as_const(json)["metadata"]["resourceVersion"].as_string();
  out.continue_token = std::as_const(json)["metadata"]["continue"].as_string();
  if (Json* items = json.find("items"); items && items->is_array()) {
    for (Json& item : items->array_items()) {
      name_kind(item, resource);
      out.items.push_back(std::move(item));
    }
  }
  return out;
}

Status Client::list_pages(const Context& ctx, const Resource& resource, ListOptions options,
                          const TakePage& take) const {
  options.continue_token.clear();
  for (std::size_t number = 0;;) {
    auto page = list(ctx, resource, options);
    if (!page.ok()) {
      if (page.error().code() != Code::kGone || options.continue_token.empty())
        return std::move(page).error();
      // If pages expire faster than the client reads them, only a list without pages succeeds.
      options.continue_token.clear();
      options.limit = 0;
      number = 0;
      continue;
    }
    options.continue_token = page->continue_token;
    take(number++, std::move(*page));
    if (options.continue_token.empty()) return {};
  }
}

Result<List> Client::list_all(const Context& ctx, const Resource& resource,
                              ListOptions options) const {
  List all;
  TRY_VOID(list_pages(ctx, resource, std::move(options), [&all](std::size_t number, List page) {
    if (number == 0) all = {};
    all.resource_version = std::move(page.resource_version);
    std::move(page.items.begin(), page.items.end(), std::back_inserter(all.items));
  }));
  return all;
}

Result<Json> Client::create(const Context& ctx, const Resource& resource,
                            const Json& object) const {
  return impl_->write(ctx, "POST", resource, {key_of(object).ns, ""}, "",
                      codec::write_json(object));
}

Result<Json> Client::update(const Context& ctx, const Resource& resource,
                            const Json& object) const {
  return impl_->write(ctx, "PUT", resource, key_of(object), "", codec::write_json(object));
}

Result<Json> Client::update_status(const Context& ctx, const Resource& resource,
                                   const Json& object) const {
  return impl_->write(ctx, "PUT", resource, key_of(object), "status", codec::write_json(object));
}

Result<Json> Client::patch(const Context& ctx, const Resource& resource, const ObjectKey& key,
                           PatchType type, const Json& patch, std::string_view subresource) const {
  return impl_->write(ctx, "PATCH", resource, key, subresource, codec::write_json(patch),
                      content_type(type));
}

Result<Json> Client::remove(const Context& ctx, const Resource& resource, const ObjectKey& key,
                            const DeleteOptions& options) const {
  Json body = Json::object({{"apiVersion", "v1"}, {"kind", "DeleteOptions"}});
  switch (options.propagation) {
    case Propagation::kDefault:
      break;
    case Propagation::kBackground:
      body.set("propagationPolicy", "Background");
      break;
    case Propagation::kForeground:
      body.set("propagationPolicy", "Foreground");
      break;
    case Propagation::kOrphan:
      body.set("propagationPolicy", "Orphan");
      break;
  }
  if (!options.uid.empty()) body.make("preconditions/uid") = options.uid;
  if (!options.resource_version.empty())
    body.make("preconditions/resourceVersion") = options.resource_version;
  if (options.grace_seconds) body.set("gracePeriodSeconds", *options.grace_seconds);
  return impl_->call_json(
      ctx, {.method = "DELETE", .target = path_of(resource, key), .body = codec::write_json(body)});
}

Result<std::unique_ptr<Watch>> Client::watch(const Context& ctx, const Resource& resource,
                                             const WatchOptions& options) const {
  QueryText query;
  query.add("watch", "true").add("allowWatchBookmarks", "true");
  query.add("timeoutSeconds", std::to_string(options.timeout.count()));
  query.add("labelSelector", options.label_selector).add("fieldSelector", options.field_selector);
  query.add("resourceVersion", options.resource_version);
  const std::string target = path_of(resource, {options.ns, ""}) + query.str();
  // Callers with short watches want to notice silence soon. But the connection and its handshake
  // also need this time.
  const auto silence = std::min(kSilence, options.timeout * 3);
  TRY(net::ClientResponse response,
      impl_->open(ctx, {.target = target, .timeout = options.timeout + silence}));
  auto body = internal::unpacked(std::move(response));
  if (!body.ok()) return std::move(body).error().context(what("GET", target));
  return std::unique_ptr<Watch>(std::make_unique<HttpWatch>(resource, std::move(*body)));
}

Result<net::ClientResponse> Client::open(const Context& ctx, std::string method, std::string target,
                                         net::Headers headers, std::string body) const {
  return impl_->open(ctx, {.method = std::move(method),
                           .target = std::move(target),
                           .body = std::move(body),
                           .accept = "",
                           .headers = std::move(headers)});
}

Result<net::HttpClient::Answer> Client::exchange(const Context& ctx, std::string method,
                                                 std::string target, net::Headers headers,
                                                 std::string body) const {
  constexpr std::size_t kAnswerBytesMax = 1 << 20;
  const std::string name = what(method, target);
  TRY(net::ClientResponse response, impl_->send(ctx, {.method = std::move(method),
                                                      .target = std::move(target),
                                                      .body = std::move(body),
                                                      .type = "application/octet-stream",
                                                      .accept = "",
                                                      .headers = std::move(headers)}));
  net::HttpClient::Answer answer{
      .status = response.status, .headers = std::move(response.headers), .body = {}};
  while (true) {
    auto more = response.body->read();
    if (!more.ok()) return std::move(more).error().context(name);
    if (!*more) return answer;
    if (answer.body.size() + (*more)->size() > kAnswerBytesMax)
      return Error(Code::kExhausted, name + ": the answer is too large");
    answer.body += **more;
  }
}

Result<std::string> Client::text(const Context& ctx, std::string target) const {
  return impl_->call(ctx, {.target = std::move(target), .accept = "*/*"});
}

Result<Json> Client::json(const Context& ctx, std::string method, std::string target,
                          const Json& body, std::string_view content_type,
                          std::string_view accept) const {
  return impl_->call_json(ctx, {.method = std::move(method),
                                .target = std::move(target),
                                .body = body.is_null() ? "" : codec::write_json(body),
                                .type = content_type,
                                .accept = accept});
}

}  // namespace varda::kube
