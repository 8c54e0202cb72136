// OpenAPI documents: what `kubectl explain` reads and what makes kubectl leave validation to the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"

namespace varda::apiserver {

/// The OpenAPI v3 document of one group version ("" and "v1" for core).
Json openapi_v3(std::string_view group, std::string_view version, const std::vector<KindPtr>& kinds);

/// Swagger 2.0 with one definition a kind; schemas are open, so that old clients find their kinds and validate nothing wrongly.
Json openapi_v2(const std::vector<KindPtr>& kinds);

/// The same document in protobuf, for kubectl <= 1.27, which reads no other form: the operations with their parameters (so that
/// --dry-run=server and diff know they may) and no schemas (so that validation stays the server's).
std::string openapi_v2_protobuf(const std::vector<KindPtr>& kinds);

}  // namespace varda::apiserver
