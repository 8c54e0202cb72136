// The bytes of objects that clients get. Stored bytes are sent unchanged, with the resourceVersion
// inserted. This requires that decoding as this kind and encoding again gives the same bytes; the
// value's note caches that result.
#pragma once

#include <string>

#include "apiserver/internal/outcome.h"
#include "store/store.h"

namespace varda::apiserver {

enum class Place { kAlone, kInList };  // items of built-in kinds have no kind and apiVersion

/// Appends the JSON of Objects::decode(). Fails if the stored object is unreadable.
Outcome<void> append_wire_form(const Kind& kind, const store::Entry& entry, Place place,
                               std::string& out);

/// The stored bytes of an object: kind, apiVersion and metadata first, no resourceVersion, as
/// append_wire_form() expects.
std::string stored_form(const Json& object);

}  // namespace varda::apiserver
