// Kinds defined by CustomResourceDefinitions.
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

/// Native validation for a kind of a CRD; implements the CRD's x-kubernetes-validations. `old` is
/// null at a creation. Called for writes of the whole object, after defaults. Thread-safe.
using NativeRule = std::function<std::vector<StatusCause>(const Json& old, const Json& object)>;
/// Keyed by group and kind.
using NativeRules = std::map<std::pair<std::string, std::string>, NativeRule>;

/// One kind per served version, the storage version first. Empty if the names are not accepted or
/// no version is served. kInvalid: the schema is broken, which CRD validation prevents.
Result<std::vector<KindPtr>> kinds_from_crd(const Json& crd, const NativeRules& rules = {});

/// Kubernetes' order of versions: "v2", "v1", "v1beta1", "v1alpha1", then other names in byte
/// order.
bool preferred_version(const std::string& a, const std::string& b);

/// Status of a CRD with unique names: accepted, established, storage version stored. Unchanged
/// conditions keep the old times.
Json accepted_crd_status(const Json& crd);
/// Status of a CRD with names that `other` in the same group already uses. Null if there is no
/// conflict.
Json refused_crd_status(const Json& crd, const Json& other);

}  // namespace varda::apiserver
