// The rules of `metadata`, the same for every kind.
#pragma once

#include <string>
#include <vector>

#include "apiserver/internal/outcome.h"
#include "apiserver/kind.h"
#include "base/rng.h"

namespace varda::apiserver {

/// Normalizes metadata for storage: removes nulls, empty members, managedFields and selfLink.
/// Unknown members are removed and named in `unknown` ("metadata.foo"). A wrong type is an Error
/// with the decoder's message.
Status decode_metadata(Json& object, std::vector<std::string>& unknown);

/// Sets namespace, name (from generateName), uid and creationTimestamp of a new object; removes
/// server-owned fields the client sent.
void fill_new_metadata(Json& object, const meta::Resource& resource, std::string_view ns,
                       std::string_view now, Rng& rng);

/// Restores fields a write must not change: uid, creationTimestamp, deletion, generation.
void keep_metadata(Json& object, const Json& old);

std::vector<StatusCause> validate_metadata(const Kind& kind, const Json& object);
std::vector<StatusCause> validate_metadata_update(const Kind& kind, const Json& object,
                                                  const Json& old);
/// Returns Warning texts: finalizers without a domain, duplicate owner references (which are
/// removed).
std::vector<std::string> tidy_metadata(const Kind& kind, Json& object);

StatusCause invalid_value(std::string field, std::string_view value, std::string_view why);
bool deleting(const Json& object);
bool has_finalizers(const Json& object);
bool add_finalizer(Json& object, std::string_view finalizer);
bool remove_finalizer(Json& object, std::string_view finalizer);
const std::string& name_of(const Json& object);
const std::string& namespace_of(const Json& object);
const std::string& uid_of(const Json& object);

}  // namespace varda::apiserver
