#include "oip/metadata.h"

#include "codec/json.h"

namespace varda::oip {
namespace {

using codec::Json;

Json strings(const std::vector<std::string>& items) {
  Json out = Json::array();
  for (const std::string& item : items) out.push_back(item);
  return out;
}

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> out;
  for (const Json& item : array.as_array()) out.push_back(item.as_string());
  return out;
}

Json specs(const std::vector<tensor::Spec>& list) {
  Json out = Json::array();
  for (const tensor::Spec& spec : list) {
    Json shape = Json::array();
    for (const std::int64_t size : spec.shape) shape.push_back(size);
    out.push_back(Json::object(
        {{"name", spec.name}, {"datatype", to_string(spec.dtype)}, {"shape", std::move(shape)}}));
  }
  return out;
}

Result<std::vector<tensor::Spec>> specs_of(const Json& array) {
  std::vector<tensor::Spec> out;
  for (const Json& item : array.as_array()) {
    tensor::Spec spec;
    spec.name = item["name"].as_string();
    const auto dtype = tensor::parse_dtype(item["datatype"].as_string());
    if (!dtype) return Error(Code::kInvalid, "tensor \"" + spec.name + "\" has no known datatype");
    spec.dtype = *dtype;
    for (const Json& size : item["shape"].as_array()) spec.shape.push_back(size.as_integer(-1));
    out.push_back(std::move(spec));
  }
  return out;
}

Result<Json> object(std::string_view text) {
  TRY(Json json, codec::parse_json(text));
  if (!json.is_object()) return Error(Code::kInvalid, "expected a JSON object");
  return json;
}

}  // namespace

std::string write(const ServerMetadata& metadata) {
  return codec::write_json(Json::object({{"name", metadata.name},
                                         {"version", metadata.version},
                                         {"extensions", strings(metadata.extensions)}}));
}

std::string write(const ModelMetadata& metadata) {
  Json json = Json::object({{"name", metadata.name},
                            {"versions", strings(metadata.versions)},
                            {"platform", metadata.platform},
                            {"inputs", specs(metadata.inputs)},
                            {"outputs", specs(metadata.outputs)}});
  if (!metadata.labels.empty())
    json.set("parameters", Json::object({{"labels", strings(metadata.labels)}}));
  return codec::write_json(json);
}

Result<ModelMetadata> parse_model_metadata(std::string_view text) {
  TRY(const Json json, object(text));
  ModelMetadata out;
  out.name = json["name"].as_string();
  out.versions = strings_of(json["versions"]);
  out.platform = json["platform"].as_string();
  TRY(out.inputs, specs_of(json["inputs"]));
  TRY(out.outputs, specs_of(json["outputs"]));
  out.labels = strings_of(json.at("parameters/labels"));
  return out;
}

std::string write(const std::vector<IndexEntry>& index) {
  Json out = Json::array();
  for (const IndexEntry& entry : index) {
    Json one = Json::object({{"name", entry.name},
                             {"version", entry.version},
                             {"state", entry.state},
                             {"reason", entry.reason}});
    if (!entry.code.empty()) one.set("code", entry.code);
    if (!entry.files.empty()) one.set("files", entry.files);
    out.push_back(std::move(one));
  }
  return codec::write_json(out);
}

Result<std::vector<IndexEntry>> parse_index(std::string_view text) {
  TRY(const Json json, codec::parse_json(text));
  if (!json.is_array()) return Error(Code::kInvalid, "expected a JSON array");
  std::vector<IndexEntry> out;
  for (const Json& item : json.as_array()) {
    out.push_back({item["name"].as_string(), item["version"].as_string(), item["state"].as_string(),
                   item["reason"].as_string(), item["code"].as_string(),
                   item["files"].as_string()});
  }
  return out;
}

}  // namespace varda::oip
