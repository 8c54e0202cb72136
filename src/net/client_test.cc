#include "net/client.h"

#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <netdb.h>
#include <set>
#include <thread>

#include "net/server.h"
#include "net/testing/feed.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;
using testing::CannedServer;
using testing::Feed;

Result<HttpClient::Answer> fetch(const CannedServer& server, std::string method = "GET") {
  return make_client({})->call(Context().with_timeout(60s),
                               {.method = std::move(method),
                                .url = "http://127.0.0.1:" + std::to_string(server.port()) + "/"});
}

TEST(Client, RawResponsesGiveTheExpectedResult) {
  struct Case {
    const char* name;
    const char* wire;
    const char* method;
    const char* expected;  // status and body, or ! and a code
  };
  const Case cases[] = {
      {"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "GET", "200 hi"},
      {"chunked",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n", "GET",
       "200 hi!"},
      {"until close", "HTTP/1.0 200 OK\r\n\r\nto the end", "GET", "200 to the end"},
      {"no reason", "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "GET", "404 "},
      {"interim",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 201 "
       "Created\r\nContent-Length: 1\r\n\r\nx",
       "POST", "201 x"},
      {"head", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "HEAD", "200 "},
      {"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", "GET", "304 "},
      {"short", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi", "GET", "!unavailable"},
      {"short chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi", "GET",
       "!unavailable"},
      {"no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", "GET",
       "!unavailable"},
      {"nothing", "", "POST", "!unavailable"},
      {"cut header", "HTTP/1.1 200 OK\r\nConte", "GET", "!unavailable"},
      {"not HTTP", "SSH-2.0-OpenSSH_9\r\n", "GET", "!unavailable"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    CannedServer server(c.wire);
    auto answer = fetch(server, c.method);
    EXPECT_EQ(answer.ok() ? std::to_string(answer->status) + " " + answer->body
                          : "!" + std::string(to_string(answer.error().code())),
              c.expected);
  }
}

struct Counting {
  std::atomic<int> requests = 0;
  std::mutex mutex;
  std::vector<std::string> peers;
  std::unique_ptr<Server> server =
      *Server::create({}, inline_handler([this](const Request& request) {
                        ++requests;
                        {
                          std::lock_guard lock(mutex);
                          peers.push_back(request.peer.address);
                        }
                        Response response;
                        response.body = request.headers.find("Authorization") ? "with" : "without";
                        if (request.path() == "/loop") {
                          response.status = 302;
                          response.headers.add("Location", request.target);
                        }
                        if (request.target == "/a/from?x=1") {
                          response.status = 307;
                          response.headers.add("Location", "to#frag");
                        }
                        if (request.target == "/a/to") response.body = "arrived";
                        return response;
                      }));
  std::string url(const std::string& target) const {
    return "http://" + server->address() + target;
  }
};

TEST(Client, ReusesConnections) {
  Counting counting;
  auto client = make_client({});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client->call(Context(), {.url = counting.url("/")}).ok());
  EXPECT_EQ(std::set<std::string>(counting.peers.begin(), counting.peers.end()).size(), 1u);
}

// The server closes each connection after its keep-alive answer. The close may come before or
// during the next request. Repeatable requests are retried.
TEST(Client, ClosedPooledConnectionsAreReplaced) {
  const CannedServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  auto client = make_client({});
  for (int i = 0; i < 50; ++i) {
    auto answer = client->call(Context().with_timeout(60s),
                               {.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/"});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, "hi");
  }
}

TEST(Client, RedirectsAreFollowedOnlyIfEnabled) {
  Counting counting;
  EXPECT_EQ(make_client({})->call(Context(), {.url = counting.url("/a/from?x=1")})->status, 307);
  auto client = make_client({.redirects_max = 3});
  EXPECT_EQ(client->call(Context(), {.url = counting.url("/a/from?x=1")})->body, "arrived");
  EXPECT_EQ(client->call(Context(), {.method = "POST", .url = counting.url("/a/from?x=1")})->status,
            307);
  const auto loop = client->call(Context(), {.url = counting.url("/loop?signature=hush")});
  ASSERT_FALSE(loop.ok());
  EXPECT_EQ(loop.error().message().find("hush"), std::string::npos);
  EXPECT_NE(loop.error().message().find("redirects"), std::string::npos);
}

TEST(Client, AuthorizationIsNotSentToAnotherOrigin) {
  Counting target;
  auto source = *Server::create({}, inline_handler([&](const Request&) {
                                  Response response;
                                  response.status = 302;
                                  response.headers.add("Location", target.url("/"));
                                  return response;
                                }));
  auto client = make_client({.redirects_max = 1});
  auto answer = client->call(Context(), {.url = "http://" + source->address() + "/",
                                         .headers = {{"Authorization", "Bearer x"}}});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "without");
  EXPECT_EQ(
      client->call(Context(), {.url = target.url("/"), .headers = {{"Authorization", "Bearer x"}}})
          ->body,
      "with");
}

TEST(Client, AmazonHeadersAreNotSentToAnotherOrigin) {
  std::string seen;
  auto target = *Server::create(
      {}, inline_handler([&](const Request& request) {
        seen = std::string(request.headers.find("X-Amz-Security-Token").value_or("-")) +
               std::string(request.headers.find("x-amz-date").value_or("-")) +
               std::string(request.headers.find("X-Other").value_or("-"));
        return Response{};
      }));
  auto source =
      *Server::create({}, inline_handler([&](const Request&) {
                        Response response;
                        response.status = 307;
                        response.headers.add("Location", "http://" + target->address() + "/");
                        return response;
                      }));
  auto client = make_client({.redirects_max = 1});
  ASSERT_TRUE(client
                  ->call(Context().with_timeout(60s), {.url = "http://" + source->address() + "/",
                                                       .headers = {{"X-Amz-Security-Token", "hush"},
                                                                   {"x-amz-date", "now"},
                                                                   {"X-Other", "kept"}}})
                  .ok());
  EXPECT_EQ(seen, "--kept");
}

TEST(Client, RedirectsToOtherSchemesAreRefused) {
  for (const char* location :
       {"file:///etc/passwd?hush", "ftp://h/x?hush", "gopher://h/?hush", "nonsense://?hush"}) {
    auto source = *Server::create({}, inline_handler([&](const Request&) {
                                    Response response;
                                    response.status = 302;
                                    response.headers.add("Location", location);
                                    return response;
                                  }));
    const auto answer =
        make_client({.redirects_max = 3})
            ->call(Context().with_timeout(60s), {.url = "http://" + source->address() + "/"});
    ASSERT_FALSE(answer.ok()) << location;
    EXPECT_EQ(answer.error().message().find("hush"), std::string::npos) << answer.error();
  }
}

TEST(Client, ProxyServesAllButExcludedHostsAndGetsItsCredentials) {
  std::string authorization;
  auto proxy = *Server::create(
      {}, inline_handler([&](const Request& request) {
        authorization = std::string(request.headers.find("Proxy-Authorization").value_or(""));
        Response response;
        response.body = "from " + std::string(request.headers.find("Host").value_or(""));
        return response;
      }));
  ClientOptions options;
  options.proxies = {.http = "http://" + proxy->address(),
                     .https = "",
                     .none = "direct.invalid",
                     .credentials = "jane:a:b"};
  auto client = make_client(options);
  for (const char* host : {"one.invalid", "two.invalid:81"}) {
    const auto answer = client->call(Context().with_timeout(60s),
                                     {.url = "http://" + std::string(host) + "/x?y=1"});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, "from " + std::string(host));
    EXPECT_EQ(authorization, "Basic amFuZTphOmI=");
  }
  EXPECT_FALSE(client->call(Context().with_timeout(10s), {.url = "http://direct.invalid/"}).ok());
}

TEST(Client, ErrorNamesAProxyThatOpensNoTunnel) {
  struct Case {
    const char* wire;
    const char* message;
  };
  for (const Case& c :
       {Case{"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
             "requires other credentials"},
        Case{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP 403"},
        Case{"HTTP/1.1 200 OK\r\n\r\nbytes ahead", "before the origin"},
        Case{"", "instead of answering"}, Case{"nonsense\r\n", "malformed"}}) {
    CannedServer proxy(c.wire);
    ClientOptions options;
    options.proxies.https = "http://127.0.0.1:" + std::to_string(proxy.port());
    const auto answer =
        make_client(options)->call(Context().with_timeout(60s), {.url = "https://files.invalid/"});
    ASSERT_FALSE(answer.ok()) << c.message;
    EXPECT_EQ(answer.error().code(), Code::kUnavailable);
    EXPECT_NE(answer.error().message().find(c.message), std::string::npos) << answer.error();
    EXPECT_NE(answer.error().message().find("proxy " + options.proxies.https), std::string::npos)
        << answer.error();
  }
}

TEST(Client, StopAndDeadlineEndABlockedRead) {
  auto feed = std::make_shared<Feed>();
  auto server = *Server::create({}, [&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  auto client = make_client({});
  const std::string url = "http://" + server->address() + "/";
  {
    std::stop_source stop;
    auto response = client->send(Context(stop.get_token()), {.url = url});
    ASSERT_TRUE(response.ok());
    std::thread stopper([&] { stop.request_stop(); });
    EXPECT_EQ(response->body->read().error().code(), Code::kCancelled);
    EXPECT_EQ(response->body->read().error().code(), Code::kCancelled);
    stopper.join();
  }
  EXPECT_TRUE(feed->wait_released(60s));
  {
    auto response = client->send(Context().with_timeout(1s),
                                 {.url = url});  // enough for the header, even on a busy machine
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response->body->read().error().code(), Code::kTimeout);
  }
}

TEST(Client, DeadlineEndsTheWaitForAHeader) {
  auto server = *Server::create({}, [](Request, Responder respond) {
    static std::vector<std::shared_ptr<Responder>> responders;
    responders.push_back(std::make_shared<Responder>(std::move(respond)));
  });
  EXPECT_EQ(make_client({})
                ->send(Context().with_timeout(30ms), {.url = "http://" + server->address() + "/"})
                .error()
                .code(),
            Code::kTimeout);
}

TEST(Client, RefusedConnectionAndUnknownNameAreUnavailable) {
  int port = 0;
  {
    CannedServer closed_server("");
    port = closed_server.port();
  }
  auto client = make_client({});
  const auto refused =
      client->call(Context(), {.url = "http://127.0.0.1:" + std::to_string(port) + "/"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_EQ(make_client({.unix_socket = "/nonexistent/x"})
                ->call(Context(), {.url = "http://a/"})
                .error()
                .code(),
            Code::kUnavailable);
  EXPECT_EQ(client->call(Context(), {.url = "ftp://a/"}).error().code(), Code::kInvalid);
  EXPECT_EQ(
      client->call(Context(), {.url = "http://a/", .headers = {{"X", "a\r\nb"}}}).error().code(),
      Code::kInvalid);
}

TEST(Client, LookUpFunctionResolvesHostNames) {
  CannedServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  const auto client = make_client({.look_up = [](const std::string& host) {
    return host == "tier.test" ? HostAddresses{.numeric = {"127.0.0.1"}}
                               : HostAddresses{.error = EAI_NONAME};
  }});
  const auto call = [&](const std::string& host) {
    return client->call(Context().with_timeout(60s),
                        {.url = "http://" + host + ":" + std::to_string(server.port()) + "/"});
  };
  EXPECT_EQ(call("tier.test")->body, "hi");
  EXPECT_EQ(call("another.test").error().message(),
            "cannot resolve another.test: Name or service not known");
}

TEST(Client, EarlyRefusalOfALargeBodyIsRead) {
  Server::Options options;
  options.body_bytes_max = 1000;
  auto server = *Server::create(options, inline_handler([](const Request&) { return Response(); }));
  auto client = make_client({});
  auto answer =
      client->call(Context().with_timeout(60s), {.method = "PUT",
                                                 .url = "http://" + server->address() + "/",
                                                 .body = std::string(200'000, 'x')});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->status, 413);
  EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = "http://" + server->address() + "/"})
                ->status,
            200);
}

TEST(Client, ManyThreadsShareOneClient) {
  Counting counting;
  auto client = make_client({.idle_connections_max = 2});
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i)
        good += client->call(Context().with_timeout(60s), {.url = counting.url("/")}).ok();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 200);
}

}  // namespace
}  // namespace varda::net
