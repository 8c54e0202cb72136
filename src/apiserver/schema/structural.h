// Is a schema, as a user wrote it in a CustomResourceDefinition, structural? What the API requires of it, in the API's words.
#pragma once

#include <string>

#include "apiserver/schema/cause.h"
#include "codec/json.h"

namespace varda::apiserver::schema {

/// Everything wrong with the schema. `field` is where it stands: "spec.validation.openAPIV3Schema".
Causes check_structural(const Json& document, const std::string& field);

}  // namespace varda::apiserver::schema
