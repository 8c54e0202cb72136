// Keys of nodes: each is remembered with the node's first certificate (trust on first use). No
// other key then gets a certificate for the node by a token that admits any node, nor renews one.
// Each node has its own Secret, varda-system/node-key-NODE, type and label edgeai.io/node-key, data
// {node, layer, key-sha256, refused-sha256}. It is small and rarely written, and no two nodes'
// gateways wait for each other. Without key-sha256 the key was forgotten. refused-sha256 has the
// node's former keys, a line each, newest first. The layer is that of the join token that admitted
// the node; without it the node is of the edge.
#pragma once

#include <string>

#include "base/context.h"
#include "base/result.h"
#include "gateway/layer.h"
#include "kube/client.h"

namespace varda::gateway {

enum class KeyClaim {
  kIsTheNodes,
  kIsAnother,    // another key is remembered
  kIsForgotten,  // a former key; or none is remembered now, and this one may not follow
  kIsUnknown,    // no key was ever remembered, and this one may not be the first
};
/// Rights of a key that is not the remembered one.
struct KeyRights {
  bool be_first = false;  // become the node's key where none was ever remembered
  bool follow = false;    // become the node's key after a forgotten one; a former key never does
};
/// Checks a key, and remembers it if `rights` allow. If two keys race at two gateways, the second
/// is refused. `key_sha256`: of the public key, hex. kCorrupt: the Secret is unreadable, or another
/// writer made it.
Result<KeyClaim> claim_node_key(const Context& ctx, const kube::Client& client,
                                const std::string& node, const std::string& key_sha256,
                                KeyRights rights);
/// Remembers the key, even if it was forgotten: a token for this node alone has proved it. The
/// former key is refused from now on. The node gets `layer`. kCorrupt.
Status set_node_key(const Context& ctx, const kube::Client& client, const std::string& node,
                    const std::string& key_sha256, Layer layer);
/// True: a key of the node is remembered. kCorrupt.
Result<bool> has_node_key(const Context& ctx, const kube::Client& client, const std::string& node);
/// The layer to which the node was admitted; edge if none is recorded. kCorrupt.
Result<Layer> layer_of_node(const Context& ctx, const kube::Client& client,
                            const std::string& node);
/// Forgets the key: the next key becomes the node's, and the node is of the edge again. The former
/// key neither enrols nor renews, except by a token for this node alone. Its certificate stays good
/// until it ends. The newest former keys are refused, at most this many. kNotFound: no key is
/// remembered, and there is no EdgeNode. kInvalid: no node name. kCorrupt.
inline constexpr std::size_t kRefusedKeysMax = 16;
Status forget_node_key(const Context& ctx, const kube::Client& client, const std::string& node);

}  // namespace varda::gateway
