#include "net/internal/parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <optional>

namespace varda::net::internal {
namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using ErrorCode = boost::beast::error_code;

std::string_view view(string_view text) { return {text.data(), text.size()}; }

int status_of(const ErrorCode& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit) return 431;
  if (error == http::error::bad_version) return 505;
  return 400;
}

template <bool kIsRequest>
class Sink final : public http::basic_parser<kIsRequest> {
 public:
  explicit Sink(Message& message) : message_(message) {}
  bool between_chunks() const { return header_done_ && chunk_left_ == 0 && this->chunked(); }

 private:
  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       ErrorCode&) override {
    message_.method = view(method);
    message_.target = view(target);
    message_.minor_version = version % 10;
  }
  void on_response_impl(int code, string_view, int version, ErrorCode&) override {
    message_.status = code;
    message_.minor_version = version % 10;
  }
  void on_field_impl(http::field, string_view name, string_view value, ErrorCode&) override {
    // Trailers are dropped. Merged into the header, they could override decisions already made from
    // it.
    if (!header_done_) message_.headers.add(std::string(view(name)), std::string(view(value)));
  }
  void on_header_impl(ErrorCode&) override { header_done_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, ErrorCode&) override {
    // A declared length alone does not justify that much memory.
    if (length && kIsRequest)
      message_.body.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(*length, 256 << 10)));
  }
  std::size_t on_body_impl(string_view body, ErrorCode&) override {
    message_.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t size, string_view, ErrorCode&) override {
    chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, ErrorCode&) override {
    message_.body.append(body.data(), body.size());
    chunk_left_ -= body.size();
    return body.size();
  }
  void on_finish_impl(ErrorCode&) override {}

  Message& message_;
  bool header_done_ = false;
  std::uint64_t chunk_left_ = 0;  // 0: between chunks
};

/// The bytes between two chunks: the end of one, the line of the next, and trailers after the last.
/// Beast gets them in one piece for three reasons. It has no limit here. It counts a chunk twice
/// after a stop in a quoted extension. It aborts on an empty body in pieces.
enum class Between { kPartial, kWhole, kTooLong };

Between scan_between(std::string_view bytes, std::size_t limit) {
  const std::size_t begin = bytes.starts_with("\r\n") ? 2 : 0;
  std::size_t end = bytes.find("\r\n", begin);
  const std::size_t digits = bytes.find_first_not_of('0', begin);
  if (end != std::string_view::npos && digits > begin &&
      std::isxdigit(static_cast<unsigned char>(bytes[digits])) == 0)
    end = bytes.find("\r\n\r\n", end);
  if (std::min(end, bytes.size()) - begin > limit) return Between::kTooLong;
  return end == std::string_view::npos ? Between::kPartial : Between::kWhole;
}

template <bool kIsRequest>
class BeastParser final : public Parser {
 public:
  explicit BeastParser(ParserLimits limits) : limits_(limits) { reset(); }

  std::size_t feed(std::string_view bytes) override {
    std::size_t used = 0;
    const bool header_was_done = sink_->is_header_done();
    while (!error_ && !sink_->is_done()) {
      if (!header_was_done && sink_->is_header_done()) break;
      if (!used && !sink_->got_some()) {
        // Empty lines before a request are ignored (RFC 9112, 2.2).
        while (kIsRequest && used < bytes.size() && (bytes[used] == '\r' || bytes[used] == '\n'))
          ++used;
      }
      if (used == bytes.size()) break;
      const bool between = sink_->between_chunks();
      if (between) {
        const Between found = scan_between(bytes.substr(used), limits_.header_bytes);
        if (found == Between::kTooLong) error_ = http::error::header_limit;
        if (found != Between::kWhole) break;
      }
      ErrorCode error;
      const std::size_t count =
          sink_->put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
      used += count;
      if (error == http::error::need_more) {
        if (!between) break;
        error = http::error::bad_chunk_extension;  // an unterminated quote
      }
      if (error) error_ = error;
    }
    return used;
  }

  bool feed_end() override {
    if (sink_->is_done()) return true;
    if (!sink_->got_some() || error_) return false;
    ErrorCode error;
    sink_->put_eof(error);
    return !error;
  }

  bool started() const override { return sink_->got_some(); }
  bool header_done() const override { return sink_->is_header_done(); }
  bool done() const override { return sink_->is_done(); }
  int error_status() const override { return error_ ? status_of(error_) : 0; }
  std::string error_text() const override { return error_ ? error_.message() : std::string(); }
  bool keep_alive() const override { return sink_->keep_alive(); }
  bool ends_with_connection() const override { return !kIsRequest && sink_->need_eof(); }
  bool expects_body() const override {
    return sink_->chunked() || sink_->content_length().value_or(0) > 0;
  }
  void no_body() override { sink_->skip(true); }
  Message& message() override { return message_; }

  void reset() override {
    message_ = Message();
    error_ = {};
    sink_.emplace(message_);
    sink_->header_limit(
        static_cast<std::uint32_t>(std::min<std::size_t>(limits_.header_bytes, UINT32_MAX)));
    if (limits_.body_bytes == UINT64_MAX) {
      sink_->body_limit(boost::none);
    } else {
      sink_->body_limit(limits_.body_bytes);
    }
  }

 private:
  const ParserLimits limits_;
  Message message_;
  std::optional<Sink<kIsRequest>> sink_;
  ErrorCode error_;
};

}  // namespace

std::unique_ptr<Parser> Parser::create(Kind kind, ParserLimits limits) {
  if (kind == Kind::kRequest) return std::make_unique<BeastParser<true>>(limits);
  return std::make_unique<BeastParser<false>>(limits);
}

std::string_view reason_phrase(int status) {
  if (status < 100 || status > 599) return "Unknown";
  return view(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))));
}

}  // namespace varda::net::internal
