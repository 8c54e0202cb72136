// Server-side additions to some built-in kinds, like Kubernetes' admission plug-ins and REST
// strategies.
#pragma once

#include "apiserver/internal/core.h"
#include "apiserver/internal/outcome.h"

namespace varda::apiserver {

bool is_pod(const meta::Resource& resource);
bool is_service(const meta::Resource& resource);
bool is_namespace(const meta::Resource& resource);
bool is_crd(const meta::Resource& resource);

/// Runs after defaults and before validation.
void fill_at_creation(Core& core, const Kind& kind, Json& object);
void fill_at_update(Core& core, const Kind& kind, Json& object, const Json& old);
/// Changes of a deletion besides metadata: a namespace terminates, a CRD first deletes its objects.
void begin_deletion(const Kind& kind, Json& object, std::string_view now);
/// True for a deleted object without finalizers that must stay for now: a namespace with content.
bool waits_for_controller(const Kind& kind, const Json& object);

/// Assigns a unique cluster IP and node ports. `old` null: the service is new. The caller holds
/// Core::services until its commit. 422 for a port that is taken or out of range.
Outcome<void> allocate_service(Core& core, const Kind& kind, Json& service, const Json* old);

inline constexpr std::string_view kCrdFinalizer = "customresourcecleanup.apiextensions.k8s.io";

}  // namespace varda::apiserver
