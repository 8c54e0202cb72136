#include "apiserver/internal/present.h"

namespace varda::apiserver {

Outcome<IncludeObject> parse_include(std::string_view text) {
  if (text.empty() || text == "Metadata") return IncludeObject::kMetadata;
  if (text == "None") return IncludeObject::kNone;
  if (text == "Object") return IncludeObject::kObject;
  return bad_request("unrecognized includeObject value: " + in_quotes(text));
}

Json make_partial(const Json& object, std::string_view version) {
  return Json::object({{"kind", "PartialObjectMetadata"},
                       {"apiVersion", "meta.k8s.io/" + std::string(version)},
                       {"metadata", object["metadata"]}});
}

Json make_table(const Kind& kind, const std::vector<Json>& objects, Json metadata,
                const Presentation& how, Headers headers) {
  Json table = Json::object({{"kind", "Table"},
                             {"apiVersion", "meta.k8s.io/" + how.output.as_version},
                             {"metadata", std::move(metadata)}});
  Json definitions = Json::array();
  if (headers == Headers::kWith) {
    for (const Column& column : kind.columns()) {
      definitions.push_back(Json::object({{"name", column.name},
                                          {"type", column.type},
                                          {"format", column.format},
                                          {"description", column.description},
                                          {"priority", column.priority}}));
    }
    table.set("columnDefinitions", std::move(definitions));
  } else {
    table.set("columnDefinitions", nullptr);
  }
  Json rows = Json::array();
  for (const Json& object : objects) {
    Json row = Json::object({{"cells", Json(kind.cells(object, how.now))}});
    switch (how.include) {
      case IncludeObject::kNone:
        row.set("object", nullptr);
        break;
      case IncludeObject::kMetadata:
        row.set("object", make_partial(object, how.output.as_version));
        break;
      case IncludeObject::kObject:
        row.set("object", object);
        break;
    }
    rows.push_back(std::move(row));
  }
  table.set("rows", std::move(rows));
  return table;
}

Outcome<Json> present_object(const Kind& kind, Json object, const Presentation& how) {
  switch (how.output.as) {
    case Output::As::kObject:
      return object;
    case Output::As::kPartial:
      return make_partial(object, how.output.as_version);
    case Output::As::kPartialList:
      return internal("content is not a list");
    case Output::As::kTable:
      break;
  }
  Json metadata = Json::object({{"resourceVersion", object.at("metadata/resourceVersion")}});
  std::vector<Json> objects;
  objects.push_back(std::move(object));
  return make_table(kind, objects, std::move(metadata), how, Headers::kWith);
}

Outcome<Json> present_list(const Kind& kind, std::vector<Json> objects, Json metadata,
                           const Presentation& how) {
  switch (how.output.as) {
    case Output::As::kPartial: {
      ApiStatus status = not_acceptable();
      status.message = "you requested PartialObjectMetadata, but the requested object is a list";
      return status;
    }
    case Output::As::kTable:
      return make_table(kind, objects, std::move(metadata), how, Headers::kWith);
    case Output::As::kPartialList: {
      Json items = Json::array();
      for (const Json& object : objects)
        items.push_back(make_partial(object, how.output.as_version));
      return Json::object({{"kind", "PartialObjectMetadataList"},
                           {"apiVersion", "meta.k8s.io/" + how.output.as_version},
                           {"metadata", std::move(metadata)},
                           {"items", std::move(items)}});
    }
    case Output::As::kObject:
      break;
  }
  const KindInfo& info = kind.info();
  if (info.custom) {
    if (!metadata.contains("continue")) metadata.set("continue", "");
  } else {
    // Items of built-in kinds have no kind and apiVersion.
    for (Json& object : objects) {
      object.erase("kind");
      object.erase("apiVersion");
    }
  }
  const std::string list_kind =
      info.list_kind.empty() ? info.resource.kind + "List" : info.list_kind;
  return Json::object({{"kind", list_kind},
                       {"apiVersion", info.resource.api_version()},
                       {"metadata", std::move(metadata)},
                       {"items", Json(Json::Array(std::make_move_iterator(objects.begin()),
                                                  std::make_move_iterator(objects.end())))}});
}

}  // namespace varda::apiserver
