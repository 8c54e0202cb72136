#include "net/certificates.h"

#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sstream>

#include "net/validity.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;

const KeyPair& ca() {
  static const KeyPair made = *make_ca("test-ca", 24h);
  return made;
}

std::string csr_file(const std::string& name) {
  std::ifstream in(std::string(VARDA_TESTDATA) + "/csr/" + name + ".pem");
  EXPECT_TRUE(in.good()) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

CertificateRequest for_node(const std::string& name) {
  return {.common_name = name, .organizations = {"system:nodes"}, .hosts = {}, .valid = 24h};
}

TEST(Certificates, SignedRequestGivesACertificateOfItsKey) {
  const std::string key = *make_key();
  const auto signed_pem = sign_csr(ca(), *make_csr(key, "line7"), for_node("line7"));
  ASSERT_TRUE(signed_pem.ok()) << signed_pem.error();
  const auto facts = certificate_facts(*signed_pem);
  ASSERT_TRUE(facts.ok()) << facts.error();
  EXPECT_EQ(facts->common_name, "line7");
  EXPECT_EQ(facts->organizations, std::vector<std::string>{"system:nodes"});
  EXPECT_EQ(facts->key_sha256, *key_sha256(key));
  EXPECT_EQ(facts->key_sha256, *csr_key_sha256(*make_csr(key, "line7")));
  EXPECT_EQ(facts->key_sha256.size(), 64u);
  EXPECT_NE(facts->key_sha256, *key_sha256(*make_key()));
  EXPECT_NE(facts->sha256, certificate_facts(ca().certificate_pem)->sha256);
}

TEST(Certificates, HostsMayBeWrittenAsInUrls) {
  CertificateRequest request{.common_name = "server",
                             .hosts = {"[2001:db8::1]", "2001:db8::2", "192.0.2.1", "edge"},
                             .server = true};
  const std::string pem = make_certificate(ca(), request)->certificate_pem;
  const std::unique_ptr<BIO, decltype(&BIO_free)> bytes(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> made(
      PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free);
  for (const char* address : {"2001:db8::1", "2001:db8::2", "192.0.2.1"})
    EXPECT_EQ(X509_check_ip_asc(made.get(), address, 0), 1) << address;
  EXPECT_EQ(X509_check_host(made.get(), "edge", 0, 0, nullptr), 1);
}

TEST(Certificates, ValidityStartsAtTheGivenTime) {
  auto request = for_node("line7");
  const WallTime issued =
      std::chrono::system_clock::from_time_t(4'000'000'000);  // 2096: beyond the range of UTCTime
  request.issued = issued;
  request.valid = 24h * 90;
  const auto facts = certificate_facts(make_certificate(ca(), request)->certificate_pem);
  EXPECT_EQ(facts->not_before, issued - 5min);
  EXPECT_EQ(facts->not_after, issued + 24h * 90);
  request.issued = std::chrono::system_clock::from_time_t(3600);
  EXPECT_EQ(certificate_facts(make_certificate(ca(), request)->certificate_pem)->not_before,
            std::chrono::system_clock::from_time_t(3300));
}

TEST(Certificates, ValidityDatesMayReachFromTheEpochTo2099) {
  const Validity wanted{.not_before = kClocksBegin,
                        .not_after = std::chrono::sys_days(std::chrono::year(2099) / 12 / 31)};
  const KeyPair own = *make_ca("own", wanted);
  const auto request = for_node("line7");
  for (const std::string& pem :
       {own.certificate_pem, make_certificate(own, request, wanted)->certificate_pem}) {
    const auto facts = certificate_facts(pem);
    ASSERT_TRUE(facts.ok()) << facts.error();
    EXPECT_EQ(facts->not_before, wanted.not_before);
    EXPECT_EQ(facts->not_after, wanted.not_after);
  }
}

TEST(Certificates, RenewedAuthorityKeepsItsKeyAndName) {
  const Validity wanted{.not_before = kClocksBegin,
                        .not_after = std::chrono::sys_days(std::chrono::year(2099) / 12 / 31)};
  const auto renewed = renew_ca(ca(), wanted);
  ASSERT_TRUE(renewed.ok()) << renewed.error();
  const auto before = certificate_facts(ca().certificate_pem),
             after = certificate_facts(renewed->certificate_pem);
  EXPECT_EQ(after->common_name, before->common_name);
  EXPECT_EQ(after->key_sha256, before->key_sha256);
  EXPECT_EQ(after->not_after, wanted.not_after);
  EXPECT_NE(after->sha256, before->sha256);
  EXPECT_EQ(renewed->key_pem, ca().key_pem);
  EXPECT_TRUE(make_certificate(*renewed, for_node("line7")).ok());
  EXPECT_EQ(renew_ca({.certificate_pem = ca().certificate_pem, .key_pem = *make_key()}, wanted)
                .error()
                .code(),
            Code::kInvalid);
}

TEST(Certificates, AuthorityIsValidForAnyClockAtItsFirstStart) {
  const auto at = [](int year) {
    return WallTime(std::chrono::sys_days(std::chrono::year(year) / 6 / 1));
  };
  for (const int first : {1970, 2026, 2027, 2079, 2090, 2120, 2261}) {
    const Validity valid = authority_validity(at(first));
    EXPECT_EQ(valid.not_before, kClocksBegin);
    EXPECT_GE(valid.not_after, at(2099)) << first;
    EXPECT_GT(valid.not_after, at(first)) << first;
  }
  EXPECT_GE(authority_validity(at(2090)).not_after, at(2110));
}

TEST(Certificates, ValidityNeverStartsBeforeTheBuildDate) {
  const WallTime written = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);
  EXPECT_EQ(validity_for(24h, WallTime()).not_after, written + 24h);
  EXPECT_EQ(validity_for(24h, written + 48h).not_after, written + 72h);
  EXPECT_EQ(validity_for(24h, WallTime::max()).not_after, WallTime::max());
}

TEST(Certificates, CertificateIsRenewedNearItsEndAndBeforeItsStart) {
  CertificateFacts facts;
  facts.not_before = WallTime(100h);
  facts.not_after = WallTime(200h);
  EXPECT_TRUE(must_be_renewed(facts, 30h, WallTime(99h)));
  EXPECT_FALSE(must_be_renewed(facts, 30h, WallTime(100h)));
  EXPECT_FALSE(must_be_renewed(facts, 30h, WallTime(169h)));
  EXPECT_TRUE(must_be_renewed(facts, 30h, WallTime(170h)));
  EXPECT_TRUE(must_be_renewed(facts, 30h, WallTime(300h)));
}

// The year 9999 means "no end" (RFC 5280, 4.1.2.5); the clock ends in 2262.
TEST(Certificates, ValidityBeyondTheClockRangeIsClamped) {
  auto request = for_node("line7");
  request.valid = 24h * 365 * 7900;
  const auto facts = certificate_facts(make_certificate(ca(), request)->certificate_pem);
  ASSERT_TRUE(facts.ok()) << facts.error();
  EXPECT_GT(facts->not_after, std::chrono::sys_days(std::chrono::year(2262) / 1 / 1));
  EXPECT_GT(facts->not_after - facts->not_before, 24h * 365 * 200);
}

TEST(Certificates, RequestedNamesAndExtensionsAreIgnored) {
  // The request asks for the administrators' group, for CA rights, and for the gateway's name.
  const auto signed_pem = sign_csr(ca(), csr_file("asks-for-everything"), for_node("line7"));
  ASSERT_TRUE(signed_pem.ok()) << signed_pem.error();
  const auto facts = certificate_facts(*signed_pem);
  EXPECT_EQ(facts->common_name, "line7");
  EXPECT_EQ(facts->organizations, std::vector<std::string>{"system:nodes"});
  const auto plain = certificate_facts(make_certificate(ca(), for_node("line7"))->certificate_pem);
  EXPECT_EQ(plain->organizations, facts->organizations);
  // As long as a certificate for a plain request, up to the variable sizes of signature and serial
  // number.
  const auto modest = sign_csr(ca(), *make_csr(*make_key(), "line7"), for_node("line7"));
  EXPECT_NEAR(static_cast<double>(signed_pem->size()), static_cast<double>(modest->size()), 24.0);
}

TEST(Certificates, InvalidRequestsAreNotSigned) {
  const struct {
    const char* file;
    const char* refused_because;  // "": it is signed
  } cases[] = {
      {"ec-prime256v1", ""},
      {"ec-secp384r1", ""},
      {"ec-secp521r1", ""},
      {"ed25519", ""},
      {"rsa-2048", ""},
      {"asks-for-everything", ""},
      {"ec-secp256k1", "not signed here"},
      {"ec-secp224r1", "not signed here"},
      {"rsa-1024", "not signed here"},
      {"rsa-8192", "not signed here"},
      {"signature-altered", "not signed by its own key"},
      {"subject-altered", "not signed by its own key"},
      {"truncated", "not a PKCS#10"},
      {"encrypted", "not a PKCS#10"},  // and no password prompt appears
      {"no-key", "not a PKCS#10"},
      {"a-certificate", "not a PKCS#10"},
  };
  for (const auto& c : cases) {
    const auto result = sign_csr(ca(), csr_file(c.file), for_node("line7"));
    const auto key = csr_key_sha256(csr_file(c.file));
    EXPECT_EQ(result.ok(), *c.refused_because == '\0') << c.file;
    EXPECT_EQ(key.ok(), result.ok()) << c.file;
    if (result.ok()) {
      EXPECT_EQ(certificate_facts(*result)->key_sha256, *key) << c.file;
    } else {
      EXPECT_EQ(result.error().code(), Code::kInvalid) << c.file;
      EXPECT_NE(result.error().message().find(c.refused_because), std::string::npos)
          << c.file << ": " << result.error();
    }
  }
}

TEST(Certificates, OversizedRequestIsRefusedUnread) {
  std::string text = csr_file("ec-prime256v1");
  text.append(20'000, '\n');
  const auto result = csr_key_sha256(text);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("longer than 16384"), std::string::npos)
      << result.error();
}

TEST(Certificates, GarbageIsRefused) {
  for (const std::string text :
       {"", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}) {
    EXPECT_EQ(certificate_facts(text).error().code(), Code::kInvalid);
    EXPECT_EQ(key_sha256(text).error().code(), Code::kInvalid);
    EXPECT_EQ(make_csr(text, "x").error().code(), Code::kInvalid);
    EXPECT_EQ(csr_key_sha256(text).error().code(), Code::kInvalid);
  }
  EXPECT_FALSE(make_certificate({.certificate_pem = "x", .key_pem = "y"}, {}).ok());
  EXPECT_FALSE(
      make_certificate({.certificate_pem = ca().certificate_pem, .key_pem = *make_key()}, {}).ok());
  EXPECT_FALSE(sign_csr(ca(), csr_file("ec-prime256v1"), for_node(std::string(65, 'n')))
                   .ok());  // X.520: a CN is at most 64 long
}

}  // namespace
}  // namespace varda::net
