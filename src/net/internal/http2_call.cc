#include "net/internal/http2_call.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <nghttp2/nghttp2.h>
#include <vector>

#include "base/check.h"

namespace varda::net::internal {
namespace {

constexpr std::int32_t kWindowBytes = 1 << 20;
constexpr std::size_t kHeaderBytesMax = 64u << 10;

std::string_view text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

nghttp2_nv header(std::string_view name, std::string_view value) {
  // nghttp2 copies both; its parameters merely lack const.
  const auto bytes = [](std::string_view from) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(from.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

// Decodes the percent-encoding of grpc-message. Malformed escapes are kept as they are.
std::string decode_message(std::string_view encoded) {
  std::string out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
  };
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] == '%' && i + 2 < encoded.size() && digit(encoded[i + 1]) >= 0 &&
        digit(encoded[i + 2]) >= 0) {
      out += static_cast<char>(digit(encoded[i + 1]) * 16 + digit(encoded[i + 2]));
      i += 2;
    } else {
      out += encoded[i];
    }
  }
  return out;
}

class Call final : public Http2Call {
 public:
  explicit Call(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    const int made = nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    CHECK(made == 0);
    const std::array<nghttp2_settings_entry, 3> settings = {
        {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes},
         {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kHeaderBytesMax}}};
    CHECK(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) ==
          0);
    CHECK(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindowBytes) == 0);
  }
  ~Call() override { nghttp2_session_del(session_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Status begin(const Request& request) override {
    answer_ = {};
    header_bytes_ = 0;
    done_ = false;
    const auto size = static_cast<std::uint32_t>(request.message.size());
    prefix_ = {'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
               static_cast<char>(size >> 8), static_cast<char>(size)};
    message_ = request.message;
    sent_ = 0;
    std::vector<nghttp2_nv> headers = {header(":method", "POST"),
                                       header(":scheme", "http"),
                                       header(":path", request.method),
                                       header(":authority", "localhost"),
                                       header("te", "trailers"),
                                       header("content-type", "application/grpc"),
                                       header("user-agent", "varda/" VARDA_VERSION)};
    if (!request.timeout.empty()) headers.push_back(header("grpc-timeout", request.timeout));
    nghttp2_data_provider body{};
    body.read_callback = read_body;
    stream_ =
        nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &body, nullptr);
    if (stream_ < 0) {
      done_ = true;
      return Error(Code::kUnavailable, nghttp2_strerror(stream_));
    }
    return {};
  }

  bool done() const override { return done_; }
  GrpcAnswer take() override { return std::move(answer_); }

  Status feed(std::string_view bytes) override {
    const ssize_t used = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    if (used >= 0 && static_cast<std::size_t>(used) == bytes.size()) return {};
    return Error(Code::kUnavailable, "it does not speak HTTP/2: " +
                                         std::string(nghttp2_strerror(static_cast<int>(used))));
  }

  Result<std::string_view> output() override {
    const std::uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size < 0) return Error(Code::kInternal, nghttp2_strerror(static_cast<int>(size)));
    // nghttp2 reports this way that it gave the connection up, for example if the first frame was
    // not SETTINGS.
    if (size == 0 && nghttp2_session_want_read(session_) == 0)
      return Error(Code::kInternal, "the peer breaks the rules of HTTP/2");
    return text(bytes, static_cast<std::size_t>(size));
  }

  bool reusable() const override {
    return done_ && !got_goaway_ && nghttp2_session_check_request_allowed(session_) != 0;
  }

 private:
  static Call& of(void* user) { return *static_cast<Call*>(user); }

  static ssize_t read_body(nghttp2_session*, std::int32_t, std::uint8_t* to, std::size_t room,
                           std::uint32_t* flags, nghttp2_data_source*, void* user) {
    Call& self = of(user);
    std::size_t count = 0;
    const auto copy = [&](std::string_view from) {
      const std::size_t piece = std::min(room - count, from.size());
      std::memcpy(to + count, from.data(), piece);
      count += piece;
    };
    const std::size_t prefix = self.prefix_.size();
    if (self.sent_ < prefix) copy(std::string_view(self.prefix_.data(), prefix).substr(self.sent_));
    if (self.sent_ + count >= prefix) copy(self.message_.substr(self.sent_ + count - prefix));
    self.sent_ += count;
    if (self.sent_ == self.prefix_.size() + self.message_.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    Call& self = of(user);
    if (frame->hd.stream_id != self.stream_) return 0;
    self.header_bytes_ += name_size + value_size;
    if (self.header_bytes_ > kHeaderBytesMax) {
      self.answer_.too_large = true;
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets the stream
    }
    self.take_header(text(name, name_size), text(value, value_size));
    return 0;
  }

  void take_header(std::string_view name, std::string_view value) {
    const auto number = [&](int& out) {
      int parsed = 0;
      const auto end = std::from_chars(value.data(), value.data() + value.size(), parsed);
      out = end.ec == std::errc() && end.ptr == value.data() + value.size() && parsed >= 0 ? parsed
                                                                                           : 2;
    };
    if (name == ":status") {
      number(answer_.http_status);
    } else if (name == "content-type") {
      answer_.content_type = value;
    } else if (name == "grpc-status") {
      number(answer_.grpc_status);
    } else if (name == "grpc-message") {
      answer_.grpc_message = decode_message(value);
    }
  }

  static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t stream,
                     const std::uint8_t* data, std::size_t size, void* user) {
    Call& self = of(user);
    if (stream != self.stream_ || self.answer_.too_large) return 0;
    if (self.answer_.body.size() + size > self.body_bytes_max_) {
      self.answer_.too_large = true;
      return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
    }
    self.answer_.body += text(data, size);
    return 0;
  }

  static int on_close(nghttp2_session*, std::int32_t stream, std::uint32_t error, void* user) {
    Call& self = of(user);
    if (stream != self.stream_) return 0;
    self.answer_.reset = error;
    self.answer_.refused = error == NGHTTP2_REFUSED_STREAM;
    self.done_ = true;
    return 0;
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    // nghttp2 itself closes streams above the last id in GOAWAY as REFUSED_STREAM.
    if (frame->hd.type == NGHTTP2_GOAWAY) of(user).got_goaway_ = true;
    return 0;
  }

  const std::size_t body_bytes_max_;
  nghttp2_session* session_ = nullptr;
  std::int32_t stream_ = 0;
  std::array<char, 5> prefix_{};  // compression flag and size
  std::string_view message_;
  std::size_t sent_ = 0;  // bytes sent of prefix and message
  std::size_t header_bytes_ = 0;
  GrpcAnswer answer_;
  bool done_ = true;
  bool got_goaway_ = false;
};

}  // namespace

std::unique_ptr<Http2Call> Http2Call::create(std::size_t body_bytes_max) {
  return std::make_unique<Call>(body_bytes_max);
}

}  // namespace varda::net::internal
