#include "gateway/node_removal.h"

#include <optional>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "gateway/caller.h"
#include "gateway/node_key.h"
#include "meta/object.h"
#include "meta/resources.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::size_t kPodsNamedMax = 3;

/// True: the object was there.
Result<bool> remove_if_present(const Context& ctx, const kube::Client& client,
                               const meta::Resource& resource, const meta::ObjectKey& key) {
  const auto removed = client.remove(ctx, resource, key);
  if (removed.ok()) return true;
  if (removed.error().code() == Code::kNotFound) return false;
  return Error(removed.error()).context(resource.kind + " " + key.str());
}

Result<std::vector<std::string>> pods_of(const Context& ctx, const kube::Client& client,
                                         const std::string& node) {
  kube::ListOptions options;
  options.field_selector = "spec.nodeName=" + node;
  TRY(const kube::List pods, client.list_all(ctx, api::Pod::resource(), options));
  std::vector<std::string> out;
  for (const Json& pod : pods.items) {
    const std::string& phase = pod.at("status/phase").as_string();
    if (phase == "Succeeded" || phase == "Failed") continue;
    out.push_back(pod.at("metadata/namespace").as_string() + "/" +
                  pod.at("metadata/name").as_string());
  }
  return out;
}

bool is_connected(const Json& edge_node) {
  for (const Json& condition : edge_node.at("status/conditions").as_array()) {
    if (condition["type"].as_string() == "Connected")
      return condition["status"].as_string() == "True";
  }
  return false;
}

Error has_pods(const std::string& node, const std::vector<std::string>& pods) {
  std::string names;
  for (std::size_t i = 0; i < pods.size() && i < kPodsNamedMax; ++i)
    names += (i > 0 ? ", " : "") + pods[i];
  if (pods.size() > kPodsNamedMax) names += ", ...";
  return {Code::kConflict, std::to_string(pods.size()) +
                               (pods.size() == 1 ? " pod is" : " pods are") + " bound to node \"" +
                               node + "\" (" + names + ")"};
}

}  // namespace

Result<RemovedNode> remove_node(const Context& ctx, const kube::Client& client,
                                const std::string& node, RemovalRisk risk) {
  if (const std::string why = meta::check_dns_subdomain(node); !why.empty()) {
    return Error(Code::kInvalid, "node \"" + node + "\": " + why);
  }
  RemovedNode out;
  TRY(const std::optional<Json> edge_node, client.find(ctx, api::EdgeNode::resource(), {"", node}));
  TRY(const std::optional<Json> present, client.find(ctx, api::Node::resource(), {"", node}));
  TRY(out.key, has_node_key(ctx, client, node));
  if (!edge_node && !present && !out.key) {
    return Error(Code::kNotFound, "there is no node \"" + node +
                                      "\": no Node, no EdgeNode and no key of it; " +
                                      "`varda get nodes,edgenodes` shows the nodes");
  }
  TRY(out.pods, pods_of(ctx, client, node));
  if (risk == RemovalRisk::kNone && !out.pods.empty()) return has_pods(node, out.pods);
  if (risk == RemovalRisk::kNone && edge_node && is_revoked(*edge_node)) {
    return Error(
        Code::kConflict,
        "node \"" + node + "\" is revoked (" + std::string(kRevokedAnnotation) +
            "); without the EdgeNode, the node's certificate is valid again until it expires");
  }
  out.connected = edge_node && is_connected(*edge_node);
  // The key first: after that no renewal admits the node again.
  if (out.key) TRY_VOID(forget_node_key(ctx, client, node));
  TRY(out.edge_node, remove_if_present(ctx, client, api::EdgeNode::resource(), {"", node}));
  // The Lease before the Node: the Node owns the Lease, so its deletion removes the Lease too.
  TRY(out.lease, remove_if_present(ctx, client, meta::core::leases(), {"kube-node-lease", node}));
  TRY(out.node, remove_if_present(ctx, client, api::Node::resource(), {"", node}));
  return out;
}

}  // namespace varda::gateway
