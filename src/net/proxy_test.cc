#include "net/proxy.h"

#include <gtest/gtest.h>
#include <map>

namespace varda::net {
namespace {

TEST(Proxy, NoProxyIsMatchedAsInCurl) {
  struct Case {
    const char* none;
    const char* host;
    int port;
    bool straight;
  };
  for (const Case& c : {
           Case{"", "example.com", 80, false},
           Case{"*", "anything", 80, true},
           Case{"example.com", "example.com", 80, true},
           Case{"example.com", "EXAMPLE.com.", 80, true},
           Case{"example.com", "files.example.com", 80, true},
           Case{"example.com", "badexample.com", 80, false},
           Case{".example.com", "example.com", 80, true},
           Case{"*.example.com", "a.example.com", 80, true},
           Case{"a.com, b.com c.com", "c.com", 443, true},
           Case{"a.com,,b.com", "d.com", 443, false},
           Case{"example.com:8080", "example.com", 8080, true},
           Case{"example.com:8080", "example.com", 80, false},
           Case{"127.0.0.1", "127.0.0.1", 80, true},
           Case{"127.0.0.1", "127.0.0.2", 80, false},
           Case{"10.0.0.0/8", "10.200.3.4", 80, true},
           Case{"10.0.0.0/8", "11.0.0.1", 80, false},
           Case{"192.168.4.0/22", "192.168.7.255", 80, true},
           Case{"192.168.4.0/22", "192.168.8.0", 80, false},
           Case{"10.0.0.0/33", "10.0.0.0", 80, false},
           Case{"0.0.0.0/0", "8.8.8.8", 80, true},
           Case{"::1", "::1", 80, true},
           Case{"fd00::/8", "fd12::1", 80, true},
           Case{"fd00::/8", "fe80::1", 80, false},
           Case{"10.0.0.0/8", "::1", 80, false},
           Case{"localhost", "127.0.0.1", 80, false},
           Case{".", "example.com", 80, false},
           Case{":80", "example.com", 80, false},
       })
    EXPECT_EQ(bypasses_proxy(c.none, c.host, c.port), c.straight)
        << '"' << c.none << "\" " << c.host << ':' << c.port;
}

TEST(Proxy, ProxyMustBeAnHttpOrigin) {
  EXPECT_EQ(parse_proxy("http://proxy:3128").value(), "http://proxy:3128");
  EXPECT_EQ(parse_proxy("http://proxy:3128/").value(), "http://proxy:3128");
  EXPECT_EQ(parse_proxy("proxy:80").value(), "http://proxy");
  EXPECT_EQ(parse_proxy("proxy").value(), "http://proxy:1080");
  EXPECT_EQ(parse_proxy("http://[::1]").value(), "http://[::1]:1080");
  EXPECT_EQ(parse_proxy("").value(), "");
  for (const char* bad : {"https://proxy:3128", "socks5://proxy:1080", "http://",
                          "http://proxy:port", "http://proxy/path"})
    EXPECT_EQ(parse_proxy(bad).error().code(), Code::kInvalid) << bad;
  const auto user = parse_proxy("http://jane:hush@proxy:3128");
  EXPECT_EQ(user.error().message().find("hush"), std::string::npos);
}

TEST(Proxy, EnvironmentIsReadInBothCasesWithoutCredentials) {
  std::map<std::string, std::string> variables;
  const auto getenv = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(proxies_from_environment(getenv).value().http, "");
  variables = {{"HTTP_PROXY", "up:1"},
               {"http_proxy", "low:2"},
               {"HTTPS_PROXY", "http://jane:hush@up:3"},
               {"NO_PROXY", "a"}};
  std::string left_out;
  const Proxies proxies = proxies_from_environment(getenv, &left_out).value();
  EXPECT_EQ(proxies.http, "http://low:2");
  EXPECT_EQ(proxies.https, "http://up:3");
  EXPECT_EQ(proxies.none, "a");
  EXPECT_EQ(proxies.credentials, "");
  EXPECT_EQ(left_out, "http://up:3");
  variables = {{"all_proxy", "every:4"}, {"https_proxy", "tls:5"}};
  EXPECT_EQ(proxies_from_environment(getenv).value().http, "http://every:4");
  EXPECT_EQ(proxies_from_environment(getenv).value().https, "http://tls:5");
  variables = {{"ALL_PROXY", "socks5://x:1"}};
  EXPECT_EQ(proxies_from_environment(getenv).value().http, "");
  variables = {{"http_proxy", "socks5://x:1"}};
  EXPECT_FALSE(proxies_from_environment(getenv).ok());
}

TEST(Proxy, EachSchemeUsesItsOwnProxy) {
  const Proxies proxies{
      .http = "http://a:1", .https = "", .none = "inside.example", .credentials = ""};
  EXPECT_EQ(proxy_for(proxies, "http", "files.example", 80), "http://a:1");
  EXPECT_EQ(proxy_for(proxies, "http", "inside.example", 80), std::nullopt);
  EXPECT_EQ(proxy_for(proxies, "https", "files.example", 443), std::nullopt);
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.10", "::1"})
    EXPECT_EQ(proxy_for(proxies, "http", host, 80), std::nullopt);
}

}  // namespace
}  // namespace varda::net
