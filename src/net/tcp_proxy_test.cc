#include "net/tcp_proxy.h"

#include <gtest/gtest.h>
#include <set>

#include "base/testing/eventually.h"
#include "net/client.h"
#include "net/server.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;
using testing::CannedServer;
using testing::RawSocket;

std::unique_ptr<Server> backend(std::string name) {
  return *Server::create({}, inline_handler([name](const Request& request) {
                           Response response;
                           response.body = name + std::to_string(request.body.size());
                           return response;
                         }));
}

/// One request on a separate connection.
std::string answer_through(const TcpProxy& proxy, std::string body = "") {
  auto answer = make_client({.idle_connections_max = 0})
                    ->call(Context().with_timeout(60s), {.method = "POST",
                                                         .url = "http://" + proxy.address() + "/",
                                                         .body = std::move(body)});
  return answer.ok() ? answer->body : "!" + std::string(to_string(answer.error().code()));
}

std::string dead_address() {
  CannedServer closed_server("");
  return "127.0.0.1:" + std::to_string(closed_server.port());
}

TEST(TcpProxy, BalancesRoundRobin) {
  auto a = backend("a"), b = backend("b");
  auto proxy = *TcpProxy::create({}, {a->address(), b->address()});
  std::string answers;
  for (int i = 0; i < 6; ++i) answers += answer_through(*proxy);
  EXPECT_TRUE(answers == "a0b0a0b0a0b0" || answers == "b0a0b0a0b0a0") << answers;
}

TEST(TcpProxy, RefusingBackendsAreSkipped) {
  auto a = backend("a");
  auto proxy = *TcpProxy::create({}, {dead_address(), a->address(), dead_address()});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(answer_through(*proxy), "a0");
}

TEST(TcpProxy, ConnectionIsClosedWithoutAWorkingBackend) {
  auto proxy = *TcpProxy::create({});
  EXPECT_EQ(answer_through(*proxy), "!unavailable");
  ASSERT_TRUE(proxy->set_backends({dead_address()}).ok());
  EXPECT_EQ(answer_through(*proxy), "!unavailable");
}

TEST(TcpProxy, ReplacedBackendKeepsOnlyExistingConnections) {
  auto a = backend("a"), b = backend("b");
  auto proxy = *TcpProxy::create({}, {a->address()});
  RawSocket old(proxy->port());
  old.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(old.read_until("a0").find("a0"), std::string::npos);
  ASSERT_TRUE(proxy->set_backends({b->address()}).ok());
  EXPECT_EQ(proxy->backends(), std::vector<std::string>{b->address()});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer_through(*proxy), "b0");
  old.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(old.read_until("a0").find("a0"), std::string::npos);
  EXPECT_EQ(proxy->set_backends({"nowhere"}).error().code(), Code::kInvalid);
  EXPECT_EQ(proxy->backends(), std::vector<std::string>{b->address()});
}

TEST(TcpProxy, LastBytesAreForwardedWithoutFurtherInput) {
  // The proxy moves eight pieces, then lets other connections run. A request that ends right there
  // has no more bytes to wake the proxy. The kernel chooses the pieces, hence many requests of many
  // sizes. Without the fix a few of them hang.
  auto a = backend("a");
  auto proxy = *TcpProxy::create({}, {a->address()});
  RawSocket socket(proxy->port());
  for (int i = 0; i < 400; ++i) {
    const std::size_t body = 180'000 + static_cast<std::size_t>(i) * 400;
    socket.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body) +
                 "\r\n\r\n" + std::string(body, 'x'));
    const std::string wanted = "a" + std::to_string(body);
    ASSERT_NE(socket.read_until(wanted).find(wanted), std::string::npos) << i;
  }
}

TEST(TcpProxy, CarriesLargeBodiesAndHalfClosedConnections) {
  auto a = backend("a");
  auto proxy = *TcpProxy::create({}, {a->address()});
  EXPECT_EQ(answer_through(*proxy, std::string(10'000'000, 'x')), "a10000000");
  RawSocket socket(proxy->port());
  socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  socket.finish_writing();
  EXPECT_NE(socket.read_all().find("a0"), std::string::npos);
  EXPECT_TRUE(socket.closed());
}

bool answers_again(RawSocket& socket) {
  socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  return socket.read_until("a0").find("a0") != std::string::npos;
}

TEST(TcpProxy, FullProxyEvictsTheLongestSilentConnection) {
  auto a = backend("a");
  auto proxy =
      *TcpProxy::create({.connections_max = 2, .connections_per_address_max = 10}, {a->address()});
  RawSocket first(proxy->port()), second(proxy->port());
  EXPECT_TRUE(answers_again(first));
  EXPECT_TRUE(answers_again(second));
  EXPECT_TRUE(answers_again(first));
  RawSocket third(proxy->port());
  EXPECT_TRUE(answers_again(third));
  EXPECT_EQ(second.read_all(), "");
  EXPECT_TRUE(second.closed());
  EXPECT_TRUE(answers_again(first));
  EXPECT_EQ(proxy->connections(), 2u);
}

TEST(TcpProxy, SilentConnectionsDoNotBlockClients) {
  auto a = backend("a");
  auto proxy =
      *TcpProxy::create({.connections_max = 8, .connections_per_address_max = 100}, {a->address()});
  std::vector<std::unique_ptr<RawSocket>> idle_sockets;
  for (int i = 0; i < 40; ++i) {
    idle_sockets.push_back(std::make_unique<RawSocket>(proxy->port()));
    if (i % 2 == 0) idle_sockets.back()->write("G");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer_through(*proxy), "a0");
}

TEST(TcpProxy, ConnectionsPerAddressAreLimited) {
  auto a = backend("a");
  auto proxy = *TcpProxy::create({.connections_max = 5}, {a->address()});  // half for one address
  auto first = std::make_unique<RawSocket>(proxy->port());
  RawSocket second(proxy->port());
  EXPECT_TRUE(answers_again(*first));
  EXPECT_TRUE(answers_again(second));
  RawSocket third(proxy->port());
  EXPECT_FALSE(answers_again(third));
  EXPECT_TRUE(third.closed());
  first.reset();
  EXPECT_TRUE(
      eventually("the place is free again", [&] { return answer_through(*proxy) == "a0"; }));
}

TEST(TcpProxy, FinishFreesThePortAndKeepsConnections) {
  auto a = backend("a"), b = backend("b");
  auto proxy = *TcpProxy::create({}, {a->address()});
  RawSocket early(proxy->port());
  const auto early_is_served = [&] {
    early.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    return early.read_until("a0").find("a0") != std::string::npos;
  };
  ASSERT_TRUE(early_is_served());
  proxy->finish();
  proxy->finish();
  auto next = TcpProxy::create({.listen = proxy->address()}, {b->address()});
  ASSERT_TRUE(next.ok()) << next.error();
  EXPECT_EQ(answer_through(**next), "b0");
  EXPECT_TRUE(early_is_served());
  EXPECT_EQ(proxy->connections(), 1u);
  proxy->stop();
  EXPECT_EQ(early.read_all(), "");
  EXPECT_TRUE(early.closed());
  proxy->finish();
}

TEST(TcpProxy, StopClosesConnectionsAndFreesThePort) {
  auto a = backend("a");
  auto thread = make_proxy_thread();
  auto proxy = *TcpProxy::create({.thread = thread}, {a->address()});
  RawSocket open(proxy->port());
  open.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(open.read_until("a0"), "");
  const std::string address = proxy->address();
  EXPECT_EQ(TcpProxy::create({.listen = address}).error().code(), Code::kUnavailable);
  proxy->stop();
  EXPECT_EQ(open.read_all(), "");
  EXPECT_TRUE(open.closed());
  auto again = TcpProxy::create({.listen = address, .thread = thread}, {a->address()});
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(answer_through(**again), "a0");
}

}  // namespace
}  // namespace varda::net
