// Certificates and keys (X.509, RFC 5280), requests for them (PKCS#10, RFC 2986), and what they say. All as PEM text, never as a
// path: who reads files decides where they are. Keys made here are ECDSA P-256.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace varda::net {

struct KeyPair {
  std::string certificate_pem;
  std::string key_pem;
};

/// A self-signed CA.
Result<KeyPair> make_ca(const std::string& common_name, std::chrono::hours valid);

struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> organizations;
  std::vector<std::string> hosts;  // DNS names and IP addresses for subjectAltName
  std::chrono::hours valid{24 * 365};
  bool server = false;                  // else a client certificate
  bool peer = false;                    // both
  std::optional<WallTime> issued = {};  // valid from five minutes before; absent: by the machine's clock
};
/// With a key of its own, signed by `ca`.
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request);

/// A new private key (PKCS#8).
Result<std::string> make_key();
/// A request for a certificate of that key. Signers here take the key of it and nothing else.
Result<std::string> make_csr(const std::string& key_pem, const std::string& common_name);
/// SHA-256 (hex) of the public key a request is for. kInvalid: no PKCS#10 in PEM, over 16 KiB, its signature by its own key is
/// wrong, or the key is none we sign (ECDSA P-256, P-384, P-521, Ed25519, or RSA of 2048 to 4096 bits).
Result<std::string> csr_key_sha256(std::string_view csr_pem);
/// A certificate (PEM) for the key of the request, with the subject, hosts and time that `request` says: what the CSR asks for
/// besides is ignored. kInvalid: as csr_key_sha256().
Result<std::string> sign_csr(const KeyPair& ca, std::string_view csr_pem, const CertificateRequest& request);

struct CertificateFacts {
  std::string common_name;  // the first CN; "" without one
  std::vector<std::string> organizations;
  WallTime not_before, not_after;
  std::string sha256;      // of the certificate in DER, hex
  std::string key_sha256;  // of its public key (SubjectPublicKeyInfo in DER), hex
};
/// Of the first certificate in the text. Says nothing about who signed it. kInvalid: there is none.
Result<CertificateFacts> certificate_facts(std::string_view certificate_pem);
/// SHA-256 (hex) of the public half of a private key. kInvalid: no key, or one under a password.
Result<std::string> key_sha256(std::string_view key_pem);

}  // namespace varda::net
