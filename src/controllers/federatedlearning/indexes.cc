#include "controllers/federatedlearning/indexes.h"

#include <set>
#include <utility>

#include "controllers/federatedlearning/plan.h"
#include "controllers/workers/workers.h"
#include "hosting/node_index.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedLearningJob;
using api::FederatedLearningJobSpec;
using meta::ObjectKey;

std::vector<std::string> listed(std::set<std::string> values) {
  return {std::make_move_iterator(values.begin()), std::make_move_iterator(values.end())};
}

}  // namespace

std::vector<std::string> node_names(const FederatedLearningJobSpec& spec) {
  std::set<std::string> names{spec.aggregation_worker.node()};
  for (const auto& entry : spec.training_workers) names.insert(entry.node());
  names.erase("");
  return listed(std::move(names));
}

std::vector<std::string> dataset_names(const FederatedLearningJobSpec& spec) {
  std::set<std::string> names{spec.federated.at("evaluation/dataset/name").as_string()};
  for (const auto& entry : spec.training_workers)
    if (entry.dataset) names.insert(entry.dataset->name);
  names.erase("");
  return listed(std::move(names));
}

bool needs_all_datasets(const FederatedLearningJobSpec& spec) {
  for (const auto& entry : spec.training_workers) {
    if (entry.dataset ? entry.dataset->name.empty() : entry.selector.has_value()) return true;
  }
  return spec.federated.at("evaluation/dataset/selector").is_object();
}

std::vector<std::string> index_by_node(const FederatedLearningJob& job) {
  if (job.status.ended()) return {};
  std::set<std::string> names{job.status.aggregator.node};
  for (std::string& name : node_names(job.spec)) names.insert(std::move(name));
  for (const api::FederatedParticipant& one : job.status.participants) names.insert(one.node);
  names.erase("");
  return listed(std::move(names));
}

std::vector<std::string> index_by_selector(const FederatedLearningJob& job) {
  if (job.status.ended()) return {};
  std::set<std::string> values;
  for (const auto& entry : job.spec.training_workers) {
    if (!entry.selector) continue;
    for (std::string& value : workers::selection_values(*entry.selector))
      values.insert(std::move(value));
  }
  if (job.status.aggregator.node.empty()) values.insert("");
  return listed(std::move(values));
}

std::vector<std::string> index_by_model(const FederatedLearningJob& job) {
  if (job.status.ended()) return {};
  const std::string& ns = job.metadata.ns;
  return listed({ObjectKey{ns, model_name(job)}.str(),
                 ObjectKey{ns, job.spec.aggregation_worker.model.name}.str(),
                 ObjectKey{ns, initial_model(job).name}.str()});
}

std::vector<std::string> index_by_dataset(const FederatedLearningJob& job) {
  if (job.status.ended()) return {};
  std::set<std::string> keys;
  for (const std::string& name : dataset_names(job.spec))
    keys.insert(ObjectKey{job.metadata.ns, name}.str());
  if (needs_all_datasets(job.spec)) keys.insert(job.metadata.ns + "/");
  return listed(std::move(keys));
}

}  // namespace varda::controllers::federatedlearning
