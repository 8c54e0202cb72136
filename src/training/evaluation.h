// The result of an evaluation, and the JSON forms that a run keeps and reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::training {

struct EpochRecord {
  std::int64_t epoch = 0;  // from 1
  double loss = 0;         // the mean over the training data while the weights changed
  std::optional<double> evaluation_loss;
  std::map<std::string, double> metrics;
  double learning_rate = 0;  // of the last update
  double seconds = 0;
};

/// A sample that the model answers badly.
struct Worst {
  std::size_t index = 0;  // in the data of the evaluation
  std::string place;      // "test.csv, line 17"
  std::string expected, predicted;
  double loss = 0;
  std::string picture;  // JPEG or PNG; "": none
};

struct Evaluation {
  std::map<std::string, double> metrics;
  std::vector<std::vector<std::uint64_t>> confusion;  // rows: expected; empty: not classification
  std::vector<Worst> worst;                           // the largest loss first, without pictures
};
inline constexpr std::size_t kWorstMax = 12;

/// Adds a sample if its loss is among the largest.
void offer(std::vector<Worst>& worst, Worst one);
/// offer() would keep a sample with this loss.
bool is_wanted(const std::vector<Worst>& worst, double loss);

codec::Json to_json(const EpochRecord& record);
codec::Json to_json(const Evaluation& evaluation);
/// kCorrupt: a member is missing or has another type.
Result<EpochRecord> parse_epoch_record(const codec::Json& json);
Result<Evaluation> parse_evaluation(const codec::Json& json);

}  // namespace varda::training
