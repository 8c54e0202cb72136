#include "net/internal/x509.h"

#include <algorithm>
#include <arpa/inet.h>
#include <ctime>
#include <openssl/err.h>

#include "net/internal/tls_context.h"

namespace varda::net::internal {

int without_password(char*, int, int, void*) { return 0; }

Owned<BIO> text_bio(std::string_view pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Result<std::string> text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  if (size <= 0) return openssl_failed("PEM");
  return std::string(data, static_cast<std::size_t>(size));
}

Owned<X509> read_certificate(std::string_view pem) {
  return Owned<X509>(PEM_read_bio_X509(text_bio(pem).get(), nullptr, without_password, nullptr));
}

Owned<EVP_PKEY> read_private_key(std::string_view pem) {
  return Owned<EVP_PKEY>(
      PEM_read_bio_PrivateKey(text_bio(pem).get(), nullptr, without_password, nullptr));
}

std::string sha256_hex(const unsigned char* bytes, std::size_t size) {
  unsigned char digest[32];
  unsigned length = 0;
  if (EVP_Digest(bytes, size, digest, &length, EVP_sha256(), nullptr) != 1) return {};
  std::string out;
  for (unsigned i = 0; i < length; ++i) {
    out += "0123456789abcdef"[digest[i] >> 4];
    out += "0123456789abcdef"[digest[i] & 15];
  }
  return out;
}

std::string sha256_of(const X509& certificate) {
  unsigned char* der = nullptr;
  const int size = i2d_X509(&certificate, &der);
  if (size <= 0) return {};
  const Owned<unsigned char> owned(der);
  return sha256_hex(der, static_cast<std::size_t>(size));
}

std::string sha256_of_key(const EVP_PKEY& key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(&key, &der);
  if (size <= 0) return {};
  const Owned<unsigned char> owned(der);
  return sha256_hex(der, static_cast<std::size_t>(size));
}

std::vector<std::string> subject_parts(const X509& certificate, int nid) {
  std::vector<std::string> out;
  X509_NAME* const subject = X509_get_subject_name(&certificate);
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, nid, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size < 0) continue;
    const Owned<unsigned char> owned(text);
    out.emplace_back(reinterpret_cast<const char*>(text), static_cast<std::size_t>(size));
  }
  return out;
}

namespace {

/// "": a kind without a text.
std::string text_of_name(const GENERAL_NAME& name) {
  const auto text = [](const ASN1_STRING* from) {
    const auto* const bytes = reinterpret_cast<const char*>(ASN1_STRING_get0_data(from));
    return std::string(bytes, static_cast<std::size_t>(ASN1_STRING_length(from)));
  };
  switch (name.type) {
    case GEN_DNS:
      return text(name.d.dNSName);
    case GEN_EMAIL:
      return text(name.d.rfc822Name);
    case GEN_URI:
      return text(name.d.uniformResourceIdentifier);
    case GEN_IPADD: {
      const int size = ASN1_STRING_length(name.d.iPAddress);
      char address[INET6_ADDRSTRLEN] = "";
      if (size == 4 || size == 16)
        ::inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name.d.iPAddress),
                    address, sizeof(address));
      return address;
    }
    default:
      return {};
  }
}

}  // namespace

std::string name_of(const X509& certificate) {
  for (std::string& name : subject_parts(certificate, NID_commonName))
    if (!name.empty()) return std::move(name);
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i)
    if (std::string name = text_of_name(*sk_GENERAL_NAME_value(names.get(), i)); !name.empty())
      return name;
  const Owned<BIGNUM> serial(ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr));
  char* const hex = serial ? BN_bn2hex(serial.get()) : nullptr;
  ERR_clear_error();
  const std::string number = hex != nullptr ? hex : "unknown";
  OPENSSL_free(hex);
  return "serial " + number;
}

WallTime time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return {};
  // The clock counts nanoseconds in 64 bits, but "no end" is the year 9999 (RFC 5280, 4.1.2.5).
  constexpr auto kLast = std::chrono::floor<std::chrono::seconds>(WallTime::duration::max());
  return WallTime(
      std::clamp(std::chrono::seconds(::timegm(&parts)), std::chrono::seconds(0), kLast));
}

Error openssl_failed(const std::string& what) {
  return Error(Code::kInternal, what + ": " + tls_error("OpenSSL failed"));
}

}  // namespace varda::net::internal
