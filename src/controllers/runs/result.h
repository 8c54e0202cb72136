// The result of a run as a version of a Model. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/ai/training_model.h"
#include "api/edgeai/model.h"
#include "base/clock.h"
#include "controllers/runs/report.h"
#include "hosting/model_archive.h"

namespace varda::controllers::runs {

/// The place of uploaded files.
struct ResultStore {
  std::string registry_url;
  std::string bucket_url = {};  // "": the registry
};

/// The uploaded file as a version. `version` "": the first digits of the digest.
api::TrainingProduced produced_of(const ReportedResult& result, const std::string& version,
                                  const ResultStore& store);
/// URL of an uploaded file that is not the model; "": it was not uploaded.
std::string url_of(const std::optional<ReportedArtifact>& file, const ResultStore& store,
                   const std::string& name);

/// The Model with a result, and the lineage of the result.
struct ModelOfRun {
  std::string name, ns;
  std::string group;       // edgeai.io, sedna.io
  std::string source_job;  // KIND/NAME
  std::string format;      // "": onnx
  const api::TrainingProduced& produced;
  const std::optional<api::TrainingBase>& base;
  /// Free members of spec.metadata; those with an empty value are left out.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string credentials = {};  // name of the Secret for the URL; "": none
};
Json to_object(const ModelOfRun& model);

/// True if the Model has the result, with these metrics.
bool has_result(const hosting::AnyModel& model, const api::TrainingProduced& produced,
                const std::vector<api::ModelMetric>& metrics);
/// Gives the Model's status the metrics of the result.
void set_metrics(Json& model, const std::vector<api::ModelMetric>& metrics, WallTime now);

}  // namespace varda::controllers::runs
