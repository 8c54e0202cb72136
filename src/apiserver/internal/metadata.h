// The rules of `metadata`, the same for every kind.
#pragma once

#include <string>
#include <vector>

#include "apiserver/internal/outcome.h"
#include "apiserver/kind.h"
#include "base/rng.h"

namespace varda::apiserver {

/// Brings metadata to the form it is stored in: nulls and empty members go, managedFields and selfLink too, unknown members are
/// named in `unknown` ("metadata.foo") and go. A wrong type is an Error with the decoder's sentence.
Status decode_metadata(Json& object, std::vector<std::string>& unknown);

/// What a new object gets: namespace, name from generateName, uid, creationTimestamp; what only the server sets goes.
void fill_new_metadata(Json& object, const meta::Resource& resource, std::string_view ns, std::string_view now, Rng& rng);

/// Restores what a write may not touch: uid, creationTimestamp, deletion, generation.
void keep_metadata(Json& object, const Json& old);

std::vector<StatusCause> validate_metadata(const Kind& kind, const Json& object);
std::vector<StatusCause> validate_metadata_update(const Kind& kind, const Json& object, const Json& old);
/// For Warning headers: finalizers without a domain, doubled owner references (which are removed).
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
