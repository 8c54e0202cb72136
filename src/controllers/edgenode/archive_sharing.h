// Assigns which nodes serve the archives of InferenceModels to which other nodes (docs/design/015).
// Pure.
//
// Nodes of one zone that need the same archive have a few ordered archive peers. The first peer
// downloads from the source. Each further peer asks the peers before it, and all other nodes ask
// all peers. Thus no cycle of waiting nodes exists, and the source sends the archive once. The
// assignment does not depend on download progress.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "controllers/edgenode/plan.h"

namespace varda::controllers::edgenode {

inline constexpr std::string_view kZoneLabel = "topology.kubernetes.io/zone";
/// One peer per kNodesPerPeer nodes plus one in reserve, at most kPeersMax.
inline constexpr std::size_t kNodesPerPeer = 8, kPeersMax = 8;

/// A node that needs an archive and is reachable for other nodes.
struct ArchiveHolder {
  enum class State {
    kPending,  // or not started
    kFailed,
    kStored,    // installed, and the archive can be served
    kUnpacked,  // installed without keeping the archive: it cannot be served
  };
  std::string node;
  std::string url;  // archive_peer_url()
  bool connected = false;
  State state = State::kPending;
  // The node's current work list.
  std::vector<api::EdgeReplicaSource> listed_peers;
  std::vector<std::string> listed_share_with;
};

/// The part of a work list about one archive.
struct ArchiveRole {
  std::vector<api::EdgeReplicaSource> peers;
  std::vector<std::string> share_with;
  friend bool operator==(const ArchiveRole&, const ArchiveRole&) = default;
};

/// Names of an archive's peers, in order. `before`: the previous peers, which stay if possible;
/// empty: unknown, taken from the holders' work lists.
std::vector<std::string> choose_peers(std::string_view sha256,
                                      const std::vector<ArchiveHolder>& holders,
                                      const std::vector<std::string>& before);

/// The role of `node`, one of the holders.
ArchiveRole role_of(std::string_view node, const std::vector<ArchiveHolder>& holders,
                    const std::vector<std::string>& peers);

/// Identifies an archive among nodes that may share it: zone, digest, and the Secret for the
/// source.
struct ArchiveGroup {
  std::string zone, sha256, credentials;
  friend auto operator<=>(const ArchiveGroup&, const ArchiveGroup&) = default;
};

/// The last chosen peers of each archive. In memory only: work lists hold the same facts.
using ArchivePeers = std::map<ArchiveGroup, std::vector<std::string>>;

/// Fills in peers and shareWith of the models in `spec`, the work list of `node`. Files of a node's
/// own disk are not shared. A revoked node neither serves nor receives.
void share_archives(api::EdgeNodeSpec& spec, const api::EdgeNode& node, const EdgeNodeWorld& world,
                    ArchivePeers& peers);

/// URL at which other nodes ask this node for archives; "": the node takes no part. Nodes of one
/// machine, at addresses that they drew, take none. An archive from such a peer saves no network and
/// costs disk.
std::string archive_peer_url(const api::EdgeNode& node);

/// A text that changes if facts change that matter to the work lists of other nodes. It must not
/// change with every number that a node reports.
std::string sharing_facts(const api::EdgeNode& node);

}  // namespace varda::controllers::edgenode
