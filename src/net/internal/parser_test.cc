#include "net/internal/parser.h"

#include <gtest/gtest.h>
#include <vector>

#include "base/rng.h"

namespace varda::net::internal {
namespace parser_test {

const std::vector<std::string>& requests() {
  static const std::vector<std::string> all = {
      "GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
      "PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nX-T: "
      "1\r\n\r\n",
      "GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-Long: 1\r\n 2\r\n\r\n",
      "PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  };
  return all;
}

/// Feeds `bytes` in pieces, as a connection would; returns the outcome.
std::string run(Parser& parser, const std::string& bytes, Rng& rng, bool whole) {
  std::string buffer, outcome;
  std::size_t at = 0;
  while (true) {
    const std::size_t used = parser.feed(buffer);
    EXPECT_LE(used, buffer.size());
    buffer.erase(0, used);
    if (parser.error_status() != 0) return outcome + "!" + std::to_string(parser.error_status());
    if (parser.done()) {
      const Message& message = parser.message();
      outcome += message.method + " " + message.target + " " +
                 std::to_string(message.headers.all().size()) + " " + message.body + ";";
      parser.reset();
      continue;
    }
    if (used > 0) continue;
    if (at == bytes.size()) return outcome + (parser.started() ? "?" : "");
    const std::size_t count =
        whole ? bytes.size() - at : 1 + rng.below(std::min<std::size_t>(bytes.size() - at, 9));
    buffer.append(bytes, at, count);
    at += count;
  }
}

/// The complete messages of an outcome.
std::string messages(const std::string& outcome) {
  return outcome.substr(0, outcome.rfind(';') + 1);
}

std::unique_ptr<Parser> make() {
  return Parser::create(Parser::Kind::kRequest, {.header_bytes = 4096, .body_bytes = 64});
}

TEST(Parser, PieceSizesDoNotChangeTheResult) {
  auto rng = seeded_rng(1);
  std::string all;
  for (const std::string& request : requests()) all += request;
  auto parser = make();
  const std::string expected = run(*parser, all, *rng, true);
  EXPECT_EQ(expected,
            "GET /a?b=c 2 ;PUT /b 2 hello;POST /c 2 abc0123456789abcdef;GET / 2 ;PUT /d 2 ;");
  for (int i = 0; i < 200; ++i) {
    auto again = make();
    EXPECT_EQ(run(*again, all, *rng, false), expected);
  }
}

// Damaged messages stay within bounds, and the result does not depend on the pieces.
TEST(Parser, DamagedMessagesGiveTheSameResultInAnyPieces) {
  auto rng = seeded_rng(2);
  static constexpr std::string_view kBytes = "\r\n\0 :;,/0129afFxchunked\x7f\xff\t";
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text =
        requests()[rng->below(requests().size())] + requests()[rng->below(requests().size())];
    for (std::uint64_t k = rng->below(4) + 1; k > 0; --k) {
      const std::size_t at = rng->below(text.size());
      switch (rng->below(3)) {
        case 0:
          text[at] = kBytes[rng->below(kBytes.size())];
          break;
        case 1:
          text.erase(at, rng->below(8) + 1);
          break;
        default:
          text.insert(at, 1 + rng->below(3), kBytes[rng->below(kBytes.size())]);
      }
      if (text.empty()) text = "x";
    }
    SCOPED_TRACE(::testing::PrintToString(text));
    auto whole = make();
    auto pieces = make();
    const std::string outcome = run(*whole, text, *rng, true);
    const std::string other = run(*pieces, text, *rng, false);
    // If the text ends early, its fault may or may not have been noticed.
    const bool cut = outcome.ends_with('?') || other.ends_with('?');
    EXPECT_EQ(cut ? messages(other) : other, cut ? messages(outcome) : outcome);
    EXPECT_LE(whole->message().body.size(), 64u);
    refused += outcome.find('!') != std::string::npos;
  }
  EXPECT_GT(refused, 1000);
}

TEST(Parser, ChunkHeaderIsOneLineOfLimitedLength) {
  const std::string begin =
      "PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
  const std::pair<std::string, std::string> cases[] = {
      // The quote ends on another line. Counted twice, the chunk would exceed the body limit.
      {"28;x=\"y\r\n" + std::string(200, 'z') + "\"\r\n", "!400"},
      {"0;x=\"y\r\n\r\nGET / HTTP/1.1\r\n\r\n", "!400"},
      {"28;x=" + std::string(5000, 'y'), "!431"},
      {"28;x=" + std::string(5000, 'y') + "\r\n", "!431"},
      {std::string(5000, '0'), "!431"},
      {"0\r\n" + std::string(5000, 'x'), "!431"},
      {"0\r\nX: " + std::string(5000, 'x') + "\r\n\r\n", "!431"},
      {"0;x=\"" + std::string(4000, 'y') + "\"\r\nX: y\r\n\r\n", "PUT /d 2 abc;"},
      {"0000\r\n\r\n", "PUT /d 2 abc;"},
      {"0a;x\r\n0123456789\r\n00\r\nX: y\r\n\r\n", "PUT /d 2 abc0123456789;"},
  };
  auto rng = seeded_rng(3);
  for (const auto& [text, expected] : cases) {
    for (int i = 0; i < 20; ++i) {
      auto parser = make();
      EXPECT_EQ(run(*parser, begin + text, *rng, i == 0), expected) << text.substr(0, 30);
    }
  }
}

}  // namespace parser_test
}  // namespace varda::net::internal
