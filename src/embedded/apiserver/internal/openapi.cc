#include "apiserver/internal/openapi.h"

#include <algorithm>
#include <set>

#include "apiserver/kinds/types.h"

namespace varda::apiserver {

namespace {

constexpr const char* kObjectMeta =
    "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
constexpr const char* kListMeta =
    "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

Json reference(std::string_view target) { return Json::object({{"$ref", target}}); }
Json described_reference(std::string_view target, std::string_view description) {
  return Json::object({{"description", description}, {"allOf", Json::array({reference(target)})}});
}

Json gvk(const meta::Resource& resource, const std::string& kind) {
  return Json::array(
      {Json::object({{"group", resource.group}, {"kind", kind}, {"version", resource.version}})});
}

// "io.edgeai.v1alpha1.Dataset": the group is reversed.
std::string reversed_name(const meta::Resource& resource, const std::string& kind) {
  std::string name;
  std::string_view rest = resource.group;
  while (!rest.empty()) {
    const auto dot = rest.rfind('.');
    name.append(rest.substr(dot == std::string_view::npos ? 0 : dot + 1)).append(".");
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(0, dot);
  }
  return name + resource.version + "." + kind;
}

std::string component_name(const Kind& kind, const std::string& suffix = "") {
  if (kind.info().custom) return reversed_name(kind.resource(), kind.resource().kind) + suffix;
  return Types::all().get(kind.resource().kind).openapi_name() + suffix;
}

void add_object_members(Json& schema) {
  Json& properties = schema["properties"];
  if (!properties.is_object()) properties = Json::object();
  Json text = Json::object({{"type", "string"}});
  text.set("description", "API version of the object, as GROUP/VERSION.");
  properties.set("apiVersion", text);
  text.set("description", "Kind of the object, in CamelCase.");
  properties.set("kind", std::move(text));
  properties.set(
      "metadata",
      described_reference(kObjectMeta, "Name, namespace, labels and history of the object."));
}

Json list_schema(const Kind& kind, const std::string& item) {
  Json schema = Json::object(
      {{"type", "object"},
       {"description", kind.info().list_kind + " is a list of " + kind.resource().kind + "."}});
  schema.set("required", Json::array({"items"}));
  Json properties = Json::object();
  properties.set("apiVersion", Json::object({{"type", "string"}}));
  properties.set("kind", Json::object({{"type", "string"}}));
  properties.set("metadata", described_reference(kListMeta, "Revision and paging of the list."));
  properties.set("items", Json::object({{"type", "array"},
                                        {"items", reference("#/components/schemas/" + item)}}));
  schema.set("properties", std::move(properties));
  schema.set("x-kubernetes-group-version-kind", gvk(kind.resource(), kind.info().list_kind));
  return schema;
}

// Adds all types reachable from a built-in kind.
void add_types(const Type& type, Json& schemas, std::set<std::string>& seen) {
  if (!seen.insert(type.name).second) return;
  schemas.set(type.openapi_name(), openapi(type));
  for (const Field& field : type.fields) {
    if (field.type != nullptr) add_types(*field.type, schemas, seen);
  }
}

Json query_parameter(const char* name, const char* description) {
  return Json::object({{"name", name},
                       {"in", "query"},
                       {"description", description},
                       {"schema", Json::object({{"type", "string"}, {"uniqueItems", true}})}});
}

Json operation(const Kind& kind, const char* action, bool writes) {
  const meta::Resource& resource = kind.resource();
  Json parameters = Json::array();
  if (writes) {
    parameters.push_back(
        query_parameter("dryRun", "All: process the request and persist nothing."));
    parameters.push_back(
        query_parameter("fieldManager", "Name of the client that makes the change."));
    parameters.push_back(query_parameter(
        "fieldValidation", "Treatment of unknown and duplicate fields: Ignore, Warn or Strict."));
  }
  Json response = Json::object({{"description", "OK"}});
  response.set("content",
               Json::object({{"application/json",
                              Json::object({{"schema", reference("#/components/schemas/" +
                                                                 component_name(kind))}})}}));
  Json made = Json::object(
      {{"operationId", action + resource.kind},
       {"parameters", std::move(parameters)},
       {"responses", Json::object({{"200", std::move(response)}})},
       {"x-kubernetes-action", action},
       {"x-kubernetes-group-version-kind", gvk(resource, resource.kind).as_array()[0]}});
  return made;
}

void add_paths(const Kind& kind, Json& paths) {
  const meta::Resource& resource = kind.resource();
  std::string base =
      (resource.group.empty() ? "/api/" : "/apis/" + resource.group + "/") + resource.version;
  if (resource.namespaced) base += "/namespaces/{namespace}";
  base += "/" + resource.plural;
  paths.set(base, Json::object({{"get", operation(kind, "list", false)},
                                {"post", operation(kind, "post", true)}}));
  Json one = Json::object({{"get", operation(kind, "get", false)},
                           {"put", operation(kind, "put", true)},
                           {"patch", operation(kind, "patch", true)},
                           {"delete", operation(kind, "delete", false)}});
  paths.set(base + "/{name}", std::move(one));
}

}  // namespace

Json openapi_v3(std::string_view group, std::string_view version,
                const std::vector<KindPtr>& kinds) {
  Json schemas = Json::object();
  Json paths = Json::object();
  std::set<std::string> seen;
  add_types(Types::all().get("ObjectMeta"), schemas, seen);
  schemas.set(
      "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
      Json::object({{"type", "object"},
                    {"properties",
                     Json::object({{"continue", Json::object({{"type", "string"}})},
                                   {"remainingItemCount",
                                    Json::object({{"type", "integer"}, {"format", "int64"}})},
                                   {"resourceVersion", Json::object({{"type", "string"}})}})}}));
  const auto either = [](const char* other) {
    return Json::array({Json::object({{"type", "string"}}), Json::object({{"type", other}})});
  };
  schemas.set("io.k8s.apimachinery.pkg.api.resource.Quantity",
              Json::object({{"description", "A number with a unit, such as 500m or 1Gi."},
                            {"oneOf", either("number")}}));
  schemas.set("io.k8s.apimachinery.pkg.util.intstr.IntOrString",
              Json::object({{"description", "A number or a string, such as 8080 or http."},
                            {"format", "int-or-string"},
                            {"oneOf", either("integer")}}));
  bool custom = false;
  for (const KindPtr& kind : kinds) {
    if (kind->resource().group != group || kind->resource().version != version) continue;
    custom = custom || kind->info().custom;
    Json schema = kind->openapi_schema();
    if (!schema.is_object()) schema = Json::object({{"type", "object"}});
    if (!kind->info().custom) add_types(Types::all().get(kind->resource().kind), schemas, seen);
    add_object_members(schema);
    schema.set("x-kubernetes-group-version-kind", gvk(kind->resource(), kind->resource().kind));
    const std::string name = component_name(*kind);
    schemas.set(name, std::move(schema));
    schemas.set(kind->info().custom ? reversed_name(kind->resource(), kind->info().list_kind)
                                    : component_name(*kind, "List"),
                list_schema(*kind, name));
    add_paths(*kind, paths);
  }
  Json info = Json::object(
      {{"title", custom ? "Kubernetes CRD Swagger" : "Kubernetes"}, {"version", "v0.1.0"}});
  return Json::object({{"openapi", "3.0.0"},
                       {"info", std::move(info)},
                       {"paths", std::move(paths)},
                       {"components", Json::object({{"schemas", std::move(schemas)}})}});
}

Json openapi_v2(const std::vector<KindPtr>& kinds) {
  Json definitions = Json::object();
  for (const KindPtr& kind : kinds) {
    Json schema = Json::object({{"type", "object"}});
    schema.set("x-kubernetes-group-version-kind", gvk(kind->resource(), kind->resource().kind));
    definitions.set(component_name(*kind), std::move(schema));
  }
  return Json::object({{"swagger", "2.0"},
                       {"info", Json::object({{"title", "Kubernetes"}, {"version", "v0.1.0"}})},
                       {"paths", Json::object()},
                       {"definitions", std::move(definitions)}});
}

}  // namespace varda::apiserver
