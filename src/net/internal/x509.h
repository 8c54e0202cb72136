// Shared by the files on certificates: owners for OpenSSL's objects, PEM text in and out.
#pragma once

#include <memory>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace varda::net::internal {

struct Free {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_REQ* p) const { X509_REQ_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
  void operator()(unsigned char* p) const { OPENSSL_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

/// Password callback for every function that reads PEM: refuses, so that OpenSSL never prompts on a
/// terminal.
int without_password(char*, int, int, void*);

/// A BIO that reads `pem`. `pem` must outlive it.
Owned<BIO> text_bio(std::string_view pem);
/// The content of a memory BIO.
Result<std::string> text_of(BIO* bio);

/// The first certificate or key in the text, or null.
Owned<X509> read_certificate(std::string_view pem);
Owned<EVP_PKEY> read_private_key(std::string_view pem);

/// SHA-256 of bytes as 64 hex digits.
std::string sha256_hex(const unsigned char* bytes, std::size_t size);
/// SHA-256 of the certificate or of SubjectPublicKeyInfo, in DER. "" if OpenSSL cannot encode it.
std::string sha256_of(const X509& certificate);
std::string sha256_of_key(const EVP_PKEY& key);

/// All values of one part of a subject (NID_commonName), as UTF-8.
std::vector<std::string> subject_parts(const X509& certificate, int nid);
/// The first common name, else the first alternative name, else "serial " and the number in hex.
std::string name_of(const X509& certificate);
/// The epoch if `time` is unreadable.
WallTime time_of(const ASN1_TIME* time);

/// kInternal, with the oldest error of OpenSSL's queue.
Error openssl_failed(const std::string& what);

}  // namespace varda::net::internal
