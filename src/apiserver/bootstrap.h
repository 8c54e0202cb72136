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

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/identity.h"
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

/// Reads what is there and makes what is missing, as another token for one that expired. A server certificate that ends within 30
/// days is made anew, by the same CA. kCorrupt: tokens.json or a key is unreadable.
Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options, Rng& rng);

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
