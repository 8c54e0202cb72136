#include "controllers/cache_filter.h"

#include <algorithm>

#include "api/core/deployment.h"
#include "api/core/endpoint_slice.h"
#include "api/core/job.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "api/kind.h"
#include "controllers/workers/workers.h"
#include "hosting/labels.h"
#include "runtime/writer.h"

namespace varda::controllers {
namespace {

using codec::Json;

/// An object stays ours if its label was removed, or its owner is gone: the controllers must repair
/// or delete it.
bool is_managed(const Json& object) {
  const Json& metadata = object["metadata"];
  const Json& labels = metadata["labels"];
  if (labels.contains(hosting::kModelLabel) || labels.contains(workers::kJobLabel) ||
      metadata["annotations"].contains(runtime::kLastApplied))
    return true;
  const auto& owners = metadata["ownerReferences"].as_array();
  return std::any_of(owners.begin(), owners.end(), [](const Json& owner) {
    const std::string& version = owner["apiVersion"].as_string();
    const std::string group = version.substr(0, version.find('/'));
    return std::any_of(api::kinds().begin(), api::kinds().end(),
                       [&](const api::Kind* kind) { return kind->resource.group == group; });
  });
}

void trim_node(Json& node) {
  if (Json* const status = node.find("status"); status && status->is_object()) {
    for (const char* member : {"images", "volumesInUse", "volumesAttached"}) status->erase(member);
  }
}

}  // namespace

void filter_caches(runtime::Informer::Options& options) {
  const meta::Resource& resource = options.resource;
  using Keep = runtime::Informer::Keep;
  if (resource == api::Node::resource()) {
    options.trim = trim_node;
  } else if (resource == api::Pod::resource() || resource == api::Deployment::resource() ||
             resource == api::Service::resource() || resource == api::Job::resource()) {
    options.whole = is_managed;
    options.keep = Keep::kText;
    // Plans repeatedly read a worker's pods on all nodes.
    if (resource == api::Pod::resource()) options.decoded_max = 512;
  } else if (resource == workers::autoscaler_resource()) {
    options.whole = is_managed;
    options.keep = Keep::kText;
  } else if (resource == api::EndpointSlice::resource()) {
    options.keep = Keep::kText;
  }
}

}  // namespace varda::controllers
