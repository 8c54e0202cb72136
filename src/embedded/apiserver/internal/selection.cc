#include "apiserver/internal/selection.h"

#include <algorithm>

#include "apiserver/internal/metadata.h"

namespace varda::apiserver {

Outcome<Selection> Selection::parse(const net::Query& query, const Kind& kind) {
  Selection out;
  if (const auto text = query.find("labelSelector"); text && !text->empty()) {
    auto labels = meta::LabelSelector::parse(*text);
    if (!labels.ok()) return bad_request(labels.error().message());
    out.labels_ = std::move(labels).value();
  }
  if (const auto text = query.find("fieldSelector"); text && !text->empty()) {
    auto fields = meta::FieldSelector::parse(*text);
    if (!fields.ok()) return bad_request(fields.error().message());
    out.fields_ = std::move(fields).value();
  }
  for (const auto& term : out.fields_.terms()) {
    if (term.field == "metadata.name") continue;
    if (term.field == "metadata.namespace" && kind.resource().namespaced) continue;
    const auto& offered = kind.selectable_fields();
    if (std::find(offered.begin(), offered.end(), term.field) != offered.end()) continue;
    // Two wordings that clients see: built-in kinds without own fields list the known ones.
    if (!kind.info().custom && offered.empty()) {
      return bad_request(
          in_quotes(term.field) +
          " is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
    }
    return bad_request("field label not supported: " + term.field);
  }
  return out;
}

std::optional<std::string> Selection::name() const {
  if (!only_name_.empty()) return only_name_;
  return fields_.exact("metadata.name");
}

bool Selection::by_name_only() const {
  const auto& terms = fields_.terms();
  return labels_.empty() && std::all_of(terms.begin(), terms.end(), [](const auto& term) {
           return term.field == "metadata.name" || term.field == "metadata.namespace";
         });
}

bool Selection::matches_name(const meta::ObjectKey& key) const {
  if (!only_name_.empty() && key.name != only_name_) return false;
  return fields_.empty() || fields_.matches([&](std::string_view field) {
    return field == "metadata.name" ? key.name : key.ns;
  });
}

bool Selection::matches(const Kind& kind, const Json& object) const {
  if (!only_name_.empty() && name_of(object) != only_name_) return false;
  if (!labels_.empty() && !labels_.matches_labels(object.at("metadata/labels"))) return false;
  if (fields_.empty()) return true;
  return fields_.matches([&](std::string_view field) -> std::string {
    if (field == "metadata.name") return name_of(object);
    if (field == "metadata.namespace") return namespace_of(object);
    return kind.field(object, field);
  });
}

}  // namespace varda::apiserver
