// By what the caches find pods, ReplicaSets and Services (runtime::Watches::indexes): a change of one pod is no look at thousands.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "api/core/replica_set.h"
#include "api/core/service.h"
#include "runtime/informer.h"

namespace varda::controllers {

/// Of Pods: the namespace of one that a ReplicaSet might take: nobody controls it, or a Deployment does.
inline constexpr const char* kPodsToTake = "to take";
std::vector<std::string> pods_to_take(const api::Pod& pod);

/// Of ReplicaSets: the namespace of one that nobody controls.
inline constexpr const char* kSetsToTake = "to take";
std::vector<std::string> sets_to_take(const api::ReplicaSet& set);

/// Of Pods: each of its labels, with the namespace.
inline constexpr const char* kPodsByLabel = "label";
std::vector<std::string> pods_by_label(const api::Pod& pod);
/// Those with all of these labels; none of no labels. By name.
std::vector<std::shared_ptr<const api::Pod>> pods_labelled(const runtime::Caches& caches, const std::string& ns,
                                                           const std::map<std::string, std::string>& labels);

/// All of these labels, of whatever carries `labels`.
bool has_all(const std::map<std::string, std::string>& labels, const std::map<std::string, std::string>& wanted);

/// Of Services: the first label that one selects by, with the namespace.
inline constexpr const char* kServicesByLabel = "first label";
std::vector<std::string> services_by_label(const api::Service& service);
/// Those that select a pod of these labels.
std::vector<std::shared_ptr<const api::Service>> services_selecting(const runtime::Caches& caches, const std::string& ns,
                                                                    const std::map<std::string, std::string>& labels);

}  // namespace varda::controllers
