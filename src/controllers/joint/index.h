// Index of JointInferenceServices by node, model and port: one change must not scan thousands of
// services. Watches fill it, so it is complete before the first reconcile. Thread-safe.
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
#include "hosting/port_claims.h"

namespace varda::controllers::joint {

class JointIndex {
 public:
  using Keys = std::vector<meta::ObjectKey>;

  /// Stores the present service; null: it is gone.
  void set(const meta::ObjectKey& key, const api::JointInferenceService* service);
  /// Stores the present InferenceModel; null: it is gone. Returns woken().
  Keys set(const meta::ObjectKey& key, const api::InferenceModel* model);

  /// Services with a tier that refers to a Model or an InferenceModel of this name, or with a child
  /// of this name.
  Keys of_model(const meta::ObjectKey& model) const;
  /// Services with a tier that names the node, and services that every node affects.
  Keys of_node(const std::string& node) const;
  /// Stores the node of a pod of `service`; "": the pod is gone, or not bound.
  void set_pod(const meta::ObjectKey& pod, const meta::ObjectKey& service, const std::string& node);
  /// Services with a first tier that may be on the node, or has a pod there.
  Keys first_on(const std::string& node) const;
  /// True: some service's first tier may be on any node.
  bool any_node_is_first() const;
  /// {true, node}: the first tier is on that node ("": unknown service). {false, ""}: on any node.
  std::pair<bool, std::string> first_node(const meta::ObjectKey& service) const;

  /// Stores the node ports that a service's pods and children want by the latest plan.
  void set_claims(const meta::ObjectKey& service, std::vector<hosting::PortClaim> claims);
  /// Services affected by claims that began or ended since the last call. They want the same port
  /// of the same node, or wait for a port that is free now. Returns each once.
  Keys woken();
  /// The service waits for a port that another owner has on one of these nodes. Empty: it waits no
  /// more.
  void set_waiting(const meta::ObjectKey& service, std::vector<std::string> nodes);
  /// Claims of all other owners on these nodes.
  std::vector<hosting::PortClaim> claims_on(const std::vector<std::string>& nodes,
                                            const std::string& but_uid) const;

  /// Services affected by the changes of `node` since the last call. A change of the node itself
  /// affects all services of the node. Null: the node is gone.
  Keys changes_of(const std::string& name, const api::EdgeNode* node);
  Keys changes_of(const std::string& name, const api::Node* node);

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
  struct LastReport {
    std::uint64_t facts = 0;
    std::map<std::string, std::uint64_t> reports;  // by key of a model, or uid of a service
  };
  void forget(const meta::ObjectKey& key) REQUIRES(mutex_);
  void claim(const std::string& owner, std::vector<hosting::PortClaim> claims) REQUIRES(mutex_);
  Keys of_node_locked(const std::string& node) const REQUIRES(mutex_);
  void wake(const std::string& owner, const std::vector<hosting::PortClaim>& before,
            const std::vector<hosting::PortClaim>& now) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<meta::ObjectKey, Entry> services_ GUARDED_BY(mutex_);
  std::map<std::string, meta::ObjectKey> by_uid_ GUARDED_BY(mutex_);
  std::map<meta::ObjectKey, KeySet> by_model_ GUARDED_BY(mutex_);
  std::map<std::string, KeySet> by_node_ GUARDED_BY(mutex_);
  KeySet every_node_ GUARDED_BY(mutex_);
  std::map<std::string, KeySet> first_by_node_ GUARDED_BY(mutex_);
  KeySet first_anywhere_ GUARDED_BY(mutex_);
  std::map<std::string, std::vector<hosting::PortClaim>> claims_ GUARDED_BY(mutex_);  // by owner
  std::map<std::string, std::set<std::string>> claims_by_node_ GUARDED_BY(mutex_);    // owners
  std::map<meta::ObjectKey, std::vector<std::string>> waiting_ GUARDED_BY(mutex_);
  std::map<std::string, std::map<meta::ObjectKey, meta::ObjectKey>> pods_by_node_
      GUARDED_BY(mutex_);  // pod to service
  std::map<meta::ObjectKey, std::string> node_of_pod_ GUARDED_BY(mutex_);
  std::set<meta::ObjectKey> woken_ GUARDED_BY(mutex_);
  std::map<std::string, LastReport> agents_ GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> nodes_ GUARDED_BY(mutex_);
};

}  // namespace varda::controllers::joint
