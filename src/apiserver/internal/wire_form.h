// Objects as the bytes clients get. What lies in the store goes out as it is, with its resourceVersion put in, once it has been
// found that reading it as this kind and writing it again changes nothing; what was found stands in the value's note.
#pragma once

#include <string>

#include "apiserver/internal/outcome.h"
#include "store/store.h"

namespace varda::apiserver {

enum class Place { kAlone, kInList };  // items of built-in kinds do not repeat what the list says of them

/// Appends the JSON that Objects::decode() would give. The failure of a stored object that is unreadable.
Outcome<void> append_wire_form(const Kind& kind, const store::Entry& entry, Place place, std::string& out);

/// What the store keeps of an object: kind, apiVersion and metadata first, no resourceVersion, so that the above finds its place.
std::string stored_form(const Json& object);

}  // namespace varda::apiserver
