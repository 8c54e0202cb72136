// Which key is a node's: remembered with its first certificate, so that nobody with another key gets one in its name by a token
// that is good for any node, nor renews one (trust on first use). One Secret for each node, varda-system/node-key-NODE, type and
// label edgeai.io/node-key, data {node, layer, key-sha256, refused-sha256}: small, written once in a node's life, and no two nodes'
// gateways ever wait for one another. Without key-sha256 the key was forgotten; refused-sha256 has the keys that were the node's
// before, a line each, newest first. The layer is that of the join token that let the node in; without it the node is of the edge.
#pragma once

#include <string>

#include "base/context.h"
#include "base/result.h"
#include "gateway/layer.h"
#include "kube/client.h"

namespace varda::gateway {

enum class KeyClaim {
  kIsTheNodes,
  kIsAnother,    // another one is remembered
  kIsForgotten,  // it was the node's and was forgotten; or none is remembered since, and this one may not follow
  kIsUnknown,    // none was ever remembered, and this one may not be the first
};
/// What a key may do that is not the remembered one.
struct KeyRights {
  bool be_first = false;  // become the node's where none was ever remembered
  bool follow = false;    // become the node's where the former was forgotten; one that was itself the node's before never does
};
/// Is that the node's key, or becomes it now? Of two keys at two gateways one comes second. `key_sha256`: of the public key, hex.
/// kCorrupt: the Secret cannot be read, or is not of our making.
Result<KeyClaim> claim_node_key(const Context& ctx, const kube::Client& client, const std::string& node,
                                const std::string& key_sha256, KeyRights rights);
/// From now on it is that one, also if it was forgotten before: for who proved it by a token for this node alone. The former one is
/// refused. The node is of `layer` from now on. kCorrupt.
Status set_node_key(const Context& ctx, const kube::Client& client, const std::string& node, const std::string& key_sha256,
                    Layer layer);
/// Is a key of the node remembered? kCorrupt.
Result<bool> has_node_key(const Context& ctx, const kube::Client& client, const std::string& node);
/// The layer that the node was let in to. kCorrupt.
Result<Layer> layer_of_node(const Context& ctx, const kube::Client& client, const std::string& node);
/// The next key is taken for the node's, which is of the edge again, and the former one neither enrols nor renews any more, save by
/// a token of the node's own; its certificate stays good until it ends. So many former ones are refused at most, the newest.
/// kNotFound: none was remembered, and there is no EdgeNode of it. kInvalid: no name. kCorrupt.
inline constexpr std::size_t kRefusedKeysMax = 16;
Status forget_node_key(const Context& ctx, const kube::Client& client, const std::string& node);

}  // namespace varda::gateway
