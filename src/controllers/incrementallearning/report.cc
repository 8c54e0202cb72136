#include "controllers/incrementallearning/report.h"

#include <string_view>
#include <utility>

#include "codec/text.h"

namespace varda::controllers::incrementallearning {

namespace {

using incremental::Assignment;
using incremental::Phase;
using incremental::Stage;

// `skipped` of a trainer that found no new sample (apps/varda-train).
constexpr std::string_view kNothingNew = "NoNewSamples";

/// Members of a result that name its attempt. A worker of the user may leave out attempt and stage.
bool is_of(const Json& data, const Assignment& assignment) {
  if (data["round"].as_integer() != assignment.round) return false;
  const Json &attempt = data["attempt"], &stage = data["stage"];
  return (attempt.is_null() || attempt.as_integer() == assignment.attempt) &&
         (stage.is_null() || stage.as_string() == incremental::to_string(assignment.stage));
}

incremental::WorkerReport of(const Assignment& assignment, Phase phase) {
  incremental::WorkerReport out;
  out.stage = assignment.stage;
  out.round = assignment.round;
  out.attempt = assignment.attempt;
  out.phase = phase;
  return out;
}

Json comparison_of(const Json& data) {
  return data["comparison"].is_object() ? data["comparison"] : data["metrics"];
}

}  // namespace

std::optional<StageReport> reported_end(const Json* report, const Assignment& assignment,
                                        bool separate) {
  if (report == nullptr) return {};
  const Json& data = report->at("results/final/data");
  // Without a stage, only the result of a training has a file.
  const bool of_training = data["stage"].is_null() && data.contains("artifact");
  if (is_of(data, assignment) && !(of_training && assignment.stage == Stage::kEval)) {
    StageReport out;
    out.report = of(assignment, Phase::kCompleted);
    if (assignment.stage == Stage::kEval) {
      out.report.comparison = comparison_of(data);
      return out;
    }
    if (!separate) out.report.comparison = comparison_of(data);
    out.result = runs::result_of(*report);
    if (!out.result || out.result->artifact.empty()) {
      out.report.phase = Phase::kFailed;
      out.report.permanent = true;
      const std::string& skipped = data["skipped"].as_string();
      out.report.nothing_new = skipped == kNothingNew;
      out.report.message =
          skipped.empty() ? "results/final has no data.artifact: the name of the file that the "
                            "trainer put to /v1/artifacts"
                          : codec::clipped(skipped + ": " + data["message"].as_string(), 512);
      return out;
    }
    if (!out.result->file || out.result->file->is_on_its_way() ||
        (out.result->report && out.result->report->is_on_its_way())) {
      out.report.phase = Phase::kRunning;
      return out;
    }
    if (out.result->file->state == "Failed" || out.result->file->sha256.empty()) {
      out.report.phase = Phase::kFailed;
      out.report.message = "the node cannot upload the file " + out.result->artifact +
                           (out.result->file->reason.empty() ? "" : ": ") +
                           out.result->file->reason;
      return out;
    }
    out.report.digest = out.result->file->sha256;
    return out;
  }
  const Json& error = report->at("results/error/data");
  if (!is_of(error, assignment)) return {};
  StageReport out;
  out.report = of(assignment, Phase::kFailed);
  const auto known = runs::error_of(*report);
  if (known) {
    out.report.message = known->message;
    out.report.permanent = known->permanent;
  }
  return out;
}

}  // namespace varda::controllers::incrementallearning
