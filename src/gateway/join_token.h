// Join tokens: what lets one node in, once. The token itself is known to who made it and to who uses it; the cluster keeps a Secret
// that recognises it: varda-system/join-token-ID, type edgeai.io/join-token, data {node, layer, from, secret-sha256, expires,
// used-by, revoked}. A Secret without a layer lets the node in to the edge. `from` has the networks, with ',' between them; without
// it the node may come from anywhere.
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
#include "net/ip.h"

namespace varda::gateway {

inline constexpr std::string_view kSystemNamespace = "varda-system";

/// varda-join.ID.SECRET.CAHASH
struct JoinToken {
  std::string id;         // 12 digits of lower-case hex: names the Secret
  std::string secret;     // 64: 256 random bits
  std::string ca_sha256;  // 64: of the CA's certificate in DER, by which a node knows the true gateway

  /// kInvalid, without a word of the text. White space around it is fine.
  static Result<JoinToken> parse(std::string_view text);
  static JoinToken make(std::string ca_sha256, Rng& rng);
  std::string text() const;
};

/// What the Secret says.
struct JoinTokenRecord {
  std::string id;
  std::string node;
  Layer layer = Layer::kEdge;
  std::vector<net::IpBlock> networks;  // the node comes from one of them; empty: from anywhere
  std::string secret_sha256;
  WallTime expires;
  std::string used_by;  // SHA-256 (hex) of the public key that it let in; "" not used yet
  bool revoked = false;

  codec::Json to_secret() const;
  /// kCorrupt: names what is missing or wrong.
  static Result<JoinTokenRecord> from_secret(const codec::Json& secret);
};

enum class Verdict { kGood, kWrongSecret, kRevoked, kExpired, kUsedByAnotherKey, kOtherNetwork };
/// For the log of who runs the gateway; who asks is not told.
std::string_view to_string(Verdict verdict);
/// The secret is compared in constant time, and first: who does not know it learns nothing else. `peer` is the address of the
/// connection (net::Peer::address).
Verdict judge(const JoinTokenRecord& record, const JoinToken& token, std::string_view key_sha256, std::string_view peer,
              WallTime now);

/// Is the peer in one of the networks? An IPv4 address inside IPv6 is the IPv4 address.
bool is_from(std::string_view peer, const std::vector<net::IpBlock>& networks);
/// "10.0.0.0/8,fd00::/8"; "" without networks.
std::string text_of(const std::vector<net::IpBlock>& networks);
inline constexpr std::size_t kJoinNetworksMax = 64;

// For who administers the cluster, over a client that may write Secrets.

struct NewJoinToken {
  std::string node;
  Layer layer = Layer::kEdge;
  std::vector<net::IpBlock> networks = {};  // at most kJoinNetworksMax
  std::chrono::seconds ttl{std::chrono::hours(24)};
  std::string ca_sha256;
};
/// Makes the namespace if it is missing, and the Secret. kInvalid: the node's name, or too many networks.
Result<JoinToken> create_join_token(const Context& ctx, const kube::Client& client, const NewJoinToken& wanted, WallTime now,
                                    Rng& rng);
/// By id. Secrets that cannot be read are left out.
Result<std::vector<JoinTokenRecord>> list_join_tokens(const Context& ctx, const kube::Client& client);
/// It lets nobody in from now on; the node that it let in already stays in. kNotFound.
Status revoke_join_token(const Context& ctx, const kube::Client& client, const std::string& id);
/// Removes those that ended more than a day ago: until then the list and the gateway's log can say so. How many.
Result<int> remove_old_join_tokens(const Context& ctx, const kube::Client& client, WallTime now);

/// The Secret with that id, and what is in it.
struct StoredJoinToken {
  codec::Json secret;
  JoinTokenRecord record;
};
/// Does the Secret of a token take it back? Its data.revoked is written by hand too, so that all but absent, empty and "false"
/// does, with white space around it or not.
bool says_revoked(const codec::Json& secret);
/// Nothing: there is none. kCorrupt.
Result<std::optional<StoredJoinToken>> find_join_token(const Context& ctx, const kube::Client& client, const std::string& id);
/// Notes the key. kConflict: somebody wrote the Secret since it was read; look again. kNotFound.
Status use_join_token(const Context& ctx, const kube::Client& client, StoredJoinToken stored, const std::string& key_sha256);

/// The namespace of all that is the gateway's. Fine if it is there.
Status make_system_namespace(const Context& ctx, const kube::Client& client);

const meta::Resource& secrets();
const meta::Resource& config_maps();

}  // namespace varda::gateway
