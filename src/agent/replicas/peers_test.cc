#include "agent/replicas/peers.h"

#include <atomic>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/testing/eventually.h"
#include "net/certificates.h"
#include "net/client.h"

namespace varda::agent::replicas {
namespace peers_test {

const Context kForever = Context::background();

class PeersTest : public ::testing::Test {
 protected:
  identity::PeerCredentials credentials_of(const std::string& node, const net::KeyPair& ca) const {
    const auto pair = net::make_certificate(ca, {.common_name = node,
                                                 .organizations = {"system:nodes"},
                                                 .hosts = {api::peer_name(node)},
                                                 .peer = true});
    CHECK(pair.ok());
    return {.certificate_pem = pair->certificate_pem,
            .key_pem = pair->key_pem,
            .ca_pem = ca.certificate_pem,
            .issued = system_clock().wall() - std::chrono::hours(1)};
  }
  std::unique_ptr<Peers> peers(const std::string& node, const std::string& listen,
                               const net::KeyPair& ca) {
    return std::make_unique<Peers>(Peers::Options{
        .listen = listen, .url = "", .credentials = [fixed_credentials = credentials_of(node, ca)] {
          return std::optional(fixed_credentials);
        }});
  }
  static net::Handler whoami() {
    return net::inline_handler([](const net::Request& request) {
      net::Response out;
      out.body = request.peer.certificate_common_name;
      return out;
    });
  }
  static Result<std::string> common_name_seen(Peers& from, const std::string& node,
                                              const std::string& url) {
    net::HttpClient* client = from.client_of(node);
    if (client == nullptr) return Error(Code::kUnavailable, "no client");
    net::ClientRequest request;
    request.url = url + "/";
    TRY(const auto answer,
        client->call(kForever.with_timeout(std::chrono::seconds(60)), std::move(request)));
    return answer.body;
  }

  const net::KeyPair ca_ = net::make_ca("edge", std::chrono::hours(24)).value();
  const net::KeyPair other_ca_ = net::make_ca("other", std::chrono::hours(24)).value();
  std::unique_ptr<Peers> a_ = peers("edge0", "127.0.0.1:0", ca_);
};

TEST_F(PeersTest, TwoNodesAuthenticateEachOther) {
  ASSERT_TRUE(a_->serve(whoami()).ok());
  const auto b = peers("edge1", "", ca_);
  EXPECT_EQ(common_name_seen(*b, "edge0", a_->url()).value(), "edge1");
  EXPECT_EQ(b->url(), "");
}

// Only compares the limits. ClientsWithoutACertificateLeaveRoomForNodes shows their effect.
TEST(PeerServer, LimitsOfStrangersAreBelowTheLimitOfAll) {
  const net::Server::Options options = peer_server_options();
  EXPECT_LT(options.handshakes_max + options.nameless_connections_max, options.connections_max);
  EXPECT_LE(options.header_timeout, std::chrono::seconds(3));
}

TEST_F(PeersTest, PeerWithWrongNameIsRejected) {
  ASSERT_TRUE(a_->serve(whoami()).ok());
  const auto b = peers("edge1", "", ca_);
  EXPECT_EQ(common_name_seen(*b, "edge2", a_->url()).error().code(), Code::kUnavailable);
}

TEST_F(PeersTest, NodesOfDifferentAuthoritiesRejectEachOther) {
  ASSERT_TRUE(a_->serve(whoami()).ok());
  const auto stranger = peers("edge1", "127.0.0.1:0", other_ca_);
  ASSERT_TRUE(stranger->serve(whoami()).ok());
  EXPECT_FALSE(common_name_seen(*stranger, "edge0", a_->url()).ok());
  EXPECT_FALSE(common_name_seen(*a_, "edge1", stranger->url()).ok());
}

TEST_F(PeersTest, NodeWithoutIdentityNeitherServesNorConnects) {
  Peers without_credentials({.listen = "127.0.0.1:0", .url = "", .credentials = [] {
                               return std::optional<identity::PeerCredentials>();
                             }});
  EXPECT_EQ(without_credentials.serve(whoami()).error().code(), Code::kInvalid);
  EXPECT_EQ(without_credentials.client_of("edge0"), nullptr);
  EXPECT_EQ(without_credentials.url(), "");
}

TEST_F(PeersTest, OptionalPortThatIsTakenIsReplacedByAFreeOne) {
  ASSERT_TRUE(a_->serve(whoami()).ok());
  const std::string taken = a_->url().substr(std::string("https://").size());
  Peers other({.listen = taken,
               .port = Peers::Port::kOptional,
               .url = "",
               .credentials = [credentials = credentials_of("edge1", ca_)] {
                 return std::optional(credentials);
               }});
  ASSERT_TRUE(other.serve(whoami()).ok());
  EXPECT_NE(other.url(), "");
  EXPECT_NE(other.url(), a_->url());
  EXPECT_EQ(common_name_seen(*a_, "edge1", other.url()).value(), "edge0");
  const auto required = peers("edge2", taken, ca_);
  EXPECT_EQ(required->serve(whoami()).error().code(), Code::kUnavailable);
}

TEST_F(PeersTest, OptionalPortOpensOnceTheNodeHasAnIdentity) {
  std::optional<identity::PeerCredentials> credentials;
  Peers late(
      {.listen = "127.0.0.1:0", .port = Peers::Port::kOptional, .url = "", .credentials = [&] {
         return credentials;
       }});
  ASSERT_TRUE(late.serve(whoami()).ok());
  EXPECT_EQ(late.url(), "");
  credentials = credentials_of("edge1", ca_);
  int changes = 0;
  late.task(system_clock(), [&] { ++changes; }).step(kForever);
  EXPECT_EQ(common_name_seen(*a_, "edge1", late.url()).value(), "edge0");
  EXPECT_EQ(changes, 1);
}

/// An answer that ends only with its connection, which it then counts.
class OpenAnswer final : public net::BodyStream {
 public:
  explicit OpenAnswer(std::shared_ptr<std::atomic<int>> closed) : closed_(std::move(closed)) {}
  ~OpenAnswer() override { ++*closed_; }
  std::optional<std::string> read() override { return std::exchange(bytes_, ""); }
  void on_ready(std::function<void()>) override {}

 private:
  const std::shared_ptr<std::atomic<int>> closed_;
  std::string bytes_ = "open";
};

// Any host that reaches the port can connect.
TEST_F(PeersTest, ClientsWithoutACertificateLeaveRoomForNodes) {
  const auto closed = std::make_shared<std::atomic<int>>(0);
  ASSERT_TRUE(a_->serve(net::inline_handler([closed](const net::Request& request) {
                  net::Response out;
                  out.body = request.peer.certificate_common_name;
                  if (out.body.empty()) out.stream = std::make_unique<OpenAnswer>(closed);
                  return out;
                }))
                  .ok());
  constexpr int kSurplus = 3;
  const auto limit = static_cast<int>(peer_server_options().nameless_connections_max);
  std::vector<std::unique_ptr<net::HttpClient>> anonymous;
  std::vector<net::ClientResponse> answers;
  for (int i = 0; i < limit + kSurplus; ++i) {
    net::ClientOptions options;
    options.tls.ca_pem = ca_.certificate_pem;
    options.tls.verified_name = api::peer_name("edge0");
    anonymous.push_back(net::make_client(std::move(options)));
    net::ClientRequest request;
    request.url = a_->url() + "/";
    auto answer =
        anonymous.back()->send(kForever.with_timeout(std::chrono::seconds(60)), std::move(request));
    ASSERT_TRUE(answer.ok()) << answer.error();
    answers.push_back(std::move(answer).value());
  }
  EXPECT_TRUE(eventually("the oldest connections close", [&] { return *closed >= kSurplus; }));
  const auto b = peers("edge1", "", ca_);
  const auto served = common_name_seen(*b, "edge0", a_->url());
  ASSERT_TRUE(served.ok()) << served.error();
  EXPECT_EQ(*served, "edge1");
  EXPECT_EQ(*closed, kSurplus);
}

TEST_F(PeersTest, RenewedCertificateIsUsedOnTheSamePort) {
  identity::PeerCredentials now = credentials_of("edge0", ca_);
  Peers a(
      {.listen = "127.0.0.1:0", .url = "", .credentials = [&now] { return std::optional(now); }});
  ASSERT_TRUE(a.serve(whoami()).ok());
  const std::string url = a.url();
  const auto b = peers("edge1", "", ca_);
  ASSERT_TRUE(common_name_seen(*b, "edge0", url).ok());
  now = credentials_of("edge7", ca_);  // a different name, to distinguish it
  a.refresh();
  EXPECT_EQ(a.url(), url);
  EXPECT_EQ(common_name_seen(*b, "edge7", url).value(), "edge1");
  EXPECT_EQ(common_name_seen(a, "edge7", url).value(), "edge7");
}

TEST_F(PeersTest, PeerWithoutTlsIsNotContacted) {
  std::atomic<int> requests = 0;
  const auto inside = net::Server::create({}, net::inline_handler([&requests](const net::Request&) {
                                            ++requests;
                                            return net::Response();
                                          }))
                          .value();
  for (const std::string& url : {"http://" + inside->address() + "/internal?x=",
                                 "https://user@" + inside->address(), std::string()})
    EXPECT_EQ(common_name_seen(*a_, "edge1", url).error().code(), Code::kUnavailable) << url;
  EXPECT_EQ(requests, 0);
}

TEST_F(PeersTest, InvalidPeerUrlIsRefusedAtStart) {
  Peers a({.listen = "127.0.0.1:0", .url = "http://10.1.2.3:10445", .credentials = [this] {
             return std::optional(credentials_of("edge0", ca_));
           }});
  EXPECT_EQ(a.serve(whoami()).error().code(), Code::kInvalid);
}

TEST_F(PeersTest, ConfiguredUrlReplacesListenAddress) {
  Peers a({.listen = "127.0.0.1:0", .url = "https://10.1.2.3:10445", .credentials = [this] {
             return std::optional(credentials_of("edge0", ca_));
           }});
  ASSERT_TRUE(a.serve(whoami()).ok());
  EXPECT_EQ(a.url(), "https://10.1.2.3:10445");
}

}  // namespace peers_test
}  // namespace varda::agent::replicas
