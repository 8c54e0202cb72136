// Streams of workers through the gateway, over real sockets.
#include "gateway/streams.h"

#include <gtest/gtest.h>

#include "base/testing/eventually.h"
#include "gateway/authority.h"
#include "gateway/gateway.h"
#include "gateway/testing/cloud.h"
#include "net/certificates.h"
#include "net/client.h"
#include "net/server.h"
#include "net/tunnel.h"

namespace varda::gateway {
namespace streams_test {

using namespace std::chrono_literals;
using codec::Json;
using testing::Cloud;
using testing::peer_of;

Context patience() { return Context().with_timeout(60s); }

const net::KeyPair& edge_ca() {
  static const net::KeyPair made = *net::make_ca("edge", 24h);
  return made;
}

/// Answers with the identity of the stream and the body of the request.
std::unique_ptr<net::Server> aggregator() {
  net::Server::Options options;
  options.proxy.emplace().trust.authority_pem = edge_ca().certificate_pem;
  return *net::Server::create(
      options, net::inline_handler([](const net::Request& request) {
        const auto& identity = request.peer.stream_identity;
        return net::Response{
            .status = 200,
            .headers = {},
            .body = (identity ? identity->node + " " + identity->worker + " " + identity->job_uid +
                                    (identity->is_signed ? " signed" : "")
                              : "nobody") +
                    "|" + request.body};
      }));
}

class GatewayStreams : public ::testing::Test {
 protected:
  GatewayStreams() {
    const std::string target = aggregator_->address();
    cloud_.apply(R"(
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: line7}
spec:
  workers:
  - key: default/train
    uid: u1
    streams:
    - {name: aggregator, address: ")" +
                 target + R"(", identity: true}
    - {name: plain, address: ")" +
                 plain_->address() + R"("}
    - {name: unknown, identity: true}
    - {name: dead, address: ")" +
                 dead_address() + R"("}
    - {name: named, address: "aggregator.default:80"}
    - {name: unix, address: "unix:/tmp/socket"}
    - {name: anywhere, address: ":80"}
    - {name: local, address: "localhost:80"}
  - {key: default/idle, uid: u2}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: line8}
spec:
  workers:
  - {key: default/other, uid: u1, streams: [{name: plain, address: ")" +
                 plain_->address() + R"("}]}
)");
    start();
  }
  static std::string dead_address() {
    auto server = *net::Server::create({}, net::inline_handler(nullptr));
    return server->address();
  }

  void start(Streams::Options streams = {}) {
    const Authority authority = *Authority::of(edge_ca());
    streams.sign = [authority](net::ProxyHeader& header) {
      return authority.sign(header, std::chrono::system_clock::now());
    };
    Gateway::Options options;
    options.streams = std::move(streams);
    options.metrics = &metrics_;
    cloud_.start_gateway(std::move(options));
    server_ = *net::Server::create(
        server_options(),
        [this, handler = cloud_.gateway().handler()](net::Request request, net::Responder respond) {
          const auto node = request.headers.find("X-Node");
          const std::string address = request.peer.address;
          request.peer = node ? peer_of(std::string(*node)) : net::Peer();
          request.peer.address = address;
          if (certificate_end_ != WallTime()) request.peer.certificate_not_after = certificate_end_;
          handler(std::move(request), std::move(respond));
        });
  }
  static net::Server::Options server_options() {
    net::Server::Options options = gateway::server_options();
    options.listen = "127.0.0.1:0";
    return options;
  }
  void stop() {
    cloud_.gateway().stop();
    server_.reset();
    cloud_.stop_gateway();
  }
  ~GatewayStreams() override {
    if (server_) stop();
  }

  net::TunnelRequest request(const std::string& node, const std::string& worker,
                             const std::string& stream) {
    net::TunnelRequest out{.url = "http://" + server_->address() + "/v1/streams?worker=" + worker +
                                  "&stream=" + stream,
                           .headers = {}};
    if (!node.empty()) out.headers.add("X-Node", node);
    return out;
  }
  net::TunnelAnswer open(const std::string& node, const std::string& worker,
                         const std::string& stream) {
    return opener_->open(patience(), request(node, worker, stream)).value();
  }
  static std::string message(const net::TunnelAnswer& answer) {
    return codec::parse_json(answer.body).value_or(Json())["message"].as_string();
  }
  /// True once the peer has ended or broken the stream.
  static bool ends(net::Tunnel& tunnel) {
    char byte = 0;
    const auto read = tunnel.read(patience(), {&byte, 1});
    return read.ok() ? *read == 0 : read.error().code() == Code::kUnavailable;
  }
  static bool echoes(net::Tunnel& tunnel) {
    if (!tunnel.write(patience(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n").ok()) return false;
    char bytes[512];
    const auto read = tunnel.read(patience(), bytes);
    return read.ok() && *read > 0;
  }
  void patch(const std::string& node, const std::string& yaml) {
    const auto answer = cloud_.api().merge_patch("/apis/edgeai.io/v1alpha1/edgenodes/" + node,
                                                 codec::parse_json(yaml).value());
    ASSERT_EQ(answer.status, 200);
  }

  std::unique_ptr<net::Server> aggregator_ = aggregator();
  std::unique_ptr<net::Server> plain_ = *net::Server::create(
      {}, net::inline_handler([](const net::Request&) { return net::Response(); }));
  std::unique_ptr<net::TunnelOpener> opener_ = net::make_tunnel_opener({});
  metrics::Registry metrics_;
  Cloud cloud_;
  WallTime certificate_end_{};
  std::unique_ptr<net::Server> server_;
};

TEST_F(GatewayStreams, RequestReachesTheTargetWithTheWorkersIdentity) {
  net::ClientOptions options;
  options.connector = [&](const Context& ctx) {
    return opener_->connect(ctx, request("line7", "default/train", "aggregator"));
  };
  const auto client = net::make_client(options);
  const auto answer =
      client->call(patience(), {.method = "POST", .url = "http://aggregator/", .body = "update"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "line7 default/train u1 signed|update");
  const std::string metrics = metrics_.text();
  EXPECT_NE(metrics.find("varda_gateway_streams 1"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("varda_gateway_streams_total{code=\"101\"} 1"), std::string::npos);
}

TEST_F(GatewayStreams, OnlyStreamsOfTheNodesOwnWorkersAreAllowed) {
  EXPECT_EQ(open("line7", "default/train", "plain").status, 101);
  EXPECT_EQ(open("line8", "default/train", "plain").status, 403);
  EXPECT_EQ(open("line7", "default/other", "plain").status, 403);
  EXPECT_EQ(open("line7", "default/idle", "plain").status, 403);
  EXPECT_EQ(open("line7", "default/train", "none").status, 403);
  EXPECT_EQ(open("nowhere", "default/train", "plain").status, 403);
  EXPECT_EQ(open("", "default/train", "plain").status, 401);
}

TEST_F(GatewayStreams, RequestNamesNoAddress) {
  const auto status = [&](const std::string& query) {
    return opener_
        ->open(patience(), {.url = "http://" + server_->address() + "/v1/streams" + query,
                            .headers = {{"X-Node", "line7"}}})
        ->status;
  };
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("?worker=default/train"), 400);
  EXPECT_EQ(status("?worker=default/train&stream=plain&address=127.0.0.1:1"), 400);
  EXPECT_EQ(status("?worker=default/train&stream=plain&stream=dead"), 400);
  EXPECT_EQ(status("?worker=default%2Ftrain&stream=plain"), 101);
}

TEST_F(GatewayStreams, RequestWithoutUpgradeIsRefused) {
  const auto answer = net::make_client({})->call(
      patience(),
      {.url = request("line7", "default/train", "plain").url, .headers = {{"X-Node", "line7"}}});
  EXPECT_EQ(answer->status, 426);
  EXPECT_EQ(answer->headers.find("Upgrade"), "varda-stream");
}

TEST_F(GatewayStreams, UnreachableTargetAnswers503WithTheReason) {
  const auto dead = open("line7", "default/train", "dead");
  EXPECT_EQ(dead.status, 503);
  EXPECT_NE(message(dead).find("refused"), std::string::npos) << message(dead);
  EXPECT_TRUE(dead.headers.find("Retry-After"));
  EXPECT_EQ(open("line7", "default/train", "unknown").status, 503);
  for (const char* name : {"named", "unix", "anywhere", "local"}) {
    const auto refused = open("line7", "default/train", name);
    EXPECT_EQ(refused.status, 503) << name;
    EXPECT_NE(message(refused).find("numeric"), std::string::npos) << message(refused);
  }
  EXPECT_TRUE(eventually(
      [&] { return metrics_.text().find("varda_gateway_streams 0") != std::string::npos; }));
}

TEST_F(GatewayStreams, AddressThatANodeMayNotChooseIsRefused) {
  stop();
  start({.targets = net::Destinations::create({}).value()});
  const auto refused = open("line7", "default/train", "plain");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(message(refused).find("loopback"), std::string::npos) << message(refused);
  stop();
  start({.targets = net::Destinations::create({"127.0.0.0/8"}).value()});
  EXPECT_EQ(open("line7", "default/train", "plain").status, 101);
}

TEST_F(GatewayStreams, LostGrantEndsTheStreamAndNoOther) {
  const auto lost = open("line7", "default/train", "plain");
  const auto other = open("line8", "default/other", "plain");
  ASSERT_TRUE(lost.tunnel && other.tunnel);
  EXPECT_TRUE(echoes(*lost.tunnel));
  // A change that leaves the stream leaves the connection.
  patch("line7", R"({"metadata":{"labels":{"site":"halle"}}})");
  EXPECT_TRUE(echoes(*lost.tunnel));
  patch("line7", R"({"spec":{"workers":[{"key":"default/train","uid":"u1"}]}})");
  EXPECT_TRUE(ends(*lost.tunnel));
  EXPECT_TRUE(echoes(*other.tunnel));
  EXPECT_TRUE(eventually([&] { return open("line7", "default/train", "plain").status == 403; }));
}

TEST_F(GatewayStreams, NewJobOfTheSameNameGetsNoOldStream) {
  const auto stream = open("line7", "default/train", "plain");
  ASSERT_TRUE(stream.tunnel);
  patch("line7", R"({"spec":{"workers":[{"key":"default/train","uid":"u9","streams":)"
                 R"([{"name":"plain","address":")" +
                     plain_->address() + R"("}]}]}})");
  EXPECT_TRUE(ends(*stream.tunnel));
}

TEST_F(GatewayStreams, RevokedNodeLosesItsStreams) {
  const auto stream = open("line7", "default/train", "plain");
  ASSERT_TRUE(stream.tunnel);
  patch("line7", R"({"metadata":{"annotations":{"edgeai.io/revoked":"true"}}})");
  EXPECT_TRUE(ends(*stream.tunnel));
}

TEST_F(GatewayStreams, StreamEndsWithTheNodesCertificate) {
  certificate_end_ = std::chrono::system_clock::now() + 1s;
  const auto stream = open("line7", "default/train", "plain");
  ASSERT_TRUE(stream.tunnel);
  EXPECT_TRUE(ends(*stream.tunnel));
}

TEST_F(GatewayStreams, EachNodeHasItsOwnLimit) {
  stop();
  start({.per_node_max = 2});
  const auto first = open("line7", "default/train", "plain");
  auto second = open("line7", "default/train", "plain");
  EXPECT_EQ(first.status, 101);
  EXPECT_EQ(second.status, 101);
  EXPECT_EQ(open("line7", "default/train", "plain").status, 429);
  EXPECT_EQ(open("line8", "default/other", "plain").status, 101);
  second.tunnel.reset();
  EXPECT_TRUE(eventually([&] { return open("line7", "default/train", "plain").status == 101; }));
}

TEST_F(GatewayStreams, NodeThatOpensStreamsInALoopIsThrottled) {
  stop();
  start({.opened_burst = 3, .opened_period = 1h});
  int refused = 0;
  for (int i = 0; i < 5; ++i) refused += open("line7", "default/train", "plain").status == 429;
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(open("line8", "default/other", "plain").status, 101);
}

TEST_F(GatewayStreams, HeaderOfTheClientIsPayload) {
  const auto stream = open("line7", "default/train", "aggregator");
  ASSERT_TRUE(stream.tunnel);
  net::ProxyHeader forged;
  net::add_identity(forged, {.node = "line8", .worker = "default/other", .job_uid = "u1"});
  ASSERT_TRUE(stream.tunnel
                  ->write(patience(), net::write_proxy_header(forged).value() +
                                          "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                  .ok());
  char bytes[512];
  const auto read = stream.tunnel->read(patience(), bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::string_view(bytes, *read).starts_with("HTTP/1.1 400 "));
}

TEST_F(GatewayStreams, RestartedGatewayServesANewStream) {
  const auto stream = open("line7", "default/train", "plain");
  ASSERT_TRUE(stream.tunnel);
  stop();
  EXPECT_TRUE(ends(*stream.tunnel));
  start();
  const auto again = open("line7", "default/train", "plain");
  ASSERT_TRUE(again.tunnel);
  EXPECT_TRUE(echoes(*again.tunnel));
}

TEST_F(GatewayStreams, WithoutAKeyNoIdentityIsSent) {
  stop();
  Gateway::Options options;
  cloud_.start_gateway(std::move(options));
  net::Request asked{.target = "/v1/streams?worker=default/train&stream=aggregator",
                     .headers = {{"Connection", "Upgrade"}, {"Upgrade", "varda-stream"}}};
  const auto answer =
      cloud_.transport("line7")->call(patience(), {.url = asked.target, .headers = asked.headers});
  EXPECT_EQ(answer->status, 503);
  cloud_.stop_gateway();
}

}  // namespace streams_test
}  // namespace varda::gateway
