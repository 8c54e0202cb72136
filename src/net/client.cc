#include "net/client.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "net/internal/dial.h"
#include "net/internal/parser.h"
#include "net/internal/stream.h"
#include "net/internal/tunnel_parts.h"
#include "net/url.h"

namespace varda::net {
namespace {

using internal::IoResult;
using internal::Parser;
using internal::Waiter;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kHeaderBytesMax = 256 << 10;
constexpr std::size_t kRefusalBytesMax = 64 << 10;  // of an upgrade

/// One connection to an origin. One request at a time.
struct Connection {
  std::string origin;  // for messages
  std::string route;   // key in the pool: what the connection can serve
  internal::Fd fd;
  std::unique_ptr<internal::Stream> stream;  // works on fd: destroyed before it
  Waiter waiter;
  std::unique_ptr<Parser> parser =
      Parser::create(Parser::Kind::kResponse, {.header_bytes = kHeaderBytesMax});
  std::string unread;  // bytes from the peer that the parser has not used
  bool used = false;   // it has served a request before
  SteadyTime idle_since;

  /// Nothing arrived while the connection was idle: neither the end nor an unexpected answer.
  bool fresh() {
    char byte = 0;
    return unread.empty() && stream->read({&byte, 1}).kind == IoResult::Kind::kWantRead;
  }
};

/// Idle connections by route. Outlives the client while a response body is still being read.
class Pool {
 public:
  explicit Pool(const ClientOptions& options)
      : idle_max_(options.idle_connections_max), idle_timeout_(options.idle_timeout) {}

  std::unique_ptr<Connection> take(const std::string& route) EXCLUDES(mutex_) {
    while (true) {
      std::unique_ptr<Connection> connection;
      {
        MutexLock lock(mutex_);
        auto found = idle_.find(route);
        if (found == idle_.end() || found->second.empty()) return nullptr;
        connection = std::move(found->second.back());
        found->second.pop_back();
      }
      if (system_clock().now() - connection->idle_since < idle_timeout_ && connection->fresh())
        return connection;
    }
  }

  void give(std::unique_ptr<Connection> connection) EXCLUDES(mutex_) {
    connection->waiter.detach();
    connection->used = true;
    connection->idle_since = system_clock().now();
    std::vector<std::unique_ptr<Connection>> expired;  // closed without the lock
    MutexLock lock(mutex_);
    auto& idle = idle_[connection->route];
    while (!idle.empty() && (idle.size() >= idle_max_ ||
                             connection->idle_since - idle.front()->idle_since >= idle_timeout_)) {
      expired.push_back(std::move(idle.front()));
      idle.erase(idle.begin());
    }
    if (idle_max_ > 0) idle.push_back(std::move(connection));
  }

 private:
  const std::size_t idle_max_;
  const std::chrono::milliseconds idle_timeout_;
  Mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<Connection>>> idle_
      GUARDED_BY(mutex_);  // the oldest first
};

Error broken(const Connection& connection, const std::string& what) {
  const std::string detail = connection.stream->error();
  return Error(Code::kUnavailable,
               connection.origin + ": " + what +
                   (detail.empty() || detail == "Success" ? "" : ": " + detail));
}

Error handshake_failed(const Connection& connection) {
  const Error error = broken(connection, "TLS handshake failed");
  // OpenSSL reports an answer in plain HTTP this way.
  const bool plain = error.message().find("wrong version number") != std::string::npos;
  return plain
             ? Error(error.code(), error.message() + "; the server seems to speak http, not https")
             : error;
}

/// Waits for the readiness that `io` asked for.
Status wait_for(const Context& ctx, Connection& connection, IoResult::Kind kind) {
  return connection.waiter.wait(
      ctx, connection.fd.get(),
      kind == IoResult::Kind::kWantRead ? Waiter::For::kRead : Waiter::For::kWrite);
}

/// Appends bytes from the peer to `unread`. False: the peer closed.
Result<bool> receive(const Context& ctx, Connection& connection) {
  const std::size_t before = connection.unread.size();
  connection.unread.resize(before + kReadBytes);
  while (true) {
    const IoResult io = connection.stream->read({connection.unread.data() + before, kReadBytes});
    if (io.kind == IoResult::Kind::kWantRead || io.kind == IoResult::Kind::kWantWrite) {
      if (Status status = wait_for(ctx, connection, io.kind); !status.ok()) {
        connection.unread.resize(before);
        return status.error();
      }
      continue;
    }
    connection.unread.resize(before + (io.kind == IoResult::Kind::kBytes ? io.count : 0));
    if (io.kind == IoResult::Kind::kError) return broken(connection, "the connection broke");
    return io.kind == IoResult::Kind::kBytes;
  }
}

class SocketReader final : public BodyReader {
 public:
  SocketReader(Context ctx, std::shared_ptr<Pool> pool, std::unique_ptr<Connection> connection)
      : ctx_(std::move(ctx)), pool_(std::move(pool)), connection_(std::move(connection)) {
    recycle_if_done();
  }
  ~SocketReader() override {
    // The rest of the body may have arrived already. Then the connection can be reused.
    if (connection_ && !failure_) {
      parse();
      recycle_if_done();
    }
  }

  Result<std::optional<std::string>> read() override {
    if (failure_) return *failure_;
    while (connection_ && text_.empty()) {
      if (Status status = ctx_.check(); !status.ok()) return fail(status.error());
      parse();
      if (Parser& parser = *connection_->parser; parser.error_status() != 0) {
        return fail(Error(Code::kUnavailable, connection_->origin + ": malformed response body: " +
                                                  parser.error_text()));
      }
      recycle_if_done();
      if (!connection_ || !text_.empty()) break;
      auto more = receive(ctx_, *connection_);
      if (!more.ok()) return fail(std::move(more).error());
      if (!*more) {
        if (!connection_->parser->feed_end())
          return fail(broken(*connection_, "the connection broke before the end of the response"));
        connection_.reset();
      }
    }
    if (text_.empty()) return std::optional<std::string>();
    return std::optional<std::string>(std::exchange(text_, {}));
  }

 private:
  void parse() {
    Parser& parser = *connection_->parser;
    std::size_t used = 0;
    while (used < connection_->unread.size() && !parser.done() && parser.error_status() == 0) {
      const std::size_t count = parser.feed(std::string_view(connection_->unread).substr(used));
      if (count == 0) break;
      used += count;
    }
    connection_->unread.erase(0, used);
    if (text_.empty()) {
      text_ = std::exchange(parser.message().body, {});
    } else {
      text_ += std::exchange(parser.message().body, {});
    }
  }
  void recycle_if_done() {
    if (!connection_ || !connection_->parser->done()) return;
    const bool again = connection_->parser->keep_alive() && connection_->unread.empty();
    auto connection = std::move(connection_);
    if (again && !ctx_.stopped()) pool_->give(std::move(connection));
  }
  Error fail(Error error) {
    connection_.reset();
    failure_ = error;
    return error;
  }

  const Context ctx_;
  const std::shared_ptr<Pool> pool_;
  std::unique_ptr<Connection> connection_;  // null: text_ holds the whole rest of the body
  std::string text_;
  std::optional<Error> failure_;
};

bool idempotent(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" ||
         method == "OPTIONS";
}

Status check_field(const std::string& name, std::string_view text) {
  for (const char c : text) {
    if (c == '\r' || c == '\n' || c == '\0')
      return Error(Code::kInvalid, "request " + name + ": a line break is not allowed");
  }
  return {};
}

/// The way to reach an origin.
struct Route {
  std::string key;           // connections with the same key are interchangeable
  std::optional<Url> proxy;  // absent: direct
  bool tunnel = false;       // CONNECT through the proxy; else the proxy reads the requests

  bool proxy_reads() const { return proxy && !tunnel; }
};

Result<std::string> render_header(const ClientRequest& request, const Url& url, const Route& route,
                                  const Proxies& proxies) {
  TRY_VOID(check_field("method", request.method));
  std::string out = request.method + " " + (route.proxy_reads() ? url.origin() : std::string()) +
                    url.target + " HTTP/1.1\r\n";
  if (route.proxy_reads()) out += proxy_authorization(proxies);
  if (!request.headers.find("Host")) {
    std::string host = url.origin();
    host.erase(0, host.find("://") + 3);
    out += "Host: " + host + "\r\n";
  }
  for (const auto& [name, value] : request.headers.all()) {
    TRY_VOID(check_field("header", name));
    TRY_VOID(check_field("header " + name, value));
    out += name;
    out += ": ";
    out += value;
    out += "\r\n";
  }
  if (!request.headers.find("User-Agent")) out += "User-Agent: varda/" VARDA_VERSION "\r\n";
  const bool wants_length =
      request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
  if ((wants_length || !request.body.empty()) && !request.headers.find("Content-Length")) {
    out += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  out += "\r\n";
  return out;
}

class SocketClient final : public HttpClient {
 public:
  explicit SocketClient(ClientOptions options)
      : options_(std::move(options)), pool_(std::make_shared<Pool>(options_)) {
    if (options_.look_up)
      lookups_ = std::make_unique<internal::Lookups>(find_with(options_.look_up));
  }

  Result<ClientResponse> send(const Context& ctx, ClientRequest request) override {
    bool other_origin = false;
    for (int redirects = 0;; ++redirects) {
      TRY(Url url, Url::parse(request.url));
      if (url.scheme != "http" && url.scheme != "https") {
        return Error(Code::kInvalid,
                     "URL \"" + shown(url) + "\": must begin with http:// or https://");
      }
      TRY(ClientResponse response, send_once(ctx, request, url));
      response.other_origin = other_origin;
      const int status = response.status;
      const bool moved =
          status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
      const auto location = response.headers.find("Location");
      const bool may_follow =
          options_.redirects_max > 0 && (request.method == "GET" || request.method == "HEAD");
      if (!moved || !location || !may_follow) return response;
      if (redirects >= options_.redirects_max) {
        return Error(Code::kUnavailable, shown(url) + ": more than " +
                                             std::to_string(options_.redirects_max) + " redirects")
            .as_terminal();
      }
      TRY(Url next, follow(url, *location));
      if (url.scheme == "https" && next.scheme != "https") {
        return Error(Code::kForbidden,
                     shown(url) + " redirects to " + shown(next) + ", which is not https")
            .as_terminal();
      }
      // Credentials belong to the origin that they were given for.
      if (next.origin() != url.origin()) {
        other_origin = true;
        request.headers.remove("Authorization");
        request.headers.remove("Cookie");
        request.headers.remove("Host");
        for (const auto& [name, value] : std::vector(request.headers.all()))
          if (is_signature(name)) request.headers.remove(name);
      }
      request.url = next.origin() + next.target;
    }
  }

  /// Asks for an upgrade on a new connection.
  Result<TunnelAnswer> upgrade(const Context& ctx, const TunnelRequest& wanted) {
    TRY(const Url url, Url::parse(wanted.url));
    if (url.scheme != "http" && url.scheme != "https")
      return Error(Code::kInvalid,
                   "URL \"" + shown(url) + "\": must begin with http:// or https://");
    ClientRequest request{.method = "GET", .url = wanted.url, .headers = wanted.headers};
    request.headers.set("Connection", "Upgrade");
    request.headers.set("Upgrade", wanted.protocol);
    TRY(Route route, route_of(url));
    if (route.proxy) TRY_VOID(check_proxied(url));
    // A proxy that reads the request would answer the upgrade itself.
    route.tunnel = route.proxy.has_value();
    TRY(const std::string header, render_header(request, url, route, options_.proxies));
    TRY(std::unique_ptr<Connection> connection, connect(ctx, url, route));
    Connection& c = *connection;
    c.waiter.attach(ctx.stop_token());
    Attempt attempt;
    TRY(const bool whole, write_request(ctx, c, header, "", attempt));
    if (whole && c.stream->short_read_means_empty())
      TRY_VOID(wait_for(ctx, c, IoResult::Kind::kWantRead));
    TRY_VOID(read_header(ctx, c, false, attempt));
    TunnelAnswer answer;
    answer.status = c.parser->message().status;
    answer.headers = std::move(c.parser->message().headers);
    if (answer.status == 101) {
      auto parts = std::make_unique<Tunnel::Parts>();
      parts->stream = std::move(c.stream);
      parts->unread = std::move(c.unread);
      parts->peer = c.origin;
      parts->fd = std::move(c.fd);
      if (options_.unix_socket.empty()) internal::set_no_delay(parts->fd.get());
      answer.tunnel = std::make_unique<Tunnel>(std::move(parts));
      return answer;
    }
    SocketReader reader(ctx, std::make_shared<Pool>(ClientOptions{.idle_connections_max = 0}),
                        std::move(connection));
    while (answer.body.size() < kRefusalBytesMax) {
      TRY(const auto bytes, reader.read());
      if (!bytes) break;
      answer.body += bytes->substr(0, kRefusalBytesMax - answer.body.size());
    }
    return answer;
  }

 private:
  /// Headers of AWS signatures, including session tokens.
  static bool is_signature(std::string_view name) {
    constexpr std::string_view kPrefix = "x-amz-";
    return name.size() > kPrefix.size() && starts_ignoring_case(name, kPrefix);
  }

  Result<Route> route_of(const Url& url) const {
    Route route{.key = url.origin(), .proxy = {}};
    if (!options_.unix_socket.empty() || options_.connector) return route;
    const auto proxy = proxy_for(options_.proxies, url.scheme, url.host, url.port);
    if (!proxy) return route;
    TRY(route.proxy, Url::parse(*proxy).context("proxy"));
    route.tunnel = url.scheme == "https";
    route.key = *proxy + (route.tunnel ? " " + url.origin() : " *");
    return route;
  }

  /// For messages: omits the query, which may hold a secret signature.
  static std::string shown(const Url& url) {
    return url.origin() + url.target.substr(0, url.target.find('?'));
  }

  static Result<Url> follow(const Url& from, std::string_view location) {
    std::string text(location.substr(0, location.find('#')));
    if (text.find("://") != std::string::npos) return Url::parse(text);
    if (text.starts_with("//")) return Url::parse(from.scheme + ":" + text);
    if (text.starts_with("/")) return Url::parse(from.origin() + text);
    std::string base = from.target.substr(0, from.target.find('?'));
    if (!text.starts_with("?")) base.erase(base.rfind('/') + 1);
    return Url::parse(from.origin() + base + text);
  }

  static internal::Lookups::Find find_with(LookUp look_up) {
    return [look_up = std::move(look_up)](const std::string& host, int port) {
      const HostAddresses known = look_up(host);
      internal::Lookups::Found out{.error = known.error, .addresses = {}};
      for (const std::string& numeric : known.numeric)
        for (const internal::Address& address : internal::numeric_addresses(numeric, port))
          out.addresses.push_back(address);
      return out;
    };
  }

  static Ip ip_of(const internal::Address& address) {
    Ip ip;
    if (address.storage.ss_family == AF_INET) {
      ip.bits = 32;
      std::memcpy(ip.bytes.data(),
                  &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, 4);
    } else if (address.storage.ss_family == AF_INET6) {
      ip.bits = 128;
      std::memcpy(ip.bytes.data(),
                  &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr, 16);
    }
    return ip;
  }

  /// Keeps the addresses that may be connected to. kForbidden: none is left.
  Status keep_allowed(const Url& url, std::vector<internal::Address>& addresses) const {
    if (!options_.destinations || addresses.empty()) return {};
    std::string refused, source;
    std::erase_if(addresses, [&](const internal::Address& address) {
      const Ip ip = ip_of(address);
      const std::string refusal = options_.destinations->refusal(ip);
      if (!refusal.empty() && refused.empty()) {
        refused = refusal;
        source = without_ipv6_wrapping(ip).str();
      }
      return !refusal.empty();
    });
    if (!addresses.empty()) return {};
    return Error(Code::kForbidden, url.origin() + ": " + refused +
                                       ", which is refused as a source; --allow-source " + source +
                                       " allows it")
        .as_terminal();
  }

  /// The proxy resolves names, so only numeric hosts are checked.
  Status check_proxied(const Url& url) const {
    if (!options_.destinations) return {};
    std::vector<internal::Address> numeric = internal::numeric_addresses(url.host, url.port);
    return keep_allowed(url, numeric);
  }

  Result<ClientResponse> send_once(const Context& ctx, const ClientRequest& request,
                                   const Url& url) {
    if (Status ended = ctx.check(); !ended.ok())
      return Error(ended.error()).context("connecting to " + url.origin());
    TRY(const Route route, route_of(url));
    if (route.proxy) TRY_VOID(check_proxied(url));
    TRY(const std::string header, render_header(request, url, route, options_.proxies));
    if (auto pooled = pool_->take(route.key)) {
      pooled->origin = url.origin();
      Attempt attempt;
      auto response = exchange(ctx, std::move(pooled), header, request, attempt);
      const bool lost =
          !response.ok() && response.error().code() == Code::kUnavailable && !attempt.answered;
      if (!lost || !(idempotent(request.method) || !attempt.written)) return response;
      // The server closed the connection while it was in the pool.
    }
    auto connected = connect(ctx, url, route);
    if (!connected.ok()) {
      const Code code = connected.error().code();
      if (code != Code::kTimeout && code != Code::kCancelled) return connected.error();
      // The context shows that an abandoned request was never sent.
      return Error(connected.error()).context("connecting to " + url.origin());
    }
    std::unique_ptr<Connection> connection = std::move(connected).value();
    Attempt attempt;
    return exchange(ctx, std::move(connection), header, request, attempt);
  }

  Result<std::unique_ptr<Connection>> connect(const Context& ctx, const Url& url,
                                              const Route& route) {
    auto connection = std::make_unique<Connection>();
    connection->origin = url.origin();
    connection->route = route.key;
    const Url& peer = route.proxy ? *route.proxy : url;
    connection->waiter.attach(ctx.stop_token());
    const Context limited = ctx.with_timeout(options_.connect_timeout);
    if (options_.connector) return connect_by_tunnel(ctx, limited, url, std::move(connection));
    std::vector<internal::Address> addresses;
    if (!options_.unix_socket.empty()) {
      TRY(auto address, internal::Address::unix_path(options_.unix_socket));
      addresses.push_back(address);
    } else {
      TRY(addresses,
          reach(ctx, route, internal::resolve(limited, peer.host, peer.port, lookups_.get())));
      if (!route.proxy) TRY_VOID(keep_allowed(url, addresses));
    }
    TRY(connection->fd,
        reach(ctx, route, internal::connect_any(limited, connection->waiter, addresses)));
    const int fd = connection->fd.get();
    if (options_.tcp_keepalive && options_.unix_socket.empty()) {
      internal::set_keepalive(fd);
      if (options_.dead_after > std::chrono::seconds(0))
        internal::set_dead_after(fd, options_.dead_after);
    }
    if (url.scheme == "http" || route.tunnel) connection->stream = internal::plain_stream(fd);
    if (route.tunnel) {
      if (Status status = open_tunnel(limited, *connection, url, *route.proxy); !status.ok()) {
        if (ctx.done()) return ctx.check().error();
        return Error(Code::kUnavailable, connection->origin + ": " + status.error().message());
      }
    }
    if (url.scheme == "http") return connection;
    TRY(const internal::TlsContext tls, tls_context());
    const std::string& name =
        options_.tls.server_name.empty() ? url.host : options_.tls.server_name;
    TRY(connection->stream, internal::tls_connect(fd, tls, {name, options_.tls.verified_name}));
    while (true) {
      const IoResult io = connection->stream->handshake();
      if (io.kind == IoResult::Kind::kBytes) return connection;
      if (io.kind == IoResult::Kind::kError || io.kind == IoResult::Kind::kEnd)
        return handshake_failed(*connection);
      if (Status status = wait_for(limited, *connection, io.kind); !status.ok()) {
        if (ctx.done()) return status.error();
        return Error(Code::kUnavailable, connection->origin + ": the TLS handshake took too long");
      }
    }
  }

  Result<std::unique_ptr<Connection>> connect_by_tunnel(const Context& ctx, const Context& limited,
                                                        const Url& url,
                                                        std::unique_ptr<Connection> connection) {
    if (url.scheme != "http")
      return Error(Code::kInvalid, url.origin() + ": requests through a connector use http");
    connection->waiter.detach();
    auto tunnel = connect_error(ctx, options_.connector(limited));
    if (!tunnel.ok()) return Error(std::move(tunnel).error()).context(url.origin());
    Tunnel::Parts& parts = (*tunnel)->parts();
    connection->stream = std::move(parts.stream);
    connection->unread = std::move(parts.unread);
    connection->fd = std::move(parts.fd);
    connection->waiter.attach(ctx.stop_token());
    return connection;
  }

  /// A TLS context holds the machine's roots (about 1 MB), so the first https request makes it.
  Result<internal::TlsContext> tls_context() {
    const MutexLock lock(mutex_);
    if (!tls_) tls_ = internal::client_context(options_.tls, options_.extra_ca_pem);
    return *tls_;
  }

  /// CONNECT (RFC 9110, 9.3.6): after the answer, bytes flow between the origin and this client.
  Status open_tunnel(const Context& ctx, Connection& c, const Url& url, const Url& proxy) {
    const std::string host =
        url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
    const std::string authority = host + ":" + std::to_string(url.port);
    const std::string header = "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n" +
                               proxy_authorization(options_.proxies) +
                               "User-Agent: varda/" VARDA_VERSION "\r\n\r\n";
    const std::string at = "proxy " + proxy.origin();
    Attempt attempt;
    TRY_VOID(write_request(ctx, c, header, "", attempt));
    c.parser->no_body();
    while (!c.parser->header_done()) {
      const std::size_t used = c.parser->feed(c.unread);
      c.unread.erase(0, used);
      if (c.parser->error_status() != 0)
        return Error(Code::kUnavailable, at + ": malformed answer: " + c.parser->error_text());
      if (c.parser->header_done() || (used > 0 && !c.unread.empty())) continue;
      TRY(const bool more, receive(ctx, c));
      if (!more)
        return Error(Code::kUnavailable, at + " closed the connection instead of answering");
    }
    const int status = c.parser->message().status;
    if (status == 407)
      return Error(Code::kUnavailable, at + " requires other credentials (HTTP 407)");
    if (status < 200 || status > 299)
      return Error(Code::kUnavailable, at + " refuses: HTTP " + std::to_string(status));
    if (!c.unread.empty())
      return Error(Code::kUnavailable, at + " sent bytes before the origin did");
    c.parser->reset();
    return {};
  }

  template <typename T>
  static Result<T> reach(const Context& ctx, const Route& route, Result<T> result) {
    Result<T> out = connect_error(ctx, std::move(result));
    if (out.ok() || !route.proxy) return out;
    return Error(out.error()).context("proxy " + route.proxy->origin());
  }

  /// A connect timeout means an unresponsive peer (kUnavailable). The caller's own deadline stays
  /// kTimeout.
  template <typename T>
  static Result<T> connect_error(const Context& ctx, Result<T> result) {
    if (result.ok() || result.error().code() == Code::kCancelled) return result;
    TRY_VOID(ctx.check());
    return Error(Code::kUnavailable, result.error().message());
  }

  struct Attempt {
    bool written = false;   // some byte of the request was written
    bool answered = false;  // some byte of the response arrived
  };

  Result<ClientResponse> exchange(const Context& ctx, std::unique_ptr<Connection> connection,
                                  const std::string& header, const ClientRequest& request,
                                  Attempt& attempt) {
    Connection& c = *connection;
    c.waiter.attach(ctx.stop_token());
    c.parser->reset();
    if (request.method == "HEAD") c.parser->no_body();
    TRY(const bool whole, write_request(ctx, c, header, request.body, attempt));
    // No answer can have arrived yet, so wait first and save a system call. TLS may hold bytes that
    // no socket announces.
    if (whole && c.stream->short_read_means_empty())
      TRY_VOID(wait_for(ctx, c, IoResult::Kind::kWantRead));
    TRY_VOID(read_header(ctx, c, request.method == "HEAD", attempt));
    ClientResponse response;
    response.status = c.parser->message().status;
    response.headers = std::move(c.parser->message().headers);
    // An answer before the end of the request leaves the rest unsent. The connection cannot be
    // reused.
    response.body = std::make_unique<SocketReader>(
        ctx, whole ? pool_ : std::make_shared<Pool>(ClientOptions{.idle_connections_max = 0}),
        std::move(connection));
    return response;
  }

  /// Reads until the header of the final answer. Interim answers (100, 103) precede it.
  static Status read_header(const Context& ctx, Connection& c, bool head, Attempt& attempt) {
    while (true) {
      while (!c.parser->header_done()) {
        const std::size_t used = c.parser->feed(c.unread);
        c.unread.erase(0, used);
        if (c.parser->error_status() != 0) {
          attempt.answered = true;
          return Error(Code::kUnavailable,
                       c.origin + ": malformed response: " + c.parser->error_text());
        }
        if (c.parser->header_done()) break;
        if (used > 0 && !c.unread.empty()) continue;
        TRY(const bool more, receive(ctx, c));
        if (!more) return broken(c, "the connection broke before the response");
        attempt.answered = true;
      }
      if (const int status = c.parser->message().status; status >= 200 || status == 101) return {};
      c.parser->reset();
      if (head) c.parser->no_body();
    }
  }

  /// False: the server answered or closed before everything was written. The answer may still be
  /// read.
  static Result<bool> write_request(const Context& ctx, Connection& c, const std::string& header,
                                    const std::string& body, Attempt& attempt) {
    const std::size_t total = header.size() + body.size();
    std::size_t sent = 0;
    while (sent < total) {
      const std::size_t of_header = std::min(sent, header.size());
      const IoResult io = c.stream->write(std::string_view(header).substr(of_header),
                                          std::string_view(body).substr(sent - of_header));
      switch (io.kind) {
        case IoResult::Kind::kBytes:
          sent += io.count;
          attempt.written = attempt.written || io.count > 0;
          break;
        case IoResult::Kind::kWantRead:
        case IoResult::Kind::kWantWrite: {
          TRY_VOID(c.waiter.wait(ctx, c.fd.get(), Waiter::For::kEither));
          if (io.kind == IoResult::Kind::kWantRead) break;
          const std::size_t before = c.unread.size();
          c.unread.resize(before + 4096);
          const IoResult early = c.stream->read({c.unread.data() + before, 4096});
          c.unread.resize(before + (early.kind == IoResult::Kind::kBytes ? early.count : 0));
          if (early.kind == IoResult::Kind::kBytes) {
            attempt.answered = true;
            return false;
          }
          if (early.kind == IoResult::Kind::kEnd || early.kind == IoResult::Kind::kError) {
            return broken(c, "the connection broke while the request was sent");
          }
          break;
        }
        case IoResult::Kind::kEnd:
        case IoResult::Kind::kError:
          return false;
      }
    }
    return true;
  }

  const ClientOptions options_;
  std::unique_ptr<internal::Lookups> lookups_;  // null: the system's
  const std::shared_ptr<Pool> pool_;
  Mutex mutex_;
  std::optional<Result<internal::TlsContext>> tls_
      GUARDED_BY(mutex_);  // an error surfaces with the first https request
};

class SocketOpener final : public TunnelOpener {
 public:
  explicit SocketOpener(ClientOptions options) : client_(std::move(options)) {}
  Result<TunnelAnswer> open(const Context& ctx, const TunnelRequest& request) override {
    return client_.upgrade(ctx, request);
  }

 private:
  SocketClient client_;
};

}  // namespace

std::unique_ptr<TunnelOpener> make_tunnel_opener(ClientOptions options) {
  return std::make_unique<SocketOpener>(std::move(options));
}

std::unique_ptr<HttpClient> make_client(ClientOptions options) {
  return std::make_unique<SocketClient>(std::move(options));
}

}  // namespace varda::net
