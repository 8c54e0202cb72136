// What a data directory holds so that clients can reach and trust the API server: keys, tokens, kubeconfig files.
//
//   TRY(auto credentials, apiserver::load_or_create_credentials(fs, {.data_dir = dir, .nodes = {"cloud", "edge0"}}, system_rng()));
//   TRY_VOID(apiserver::write_kubeconfig(fs, dir / "kubeconfig", credentials, url, "varda-admin"));
//
// tokens.json is a list of {"token", "user", "groups", "expires"}; `expires` (RFC 3339) may be absent. A server reads it again when
// it changes, so that a rotated or removed token counts no more within a second.
//
// Layout (docs/design/001): pki/{ca,server}.{crt,key} in a directory 0700, tokens.json 0600, kubeconfig 0600.
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
  std::vector<Token> tokens;  // that have not expired
  /// Of a user; empty: there is none.
  std::string token(std::string_view user) const;
};

struct CredentialOptions {
  os::Path data_dir;
  std::vector<std::string> nodes;  // each gets a token as system:node:NAME; tokens that are there already stay
  std::vector<std::string>
      hosts;  // further names and addresses of the server certificate; localhost and 127.0.0.1 are always in it
};

/// Reads what is there and makes what is missing, as another token for one that expired. A server certificate that ends soon, or is not valid by `clock`, is replaced by
/// another one of the same CA. A CA of which that is true gets new dates and keeps its key. kCorrupt: tokens.json or the CA is
/// unreadable.
Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options, Rng& rng,
                                               const Clock& clock = system_clock());

/// Renews the certificate of a running server: after two thirds of its life, and when the clock was set so that the certificate is
/// not valid. One thread.
class CertificateRenewal {
 public:
  /// Gives new credentials to the running servers. After an error the renewal is tried again ten minutes later.
  using Use = std::function<Status(const Credentials&)>;
  /// `present` is in use. `fs`, `rng` and `clock` outlive it.
  CertificateRenewal(os::FileSystem& fs, CredentialOptions options, const Credentials& present, Use use, Rng& rng = system_rng(),
                     const Clock& clock = system_clock());

  /// Looks at the clock once a minute until the context is done: clocks jump.
  void run(const Context& ctx);
  /// One look.
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

/// Follows DATA/tokens.json: looks for a change once a second at most. While the file cannot be read, the tokens of the last time
/// count. `fs` and `clock` outlive it. kCorrupt, kNotFound: the
/// file cannot be read at the start.
Result<std::unique_ptr<Authenticator>> token_file_authenticator(os::FileSystem& fs, const os::Path& data_dir,
                                                                const Clock& clock = system_clock());
/// All tokens of DATA/tokens.json, in its order. kNotFound: no server has begun there. kCorrupt.
Result<std::vector<Token>> list_tokens(os::FileSystem& fs, const os::Path& data_dir);
/// One new token in the place of all that the user has, with the same groups. kNotFound: the user has none. kCorrupt.
Result<Token> rotate_token(os::FileSystem& fs, const os::Path& data_dir, std::string_view user, std::optional<WallTime> expires,
                           Rng& rng);

/// A kubeconfig with one cluster, user and context; `server` is "https://127.0.0.1:6443".
std::string make_kubeconfig(const Credentials& credentials, std::string_view server, std::string_view user);
/// The same as a file, 0600, replaced atomically; untouched when it says that already.
Status write_kubeconfig(os::FileSystem& fs, const os::Path& file, const Credentials& credentials, std::string_view server,
                        std::string_view user);
/// The same for a process that runs on: `directory`/agent.kubeconfig, and beside it agent.token, which such a process reads again.
Status write_agent_kubeconfig(os::FileSystem& fs, const os::Path& directory, const Credentials& credentials,
                              std::string_view server, std::string_view user);
/// Puts another token into kubeconfigs that write_kubeconfig() or write_agent_kubeconfig() made. False: `file` is not there.
Result<bool> put_token(os::FileSystem& fs, const os::Path& file, const std::string& token);

}  // namespace varda::apiserver
