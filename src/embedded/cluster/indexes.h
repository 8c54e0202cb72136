// Index functions for pods, ReplicaSets and Services (runtime::Watches::indexes), so that a change
// of one pod does not scan thousands of objects.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "api/core/replica_set.h"
#include "api/core/service.h"
#include "runtime/informer.h"

namespace varda::cluster {

/// Index of Pods that a ReplicaSet might adopt, by namespace: without controller, or controlled by
/// a Deployment.
inline constexpr const char* kPodsToTake = "to take";
std::vector<std::string> adoptable_pods(const api::Pod& pod);

/// Index of ReplicaSets without controller, by namespace.
inline constexpr const char* kSetsToTake = "to take";
std::vector<std::string> adoptable_sets(const api::ReplicaSet& set);

/// Index of Pods by each label, with the namespace.
inline constexpr const char* kPodsByLabel = "label";
std::vector<std::string> pods_by_label(const api::Pod& pod);
/// Pods with all of these labels, sorted by name; empty for an empty `labels`.
std::vector<std::shared_ptr<const api::Pod>> pods_labelled(
    const runtime::Caches& caches, const std::string& ns,
    const std::map<std::string, std::string>& labels);

/// True if `labels` contains all of `wanted`.
bool has_all(const std::map<std::string, std::string>& labels,
             const std::map<std::string, std::string>& wanted);

/// Index of Services by the first label of the selector, with the namespace.
inline constexpr const char* kServicesByLabel = "first label";
std::vector<std::string> services_by_label(const api::Service& service);
/// Services that select a pod with these labels.
std::vector<std::shared_ptr<const api::Service>> services_selecting(
    const runtime::Caches& caches, const std::string& ns,
    const std::map<std::string, std::string>& labels);

}  // namespace varda::cluster
