// The causes of schema/cause.h under short names, for this room's checks.
#pragma once

#include "schema/cause.h"

namespace varda::apiserver {

using codec::Json;
using meta::StatusCause;
using schema::Causes;
using schema::child;
using schema::duplicate;
using schema::FieldPath;
using schema::forbidden_field;
using schema::go_quote;
using schema::go_value;
using schema::indexed;
using schema::invalid;
using schema::keyed;
using schema::not_supported;
using schema::required;
using schema::too_long;
using schema::too_many;
using schema::type_invalid;

}  // namespace varda::apiserver
