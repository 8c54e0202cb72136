// The training workers of a job: their nodes and their data. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/sedna/federated_learning_job.h"
#include "controllers/federatedlearning/plan.h"
#include "controllers/runs/runs.h"
#include "controllers/workers/workers.h"

namespace varda::controllers::federatedlearning {

/// One training worker with its place.
struct Participant {
  const api::FederatedTrainingWorker* entry = nullptr;  // of the job
  workers::Worker worker;                               // name and node
  std::string pod;
  std::string dataset;  // name; "": none
  std::optional<runs::DatasetOnNode> data, evaluation;
  std::optional<hosting::Problem> problem;  // of the node, or of the data
};

struct Participants {
  std::vector<Participant> list;           // in the order of the spec, then by node
  std::vector<hosting::Problem> problems;  // of entries that have no place, or too many
};
Participants find_participants(const api::FederatedLearningJob& job, const FederatedWorld& world);

/// The name of the worker of an entry, one for each replica. It is independent of the order of the
/// entries, so that a removed entry renames no other worker.
std::vector<std::string> worker_names(const api::FederatedLearningJobSpec& spec);
std::string replica_name(const std::string& worker, std::int64_t number);
/// True: Varda's trainer.
inline bool is_ours(const api::Worker& worker) { return !worker.has_template(); }

}  // namespace varda::controllers::federatedlearning
