// The forms objects are shown in: as they are, as a Table, or their metadata alone.
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

/// ?includeObject= of Tables; 400 for other words.
Outcome<IncludeObject> parse_include(std::string_view text);

/// meta.k8s.io Table of objects; `metadata` is the list's (or the resourceVersion of the one object). Headers: with
/// columnDefinitions.
enum class Headers { kWith, kWithout };
Json make_table(const Kind& kind, const std::vector<Json>& objects, Json metadata, const Presentation& how, Headers headers);
Json make_partial(const Json& object, std::string_view version);

/// One object in the form asked for; 500 when a list form is asked of it.
Outcome<Json> present_object(const Kind& kind, Json object, const Presentation& how);
/// A list in the form asked for; 406 when the form is for one object.
Outcome<Json> present_list(const Kind& kind, std::vector<Json> objects, Json metadata, const Presentation& how);

}  // namespace varda::apiserver
