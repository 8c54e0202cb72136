// OpenAPI documents for `kubectl explain`. With them, kubectl leaves validation to the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"

namespace varda::apiserver {

/// The OpenAPI v3 document of one group version ("" and "v1" for core).
Json openapi_v3(std::string_view group, std::string_view version,
                const std::vector<KindPtr>& kinds);

/// Swagger 2.0 with one definition per kind. Schemas are open: old clients find all kinds and
/// reject no valid object.
Json openapi_v2(const std::vector<KindPtr>& kinds);

/// The same document in protobuf, the only form that kubectl <= 1.27 reads. It lists operations and
/// parameters, which enables --dry-run=server and diff. It has no schemas, so that the server
/// validates.
std::string openapi_v2_protobuf(const std::vector<KindPtr>& kinds);

}  // namespace varda::apiserver
