// Rules for writes of a node about itself and its pods. An API server and a gateway before it share
// them. Pure.
#pragma once

#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"

namespace varda::meta {

// Reduces the body of a write to the fields that a node may write. kInvalid: not such an object.
// kForbidden names a field that a node must not write.

/// An EdgeNode or Node with the node's own name; the node must not write the spec.
Result<codec::Json> own_object(const std::string& node, const Resource& resource,
                               const codec::Json& body);
/// A merge patch of a status: only `status` passes, and the uid and version as preconditions. `key`
/// comes from the path.
Result<codec::Json> own_status(const ObjectKey& key, const codec::Json& body);
/// An Event that a node may create. `ns` comes from the path.
Result<codec::Json> own_event(const std::string& ns, const codec::Json& body);
/// A merge patch of an Event; the involved object stays.
Result<codec::Json> event_patch(const codec::Json& body);

// The same checks for a whole object that a write made from `old`. kForbidden as above.

/// Labels, annotations, owners and finalizers must be unchanged.
Status only_status_changed(const codec::Json& old, const codec::Json& object);
/// Only fields that event_patch() allows may change.
Status only_event_counted(const codec::Json& old, const codec::Json& object);

/// The object that an Event is about.
struct Involved {
  std::string kind, api_version, ns, name;
  static Involved of(const codec::Json& event);
  /// The node itself: its Node or EdgeNode.
  bool is_node(const std::string& node) const;
  /// A pod, with a valid pod name.
  bool is_pod() const;
};

}  // namespace varda::meta
