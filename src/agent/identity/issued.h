// Identities that `varda up` issues to its own nodes, without an enrolment. The files are those of
// an enrolled node (store.h), so both kinds of nodes can be peers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/identity/peer_credentials.h"
#include "base/clock.h"
#include "base/result.h"
#include "net/certificates.h"
#include "net/tunnel.h"
#include "os/file_system.h"

namespace varda::agent::identity {

struct Issuer {
  std::string ca_pem;
  /// Signs the key of a certificate request (PEM) for the node.
  std::function<Result<std::string>(const std::string& csr_pem)> sign;
};

/// Puts a new certificate for `node_name` into `directory`. The key is created once and stays. A
/// running agent uses the new certificate soon. Returns its facts.
Result<net::CertificateFacts> issue(os::FileSystem& fs, const os::Path& directory,
                                    const std::string& node_name, const Issuer& issuer);

/// Reads the identity of `node_name` from `directory`, and again after ten seconds. The function is
/// thread-safe and keeps the last identity while the files are unreadable. Nothing: `directory` has
/// no identity of that node. `fs` and `clock` outlive the function.
std::function<std::optional<PeerCredentials>()> issued_credentials(
    os::Path directory, std::string node_name, os::FileSystem& fs = os::real_file_system(),
    const Clock& clock = system_clock());

/// Opens tunnels to the gateway of the same authority, each with the present credentials.
/// kUnavailable: the node has no credentials yet.
std::unique_ptr<net::TunnelOpener> issued_opener(
    std::function<std::optional<PeerCredentials>()> credentials);

}  // namespace varda::agent::identity
