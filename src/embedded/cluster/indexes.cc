#include "cluster/indexes.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace varda::cluster {

namespace {

using Labels = std::map<std::string, std::string>;

// Above this size of a result, a lookup of the next label may be cheaper.
constexpr std::size_t kFew = 16;

std::string labelled(const std::string& ns, const Labels::value_type& label) {
  return ns + "/" + label.first + "=" + label.second;
}

}  // namespace

// Called for every pod and Service, thus avoids building a LabelSelector.
bool has_all(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& one) {
    const auto found = labels.find(one.first);
    return found != labels.end() && found->second == one.second;
  });
}

std::vector<std::string> adoptable_pods(const api::Pod& pod) {
  const meta::OwnerReference* controller = pod.metadata.controller();
  if (controller != nullptr && controller->kind != "Deployment") return {};
  return {pod.metadata.ns};
}

std::vector<std::string> adoptable_sets(const api::ReplicaSet& set) {
  if (set.metadata.controller() != nullptr) return {};
  return {set.metadata.ns};
}

std::vector<std::string> pods_by_label(const api::Pod& pod) {
  std::vector<std::string> out;
  for (const auto& label : pod.metadata.labels) out.push_back(labelled(pod.metadata.ns, label));
  return out;
}

std::vector<std::shared_ptr<const api::Pod>> pods_labelled(const runtime::Caches& caches,
                                                           const std::string& ns,
                                                           const Labels& labels) {
  std::optional<std::vector<std::shared_ptr<const api::Pod>>> fewest;
  for (const auto& label : labels) {
    auto pods = caches.of<api::Pod>().by_index(kPodsByLabel, labelled(ns, label));
    if (!fewest || pods.size() < fewest->size()) fewest = std::move(pods);
    if (fewest->size() <= kFew) break;
  }
  if (!fewest) return {};
  std::erase_if(*fewest, [&](const auto& pod) { return !has_all(pod->metadata.labels, labels); });
  return std::move(*fewest);
}

std::vector<std::string> services_by_label(const api::Service& service) {
  if (service.spec.selector.empty()) return {};
  return {labelled(service.metadata.ns, *service.spec.selector.begin())};
}

std::vector<std::shared_ptr<const api::Service>> services_selecting(const runtime::Caches& caches,
                                                                    const std::string& ns,
                                                                    const Labels& labels) {
  std::vector<std::shared_ptr<const api::Service>> out;
  for (const auto& label : labels) {
    for (auto& service :
         caches.of<api::Service>().by_index(kServicesByLabel, labelled(ns, label))) {
      if (has_all(labels, service->spec.selector)) out.push_back(std::move(service));
    }
  }
  return out;
}

}  // namespace varda::cluster
