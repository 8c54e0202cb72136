#include "net/browser_guard.h"

#include <gtest/gtest.h>

namespace varda::net {
namespace {

constexpr const char* kLoopback = "127.0.0.1:0";

/// The status and the origin that CORS allows.
struct Seen {
  int status = 0;
  std::string allowed_origin;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen status_and_origin(const BrowserGuard& guard, const Headers& headers,
                       const std::string& method = "POST") {
  const Handler handler =
      guard_from_browsers(guard, inline_handler([](const Request&) { return Response(); }));
  Request request;
  request.method = method;
  request.headers = headers;
  Seen seen;
  handler(std::move(request), Responder([&](Response response) {
            seen = {response.status,
                    std::string(response.headers.find("Access-Control-Allow-Origin").value_or(""))};
          }));
  return seen;
}

TEST(BrowserGuard, ForeignHostNamesAreRefusedOnLoopbackOnly) {
  for (const char* host : {"localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:8080",
                           "127.136.103.29:8080", "[::1]:8080", "10.0.0.1", ""}) {
    for (const char* listen : {kLoopback, "127.3.4.5:8080", "localhost:0", "[::1]:0",
                               "[::ffff:127.0.0.1]:0", "0.0.0.0:0", "10.0.0.1:80"})
      EXPECT_EQ(status_and_origin({.listen = listen, .cors_origins = {}}, {{"Host", host}}).status,
                200)
          << host << " at " << listen;
  }
  for (const char* host : {"attacker.example", "attacker.example:8080",
                           "localhost.attacker.example", "127.0.0.1.attacker.example"}) {
    for (const char* listen :
         {kLoopback, "127.3.4.5:8080", "localhost:0", "[::1]:0", "[::ffff:127.0.0.1]:0"})
      EXPECT_EQ(status_and_origin({.listen = listen, .cors_origins = {}}, {{"Host", host}}).status,
                403)
          << host << " at " << listen;
    for (const char* listen : {"0.0.0.0:0", "10.0.0.1:80", "unix:/tmp/s"})
      EXPECT_EQ(status_and_origin({.listen = listen, .cors_origins = {}}, {{"Host", host}}).status,
                200)
          << host << " at " << listen;
  }
}

TEST(BrowserGuard, PagesOfOtherOriginsAreRefused) {
  const BrowserGuard guard{.listen = "0.0.0.0:8080", .cors_origins = {}};
  for (const char* origin :
       {"http://evil.example", "null", "http://serve.example", "http://serve.example:80801", ""})
    EXPECT_EQ(status_and_origin(guard, {{"Host", "serve.example:8080"}, {"Origin", origin}}).status,
              403)
        << origin;
  for (const char* origin :
       {"http://serve.example:8080", "https://serve.example:8080", "HTTP://Serve.example:8080"})
    EXPECT_EQ(status_and_origin(guard, {{"Host", "serve.example:8080"}, {"Origin", origin}}).status,
              200)
        << origin;
  EXPECT_EQ(
      status_and_origin(guard, {{"Host", "h"}, {"Sec-Fetch-Site", "cross-site"}}, "GET").status,
      403);
  for (const char* site : {"same-origin", "same-site", "none"})
    EXPECT_EQ(status_and_origin(guard, {{"Host", "h"}, {"Sec-Fetch-Site", site}}).status, 200)
        << site;
}

TEST(BrowserGuard, ListedOriginGetsCorsHeaders) {
  const BrowserGuard guard{.listen = kLoopback, .cors_origins = {"https://app.example"}};
  const Headers page{{"Host", "localhost:8080"},
                     {"Origin", "https://app.example"},
                     {"Sec-Fetch-Site", "cross-site"}};
  EXPECT_EQ(status_and_origin(guard, page), (Seen{200, "https://app.example"}));
  Headers preflight = page;
  preflight.add("Access-Control-Request-Method", "POST");
  EXPECT_EQ(status_and_origin(guard, preflight, "OPTIONS"), (Seen{204, "https://app.example"}));
  EXPECT_EQ(
      status_and_origin(guard, {{"Host", "localhost:8080"}, {"Origin", "https://other.example"}}),
      (Seen{403, ""}));
  EXPECT_EQ(status_and_origin(guard, {{"Host", "app.example"}}), (Seen{200, ""}))
      << "a proxy in front may pass its own name on";
  const BrowserGuard everyone{.listen = kLoopback, .cors_origins = {"*"}};
  EXPECT_EQ(status_and_origin(everyone, {{"Host", "any.example"}, {"Origin", "null"}}),
            (Seen{200, "null"}));
}

TEST(BrowserGuard, GuardForwardsTheDisconnectCallback) {
  std::function<void()> on_disconnect;
  bool noticed = false;
  const Handler handler = guard_from_browsers({.listen = kLoopback, .cors_origins = {"*"}},
                                              [&](Request, Responder respond) {
                                                respond.on_disconnect([&] { noticed = true; });
                                                respond(Response());
                                              });
  Request request;
  request.headers.add("Origin", "https://app.example");
  handler(std::move(request), Responder([](Response) {},
                                        [&](Responder::OnDisconnect callback) {
                                          on_disconnect = std::move(callback);
                                        }));
  ASSERT_TRUE(on_disconnect);
  on_disconnect();
  EXPECT_TRUE(noticed);
}

}  // namespace
}  // namespace varda::net
