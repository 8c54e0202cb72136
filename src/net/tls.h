// TLS: certificates, keys and what both sides trust. All PEM text is given as text, never as a path: who reads files decides where
// they are. Always TLS 1.2 or newer.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace varda::net {

struct TlsServer {
  std::string certificate_pem;  // the server's, then its chain
  std::string key_pem;
  std::string client_ca_pem;  // if set, client certificates are asked for (not required) and verified against it
};

struct TlsClient {
  std::string ca_pem;           // empty: the system's roots
  std::string certificate_pem;  // client certificate, optional
  std::string key_pem;
  bool verify = true;       // false only on a user's explicit word
  std::string server_name;  // overrides the URL's host for SNI and verification
};

struct KeyPair {
  std::string certificate_pem;
  std::string key_pem;
};

/// A self-signed CA (ECDSA P-256).
Result<KeyPair> make_ca(const std::string& common_name, std::chrono::hours valid);

struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> organizations;
  std::vector<std::string> hosts;  // DNS names and IP addresses for subjectAltName
  std::chrono::hours valid{24 * 365};
  bool server = false;  // else a client certificate
};
/// Signed by `ca`.
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request);

}  // namespace varda::net
