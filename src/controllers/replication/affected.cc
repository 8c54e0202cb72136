
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "api/edgeai/revocation.h"
#include "controllers/replication/replication.h"

namespace varda::controllers::replication {

namespace {

using meta::ObjectKey;

void add_nodes(const ReplicationClaim& claim, const runtime::Caches& caches,
               std::set<std::string>& names) {
  const auto edge_nodes = caches.of<api::EdgeNode>();
  if (edge_nodes.get({"", claim.node}) != nullptr) names.insert(claim.node);
  for (const auto& node : hosting::nodes_with(claim.spec.node_selector, caches)) {
    const std::string& name = node->metadata.name;
    if (edge_nodes.get({"", name}) != nullptr) names.insert(name);
  }
}

std::vector<ObjectKey> keys_of(const std::set<std::string>& names) {
  std::vector<ObjectKey> out;
  for (const std::string& name : names) out.push_back({"", name});
  return out;
}

bool is_connected(const api::EdgeNode& node) {
  const meta::Condition* connected = meta::find_condition(node.status.conditions, "Connected");
  return connected != nullptr && connected->status == "True";
}

/// Counts of the shared datasets, which copies carry. The fingerprint covers the classes.
auto counts_of_shares(const api::EdgeNode& node) {
  std::vector<std::tuple<std::string, std::string, std::optional<std::int64_t>, std::string>> out;
  for (const api::EdgeShareReport& share : node.status.shares) {
    if (const api::EdgeDatasetReport* report = node.status.find_dataset(share.key))
      out.emplace_back(report->key, report->uid, report->samples,
                       report->inexact + " " + report->fingerprint);
  }
  return out;
}

template <typename List, typename Facts>
bool same_list(const List& a, const List& b, Facts facts) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const auto& x, const auto& y) { return facts(x) == facts(y); });
}

}  // namespace

std::vector<ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches) {
  std::set<std::string> names;
  add_nodes(claim, caches, names);
  return keys_of(names);
}

ReplicationWorld world_of(const std::vector<ReplicationClaim>& claims,
                          const runtime::Caches& caches) {
  hosting::NodeSet nodes(caches);
  for (const ReplicationClaim& claim : claims) {
    nodes.add(claim.node);
    nodes.add_all(hosting::nodes_with(claim.spec.node_selector, caches));
  }
  ReplicationWorld world{.nodes = nodes.list(), .edge_nodes = {}};
  const auto add = [&](const std::string& name) {
    if (auto node = caches.of<api::EdgeNode>().get({"", name}))
      world.edge_nodes.emplace(name, std::move(node));
  };
  for (const auto& node : world.nodes) add(node->metadata.name);
  for (const ReplicationClaim& claim : claims) add(claim.node);
  return world;
}

bool same_for_other_nodes(const api::Node& a, const api::Node& b) {
  return a.metadata.uid == b.metadata.uid && a.metadata.labels == b.metadata.labels;
}

bool same_for_other_nodes(const api::EdgeNode& a, const api::EdgeNode& b) {
  return a.metadata.uid == b.metadata.uid && a.status.peer_url == b.status.peer_url &&
         is_connected(a) == is_connected(b) &&
         api::is_revoked(a.metadata) == api::is_revoked(b.metadata) &&
         same_list(a.status.shares, b.status.shares,
                   [](const auto& one) {
                     return std::tie(one.key, one.path, one.snapshot, one.relayed);
                   }) &&
         counts_of_shares(a) == counts_of_shares(b) &&
         same_list(a.status.replicas, b.status.replicas, [](const auto& one) {
           return std::tie(one.key, one.uid, one.snapshot, one.relay);
         });
}

bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b) {
  return a.uid == b.uid && a.generation == b.generation && a.labels == b.labels &&
         a.deleting() == b.deleting();
}

}  // namespace varda::controllers::replication
