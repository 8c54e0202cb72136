// Upgrades of real connections: plain TCP, TLS and Unix sockets.
#include "net/tunnel.h"

#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "base/mutex.h"
#include "base/testing/eventually.h"
#include "net/client.h"
#include "net/server.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace tunnel_test {

using namespace std::chrono_literals;
using testing::RawSocket;

Context patience() { return Context().with_timeout(60s); }

/// Reads everything until the peer's end.
std::string read_all(Tunnel& tunnel) {
  std::string out;
  char buffer[4096];
  while (true) {
    const auto count = tunnel.read(patience(), buffer);
    if (!count.ok()) return out + "!" + count.error().message();
    if (*count == 0) return out;
    out.append(buffer, *count);
  }
}
std::string read_some(Tunnel& tunnel, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t filled = 0;
  while (filled < bytes) {
    const auto count = tunnel.read(patience(), {out.data() + filled, bytes - filled});
    if (!count.ok() || *count == 0) break;
    filled += *count;
  }
  return out.substr(0, filled);
}

/// Accepts upgrades to "echo" at /echo, and gives the tunnels to the test.
class Upgrader {
 public:
  explicit Upgrader(Server::Options options = {}) {
    server_ = *Server::create(std::move(options), [this](Request request, Responder respond) {
      if (request.path() != "/echo")
        return respond({.status = 403, .headers = {}, .body = "not here"});
      if (!wants_upgrade(request, "echo"))
        return respond({.status = 426, .headers = {{"Upgrade", "echo"}}, .body = "upgrade"});
      last_peer = request.peer;
      respond(upgrade_response("echo", [this](std::unique_ptr<Tunnel> tunnel) {
        const MutexLock lock(mutex_);
        tunnels_.push_back(std::move(tunnel));
      }));
    });
  }
  std::unique_ptr<Tunnel> take() {
    std::unique_ptr<Tunnel> out;
    EXPECT_TRUE(eventually("a tunnel arrives", [&] {
      const MutexLock lock(mutex_);
      if (tunnels_.empty()) return false;
      out = std::move(tunnels_.back());
      tunnels_.pop_back();
      return true;
    }));
    return out;
  }
  Server& server() { return *server_; }
  std::string url(const std::string& path = "/echo") {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + path;
  }
  Peer last_peer;

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Tunnel>> tunnels_ GUARDED_BY(mutex_);
  std::unique_ptr<Server> server_;
};

void expect_bytes_both_ways(Tunnel& client, Tunnel& server) {
  ASSERT_TRUE(client.write(patience(), "hello").ok());
  EXPECT_EQ(read_some(server, 5), "hello");
  ASSERT_TRUE(server.write(patience(), "welcome").ok());
  EXPECT_EQ(read_some(client, 7), "welcome");
  client.finish();
  EXPECT_EQ(read_all(server), "") << "the end is passed on";
  ASSERT_TRUE(server.write(patience(), "still open").ok()) << "the other direction stays open";
  server.finish();
  EXPECT_EQ(read_all(client), "still open");
}

TEST(Upgrade, PlainConnectionBecomesATunnel) {
  Upgrader upgrader;
  auto client = make_tunnel_opener({})->connect(patience(), {upgrader.url(), {}, "echo"});
  ASSERT_TRUE(client.ok()) << client.error();
  const auto server = upgrader.take();
  expect_bytes_both_ways(**client, *server);
}

TEST(Upgrade, TlsConnectionBecomesATunnel) {
  const KeyPair ca = *make_ca("test-ca", 24h);
  const KeyPair pair =
      *make_certificate(ca, {.common_name = "s", .hosts = {"127.0.0.1"}, .server = true});
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = pair.certificate_pem, .key_pem = pair.key_pem};
  Upgrader upgrader(std::move(options));
  const std::string url = "https" + upgrader.url().substr(4);
  auto client = make_tunnel_opener({.tls = {.ca_pem = ca.certificate_pem}})
                    ->connect(patience(), {url, {}, "echo"});
  ASSERT_TRUE(client.ok()) << client.error();
  const auto server = upgrader.take();
  expect_bytes_both_ways(**client, *server);
}

TEST(Upgrade, UnixSocketBecomesATunnelAlsoWhileTheServerDrains) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tunnel-" + std::to_string(::getpid()))).string();
  Server::Options options;
  options.listen = "unix:" + path;
  Upgrader upgrader(std::move(options));
  upgrader.server().drain();
  auto client = make_tunnel_opener({.unix_socket = path})
                    ->connect(patience(), {"http://agent/echo", {}, "echo"});
  ASSERT_TRUE(client.ok()) << client.error();
  const auto server = upgrader.take();
  expect_bytes_both_ways(**client, *server);
}

TEST(Upgrade, BytesRightAfterTheRequestReachTheTunnel) {
  Upgrader upgrader;
  RawSocket raw(upgrader.server().port());
  raw.write(
      "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n"
      "early bytes");
  const auto server = upgrader.take();
  EXPECT_EQ(read_some(*server, 11), "early bytes");
  const std::string answer = raw.read_until("\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n")) << answer;
  EXPECT_NE(answer.find("Upgrade: echo\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Connection: Upgrade\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("Content-Length"), std::string::npos) << answer;
  raw.write(" later bytes");
  EXPECT_EQ(read_some(*server, 12), " later bytes");
}

TEST(Upgrade, TunnelOutlivesItsServer) {
  auto upgrader = std::make_unique<Upgrader>();
  auto client = make_tunnel_opener({})->connect(patience(), {upgrader->url(), {}, "echo"});
  const auto server = upgrader->take();
  upgrader->server().stop(0ms);
  upgrader.reset();
  expect_bytes_both_ways(**client, *server);
}

TEST(Upgrade, RefusalIsAnAnswerWithItsText) {
  Upgrader upgrader;
  const auto opener = make_tunnel_opener({});
  const auto answer = opener->open(patience(), {upgrader.url("/other"), {}, "echo"});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 403);
  EXPECT_EQ(answer->body, "not here");
  EXPECT_FALSE(answer->tunnel);
  EXPECT_EQ(opener->connect(patience(), {upgrader.url("/other"), {}, "echo"}).error().code(),
            Code::kForbidden);
  EXPECT_EQ(opener->open(patience(), {upgrader.url(), {}, "other"})->status, 426);
}

TEST(Upgrade, Http10GetsNoTunnel) {
  Upgrader upgrader;
  RawSocket raw(upgrader.server().port());
  raw.write("GET /echo HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
  EXPECT_TRUE(raw.read_all().starts_with("HTTP/1.1 400 "));
}

TEST(Upgrade, ReadEndsWithItsContext) {
  const auto [a, b] = make_tunnel_pair();
  char byte = 0;
  const auto read = a->read(Context().with_timeout(1ms), {&byte, 1});
  EXPECT_EQ(read.error().code(), Code::kTimeout);
}

TEST(Connector, RequestsGoThroughOneTunnelAndAReconnectOpensAnother) {
  auto behind = *Server::create(
      {}, inline_handler([](const Request& request) {
        return Response{.status = 200, .headers = {}, .body = request.target + request.body};
      }));
  std::atomic<int> opened{0};
  ClientOptions options;
  options.connector = [&](const Context& ctx) -> Result<std::unique_ptr<Tunnel>> {
    ++opened;
    // The server answers no upgrade, so its socket is connected by hand.
    auto [client, server] = make_tunnel_pair();
    std::thread([&behind, ctx, server = std::move(server)] {
      auto raw = std::make_unique<RawSocket>(behind->port());
      char buffer[1024];
      while (true) {
        const auto count = server->read(ctx, buffer);
        if (!count.ok() || *count == 0) return;
        raw->write({buffer, *count});
        if (!server->write(ctx, raw->read_until("~")).ok()) return;
      }
    }).detach();
    return std::move(client);
  };
  options.idle_timeout = 60s;
  const auto client = make_client(options);
  for (const char* target : {"/one~", "/two~"}) {
    const auto answer =
        client->call(patience(), {.url = std::string("http://aggregator") + target});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, target);
  }
  EXPECT_EQ(opened.load(), 1);
  const auto tls = client->call(patience(), {.url = "https://aggregator/"});
  EXPECT_EQ(tls.error().code(), Code::kInvalid);
}

TEST(Connector, UpgradesThenSendsRequests) {
  auto upgrader = std::make_unique<Upgrader>();
  std::atomic<int> tokens{0};
  ClientOptions options;
  options.connector = [&](const Context& ctx) {
    return make_tunnel_opener({})->connect(
        ctx, {upgrader->url(), {{"Authorization", std::to_string(++tokens)}}, "echo"});
  };
  const auto client = make_client(options);
  std::jthread server([&] {
    const auto tunnel = upgrader->take();
    std::string request;
    char buffer[1024];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const auto count = tunnel->read(patience(), buffer);
      if (!count.ok() || *count == 0) return;
      request.append(buffer, *count);
    }
    EXPECT_TRUE(request.starts_with("GET /v1/task HTTP/1.1\r\nHost: aggregator\r\n")) << request;
    (void)tunnel->write(patience(), "HTTP/1.1 204 No Content\r\n\r\n");
  });
  const auto answer = client->call(patience(), {.url = "http://aggregator/v1/task"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(tokens.load(), 1);
}

// ---- PROXY headers

std::string header_bytes(const StreamIdentity& identity, const std::string& key_pem = "") {
  ProxyHeader header{.source = "198.51.100.7:40000", .destination = "127.0.0.1:1"};
  add_identity(header, identity);
  if (!key_pem.empty()) {
    EXPECT_TRUE(sign_identity(header, key_pem, std::chrono::system_clock::now()).ok());
  }
  return write_proxy_header(header).value();
}
const StreamIdentity kTrainer{.node = "line7", .worker = "default/train", .job_uid = "u1"};

std::unique_ptr<Server> identity_server(ProxyReception reception, bool tls = false) {
  Server::Options options;
  options.proxy = std::move(reception);
  if (tls) {
    const KeyPair ca = *make_ca("ca", 24h);
    const KeyPair pair =
        *make_certificate(ca, {.common_name = "s", .hosts = {"127.0.0.1"}, .server = true});
    options.tls = TlsServer{.certificate_pem = pair.certificate_pem, .key_pem = pair.key_pem};
  }
  return *Server::create(
      options, inline_handler([](const Request& request) {
        const auto& identity = request.peer.stream_identity;
        return Response{
            .status = 200,
            .headers = {},
            .body = (identity ? identity->worker + (identity->is_signed ? "+" : "-") : "nobody") +
                    "|" + request.peer.forwarded_for + "|" + request.body};
      }));
}
constexpr const char* kRequest = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";

TEST(ProxyReception, SignedHeaderGivesThePeerItsIdentity) {
  const KeyPair ca = *make_ca("edge", 24h);
  const auto server = identity_server({.trust = {.authority_pem = ca.certificate_pem}});
  const std::string header = header_bytes(kTrainer, ca.key_pem);
  for (const std::size_t cut :
       {std::size_t{0}, std::size_t{5}, std::size_t{16}, header.size() - 1, header.size()}) {
    RawSocket raw(server->port());
    raw.write(header.substr(0, cut));
    raw.write(header.substr(cut) + kRequest);
    const std::string answer = raw.read_until("|body");
    EXPECT_NE(answer.find("default/train+|198.51.100.7:40000|body"), std::string::npos) << answer;
  }
}

TEST(ProxyReception, ConnectionWithoutAValidHeaderIsClosed) {
  const KeyPair ca = *make_ca("edge", 24h), other = *make_ca("edge", 24h);
  const auto server = identity_server({.trust = {.authority_pem = ca.certificate_pem}});
  for (const std::string& begin :
       {std::string(), header_bytes(kTrainer), header_bytes(kTrainer, other.key_pem),
        std::string(kProxySignature) + std::string("\x21\x11\xff\xff", 4)}) {
    RawSocket raw(server->port());
    raw.write(begin + kRequest);
    EXPECT_EQ(raw.read_all(), "");
  }
}

TEST(ProxyReception, SecondHeaderIsPayload) {
  const KeyPair ca = *make_ca("edge", 24h);
  const auto server = identity_server({.trust = {.authority_pem = ca.certificate_pem}});
  RawSocket raw(server->port());
  raw.write(header_bytes(kTrainer, ca.key_pem) +
            header_bytes({"line7", "default/boss", "u1"}, ca.key_pem) + kRequest);
  EXPECT_TRUE(raw.read_all().starts_with("HTTP/1.1 400 "));
}

TEST(ProxyReception, OptionalHeaderMayBeMissing) {
  const auto server = identity_server(
      {.header = ProxyReception::Header::kOptional, .trust = {.trust_unsigned_loopback = true}});
  RawSocket plain(server->port()), named(server->port());
  plain.write(kRequest);
  EXPECT_NE(plain.read_until("|body").find("nobody||body"), std::string::npos);
  named.write(header_bytes(kTrainer) + kRequest);
  EXPECT_NE(named.read_until("|body").find("default/train-|"), std::string::npos);
  Server::Options options;
  options.proxy.emplace().header = ProxyReception::Header::kOptional;
  options.tls.emplace();
  EXPECT_EQ(Server::create(options, inline_handler(nullptr)).error().code(), Code::kInvalid);
}

TEST(ProxyReception, HeaderPrecedesTls) {
  const auto server = identity_server({.trust = {.trust_unsigned_loopback = true}}, true);
  ClientOptions options;
  options.tls.verify = false;
  // The header goes first by hand, then the client's handshake on the same connection.
  RawSocket silent(server->port());
  silent.write("\x16\x03\x01");
  EXPECT_EQ(silent.read_all(), "") << "a handshake without a header is refused";
}

}  // namespace tunnel_test
}  // namespace varda::net
