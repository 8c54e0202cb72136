// X.509 certificates (RFC 5280), keys, and certificate requests (PKCS#10, RFC 2986). Everything is
// PEM text, never a path: the caller reads the files. Keys made here are ECDSA P-256.
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
  std::vector<std::string> organizational_units = {};
  std::vector<std::string> hosts;  // DNS names and IP addresses for subjectAltName
  std::chrono::hours valid{24 * 365};
  bool server = false;  // else a client certificate
  bool peer = false;    // both
  std::optional<WallTime> issued =
      {};  // valid from five minutes before; absent: by the machine's clock
};
/// Makes a new key and a certificate for it, signed by `ca`.
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request);

/// A new private key (PKCS#8).
Result<std::string> make_key();
/// Makes a certificate request for that key. The signers here take only the key from a request.
Result<std::string> make_csr(const std::string& key_pem, const std::string& common_name);
/// SHA-256 (hex) of the public key in a request. kInvalid: not PKCS#10 in PEM, over 16 KiB, wrong
/// self-signature, or a key type we do not sign. Signed types: ECDSA P-256, P-384, P-521, Ed25519,
/// RSA of 2048 to 4096 bits.
Result<std::string> csr_key_sha256(std::string_view csr_pem);
/// Signs a certificate (PEM) for the key in the CSR. Subject, hosts and validity come from
/// `request`. Everything else in the CSR is ignored. kInvalid: as csr_key_sha256().
Result<std::string> sign_csr(const KeyPair& ca, std::string_view csr_pem,
                             const CertificateRequest& request);

struct CertificateFacts {
  std::string common_name;  // the first CN; "" without one
  std::vector<std::string> organizations, organizational_units;
  WallTime not_before, not_after;
  std::string sha256;      // of the certificate in DER, hex
  std::string key_sha256;  // of its public key (SubjectPublicKeyInfo in DER), hex
};
/// Reads the first certificate in the text. Does not verify its signature. kInvalid: the text holds
/// no certificate.
Result<CertificateFacts> certificate_facts(std::string_view certificate_pem);
/// SHA-256 (hex) of the public half of a private key. kInvalid: no key, or one under a password.
Result<std::string> key_sha256(std::string_view key_pem);

/// Signs bytes with a private key: ECDSA and RSA with SHA-256, or Ed25519. The caller begins the
/// bytes with a text that names their purpose, so that a signature fits no other purpose. kInvalid:
/// no key, or one under a password.
Result<std::string> sign_bytes(std::string_view key_pem, std::string_view bytes);
/// kForbidden: the owner of the certificate's key has not signed the bytes. kInvalid: no
/// certificate.
Status check_signature(std::string_view certificate_pem, std::string_view bytes,
                       std::string_view signature);

}  // namespace varda::net
