// One training run: opens model, engine and data, checks that they fit, and trains.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "infer/engine.h"
#include "model_directory.h"
#include "os/file_system.h"
#include "os/readable_tree.h"
#include "samples/samples.h"
#include "training/run.h"
#include "training/settings.h"

namespace varda::trainapp {

struct DataSource {
  os::Path path;
  std::string format;  // "": by the path
};

inline constexpr double kHoldOut = 0.1;  // default

struct Job {
  os::Path model;  // file or directory
  DataSource data;
  std::optional<DataSource> evaluation;  // absent: `hold_out` of `data`
  std::optional<DataSource> old;         // samples of earlier trainings, for `settings.continual`
  double hold_out = kHoldOut;
  training::Settings settings;
  os::Path directory;  // of the result
  std::chrono::milliseconds checkpoint_every{60'000};
  // In a pod the data come from other people: links that leave the dataset are refused.
  bool confine_data = false;
  std::string classes_setting = "--classes";  // named in messages
};

struct Trained {
  training::Outcome outcome;
  ModelSource source;
  codec::Sha256 digest;  // of model.onnx
  std::string engine;    // "onnxruntime 1.30.0"
  // Further members of the result `final`.
  codec::Json report = codec::Json::object();
  bool has_model = true;         // false: there is nothing to hand over but `report`
  std::string result = "final";  // the name of the result without a model
};

/// The engine and the data of a job, which fit the model.
struct Opened {
  infer::Engine* engine = nullptr;
  std::unique_ptr<os::ReadableTree> tree, evaluation_tree, old_tree;  // outlive the data
  std::shared_ptr<const samples::Dataset> data, evaluation, old;      // null: none
};
/// Errors as in train().
Result<Opened> open(const Context& ctx, const Job& job, const ModelSource& source,
                    infer::Engines& engines);

/// Opens the data for the places of samples alone. It reads no model, since that of a user's program
/// may have any format.
Result<Opened> open_places(const Context& ctx, const Job& job);

/// Trains, and completes the directory: model.onnx, model.yaml and labels. A run that was stopped
/// continues from the directory's checkpoint. kInvalid, kNotFound, kUnsupported: the model, the
/// data or the settings are wrong. kCancelled: stopped, with a checkpoint.
Result<Trained> train(const Context& ctx, const Job& job, infer::Engines& engines,
                      os::FileSystem& fs, training::Observer& observer);

/// Whether the failure will repeat with the same input.
bool is_wrong_input(const Error& error);

}  // namespace varda::trainapp
