// The protobuf form follows the published OpenAPIv2.proto of gnostic; the calls contain its field
// numbers.
#include "apiserver/internal/openapi.h"

namespace varda::apiserver {

namespace {

std::string varint(std::size_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out += static_cast<char>(value);
}

// Encodes a text or a message.
std::string field(unsigned number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()).append(bytes);
}

// NamedAny{name, Any{yaml}}; JSON is YAML.
std::string extension(std::string_view name, const Json& value) {
  return field(1, name) + field(2, field(2, codec::write_json(value)));
}

Json gvk(const meta::Resource& resource) {
  return Json::object(
      {{"group", resource.group}, {"kind", resource.kind}, {"version", resource.version}});
}

// ParametersItem{Parameter{NonBodyParameter{QueryParameterSubSchema{in, name, type}}}}
std::string query_parameter(std::string_view name) {
  return field(1, field(2, field(3, field(2, "query") + field(4, name) + field(6, "string"))));
}

std::string patch_of(const meta::Resource& resource) {
  std::string operation = field(5, "patch" + resource.kind);
  for (const char* name : {"dryRun", "fieldManager", "fieldValidation"})
    operation += field(8, query_parameter(name));
  operation += field(13, extension("x-kubernetes-action", "patch"));
  return operation + field(13, extension("x-kubernetes-group-version-kind", gvk(resource)));
}

}  // namespace

std::string openapi_v2_protobuf(const std::vector<KindPtr>& kinds) {
  std::string paths;
  for (const KindPtr& kind : kinds) {
    const meta::Resource& resource = kind->resource();
    if (kind->info().answered) continue;
    std::string path =
        (resource.group.empty() ? "/api/" : "/apis/" + resource.group + "/") + resource.version;
    if (resource.namespaced) path += "/namespaces/{namespace}";
    path += "/" + resource.plural + "/{name}";
    paths += field(
        2, field(1, path) +
               field(2, field(8, patch_of(resource))));  // NamedPathItem{name, PathItem{patch}}
  }
  const std::string info = field(1, "Varda") + field(2, VARDA_VERSION);
  return field(1, "2.0") + field(2, info) + field(8, paths);
}

}  // namespace varda::apiserver
