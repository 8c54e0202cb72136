// The files of a data directory that clients need to reach and trust the API server: keys, tokens,
// kubeconfig files.
//
//   TRY(auto credentials,
//       apiserver::load_or_create_credentials(
//           fs, {.data_dir = dir, .nodes = {"cloud", "edge0"}}, system_rng()));
//   TRY_VOID(apiserver::write_kubeconfig(fs, dir / "kubeconfig", credentials, url, "varda-admin"));
//
// tokens.json is a list of {"token", "user", "groups", "expires"}; `expires` (RFC 3339) is
// optional. A running server reloads tokens.json on change. A rotated or removed token is invalid
// within a second.
//
// Layout (docs/design/001): pki/{ca,server}.{crt,key} in a directory 0700, tokens.json 0600,
// kubeconfig 0600.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/identity.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "base/rng.h"
#include "net/tls.h"
#include "os/file_system.h"

namespace varda::apiserver {

inline constexpr std::string_view kAdmin = "varda-admin";

struct Credentials {
  std::string ca_pem;
  net::TlsServer tls;
  std::vector<Token> tokens;  // expired tokens left out
  /// The token of `user`; empty if the user has none.
  std::string token(std::string_view user) const;
};

struct CredentialOptions {
  os::Path data_dir;
  std::vector<std::string> nodes;  // each gets a token as system:node:NAME; existing tokens stay
  std::vector<std::string> hosts;  // further names and addresses of the server certificate, besides
                                   // localhost and 127.0.0.1
};

/// Reads existing credentials and creates missing ones; expired tokens are replaced. A server
/// certificate that expires soon, or is not valid at `clock`, is reissued by the same CA. A CA
/// certificate in that state gets new dates and keeps its key. kCorrupt: tokens.json or the CA is
/// unreadable.
Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options,
                                               Rng& rng, const Clock& clock = system_clock());

/// Renews the certificate of a running server after two thirds of its lifetime. Also renews it when
/// a clock change makes the certificate invalid. One thread.
class CertificateRenewal {
 public:
  /// Installs new credentials in the running servers. An error is retried ten minutes later.
  using Use = std::function<Status(const Credentials&)>;
  /// `present` are the credentials in use. `fs`, `rng` and `clock` outlive the object.
  CertificateRenewal(os::FileSystem& fs, CredentialOptions options, const Credentials& present,
                     Use use, Rng& rng = system_rng(), const Clock& clock = system_clock());

  /// Checks the clock once a minute until the context is done, because clocks jump.
  void run(const Context& ctx);
  /// Checks once.
  void step();

 private:
  os::FileSystem& fs_;
  const CredentialOptions options_;
  const Use use_;
  Rng& rng_;
  const Clock& clock_;
  std::string certificate_pem_;
  SteadyTime retry_ = SteadyTime::min();
};

/// Authenticates with DATA/tokens.json; checks the file for changes at most once a second. While
/// the file is unreadable, the last tokens stay valid. `fs` and `clock` outlive it. kCorrupt,
/// kNotFound: the file is unreadable at the start.
Result<std::unique_ptr<Authenticator>> token_file_authenticator(
    os::FileSystem& fs, const os::Path& data_dir, const Clock& clock = system_clock());
/// All tokens of DATA/tokens.json, in file order. kNotFound: no server has used this directory yet.
/// kCorrupt.
Result<std::vector<Token>> list_tokens(os::FileSystem& fs, const os::Path& data_dir);
/// Replaces all tokens of `user` by one new token with the same groups. kNotFound: the user has no
/// token. kCorrupt.
Result<Token> rotate_token(os::FileSystem& fs, const os::Path& data_dir, std::string_view user,
                           std::optional<WallTime> expires, Rng& rng);

/// A kubeconfig with one cluster, user and context; `server` is "https://127.0.0.1:6443".
std::string make_kubeconfig(const Credentials& credentials, std::string_view server,
                            std::string_view user);
/// Writes the kubeconfig as a file (0600, replaced atomically). An unchanged file is not rewritten.
Status write_kubeconfig(os::FileSystem& fs, const os::Path& file, const Credentials& credentials,
                        std::string_view server, std::string_view user);
/// Writes `directory`/agent.kubeconfig and, beside it, agent.token, which a running agent reloads.
Status write_agent_kubeconfig(os::FileSystem& fs, const os::Path& directory,
                              const Credentials& credentials, std::string_view server,
                              std::string_view user);
/// Replaces the token in a file of write_kubeconfig() or write_agent_kubeconfig(). False: `file`
/// does not exist.
Result<bool> put_token(os::FileSystem& fs, const os::Path& file, const std::string& token);

}  // namespace varda::apiserver
