#include "codec/json.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/inferencemodel/unchanged_pod.h"
#include "hosting/chosen_model.h"

namespace varda::controllers::inferencemodel {

std::string served_framework(const api::InferenceModel& model, const api::EdgeNode* node,
                             const api::Pod* pod) {
  using Report = api::EdgeVersionReport;
  const std::string& framework = hosting::framework_of(model);
  if (framework != hosting::kTensorflow || !model.spec.on_edge() || model.spec.from_image())
    return framework;
  std::string_view format;
  const api::EdgeModelReport* report =
      node == nullptr ? nullptr : node->status.find_model(model.metadata.key().str());
  if (report != nullptr) {
    const Report* version = report->find_version(report->exposed);
    if (version != nullptr && version->state == Report::kReady) format = version->format;
  }
  if (!format.empty())
    return std::string(format == Report::kPb ? hosting::kFrozenGraph : hosting::kTensorflow);
  // An agent that has just started has no report yet, and the pod must not change its server.
  if (pod != nullptr) {
    const auto noted = pod->metadata.annotations.find(std::string(kRequestAnnotation));
    const auto request = noted == pod->metadata.annotations.end()
                             ? Result<codec::Json>(codec::Json())
                             : codec::parse_json(noted->second);
    if (request.ok() && (*request)["framework"].as_string() == hosting::kFrozenGraph)
      return std::string(hosting::kFrozenGraph);
  }
  return framework;
}

}  // namespace varda::controllers::inferencemodel
