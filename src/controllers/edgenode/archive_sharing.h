// Archives of InferenceModels from node to node: who gives which archive to whom (docs/design/015). Pure.
//
// Nodes of one zone that shall have the same archive have a few givers, in an order: the first downloads it from its source, each
// further one asks those before it, and all others ask all of them. So nothing waits in a circle, the source sends the archive
// once, and what nodes are told does not depend on how far they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "controllers/edgenode/plan.h"

namespace varda::controllers {

inline constexpr std::string_view kZoneLabel = "topology.kubernetes.io/zone";
/// One for each so many nodes and one in reserve, and no more than kGiversMax.
inline constexpr std::size_t kNodesPerGiver = 8, kGiversMax = 8;

/// A node that shall have an archive, and can be reached by others.
struct ArchiveHolder {
  enum class State {
    kOnTheWay,  // or not begun
    kFailed,
    kKept,      // installed, and there to be given
    kUnpacked,  // installed, and no archive was kept: it cannot be given
  };
  std::string node;
  std::string url;  // status.peerUrl
  bool connected = false;
  State state = State::kOnTheWay;
  // What its work list says so far.
  std::vector<api::EdgeReplicaSource> told_peers;
  std::vector<std::string> told_share_with;
};

/// What a work list says of one archive.
struct ArchiveRole {
  std::vector<api::EdgeReplicaSource> peers;
  std::vector<std::string> share_with;
  friend bool operator==(const ArchiveRole&, const ArchiveRole&) = default;
};

/// The givers of an archive, by name. `before`: those it had, which stay as long as they can; empty: not known, and read from what
/// the holders were told.
std::vector<std::string> choose_givers(std::string_view sha256, const std::vector<ArchiveHolder>& holders,
                                       const std::vector<std::string>& before);

/// What `node`, one of the holders, is told.
ArchiveRole role_of(std::string_view node, const std::vector<ArchiveHolder>& holders, const std::vector<std::string>& givers);

/// What an archive is known by among nodes that may share it: zone, digest, and the Secret that its sources ask for.
struct ArchiveGroup {
  std::string zone, sha256, credentials;
  friend auto operator<=>(const ArchiveGroup&, const ArchiveGroup&) = default;
};

/// The givers of each archive, as they were chosen last. Not on any disk: work lists say the same.
using ArchiveGivers = std::map<ArchiveGroup, std::vector<std::string>>;

/// Fills in peers and shareWith of the models of `spec`, the work list of `node`. Files of a node's own disk are not shared,
/// and a node that is revoked neither gives nor gets.
void share_archives(api::EdgeNodeSpec& spec, const api::EdgeNode& node, const EdgeNodeWorld& world, ArchiveGivers& givers);

/// What of this node matters to the work lists of others, as one word that differs when that does: it must not with every figure
/// a node reports.
std::string sharing_facts(const api::EdgeNode& node);

}  // namespace varda::controllers
