#include "contract.h"

#include <cstdint>
#include <utility>

#include "codec/digest.h"
#include "codec/json.h"

namespace varda::trainapp {
namespace {

using codec::Json;
using worker::object_of;
using worker::path_of;
using worker::value_of;

constexpr std::int64_t kCheckpointSecondsMax = 86'400;
// The name of an artifact has at most 63 characters: report-model-VERSION, model-VERSION.onnx.
constexpr std::size_t kVersionInNameMax = 48;

}  // namespace

Result<Contract> read_contract(const Environment& environment) {
  Contract out;
  TRY(out.job.model,
      path_of(environment, "BASE_MODEL_URL", "the built-in trainer needs spec.initialModel"));
  TRY(out.job.data.path, path_of(environment, "TRAIN_DATASET_URL", "the path of the dataset"));
  out.job.data.format = value_of(environment, "TRAIN_DATASET_FORMAT");
  if (const std::string path = value_of(environment, "EVAL_DATASET_URL"); !path.empty())
    out.job.evaluation = DataSource{path, value_of(environment, "EVAL_DATASET_FORMAT")};
  TRY(out.job.directory, path_of(environment, "MODEL_URL", "the directory for the result"));
  out.job.confine_data = true;
  out.job.classes_setting = "head.classes";

  TRY(const Json parameters, object_of(environment, "PARAMETERS"));
  TRY(out.job.settings, training::parse_settings(parameters).context("PARAMETERS"));
  TRY(const Json training, object_of(environment, "TRAINING"));
  out.job.hold_out = training["holdOut"].as_double(out.job.hold_out);
  if (!(out.job.hold_out >= 0 && out.job.hold_out < 1))
    return Error(Code::kInvalid, "TRAINING.holdOut must be at least 0 and less than 1");
  const std::int64_t seconds = training["checkpointSeconds"].as_integer(60);
  if (seconds < 1 || seconds > kCheckpointSecondsMax)
    return Error(Code::kInvalid, "TRAINING.checkpointSeconds must be from 1 to 86400");
  out.job.checkpoint_every = std::chrono::seconds(seconds);
  std::string variables;
  for (const char* name : {"BASE_MODEL_URL", "TRAIN_DATASET_URL", "TRAIN_DATASET_FORMAT",
                           "EVAL_DATASET_URL", "EVAL_DATASET_FORMAT", "PARAMETERS", "TRAINING"})
    variables += value_of(environment, name) + "\n";
  out.task = codec::Sha256::of(variables).hex();
  const Json& version = training["version"];
  const std::string name =
      version.is_integer() ? std::to_string(version.as_integer()) : version.string_or("1");
  out.artifact = "model-" + name.substr(0, kVersionInNameMax);
  return out;
}

}  // namespace varda::trainapp
