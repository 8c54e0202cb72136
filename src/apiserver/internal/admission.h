// What the server itself adds to objects of some built-in kinds, as Kubernetes' admission plug-ins and REST strategies do.
#pragma once

#include "apiserver/internal/core.h"
#include "apiserver/internal/outcome.h"

namespace varda::apiserver {

bool is_pod(const meta::Resource& resource);
bool is_service(const meta::Resource& resource);
bool is_namespace(const meta::Resource& resource);
bool is_crd(const meta::Resource& resource);

/// After defaults, before validation.
void fill_at_creation(Core& core, const Kind& kind, Json& object);
void fill_at_update(Core& core, const Kind& kind, Json& object, const Json& old);
/// What a deletion changes besides metadata: a namespace terminates, a CRD's objects have to go first.
void begin_deletion(const Kind& kind, Json& object, std::string_view now);
/// A deleted object without finalizers that still may not go: a namespace with content.
bool waits_for_controller(const Kind& kind, const Json& object);

/// Gives a service its cluster IP and node ports, which no other has; `old` null: it is new. The caller holds Core::services until
/// its commit. 422 for a port that is taken or out of range.
Outcome<void> allocate_service(Core& core, const Kind& kind, Json& service, const Json* old);

inline constexpr std::string_view kCrdFinalizer = "customresourcecleanup.apiextensions.k8s.io";

}  // namespace varda::apiserver
