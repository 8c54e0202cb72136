// Deployments without ReplicaSets: pods are made from the template directly and told apart by its hash in their labels.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/deployment.h"
#include "api/core/pod.h"
#include "controllers/builtin/builtin.h"
#include "runtime/controller.h"

namespace varda::controllers {

inline constexpr std::string_view kTemplateHashLabel = "pod-template-hash";

using PodList = std::vector<std::shared_ptr<const api::Pod>>;

struct DeploymentPlan {
  std::vector<codec::Json> create;  // with generateName
  PodList remove;
  codec::Json status;
  std::string problem;            // the spec cannot be followed: nothing is created or removed
  std::optional<Duration> again;  // something depends on time alone: availability, the progress deadline, a failed pod's age
};

/// Ten characters for a pod template: the same for the same template, whatever the order of its members.
std::string template_hash(const codec::Json& pod_template);

/// Pure. `pods`: what the Deployment controls, also those on their way out.
DeploymentPlan plan_deployment(const api::Deployment& deployment, const PodList& pods, WallTime now,
                               std::chrono::seconds failed_pod_delay);

class DeploymentReconciler {
 public:
  DeploymentReconciler(const runtime::Caches& caches, const BuiltinOptions& options);
  void watches(runtime::Watches<api::Deployment>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Deployment& deployment, runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const BuiltinOptions options_;
  const Clock& clock_;
};

}  // namespace varda::controllers
