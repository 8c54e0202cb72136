// Identity: this node's identity at its gateway. It gets a certificate with a join token, persists
// it, and renews it in time.
//
//   identity::Options options{
//       .node_name = "line7", .gateway = url, .directory = data / "identity"};
//   TRY(auto identity, identity::Identity::open(std::move(options)));
//   TRY_VOID(identity->enrol(ctx));  // returns at once if the node has enrolled before
//   kube::Client api(identity->transport(), {.base_url = url});
//   std::jthread renewal([&](std::stop_token stop) { identity->run(Context(stop)); });
//
// Clocks. A node that was without power may believe it is 1970. The gateway's certificate comes
// from the node's own authority, so "not yet valid" is never an error. The current time is
// certainly later than the issue of the node's own certificate. A gateway certificate that ended
// before then is refused, however early the clock is. The clock schedules the renewal only if it is
// plausible. Otherwise the node renews soon after the start, and then by process uptime. A 401 from
// the gateway means that the certificate expired, whatever the clock shows, so it is renewed at
// once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/identity/peer_credentials.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "base/rng.h"
#include "net/certificates.h"
#include "net/http.h"
#include "net/tls.h"
#include "net/tunnel.h"
#include "os/file_system.h"

namespace varda::agent::identity {

struct Options {
  std::string node_name;
  std::string gateway;  // "https://cloud.example:10443", without a trailing slash
  os::Path directory;   // DATA/identity
  /// Called only while a token is needed. Its errors are errors of the enrolment. kNotFound: no
  /// token yet; it is called again every `token_retry`. Empty: no token will come.
  std::function<Result<std::string>()> join_token;
  /// Makes a client with these credentials. Empty: net::make_client().
  std::function<std::unique_ptr<net::HttpClient>(const net::TlsClient&)> connect;
  std::chrono::milliseconds request_timeout{30000};
  std::chrono::milliseconds backoff_first{1000},
      backoff_max{300000};                           // while the gateway is unreachable
  std::chrono::milliseconds refused_retry{3600000};  // of a refused renewal
  std::chrono::milliseconds token_retry{3000};       // while there is no token
};

/// Thread-safe, except that one thread at a time calls enrol(), step() and run().
class Identity {
 public:
  /// Reads the identity from disk, without network requests. `fs`, `clock` and `rng` outlive it.
  /// kInvalid: a bad URL, or another node's identity. kCorrupt: the files on disk do not match.
  static Result<std::unique_ptr<Identity>> open(Options options,
                                                os::FileSystem& fs = os::real_file_system(),
                                                const Clock& clock = system_clock(),
                                                Rng& rng = system_rng());
  virtual ~Identity() = default;

  /// Returns once there is a certificate; retries while the gateway is unreachable. kForbidden,
  /// terminal: the gateway refused, and the message gives the remedy. kInvalid: no token will come,
  /// or the token is for another node.
  virtual Status enrol(const Context& ctx) = 0;
  /// Renews until the context is done.
  virtual void run(const Context& ctx) = 0;

  /// Sends requests as this node. New connections use the newest certificate; open ones, such as
  /// watches, stay. Every request before enrolment fails. Valid as long as this object.
  virtual net::HttpClient& transport() = 0;
  /// Opens tunnels to the gateway as this node, with the newest certificate. Otherwise like
  /// transport().
  virtual net::TunnelOpener& opener() = 0;
  /// The certificate that this node shows to other nodes, and the authority it trusts. Nothing
  /// before enrolment.
  virtual std::optional<PeerCredentials> credentials() const = 0;
  /// Facts of the certificate in use; nothing before enrolment.
  virtual std::optional<net::CertificateFacts> facts() const = 0;

  /// When run() has work to do, by `clock`. Always set, because every certificate expires.
  virtual SteadyTime due() const = 0;
  /// One attempt to get the first or the next certificate. After an error, due() is the time of the
  /// retry.
  virtual Status step(const Context& ctx) = 0;
};

}  // namespace varda::agent::identity
