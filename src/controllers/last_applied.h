// The configuration of a child that an operator applied last.
#pragma once

#include "codec/json.h"
#include "meta/object.h"

namespace varda::controllers {

/// Reads the annotation runtime::kLastApplied. Null if another client removed or damaged it.
codec::Json last_applied(const meta::ObjectMeta& metadata);

/// The same object without its metadata, for a comparison of contents.
codec::Json without_metadata(codec::Json object);

}  // namespace varda::controllers
