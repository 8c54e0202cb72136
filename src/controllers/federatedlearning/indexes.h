// Index functions of FederatedLearningJobs: jobs by the objects that they depend on. Pure. An ended
// job depends on nothing.
#pragma once

#include <string>
#include <vector>

#include "api/sedna/federated_learning_job.h"

namespace varda::controllers::federatedlearning {

/// Jobs by the names of nodes that they are on, or ask for.
inline constexpr const char* kJobsByNode = "federated job's node";
std::vector<std::string> index_by_node(const api::FederatedLearningJob& job);

/// Jobs by the labels of nodes that their selectors may select (workers::selection_values()). ""
/// too: the aggregation worker has no place yet, so that any node may be the place.
inline constexpr const char* kJobsBySelector = "federated job's selectors";
std::vector<std::string> index_by_selector(const api::FederatedLearningJob& job);

/// Jobs by the Models and InferenceModels that they read or write, as NAMESPACE/NAME.
inline constexpr const char* kJobsByModel = "federated job's model";
std::vector<std::string> index_by_model(const api::FederatedLearningJob& job);

/// Jobs by their Datasets, as NAMESPACE/NAME, or NAMESPACE/ for those that any Dataset affects.
inline constexpr const char* kJobsByDataset = "federated job's dataset";
std::vector<std::string> index_by_dataset(const api::FederatedLearningJob& job);

/// True: labels or nodes choose a Dataset of the job, so that all Datasets matter.
bool needs_all_datasets(const api::FederatedLearningJobSpec& spec);
/// Names of Datasets in the spec.
std::vector<std::string> dataset_names(const api::FederatedLearningJobSpec& spec);
/// Names of nodes in the spec.
std::vector<std::string> node_names(const api::FederatedLearningJobSpec& spec);

}  // namespace varda::controllers::federatedlearning
