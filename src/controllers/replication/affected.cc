#include "controllers/replication/affected.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "api/edgeai/revocation.h"
#include "controllers/dataset/plan.h"
#include "controllers/model/plan.h"

namespace varda::controllers {

namespace {

using meta::ObjectKey;

template <typename T>
void add_claims(const runtime::Caches& caches, std::vector<ReplicationClaim>& claims) {
  for (const auto& object : caches.of<T>().list())
    for (ReplicationClaim& claim : claims_in(*object)) claims.push_back(std::move(claim));
}

void add_nodes(const ReplicationClaim& claim, const runtime::Caches& caches,
               std::set<std::string>& names) {
  const auto edge_nodes = caches.of<api::EdgeNode>();
  if (edge_nodes.get({"", claim.node}) != nullptr) names.insert(claim.node);
  for (const auto& node : caches.of<api::Node>().list()) {
    const std::string& name = node->metadata.name;
    if (selects(claim.spec, node->metadata.labels) && edge_nodes.get({"", name}) != nullptr)
      names.insert(name);
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

template <typename List, typename Facts>
bool same_list(const List& a, const List& b, Facts facts) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const auto& x, const auto& y) { return facts(x) == facts(y); });
}

}  // namespace

template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::DatasetOf<G>& dataset) {
  auto claim = claim_of(view(dataset));
  return claim ? std::vector<ReplicationClaim>{std::move(*claim)} : std::vector<ReplicationClaim>();
}

template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::ModelOf<G>& model) {
  auto claim = claim_of({api::ModelOf<G>::resource(), model.metadata}, model.spec);
  return claim ? std::vector<ReplicationClaim>{std::move(*claim)} : std::vector<ReplicationClaim>();
}

template std::vector<ReplicationClaim> claims_in(const api::Dataset&);
template std::vector<ReplicationClaim> claims_in(const api::SednaDataset&);
template std::vector<ReplicationClaim> claims_in(const api::Model&);
template std::vector<ReplicationClaim> claims_in(const api::SednaModel&);

std::vector<ReplicationClaim> claims_in(const runtime::Caches& caches) {
  std::vector<ReplicationClaim> out;
  add_claims<api::Dataset>(caches, out);
  add_claims<api::SednaDataset>(caches, out);
  add_claims<api::Model>(caches, out);
  add_claims<api::SednaModel>(caches, out);
  return out;
}

std::vector<ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches) {
  std::set<std::string> names;
  add_nodes(claim, caches, names);
  return keys_of(names);
}

std::vector<ObjectKey> nodes_with(std::string_view node,
                                  const std::map<std::string, std::string>& labels,
                                  const runtime::Caches& caches) {
  std::set<std::string> names;
  for (const ReplicationClaim& claim : claims_in(caches))
    if (claim.node == node || selects(claim.spec, labels)) add_nodes(claim, caches, names);
  return keys_of(names);
}

std::map<std::string, std::string> labels_of(std::string_view node, const runtime::Caches& caches) {
  const auto found = caches.of<api::Node>().get({"", std::string(node)});
  return found == nullptr ? std::map<std::string, std::string>() : found->metadata.labels;
}

bool same_to_others(const api::Node& a, const api::Node& b) {
  return a.metadata.uid == b.metadata.uid && a.metadata.labels == b.metadata.labels;
}

bool same_to_others(const api::EdgeNode& a, const api::EdgeNode& b) {
  return a.metadata.uid == b.metadata.uid && a.status.peer_url == b.status.peer_url &&
         is_connected(a) == is_connected(b) &&
         api::is_revoked(a.metadata) == api::is_revoked(b.metadata) &&
         same_list(a.status.shares, b.status.shares,
                   [](const auto& one) { return std::tie(one.key, one.path, one.snapshot); }) &&
         same_list(a.status.replicas, b.status.replicas,
                   [](const auto& one) { return std::tie(one.key, one.uid, one.snapshot); });
}

bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b) {
  return a.uid == b.uid && a.generation == b.generation && a.deleting() == b.deleting();
}

}  // namespace varda::controllers
