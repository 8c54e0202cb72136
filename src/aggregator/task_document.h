// The JSON of a task, as docs/reference/federated-api.yaml describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/next_model.h"
#include "aggregator/store.h"
#include "base/clock.h"
#include "codec/json.h"
#include "federated/round_machine.h"
#include "federated/settings.h"

namespace varda::aggregator {

/// Files that clients without a copy of the model need beside the weights.
struct ModelExtras {
  std::vector<std::string> labels;
  std::string yaml;  // content of model.yaml; "": none
};

/// The facts of a job that its tasks share.
struct TaskFacts {
  const federated::Settings& settings;
  const NextModel::Needs& needs;
  const ModelExtras& extras;
  std::string file;     // SHA-256 of the model file for clients; "": none
  std::string control;  // SHA-256 of the server's control variate; "": none
  std::uint64_t update_bytes_max = 0;
  std::size_t values = 0;  // of the model
  std::string job;
  double secure_weight_max = 0;  // of the open secure sum; 0: the settings'
};

/// A task to train or to evaluate, for one client.
codec::Json task_document(const federated::Task& task, const std::string& client,
                          const TaskFacts& facts, Store& store, SteadyTime now);

/// The name of a round's secure sum, which binds its keys.
std::string secure_sum_name(const std::string& job, const std::string& task);

}  // namespace varda::aggregator
