// TLS: what both sides show and trust (certificates themselves: net/certificates.h). All PEM text is given as text, never as a
// path: who reads files decides where they are. Always TLS 1.2 or newer.
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
    kAccept,  // one that is right in all but its dates comes through, and Peer::certificate_expired says whether it has ended
  };
  std::string certificate_pem;  // the server's, then its chain
  std::string key_pem;
  std::string client_ca_pem;  // if set, client certificates are asked for (not required) and verified against it
  Expired expired_clients = Expired::kRefuse;
};

struct TlsClient {
  std::string ca_pem;           // empty: the system's roots
  std::string certificate_pem;  // client certificate, optional
  std::string key_pem;
  bool verify = true;       // false only on a user's explicit word
  std::string server_name;  // overrides the URL's host for SNI and verification

  // For a server of an authority of our own.
  std::string ca_sha256 = {};      // instead of ca_pem: trusts the CA, sent in the server's chain, whose DER has this SHA-256 (hex)
  std::string verified_name = {};  // the name that the server's certificate must have, whatever host it is reached at
  /// For machines whose clock may have fallen back (no battery): it is surely this late. If set, nothing is refused as not valid
  /// yet, and what counts for an end of validity is the later one of this and the clock.
  std::optional<WallTime> not_earlier_than = {};
};

}  // namespace varda::net
