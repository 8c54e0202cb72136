#include "net/tls.h"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "net/client.h"
#include "net/server.h"
#include "net/testing/feed.h"
#include "net/testing/raw_socket.h"
#include "net/validity.h"

namespace varda::net {
namespace tls_test {

using namespace std::chrono_literals;

struct Authority {
  KeyPair ca = *make_ca("test-ca", 24h);
  KeyPair server = *make_certificate(ca, {.common_name = "server",
                                          .hosts = {"127.0.0.1", "localhost", "edge.example"},
                                          .server = true});
  KeyPair client =
      *make_certificate(ca, {.common_name = "edge0", .organizations = {"system:nodes"}});
};

const Authority& authority() {
  static const Authority made;
  return made;
}

std::unique_ptr<Server> serve(std::string client_ca = "") {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = std::move(client_ca)};
  return *Server::create(options, inline_handler([](const Request& request) {
                           Response response;
                           response.body = request.peer.certificate_common_name + "|" +
                                           std::to_string(request.body.size());
                           return response;
                         }));
}

Result<HttpClient::Answer> get(const Server& server, TlsClient tls,
                               const std::string& host = "127.0.0.1", std::string body = "") {
  auto client = make_client({.tls = std::move(tls)});
  return client->call(Context().with_timeout(60s),
                      {.method = "PUT",
                       .url = "https://" + host + ":" + std::to_string(server.port()) + "/",
                       .body = std::move(body)});
}

TEST(Tls, VerifiedServerAnswersByAddressAndByName) {
  auto server = serve();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem}, host);
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, "|0");
  }
}

TEST(Tls, HandshakesAboveTheLimitWaitForAFreePlace) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = ""};
  options.handshakes_max = 2;
  options.io_threads = 2;
  auto server = *Server::create(
      options, inline_handler([](const Request&) { return Response{.body = "here"}; }));
  auto first = std::make_unique<varda::net::testing::RawSocket>(server->port());
  varda::net::testing::RawSocket second(server->port());
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 20; ++i) {
      clients.emplace_back([&] {
        answered += get(*server, {.ca_pem = authority().ca.certificate_pem}).ok() ? 1 : 0;
      });
    }
    first.reset();  // one free place serves all of them in turn
  }
  EXPECT_EQ(answered, 20);
  EXPECT_FALSE(second.closed());
}

TEST(Tls, DrippedHandshakesDoNotBlockOtherClients) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = ""};
  options.handshakes_max = 3;
  options.handshake_turn = 20ms;
  options.header_timeout = 1h;  // the handshakes do not time out before that
  auto server = *Server::create(
      options, inline_handler([](const Request&) { return Response{.body = "here"}; }));
  const std::jthread dripping([&](const std::stop_token& stop) {
    std::vector<std::unique_ptr<varda::net::testing::RawSocket>> sockets;
    for (int i = 0; i < 6; ++i) {
      sockets.push_back(std::make_unique<varda::net::testing::RawSocket>(server->port()));
      sockets.back()->write(std::string("\x16\x03\x01\x3f\x00", 5));  // a record of 16 KiB begins
    }
    for (int sent = 0; sent < 16000 && !stop.stop_requested(); ++sent) {
      for (const auto& socket : sockets) socket->write(sent == 0 ? "\x01" : "x");
      std::this_thread::sleep_for(2ms);
    }
  });
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok());
}

TEST(Tls, SilentHandshakesDoNotBlockOtherClients) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = ""};
  options.handshakes_max = 3;
  options.handshake_turn = 20ms;
  options.header_timeout = 1h;  // the handshakes do not time out before that
  auto server = *Server::create(
      options, inline_handler([](const Request&) { return Response{.body = "here"}; }));
  std::vector<std::unique_ptr<varda::net::testing::RawSocket>> idle_sockets;
  for (int i = 0; i < 12; ++i) {
    idle_sockets.push_back(std::make_unique<varda::net::testing::RawSocket>(server->port()));
    if (i % 2 == 0) idle_sockets.back()->write("\x16\x03\x01");  // the beginning of a ClientHello
  }
  EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok());
  for (const auto& socket : idle_sockets) {
    EXPECT_EQ(socket->read_until("x", 0ms), "");
    EXPECT_FALSE(socket->closed());
  }
}

TEST(Tls, UnfinishedHandshakesAreEvictedIfTheServerIsFull) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = ""};
  options.connections_max = 4;
  options.io_threads = 2;
  options.header_timeout = options.idle_timeout = 1h;  // the handshakes do not time out before that
  auto server = *Server::create(
      options, inline_handler([](const Request&) { return Response{.body = "here"}; }));
  std::vector<std::unique_ptr<varda::net::testing::RawSocket>> half;
  for (int i = 0; i < 12; ++i) {
    half.push_back(std::make_unique<varda::net::testing::RawSocket>(server->port()));
    if (i % 2 == 0) half.back()->write("\x16\x03\x01");  // the beginning of a ClientHello
  }
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok());
}

/// Answers every request with a separate stream that stays open.
class OpenStreams {
 public:
  explicit OpenStreams(Server::Options options) {
    options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                            .key_pem = authority().server.key_pem,
                            .client_ca_pem = authority().ca.certificate_pem};
    server_ = *Server::create(options, [this](const Request&, Responder respond) {
      Response response;
      response.stream = feed_->stream();
      respond(std::move(response));
    });
  }
  ClientResponse open(HttpClient& client) {
    return std::move(client.send(Context().with_timeout(60s),
                                 {.url = "https://" + server_->address() + "/"}))
        .value();
  }
  int port() const { return server_->port(); }

 private:
  struct Each {
    std::unique_ptr<BodyStream> stream() {
      auto feed = std::make_shared<varda::net::testing::Feed>();
      feed->write("open");
      auto out = feed->stream();
      MutexLock lock(mutex);
      all.push_back(std::move(feed));
      return out;
    }
    Mutex mutex;
    std::vector<std::shared_ptr<varda::net::testing::Feed>> all GUARDED_BY(mutex);
  };
  std::unique_ptr<Each> feed_ = std::make_unique<Each>();
  std::unique_ptr<Server> server_;
};

TlsClient named(const char* name) {
  const KeyPair pair =
      *make_certificate(authority().ca, {.common_name = name, .organizations = {"system:nodes"}});
  return {.ca_pem = authority().ca.certificate_pem,
          .certificate_pem = pair.certificate_pem,
          .key_pem = pair.key_pem};
}

TEST(Tls, OldestConnectionsOfOneClientAreEvictedAboveItsLimit) {
  OpenStreams streams(
      {.io_threads = 2, .connections_per_name_max = 2, .nameless_connections_max = 1});
  const auto greedy = make_client({.tls = named("greedy")});
  const auto modest = make_client({.tls = named("modest")});
  const auto anonymous = make_client({.tls = {.ca_pem = authority().ca.certificate_pem}});
  ClientResponse modest_stream = streams.open(*modest);
  ClientResponse anonymous_stream = streams.open(*anonymous);
  std::vector<ClientResponse> greedy_ones;
  for (int i = 0; i < 4; ++i) greedy_ones.push_back(streams.open(*greedy));
  for (int i = 0; i < 2; ++i) {
    auto& body = *greedy_ones[static_cast<std::size_t>(i)].body;
    auto more = body.read();
    if (more.ok()) more = body.read();  // bytes already in flight
    ASSERT_FALSE(more.ok());
    EXPECT_EQ(more.error().code(), Code::kUnavailable);
  }
  for (auto* response : {&greedy_ones[2], &greedy_ones[3], &modest_stream, &anonymous_stream})
    EXPECT_EQ(**response->body->read(), "open");
  ClientResponse newer = streams.open(*anonymous);
  EXPECT_FALSE(anonymous_stream.body->read().ok());
  EXPECT_EQ(**newer.body->read(), "open");
}

TEST(Tls, IdleConnectionsWithoutACertificateAreClosedSoon) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = authority().ca.certificate_pem};
  options.connections_max = 1;
  options.nameless_connections_max = 1;
  options.header_timeout = 300ms;
  options.idle_timeout = 1h;
  auto server = *Server::create(options, inline_handler([](const Request& request) {
                                  return Response{.body = request.peer.certificate_common_name};
                                }));
  const std::string url = "https://" + server->address() + "/";
  // On a busy machine a handshake may exceed that time, so retry.
  const auto served = [&](HttpClient& client) {
    const Context until = Context().with_timeout(60s);
    auto answer = client.call(until, {.url = url});
    while (!answer.ok() && !until.done()) answer = client.call(until, {.url = url});
    return answer.ok() ? answer->body : answer.error().message();
  };
  const auto anonymous = make_client({.tls = {.ca_pem = authority().ca.certificate_pem}});
  const auto named_client = make_client({.tls = named("line7"), .connect_timeout = 60s});
  EXPECT_EQ(served(*anonymous), "");
  EXPECT_EQ(served(*named_client), "line7");  // the only place was given back
}

TEST(Tls, ClientsWithoutACertificateHaveASmallerBodyLimit) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().server.key_pem,
                          .client_ca_pem = authority().ca.certificate_pem};
  options.nameless_body_bytes_max = 1000;
  auto server = *Server::create(options, inline_handler([](const Request& request) {
                                  return Response{.body = std::to_string(request.body.size())};
                                }));
  const TlsClient anonymous{.ca_pem = authority().ca.certificate_pem};
  EXPECT_EQ(get(*server, anonymous, "127.0.0.1", std::string(1000, 'x'))->body, "1000");
  EXPECT_EQ(get(*server, anonymous, "127.0.0.1", std::string(1001, 'x'))->status, 413);
  EXPECT_EQ(get(*server, named("line7"), "127.0.0.1", std::string(100'000, 'x'))->body, "100000");
}

TEST(Tls, ServerNameOverridesTheHost) {
  auto server = serve();
  EXPECT_TRUE(
      get(*server, {.ca_pem = authority().ca.certificate_pem, .server_name = "edge.example"}).ok());
  const auto wrong =
      get(*server, {.ca_pem = authority().ca.certificate_pem, .server_name = "other.example"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code(), Code::kUnavailable);
  EXPECT_NE(wrong.error().message().find("certificate"), std::string::npos) << wrong.error();
}

TEST(Tls, ServerOfAnotherAuthorityIsRefusedUnlessVerificationIsOff) {
  auto server = serve();
  const KeyPair other = *make_ca("other", 1h);
  EXPECT_FALSE(get(*server, {.ca_pem = other.certificate_pem}).ok());
  EXPECT_FALSE(get(*server, {}).ok());
  EXPECT_TRUE(get(*server, {.verify = false}).ok());
}

TEST(Tls, NewCertificateAppliesToNewConnectionsOnly) {
  auto server = serve();
  const auto certificate = [](WallTime end) {
    return *make_certificate(authority().ca,
                             {.common_name = "server", .hosts = {"127.0.0.1"}, .server = true},
                             {.not_before = kClocksBegin, .not_after = end});
  };
  const auto call = [&](HttpClient& client) {
    const Context ctx = Context().with_timeout(60s);
    return client.call(
        ctx, {.method = "PUT", .url = "https://127.0.0.1:" + std::to_string(server->port()) + "/"});
  };
  const WallTime now = std::chrono::system_clock::now();
  const auto open = make_client({.tls = {.ca_pem = authority().ca.certificate_pem}});
  ASSERT_TRUE(call(*open).ok());
  const KeyPair ended = certificate(now - 1h);
  ASSERT_TRUE(server->use_certificate(ended.certificate_pem, ended.key_pem).ok());
  EXPECT_TRUE(call(*open).ok()) << "the connection is kept";
  const auto late = get(*server, {.ca_pem = authority().ca.certificate_pem});
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message().find("certificate has expired"), std::string::npos)
      << late.error();
  const KeyPair next = certificate(now + 1h);
  ASSERT_TRUE(server->use_certificate(next.certificate_pem, next.key_pem).ok());
  EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok());
  EXPECT_EQ(server->use_certificate(next.certificate_pem, ended.key_pem).error().code(),
            Code::kInvalid);
  EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok())
      << "the wrong pair changed nothing";
  const auto plain = *Server::create({}, inline_handler([](const Request&) { return Response{}; }));
  EXPECT_EQ(plain->use_certificate(next.certificate_pem, next.key_pem).error().code(),
            Code::kInvalid);
}

TEST(Tls, NewClientAuthorityTakesEffectAtRuntime) {
  auto server = serve(authority().ca.certificate_pem);
  const KeyPair next = *make_ca("next", 1h);
  const KeyPair client = *make_certificate(next, {.common_name = "client"});
  const auto name_of = [&](const KeyPair& pair) {
    auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem,
                                .certificate_pem = pair.certificate_pem,
                                .key_pem = pair.key_pem});
    return answer.ok() ? answer->body : "refused";
  };
  EXPECT_NE(name_of(authority().client), "refused");
  EXPECT_EQ(name_of(client), "refused");
  TlsServer tls{.certificate_pem = authority().server.certificate_pem,
                .key_pem = authority().server.key_pem,
                .client_ca_pem = next.certificate_pem};
  ASSERT_TRUE(server->use_tls(tls).ok());
  EXPECT_EQ(name_of(authority().client), "refused");
  EXPECT_NE(name_of(client), "refused");
  tls.client_ca_pem.clear();
  EXPECT_EQ(server->use_tls(tls).error().code(), Code::kInvalid) << "it would let in everybody";
  EXPECT_NE(name_of(client), "refused");
}

TEST(Tls, FormerAuthorityVerifiesCertificatesOfTheRenewedOne) {
  const KeyPair renewed = *renew_ca(
      authority().ca, {.not_before = kClocksBegin,
                       .not_after = std::chrono::sys_days(std::chrono::year(2099) / 12 / 31)});
  const KeyPair pair =
      *make_certificate(renewed, {.common_name = "server", .hosts = {"127.0.0.1"}, .server = true});
  auto server = serve();
  EXPECT_TRUE(get(*server, {.ca_pem = renewed.certificate_pem}).ok());
  // A gateway sends its authority too.
  ASSERT_TRUE(
      server->use_certificate(pair.certificate_pem + renewed.certificate_pem, pair.key_pem).ok());
  EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem}).ok());
  EXPECT_TRUE(get(*server, {.ca_pem = renewed.certificate_pem}).ok());
}

TEST(Tls, ClientCertificateNamesThePeerAndIsOptional) {
  auto server = serve(authority().ca.certificate_pem);
  auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem,
                              .certificate_pem = authority().client.certificate_pem,
                              .key_pem = authority().client.key_pem});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "edge0|0");
  EXPECT_EQ(get(*server, {.ca_pem = authority().ca.certificate_pem})->body, "|0");
}

TEST(Tls, ClientCertificateOfAnotherAuthorityEndsTheConnection) {
  auto server = serve(authority().ca.certificate_pem);
  const KeyPair other = *make_ca("other", 1h);
  const KeyPair foreign = *make_certificate(other, {.common_name = "edge0"});
  EXPECT_FALSE(get(*server, {.ca_pem = authority().ca.certificate_pem,
                             .certificate_pem = foreign.certificate_pem,
                             .key_pem = foreign.key_pem})
                   .ok());
}

/// Answers "CN|O,O|expired|seconds until the end".
std::unique_ptr<Server> serve_facts(TlsServer::Expired expired,
                                    std::string certificate = authority().server.certificate_pem,
                                    std::string key = authority().server.key_pem) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = std::move(certificate),
                          .key_pem = std::move(key),
                          .client_ca_pem = authority().ca.certificate_pem,
                          .expired_clients = expired};
  return *Server::create(
      options, inline_handler([](const Request& request) {
        Response response;
        response.body = request.peer.certificate_common_name + "|";
        for (const std::string& o : request.peer.certificate_organizations)
          response.body += o + ",";
        const auto left = request.peer.certificate_not_after.time_since_epoch();
        response.body +=
            std::string("|") + (request.peer.certificate_expired ? "expired" : "") + "|" +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(left).count());
        return response;
      }));
}

TlsClient client_of(const KeyPair& pair) {
  return {.ca_pem = authority().ca.certificate_pem,
          .certificate_pem = pair.certificate_pem,
          .key_pem = pair.key_pem,
          .server_name = ""};
}

KeyPair node_certificate(const KeyPair& ca, WallTime issued, std::chrono::hours valid,
                         bool server = false) {
  return *make_certificate(ca, {.common_name = "edge0",
                                .organizations = {"system:nodes", "second"},
                                .hosts = {},
                                .valid = valid,
                                .server = server,
                                .issued = issued});
}

TEST(Tls, PeerContainsFactsOfTheVerifiedCertificate) {
  auto server = serve_facts(TlsServer::Expired::kRefuse);
  const KeyPair pair = node_certificate(authority().ca, std::chrono::system_clock::now(), 2h);
  const auto end = certificate_facts(pair.certificate_pem)->not_after.time_since_epoch();
  auto answer = get(*server, client_of(pair));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body,
            "edge0|system:nodes,second,||" +
                std::to_string(std::chrono::duration_cast<std::chrono::seconds>(end).count()));
  EXPECT_EQ(get(*server, {.ca_pem = authority().ca.certificate_pem})->body, "|||0");
}

TEST(Tls, ExpiredClientCertificateIsAcceptedAndMarkedIfAllowed) {
  const auto now = std::chrono::system_clock::now();
  const KeyPair expired = node_certificate(authority().ca, now - 48h, 24h);
  auto strict = serve_facts(TlsServer::Expired::kRefuse);
  EXPECT_FALSE(get(*strict, client_of(expired)).ok());
  auto lenient = serve_facts(TlsServer::Expired::kAccept);
  auto answer = get(*lenient, client_of(expired));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_TRUE(answer->body.starts_with("edge0|system:nodes,second,|expired|")) << answer->body;
  EXPECT_TRUE(get(*lenient, client_of(node_certificate(authority().ca, now, 1h)))
                  ->body.starts_with("edge0|system:nodes,second,||"));
}

// A gateway must accept its own nodes even if its clock was ahead when it signed, or is behind now.
TEST(Tls, NotYetValidClientCertificateIsAcceptedLikeAnExpiredOne) {
  const KeyPair early =
      node_certificate(authority().ca, std::chrono::system_clock::now() + 48h, 24h);
  auto strict = serve_facts(TlsServer::Expired::kRefuse);
  EXPECT_FALSE(get(*strict, client_of(early)).ok());
  auto lenient = serve_facts(TlsServer::Expired::kAccept);
  auto answer = get(*lenient, client_of(early));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_TRUE(answer->body.starts_with("edge0|system:nodes,second,||")) << answer->body;
}

TEST(Tls, AcceptingExpiredDatesStillChecksEverythingElse) {
  auto server = serve_facts(TlsServer::Expired::kAccept);
  const auto now = std::chrono::system_clock::now();
  const KeyPair other = *make_ca("test-ca", 24h);  // the same name, another key
  const KeyPair self = *make_ca("edge0", 24h);
  EXPECT_FALSE(get(*server, client_of(node_certificate(other, now, 24h))).ok());
  EXPECT_FALSE(get(*server, client_of(node_certificate(other, now - 48h, 24h))).ok());
  EXPECT_FALSE(get(*server, client_of(self)).ok());
  EXPECT_FALSE(get(*server, client_of(node_certificate(authority().ca, now, 24h, true)))
                   .ok());  // a server's
  EXPECT_FALSE(get(*server, client_of(node_certificate(authority().ca, now - 48h, 24h, true)))
                   .ok());  // ... and expired
  // A node's certificate is not a CA.
  const KeyPair node = node_certificate(authority().ca, now, 24h);
  KeyPair below = node_certificate(node, now, 24h);
  below.certificate_pem += node.certificate_pem;
  EXPECT_FALSE(get(*server, client_of(below)).ok());
}

TEST(Tls, DigestOfTheAuthorityCertificateEstablishesTrust) {
  auto server = serve_facts(TlsServer::Expired::kRefuse,
                            authority().server.certificate_pem + authority().ca.certificate_pem);
  const std::string pin = certificate_facts(authority().ca.certificate_pem)->sha256;
  auto answer = get(*server, {.ca_pem = "", .server_name = "", .ca_sha256 = pin});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_FALSE(get(*server, {.ca_pem = "", .server_name = "other.example", .ca_sha256 = pin}).ok());
  const std::string other = certificate_facts(make_ca("test-ca", 24h)->certificate_pem)->sha256;
  const auto wrong = get(*server, {.ca_pem = "", .server_name = "", .ca_sha256 = other});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message().find("certificate"), std::string::npos) << wrong.error();
  // An attacker in the middle cannot send the true CA with a forged certificate.
  const KeyPair false_ca = *make_ca("test-ca", 24h);
  const KeyPair middle = *make_certificate(
      false_ca, {.common_name = "server", .hosts = {"127.0.0.1"}, .server = true});
  auto between =
      serve_facts(TlsServer::Expired::kRefuse,
                  middle.certificate_pem + authority().ca.certificate_pem, middle.key_pem);
  EXPECT_FALSE(get(*between, {.ca_pem = "", .server_name = "", .ca_sha256 = pin}).ok());
  auto without = serve();  // this server has no CA to send
  EXPECT_FALSE(get(*without, {.ca_pem = "", .server_name = "", .ca_sha256 = pin}).ok());
}

TEST(Tls, NodeCertificatesCannotActAsServers) {
  const KeyPair node = node_certificate(authority().ca, std::chrono::system_clock::now(), 24h);
  auto server = serve_facts(TlsServer::Expired::kRefuse,
                            node.certificate_pem + authority().ca.certificate_pem, node.key_pem);
  const std::string pin = certificate_facts(authority().ca.certificate_pem)->sha256;
  EXPECT_FALSE(
      get(*server, {.ca_pem = "", .server_name = "", .ca_sha256 = pin, .verified_name = "edge0"})
          .ok());
  EXPECT_FALSE(
      get(*server,
          {.ca_pem = authority().ca.certificate_pem, .server_name = "", .verified_name = "edge0"})
          .ok());
}

TEST(Tls, VerifiedNameReplacesTheHostInTheCheck) {
  auto server = serve_facts(TlsServer::Expired::kRefuse);
  const std::string& ca = authority().ca.certificate_pem;
  EXPECT_TRUE(
      get(*server, {.ca_pem = ca, .server_name = "", .verified_name = "edge.example"}).ok());
  EXPECT_TRUE(
      get(*server, {.ca_pem = ca, .server_name = "far.example", .verified_name = "edge.example"})
          .ok());
  EXPECT_FALSE(
      get(*server, {.ca_pem = ca, .server_name = "", .verified_name = "far.example"}).ok());
}

TEST(Tls, CommonNameIsNotAcceptedAsVerifiedName) {
  CertificateRequest request;
  request.common_name = "edge.example";
  request.server = true;
  const KeyPair pair = *make_certificate(authority().ca, request);
  auto server = serve_facts(TlsServer::Expired::kRefuse, pair.certificate_pem, pair.key_pem);
  EXPECT_FALSE(get(*server, {.ca_pem = authority().ca.certificate_pem,
                             .server_name = "",
                             .verified_name = "edge.example"})
                   .ok());
}

TEST(Tls, ClientWithAClockInThePastReachesItsOwnServers) {
  const auto now = std::chrono::system_clock::now();
  const std::string& ca = authority().ca.certificate_pem;
  const auto reach = [&](WallTime issued, std::chrono::hours valid,
                         std::optional<WallTime> not_earlier_than) {
    const KeyPair pair = *make_certificate(authority().ca, {.common_name = "server",
                                                            .organizations = {},
                                                            .hosts = {"127.0.0.1"},
                                                            .valid = valid,
                                                            .server = true,
                                                            .issued = issued});
    auto server = serve_facts(TlsServer::Expired::kRefuse, pair.certificate_pem, pair.key_pem);
    return get(*server, {.ca_pem = ca, .server_name = "", .not_earlier_than = not_earlier_than})
        .ok();
  };
  const auto year = 24h * 365;
  // The client's clock is a year behind.
  EXPECT_FALSE(reach(now + year, 24h, std::nullopt));
  EXPECT_TRUE(reach(now + year, 24h, WallTime()));
  // A certificate that had expired at the last known time is expired, even if the clock is earlier.
  EXPECT_FALSE(reach(now, 24h, now + year));
  EXPECT_TRUE(reach(now, 24h, now + 23h));
  // A correct clock decides.
  EXPECT_FALSE(reach(now - year, 24h, WallTime()));
  // Another authority's certificate is refused at any time.
  const KeyPair other = *make_ca("test-ca", 24h);
  const KeyPair foreign = *make_certificate(other, {.common_name = "server",
                                                    .organizations = {},
                                                    .hosts = {"127.0.0.1"},
                                                    .server = true,
                                                    .issued = now + year});
  auto server = serve_facts(TlsServer::Expired::kRefuse, foreign.certificate_pem, foreign.key_pem);
  EXPECT_FALSE(
      get(*server, {.ca_pem = ca, .server_name = "", .not_earlier_than = WallTime()}).ok());
}

TEST(Tls, LargeBodiesCrossManyRecords) {
  auto server = serve();
  auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem}, "127.0.0.1",
                    std::string(5'000'000, 'x'));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "|5000000");
}

TEST(Tls, PlainTextClientIsRefused) {
  auto server = serve();
  auto answer = make_client({})->call(Context().with_timeout(60s),
                                      {.url = "http://" + server->address() + "/"});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST(Tls, InvalidCertificateOrKeyIsRefused) {
  Server::Options options;
  options.tls = TlsServer{
      .certificate_pem = "nonsense", .key_pem = authority().server.key_pem, .client_ca_pem = ""};
  const auto handler = inline_handler([](const Request&) { return Response(); });
  auto server = Server::create(options, handler);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kInvalid);
  options.tls = TlsServer{.certificate_pem = authority().server.certificate_pem,
                          .key_pem = authority().client.key_pem,
                          .client_ca_pem = ""};
  server = Server::create(options, handler);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message().find("does not belong"), std::string::npos) << server.error();
  EXPECT_FALSE(make_certificate({.certificate_pem = "x", .key_pem = "y"}, {}).ok());
}

}  // namespace tls_test
}  // namespace varda::net
