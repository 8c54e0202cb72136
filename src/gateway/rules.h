// Rules: the requests a node may send to the gateway, and the objects it may write. Source:
// docs/design/014, "What an identity sees". Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "gateway/request.h"
#include "meta/node_address.h"
#include "meta/node_writes.h"

namespace varda::gateway {

using codec::Json;

/// The way to serve a request that the rules allow.
enum class Route {
  kListOwn,        // list or watch of the node's own objects, from memory
  kReadSelf,       // get of the EdgeNode or Node with the node's name
  kCreateSelf,     // ... create
  kPatchSelf,      // ... patch of its status
  kReadPod,        // get, if the pod is the node's
  kPatchPod,       // patch of its status, if so
  kDeletePod,      // delete, if so and if its deletion was asked for
  kReadSecret,     // get, if the node's EdgeNode or pods refer to it
  kReadConfigMap,  // get, if the node's pods refer to it
  kCreateEvent,    // about one of the node's objects
  kPatchEvent,     // of an event about one of the node's objects
};

/// kForbidden, with Kubernetes' message: a request that 014 does not list.
Result<Route> route(const std::string& node, const RequestInfo& info);

// The API server applies the same rules to writes of a node.
using meta::event_patch;
using meta::Involved;
using meta::own_event;
using meta::own_object;
using meta::own_status;

/// kForbidden: the status of a Pod, Node or EdgeNode names an address that its node may not report
/// (meta/node_address.h).
Status check_addresses(std::string_view kind, const Json& status, meta::Reporter reporter);

}  // namespace varda::gateway
