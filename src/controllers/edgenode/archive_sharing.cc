#include "controllers/edgenode/archive_sharing.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "api/edgeai/revocation.h"
#include "codec/digest.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "hosting/chosen_model.h"
#include "meta/node_address.h"
#include "net/url.h"

namespace varda::controllers::edgenode {

namespace {

constexpr std::size_t kShareWithMax = 512;  // maxItems of shareWith

bool connected(const api::EdgeNode& node) {
  const meta::Condition* condition = meta::find_condition(node.status.conditions, "Connected");
  return condition != nullptr && condition->status == "True";
}

std::string zone_of(const hosting::NodeList& nodes, std::string_view name) {
  const api::Node* node = hosting::find_node(nodes, name);
  if (node == nullptr) return "";
  const auto zone = node->metadata.labels.find(std::string(kZoneLabel));
  return zone == node->metadata.labels.end() ? "" : zone->second;
}

/// A deterministic order of the nodes, different for every archive.
std::string rank(std::string_view sha256, std::string_view node) {
  return codec::Sha256::of(std::string(sha256) + "/" + std::string(node)).hex();
}

const ArchiveHolder* find(const std::vector<ArchiveHolder>& holders, std::string_view node) {
  const auto at = std::find_if(holders.begin(), holders.end(),
                               [&](const ArchiveHolder& one) { return one.node == node; });
  return at == holders.end() ? nullptr : &*at;
}

/// The givers according to the current work lists: a restarted operator continues with these.
std::vector<std::string> listed_to_share(const std::vector<ArchiveHolder>& holders) {
  std::vector<const ArchiveHolder*> out;
  for (const ArchiveHolder& one : holders)
    if (!one.listed_share_with.empty()) out.push_back(&one);
  std::sort(out.begin(), out.end(), [](const ArchiveHolder* a, const ArchiveHolder* b) {
    return std::pair(a->listed_peers.size(), a->node) < std::pair(b->listed_peers.size(), b->node);
  });
  std::vector<std::string> names;
  for (const ArchiveHolder* one : out) names.push_back(one->node);
  return names;
}

bool may_be_shared(const api::EdgeModelVersion& version) {
  return codec::Sha256::parse(version.sha256).ok() && !version.url.starts_with("file:");
}

ArchiveHolder holder_of(const api::EdgeNode& node, const std::string& sha256) {
  ArchiveHolder out{
      .node = node.metadata.name, .url = archive_peer_url(node), .connected = connected(node)};
  for (const api::EdgeModelReport& model : node.status.models) {
    for (const api::EdgeVersionReport& version : model.versions) {
      if (version.sha256 != sha256) continue;
      if (version.state == api::EdgeVersionReport::kReady) {
        out.state =
            version.shared ? ArchiveHolder::State::kStored : ArchiveHolder::State::kUnpacked;
      } else if (version.state == api::EdgeVersionReport::kFailed &&
                 out.state == ArchiveHolder::State::kPending) {
        out.state = ArchiveHolder::State::kFailed;
      }
    }
  }
  for (const api::EdgeModel& model : node.spec.models) {
    for (const api::EdgeModelVersion& version : model.versions) {
      if (version.sha256 != sha256) continue;
      if (!version.peers.empty()) out.listed_peers = version.peers;
      if (!version.share_with.empty()) out.listed_share_with = version.share_with;
    }
  }
  return out;
}

/// True if the manifest contains one of the archives, at any URL.
bool names_any(const api::InferenceModel& model,
               const std::set<std::string, std::less<>>& digests) {
  const auto& manifest = hosting::manifest_of(model);
  return std::any_of(manifest.begin(), manifest.end(), [&](const api::ManifestEntry& entry) {
    return digests.contains(entry.sha256sum);
  });
}

}  // namespace

std::vector<std::string> choose_peers(std::string_view sha256,
                                      const std::vector<ArchiveHolder>& holders,
                                      const std::vector<std::string>& before) {
  const std::vector<std::string> known = before.empty() ? listed_to_share(holders) : before;
  // Nodes that failed come last, since the cause may not affect other nodes. Present givers come
  // next, then nodes that have the archive.
  using Order = std::tuple<bool, std::ptrdiff_t, bool, std::string, std::string>;
  std::vector<Order> candidates;
  for (const ArchiveHolder& one : holders) {
    if (!one.connected || one.state == ArchiveHolder::State::kUnpacked) continue;
    candidates.emplace_back(one.state == ArchiveHolder::State::kFailed,
                            std::find(known.begin(), known.end(), one.node) - known.begin(),
                            one.state != ArchiveHolder::State::kStored, rank(sha256, one.node),
                            one.node);
  }
  std::sort(candidates.begin(), candidates.end());
  const std::size_t wanted =
      std::min(1 + (holders.size() + kNodesPerPeer - 2) / kNodesPerPeer, kPeersMax);
  std::vector<std::string> peers;
  for (const Order& one : candidates)
    if (peers.size() < wanted) peers.push_back(std::get<4>(one));
  return peers;
}

ArchiveRole role_of(std::string_view node, const std::vector<ArchiveHolder>& holders,
                    const std::vector<std::string>& peers) {
  ArchiveRole role;
  const ArchiveHolder* self = find(holders, node);
  if (self == nullptr || holders.size() < 2) return role;
  const auto at = std::find(peers.begin(), peers.end(), node);
  const bool installed = self->state == ArchiveHolder::State::kStored ||
                         self->state == ArchiveHolder::State::kUnpacked;
  const bool listed = !self->listed_peers.empty() || !self->listed_share_with.empty();
  // The present role stays if the node is installed, or is offline and may return with its state.
  if (at == peers.end() && installed && self->connected) {
    role.peers = self->listed_peers;
    return role;
  }
  if (at == peers.end() && !self->connected && listed)
    return {self->listed_peers, self->listed_share_with};
  std::vector<std::string> sources(peers.begin(), at);
  if (at == peers.end() && sources.size() > 1) {
    // Each node starts with another giver, to spread the load.
    const auto first = std::stoul(rank("", node).substr(0, 7), nullptr, 16) % sources.size();
    std::rotate(sources.begin(), sources.begin() + static_cast<std::ptrdiff_t>(first),
                sources.end());
  }
  for (const std::string& name : sources)
    if (const ArchiveHolder* peer = find(holders, name))
      role.peers.push_back({.node = name, .url = peer->url, .unknown = {}});
  if (at == peers.end()) return role;
  for (const ArchiveHolder& one : holders)
    if (one.node != node) role.share_with.push_back(one.node);
  std::sort(role.share_with.begin(), role.share_with.end());
  if (role.share_with.size() > kShareWithMax) role.share_with.resize(kShareWithMax);
  return role;
}

void share_archives(api::EdgeNodeSpec& spec, const api::EdgeNode& node, const EdgeNodeWorld& world,
                    ArchivePeers& peers) {
  const std::string& name = node.metadata.name;
  if (archive_peer_url(node).empty() || api::is_revoked(node.metadata)) return;
  std::set<std::string, std::less<>> digests;
  for (const api::EdgeModel& model : spec.models)
    for (const api::EdgeModelVersion& version : model.versions)
      if (may_be_shared(version)) digests.insert(version.sha256);
  if (digests.empty()) return;
  const std::string zone = zone_of(world.nodes, name);
  std::map<ArchiveGroup, std::map<std::string, ArchiveHolder>> groups;
  const auto add = [&](const api::EdgeNode& holder, const api::EdgeModel& model) {
    for (const api::EdgeModelVersion& version : model.versions) {
      if (!may_be_shared(version) || !digests.contains(version.sha256)) continue;
      auto& holders = groups[{zone, version.sha256, version.credentials}];
      if (!holders.contains(holder.metadata.name))
        holders.emplace(holder.metadata.name, holder_of(holder, version.sha256));
    }
  };
  // Installed and offline nodes keep their role, but without revoked nodes.
  const auto is_out = [&](const std::string& other) {
    const auto at = world.edge_nodes.find(other);
    return at != world.edge_nodes.end() && api::is_revoked(at->second->metadata);
  };
  for (const api::EdgeModel& model : spec.models) add(node, model);
  for (const auto& model : world.models) {
    if (!model->spec.on_edge() || !names_any(*model, digests)) continue;
    const std::string model_node = hosting::place(*model, world.nodes).node;
    const auto other = world.edge_nodes.find(model_node);
    if (model_node == name || other == world.edge_nodes.end() ||
        archive_peer_url(*other->second).empty())
      continue;
    if (api::is_revoked(other->second->metadata)) continue;
    if (zone_of(world.nodes, model_node) != zone) continue;
    if (const auto work =
            inferencemodel::work_for(*model, *other->second, nullptr, nullptr, world.keys.get()))
      add(*other->second, *work);
  }
  for (api::EdgeModel& model : spec.models) {
    for (api::EdgeModelVersion& version : model.versions) {
      const ArchiveGroup group{zone, version.sha256, version.credentials};
      const auto members = groups.find(group);
      if (members == groups.end()) continue;
      std::vector<ArchiveHolder> holders;
      for (const auto& [member, holder] : members->second) holders.push_back(holder);
      std::vector<std::string>& chosen = peers[group];
      chosen = choose_peers(version.sha256, holders, chosen);
      ArchiveRole role = role_of(name, holders, chosen);
      std::erase_if(role.peers,
                    [&](const api::EdgeReplicaSource& peer) { return is_out(peer.node); });
      std::erase_if(role.share_with, is_out);
      version.peers = std::move(role.peers);
      version.share_with = std::move(role.share_with);
    }
  }
}

std::string archive_peer_url(const api::EdgeNode& node) {
  std::string url = node.status.usable_peer_url();
  const auto parsed = net::Url::parse(url);
  return parsed.ok() && meta::is_drawn_loopback(parsed->host) ? "" : url;
}

std::string sharing_facts(const api::EdgeNode& node) {
  if (archive_peer_url(node).empty() || api::is_revoked(node.metadata)) return "";
  std::set<std::string> facts;
  for (const api::EdgeModel& model : node.spec.models) {
    for (const api::EdgeModelVersion& version : model.versions) {
      if (!may_be_shared(version)) continue;
      const ArchiveHolder holder = holder_of(node, version.sha256);
      // Only the progress of givers matters to others, and any failure.
      const bool state_matters =
          !version.share_with.empty() || holder.state == ArchiveHolder::State::kFailed;
      facts.insert(version.sha256 + version.credentials +
                   (state_matters ? std::to_string(static_cast<int>(holder.state)) : ""));
    }
  }
  std::string text = archive_peer_url(node) + (connected(node) ? " connected" : " away");
  for (const std::string& fact : facts) text += " " + fact;
  return codec::Sha256::of(text).hex();
}

}  // namespace varda::controllers::edgenode
