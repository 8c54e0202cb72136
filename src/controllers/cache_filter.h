// Limits the cached objects of a process that runs only these controllers beside a cluster's own.
#pragma once

#include "runtime/informer.h"

namespace varda::controllers {

/// For runtime::Manager::Options::informers. A cluster has thousands of foreign Pods, Deployments,
/// Jobs, Services and HorizontalPodAutoscalers: only those of models and jobs are kept whole.
/// EndpointSlices are all kept: they are small, and another controller chooses their labels.
/// Objects of these six kinds are kept as text, with a few decoded: lookups use the owner or an
/// index. Nodes lose the fields that no controller here reads.
void filter_caches(runtime::Informer::Options& options);

}  // namespace varda::controllers
