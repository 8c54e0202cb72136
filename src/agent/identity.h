// Identity: who this node is at its gateway. It gets the node a certificate with a join token, keeps it on the disk, and renews it
// in good time while the node works on.
//
//   TRY(auto identity, agent::Identity::open({.node_name = "line7", .gateway = url, .directory = data / "identity", ...}));
//   TRY_VOID(identity->enrol(ctx));                         // returns at once if the node has enrolled before
//   kube::Client api(identity->transport(), {.base_url = url});
//   std::jthread renewal([&](std::stop_token stop) { identity->run(Context(stop)); });
//
// Clocks. A node that was without power may believe it is 1970. The gateway's certificate comes from an authority that is the
// node's own, so that it is not valid *yet* never counts; and it is surely later than the node's own certificate was issued, so one
// that ended before that is refused however early the clock believes it is. When to renew goes by the clock only where it is
// possible; else soon after the start, and by how long the process has run. A gateway that answers 401 says the certificate
// ended, whatever this clock says: then it is renewed at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/peers.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "base/rng.h"
#include "net/certificates.h"
#include "net/http.h"
#include "net/tls.h"
#include "os/file_system.h"

namespace varda::agent {

struct IdentityOptions {
  std::string node_name;
  std::string gateway;  // "https://cloud.example:10443", without a slash at its end
  os::Path directory;   // DATA/identity
  /// Asked only while a token is needed. An error of it is one of the enrolment; kNotFound: none has come yet, and it is asked
  /// again every `token_retry`. Empty: there is none.
  std::function<Result<std::string>()> join_token;
  /// Makes a client with those credentials. Empty: net::make_client().
  std::function<std::unique_ptr<net::HttpClient>(const net::TlsClient&)> connect;
  std::chrono::milliseconds request_timeout{30000};
  std::chrono::milliseconds backoff_first{1000}, backoff_max{300000};  // while the gateway cannot be reached
  std::chrono::milliseconds refused_retry{3600000};                    // of a renewal that was refused
  std::chrono::milliseconds token_retry{3000};                         // of the first enrolment, while there is no token
};

/// Thread-safe, except that one thread at a time calls enrol(), step() and run().
class Identity {
 public:
  /// Reads what the disk has, and asks nobody. The others outlive it. kInvalid: a bad URL, or the identity is another node's.
  /// kCorrupt: what is on the disk does not fit together.
  static Result<std::unique_ptr<Identity>> open(IdentityOptions options, os::FileSystem& fs = os::real_file_system(),
                                                const Clock& clock = system_clock(), Rng& rng = system_rng());
  virtual ~Identity() = default;

  /// Returns once there is a certificate: tries for as long as the gateway cannot be reached. kForbidden, terminal: the gateway
  /// refused; the message says what to do. kInvalid: no token is to come, or it is for
  /// another node.
  virtual Status enrol(const Context& ctx) = 0;
  /// Renews until the context is done.
  virtual void run(const Context& ctx) = 0;

  /// Requests as this node. New connections use the newest certificate; those that are open, such as watches, stay. Before
  /// enrolment every request fails. Lives as long as this object.
  virtual net::HttpClient& transport() = 0;
  /// What this node shows to other nodes now, and trusts of them; nothing before enrolment.
  virtual std::optional<PeerCredentials> credentials() const = 0;
  /// Of the certificate in use; nothing before enrolment.
  virtual std::optional<net::CertificateFacts> facts() const = 0;

  /// When there is something to do, by `clock`: for run(), and for tests. Never "nothing": a certificate ends.
  virtual SteadyTime due() const = 0;
  /// One attempt to get what is needed: the first certificate or the next one. An error has been noted: due() is when to try again.
  virtual Status step(const Context& ctx) = 0;
};

}  // namespace varda::agent
