// Checks that the schema of a CustomResourceDefinition is structural; errors have the API's texts.
#pragma once

#include <string>

#include "codec/json.h"
#include "schema/cause.h"

namespace varda::schema {

/// Returns all errors. `field` is the path of the schema: "spec.validation.openAPIV3Schema".
Causes check_structural(const Json& document, const std::string& field);

}  // namespace varda::schema
