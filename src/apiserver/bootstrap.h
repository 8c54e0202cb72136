// What a data directory holds so that clients can reach and trust the API server: keys, tokens, kubeconfig files.
//
//   TRY(auto credentials, apiserver::load_or_create_credentials(fs, {.data_dir = dir, .nodes = {"cloud", "edge0"}}, system_rng()));
//   TRY_VOID(apiserver::write_kubeconfig(fs, dir / "kubeconfig", credentials, url, "varda-admin"));
//
// Layout (docs/design/001): pki/{ca,server}.{crt,key} in a directory 0700, tokens.json 0600, kubeconfig 0600.
#pragma once

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
  std::vector<Token> tokens;
  /// Of a user; empty: there is none.
  std::string token(std::string_view user) const;
};

struct CredentialOptions {
  os::Path data_dir;
  std::vector<std::string> nodes;  // each gets a token as system:node:NAME; tokens that are there already stay
  std::vector<std::string>
      hosts;  // further names and addresses of the server certificate; localhost and 127.0.0.1 are always in it
};

/// Reads what is there and makes what is missing. A server certificate that ends within 30 days is made anew, by the same CA.
/// kCorrupt: tokens.json or a key is unreadable.
Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options, Rng& rng);

/// A kubeconfig with one cluster, user and context; `server` is "https://127.0.0.1:6443".
std::string make_kubeconfig(const Credentials& credentials, std::string_view server, std::string_view user);
/// The same as a file, 0600, replaced atomically; untouched when it says that already.
Status write_kubeconfig(os::FileSystem& fs, const os::Path& file, const Credentials& credentials, std::string_view server,
                        std::string_view user);

}  // namespace varda::apiserver
