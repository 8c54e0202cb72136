#include "flags.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "../config_file.h"
#include "../help.h"
#include "base/text.h"
#include "codec/yaml.h"
#include "model_directory.h"

namespace varda::trainapp {
namespace {

using codec::Json;

constexpr std::uint64_t kSettingsBytesMax = 1 << 20;

/// The first required flag that is absent, or another problem, or "".
std::string problem_of(const app::TrainFlags& flags) {
  if (flags.worker) return "";
  if (flags.is_federated && flags.federated.empty())
    return "--federated needs the URL of the aggregator, such as http://10.0.0.5:7363";
  if (flags.model.empty() && !flags.is_federated)
    return "--model is required: the ONNX file to train";
  if (flags.data.empty()) return "--data is required: the file or directory of the training data";
  if (flags.out.empty()) return "--out is required: the directory for the result";
  if (flags.is_federated && (flags.incremental || flags.select || flags.compare))
    return "--federated excludes --incremental, --select and --compare";
  if (flags.compare && flags.candidate.empty())
    return "--compare needs --candidate: the model to compare with --base";
  if (flags.refuse && flags.give_back) return "--refuse and --give-back exclude each other";
  if (flags.incremental && flags.hold_out)
    return "--hold-out is for a training alone; --incremental has --train-share";
  if (flags.hold_out && !flags.evaluation.empty())
    return "--hold-out and --evaluation exclude each other";
  return "";
}

int refuse(const std::string& why) {
  std::cerr << "varda-train: " << why << "\n`varda-train --help` lists the flags\n";
  return 2;
}

/// "accuracy:3".
Result<Json> early_stopping(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto patience = colon == std::string::npos
                            ? std::nullopt
                            : parse_integer<std::int64_t>(std::string_view(text).substr(colon + 1));
  if (!patience || colon == 0)
    return Error(Code::kInvalid,
                 "--early-stopping " + text + ": must be METRIC:PATIENCE, such as accuracy:3");
  return Json::object({{"metric", text.substr(0, colon)}, {"patience", *patience}});
}

/// The object at `name`, created if absent.
Json& member(Json& settings, const char* name) {
  if (!settings[name].is_object()) settings.set(name, Json::object());
  return settings[name];
}

}  // namespace

Parsed parse_flags(int argc, char** argv) {
  app::TrainFlags flags;
  CLI::App parser("Trains an ONNX model. The result is the same file with new weights.",
                  "varda-train");
  parser.set_version_flag("-v,--version", "varda-train " VARDA_VERSION, "print the version");
  parser.formatter(std::make_shared<app::HelpFormatter>(app::help_width()));
  parser.failure_message([](const CLI::App* app, const CLI::Error& error) {
    const std::vector<std::string> unknown = app->remaining();
    const std::string why = unknown.empty() ? error.what()
                            : unknown.front().starts_with('-')
                                ? "there is no flag " + unknown.front()
                                : "there is no argument \"" + unknown.front() + "\"";
    return "varda-train: " + why + "\n`varda-train --help` lists the flags\n";
  });
  std::string config;
  parser
      .add_option("--config", config,
                  "file with further flags, one NAME = VALUE a line; the command line wins over it")
      ->configurable(false);
  add_train_flags(parser, flags);
  try {
    app::parse_with_config(parser, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, parser.exit(e, std::cout, std::cerr) == 0 ? 0 : 2};
  }
  flags.is_federated = parser.count("--federated") > 0;
  if (const std::string why = problem_of(flags); !why.empty()) return {std::nullopt, refuse(why)};
  return {std::move(flags), 0};
}

Result<Json> settings_of(os::FileSystem& fs, const app::TrainFlags& flags) {
  Json settings = Json::object();
  if (!flags.settings.empty()) {
    const os::Path file = followed(flags.settings);
    TRY(const std::string text, read_regular(fs, file, kSettingsBytesMax));
    TRY(settings, codec::parse_yaml(text).context(flags.settings));
    if (!settings.is_object())
      return Error(Code::kInvalid, flags.settings +
                                       ": must be a mapping, the members of "
                                       "spec.trainer");
  }
  if (flags.task) settings.set("task", *flags.task);
  if (flags.epochs) settings.set("epochs", *flags.epochs);
  if (flags.batch_size) settings.set("batchSize", *flags.batch_size);
  if (flags.loss) settings.set("loss", *flags.loss);
  if (flags.optimizer) member(settings, "optimizer").set("name", *flags.optimizer);
  if (flags.learning_rate) member(settings, "optimizer").set("learningRate", *flags.learning_rate);
  if (flags.momentum) member(settings, "optimizer").set("momentum", *flags.momentum);
  if (flags.early_stopping) {
    TRY(Json stopping, early_stopping(*flags.early_stopping));
    settings.set("earlyStopping", std::move(stopping));
  }
  if (!flags.freeze.empty())
    settings.set("freeze", Json(Json::Array(flags.freeze.begin(), flags.freeze.end())));
  if (flags.classes) settings.set("head", Json::object({{"classes", *flags.classes}}));
  if (flags.label) settings.set("labelColumn", *flags.label);
  if (flags.seed) settings.set("seed", *flags.seed);
  if (flags.threads) settings.set("threads", *flags.threads);
  return settings;
}

}  // namespace varda::trainapp
