// The facts of a round: the updates that count, the metrics, the record that the job keeps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "codec/json.h"

namespace varda::federated {

/// Values by name: loss, accuracy, …
using Metrics = std::map<std::string, double>;

/// An accepted update.
struct AcceptedUpdate {
  std::string client;
  std::string digest;           // SHA-256 of the file, in hex
  std::int64_t trained_on = 0;  // the round of the model that the client started from
  std::int64_t repeat = 0;      // of that round's task
  double samples = 0;
  double norm = 0, control_norm = 0;  // as UpdateLimits::Checked of update.h
  Metrics metrics;                    // of the local training
};

struct RoundRecord {
  std::int64_t round = 0;
  std::int64_t attempts = 0;  // 1: the quorum was there at the first deadline
  std::int64_t repeats = 0;   // by repeat_round()
  std::int64_t clients = 0;   // that had the task
  std::int64_t updates = 0;   // that count
  std::int64_t refused = 0;   // also quarantined
  double samples = 0;
  double seconds = 0;  // from the first task to the aggregation
  std::string model;   // the result
  Metrics training;    // mean of the clients' metrics, by samples
  Metrics evaluation;  // the same of the evaluation; empty: none
  std::int64_t evaluated_by = 0;
};

codec::Json to_json(const Metrics& metrics);
codec::Json to_json(const AcceptedUpdate& update);
codec::Json to_json(const RoundRecord& record);
/// Absent members have their defaults.
Metrics metrics_of(const codec::Json& json);
AcceptedUpdate accepted_update_of(const codec::Json& json);
RoundRecord record_of(const codec::Json& json);

/// Means of metrics by samples. Clients may report different metrics.
class MeanMetrics {
 public:
  void add(const Metrics& metrics, double samples);
  Metrics result() const;

 private:
  std::map<std::string, std::pair<double, double>> sums_;  // and weights
};

}  // namespace varda::federated
