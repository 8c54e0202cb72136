// Which JointInferenceServices a node, a model or a port concerns: what is looked up for every change of those, of thousands of
// services. Kept from what watches bring, so that it is complete before anything is reconciled. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/joint_inference_service.h"
#include "base/mutex.h"
#include "controllers/port_claims.h"

namespace varda::controllers {

class JointIndex {
 public:
  using Keys = std::vector<meta::ObjectKey>;

  /// The service as it is now; null: it is gone.
  void set(const meta::ObjectKey& key, const api::JointInferenceService* service);
  /// An InferenceModel as it is now; null: it is gone. Returns woken().
  Keys set(const meta::ObjectKey& key, const api::InferenceModel* model);

  /// Whose tiers refer to a Model or an InferenceModel of that name, or call a child so.
  Keys of_model(const meta::ObjectKey& model) const;
  /// Whose tiers name the node, and those that any node concerns.
  Keys of_node(const std::string& node) const;
  /// A pod of `service` as it is now, on `node`; "": it is gone, or nowhere.
  void set_pod(const meta::ObjectKey& pod, const meta::ObjectKey& service, const std::string& node);
  /// Whose first tier may be on the node, or has a pod there.
  Keys first_on(const std::string& node) const;
  /// The first tier of some service may be on any node.
  bool any_node_is_first() const;
  /// Where the first tier may be: false, on any node.
  std::pair<bool, std::string> first_node(const meta::ObjectKey& service) const;

  /// What a service's pods and children want of nodes, as it was planned just now.
  void set_claims(const meta::ObjectKey& service, std::vector<PortClaim> claims);
  /// Whom claims that began or ended since the last call concern: services that want the same port of the same node, and those that
  /// wait for one that is free now. Once each.
  Keys woken();
  /// It waits for a port of these nodes that another one has; none: no longer.
  void set_waiting(const meta::ObjectKey& service, std::vector<std::string> nodes);
  /// Of all others on these nodes.
  std::vector<PortClaim> claims_on(const std::vector<std::string>& nodes, const std::string& but_uid) const;

  /// The services of which `node` tells something else than when it was asked about last; all that it concerns where the node
  /// itself is another one. Null: it is gone.
  Keys news_of(const std::string& name, const api::EdgeNode* node);
  Keys news_of(const std::string& name, const api::Node* node);

 private:
  using KeySet = std::set<meta::ObjectKey>;
  struct Entry {
    std::string uid;
    std::int64_t generation = 0;
    std::vector<std::string> endpoints;  // nodes
    std::set<meta::ObjectKey> models;
    std::set<std::string> nodes;
    bool every_node = false;
    bool first_anywhere = false;
    std::string first_node;
  };
  struct NodeWords {
    std::uint64_t facts = 0;
    std::map<std::string, std::uint64_t> reports;  // by key of a model, or of a worker
  };
  void forget(const meta::ObjectKey& key) REQUIRES(mutex_);
  void claim(const std::string& owner, std::vector<PortClaim> claims) REQUIRES(mutex_);
  Keys of_node_locked(const std::string& node) const REQUIRES(mutex_);
  void wake(const std::string& owner, const std::vector<PortClaim>& before, const std::vector<PortClaim>& now) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<meta::ObjectKey, Entry> services_ GUARDED_BY(mutex_);
  std::map<std::string, meta::ObjectKey> by_uid_ GUARDED_BY(mutex_);
  std::map<meta::ObjectKey, KeySet> by_model_ GUARDED_BY(mutex_);
  std::map<std::string, KeySet> by_node_ GUARDED_BY(mutex_);
  KeySet every_node_ GUARDED_BY(mutex_);
  std::map<std::string, KeySet> first_by_node_ GUARDED_BY(mutex_);
  KeySet first_anywhere_ GUARDED_BY(mutex_);
  std::map<std::string, std::vector<PortClaim>> claims_ GUARDED_BY(mutex_);         // by owner
  std::map<std::string, std::set<std::string>> claims_by_node_ GUARDED_BY(mutex_);  // owners
  std::map<meta::ObjectKey, std::vector<std::string>> waiting_ GUARDED_BY(mutex_);
  std::map<std::string, std::map<meta::ObjectKey, meta::ObjectKey>> pods_by_node_ GUARDED_BY(mutex_);  // pod to service
  std::map<meta::ObjectKey, std::string> node_of_pod_ GUARDED_BY(mutex_);
  std::set<meta::ObjectKey> woken_ GUARDED_BY(mutex_);
  std::map<std::string, NodeWords> agents_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> nodes_ GUARDED_BY(mutex_);
};

}  // namespace varda::controllers
