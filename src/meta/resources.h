// Resources of Kubernetes' own API groups, for rooms that read their objects as JSON.
#pragma once

#include "meta/object.h"

namespace varda::meta::core {

const Resource& config_maps();
const Resource& controller_revisions();
const Resource& daemon_sets();
const Resource& definitions();  // CustomResourceDefinitions
const Resource& deployments();
const Resource& endpoints();
const Resource& events();
const Resource& jobs();
const Resource& leases();
const Resource& namespaces();
const Resource& nodes();
const Resource& pods();
const Resource& replica_sets();
const Resource& secrets();
const Resource& services();

}  // namespace varda::meta::core
