// The way of labels: from people and a bigger model into the job's Dataset.

#include "controllers/incrementallearning/plan.h"
#include "controllers/replication/replication.h"

namespace varda::controllers::incrementallearning {

namespace {

constexpr std::string_view kFolderFormat = "imagefolder";

template <typename AnyDataset>
void set_folder(const AnyDataset& dataset, LabelWay& out) {
  const std::string subject = "Dataset " + dataset.metadata.name;
  if (dataset.spec.format != kFolderFormat) {
    out.problem = hosting::Problem{"DatasetUnusable",
                                   subject + " has the format " + dataset.spec.format +
                                       ": labelled samples need a folder for each class, so " +
                                       std::string(kFolderFormat)};
    return;
  }
  const auto path = replication::local_path(dataset.spec.url);
  if (!path) {
    out.problem = hosting::Problem{"DatasetUnusable", subject + " is no folder of a node"};
    return;
  }
  out.node = dataset.spec.node_name;
  out.folder = *path;
}

}  // namespace

const std::string& label_model(const api::IncrementalLearningJob& job) {
  return job.spec.deploy_spec.pseudo_labels["model"]["name"].as_string();
}

LabelWay label_way(const api::IncrementalLearningJob& job, const runs::NamedDatasets& datasets,
                   const NamedInferenceModel& model_named) {
  LabelWay out;
  const std::string& group = job.spec.dataset.group;
  if (datasets.edgeai != nullptr && group != api::SednaDataset::resource().group) {
    set_folder(*datasets.edgeai, out);
  } else if (datasets.sedna != nullptr && group != api::Dataset::resource().group) {
    set_folder(*datasets.sedna, out);
  } else {
    out.problem =
        hosting::Problem{"DatasetNotFound", "Dataset " + job.spec.dataset.name + " does not exist"};
  }
  const std::string& name = label_model(job);
  if (name.empty()) return out;
  const auto model = model_named(name);
  const std::string subject = "InferenceModel " + name + " of deploySpec.pseudoLabels";
  if (model == nullptr) {
    if (!out.problem) out.problem = hosting::Problem{"ModelNotFound", subject + " does not exist"};
    return out;
  }
  out.url = model->status.url;
  out.model = model->spec.model_name;
  if (out.url.empty() && !out.problem)
    out.problem = hosting::Problem{"ModelPending", subject + " has no server so far"};
  return out;
}

}  // namespace varda::controllers::incrementallearning
