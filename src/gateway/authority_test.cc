#include "gateway/authority.h"

#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "codec/digest.h"
#include "gateway/join_token.h"
#include "net/validity.h"

namespace varda::gateway {
namespace {

using namespace std::chrono_literals;
using codec::Json;

class AuthorityTest : public ::testing::Test {
 protected:
  static WallTime now() { return std::chrono::system_clock::now(); }
  const Context ctx_ = Context().with_timeout(300s);
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
};

TEST_F(AuthorityTest, FirstGatewayCreatesCaAndLaterGatewaysUseIt) {
  const auto first = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(first.ok()) << first.error();
  const auto second = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(first->ca_pem(), second->ca_pem());
  EXPECT_EQ(first->ca_sha256(), net::certificate_facts(first->ca_pem())->sha256);
  const Json secret = *client_.get(ctx_, secrets(), {"varda-system", "varda-gateway-ca"});
  EXPECT_EQ(secret["type"].as_string(), "kubernetes.io/tls");
}

TEST_F(AuthorityTest, ConcurrentGatewaysUseTheSameCa) {
  std::vector<std::string> seen(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& pem : seen) {
      threads.emplace_back([this, &pem] {
        auto authority = Authority::open(ctx_, client_, now());
        if (authority.ok() && authority->publish(ctx_, client_, now()).ok())
          pem = authority->ca_pem();
      });
    }
  }
  ASSERT_FALSE(seen[0].empty());
  for (const std::string& pem : seen) EXPECT_EQ(pem, seen[0]);
  EXPECT_EQ(*published_ca(ctx_, client_), seen[0]);
}

TEST_F(AuthorityTest, BrokenSecretIsNamedInErrorAndKept) {
  ASSERT_TRUE(make_system_namespace(ctx_, client_).ok());
  Json secret = Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Secret"},
       {"metadata", Json::object({{"name", "varda-gateway-ca"}, {"namespace", "varda-system"}})}});
  const net::KeyPair a = *net::make_ca("a", 24h), b = *net::make_ca("b", 24h);
  secret.make("data/tls.crt") = codec::base64(a.certificate_pem);
  secret.make("data/tls.key") = codec::base64(b.key_pem);
  const auto created = client_.create(ctx_, secrets(), secret);
  ASSERT_TRUE(created.ok()) << created.error();
  const auto opened = Authority::open(ctx_, client_, now());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), Code::kInvalid);
  EXPECT_NE(opened.error().message().find("varda-system/varda-gateway-ca"), std::string::npos)
      << opened.error();
  EXPECT_EQ(client_.get(ctx_, secrets(), {"varda-system", "varda-gateway-ca"})
                .value()
                .at("metadata/resourceVersion"),
            created->at("metadata/resourceVersion"));
  EXPECT_FALSE(Authority::of({}).ok());
}

TEST_F(AuthorityTest, RepeatedPublishWritesNothing) {
  EXPECT_EQ(published_ca(ctx_, client_).error().code(), Code::kNotFound);
  const auto first = Authority::of(*net::make_ca("a", 24h));
  ASSERT_TRUE(first->publish(ctx_, client_, now()).ok());
  const auto version = [&] {
    return client_.get(ctx_, config_maps(), {"varda-system", "varda-gateway"})
        .value()
        .at("metadata/resourceVersion");
  };
  const Json before = version();
  ASSERT_TRUE(first->publish(ctx_, client_, now()).ok());
  EXPECT_EQ(version(), before);
}

TEST_F(AuthorityTest, PublishedCaIsReplacedOnlyOnPurpose) {
  const net::KeyPair same = *net::make_ca("a", 24h);
  const auto ups = Authority::of(same), other = Authority::of(*net::make_ca("b", 24h));
  ASSERT_TRUE(ups->publish(ctx_, client_, now()).ok());
  const Status refused = other->publish(ctx_, client_, now());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kConflict);
  for (const char* fragment :
       {"ConfigMap varda-system/varda-gateway", "--ca-cert", "delete the ConfigMap"}) {
    EXPECT_NE(refused.error().message().find(fragment), std::string::npos) << refused.error();
  }
  EXPECT_EQ(*published_ca(ctx_, client_), ups->ca_pem());
  // Authority::open() fails before it makes a Secret.
  EXPECT_EQ(Authority::open(ctx_, client_, now()).error().code(), Code::kConflict);
  EXPECT_FALSE(*client_.find(ctx_, secrets(), {"varda-system", "varda-gateway-ca"}));
  // With the same CA a second gateway may run.
  EXPECT_TRUE(Authority::of(same)->publish(ctx_, client_, now()).ok());
  ASSERT_TRUE(other->publish(ctx_, client_, now(), Authority::Other::kIsReplaced).ok());
  EXPECT_EQ(*published_ca(ctx_, client_), other->ca_pem());
  // A CA that has ended may be replaced: no node relies on it.
  EXPECT_TRUE(ups->publish(ctx_, client_, now() + 25h).ok());
  EXPECT_EQ(*published_ca(ctx_, client_), ups->ca_pem());
}

TEST_F(AuthorityTest, LostCaIsRestoredOrReplacedAfterDeletingConfigMap) {
  const auto first = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(first->publish(ctx_, client_, now()).ok());
  const meta::ObjectKey key{"varda-system", "varda-gateway-ca"};
  const Json stored = *client_.get(ctx_, secrets(), key);
  ASSERT_TRUE(client_.remove(ctx_, secrets(), key).ok());
  const auto lost = Authority::open(ctx_, client_, now());
  ASSERT_FALSE(lost.ok());
  EXPECT_NE(lost.error().message().find("Secret varda-system/varda-gateway-ca"), std::string::npos)
      << lost.error();
  Json again = stored;
  again.set("metadata", Json::object({{"name", key.name}, {"namespace", key.ns}}));
  ASSERT_TRUE(client_.create(ctx_, secrets(), again).ok());
  const auto back = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_TRUE(back->publish(ctx_, client_, now()).ok());
  ASSERT_TRUE(client_.remove(ctx_, secrets(), key).ok());
  ASSERT_TRUE(client_.remove(ctx_, config_maps(), {"varda-system", "varda-gateway"}).ok());
  const auto reopened = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(reopened.ok()) << reopened.error();
  EXPECT_TRUE(reopened->publish(ctx_, client_, now()).ok());
  EXPECT_NE(reopened->ca_pem(), first->ca_pem());
}

TEST_F(AuthorityTest, FirstStartWithWrongClockKeepsTheCa) {
  for (const WallTime wrong : {WallTime(10s), now() + 24h, now() + 24h * 365 * 100}) {
    apiserver::InMemoryApiServer api;
    kube::Client client(api.transport(), {});
    const auto first = Authority::open(ctx_, client, wrong);
    ASSERT_TRUE(first.ok()) << first.error();
    const auto second = Authority::open(ctx_, client, now());
    EXPECT_EQ(second->ca_pem(), first->ca_pem());
    const auto server = net::certificate_facts(second->server({})->certificate_pem);
    EXPECT_FALSE(net::must_be_renewed(*server, 24h, now()));
    EXPECT_FALSE(net::must_be_renewed(*server, 24h, wrong));
  }
}

TEST_F(AuthorityTest, InvalidCaGetsNewDatesAndKeepsItsKey) {
  ASSERT_TRUE(make_system_namespace(ctx_, client_).ok());
  const meta::ObjectKey key{"varda-system", "varda-gateway-ca"};
  for (const net::Validity& dates :
       {net::Validity{now() - 48h, now() - 24h}, net::Validity{now() + 24h, now() + 24h * 3650},
        net::Validity{now() - 24h * 3000, now() + 24h * 650}}) {
    const net::KeyPair made = *net::make_ca("varda-gateway-ca", dates);
    ASSERT_TRUE(
        Authority::of(made)->publish(ctx_, client_, now(), Authority::Other::kIsReplaced).ok());
    Json secret =
        Json::object({{"apiVersion", "v1"},
                      {"kind", "Secret"},
                      {"metadata", Json::object({{"name", key.name}, {"namespace", key.ns}})}});
    secret.make("data/tls.crt") = codec::base64(made.certificate_pem);
    secret.make("data/tls.key") = codec::base64(made.key_pem);
    ASSERT_TRUE(client_.create(ctx_, secrets(), secret).ok());
    const auto opened = Authority::open(ctx_, client_, now());
    ASSERT_TRUE(opened.ok()) << opened.error();
    const auto facts = net::certificate_facts(opened->ca_pem());
    EXPECT_FALSE(net::must_be_renewed(*facts, 24h * 365 * 20, now()));
    EXPECT_EQ(facts->key_sha256, net::certificate_facts(made.certificate_pem)->key_sha256);
    EXPECT_EQ(Authority::open(ctx_, client_, now())->ca_pem(), opened->ca_pem()) << "once";
    const Status published = opened->publish(ctx_, client_, now());
    EXPECT_TRUE(published.ok()) << "it is no other authority: " << published.error();
    EXPECT_EQ(*published_ca(ctx_, client_), opened->ca_pem());
    ASSERT_TRUE(client_.remove(ctx_, secrets(), key).ok());
  }
}

TEST_F(AuthorityTest, InvalidPublishedCaIsReplaced) {
  ASSERT_TRUE(make_system_namespace(ctx_, client_).ok());
  ASSERT_TRUE(client_
                  .create(ctx_, config_maps(),
                          Json::object({{"apiVersion", "v1"},
                                        {"kind", "ConfigMap"},
                                        {"metadata", Json::object({{"name", "varda-gateway"},
                                                                   {"namespace", "varda-system"}})},
                                        {"data", Json::object({{"ca.crt", "nonsense"}})}}))
                  .ok());
  const auto authority = Authority::open(ctx_, client_, now());
  ASSERT_TRUE(authority.ok()) << authority.error();
  EXPECT_TRUE(authority->publish(ctx_, client_, now()).ok());
  EXPECT_EQ(*published_ca(ctx_, client_), authority->ca_pem());
}

TEST_F(AuthorityTest, CertificatesExpireNoLaterThanTheCa) {
  const auto authority = Authority::of(*net::make_ca("short", 48h));
  const std::string csr = *net::make_csr(*net::make_key(), "anything");
  const WallTime now = std::chrono::system_clock::now();
  const auto node = net::certificate_facts(*authority->issue("line7", Layer::kEdge, csr, now));
  EXPECT_EQ(node->common_name, "line7");
  EXPECT_EQ(node->organizations, std::vector<std::string>{"system:nodes"});
  EXPECT_LE(node->not_after, now + 48h);
  const auto server =
      net::certificate_facts(authority->server({"cloud.example", "10.0.0.1", ""})->certificate_pem);
  EXPECT_LE(server->not_after, now + 48h);
  const auto longer = Authority::of(*net::make_ca("long", 24h * 3650));
  const auto usual = net::certificate_facts(*longer->issue("line7", Layer::kEdge, csr, now));
  EXPECT_NEAR(static_cast<double>(
                  std::chrono::duration_cast<std::chrono::hours>(usual->not_after - now).count()),
              24.0 * 90, 1.0);
}

}  // namespace
}  // namespace varda::gateway
