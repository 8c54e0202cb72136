// Rules for writes of a node about itself and its pods. An API server and a gateway before it share them. Pure.
#pragma once

#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"

namespace varda::meta {

// The body of a write, whittled down to what a node may say. kInvalid: it is no such object. kForbidden: it says what a node may
// not say, and what that is.

/// An EdgeNode or Node with the node's own name; its spec is not the node's to write.
Result<codec::Json> own_object(const std::string& node, const Resource& resource, const codec::Json& body);
/// A merge patch of a status: nothing but `status` comes through, and, to make sure which object is meant, the uid and version.
/// `key` is what the path says.
Result<codec::Json> own_status(const ObjectKey& key, const codec::Json& body);
/// An Event as a node may create it. `ns` is what the path says.
Result<codec::Json> own_event(const std::string& ns, const codec::Json& body);
/// A merge patch of an Event: who it is about stays.
Result<codec::Json> event_patch(const codec::Json& body);

// The same of a whole object that a write made of `old`. kForbidden as above.

/// Labels, annotations, owners and finalizers are as before.
Status only_status_changed(const codec::Json& old, const codec::Json& object);
/// Nothing but what event_patch() lets through changed.
Status only_event_counted(const codec::Json& old, const codec::Json& object);

/// The object that an Event is about.
struct Involved {
  std::string kind, api_version, ns, name;
  static Involved of(const codec::Json& event);
  /// The node itself: its Node or EdgeNode.
  bool is_node(const std::string& node) const;
  /// A pod, by a name that a pod can have.
  bool is_pod() const;
};

}  // namespace varda::meta
