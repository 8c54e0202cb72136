#include "net/internal/grpc_session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <nghttp2/nghttp2.h>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "net/grpc_status.h"
#include "net/internal/grpc_call.h"

namespace varda::net::internal {
namespace {

constexpr std::size_t kGrpcPrefixBytes = 5;
// Connection-level flow control never blocks: each stream has its own window.
constexpr std::int32_t kConnectionWindowBytes = 16 << 20;
// The window of a stream while it receives a message whose memory is reserved.
constexpr std::size_t kMessageWindowBytes = 16 << 20;
// The time for requests that are under way when a client learns of the drain.
constexpr std::chrono::milliseconds kDrainNotice{500};
constexpr std::chrono::hours kTimeoutMax{24 * 365};

std::string_view view_of(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

nghttp2_nv field(std::string_view name, std::string_view value) {
  // nghttp2 copies both; its parameters merely lack const.
  const auto bytes = [](std::string_view from) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(from.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

/// grpc-message: percent-encodes all but printable ASCII.
std::string encode_grpc_message(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  constexpr std::size_t kMax = 2048;  // many clients accept 8 KiB of header fields
  std::string out;
  for (const char c : text) {
    if (out.size() >= kMax) break;
    if (c >= ' ' && c <= '~' && c != '%') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

/// grpc-timeout: at most eight digits and a unit. Nothing: malformed.
std::optional<Duration> parse_grpc_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  const auto count = parse_integer<std::int64_t>(text.substr(0, text.size() - 1));
  if (!count || *count < 0) return std::nullopt;
  switch (text.back()) {
    case 'H':
      return std::min<Duration>(std::chrono::hours(*count), kTimeoutMax);
    case 'M':
      return std::min<Duration>(std::chrono::minutes(*count), kTimeoutMax);
    case 'S':
      return std::min<Duration>(std::chrono::seconds(*count), kTimeoutMax);
    case 'm':
      return std::chrono::milliseconds(*count);
    case 'u':
      return std::chrono::microseconds(*count);
    case 'n':
      return std::chrono::nanoseconds(*count);
    default:
      return std::nullopt;
  }
}

/// Tokens that refill with time.
class Allowance {
 public:
  Allowance(std::size_t burst, std::size_t per_second, SteadyTime now)
      : burst_(static_cast<double>(burst)),
        per_second_(static_cast<double>(per_second)),
        tokens_(burst_),
        filled_(now) {}
  bool take(SteadyTime now) {
    const double seconds = std::chrono::duration<double>(now - filled_).count();
    tokens_ = std::min(burst_, tokens_ + seconds * per_second_);
    filled_ = now;
    tokens_ -= 1;
    return tokens_ >= 0;
  }
  void give(double tokens) { tokens_ = std::min(burst_, tokens_ + tokens); }

 private:
  const double burst_, per_second_;
  double tokens_;
  SteadyTime filled_;
};

struct RpcStream {
  std::int32_t id = 0;

  // The request's header.
  GrpcRequest request;
  std::string http_method, content_type, encoding, timeout;
  std::size_t header_bytes = 0;

  std::shared_ptr<StreamWake> wake;
  std::shared_ptr<CallState> call;  // null: refused before a handler
  std::unique_ptr<GrpcEvents> events;

  // Receiving.
  bool read_wanted = false;
  bool remote_ended = false;
  bool discarding = false;  // the call is over for its handler
  std::string waiting;      // bytes that the handler has not asked for
  std::array<char, kGrpcPrefixBytes> prefix{};
  std::size_t prefix_bytes = 0;
  bool in_message = false;
  std::size_t message_size = 0;
  std::string message;
  std::shared_ptr<ReceiveBudget::Ticket> ticket;  // of a large message
  bool wide = false;                              // the window is that of the message
  SteadyTime window_ends = SteadyTime::max();     // for the speed of a message
  std::size_t window_bytes = 0;                   // received in this window

  // Sending.
  std::deque<SharedMessage> out;
  std::size_t out_sent = 0;  // bytes of the first message and its prefix
  std::optional<Status> finish;
  bool responded = false;
  bool deferred = false;  // nghttp2 waits for more data of this stream
  bool trailers = false;  // nghttp2 has the end of the response
  SteadyTime write_deadline = SteadyTime::max();

  bool has_output() const { return !out.empty() || (finish && !trailers); }
  bool waits_for_grant() const { return ticket && !ticket->granted(); }
};

class GrpcSessionImpl final : public GrpcSession {
 public:
  GrpcSessionImpl(Setup setup, SteadyTime now)
      : setup_(std::move(setup)),
        options_(setup_.options),
        now_(now),
        last_received_(now),
        idle_since_(now),
        handshake_deadline_(now + options_.handshake_timeout),
        allowance_(options_.control_frames_burst, options_.control_frames_per_second, now) {
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option* option = nullptr;
    CHECK(nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_reserved_remote_streams(option, 0);
    const int made = nghttp2_session_server_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    CHECK(made == 0);
    const auto number = [](std::size_t value) {
      return static_cast<std::uint32_t>(std::min<std::size_t>(value, INT32_MAX));
    };
    const std::array<nghttp2_settings_entry, 3> settings = {
        {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, number(options_.streams_max)},
         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, number(options_.window_bytes)},
         {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, number(options_.header_bytes_max)}}};
    CHECK(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) ==
          0);
    CHECK(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                                kConnectionWindowBytes) == 0);
  }
  ~GrpcSessionImpl() override { nghttp2_session_del(session_); }
  GrpcSessionImpl(const GrpcSessionImpl&) = delete;
  GrpcSessionImpl& operator=(const GrpcSessionImpl&) = delete;

  Status feed(std::string_view bytes, SteadyTime now) override {
    now_ = now;
    last_received_ = now;
    ping_deadline_ = SteadyTime::max();
    const ssize_t used = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    if (used < 0) {
      return Error(Code::kUnavailable, "the client breaks the rules of HTTP/2: " +
                                           std::string(nghttp2_strerror(static_cast<int>(used))));
    }
    if (std::exchange(flooded_, false)) {
      nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
      return Error(Code::kExhausted, "the client sends too many control frames");
    }
    return {};
  }

  Status output(std::string& out, std::size_t bytes_max, SteadyTime now) override {
    now_ = now;
    while (out.size() < bytes_max) {
      const std::uint8_t* bytes = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
      if (size < 0) return Error(Code::kInternal, nghttp2_strerror(static_cast<int>(size)));
      if (size == 0) break;
      out += view_of(bytes, static_cast<std::size_t>(size));
    }
    return {};
  }

  void wake(std::int32_t id, SteadyTime now) override {
    now_ = now;
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    RpcStream& stream = *found->second;
    stream.wake->pending.store(false);
    advance(stream);
  }

  SteadyTime deadline() const override {
    SteadyTime out = std::min({handshake_deadline_, ping_deadline_, drain_deadline_});
    if (ping_deadline_ == SteadyTime::max())
      out = std::min(out, last_received_ + options_.keepalive_time);
    if (streams_.empty() && !gone_away_) out = std::min(out, idle_since_ + options_.idle_timeout);
    for (const auto& [id, stream] : streams_) {
      out = std::min({out, stream->window_ends, stream->write_deadline});
      if (!stream->discarding && stream->request.deadline)
        out = std::min(out, *stream->request.deadline);
    }
    return out;
  }

  Status on_time(SteadyTime now) override {
    now_ = now;
    if (handshake_deadline_ <= now)
      return Error(Code::kTimeout, "the client has sent no HTTP/2 settings");
    if (ping_deadline_ <= now) return Error(Code::kTimeout, "the client does not answer pings");
    if (ping_deadline_ == SteadyTime::max() && last_received_ + options_.keepalive_time <= now) {
      nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
      ping_deadline_ = now + options_.keepalive_timeout;
    }
    if (drain_deadline_ <= now) go_away();
    if (streams_.empty() && idle_since_ + options_.idle_timeout <= now) go_away();
    std::vector<std::int32_t> ids;
    for (const auto& [id, stream] : streams_) ids.push_back(id);
    for (const std::int32_t id : ids) {
      const auto found = streams_.find(id);
      if (found != streams_.end()) check_times(*found->second);
    }
    return {};
  }

  void drain(SteadyTime now) override {
    now_ = now;
    if (draining_) return;
    draining_ = true;
    nghttp2_submit_shutdown_notice(session_);
    drain_deadline_ = now + kDrainNotice;
    if (streams_.empty()) go_away();
  }

  void abort(const Status& status, SteadyTime now) override {
    now_ = now;
    draining_ = true;
    for (const auto& [id, stream] : streams_) fail(*stream, status);
    go_away();
  }

  void closed(const Status& status) override {
    for (const auto& [id, stream] : streams_) end_call(*stream, status);
    streams_.clear();
  }

  std::size_t calls() const override { return streams_.size(); }
  SteadyTime idle_since() const override { return idle_since_; }

  bool over() const override {
    if (nghttp2_session_want_write(session_) != 0) return false;
    return nghttp2_session_want_read(session_) == 0 || (gone_away_ && streams_.empty());
  }

 private:
  static GrpcSessionImpl& of(void* user) { return *static_cast<GrpcSessionImpl*>(user); }
  RpcStream* find(std::int32_t id) {
    return static_cast<RpcStream*>(nghttp2_session_get_stream_user_data(session_, id));
  }

  // --- the request's header ---

  static int on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    GrpcSessionImpl& self = of(user);
    auto stream = std::make_unique<RpcStream>();
    stream->id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(session, stream->id, stream.get());
    self.streams_.insert_or_assign(stream->id, std::move(stream));
    return 0;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    GrpcSessionImpl& self = of(user);
    RpcStream* const stream = self.find(frame->hd.stream_id);
    if (!stream) return 0;
    // RFC 9113, 10.5.1: a field counts 32 bytes more than its text.
    stream->header_bytes += name_size + value_size + 32;
    if (stream->header_bytes <= self.options_.header_bytes_max)
      take_field(*stream, view_of(name, name_size), view_of(value, value_size));
    return 0;
  }

  static void take_field(RpcStream& stream, std::string_view name, std::string_view value) {
    if (name == ":path") {
      stream.request.method = value;
    } else if (name == ":method") {
      stream.http_method = value;
    } else if (name == "content-type") {
      stream.content_type = value;
    } else if (name == "grpc-timeout") {
      stream.timeout = value;
    } else if (name == "grpc-encoding") {
      stream.encoding = value;
    } else if (!name.starts_with(':') && !name.starts_with("grpc-") && name != "te") {
      stream.request.metadata.add(std::string(name), std::string(value));
    }
  }

  static bool is_grpc(std::string_view content_type) {
    constexpr std::string_view kType = "application/grpc";
    if (!content_type.starts_with(kType)) return false;
    const std::string_view rest = content_type.substr(kType.size());
    return rest.empty() || rest.front() == '+' || rest.front() == ';';
  }

  void begin_call(RpcStream& stream) {
    if (stream.header_bytes > options_.header_bytes_max) {
      return refuse(stream, Error(Code::kExhausted, "the header is larger than " +
                                                        std::to_string(options_.header_bytes_max) +
                                                        " bytes"));
    }
    if (stream.http_method != "POST") return refuse_http(stream, "405");
    if (!is_grpc(stream.content_type)) return refuse_http(stream, "415");
    if (!stream.timeout.empty()) {
      const auto timeout = parse_grpc_timeout(stream.timeout);
      if (!timeout) return refuse(stream, Error(Code::kInvalid, "grpc-timeout is malformed"));
      stream.request.deadline = now_ + *timeout;
    }
    if (!stream.encoding.empty() && stream.encoding != "identity") {
      return refuse(stream, Error(Code::kUnsupported, "this server does not decompress messages"));
    }
    stream.request.peer = setup_.peer;
    stream.wake = setup_.make_wake(stream.id);
    stream.call = std::make_shared<CallState>(std::move(stream.request), options_.send_bytes_max,
                                              stream.wake);
    stream.request.deadline = stream.call->request().deadline;
    contain("a gRPC handler threw", [&] { stream.events = setup_.handler(stream.call); });
    if (!stream.events) stream.call->finish(Error(Code::kInternal, "the handler made no call"));
  }

  /// Ends a call that no handler knows.
  void refuse(RpcStream& stream, Status status) {
    stream.discarding = true;
    stream.finish = std::move(status);
  }

  /// The client does not speak gRPC.
  void refuse_http(RpcStream& stream, std::string_view http_status) {
    stream.discarding = true;
    stream.trailers = stream.responded = true;
    const std::array<nghttp2_nv, 1> fields = {field(":status", http_status)};
    nghttp2_submit_response(session_, stream.id, fields.data(), fields.size(), nullptr);
  }

  // --- frames ---

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    GrpcSessionImpl& self = of(user);
    const std::uint8_t flags = frame->hd.flags;
    const bool ended = (flags & NGHTTP2_FLAG_END_STREAM) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_SETTINGS:
        self.handshake_deadline_ = SteadyTime::max();
        if ((flags & NGHTTP2_FLAG_ACK) == 0) self.count_control_frame();
        break;
      case NGHTTP2_PING:
        if ((flags & NGHTTP2_FLAG_ACK) == 0) self.count_control_frame();
        break;
      case NGHTTP2_DATA:
        if (!ended && frame->hd.length == 0) self.count_control_frame();
        break;
      case NGHTTP2_HEADERS:
        break;
      default:
        self.count_control_frame();
        break;
    }
    if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) return 0;
    RpcStream* const stream = self.find(frame->hd.stream_id);
    if (!stream) return 0;
    stream->remote_ended = stream->remote_ended || ended;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
      self.begin_call(*stream);
    self.advance(*stream);
    return 0;
  }

  static int on_invalid_frame(nghttp2_session*, const nghttp2_frame*, int, void* user) {
    of(user).count_control_frame();
    return 0;
  }

  void count_control_frame() {
    if (!allowance_.take(now_)) flooded_ = true;
  }

  static int on_frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    GrpcSessionImpl& self = of(user);
    switch (frame->hd.type) {
      case NGHTTP2_DATA:
        // The client answers data with window updates.
        self.allowance_.give(2);
        break;
      case NGHTTP2_RST_STREAM:
        // A client can also make the server reset streams.
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR) self.count_control_frame();
        break;
      case NGHTTP2_HEADERS:
        // RFC 9113, 8.1: the response is complete, so the client stops sending.
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
          const RpcStream* const stream = self.find(frame->hd.stream_id);
          if (stream && !stream->remote_ended) {
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                      NGHTTP2_NO_ERROR);
          }
        }
        break;
      default:
        break;
    }
    return 0;
  }

  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    GrpcSessionImpl& self = of(user);
    const auto found = self.streams_.find(id);
    if (found == self.streams_.end()) return 0;
    const std::unique_ptr<RpcStream> stream = std::move(found->second);
    self.streams_.erase(found);
    if (error == NGHTTP2_NO_ERROR && stream->trailers) {
      self.end_call(*stream, {});
    } else {
      self.end_call(*stream, Error(Code::kCancelled, "the client cancelled the call"));
    }
    if (self.streams_.empty()) {
      self.idle_since_ = self.now_;
      if (self.draining_) self.go_away();
    }
    return 0;
  }

  // --- receiving ---

  static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t id,
                     const std::uint8_t* data, std::size_t size, void* user) {
    GrpcSessionImpl& self = of(user);
    nghttp2_session_consume_connection(session, size);
    RpcStream* const stream = self.find(id);
    if (!stream) return 0;
    std::string_view bytes = view_of(data, size);
    if (stream->waiting.empty()) bytes.remove_prefix(self.receive(*stream, bytes));
    stream->waiting += bytes;
    return 0;
  }

  /// Uses bytes as far as the handler has asked for them; returns their number.
  std::size_t receive(RpcStream& stream, std::string_view bytes) {
    const std::size_t all = bytes.size();
    while (!bytes.empty()) {
      if (stream.discarding) {
        bytes = {};
        break;
      }
      if (!stream.in_message) {
        if (!stream.read_wanted) stream.read_wanted = stream.call->take_read();
        if (!stream.read_wanted) break;
        const std::size_t count = std::min(kGrpcPrefixBytes - stream.prefix_bytes, bytes.size());
        std::memcpy(stream.prefix.data() + stream.prefix_bytes, bytes.data(), count);
        stream.prefix_bytes += count;
        bytes.remove_prefix(count);
        if (stream.prefix_bytes < kGrpcPrefixBytes) break;
        stream.prefix_bytes = 0;
        begin_message(stream);
      }
      if (stream.discarding) continue;
      if (stream.in_message) {
        if (stream.waits_for_grant()) break;
        if (stream.ticket && !stream.wide) widen(stream);
        const std::size_t count =
            std::min(stream.message_size - stream.message.size(), bytes.size());
        if (stream.message.capacity() < stream.message_size)
          stream.message.reserve(stream.message_size);
        stream.message += bytes.substr(0, count);
        bytes.remove_prefix(count);
        progress(stream, count);
        if (stream.message.size() == stream.message_size) deliver(stream);
      }
    }
    const std::size_t used = all - bytes.size();
    if (used > 0) nghttp2_session_consume_stream(session_, stream.id, used);
    return used;
  }

  void begin_message(RpcStream& stream) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(stream.prefix[i]));
    };
    if (byte(0) != 0) {
      return fail(stream, byte(0) == 1 ? Error(Code::kUnsupported,
                                               "this server does not decompress messages")
                                       : Error(Code::kInvalid, "a message has unknown flags"));
    }
    const std::size_t size = byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4);
    if (size > options_.message_bytes_max) {
      return fail(stream, Error(Code::kExhausted, "a message has " + std::to_string(size) +
                                                      " bytes, more than " +
                                                      std::to_string(options_.message_bytes_max)));
    }
    stream.in_message = true;
    stream.message_size = size;
    if (size > GrpcServer::Options::kSmallMessageBytes)
      stream.ticket = setup_.budget->request(size, [wake = stream.wake] { (*wake)(); });
    if (size == 0) return deliver(stream);
    begin_window(stream);
  }

  // Each window counts alone. Otherwise a message with a fast beginning could hold its memory for
  // hours.
  void begin_window(RpcStream& stream) {
    stream.window_bytes = 0;
    stream.window_ends =
        stream.waits_for_grant() ? SteadyTime::max() : now_ + options_.message_window;
  }

  void progress(RpcStream& stream, std::size_t bytes) {
    stream.window_bytes += bytes;
    const auto window = static_cast<std::size_t>(options_.message_window.count());
    const std::size_t needed =
        std::max<std::size_t>(options_.message_bytes_per_second_min * window / 1000, 1);
    if (stream.window_ends == SteadyTime::max() || stream.window_bytes >= needed)
      begin_window(stream);
  }

  // Small windows cost a round trip each, which a large message need not wait for.
  void widen(RpcStream& stream) {
    stream.wide = true;
    const std::size_t bytes = std::clamp(stream.message_size, options_.window_bytes,
                                         std::max(kMessageWindowBytes, options_.window_bytes));
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, stream.id,
                                          static_cast<std::int32_t>(bytes));
  }

  void narrow(RpcStream& stream) {
    if (!std::exchange(stream.wide, false)) return;
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, stream.id,
                                          static_cast<std::int32_t>(options_.window_bytes));
  }

  void deliver(RpcStream& stream) {
    narrow(stream);
    stream.in_message = stream.read_wanted = false;
    stream.window_ends = SteadyTime::max();
    GrpcMessage message{.bytes = std::exchange(stream.message, {}),
                        .hold = std::exchange(stream.ticket, nullptr)};
    notify(stream, [&](GrpcEvents& events) { events.on_message(std::move(message)); });
  }

  template <typename Event>
  void notify(RpcStream& stream, const Event& event) {
    if (!stream.events) return;
    bool done = false;
    contain("a gRPC handler threw", [&] {
      event(*stream.events);
      done = true;
    });
    if (!done && stream.call) stream.call->finish(Error(Code::kInternal, "the handler failed"));
  }

  // --- progress of one stream, whatever was the reason ---

  void advance(RpcStream& stream) {
    if (!stream.waiting.empty()) {
      const std::size_t used = receive(stream, stream.waiting);
      stream.waiting.erase(0, used);
      if (stream.waiting.empty() && stream.waiting.capacity() > 0)
        std::string().swap(stream.waiting);
      if (stream.in_message && stream.window_ends == SteadyTime::max()) begin_window(stream);
    }
    if (stream.in_message && stream.window_ends == SteadyTime::max()) begin_window(stream);
    if (stream.remote_ended && stream.waiting.empty() && !stream.discarding) end_of_input(stream);
    if (stream.call && !stream.finish) {
      for (SharedMessage& message : stream.call->take_messages())
        stream.out.push_back(std::move(message));
      stream.finish = stream.call->finished();
    }
    start_output(stream);
  }

  void end_of_input(RpcStream& stream) {
    if (stream.in_message || stream.prefix_bytes > 0)
      return fail(stream, Error(Code::kInvalid, "the stream ended within a message"));
    if (!stream.read_wanted) stream.read_wanted = stream.call->take_read();
    if (!std::exchange(stream.read_wanted, false)) return;
    notify(stream, [](GrpcEvents& events) { events.on_end(); });
  }

  // --- sending ---

  void start_output(RpcStream& stream) {
    if (!stream.has_output()) return;
    if (stream.write_deadline == SteadyTime::max())
      stream.write_deadline = now_ + options_.write_timeout;
    if (stream.responded) {
      if (std::exchange(stream.deferred, false)) nghttp2_session_resume_data(session_, stream.id);
      return;
    }
    stream.responded = true;
    std::vector<nghttp2_nv> fields = {field(":status", "200"),
                                      field("content-type", "application/grpc"),
                                      field("grpc-accept-encoding", "identity")};
    if (!stream.out.empty()) {
      nghttp2_data_provider body{};
      body.source.ptr = &stream;
      body.read_callback = read_output;
      nghttp2_submit_response(session_, stream.id, fields.data(), fields.size(), &body);
      return;
    }
    const Trailers trailers(*stream.finish);
    trailers.append_to(fields);
    stream.trailers = true;
    nghttp2_submit_response(session_, stream.id, fields.data(), fields.size(), nullptr);
  }

  struct Trailers {
    explicit Trailers(const Status& result)
        : status(std::to_string(result.ok() ? 0 : grpc_status_of(result.error().code()))),
          message(result.ok() ? "" : encode_grpc_message(result.error().message())) {}
    void append_to(std::vector<nghttp2_nv>& fields) const {
      fields.push_back(field("grpc-status", status));
      if (!message.empty()) fields.push_back(field("grpc-message", message));
    }
    std::string status, message;
  };

  static ssize_t read_output(nghttp2_session* session, std::int32_t id, std::uint8_t* to,
                             std::size_t room, std::uint32_t* flags, nghttp2_data_source* source,
                             void* user) {
    GrpcSessionImpl& self = of(user);
    RpcStream& stream = *static_cast<RpcStream*>(source->ptr);
    bool drained = false;
    std::size_t count = 0;
    while (count < room && !stream.out.empty()) {
      const std::string& message = *stream.out.front();
      const auto size = static_cast<std::uint32_t>(message.size());
      const std::array<char, kGrpcPrefixBytes> prefix = {
          '\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
          static_cast<char>(size >> 8), static_cast<char>(size)};
      const auto copy = [&](std::string_view from) {
        const std::size_t piece = std::min(room - count, from.size());
        std::memcpy(to + count, from.data(), piece);
        count += piece;
        stream.out_sent += piece;
      };
      if (stream.out_sent < prefix.size())
        copy(std::string_view(prefix.data(), prefix.size()).substr(stream.out_sent));
      if (stream.out_sent >= prefix.size())
        copy(std::string_view(message).substr(stream.out_sent - prefix.size()));
      if (stream.out_sent < prefix.size() + message.size()) break;
      drained = stream.call->sent(message.size());
      stream.out.pop_front();
      stream.out_sent = 0;
    }
    stream.write_deadline =
        stream.has_output() ? self.now_ + self.options_.write_timeout : SteadyTime::max();
    if (drained && !stream.discarding)
      self.notify(stream, [](GrpcEvents& events) { events.on_drained(); });
    if (!stream.out.empty()) return static_cast<ssize_t>(count);
    if (stream.finish) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const Trailers trailers(*stream.finish);
      std::vector<nghttp2_nv> fields;
      trailers.append_to(fields);
      nghttp2_submit_trailer(session, id, fields.data(), fields.size());
      stream.trailers = true;
      return static_cast<ssize_t>(count);
    }
    if (count == 0) {
      stream.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    return static_cast<ssize_t>(count);
  }

  // --- the end of a call ---

  /// Ends the call for both sides. The handler learns it at once.
  void fail(RpcStream& stream, const Status& status) {
    if (stream.trailers) return end_call(stream, status);
    const bool unsent = stream.responded && !stream.out.empty();
    end_call(stream, status);
    stream.finish = status;
    if (unsent) {
      // Trailers would wait for the client's window behind the rest of a message.
      stream.trailers = true;
      stream.write_deadline = SteadyTime::max();
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_CANCEL);
    } else {
      stream.out.clear();
      start_output(stream);
    }
  }

  void end_call(RpcStream& stream, const Status& status) {
    stream.discarding = true;
    stream.window_ends = SteadyTime::max();
    stream.ticket.reset();
    std::string().swap(stream.message);
    if (!stream.call) return;
    stream.call->end();
    if (const auto events = std::exchange(stream.events, nullptr))
      contain("a gRPC handler threw", [&] { events->on_done(status); });
  }

  void check_times(RpcStream& stream) {
    if (stream.write_deadline <= now_) {
      end_call(stream, Error(Code::kUnavailable, "the client does not read"));
      stream.write_deadline = SteadyTime::max();
      stream.trailers = true;
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_CANCEL);
    } else if (stream.window_ends <= now_) {
      fail(stream, Error(Code::kUnavailable, "the message was too slow"));
    } else if (!stream.discarding && stream.request.deadline && *stream.request.deadline <= now_) {
      fail(stream, Error(Code::kTimeout, "the deadline passed"));
    }
  }

  void go_away() {
    if (std::exchange(gone_away_, true)) return;
    drain_deadline_ = SteadyTime::max();
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                          nullptr, 0);
  }

  const Setup setup_;
  const GrpcServer::Options& options_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<std::int32_t, std::unique_ptr<RpcStream>> streams_;
  SteadyTime now_;
  SteadyTime last_received_;
  SteadyTime idle_since_;
  SteadyTime handshake_deadline_;
  SteadyTime ping_deadline_ = SteadyTime::max();
  SteadyTime drain_deadline_ = SteadyTime::max();
  Allowance allowance_;
  bool flooded_ = false;
  bool draining_ = false;
  bool gone_away_ = false;
};

}  // namespace

std::unique_ptr<GrpcSession> GrpcSession::create(Setup setup, SteadyTime now) {
  return std::make_unique<GrpcSessionImpl>(std::move(setup), now);
}

}  // namespace varda::net::internal
