// Parts of worker reports in EdgeNode.status that all runs have: files, results, errors. A worker
// may be any program, so each value is checked and bounded. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"

namespace varda::controllers::runs {

using codec::Json;

/// A file that the worker handed over to its node.
struct ReportedArtifact {
  std::string name;   // at /v1/artifacts
  std::string state;  // Waiting, Uploading, Uploaded, Failed
  std::string reason;
  std::string sha256;  // "": not valid
  std::int64_t bytes = 0, sent = 0;

  bool is_on_its_way() const { return state != "Uploaded" && state != "Failed"; }
};

/// results/final
struct ReportedResult {
  std::string artifact;  // "": missing
  std::optional<ReportedArtifact> file;
  std::string file_name;  // end of the URL; "": none
  // The report of the run for people, which was put to /v1/artifacts too. Absent: none.
  std::optional<ReportedArtifact> report;
  std::optional<ReportedArtifact> csv;  // of all rounds; absent: none
  std::string format;
  std::vector<api::ModelMetric> metrics;
  std::string fingerprint;
  std::int64_t samples = 0;
};

/// results/error
struct ReportedError {
  std::string message;
  bool permanent = false;
};

/// The report of the worker `key` with this uid; null: none.
const Json* find_report(const api::EdgeNode* node, std::string_view key, std::string_view uid);
std::optional<ReportedResult> result_of(const Json& report);
std::optional<ReportedError> error_of(const Json& report);

/// A count from 0 to 10^15.
std::int64_t count_of(const Json& value);
/// short_number(); "" if the value is no number.
std::string number_of(const Json& value);
/// At most `items_max` numbers of the object, as text.
std::map<std::string, std::string> numbers_of(const Json& object, std::size_t items_max);
/// "0.9712", "18234": at most 4 significant digits, but no rounding before the point.
std::string short_number(double value);

/// The metric that tables show, such as "accuracy 0.97": the best known one that the run has.
std::string main_metric(const std::vector<api::ModelMetric>& metrics);

}  // namespace varda::controllers::runs
