// CustomResourceDefinitions: from one to the kinds it defines.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apiserver/kind.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::apiserver {

/// Validation the application attaches to a kind that a CRD makes: what the CRD's x-kubernetes-validations say, natively. `old` is
/// null (Json) when the object is created. Called for writes of the whole object, after defaults. Thread-safe.
using NativeRule = std::function<std::vector<StatusCause>(const Json& old, const Json& object)>;
/// By group and kind.
using NativeRules = std::map<std::pair<std::string, std::string>, NativeRule>;

/// One kind per served version, the storage version first. Empty if the names are not accepted or no version is served. kInvalid:
/// the schema is broken (validation of the CRD lets none through).
Result<std::vector<KindPtr>> kinds_from_crd(const Json& crd, const NativeRules& rules = {});

/// The status of a definition whose names nobody else holds: accepted, established, and its storage version stored. Times of
/// conditions that held before stay.
Json accepted_crd_status(const Json& crd);
/// The status of a definition that wants the names of another one in its group; null if `other` leaves it its names.
Json refused_crd_status(const Json& crd, const Json& other);

}  // namespace varda::apiserver
