// What a node may ask of the gateway, and what it may write: docs/design/014, "What an identity sees". Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "gateway/request.h"
#include "meta/object.h"

namespace varda::gateway {

using codec::Json;

/// How a request that is not forbidden outright is served.
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

/// kForbidden, with the message of Kubernetes: everything that 014 does not list.
Result<Route> route(const std::string& node, const Asked& asked);

// The body of a write, whittled down to what a node may say. kInvalid: it is no such object. kForbidden: it says what a node may
// not say, and what that is.

/// An EdgeNode or Node with the node's own name; its spec is not the node's to write.
Result<Json> own_object(const std::string& node, const meta::Resource& resource, const Json& body);
/// A merge patch of a status: nothing but `status` comes through, and, to make sure which object is meant, the uid and version.
/// `key` is what the path says.
Result<Json> own_status(const meta::ObjectKey& key, const Json& body);
/// An Event as a node may create it. `ns` is what the path says.
Result<Json> own_event(const std::string& ns, const Json& body);
/// A merge patch of an Event: who it is about stays.
Result<Json> event_patch(const Json& body);

/// Whom an Event is about.
struct Involved {
  std::string kind, api_version, ns, name;
  static Involved of(const Json& event);
};

}  // namespace varda::gateway
