#include "net/url.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace varda::net {
namespace {

TEST(Url, ResultsMatchTheGoldenCases) {
  // URL <tab> scheme|user|host|port|target|origin, or ! and a part of the message.
  std::ifstream file(VARDA_TESTDATA "/urls.tsv");
  ASSERT_TRUE(file);
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE(line);
    const auto tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos);
    const std::string expected = line.substr(tab + 1);
    const auto url = Url::parse(line.substr(0, tab));
    std::string found;
    if (!url.ok()) {
      EXPECT_EQ(url.error().code(), Code::kInvalid);
      ASSERT_TRUE(expected.starts_with("!")) << url.error().message();
      EXPECT_NE(url.error().message().find(expected.substr(1)), std::string::npos)
          << url.error().message();
    } else {
      EXPECT_EQ(url->scheme + "|" + url->user + "|" + url->host + "|" + std::to_string(url->port) +
                    "|" + url->target + "|" + url->origin(),
                expected);
    }
    ++cases;
  }
  EXPECT_GT(cases, 15);
}

TEST(Url, UrlsWithAZeroByteAreRefused) {
  using namespace std::literals;
  EXPECT_FALSE(Url::parse("http://[::1\0x]/"sv).ok());
  EXPECT_FALSE(Url::parse("http://a\0b/"sv).ok());
}

TEST(Url, PercentEncodingRoundTripsEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(*percent_decode(percent_encode(all)), all);
  EXPECT_EQ(percent_encode("a b/ä~"), "a%20b%2F%C3%A4~");
  EXPECT_EQ(*percent_decode("a+b"), "a+b");
  EXPECT_FALSE(percent_decode("%4").ok());
  EXPECT_FALSE(percent_decode("%zz").ok());
}

TEST(Query, DecodingKeepsOrderAndInvalidEscapes) {
  const Query query =
      Query::parse("labelSelector=app%3Dweb%2Ctier+in+(a)&watch=1&&flag&bad=%zz&watch=2");
  ASSERT_EQ(query.all().size(), 5u);
  EXPECT_EQ(query.get("labelSelector"), "app=web,tier in (a)");
  EXPECT_EQ(query.get("watch"), "1");
  EXPECT_EQ(query.get("flag", "x"), "");
  EXPECT_EQ(query.get("bad"), "%zz");
  EXPECT_EQ(query.get("missing", "x"), "x");
  EXPECT_FALSE(query.find("missing"));
}

}  // namespace
}  // namespace varda::net
