// The work of a federated client: tasks become rounds of training::LocalTrainer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client_settings.h"
#include "codec/json.h"
#include "infer/engine.h"
#include "job.h"
#include "model_directory.h"
#include "os/file_system.h"
#include "participant/worker.h"
#include "training/local.h"

namespace varda::trainapp {

/// Opens model and data with the first task, and again if a task has another file or settings.
class FederatedWorker final : public participant::Worker {
 public:
  struct Options {
    // `model` is empty if the aggregator sends the file. The tasks have `settings`.
    Job job;
    codec::Json trainer = codec::Json::object();  // members that win over those of the tasks
    ClientSettings client;
    os::Path directory;  // of files that stay
  };
  /// All references outlive the worker.
  FederatedWorker(Options options, infer::Engines& engines, os::FileSystem& fs,
                  training::Observer& observer);
  ~FederatedWorker() override;

  Result<participant::TrainedUpdate> train(const Context& ctx,
                                           const participant::Assignment& assignment) override;
  Result<participant::Evaluated> evaluate(const Context& ctx,
                                          const participant::Assignment& assignment) override;

 private:
  Status prepare(const Context& ctx, const participant::Assignment& assignment);
  Result<ModelSource> source_of(const participant::Assignment& assignment);
  Result<codec::Json> settings_of(const participant::Task& task) const;
  Result<std::optional<training::PrivacyOptions>> privacy();
  Status set_weights(const participant::Assignment& assignment);

  const Options options_;
  infer::Engines& engines_;
  os::FileSystem& fs_;
  training::Observer& observer_;
  std::string key_;       // of the file and the settings that are open
  codec::Json settings_;  // of the last task with settings
  std::optional<Opened> opened_;
  std::unique_ptr<training::LocalTrainer> trainer_;  // after opened_: it reads the data
};

}  // namespace varda::trainapp
