#include "net/tls.h"

#include <gtest/gtest.h>

#include "net/client.h"
#include "net/server.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;

struct Authority {
  KeyPair ca = *make_ca("test-ca", 24h);
  KeyPair server =
      *make_certificate(ca, {.common_name = "server", .hosts = {"127.0.0.1", "localhost", "edge.example"}, .server = true});
  KeyPair client = *make_certificate(ca, {.common_name = "edge0", .organizations = {"system:nodes"}});
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
                           response.body = request.peer.certificate_common_name + "|" + std::to_string(request.body.size());
                           return response;
                         }));
}

Result<HttpClient::Answer> get(const Server& server, TlsClient tls, const std::string& host = "127.0.0.1", std::string body = "") {
  auto client = make_client({.tls = std::move(tls)});
  return client->call(
      Context().with_timeout(10s),
      {.method = "PUT", .url = "https://" + host + ":" + std::to_string(server.port()) + "/", .body = std::move(body)});
}

TEST(Tls, VerifiedServerAnswersByAddressAndByName) {
  auto server = serve();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem}, host);
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, "|0");
  }
}

TEST(Tls, ServerNameOverridesTheHost) {
  auto server = serve();
  EXPECT_TRUE(get(*server, {.ca_pem = authority().ca.certificate_pem, .server_name = "edge.example"}).ok());
  const auto wrong = get(*server, {.ca_pem = authority().ca.certificate_pem, .server_name = "other.example"});
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
  const KeyPair stranger = *make_certificate(other, {.common_name = "edge0"});
  EXPECT_FALSE(
      get(*server,
          {.ca_pem = authority().ca.certificate_pem, .certificate_pem = stranger.certificate_pem, .key_pem = stranger.key_pem})
          .ok());
}

TEST(Tls, LargeBodiesCrossManyRecords) {
  auto server = serve();
  auto answer = get(*server, {.ca_pem = authority().ca.certificate_pem}, "127.0.0.1", std::string(5'000'000, 'x'));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "|5000000");
}

TEST(Tls, PlainTextClientIsTurnedAway) {
  auto server = serve();
  auto answer = make_client({})->call(Context().with_timeout(10s), {.url = "http://" + server->address() + "/"});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST(Tls, BadPemIsNamed) {
  Server::Options options;
  options.tls = TlsServer{.certificate_pem = "nonsense", .key_pem = authority().server.key_pem, .client_ca_pem = ""};
  const auto handler = inline_handler([](const Request&) { return Response(); });
  auto server = Server::create(options, handler);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kInvalid);
  options.tls =
      TlsServer{.certificate_pem = authority().server.certificate_pem, .key_pem = authority().client.key_pem, .client_ca_pem = ""};
  server = Server::create(options, handler);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message().find("does not belong"), std::string::npos) << server.error();
  EXPECT_FALSE(make_certificate({.certificate_pem = "x", .key_pem = "y"}, {}).ok());
}

}  // namespace
}  // namespace varda::net
