// The inputs of a run: the initial model and the datasets. Pure; shared by the kinds whose result
// is a version of a Model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/ai/training_model.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/workers/workers.h"
#include "hosting/placement.h"

namespace varda::controllers::runs {

/// The Datasets of one name, as cached. Null: missing.
struct NamedDatasets {
  std::shared_ptr<const api::Dataset> edgeai;
  std::shared_ptr<const api::SednaDataset> sedna;
};

/// Our trainer reads onnx only. A worker of the user reads any format, and loads a URL itself.
enum class Trainer { kOurs, kUsers };

/// The initial model that a run asks for. Borrows the members.
struct BaseRequest {
  const api::TrainingInitialModel& wanted;
  const meta::ObjectMeta& run;
  const std::string& model_name;  // of archives without a model
  Trainer trainer = Trainer::kUsers;
};

/// `pinned`, if it is the choice for this request.
std::optional<api::TrainingBase> pinned_base(const std::optional<api::TrainingBase>& pinned,
                                             const BaseRequest& request);

/// Exactly one member is set. Problems are those of resolve_model(), and VersionMissing.
struct BaseChoice {
  std::optional<api::TrainingBase> base;
  std::optional<hosting::Problem> problem;
};
BaseChoice choose_base(const BaseRequest& request, const workers::ModelWorld& world);

/// The pinned archive of spec.scripts, if it belongs to the present spec.
std::optional<api::TrainingBase> pinned_scripts(const api::TrainingModel& training);
/// Requires spec.scripts.
BaseChoice choose_scripts(const api::TrainingModel& training, const workers::ModelWorld& world);

/// The model for workers::Worker.
workers::ResolvedModel resolved(const api::TrainingBase& base, const BaseRequest& request);

/// A dataset on its node.
struct DatasetOnNode {
  std::string path, format, fingerprint;
  std::string mount;  // the path, or the directory with further files of the samples
};
/// Exactly one member is set. Problems: DatasetNotFound, DatasetAmbiguous, DatasetElsewhere,
/// PathForbidden, DatasetNotReady.
struct DatasetChoice {
  std::optional<DatasetOnNode> dataset;
  std::optional<hosting::Problem> problem;
};
/// A started run does not wait for a count that is unfinished or failed.
enum class Started { kNo, kYes };
DatasetChoice choose_dataset(const api::TrainingDataset& reference, const NamedDatasets& named,
                             const api::EdgeNode& agent, Started started);

/// A dataset that a run without a node reads: a file that the agent of the Job fetches, or a
/// volume.
struct DatasetInCluster {
  std::optional<api::TrainingBase> file;  // version: the first digits of the digest
  std::string claim;                      // of a volume; "": `file`
  std::string path;                       // of the data in the archive or the volume; "": all of it
  std::string format;
};
/// Exactly one member is set. Problems: DatasetNotFound, DatasetAmbiguous, DatasetElsewhere,
/// DigestMissing, InvalidSpec.
struct ClusterDatasetChoice {
  std::optional<DatasetInCluster> dataset;
  std::optional<hosting::Problem> problem;
};
ClusterDatasetChoice choose_cluster_dataset(const api::TrainingDataset& reference,
                                            const NamedDatasets& named);
/// `pinned` as the archive for a worker of the run.
workers::ResolvedModel resolved_file(const api::TrainingBase& pinned, const meta::ObjectMeta& run);

}  // namespace varda::controllers::runs
