#include "net/certificates.h"

#include <algorithm>
#include <arpa/inet.h>
#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/rand.h>

#include "net/internal/tls_context.h"
#include "net/internal/x509.h"
#include "net/validity.h"

namespace varda::net {
namespace {

using internal::Owned;

constexpr std::size_t kCsrBytesMax = 16 << 10;

Error failed(const std::string& what) { return internal::openssl_failed(what); }

Status add_name(X509_NAME* name, const char* field, const std::string& value) {
  if (X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(value.data()),
                                 static_cast<int>(value.size()), -1, 0) != 1) {
    return Error(Code::kInvalid, "certificate name " + std::string(field) + "=\"" + value +
                                     "\": " + internal::tls_error("refused"));
  }
  return {};
}

Status add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX ctx;
  X509V3_set_ctx_nodb(&ctx);
  X509V3_set_ctx(&ctx, issuer, certificate, nullptr, nullptr, 0);
  Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &ctx, nid, value));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1)
    return failed("certificate extension");
  return {};
}

Status add_hosts(X509* certificate, const std::vector<std::string>& hosts) {
  if (hosts.empty()) return {};
  Owned<GENERAL_NAMES> names(GENERAL_NAMES_new());
  for (const std::string& entry : hosts) {
    // A host of a URL or of HOST:PORT: an IPv6 address has brackets there.
    const bool brackets = entry.size() > 2 && entry.starts_with('[') && entry.ends_with(']');
    const std::string host = brackets ? entry.substr(1, entry.size() - 2) : entry;
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
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) != 1)
    return failed("subjectAltName");
  return {};
}

struct Dates {
  std::time_t not_before, not_after;  // may exceed the range of WallTime
};

Dates dates_of(const Validity& validity) {
  return {std::chrono::system_clock::to_time_t(validity.not_before),
          std::chrono::system_clock::to_time_t(validity.not_after)};
}

Dates dates_from(std::optional<WallTime> issued, std::chrono::hours valid) {
  const std::time_t now =
      std::chrono::system_clock::to_time_t(issued.value_or(std::chrono::system_clock::now()));
  // Begins five minutes in the past, because a peer's clock may lag.
  return {now - 300, now + static_cast<std::time_t>(std::chrono::seconds(valid).count())};
}

/// Sets a random serial number and the dates.
Status stamp(X509* certificate, const Dates& dates) {
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof(serial)) != 1) return failed("random numbers");
  serial[0] &= 0x7f;  // positive
  Owned<BIGNUM> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), dates.not_before) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), dates.not_after) == nullptr) {
    return failed("dates of a certificate");
  }
  return {};
}

/// Sets version, serial number, dates and key of a new certificate.
Status fill(X509* certificate, EVP_PKEY* key, const Dates& dates) {
  X509_set_version(certificate, 2);
  TRY_VOID(stamp(certificate, dates));
  if (X509_set_pubkey(certificate, key) != 1) return failed("public key");
  return {};
}

Result<std::string> pem_of(X509* certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return failed("PEM");
  return internal::text_of(bio.get());
}

Result<std::string> pem_of(EVP_PKEY* key) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return failed("PEM");
  return internal::text_of(bio.get());
}

struct Signer {
  Owned<X509> certificate;
  Owned<EVP_PKEY> key;
};

Result<Signer> signer_of(const KeyPair& ca) {
  Signer out{internal::read_certificate(ca.certificate_pem),
             internal::read_private_key(ca.key_pem)};
  if (!out.certificate || !out.key)
    return Error(Code::kInvalid,
                 "the CA's certificate or key is not PEM: " + internal::tls_error("unreadable"));
  if (X509_check_private_key(out.certificate.get(), out.key.get()) != 1) {
    return Error(Code::kInvalid, "the CA's key does not belong to its certificate: " +
                                     internal::tls_error("mismatch"));
  }
  return out;
}

/// Signs a certificate for `key` as `request` asks.
Result<std::string> certify(const KeyPair& ca, EVP_PKEY* key, const CertificateRequest& request,
                            const Dates& dates) {
  TRY(const Signer authority, signer_of(ca));
  const Owned<X509>& issuer = authority.certificate;
  const Owned<EVP_PKEY>& signer = authority.key;
  const Owned<X509> certificate(X509_new());
  if (!certificate) return failed("making a certificate");
  TRY_VOID(fill(certificate.get(), key, dates));
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (const std::string& organization : request.organizations)
    TRY_VOID(add_name(subject, "O", organization));
  for (const std::string& unit : request.organizational_units)
    TRY_VOID(add_name(subject, "OU", unit));
  TRY_VOID(add_name(subject, "CN", request.common_name));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  TRY_VOID(
      add_extension(certificate.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  TRY_VOID(
      add_extension(certificate.get(), issuer.get(), NID_key_usage, "critical,digitalSignature"));
  TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_ext_key_usage,
                         request.peer     ? "serverAuth,clientAuth"
                         : request.server ? "serverAuth"
                                          : "clientAuth"));
  if (X509_get0_subject_key_id(issuer.get()) !=
      nullptr) {  // a CA made elsewhere may have no key identifier
    TRY_VOID(add_extension(certificate.get(), issuer.get(), NID_authority_key_identifier, "keyid"));
  }
  TRY_VOID(add_hosts(certificate.get(), request.hosts));
  if (X509_sign(certificate.get(), signer.get(), EVP_sha256()) == 0)
    return failed("signing the certificate");
  return pem_of(certificate.get());
}

/// Rejects weak keys, and keys so large that checking a signature takes long.
bool acceptable(const EVP_PKEY* key) {
  const int bits = EVP_PKEY_get_bits(key);
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_ED25519:
      return true;
    case EVP_PKEY_RSA:
      return bits >= 2048 && bits <= 4096;
    case EVP_PKEY_EC: {
      char curve[32] = "";
      std::size_t size = 0;
      if (EVP_PKEY_get_group_name(key, curve, sizeof(curve), &size) != 1) return false;
      const std::string_view name(curve, size);
      return name == "prime256v1" || name == "secp384r1" || name == "secp521r1";
    }
    default:
      return false;
  }
}

/// The public key of a request; the request's own signature must match.
Result<Owned<EVP_PKEY>> key_of(std::string_view csr_pem) {
  const auto invalid = [](const std::string& what) {
    return Error(Code::kInvalid, "the certificate request " + what);
  };
  if (csr_pem.size() > kCsrBytesMax)
    return invalid("is longer than " + std::to_string(kCsrBytesMax) + " bytes");
  const Owned<X509_REQ> csr(PEM_read_bio_X509_REQ(internal::text_bio(csr_pem).get(), nullptr,
                                                  internal::without_password, nullptr));
  ERR_clear_error();
  if (!csr) return invalid("is not a PKCS#10 in PEM");
  Owned<EVP_PKEY> key(X509_REQ_get_pubkey(csr.get()));
  ERR_clear_error();
  if (!key || !acceptable(key.get())) {
    return invalid(
        "is for a key that is not signed here: ECDSA (P-256, P-384, P-521), Ed25519, or RSA of "
        "2048 to 4096 bits");
  }
  const bool signed_by_key = X509_REQ_verify(csr.get(), key.get()) == 1;
  ERR_clear_error();
  if (!signed_by_key) return invalid("is not signed by its own key");
  return key;
}

Result<KeyPair> make_authority(const std::string& common_name, const Dates& dates) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> certificate(X509_new());
  if (!key || !certificate) return failed("making a key");
  TRY_VOID(fill(certificate.get(), key.get(), dates));
  TRY_VOID(add_name(X509_get_subject_name(certificate.get()), "CN", common_name));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_basic_constraints,
                         "critical,CA:TRUE"));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_key_usage,
                         "critical,keyCertSign,cRLSign,digitalSignature"));
  TRY_VOID(add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash"));
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0)
    return failed("signing the certificate");
  KeyPair pair;
  TRY(pair.certificate_pem, pem_of(certificate.get()));
  TRY(pair.key_pem, pem_of(key.get()));
  return pair;
}

Result<KeyPair> make_dated(const KeyPair& ca, const CertificateRequest& request,
                           const Dates& dates) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (!key) return failed("making a key");
  KeyPair pair;
  TRY(pair.certificate_pem, certify(ca, key.get(), request, dates));
  TRY(pair.key_pem, pem_of(key.get()));
  return pair;
}

}  // namespace

Result<KeyPair> make_ca(const std::string& common_name, std::chrono::hours valid) {
  return make_authority(common_name, dates_from(std::nullopt, valid));
}

Result<KeyPair> make_ca(const std::string& common_name, const Validity& validity) {
  return make_authority(common_name, dates_of(validity));
}

Result<KeyPair> renew_ca(const KeyPair& ca, const Validity& validity) {
  TRY(const Signer authority, signer_of(ca));
  const Owned<X509> certificate(X509_dup(authority.certificate.get()));
  if (!certificate) return failed("copying a certificate");
  TRY_VOID(stamp(certificate.get(), dates_of(validity)));
  if (X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) == 0)
    return failed("signing the certificate");
  KeyPair pair{.certificate_pem = {}, .key_pem = ca.key_pem};
  TRY(pair.certificate_pem, pem_of(certificate.get()));
  return pair;
}

Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request) {
  return make_dated(ca, request, dates_from(request.issued, request.valid));
}

Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request,
                                 const Validity& validity) {
  return make_dated(ca, request, dates_of(validity));
}

Result<std::string> make_key() {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (!key) return failed("making a key");
  return pem_of(key.get());
}

Result<std::string> make_csr(const std::string& key_pem, const std::string& common_name) {
  const Owned<EVP_PKEY> key = internal::read_private_key(key_pem);
  if (!key)
    return Error(Code::kInvalid, "the key is not PEM: " + internal::tls_error("no key found"));
  const Owned<X509_REQ> csr(X509_REQ_new());
  if (!csr) return failed("making a certificate request");
  X509_REQ_set_version(csr.get(), 0);
  TRY_VOID(add_name(X509_REQ_get_subject_name(csr.get()), "CN", common_name));
  if (X509_REQ_set_pubkey(csr.get(), key.get()) != 1 ||
      X509_REQ_sign(csr.get(), key.get(), EVP_sha256()) == 0) {
    return failed("signing the certificate request");
  }
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509_REQ(bio.get(), csr.get()) != 1) return failed("PEM");
  return internal::text_of(bio.get());
}

Result<std::string> csr_key_sha256(std::string_view csr_pem) {
  TRY(const Owned<EVP_PKEY> key, key_of(csr_pem));
  return internal::sha256_of_key(*key);
}

Result<std::string> sign_csr(const KeyPair& ca, std::string_view csr_pem,
                             const CertificateRequest& request) {
  TRY(const Owned<EVP_PKEY> key, key_of(csr_pem));
  return certify(ca, key.get(), request, dates_from(request.issued, request.valid));
}

Result<CertificateFacts> certificate_facts(std::string_view certificate_pem) {
  const Owned<X509> certificate = internal::read_certificate(certificate_pem);
  if (!certificate)
    return Error(Code::kInvalid,
                 "the certificate is not PEM: " + internal::tls_error("no certificate found"));
  EVP_PKEY* const key = X509_get0_pubkey(certificate.get());
  if (key == nullptr)
    return Error(Code::kInvalid,
                 "the certificate's key is unknown: " + internal::tls_error("unreadable"));
  CertificateFacts facts;
  if (auto names = internal::subject_parts(*certificate, NID_commonName); !names.empty())
    facts.common_name = names.front();
  facts.organizations = internal::subject_parts(*certificate, NID_organizationName);
  facts.organizational_units = internal::subject_parts(*certificate, NID_organizationalUnitName);
  facts.not_before = internal::time_of(X509_get0_notBefore(certificate.get()));
  facts.not_after = internal::time_of(X509_get0_notAfter(certificate.get()));
  facts.sha256 = internal::sha256_of(*certificate);
  facts.key_sha256 = internal::sha256_of_key(*key);
  return facts;
}

Validity validity_for(std::chrono::hours span, WallTime now) {
  constexpr WallTime kWritten = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);
  const WallTime begin = std::max(now, kWritten);
  return {.not_before = kClocksBegin,
          .not_after = begin > WallTime::max() - span ? WallTime::max() : begin + span};
}

Validity authority_validity(WallTime now) {
  constexpr WallTime kEnd = std::chrono::sys_days(std::chrono::year(2099) / 12 / 31);
  return {.not_before = kClocksBegin,
          .not_after = std::max(kEnd, validity_for(std::chrono::hours(24 * 7305), now).not_after)};
}

bool must_be_renewed(const CertificateFacts& facts, std::chrono::hours left, WallTime now) {
  return now < facts.not_before || now >= facts.not_after - left;
}

Result<std::string> key_sha256(std::string_view key_pem) {
  const Owned<EVP_PKEY> key = internal::read_private_key(key_pem);
  if (!key)
    return Error(Code::kInvalid, "the key is not PEM: " + internal::tls_error("no key found"));
  return internal::sha256_of_key(*key);
}

namespace {

struct FreeDigest {
  void operator()(EVP_MD_CTX* p) const { EVP_MD_CTX_free(p); }
};

/// Ed25519 has a digest of its own.
const EVP_MD* digest_for(const EVP_PKEY& key) {
  return EVP_PKEY_get_base_id(&key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

const unsigned char* unsigned_bytes(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Result<std::string> sign_bytes(std::string_view key_pem, std::string_view bytes) {
  const Owned<EVP_PKEY> key = internal::read_private_key(key_pem);
  if (!key) return Error(Code::kInvalid, "no private key in PEM, or one under a password");
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> ctx(EVP_MD_CTX_new());
  std::size_t size = 0;
  if (!ctx || EVP_DigestSignInit(ctx.get(), nullptr, digest_for(*key), nullptr, key.get()) != 1 ||
      EVP_DigestSign(ctx.get(), nullptr, &size, unsigned_bytes(bytes), bytes.size()) != 1)
    return failed("signature");
  std::string out(size, '\0');
  if (EVP_DigestSign(ctx.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                     unsigned_bytes(bytes), bytes.size()) != 1)
    return failed("signature");
  out.resize(size);
  return out;
}

Status check_signature(std::string_view certificate_pem, std::string_view bytes,
                       std::string_view signature) {
  const Owned<X509> certificate = internal::read_certificate(certificate_pem);
  EVP_PKEY* const key = certificate ? X509_get0_pubkey(certificate.get()) : nullptr;
  if (key == nullptr) return Error(Code::kInvalid, "no certificate in PEM");
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> ctx(EVP_MD_CTX_new());
  const bool good = ctx &&
                    EVP_DigestVerifyInit(ctx.get(), nullptr, digest_for(*key), nullptr, key) == 1 &&
                    EVP_DigestVerify(ctx.get(), unsigned_bytes(signature), signature.size(),
                                     unsigned_bytes(bytes), bytes.size()) == 1;
  ERR_clear_error();
  return good ? Status() : Status(Error(Code::kForbidden, "the signature is wrong"));
}

}  // namespace varda::net
