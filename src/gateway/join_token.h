// Join tokens: each admits one node, once. Only its maker and its user know the token. The cluster
// keeps a Secret that recognises it: varda-system/join-token-ID, type edgeai.io/join-token, data
// {node, layer, from, secret-sha256, expires, used-by, revoked}. A Secret without a layer admits
// the node to the edge. `from` lists the allowed networks, separated by ','. Without it the node
// may come from any address.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "base/rng.h"
#include "codec/json.h"
#include "gateway/layer.h"
#include "kube/client.h"
#include "meta/resources.h"
#include "net/ip.h"

namespace varda::gateway {

inline constexpr std::string_view kSystemNamespace = "varda-system";

/// varda-join.ID.SECRET.CAHASH
struct JoinToken {
  std::string id;         // 12 digits of lower-case hex: names the Secret
  std::string secret;     // 64: 256 random bits
  std::string ca_sha256;  // 64: of the CA's certificate in DER; a node knows the true gateway by it

  /// kInvalid; the message never quotes the text. White space around the token is allowed.
  static Result<JoinToken> parse(std::string_view text);
  static JoinToken make(std::string ca_sha256, Rng& rng);
  std::string text() const;
};

/// The content of the Secret.
struct JoinTokenRecord {
  std::string id;
  std::string node;
  Layer layer = Layer::kEdge;
  std::vector<net::IpBlock> networks;  // allowed addresses of the node; empty: any
  std::string secret_sha256;
  WallTime expires;
  std::string used_by;  // SHA-256 (hex) of the public key that used it; "": not used yet
  bool revoked = false;

  codec::Json to_secret() const;
  /// kCorrupt: the message names the missing or wrong member.
  static Result<JoinTokenRecord> from_secret(const codec::Json& secret);
};

enum class Verdict { kGood, kWrongSecret, kRevoked, kExpired, kUsedByAnotherKey, kOtherNetwork };
/// For the gateway's log and counter; clients never get it.
std::string_view to_string(Verdict verdict);
/// Compares the secret first, in constant time: a caller without the secret learns nothing else.
/// `peer` is the address of the connection (net::Peer::address).
Verdict judge(const JoinTokenRecord& record, const JoinToken& token, std::string_view key_sha256,
              std::string_view peer, WallTime now);

/// True: the peer is in one of the networks. An IPv4 address inside IPv6 is the IPv4 address.
bool is_from(std::string_view peer, const std::vector<net::IpBlock>& networks);
/// "10.0.0.0/8,fd00::/8"; "" without networks.
std::string text_of(const std::vector<net::IpBlock>& networks);
inline constexpr std::size_t kJoinNetworksMax = 64;

// For administrators, with a client that may write Secrets.

struct NewJoinToken {
  std::string node;
  Layer layer = Layer::kEdge;
  std::vector<net::IpBlock> networks = {};  // at most kJoinNetworksMax
  std::chrono::seconds ttl{std::chrono::hours(24)};
  std::string ca_sha256;
};
/// Makes the namespace if it is missing, and the Secret. kInvalid: the node's name, or too many
/// networks.
Result<JoinToken> create_join_token(const Context& ctx, const kube::Client& client,
                                    const NewJoinToken& wanted, WallTime now, Rng& rng);
/// Sorted by ID. Unreadable Secrets are left out.
Result<std::vector<JoinTokenRecord>> list_join_tokens(const Context& ctx,
                                                      const kube::Client& client);
/// The token admits no node any more. A node that it admitted stays. kInvalid: no ID. kNotFound.
Status revoke_join_token(const Context& ctx, const kube::Client& client, const std::string& id);
/// Removes tokens that expired more than a day ago, and returns their number. Until then the list
/// and the gateway's log can report them as expired.
Result<int> remove_old_join_tokens(const Context& ctx, const kube::Client& client, WallTime now);

/// The Secret of a token, and its content.
struct StoredJoinToken {
  codec::Json secret;
  JoinTokenRecord record;
};
/// True: the Secret revokes its token. Administrators also write data.revoked by hand, so only
/// these values do not revoke: absent, blank, and "false". White space around the value is ignored.
bool join_token_is_revoked(const codec::Json& secret);
/// Nothing: no such token. kCorrupt: its Secret is unreadable.
Result<std::optional<StoredJoinToken>> find_join_token(const Context& ctx,
                                                       const kube::Client& client,
                                                       const std::string& id);
/// Stores the key as the token's user. kConflict: the Secret changed since it was read, so read it
/// again. kNotFound.
Status use_join_token(const Context& ctx, const kube::Client& client, StoredJoinToken stored,
                      const std::string& key_sha256);

/// Makes the gateway's namespace if it is missing.
Status make_system_namespace(const Context& ctx, const kube::Client& client);

using meta::core::config_maps;
using meta::core::secrets;

}  // namespace varda::gateway
