// TLS options of both sides (for making certificates see net/certificates.h). All PEM is text,
// never a path: the caller reads the files. Always TLS 1.2 or newer.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/certificates.h"

namespace varda::net {

struct TlsServer {
  enum class Expired {
    kRefuse,  // the handshake fails
    kAccept,  // accepted if only the dates are wrong; see Peer::certificate_expired
  };
  std::string certificate_pem;  // the server's, then its chain
  std::string key_pem;
  std::string client_ca_pem;  // if set, client certificates are optional but verified
  Expired expired_clients = Expired::kRefuse;
};

struct TlsClient {
  std::string ca_pem;           // empty: the system's roots
  std::string certificate_pem;  // client certificate, optional
  std::string key_pem;
  bool verify = true;       // false only on a user's explicit request
  std::string server_name;  // overrides the URL's host for SNI and verification

  // For a server with a certificate from our own authority.
  std::string ca_sha256 = {};      // replaces ca_pem: SHA-256 (hex) of a CA in the server's chain,
                                   // in DER
  std::string verified_name = {};  // the required name in the certificate, whatever the host
  /// For machines without a clock battery: a time that has surely passed. If set, "not yet valid"
  /// is accepted, and expiry is checked against the later of this and the clock.
  std::optional<WallTime> not_earlier_than = {};
};

}  // namespace varda::net
