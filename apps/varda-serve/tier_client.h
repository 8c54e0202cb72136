// Tier client: sends requests to later tiers, with credentials from files.
#pragma once

#include <memory>

#include "access.h"
#include "base/clock.h"
#include "net/client.h"
#include "os/file_system.h"

namespace varda::serve {

/// PEM files and a file of tokens; each may be absent ("").
struct TierFiles {
  os::Path ca;                // authority of the tiers' certificates; absent: the system's roots
  os::Path certificate, key;  // for tiers that require a client certificate; both or neither
  os::Path tokens;            // the first line is sent
};

/// send() reads the files again if the last reading is at least one second old. The last good files
/// stay in force while the files are unusable. kUnavailable: the files were never usable. With
/// `ca`, the client sends the token over HTTPS only. Thread-safe. `clock` outlives the client. The
/// client ignores `options.tls`.
std::unique_ptr<net::HttpClient> make_tier_client(net::ClientOptions options, TierFiles files,
                                                  ReadFile read_file, const Clock& clock);

}  // namespace varda::serve
