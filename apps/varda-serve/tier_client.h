// Tier client: asks the tiers above a model with the credentials that files hold.
#pragma once

#include <memory>

#include "base/clock.h"
#include "net/client.h"
#include "os/file_system.h"

namespace varda::serve {

/// PEM files and a file of tokens; each may be absent ("").
struct TierFiles {
  os::Path ca;                // authority of the tiers' certificates; absent: the system's roots
  os::Path certificate, key;  // for tiers that ask for a client certificate; both or neither
  os::Path tokens;            // the first line is sent
};

/// A request that comes a second or more after the last reading reads the files again. The last
/// good files stay in force while the files cannot be used; before there were any, send() fails
/// with kUnavailable. With `ca` the token is sent over HTTPS only. Thread-safe. `fs` and `clock`
/// outlive the client; tls of `options` is not used.
std::unique_ptr<net::HttpClient> make_tier_client(net::ClientOptions options, TierFiles files, os::FileSystem& fs,
                                                  const Clock& clock);

}  // namespace varda::serve
