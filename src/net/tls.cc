#include "net/tls.h"

#include <arpa/inet.h>
#include <memory>
#include <openssl/asn1.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "net/internal/tls_context.h"

namespace varda::net {
namespace {

struct Free {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Error failed(const std::string& what) { return Error(Code::kInternal, what + ": " + internal::tls_error("OpenSSL failed")); }

Status add_name(X509_NAME* name, const char* field, const std::string& value) {
  if (X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value.data()),
                                 static_cast<int>(value.size()), -1, 0) != 1) {
    return Error(Code::kInvalid,
                 "certificate name " + std::string(field) + "=\"" + value + "\": " + internal::tls_error("refused"));
  }
  return {};
}

Status add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX ctx;
  X509V3_set_ctx_nodb(&ctx);
  X509V3_set_ctx(&ctx, issuer, certificate, nullptr, nullptr, 0);
  Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &ctx, nid, value));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1) return failed("certificate extension");
  return {};
}

Status add_hosts(X509* certificate, const std::vector<std::string>& hosts) {
  if (hosts.empty()) return {};
  Owned<GENERAL_NAMES> names(GENERAL_NAMES_new());
  for (const std::string& host : hosts) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    unsigned char address[16];
    int size = 0;
    if (inet_pton(AF_INET, host.c_str(), address) == 1) size = 4;
    if (size == 0 && inet_pton(AF_INET6, host.c_str(), address) == 1) size = 16;
    if (size > 0) {
      ASN1_OCTET_STRING* octets = ASN1_OCTET_STRING_new();
      ASN1_OCTET_STRING_set(octets, address, size);
      GENERAL_NAME_set0_value(name, GEN_IPADD, octets);
    } else {
      ASN1_IA5STRING* text = ASN1_IA5STRING_new();
      ASN1_STRING_set(text, host.data(), static_cast<int>(host.size()));
      GENERAL_NAME_set0_value(name, GEN_DNS, text);
    }
    sk_GENERAL_NAME_push(names.get(), name);
  }
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) != 1) return failed("subjectAltName");
  return {};
}

Result<std::string> pem_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  if (size <= 0) return failed("PEM");
  return std::string(data, static_cast<std::size_t>(size));
}

/// Version, random serial number, validity and key of a fresh certificate.
Status fill(X509* certificate, EVP_PKEY* key, std::chrono::hours valid) {
  X509_set_version(certificate, 2);
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof(serial)) != 1) return failed("random numbers");
  serial[0] &= 0x7f;  // positive
  Owned<BIGNUM> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
  // Five minutes of the past: a peer's clock may lag.
  X509_gmtime_adj(X509_getm_notBefore(certificate), -300);
  const long seconds = static_cast<long>(std::chrono::seconds(valid).count());
  X509_time_adj_ex(X509_getm_notAfter(certificate), static_cast<int>(seconds / 86400), seconds % 86400, nullptr);
  if (X509_set_pubkey(certificate, key) != 1) return failed("public key");
  return {};
}

Result<KeyPair> sign(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  if (X509_sign(certificate, signer, EVP_sha256()) == 0) return failed("signing the certificate");
  KeyPair pair;
  Owned<BIO> bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return failed("PEM");
  TRY(pair.certificate_pem, pem_of(bio.get()));
  bio.reset(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) return failed("PEM");
  TRY(pair.key_pem, pem_of(bio.get()));
  return pair;
}

}  // namespace

Result<KeyPair> make_ca(const std::string& common_name, std::chrono::hours valid) {
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  Owned<X509> certificate(X509_new());
  if (!key || !certificate) return failed("making a key");
  TRY_VOID(fill(certificate.get(), key.get(), valid));
  TRY_VOID(add_name(X509_get_subject_name(certificate.get()), "CN", common_name));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE"));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign,digitalSignature"));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash"));
  return sign(certificate.get(), key.get(), key.get());
}

Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request) {
  Owned<BIO> bio(BIO_new_mem_buf(ca.certificate_pem.data(), static_cast<int>(ca.certificate_pem.size())));
  Owned<X509> issuer(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  bio.reset(BIO_new_mem_buf(ca.key_pem.data(), static_cast<int>(ca.key_pem.size())));
  Owned<EVP_PKEY> signer(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!issuer || !signer)
    return Error(Code::kInvalid, "the CA's certificate or key is not PEM: " + internal::tls_error("unreadable"));
  if (X509_check_private_key(issuer.get(), signer.get()) != 1) {
    return Error(Code::kInvalid, "the CA's key does not belong to its certificate: " + internal::tls_error("mismatch"));
  }
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  Owned<X509> certificate(X509_new());
  if (!key || !certificate) return failed("making a key");
  TRY_VOID(fill(certificate.get(), key.get(), request.valid));
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (const std::string& organization : request.organizations) TRY_VOID(add_name(subject, "O", organization));
  TRY_VOID(add_name(subject, "CN", request.common_name));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_key_usage, "critical,digitalSignature"));
  TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_ext_key_usage, request.server ? "serverAuth" : "clientAuth"));
  TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_authority_key_identifier, "keyid"));
  TRY_VOID(add_hosts(certificate.get(), request.hosts));
  return sign(certificate.get(), key.get(), signer.get());
}

}  // namespace varda::net
