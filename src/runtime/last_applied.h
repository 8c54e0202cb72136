// The configuration of an object that an operator applied last.
#pragma once

#include "codec/json.h"
#include "meta/object.h"

namespace varda::runtime {

/// Reads the annotation kLastApplied. Null if another client removed or damaged it.
codec::Json last_applied(const meta::ObjectMeta& metadata);
/// The same for an object as JSON.
codec::Json last_applied(const codec::Json& object);

/// The same object without its metadata, for a comparison of contents.
codec::Json without_metadata(codec::Json object);

}  // namespace varda::runtime
