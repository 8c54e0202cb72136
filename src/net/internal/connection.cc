#include "net/internal/connection.h"

#include <algorithm>
#include <charconv>
#include <exception>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "net/internal/loop.h"
#include "net/internal/tunnel_parts.h"

namespace varda::net::internal {
namespace {

constexpr std::size_t kReadAheadMax = 64 << 10;      // limit for requests behind the current one
constexpr std::size_t kStreamRoundBytes = 64 << 10;  // bytes read from a stream between two writes
constexpr std::size_t kKeepBufferBytes = 4 << 10;    // limit for the buffer of an idle connection
constexpr std::size_t kReadsInARow = 8;              // then other connections get a turn
constexpr int kStreamRounds = 16;
constexpr std::size_t kLingerBytesMax = 256 << 10;
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr std::chrono::seconds kProxyComplaintPeriod{10};
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A handler's text must not end the header or start another field.
void append_clean(std::string& out, std::string_view text) {
  for (const char c : text) out += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
}

void append_number(std::string& out, std::uint64_t number, int base = 10) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof(text), number, base).ptr);
}

/// `text` may hold bytes of a client: only printable ASCII stays.
std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c < ' ' || c > '~') continue;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// True: the peer is a program on this machine.
bool is_loopback_peer(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("[::1]:") ||
         address.starts_with("[::ffff:127.") || address == "unix";
}

}  // namespace

Connection::Connection(Loop& loop, std::uint64_t id, int fd, std::string peer)
    : loop_(loop), id_(id), watch_(loop.reactor().watch(fd, *this)) {
  peer_.address = std::move(peer);
  const auto& options = loop.state().options;
  parser_ = Parser::create(Parser::Kind::kRequest, {.header_bytes = options.header_bytes_max,
                                                    .body_bytes = options.body_bytes_max});
  const TlsContext tls = loop.state().tls();
  stream_ = tls ? tls_accept(fd, tls) : plain_stream(fd);
}

Connection::~Connection() = default;

void Connection::expire_in(std::chrono::milliseconds timeout) {
  deadline_ = system_clock().now() + timeout;
}

void Connection::wait_from_now() { waiting_since_ = system_clock().now(); }

void Connection::offer_place() {
  if (loop_.state().full.load()) loop_.state().on_waiting();
}

std::optional<SteadyTime> Connection::waiting_since() const {
  switch (phase_) {
    case Phase::kHandling:
    case Phase::kUpgrading:
    case Phase::kClosed:
      return std::nullopt;
    case Phase::kWriting:
    case Phase::kStreaming:
      return write_blocked_ ? std::optional(waiting_since_) : std::nullopt;
    case Phase::kBody:
      return receiver_full() ? std::nullopt : std::optional(waiting_since_);
    default:
      return waiting_since_;
  }
}

void Connection::begin_body_window() {
  window_bytes_ = body_bytes();
  wait_from_now();
  expire_in(loop_.state().options.body_window);
}

// Each window counts alone. Otherwise a body with a fast beginning could continue with a byte now
// and then, and would hold its memory for hours.
void Connection::expect_body_bytes() {
  const auto& options = loop_.state().options;
  const auto window = static_cast<std::size_t>(options.body_window.count());
  const std::size_t needed =
      std::max<std::size_t>(options.body_bytes_per_second_min * window / 1000, 1);
  if (body_bytes() - window_bytes_ >= needed) begin_body_window();
}

void Connection::hold_body() {
  auto& state = loop_.state();
  const std::size_t body_bytes = parser_->message().body.size();
  if (!state.bodies.limited() || body_bytes <= Server::Options::kSmallBodyBytes ||
      body_bytes <= held_)
    return;
  held_ = body_bytes;
  const Bodies::Growth growth =
      state.bodies.grow(place(), host_of_peer(peer_.address), body_bytes, waiting_since_);
  for (const Bodies::Place& loser : growth.evicted) loser.loop->refuse_body_later(loser.connection);
  if (growth.room == Bodies::Room::kEvicted) return refuse_body();
  if (growth.room == Bodies::Room::kNone)
    refuse(503, "request bodies use all memory reserved for them; try again");
}

void Connection::refuse_body() {
  if (phase_ == Phase::kBody)
    refuse(408, "the request body was too slow while memory for bodies was full; try again");
}

void Connection::release_body() {
  if (std::exchange(held_, 0) > 0) loop_.state().bodies.release(place());
}

std::string Connection::refusal() const {
  const auto& options = loop_.state().options;
  switch (parser_->error_status()) {
    case 413:
      return "the request body is larger than " + std::to_string(options.body_bytes_max) + " bytes";
    case 431:
      return "the request header is larger than " + std::to_string(options.header_bytes_max) +
             " bytes";
    default:
      return parser_->error_text();
  }
}

bool Connection::nameless() const {
  return loop_.state().requests_client_certificates && peer_.certificate_name.empty();
}

// Nameless connections need no credentials and serve short exchanges, so they time out sooner.
void Connection::expire_idle() {
  const auto& options = loop_.state().options;
  wait_from_now();
  // A new client has a request to send.
  const bool hurry = request_ == 0 || (options.nameless_connections_max > 0 && nameless());
  expire_in(hurry ? std::min(options.header_timeout, options.idle_timeout) : options.idle_timeout);
}

void Connection::start() {
  if (!loop_.state().options.proxy) return begin();
  phase_ = Phase::kProxyHeader;
  wait_from_now();
  shaken_at_ = waiting_since_;
  expire_in(loop_.state().options.header_timeout);
  read_proxy_header();
}

// Reads the exact bytes of the header, because a TLS handshake may follow.
void Connection::read_proxy_header() {
  const std::unique_ptr<Stream> raw = plain_stream(watch_->fd());
  while (phase_ == Phase::kProxyHeader) {
    std::size_t wanted = kProxyFixedBytes;
    if (in_.size() >= kProxyFixedBytes)
      wanted += static_cast<std::size_t>(static_cast<unsigned char>(in_[14])) << 8 |
                static_cast<unsigned char>(in_[15]);
    const std::size_t before = in_.size();
    if (wanted > before) {
      in_.resize(wanted);
      const IoResult read = raw->read({in_.data() + before, wanted - before});
      in_.resize(before + (read.kind == IoResult::Kind::kBytes ? read.count : 0));
      if (read.kind == IoResult::Kind::kWantRead) return watch_->want_read();
      if (read.kind != IoResult::Kind::kBytes) return close();
    }
    const auto parsed = parse_proxy_header(in_);
    if (!parsed.ok()) {
      const bool plain = loop_.state().options.proxy->header == ProxyReception::Header::kOptional &&
                         !in_.starts_with(kProxySignature);
      if (!plain) return refuse_proxy_header(parsed.error());
    } else if (!*parsed) {
      continue;
    } else {
      if (!take_proxy_header(**parsed)) return;
      in_.clear();
    }
    begin();
    if (phase_ == Phase::kIdle) serve_buffered();
    return;
  }
}

bool Connection::take_proxy_header(const ParsedProxyHeader& parsed) {
  const ProxyReception& reception = *loop_.state().options.proxy;
  const Clock& clock = reception.clock != nullptr ? *reception.clock : system_clock();
  auto identity =
      check_identity(parsed.header, reception.trust, is_loopback_peer(peer_.address), clock.wall());
  if (!identity.ok()) {
    refuse_proxy_header(identity.error());
    return false;
  }
  peer_.forwarded_for = parsed.header.source;
  peer_.stream_identity = std::move(*identity);
  return true;
}

void Connection::refuse_proxy_header(const Error& error) {
  const SteadyTime::rep now = system_clock().now().time_since_epoch().count();
  auto& last = loop_.state().proxy_complaint;
  SteadyTime::rep before = last.load();
  // Scanners of ports must not fill the log.
  if ((before == 0 || Duration(now - before) >= kProxyComplaintPeriod) &&
      last.compare_exchange_strong(before, now))
    log::warn("connection refused", {{"peer", peer_.address}, {"error", error}});
  close();
}

void Connection::begin() {
  if (loop_.state().options.tls) {
    phase_ = Phase::kHandshake;
    wait_from_now();
    shaken_at_ = waiting_since_;
    expire_in(loop_.state().options.header_timeout);
    handshake();
  } else {
    phase_ = Phase::kIdle;
    expire_idle();
    watch_->want_read();
  }
}

void Connection::handshake_over() {
  if (std::exchange(shaking_, false)) loop_.state().handshake_over();
}

void Connection::yield_handshake(SteadyTime quiet_since) {
  // Bytes that this thread has not read yet are this thread's delay, not the peer's.
  if (phase_ == Phase::kHandshake && shaken_at_ <= quiet_since && bytes_waiting(watch_->fd()) == 0)
    handshake_over();
}

void Connection::handshake_done() {
  stream_->describe_certificate(peer_);
  phase_ = Phase::kIdle;
  handshake_over();
  if (loop_.state().requests_client_certificates) {
    has_place_ = true;
    loop_.state().clients.add(peer_.certificate_name, loop_, id_);
  }
  expire_idle();
}

void Connection::handshake() {
  const IoResult shaken = stream_->handshake();
  if (shaken.count > 0)
    shaken_at_ = system_clock().now();  // single bytes are not progress and keep no place
  switch (shaken.kind) {
    case IoResult::Kind::kBytes:
      handshake_done();
      on_readable();
      return;
    case IoResult::Kind::kWantRead:
      watch_->want_read();
      return;
    case IoResult::Kind::kWantWrite:
      watch_->want_write();
      return;
    case IoResult::Kind::kEnd:
    case IoResult::Kind::kError:
      log::debug("TLS handshake failed", {{"peer", peer_.address}, {"error", stream_->error()}});
      close();
      return;
  }
}

bool Connection::receiver_full() const {
  return phase_ == Phase::kBody && receiver_ && !receiver_->ready();
}

bool Connection::paused() const {
  if (receiver_full() || phase_ == Phase::kUpgrading) return true;
  return phase_ != Phase::kIdle && phase_ != Phase::kHeader && phase_ != Phase::kBody &&
         in_.size() >= kReadAheadMax;
}

void Connection::on_readable() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kProxyHeader) return read_proxy_header();
  if (phase_ == Phase::kHandshake) return handshake();
  if (write_wants_read_) on_writable();
  auto& scratch = loop_.scratch();
  for (std::size_t round = 0; round < kReadsInARow; ++round) {
    if (phase_ == Phase::kClosed || peer_closed_ || paused()) break;
    const IoResult read = stream_->read(scratch);
    switch (read.kind) {
      case IoResult::Kind::kWantRead:
        watch_->want_read();
        return;
      case IoResult::Kind::kWantWrite:
        read_wants_write_ = true;
        watch_->want_write();
        return;
      case IoResult::Kind::kEnd:
        peer_closed();
        return;
      case IoResult::Kind::kError:
        close();
        return;
      case IoResult::Kind::kBytes:
        break;
    }
    const std::string_view bytes(scratch.data(), read.count);
    if (phase_ == Phase::kLingering) {
      lingered_bytes_ += bytes.size();
      if (lingered_bytes_ > kLingerBytesMax) return close();
    } else if (in_.empty()) {
      // The common case: whole requests, parsed in the read buffer.
      const std::size_t used = consume(bytes);
      if (phase_ == Phase::kClosed) return;
      if (phase_ != Phase::kLingering) in_.assign(bytes.substr(used));
    } else {
      in_.append(bytes);
      serve_buffered();
    }
    if (stream_ && read.count < scratch.size() && stream_->short_read_means_empty()) break;
  }
  read_on();
}

void Connection::read_on() {
  if (phase_ == Phase::kClosed || peer_closed_) return;
  if (!paused()) return watch_->want_read();
  // The body's time stands still; wake() starts a new window.
  if (phase_ == Phase::kBody) deadline_ = SteadyTime::max();
  if (on_disconnect_) watch_->want_broken();
}

void Connection::on_writable() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kHandshake) return handshake();
  write_blocked_ = write_wants_read_ = false;
  if (phase_ == Phase::kStreaming) {
    pump_stream();
  } else if (flush()) {
    if (phase_ == Phase::kWriting) response_done();
    if (phase_ == Phase::kHandling)
      deadline_ = SteadyTime::max();  // the written bytes were an interim response
  }
  serve_buffered();
  if (phase_ != Phase::kClosed && std::exchange(read_wants_write_, false)) on_readable();
}

bool Connection::is_http2(std::string_view bytes) const {
  return loop_.state().options.http2 && phase_ == Phase::kIdle && request_ == 0 &&
         !parser_->started() && kHttp2Preface.starts_with(bytes.substr(0, kHttp2Preface.size()));
}

void Connection::begin_http2() {
  upgrade_ = [this_peer = peer_, &http2 = loop_.state().options.http2](
                 std::unique_ptr<Tunnel> tunnel) { http2(std::move(tunnel), this_peer); };
  // Later, because a caller may hold bytes that in_ does not have yet.
  phase_ = Phase::kUpgrading;
  deadline_ = SteadyTime::max();
  loop_.hand_over_later(id_);
}

std::size_t Connection::consume(std::string_view bytes) {
  const auto& options = loop_.state().options;
  if (is_http2(bytes)) {
    if (bytes.size() >= kHttp2Preface.size()) begin_http2();
    return 0;
  }
  std::size_t used = 0;
  while (used < bytes.size() &&
         (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody)) {
    const std::size_t count = parser_->feed(bytes.substr(used));
    used += count;
    if (parser_->error_status() != 0) {
      refuse(parser_->error_status(), refusal());
      return bytes.size();
    }
    if (phase_ == Phase::kIdle && parser_->started() && !parser_->done()) {
      phase_ = Phase::kHeader;
      wait_from_now();
      expire_in(options.header_timeout);
    }
    if (phase_ == Phase::kHeader || phase_ == Phase::kIdle) {
      if (parser_->header_done()) header_arrived();
    } else if (phase_ == Phase::kBody) {
      expect_body_bytes();
    }
    if (phase_ == Phase::kBody && receiver_) receive_body();
    if (phase_ == Phase::kBody) hold_body();
    if (phase_ == Phase::kBody && parser_->message().body.size() > body_bytes_max_)
      refuse(413, "the request body is larger than " + std::to_string(body_bytes_max_) + " bytes");
    if (phase_ == Phase::kBody && options.nameless_body_bytes_max > 0 && nameless() &&
        parser_->message().body.size() > options.nameless_body_bytes_max) {
      refuse(413, "the request body is larger than " +
                      std::to_string(options.nameless_body_bytes_max) +
                      " bytes, the limit without a client certificate");
    }
    if (phase_ == Phase::kClosed || phase_ == Phase::kLingering || phase_ == Phase::kWriting)
      return bytes.size();
    if (parser_->done()) {
      dispatch();
    } else if (count == 0) {
      break;
    }
  }
  return used;
}

void Connection::header_arrived() {
  Message& message = parser_->message();
  phase_ = Phase::kBody;
  http10_ = message.minor_version == 0;
  int hosts = 0;
  std::string_view expect;
  for (const auto& [name, value] : message.headers.all()) {
    if (equal_ignoring_case(name, "host")) ++hosts;
    if (equal_ignoring_case(name, "expect")) expect = value;
    // The parser would read such a request as one without body, and the body as the next request.
    if (equal_ignoring_case(name, "transfer-encoding") && !equal_ignoring_case(value, "chunked")) {
      return refuse(501, "the only supported transfer coding is chunked");
    }
  }
  if (hosts > 1 || (hosts == 0 && !http10_))
    return refuse(400, "exactly one Host header is required");
  if (message.target.starts_with("http://") || message.target.starts_with("https://")) {
    const auto slash = message.target.find('/', 8);
    message.target = slash == std::string::npos ? "/" : message.target.substr(slash);
  }
  if (message.target[0] != '/' && message.target != "*")
    return refuse(400, "the request target must be a path");
  const auto& limits = loop_.state().options;
  const std::string_view target = message.target;
  body_bytes_max_ =
      limits.body_bytes_max_of
          ? limits.body_bytes_max_of(message.method, target.substr(0, target.find('?')))
          : limits.body_bytes_max;
  const bool continues = !expect.empty() && !http10_;
  if (continues && !equal_ignoring_case(expect, "100-continue"))
    return refuse(417, "the only supported expectation is 100-continue");
  if (limits.receive && !choose_receiver()) return;
  if (continues && parser_->expects_body()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  if (phase_ == Phase::kBody && !parser_->done()) begin_body_window();
}

bool Connection::choose_receiver() {
  Message& message = parser_->message();
  Request head;
  head.method = std::move(message.method);
  head.target = std::move(message.target);
  head.headers = std::move(message.headers);
  head.peer = peer_;
  Reception chosen;
  try {
    chosen = loop_.state().options.receive(head);
  } catch (const std::exception& e) {
    log::error("a request handler threw", {{"peer", peer_.address}, {"what", e.what()}});
    refuse(500, "internal error");
    return false;
  }
  message.method = std::move(head.method);
  message.target = std::move(head.target);
  message.headers = std::move(head.headers);
  if (chosen.refusal) {
    refuse(std::move(*chosen.refusal));
    return false;
  }
  receiver_ = std::move(chosen.receiver);
  if (!receiver_) return true;
  receiver_wake_ = std::make_shared<StreamWake>();
  receiver_wake_->mailbox = loop_.mailbox();
  receiver_wake_->connection = id_;
  receiver_wake_->request = request_;
  receiver_->on_ready([wake = receiver_wake_] { (*wake)(); });
  return true;
}

void Connection::receive_body() {
  std::string& body = parser_->message().body;
  if (body.empty()) return;
  std::optional<Response> refusal;
  try {
    refusal = receiver_->write(body);
  } catch (const std::exception& e) {
    log::error("a request handler threw", {{"peer", peer_.address}, {"what", e.what()}});
    return refuse(500, "internal error");
  }
  received_ += body.size();
  body.clear();
  if (refusal) refuse(std::move(*refusal));
}

void Connection::end_receiver() {
  receiver_.reset();
  receiver_wake_.reset();
  received_ = 0;
}

void Connection::dispatch() {
  if (held_ > 0 && !loop_.state().bodies.complete(place())) return refuse_body();
  Message& message = parser_->message();
  Request request;
  request.method = std::move(message.method);
  request.target = std::move(message.target);
  request.headers = std::move(message.headers);
  request.body = std::move(message.body);
  request.peer = peer_;
  head_ = request.method == "HEAD";
  close_after_ = !parser_->keep_alive();
  parser_->reset();
  const std::unique_ptr<BodyReceiver> receiver = std::move(receiver_);
  end_receiver();
  phase_ = Phase::kHandling;
  deadline_ = SteadyTime::max();
  const std::uint64_t number = ++request_;

  loop_.current.connection = id_;
  loop_.current.request = number;
  loop_.current.serial = ++loop_.serials;
  loop_.current.response.reset();
  try {
    Responder respond(
        [mailbox = loop_.mailbox(), id = id_, number](Response response) {
          Loop* this_loop = Loop::of_this_thread();
          if (this_loop && this_loop->mailbox() == mailbox && this_loop->current.connection == id &&
              this_loop->current.request == number) {
            this_loop->current.response = std::move(response);
          } else {
            mailbox->put({.connection = id, .request = number, .response = std::move(response)});
          }
        },
        // Small enough for std::function to avoid an allocation.
        [loop = &loop_, serial = loop_.current.serial](Responder::OnDisconnect on_disconnect) {
          Loop* this_loop = Loop::of_this_thread();
          CHECK(this_loop && this_loop == loop && this_loop->current.serial == serial);
          this_loop->current.on_disconnect = std::move(on_disconnect);
        });
    if (receiver) {
      receiver->finish(std::move(respond));
    } else {
      loop_.state().handler(std::move(request), std::move(respond));
    }
  } catch (const std::exception& e) {
    log::error("a request handler threw", {{"peer", peer_.address}, {"what", e.what()}});
  }
  std::optional<Response> response = std::move(loop_.current.response);
  on_disconnect_ = std::move(loop_.current.on_disconnect);
  loop_.current = {};
  if (response) {
    on_disconnect_ = nullptr;
    begin_response(std::move(*response));
  } else {
    detect_disconnect();
  }
}

// The client has closed its side. Finds out whether it still waits, if the handler asked.
void Connection::detect_disconnect() {
  if (!peer_closed_ || !on_disconnect_) return;
  if (http10_) return close();
  // If the client closed both sides, its kernel answers these bytes with a reset.
  out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  flush();
  if (phase_ != Phase::kClosed) watch_->want_broken();
}

void Connection::answer(std::uint64_t request, Response response) {
  if (phase_ != Phase::kHandling || request != request_) return;
  on_disconnect_ = nullptr;
  begin_response(std::move(response));
  serve_buffered();
}

void Connection::refuse(int status, const std::string& text) {
  Response response;
  response.status = status;
  if (loop_.state().options.json_refusals) {
    response.headers.add("Content-Type", "application/json");
    response.body = "{\"error\":\"" + json_escaped(text) + "\"}";
  } else {
    response.headers.add("Content-Type", "text/plain; charset=utf-8");
    response.body = text + "\n";
  }
  refuse(std::move(response));
}

void Connection::refuse(Response response) {
  head_ = http10_ = false;
  close_after_ = true;
  ++request_;
  in_.clear();
  // Until its end, the connection holds no body that counts nowhere.
  std::string().swap(parser_->message().body);
  end_receiver();
  begin_response(std::move(response));
}

void Connection::begin_response(Response response) {
  release_body();
  if (response.status == 101 && response.upgrade && !http10_) {
    upgrade_ = std::move(response.upgrade);
    response.stream.reset();
    response.body.clear();
    close_after_ = false;
  } else if (response.upgrade) {
    response = Response{.status = 400, .headers = {}, .body = "an upgrade needs HTTP/1.1\n"};
  }
  const int status = response.status;
  const bool bodiless = status < 200 || status == 204 || status == 304;
  const bool streams = response.stream != nullptr;
  if (loop_.state().draining.load(std::memory_order_relaxed) && !upgrade_) close_after_ = true;

  out_ += "HTTP/1.1 ";
  append_number(out_, static_cast<std::uint64_t>(std::max(status, 0)));
  out_ += ' ';
  out_ += reason_phrase(status);
  out_ += "\r\n";
  std::optional<std::uint64_t> declared;
  bool has_date = false;
  for (const auto& [name, value] : response.headers.all()) {
    if (equal_ignoring_case(name, "content-length")) {
      if (const auto length = parse_integer<std::uint64_t>(value)) declared = length;
      continue;
    }
    if (equal_ignoring_case(name, "transfer-encoding")) continue;
    if (equal_ignoring_case(name, "connection")) {
      close_after_ = close_after_ || equal_ignoring_case(value, "close");
      continue;
    }
    has_date = has_date || equal_ignoring_case(name, "date");
    append_clean(out_, name);
    out_ += ": ";
    append_clean(out_, value);
    out_ += "\r\n";
  }
  if (!has_date) out_ += loop_.date();
  chunked_ = false;
  stream_left_ = UINT64_MAX;
  if (!bodiless) {
    // The declared length may differ from the body only if no body follows.
    std::optional<std::uint64_t> length = declared;
    if (!streams && !(head_ && declared)) length = response.body.size();
    if (length) {
      out_ += "Content-Length: ";
      append_number(out_, *length);
      out_ += "\r\n";
      if (streams) stream_left_ = *length;
    } else if (http10_) {
      close_after_ = true;
    } else if (streams) {
      chunked_ = true;
      out_ += "Transfer-Encoding: chunked\r\n";
    }
  }
  if (upgrade_) {
    out_ += "Connection: Upgrade\r\n";
  } else if (close_after_) {
    out_ += "Connection: close\r\n";
  } else if (http10_) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";

  if (streams && !bodiless && !head_) {
    // No write is pending that could fail, so a client that is gone would hold its stream for ever.
    if (peer_closed_) return close();
    phase_ = Phase::kStreaming;
    stream_ended_ = false;
    body_stream_ = std::move(response.stream);
    stream_wake_ = std::make_shared<StreamWake>();
    stream_wake_->mailbox = loop_.mailbox();
    stream_wake_->connection = id_;
    stream_wake_->request = request_;
    body_stream_->on_ready([wake = stream_wake_] { (*wake)(); });
    pump_stream();
    return;
  }
  if (!bodiless && !head_) body_ = std::move(response.body);
  phase_ = Phase::kWriting;
  if (flush()) response_done();
}

void Connection::wake(std::uint64_t request) {
  if (phase_ == Phase::kBody && receiver_wake_ && request == request_) {
    receiver_wake_->pending.store(false);
    if (receiver_full()) return;
    begin_body_window();
    return on_readable();
  }
  if (phase_ != Phase::kStreaming || request != request_) return;
  stream_wake_->pending.store(false);
  pump_stream();
  serve_buffered();
}

void Connection::pump_stream() {
  const std::size_t blocked_max = loop_.state().options.stream_buffer_bytes_max;
  for (int round = 0; phase_ == Phase::kStreaming; ++round) {
    const std::size_t limit =
        write_blocked_ ? blocked_max : std::min(kStreamRoundBytes, blocked_max);
    bool dry = false;
    while (body_stream_ && !dry && out_.size() - out_sent_ < limit) {
      std::optional<std::string> bytes;
      try {
        bytes = body_stream_->read();
      } catch (const std::exception& e) {
        log::error("a response stream threw", {{"peer", peer_.address}, {"what", e.what()}});
        return close();
      }
      if (!bytes) {
        body_stream_.reset();
        stream_ended_ = true;
        if (chunked_) out_ += "0\r\n\r\n";
      } else if (bytes->empty()) {
        dry = true;
      } else if (chunked_) {
        append_number(out_, bytes->size(), 16);
        out_ += "\r\n";
        out_ += *bytes;
        out_ += "\r\n";
      } else {
        const std::size_t count =
            static_cast<std::size_t>(std::min<std::uint64_t>(bytes->size(), stream_left_));
        out_.append(*bytes, 0, count);
        if (stream_left_ != UINT64_MAX) stream_left_ -= count;
      }
    }
    if (!flush()) return;
    if (stream_ended_) return response_done();
    if (dry) {
      deadline_ = SteadyTime::max();
      return;
    }
    if (round == kStreamRounds) {
      (*stream_wake_)();  // continue after other connections had a turn
      return;
    }
  }
}

bool Connection::flush() {
  bool progress = !write_blocked_;
  while (out_sent_ < out_.size() || body_sent_ < body_.size()) {
    if (write_blocked_) return false;
    const IoResult written = stream_->write(std::string_view(out_).substr(out_sent_),
                                            std::string_view(body_).substr(body_sent_));
    if (written.kind == IoResult::Kind::kBytes) {
      const std::size_t of_out = std::min(written.count, out_.size() - out_sent_);
      out_sent_ += of_out;
      body_sent_ += written.count - of_out;
      progress = true;
      continue;
    }
    if (written.kind == IoResult::Kind::kEnd || written.kind == IoResult::Kind::kError) {
      close();
      return false;
    }
    write_blocked_ = true;
    if (progress) {
      wait_from_now();
      expire_in(loop_.state().options.write_timeout);
      offer_place();
    }
    if (written.kind == IoResult::Kind::kWantRead) {
      write_wants_read_ = true;
      watch_->want_read();
    } else {
      watch_->want_write();
    }
    // Drops sent bytes, so that a long stream does not grow its buffer for ever.
    if (out_sent_ > kStreamRoundBytes) {
      out_.erase(0, out_sent_);
      out_sent_ = 0;
    }
    return false;
  }
  out_sent_ = body_sent_ = 0;
  out_.clear();
  if (out_.capacity() > kKeepBufferBytes) out_.shrink_to_fit();
  if (!body_.empty()) std::string().swap(body_);  // an assignment would keep the memory
  return true;
}

void Connection::response_done() {
  body_stream_.reset();
  stream_wake_.reset();
  if (upgrade_) {
    // Later, because a caller may hold bytes after the request that in_ does not have yet.
    phase_ = Phase::kUpgrading;
    deadline_ = SteadyTime::max();
    loop_.hand_over_later(id_);
    return;
  }
  // The stream ended before its declared length. Only a broken connection shows that to the client.
  if (phase_ == Phase::kStreaming && stream_left_ != UINT64_MAX && stream_left_ > 0) return close();
  if (close_after_) return linger();
  phase_ = Phase::kIdle;
  if (loop_.state().stopping.load(std::memory_order_relaxed)) return close();
  expire_idle();
  offer_place();
}

void Connection::serve_buffered() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    if (!in_.empty()) {
      const std::size_t used = consume(in_);
      if (phase_ == Phase::kClosed) return;
      in_.erase(0, std::min(used, in_.size()));
      if (in_.empty() && in_.capacity() > kKeepBufferBytes) std::string().swap(in_);
    }
    if (peer_closed_ &&
        (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody))
      return close();
  }
  read_on();
}

void Connection::peer_closed() {
  switch (phase_) {
    case Phase::kHandling:
    case Phase::kWriting:
      // Some clients close their side after the request and still read the response.
      peer_closed_ = true;
      detect_disconnect();
      return;
    default:
      close();
  }
}

void Connection::linger() {
  if (peer_closed_) return close();
  stream_->finish();
  if (loop_.state().stopping.load(std::memory_order_relaxed)) return close();
  phase_ = Phase::kLingering;
  std::string().swap(in_);
  lingered_bytes_ = 0;
  wait_from_now();
  expire_in(kLingerTime);
  offer_place();
  watch_->want_read();
}

void Connection::close_if_idle() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kHandshake || phase_ == Phase::kLingering ||
      phase_ == Phase::kProxyHeader)
    close();
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::kHeader:
      return refuse(408, "the request header took too long");
    case Phase::kBody:
      return refuse(408, "the request body took too long");
    default:
      close();
  }
}

void Connection::hand_over() {
  if (phase_ != Phase::kUpgrading) return;
  auto parts = std::make_unique<Tunnel::Parts>();
  parts->stream = std::move(stream_);
  parts->unread = std::string(in_);  // a copy without spare room
  parts->peer = peer_.address;
  parts->fd = Fd(watch_->release());
  const auto upgrade = std::exchange(upgrade_, nullptr);
  const std::string peer = peer_.address;
  close();
  try {
    upgrade(std::make_unique<Tunnel>(std::move(parts)));
  } catch (const std::exception& e) {
    log::error("a request handler threw", {{"peer", peer}, {"what", e.what()}});
  }
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kIdle) stream_->finish();
  handshake_over();
  release_body();
  loop_.state().addresses.remove(peer_.address);
  if (has_place_) loop_.state().clients.remove(peer_.certificate_name, loop_, id_);
  phase_ = Phase::kClosed;
  upgrade_ = nullptr;
  deadline_ = SteadyTime::max();
  body_stream_.reset();
  stream_wake_.reset();
  end_receiver();
  stream_.reset();
  watch_.reset();
  loop_.bury(id_);
  if (const auto on_disconnect = std::exchange(on_disconnect_, nullptr)) {
    try {
      on_disconnect();
    } catch (const std::exception& e) {
      log::error("client-gone callback threw", {{"peer", peer_.address}, {"what", e.what()}});
    }
  }
}

}  // namespace varda::net::internal
