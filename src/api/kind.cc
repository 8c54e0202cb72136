#include "api/kind.h"

#include <map>

#include "api/ai/inference_model.h"
#include "api/ai/training_model.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "api/internal/categories.h"
#include "api/sedna/federated_learning_job.h"
#include "api/sedna/incremental_learning_job.h"
#include "api/sedna/joint_inference_service.h"

namespace varda::api {

namespace {

Json columns_to_json(const std::vector<PrinterColumn>& columns) {
  Json out = Json::array();
  for (const PrinterColumn& column : columns) {
    Json entry = Json::object(
        {{"name", column.name}, {"type", column.type}, {"jsonPath", column.json_path}});
    if (!column.description.empty()) entry.set("description", column.description);
    if (column.priority != 0) entry.set("priority", column.priority);
    out.push_back(std::move(entry));
  }
  return out;
}

// Adds the members that every object has, before the described members.
Json root_schema(const Schema& schema) {
  Json root = to_openapi(schema, Describe::kUnlessTerse);
  Json properties = Json::object({
      {"apiVersion", Json::object({{"type", "string"}})},
      {"kind", Json::object({{"type", "string"}})},
      {"metadata", Json::object({{"type", "object"}})},
  });
  for (const auto& [name, property] : root["properties"].as_object()) {
    if (name != "metadata") properties.set(name, property);
  }
  root.set("properties", std::move(properties));
  return root;
}

}  // namespace

const std::vector<const Kind*>& kinds() {
  static const std::vector<const Kind*> all{&InferenceModel::kind(),
                                            &TrainingModel::kind(),
                                            &EdgeNode::kind(),
                                            &Dataset::kind(),
                                            &Model::kind(),
                                            &SednaDataset::kind(),
                                            &SednaModel::kind(),
                                            &JointInferenceService::kind(),
                                            &FederatedLearningJob::kind(),
                                            &IncrementalLearningJob::kind()};
  return all;
}

Json crd(const Kind& kind) {
  Json names = Json::object({
      {"kind", kind.resource.kind},
      {"listKind", kind.resource.kind + "List"},
      {"plural", kind.resource.plural},
      {"singular", kind.singular},
      {"categories", Json::array()},
  });
  for (const std::string& name : internal::categories_of(kind)) names["categories"].push_back(name);
  if (!kind.short_names.empty()) {
    Json& short_names = names["shortNames"] = Json::array();
    for (const std::string& name : kind.short_names) short_names.push_back(name);
  }
  Json subresources = Json::object({{"status", Json::object()}});
  if (kind.scale) {
    Json scale = Json::object({{"specReplicasPath", kind.scale->spec_replicas},
                               {"statusReplicasPath", kind.scale->status_replicas}});
    if (!kind.scale->label_selector.empty())
      scale.set("labelSelectorPath", kind.scale->label_selector);
    subresources.set("scale", std::move(scale));
  }
  Json version = Json::object({
      {"name", kind.resource.version},
      {"served", true},
      {"storage", true},
      {"schema", Json::object({{"openAPIV3Schema", root_schema(*kind.schema)}})},
      {"subresources", std::move(subresources)},
      {"additionalPrinterColumns", columns_to_json(kind.columns)},
  });
  return Json::object({
      {"apiVersion", "apiextensions.k8s.io/v1"},
      {"kind", "CustomResourceDefinition"},
      {"metadata",
       Json::object({{"name", kind.resource.group_resource()},
                     {"labels", Json::object({{"app.kubernetes.io/part-of", "varda"}})}})},
      {"spec", Json::object({
                   {"group", kind.resource.group},
                   {"names", std::move(names)},
                   {"scope", kind.resource.namespaced ? "Namespaced" : "Cluster"},
                   {"versions", Json::array({std::move(version)})},
               })},
  });
}

std::vector<Json> crds() {
  std::vector<Json> all;
  for (const Kind* kind : kinds()) all.push_back(crd(*kind));
  return all;
}

std::vector<meta::StatusCause> validate(const Kind& kind, const Json& object) {
  static const std::map<const Kind*, Validator> validators = [] {
    std::map<const Kind*, Validator> all;
    for (const Kind* one : kinds()) all.emplace(one, Validator(*one->schema));
    return all;
  }();
  const auto found = validators.find(&kind);
  return found != validators.end() ? found->second.validate(object)
                                   : validate(*kind.schema, object);
}

std::vector<NativeRule> native_rules() {
  std::vector<NativeRule> rules;
  for (const Kind* kind : kinds()) {
    rules.push_back(
        {kind->resource.group, kind->resource.kind,
         [schema = kind->schema, native = kind->native](const Json& old, const Json& object) {
           std::vector<meta::StatusCause> causes = validate_rules(*schema, object);
           if (native != nullptr) {
             for (meta::StatusCause& cause : native(old, object))
               causes.push_back(std::move(cause));
           }
           return causes;
         }});
  }
  return rules;
}

}  // namespace varda::api
