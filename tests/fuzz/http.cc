// HTTP/1.1 messages and first lines: requests as read by a server, responses as read by a client.
//
// The first byte selects the cuts. Every cut gives the same messages, within the limits. A parser
// that failed stays failed.
#include <string>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "net/internal/parser.h"
#include "net/url.h"

namespace {

using namespace varda::net;  // NOLINT: a program of one file
using internal::Message;
using internal::Parser;

constexpr internal::ParserLimits kLimits{.header_bytes = 2048, .body_bytes = 512};

struct Outcome {
  std::vector<std::string> messages;
  int error = 0;
  bool cut = false;  // the input ended inside a message
};

std::string text_of(const Message& message) {
  std::string out =
      message.method + " " + message.target + " " + std::to_string(message.status) + "\n";
  for (const auto& [name, value] : message.headers.all()) out += name + ": " + value + "\n";
  return out + "\n" + message.body;
}

/// Feeds like a connection: unused bytes come again, joined with the next ones.
Outcome run(Parser::Kind kind, std::string_view bytes, std::size_t step) {
  Outcome out;
  const auto parser = Parser::create(kind, kLimits);
  std::string buffer;
  while (true) {
    const std::size_t used = parser->feed(buffer);
    CHECK(used <= buffer.size());
    buffer.erase(0, used);
    CHECK(parser->message().body.size() <= kLimits.body_bytes);
    if (parser->error_status() != 0) {
      out.error = parser->error_status();
      CHECK(parser->feed("GET / HTTP/1.1\r\n\r\n") == 0);
      return out;
    }
    if (parser->done()) {
      out.messages.push_back(text_of(parser->message()));
      parser->reset();
      continue;
    }
    if (used > 0) continue;
    if (bytes.empty()) break;
    const std::size_t count = std::min(step, bytes.size());
    buffer += bytes.substr(0, count);
    bytes.remove_prefix(count);
    // A peer can only make us hold a header and the bytes that came with it.
    CHECK(buffer.size() <= kLimits.header_bytes + 64 + step);
  }
  if (!parser->started()) return out;
  out.cut = !parser->feed_end();
  if (!out.cut && parser->done()) out.messages.push_back(text_of(parser->message()));
  return out;
}

void check(Parser::Kind kind, std::string_view bytes, std::size_t step) {
  const Outcome whole = run(kind, bytes, bytes.size() + 1), pieces = run(kind, bytes, step);
  // If the text ends early, its fault may or may not have been noticed.
  const std::size_t same = std::min(whole.messages.size(), pieces.messages.size());
  for (std::size_t i = 0; i < same; ++i) CHECK(whole.messages[i] == pieces.messages[i]);
  if (whole.cut || pieces.cut) return;
  CHECK(whole.messages.size() == pieces.messages.size());
  CHECK((whole.error == 0) == (pieces.error == 0));
  // For a header that is both too long and malformed, the cuts decide which fault is found first.
  constexpr int kTooLong = 431;
  if (whole.error != kTooLong && pieces.error != kTooLong) CHECK(whole.error == pieces.error);
}

void check_target(std::string_view text) {
  if (const auto url = Url::parse(text); url.ok()) {
    std::string again = url->origin();
    if (!url->user.empty()) again.insert(again.find("://") + 3, percent_encode(url->user) + "@");
    const auto parsed = Url::parse(again + url->target);
    CHECK(parsed.ok() && parsed->user == url->user && parsed->host == url->host);
    CHECK(parsed->port == url->port && parsed->target == url->target);
  }
  if (const auto decoded = percent_decode(text); decoded.ok())
    CHECK(percent_decode(percent_encode(*decoded)).value() == *decoded);
  CHECK(percent_decode(percent_encode(text)).value() == text);
  const Query query = Query::parse(text);
  std::string again;
  for (const auto& [name, value] : query.all())
    again += (again.empty() ? "" : "&") + percent_encode(name) + "=" + percent_encode(value);
  CHECK(Query::parse(again).all() == query.all());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  const std::size_t step = input.byte() % 32 + 1;
  check(Parser::Kind::kRequest, input.rest(), step);
  check(Parser::Kind::kResponse, input.rest(), step);
  check_target(input.line());
  return 0;
}
