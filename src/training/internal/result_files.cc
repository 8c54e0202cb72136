#include "training/internal/result_files.h"

#include <cstdint>
#include <utility>

#include "codec/digest.h"
#include "codec/json.h"

namespace varda::training {
namespace {

using codec::Json;

constexpr const char* kModel = "model.onnx";
constexpr const char* kMetrics = "metrics.json";

Result<Outcome> parse_outcome(const Json& json) {
  TRY(Evaluation evaluation, parse_evaluation(json));
  Outcome out{.metrics = std::move(evaluation.metrics),
              .confusion = std::move(evaluation.confusion),
              .worst = std::move(evaluation.worst),
              .stopped_early = json["stoppedEarly"].as_bool(),
              .samples = static_cast<std::uint64_t>(json["samples"].as_integer()),
              .replayed = static_cast<std::uint64_t>(json["replayed"].as_integer()),
              .fingerprint = json["fingerprint"].as_string(),
              .seconds = json["seconds"].as_double()};
  for (const Json& name : json["classes"].as_array()) out.classes.push_back(name.as_string());
  for (const Json& record : json["history"].as_array()) {
    TRY(EpochRecord parsed, parse_epoch_record(record));
    out.history.push_back(std::move(parsed));
  }
  return out;
}

}  // namespace

Status write_result(os::FileSystem& fs, const os::Path& directory, const std::string& identity,
                    std::string_view model, const Outcome& outcome) {
  Json json = to_json(outcome);
  json.set("run", identity);
  json.set("sha256", codec::Sha256::of(model).hex());
  TRY_VOID(os::write_file_atomically(fs, directory / kModel, model));
  return os::write_file_atomically(fs, directory / kMetrics, codec::write_json_pretty(json) + "\n");
}

std::optional<Outcome> read_result(os::FileSystem& fs, const os::Path& directory,
                                   const std::string& identity) {
  const auto read = [&]() -> Result<Outcome> {
    TRY(const std::string text, os::read_file(fs, directory / kMetrics));
    TRY(const Json json, codec::parse_json(text));
    if (json["run"].as_string() != identity) return Error(Code::kNotFound, "another run");
    TRY(const std::string model, os::read_file(fs, directory / kModel, kFileMax));
    if (codec::Sha256::of(model).hex() != json["sha256"].as_string())
      return Error(Code::kCorrupt, "another model");
    TRY(Outcome out, parse_outcome(json));
    out.model = directory / kModel;
    return out;
  };
  Result<Outcome> out = read();
  if (!out.ok()) return std::nullopt;
  return std::move(out).value();
}

codec::Json to_json(const Outcome& outcome) {
  Json out = to_json(Evaluation{outcome.metrics, outcome.confusion, outcome.worst});
  Json history = Json::array();
  for (const EpochRecord& record : outcome.history) history.push_back(to_json(record));
  out.set("history", std::move(history));
  Json classes = Json::array();
  for (const std::string& name : outcome.classes) classes.push_back(name);
  out.set("classes", std::move(classes));
  out.set("stoppedEarly", outcome.stopped_early);
  out.set("samples", outcome.samples);
  if (outcome.replayed > 0) out.set("replayed", outcome.replayed);
  out.set("fingerprint", outcome.fingerprint);
  out.set("seconds", outcome.seconds);
  return out;
}

}  // namespace varda::training
