#include "hosting/certificate_issuer.h"

#include <gtest/gtest.h>

#include "api/ai/inference_model.h"
#include "apiserver/testing/in_memory.h"
#include "codec/digest.h"

namespace varda::hosting {
namespace issuer_test {

using codec::Json;
using std::chrono::hours;

class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override { return wall_; }
  void advance(Duration by) {
    now_ += by;
    wall_ += std::chrono::duration_cast<WallTime::duration>(by);
  }

 private:
  SteadyTime now_{};
  WallTime wall_ = meta::parse_time("2026-05-01T12:00:00Z").value();
};

class Issuer : public ::testing::Test {
 protected:
  std::unique_ptr<CertificateIssuer> make() {
    return CertificateIssuer::create(client_, {.clock = &clock_});
  }
  static WantedCertificate wanted(const std::string& host = "localhost") {
    return wanted_certificate({&api::InferenceModel::resource(), {"default", "digits"}, "uid", "1"},
                              "digits-tls", {host});
  }
  std::string ensure(CertificateIssuer& issuer, const std::string& host = "localhost") {
    auto outcome = issuer.ensure(Context::background(), wanted(host));
    if (!outcome.ok()) return outcome.error().message();
    recheck_in_ = outcome->recheck_in;
    return outcome->problem ? outcome->problem->reason : "";
  }
  Json secret(const std::string& key) {
    return api_
        .get("/api/v1/namespaces/" + key.substr(0, key.find('/')) + "/secrets/" +
             key.substr(key.find('/') + 1))
        .body;
  }

  apiserver::InMemoryApiServer api_{apiserver::InMemoryApiServer::Options{}};
  kube::Client client_{api_.transport(), {}};
  HandClock clock_;
  Duration recheck_in_{};
};

TEST_F(Issuer, AuthorityIsCreatedOnceForAllOperators) {
  const auto issuer = make();
  EXPECT_EQ(ensure(*issuer), "");
  const Json first = secret("default/digits-tls");
  const Json authority = secret("varda-system/varda-serving-ca");
  EXPECT_EQ(first["data"]["ca.crt"], authority["data"]["tls.crt"]);
  EXPECT_EQ(first["data"].size(), 3u) << "not the authority's key";
  EXPECT_EQ(ensure(*make()), "");
  EXPECT_EQ(secret("default/digits-tls"), first);
  EXPECT_EQ(secret("varda-system/varda-serving-ca"), authority);
  EXPECT_LE(recheck_in_, std::chrono::minutes(10));
}

TEST_F(Issuer, CertificateIsRenewedInTimeAndForNewNames) {
  const auto issuer = make();
  EXPECT_EQ(ensure(*issuer), "");
  const Json first = secret("default/digits-tls");
  clock_.advance(hours(24 * 59));
  EXPECT_EQ(ensure(*issuer), "");
  EXPECT_EQ(secret("default/digits-tls"), first);
  clock_.advance(hours(25));
  EXPECT_EQ(ensure(*issuer), "");
  const Json second = secret("default/digits-tls");
  EXPECT_NE(second["data"]["tls.crt"], first["data"]["tls.crt"]);
  EXPECT_EQ(second["data"]["ca.crt"], first["data"]["ca.crt"]);
  EXPECT_EQ(ensure(*issuer, "10.0.0.7"), "");
  EXPECT_NE(secret("default/digits-tls")["data"]["tls.crt"], second["data"]["tls.crt"]);
}

TEST_F(Issuer, DeletedSecretIsRecreated) {
  const auto issuer = make();
  EXPECT_EQ(ensure(*issuer), "");
  static const meta::Resource kSecrets{"", "v1", "Secret", "secrets", true};
  ASSERT_TRUE(client_.remove(Context::background(), kSecrets, {"default", "digits-tls"}).ok());
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(ensure(*issuer), "");
  EXPECT_FALSE(secret("default/digits-tls")["data"].empty());
}

TEST_F(Issuer, UserSecretIsNeverChanged) {
  const Json own =
      Json::object({{"apiVersion", "v1"},
                    {"kind", "Secret"},
                    {"metadata", Json::object({{"name", "digits-tls"}, {"namespace", "default"}})},
                    {"data", Json::object({{"tls.crt", "eA=="}})}});
  ASSERT_EQ(api_.post("/api/v1/namespaces/default/secrets", own).status, 201);
  const Json before = secret("default/digits-tls");
  EXPECT_EQ(ensure(*make()), "CertificateNameInUse");
  EXPECT_EQ(secret("default/digits-tls"), before);
}

TEST(IssuerWithoutRights, ErrorNamesForbiddenSecret) {
  const auto http = net::loopback(net::inline_handler([](const net::Request&) {
    return net::Response{
        403,
        {},
        R"({"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403})",
        nullptr};
  }));
  const kube::Client client(*http, {});
  const auto issuer = CertificateIssuer::create(client, {});
  const auto outcome = issuer->ensure(
      Context::background(),
      wanted_certificate({&api::InferenceModel::resource(), {"shop", "digits"}, "uid", "1"},
                         "digits-tls", {"localhost"}));
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->problem);
  EXPECT_EQ(outcome->problem->reason, "CertificateForbidden");
  EXPECT_NE(outcome->problem->message.find("varda-system/varda-serving-ca"), std::string::npos)
      << outcome->problem->message;
}

}  // namespace issuer_test
}  // namespace varda::hosting
