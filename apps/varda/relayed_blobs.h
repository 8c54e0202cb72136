// Blobs that relayed shares need (docs/design/015-replication.md): the registry keeps them.
#pragma once

#include <set>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "net/http.h"
#include "registry/client.h"

namespace varda::app {

/// Adds snapshots of an EdgeNode: of its relayed shares, and of copies that came through the
/// registry. The collection keeps their blocks.
void add_relayed_snapshots(const codec::Json& edge_node, std::set<codec::Sha256>& snapshots);

/// The digests of all blocks of the snapshots. A snapshot that the registry lacks has none. Other
/// errors are returned: the caller must not collect.
Result<std::set<codec::Sha256>> blocks_of(const Context& ctx, net::HttpClient& http,
                                          const registry::Target& registry,
                                          const std::set<codec::Sha256>& snapshots);

}  // namespace varda::app
