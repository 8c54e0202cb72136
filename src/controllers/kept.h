// What a process that runs these controllers beside a cluster's own, and no others, keeps of the objects of that cluster.
#pragma once

#include "runtime/informer.h"

namespace varda::controllers {

/// For runtime::Manager::Options::informers. Of pods, Deployments and Services only those of models and jobs are kept whole: a
/// cluster has thousands that are none of ours. EndpointSlices are another's to write, with what labels they like, and small. Of
/// these four the text is kept, a few of each as C++ objects: they are found by their owner or by an index, not looked through. Of
/// nodes goes what nobody here reads.
void keep_only_ours(runtime::Informer::Options& options);

}  // namespace varda::controllers
