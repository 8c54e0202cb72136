// Which key is a node's: remembered with its first certificate, so that nobody with another key gets one in its name by a token
// that is good for any node (trust on first use). One Secret for each node, varda-system/node-key-NODE, type and label
// edgeai.io/node-key, data {node, key-sha256}: small, written once in a node's life, and no two nodes' gateways ever wait for one
// another.
#pragma once

#include <string>

#include "base/context.h"
#include "base/result.h"
#include "kube/client.h"

namespace varda::gateway {

enum class KeyClaim { kIsTheNodes, kIsAnother };
/// Is that the node's key? If none is remembered it is from now on; of two keys at two gateways one comes second. `key_sha256`: of
/// the public key, hex. kCorrupt: the Secret cannot be read, or is not of our making.
Result<KeyClaim> claim_node_key(const Context& ctx, const kube::Client& client, const std::string& node,
                                const std::string& key_sha256);
/// From now on it is that one, whatever was remembered: for who proved it by a token for this node alone. kCorrupt.
Status set_node_key(const Context& ctx, const kube::Client& client, const std::string& node, const std::string& key_sha256);
/// The next key is taken for the node's. Certificates that were given stay good. kNotFound: none was remembered. kInvalid: no name.
Status forget_node_key(const Context& ctx, const kube::Client& client, const std::string& node);

}  // namespace varda::gateway
