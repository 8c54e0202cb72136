#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "api/edgeai/revocation.h"
#include "codec/text.h"
#include "controllers/replication/replication.h"
#include "net/url.h"

namespace varda::controllers::replication {
namespace {

constexpr std::size_t kListMax = 128;           // maxItems of EdgeNode.spec.shares and replicas
constexpr std::size_t kNodesMax = 512;          // of a share
constexpr std::size_t kHelpersMax = 3;          // sources besides the node that has the files
constexpr std::size_t kMessageBytesMax = 4096;  // of a status
constexpr std::int64_t kRelayBytesMax = std::int64_t{16} << 30;  // of a snapshot in the registry
// Work lists of 128 replicas stay well below the size limit of an object.
constexpr std::size_t kMetadataBytesMax = 4096;

using codec::Json;

const api::EdgeNode* edge_node(const ReplicationWorld& world, std::string_view name) {
  const auto at = world.edge_nodes.find(name);
  return at == world.edge_nodes.end() ? nullptr : at->second.get();
}

bool is_out(const api::EdgeNode& node) { return api::is_revoked(node.metadata); }

template <typename T>
const T* find(const std::vector<T>& list, std::string_view key) {
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const T& item) { return item.key == key; });
  return at == list.end() ? nullptr : &*at;
}

bool connected(const api::EdgeNode& node) {
  return std::any_of(
      node.status.conditions.begin(), node.status.conditions.end(),
      [](const meta::Condition& c) { return c.type == "Connected" && c.status == "True"; });
}

/// The present offer of the node with the files; null: none yet, or an offer for an earlier path.
const api::EdgeShareReport* offer_of(const ReplicationClaim& claim, const ReplicationWorld& world) {
  const api::EdgeNode* node = edge_node(world, claim.node);
  const api::EdgeShareReport* offer =
      node == nullptr ? nullptr : find(node->status.shares, claim.key);
  return offer != nullptr && offer->path == claim.path ? offer : nullptr;
}

const api::EdgeReplicaReport* report_of(const ReplicationClaim& claim, const api::EdgeNode& node) {
  const api::EdgeReplicaReport* report = find(node.status.replicas, claim.key);
  return report != nullptr && report->uid == claim.uid ? report : nullptr;
}

bool is_current(const ReplicationClaim& claim, const api::EdgeNode& node,
                std::string_view snapshot) {
  const api::EdgeReplicaReport* report = report_of(claim, node);
  return !snapshot.empty() && report != nullptr && report->snapshot == snapshot;
}

std::string snapshot_of(const ReplicationClaim& claim, const ReplicationWorld& world) {
  const api::EdgeShareReport* offer = offer_of(claim, world);
  return offer == nullptr ? "" : offer->snapshot;
}

/// Each node starts at another position, to spread the load.
void add_helpers(std::string_view node, const std::vector<std::string>& current,
                 std::vector<std::string>& helpers) {
  if (current.empty()) return;
  const std::size_t begin = std::hash<std::string_view>()(node) % current.size();
  for (std::size_t i = 0; i < current.size() && helpers.size() < kHelpersMax; ++i) {
    const std::string& one = current[(begin + i) % current.size()];
    if (one != node && std::find(helpers.begin(), helpers.end(), one) == helpers.end())
      helpers.push_back(one);
  }
}

/// The node's present sources besides the node with the files, limited to those in `right`.
std::vector<std::string> helpers_before(const ReplicationClaim& claim, const api::EdgeNode* node,
                                        const std::vector<std::string>& right) {
  std::vector<std::string> out;
  const api::EdgeReplica* before = node == nullptr ? nullptr : find(node->spec.replicas, claim.key);
  if (before == nullptr) return out;
  for (const api::EdgeReplicaSource& source : before->sources) {
    const bool stays = source.node != claim.node &&
                       std::find(right.begin(), right.end(), source.node) != right.end();
    if (stays && out.size() < kHelpersMax) out.push_back(source.node);
  }
  return out;
}

/// True if other nodes can copy from this node.
bool can_serve(const api::EdgeNode* node) {
  return node != nullptr && !is_out(*node) && !node->status.usable_peer_url().empty();
}

/// Nodes with the current copy that other nodes can copy from.
std::vector<std::string> serving_copies(const ReplicationClaim& claim,
                                        const std::vector<std::string>& wanted,
                                        const ReplicationWorld& world) {
  const std::string snapshot = snapshot_of(claim, world);
  std::vector<std::string> out;
  for (const std::string& name : wanted) {
    const api::EdgeNode* node = edge_node(world, name);
    if (is_current(claim, *node, snapshot) && can_serve(node) && connected(*node))
      out.push_back(name);
  }
  return out;
}

/// True if the node asks for the files through the registry.
bool asks_for_relay(const ReplicationClaim& claim, const api::EdgeNode& node) {
  const api::EdgeReplicaReport* report = report_of(claim, node);
  return report != nullptr && report->relay;
}

/// True if the node with the files must upload them. Only while a connected node lacks them, so
/// that later uploads wait for the next change.
bool needs_relay(const ReplicationClaim& claim, const std::vector<std::string>& wanted,
                 const ReplicationWorld& world) {
  const api::EdgeShareReport* offer = offer_of(claim, world);
  if (offer == nullptr || offer->snapshot.empty() || offer->bytes > kRelayBytesMax) return false;
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    const api::EdgeNode& node = *edge_node(world, name);
    return connected(node) && asks_for_relay(claim, node) &&
           !is_current(claim, node, offer->snapshot);
  });
}

/// Facts for readers of the copy, with the last counts of the node with the files. Beyond the size
/// limit, long lists are left out.
Json metadata_for_copy(const ReplicationClaim& claim, const ReplicationWorld& world) {
  Json out = claim.metadata;
  if (out.is_null()) return out;
  const api::EdgeNode* source = edge_node(world, claim.node);
  const api::EdgeDatasetReport* report =
      source == nullptr ? nullptr : source->status.find_dataset(claim.key);
  const bool counted = report != nullptr && report->uid == claim.uid && report->samples &&
                       *report->samples >= 0 && offer_of(claim, world) != nullptr;
  if (counted) {
    Json status =
        Json::object({{"numberOfSamples", *report->samples}, {"exact", report->inexact.empty()}});
    Json classes = Json::array({});
    for (const api::EdgeClassCount& one : report->classes)
      classes.push_back(Json::object({{"name", one.name}, {"count", one.count}}));
    if (classes.size() > 0) status.set("classes", std::move(classes));
    out.set("status", std::move(status));
  }
  constexpr std::array<std::pair<const char*, const char*>, 3> kLongLists{
      {{"status", "classes"}, {"spec", "labels"}, {"metadata", "labels"}}};
  for (const auto& [part, list] : kLongLists) {
    if (codec::write_json(out).size() <= kMetadataBytesMax) break;
    if (out.contains(part)) out[part].erase(list);
  }
  return out;
}

struct Cause {
  std::string reason, message;
};

/// Why nodes without a copy cannot get one from the node with the files. Nothing: they can.
std::optional<Cause> cause_at_source(const ReplicationClaim& claim, const ReplicationWorld& world) {
  const std::string node = "node " + claim.node;
  const api::EdgeNode* source = edge_node(world, claim.node);
  if (source == nullptr)
    return Cause{"SourceUnknown", node + " has the files and runs no agent: EdgeNode " +
                                      claim.node + " does not exist"};
  if (is_out(*source))
    return Cause{"SourceRevoked", node + " has the files and is revoked (edgeai.io/revoked)"};
  const api::EdgeShareReport* offer = offer_of(claim, world);
  if (offer != nullptr && offer->state == api::EdgeShareReport::kFailed)
    return Cause{offer->reason, offer->message};
  if (!connected(*source))
    return Cause{"SourceUnreachable", node + " has the files and is not connected"};
  if (!can_serve(source))
    return Cause{"SourceNotListening",
                 node +
                     " has the files and no address for other nodes: give the agent --address, "
                     "and let the node join through a gateway"};
  if (offer == nullptr || offer->snapshot.empty())
    return Cause{"WaitingForSource",
                 node + " has not reported a snapshot of " + claim.path + " yet"};
  return std::nullopt;
}

/// Where the relay for a node without the current copy stands. Nothing: the node asks for none, or
/// the node with the files cannot upload anything.
std::optional<Cause> cause_in_relay(const ReplicationClaim& claim, const ReplicationWorld& world,
                                    const api::NodeReplica& replica, const api::EdgeNode& node) {
  const api::EdgeNode* source = edge_node(world, claim.node);
  const api::EdgeShareReport* offer = offer_of(claim, world);
  if (!asks_for_relay(claim, node) || source == nullptr || is_out(*source) || !connected(*source) ||
      offer == nullptr || replica.state == api::NodeReplica::kFailed)
    return std::nullopt;
  const std::string why = "node " + replica.node + " does not reach node " + claim.node;
  if (offer->bytes > kRelayBytesMax)
    return Cause{"RelayTooLarge", why + ", and the registry relays at most " +
                                      std::to_string(kRelayBytesMax) + " bytes; the files have " +
                                      std::to_string(offer->bytes)};
  if (offer->relayed == offer->snapshot)
    return Cause{"Relayed", "through the registry, since " + why +
                                (replica.bytes_total > 0
                                     ? ": " + std::to_string(replica.bytes_done) + " of " +
                                           std::to_string(replica.bytes_total) + " bytes are copied"
                                     : "")};
  if (offer->relay_reason.empty() || offer->relay_reason == "Relaying")
    return Cause{"Relaying", "node " + claim.node + " uploads the files to the registry, since " +
                                 why +
                                 (offer->relay_message.empty() ? "" : ": " + offer->relay_message)};
  return Cause{offer->relay_reason,
               why + ", and the files cannot go through the registry: " + offer->relay_message};
}

/// Why a node lacks the current copy.
Cause cause_at_node(const api::NodeReplica& replica, const api::EdgeReplicaReport* report,
                    const std::string& snapshot) {
  if (report != nullptr && report->state == api::EdgeReplicaReport::kCopying)
    return {"Copying", replica.bytes_total > 0
                           ? std::to_string(replica.bytes_done) + " of " +
                                 std::to_string(replica.bytes_total) + " bytes are copied"
                           : "the node copies the files"};
  if (report != nullptr && report->state == api::EdgeReplicaReport::kFailed)
    return {"Failed", "the node reports a failure without a reason"};
  return {"WaitingForNode", "the node has not begun to copy snapshot " + snapshot.substr(0, 12)};
}

/// Without another reason, the reason of the whole says that copies go through the registry.
void explain_relay(api::ReplicationStatus& status) {
  if (!status.reason.empty()) return;
  std::size_t through = 0;
  const api::NodeReplica* waiting = nullptr;
  for (const api::NodeReplica& node : status.nodes) {
    if (node.reason == "Relayed") ++through;
    if (waiting == nullptr && node.reason.starts_with("Relay") && node.reason != "Relayed")
      waiting = &node;
  }
  if (waiting != nullptr) {
    status.reason = waiting->reason;
    status.message = waiting->message;
  } else if (through > 0) {
    status.reason = "Relayed";
    status.message = std::to_string(through) + " of " + std::to_string(status.nodes.size()) +
                     " nodes copy through the registry, since they do not reach the files";
  }
}

}  // namespace

Json metadata_of(const meta::Resource& resource, const meta::ObjectMeta& metadata, Json spec) {
  Json names = Json::object({{"namespace", metadata.ns}, {"name", metadata.name}});
  Json labels = Json::object({});
  for (const auto& [key, value] : metadata.labels) labels.set(key, value);
  if (!metadata.labels.empty()) names.set("labels", std::move(labels));
  return Json::object({{"apiVersion", resource.api_version()},
                       {"kind", resource.kind},
                       {"metadata", std::move(names)},
                       {"spec", std::move(spec)}});
}

std::optional<std::string> local_path(const std::string& url) {
  std::string path = url;
  if (url.starts_with("file://")) {
    auto decoded = net::percent_decode(url.substr(7));
    if (!decoded.ok()) return {};
    path = std::move(decoded).value();
  }
  if (!path.starts_with("/") || path.size() > 4096 || path.find('\0') != std::string::npos)
    return {};
  return path;
}

bool selects(const api::Replication& spec, const std::map<std::string, std::string>& labels) {
  return std::all_of(spec.node_selector.begin(), spec.node_selector.end(), [&](const auto& wanted) {
    const auto at = labels.find(wanted.first);
    return at != labels.end() && at->second == wanted.second;
  });
}

std::vector<std::string> replica_nodes(const ReplicationClaim& claim,
                                       const ReplicationWorld& world) {
  std::vector<std::string> out;
  for (const auto& node : world.nodes) {
    const std::string& name = node->metadata.name;
    if (!selects(claim.spec, node->metadata.labels) || name == claim.node) continue;
    if (const api::EdgeNode* one = edge_node(world, name); one != nullptr && !is_out(*one))
      out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  if (out.size() > kNodesMax) out.resize(kNodesMax);
  return out;
}

ReplicationWork replication_for(std::string_view node, const std::vector<ReplicationClaim>& claims,
                                const ReplicationWorld& world) {
  ReplicationWork out;
  if (const api::EdgeNode* self = edge_node(world, node); self != nullptr && is_out(*self))
    return out;
  for (const ReplicationClaim& claim : claims) {
    const std::vector<std::string> wanted = replica_nodes(claim, world);
    const bool has_files = claim.node == node;
    const bool wants = std::binary_search(wanted.begin(), wanted.end(), node);
    if (!has_files && !wants) continue;
    if (has_files) {
      if (!wanted.empty())
        out.shares.push_back({.key = claim.key,
                              .path = claim.path,
                              .nodes = wanted,
                              .relay = needs_relay(claim, wanted, world),
                              .unknown = {}});
      continue;
    }
    const std::string snapshot = snapshot_of(claim, world);
    const std::vector<std::string> current = serving_copies(claim, wanted, world);
    const api::EdgeNode& self = *edge_node(world, node);
    const api::EdgeShareReport* offer = offer_of(claim, world);
    const bool relay =
        asks_for_relay(claim, self) && !snapshot.empty() && offer->relayed == snapshot;
    api::EdgeReplica replica{.key = claim.key,
                             .uid = claim.uid,
                             .snapshot = snapshot,
                             .sources = {},
                             .relay = relay,
                             .metadata = metadata_for_copy(claim, world),
                             .unknown = {}};
    const bool is_behind = !is_current(claim, self, snapshot);
    std::vector<std::string> sources = helpers_before(claim, &self, is_behind ? current : wanted);
    if (is_behind) add_helpers(node, current, sources);
    sources.push_back(claim.node);
    for (const std::string& name : sources) {
      const api::EdgeNode* source = edge_node(world, name);
      if (can_serve(source))
        replica.sources.push_back(
            {.node = name, .url = source->status.usable_peer_url(), .unknown = {}});
    }
    out.replicas.push_back(std::move(replica));
    std::vector<std::string> others = wanted;
    std::erase(others, node);
    const api::EdgeReplicaReport* copy = report_of(claim, self);
    if (copy != nullptr && !copy->snapshot.empty() && !others.empty())
      out.shares.push_back(
          {.key = claim.key, .path = "", .nodes = std::move(others), .unknown = {}});
  }
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(out.shares.begin(), out.shares.end(), by_key);
  std::sort(out.replicas.begin(), out.replicas.end(), by_key);
  if (out.shares.size() > kListMax) out.shares.resize(kListMax);
  if (out.replicas.size() > kListMax) out.replicas.resize(kListMax);
  return out;
}

api::ReplicationStatus observe_replication(const ReplicationClaim& claim,
                                           const ReplicationWorld& world,
                                           const api::ReplicationStatus& before,
                                           std::string_view now) {
  api::ReplicationStatus out;
  out.unknown = before.unknown;
  if (const api::EdgeShareReport* offer = offer_of(claim, world)) {
    out.snapshot = offer->snapshot;
    out.bytes = std::max<std::int64_t>(offer->bytes, 0);
    out.files = std::max<std::int64_t>(offer->files, 0);
    if (offer->state == api::EdgeShareReport::kFailed) {
      out.reason = offer->reason;
      out.message = offer->message;
    }
  }
  const std::vector<std::string> wanted = replica_nodes(claim, world);
  out.wanted = static_cast<std::int64_t>(wanted.size());
  if (wanted.empty() && out.reason.empty()) {
    out.reason = "NoNodeSelected";
    out.message =
        "no other unrevoked node with an agent matches nodeSelector (`kubectl get nodes "
        "--show-labels` lists labels)";
  }
  const std::optional<Cause> source = cause_at_source(claim, world);
  const bool no_source =
      !can_serve(edge_node(world, claim.node)) && serving_copies(claim, wanted, world).empty();
  for (const std::string& name : wanted) {
    const api::EdgeNode& node = *edge_node(world, name);
    const api::EdgeReplicaReport* report = report_of(claim, node);
    api::NodeReplica& one = out.nodes.emplace_back();
    one.node = name;
    one.state = api::NodeReplica::kPending;
    if (report != nullptr) {
      one.state = report->state;
      one.snapshot = report->snapshot;
      one.path = report->path;
      one.reason = report->reason;
      one.message = report->message;
      one.bytes_done = std::max<std::int64_t>(report->bytes_done, 0);
      one.bytes_total = std::max<std::int64_t>(report->bytes_total, 0);
    }
    // A node reports its state for the claim that it knew; whether that is current is decided here.
    if (is_current(claim, node, out.snapshot)) {
      one.state = api::NodeReplica::kCurrent;
      one.reason.clear();
      one.message.clear();
      if (report->relay) {
        one.reason = "Relayed";
        one.message = "the copy came through the registry";
      }
      ++out.current;
      continue;
    }
    const auto explain = [&](Cause cause) {
      one.reason = std::move(cause.reason);
      one.message = codec::clipped(cause.message, kMessageBytesMax);
    };
    if (one.state == api::NodeReplica::kCurrent) one.state = api::NodeReplica::kPending;
    if (!connected(node)) {
      one.state = api::NodeReplica::kUnreachable;
      const std::string& since = node.status.last_seen;
      explain({"NodeUnreachable",
               "the node is not connected" + (since.empty() ? "" : " since " + since)});
    } else if (out.snapshot.empty()) {
      explain({"WaitingForSource", source ? source->message : ""});
    } else if (auto relay = cause_in_relay(claim, world, one, node)) {
      explain(std::move(*relay));
    } else if (no_source) {
      explain({"NoSource", source ? source->message : ""});
    } else if (one.reason.empty()) {
      explain(cause_at_node(one, report, out.snapshot));
    }
    const api::NodeReplica* was = before.find_node(name);
    one.behind_since =
        was != nullptr && !was->behind_since.empty() ? was->behind_since : std::string(now);
  }
  if (source && out.reason.empty() && out.current < out.wanted) {
    out.reason = source->reason;
    out.message = source->message;
  }
  explain_relay(out);
  std::stable_sort(out.nodes.begin(), out.nodes.end(),
                   [](const api::NodeReplica& a, const api::NodeReplica& b) {
                     return a.behind_since.empty() < b.behind_since.empty();
                   });
  if (out.nodes.size() > api::ReplicationStatus::kNodesMax)
    out.nodes.resize(api::ReplicationStatus::kNodesMax);
  return out;
}

}  // namespace varda::controllers::replication
