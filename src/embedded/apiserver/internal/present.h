// Output forms of objects: unchanged, as a Table, or metadata only.
#pragma once

#include <vector>

#include "apiserver/internal/negotiation.h"
#include "apiserver/kind.h"
#include "base/clock.h"

namespace varda::apiserver {

enum class IncludeObject { kNone, kMetadata, kObject };

struct Presentation {
  Output output;
  IncludeObject include = IncludeObject::kMetadata;
  WallTime now;
};

/// ?includeObject= of Tables; 400 for unknown values.
Outcome<IncludeObject> parse_include(std::string_view text);

/// A meta.k8s.io Table of objects. `metadata` is the list's, or has the resourceVersion of a single
/// object. Headers: whether to include columnDefinitions.
enum class Headers { kWith, kWithout };
Json make_table(const Kind& kind, const std::vector<Json>& objects, Json metadata,
                const Presentation& how, Headers headers);
Json make_partial(const Json& object, std::string_view version);

/// One object in the requested form; 500 for a list form.
Outcome<Json> present_object(const Kind& kind, Json object, const Presentation& how);
/// A list in the requested form; 406 for a form of single objects.
Outcome<Json> present_list(const Kind& kind, std::vector<Json> objects, Json metadata,
                           const Presentation& how);

}  // namespace varda::apiserver
