#include "gateway/authority.h"

#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "codec/digest.h"
#include "gateway/join_token.h"
#include "net/certificates.h"

namespace varda::gateway {
namespace {

using namespace std::chrono_literals;
using codec::Json;

class AuthorityTest : public testing::Test {
 protected:
  const Context ctx_ = Context().with_timeout(300s);
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
};

TEST_F(AuthorityTest, FirstGatewayMakesItAndLaterOnesTakeIt) {
  const auto first = Authority::open(ctx_, client_);
  ASSERT_TRUE(first.ok()) << first.error();
  const auto second = Authority::open(ctx_, client_);
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(first->ca_pem(), second->ca_pem());
  EXPECT_EQ(first->ca_sha256(), net::certificate_facts(first->ca_pem())->sha256);
  const Json secret = *client_.get(ctx_, secrets(), {"varda-system", "varda-gateway-ca"});
  EXPECT_EQ(secret["type"].as_string(), "kubernetes.io/tls");
}

TEST_F(AuthorityTest, GatewaysThatBeginAtOnceAgree) {
  std::vector<std::string> seen(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& pem : seen) {
      threads.emplace_back([this, &pem] {
        auto authority = Authority::open(ctx_, client_);
        if (authority.ok() && authority->publish(ctx_, client_).ok()) pem = authority->ca_pem();
      });
    }
  }
  ASSERT_FALSE(seen[0].empty());
  for (const std::string& pem : seen) EXPECT_EQ(pem, seen[0]);
  EXPECT_EQ(*published_ca(ctx_, client_), seen[0]);
}

TEST_F(AuthorityTest, BrokenSecretIsNamedAndLeftAlone) {
  ASSERT_TRUE(make_system_namespace(ctx_, client_).ok());
  Json secret = Json::object({{"apiVersion", "v1"},
                              {"kind", "Secret"},
                              {"metadata", Json::object({{"name", "varda-gateway-ca"}, {"namespace", "varda-system"}})}});
  const net::KeyPair a = *net::make_ca("a", 24h), b = *net::make_ca("b", 24h);
  secret.make("data/tls.crt") = codec::base64(a.certificate_pem);
  secret.make("data/tls.key") = codec::base64(b.key_pem);
  ASSERT_TRUE(client_.create(ctx_, secrets(), secret).ok());
  const auto opened = Authority::open(ctx_, client_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), Code::kInvalid);
  EXPECT_NE(opened.error().message().find("varda-system/varda-gateway-ca"), std::string::npos) << opened.error();
  EXPECT_FALSE(Authority::of({}).ok());
}

TEST_F(AuthorityTest, PublishWritesOnlyWhatDiffers) {
  EXPECT_EQ(published_ca(ctx_, client_).error().code(), Code::kNotFound);
  const auto first = Authority::of(*net::make_ca("a", 24h));
  ASSERT_TRUE(first->publish(ctx_, client_).ok());
  const auto version = [&] {
    return client_.get(ctx_, config_maps(), {"varda-system", "varda-gateway"}).value().at("metadata/resourceVersion");
  };
  const Json before = version();
  ASSERT_TRUE(first->publish(ctx_, client_).ok());
  EXPECT_EQ(version(), before);
  const auto second = Authority::of(*net::make_ca("b", 24h));
  ASSERT_TRUE(second->publish(ctx_, client_).ok());
  EXPECT_EQ(*published_ca(ctx_, client_), second->ca_pem());
}

TEST_F(AuthorityTest, CertificatesEndWithTheCaAtTheLatest) {
  const auto authority = Authority::of(*net::make_ca("short", 48h));
  const std::string csr = *net::make_csr(*net::make_key(), "anything");
  const WallTime now = std::chrono::system_clock::now();
  const auto node = net::certificate_facts(*authority->issue("line7", csr, now));
  EXPECT_EQ(node->common_name, "line7");
  EXPECT_EQ(node->organizations, std::vector<std::string>{"system:nodes"});
  EXPECT_LE(node->not_after, now + 48h);
  const auto server = net::certificate_facts(authority->server({"cloud.example", "10.0.0.1", ""}, now)->certificate_pem);
  EXPECT_LE(server->not_after, now + 48h);
  const auto longer = Authority::of(*net::make_ca("long", 24h * 3650));
  const auto usual = net::certificate_facts(*longer->issue("line7", csr, now));
  EXPECT_NEAR(static_cast<double>(std::chrono::duration_cast<std::chrono::hours>(usual->not_after - now).count()), 24.0 * 90, 1.0);
}

}  // namespace
}  // namespace varda::gateway
