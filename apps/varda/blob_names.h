// The blobs that objects of a cluster name, for the collection of a registry
// (docs/design/022-registry.md).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "kube/client.h"
#include "net/http.h"
#include "registry/client.h"

namespace varda::app {

/// Every SHA-256 in the text: runs of exactly 64 lower-case hex digits.
std::set<codec::Sha256> digests_in(std::string_view text);

/// Every SHA-256 in an object of our kinds, and every block of a relayed snapshot. Models name
/// blobs by URL; nodes report uploads and snapshots. `namespaces`: objects of these only; empty:
/// of all. After an error the names are unknown, and the caller must not collect.
Result<std::set<codec::Sha256>> named_blobs(const Context& ctx, const kube::Client& client,
                                            const std::vector<std::string>& namespaces,
                                            net::HttpClient& http,
                                            const registry::Target& registry);

/// A name of the cluster for its list in a registry: a DNS label, which is the same for all
/// operators of the cluster with the same namespaces.
std::string holder_name(const std::string& server, const std::string& authority_pem,
                        const std::vector<std::string>& namespaces);

/// Sends named_blobs() to the registry every ten minutes, until `ctx` is done. Retries failures
/// after a minute.
void report_named_blobs(const Context& ctx, const kube::Client& client,
                        const std::vector<std::string>& namespaces, net::HttpClient& http,
                        const registry::Target& registry, const std::string& holder);

}  // namespace varda::app
