#include "hosting/certificate.h"

#include <gtest/gtest.h>

#include "api/ai/inference_model.h"
#include "codec/digest.h"
#include "net/validity.h"

namespace varda::hosting {
namespace certificate_test {

using codec::Json;
using std::chrono::hours;
using Verdict = CertificateCheck::Verdict;

const WallTime kNow = meta::parse_time("2026-05-01T12:00:00Z").value();

const net::KeyPair& authority() {
  static const net::KeyPair pair =
      net::make_ca("varda-serving-ca", net::authority_validity(kNow)).value();
  return pair;
}

WantedCertificate wanted(std::vector<std::string> hosts, const std::string& uid = "uid") {
  return wanted_certificate({&api::InferenceModel::resource(), {"shop", "digits"}, uid, "7"},
                            "digits-tls", std::move(hosts));
}

Json issued(const WantedCertificate& certificate) {
  auto secret = make_certificate_secret(certificate, std::nullopt, authority(), kNow);
  EXPECT_TRUE(secret.ok());
  return secret.ok() ? std::move(*secret) : Json();
}

Verdict verdict(const WantedCertificate& certificate, const std::optional<Json>& secret,
                WallTime now = kNow) {
  return check_certificate(certificate, secret, authority().certificate_pem, now).verdict;
}

std::string text(const Json& secret, const char* key) {
  return codec::unbase64(secret["data"][key].as_string()).value();
}

TEST(Certificate, SecretHasOwnerAndCertificateOfTheAuthority) {
  const Json secret = issued(wanted({"digits.shop.svc", "10.0.0.7", "", "10.0.0.7"}));
  EXPECT_EQ(secret["type"].as_string(), "kubernetes.io/tls");
  EXPECT_EQ(secret.at("metadata/namespace").as_string(), "shop");
  EXPECT_EQ(secret.at("metadata/ownerReferences/0/uid").as_string(), "uid");
  EXPECT_EQ(secret.at("metadata/annotations")["edgeai.io/certificate-hosts"].as_string(),
            "10.0.0.7,digits.shop.svc");
  const net::CertificateFacts facts = net::certificate_facts(text(secret, "tls.crt")).value();
  EXPECT_EQ(facts.common_name, "digits");
  EXPECT_EQ(facts.not_after, kNow + kServerCertificateValid);
  EXPECT_EQ(facts.key_sha256, net::key_sha256(text(secret, "tls.key")).value());
  EXPECT_EQ(text(secret, "ca.crt"), authority().certificate_pem);
}

TEST(Certificate, CertificateIsRenewedAfterTwoThirdsOfItsLifetime) {
  const WantedCertificate certificate = wanted({"localhost"});
  EXPECT_EQ(verdict(certificate, std::nullopt), Verdict::kIssue);
  const Json secret = issued(certificate);
  const CertificateCheck good =
      check_certificate(certificate, secret, authority().certificate_pem, kNow);
  EXPECT_EQ(good.verdict, Verdict::kGood);
  EXPECT_EQ(good.renew_at, kNow + hours(24 * 60));
  EXPECT_EQ(verdict(certificate, secret, good.renew_at - std::chrono::seconds(1)), Verdict::kGood);
  EXPECT_EQ(verdict(certificate, secret, good.renew_at + std::chrono::seconds(1)), Verdict::kIssue);
}

TEST(Certificate, ChangedHostsAuthorityOrContentCauseReissue) {
  const WantedCertificate certificate = wanted({"localhost", "10.0.0.7"});
  const Json secret = issued(certificate);
  EXPECT_EQ(verdict(wanted({"10.0.0.7", "localhost"}), secret), Verdict::kGood)
      << "the order says nothing";
  EXPECT_EQ(verdict(wanted({"localhost", "10.0.0.8"}), secret), Verdict::kIssue);
  const net::KeyPair other =
      net::make_ca("varda-serving-ca", net::authority_validity(kNow)).value();
  EXPECT_EQ(check_certificate(certificate, secret, other.certificate_pem, kNow).verdict,
            Verdict::kIssue);
  for (const char* key : {"tls.crt", "tls.key", "ca.crt"}) {
    Json changed = secret;
    changed.make("data").set(key, codec::base64("nothing"));
    EXPECT_EQ(verdict(certificate, changed), Verdict::kIssue) << key;
  }
}

TEST(Certificate, ForeignAndLeftOverSecretsAreRecognized) {
  const Json secret = issued(wanted({"localhost"}));
  EXPECT_EQ(verdict(wanted({"localhost"}, "next"), secret), Verdict::kLeftOver);
  Json foreign = secret;
  foreign.make("metadata").erase("ownerReferences");
  EXPECT_EQ(verdict(wanted({"localhost"}), foreign), Verdict::kForeign);
}

TEST(Certificate, RenewalKeepsLabelsOfOtherWriters) {
  Json before = issued(wanted({"localhost"}));
  before.make("metadata/labels").set("team", "a");
  before.make("metadata").set("resourceVersion", "9");
  const Json after =
      make_certificate_secret(wanted({"127.0.0.1"}), before, authority(), kNow).value();
  EXPECT_EQ(after.at("metadata/labels/team").as_string(), "a");
  EXPECT_EQ(after.at("metadata/resourceVersion").as_string(), "9");
  EXPECT_NE(after["data"]["tls.key"], before["data"]["tls.key"]);
}

}  // namespace certificate_test
}  // namespace varda::hosting
