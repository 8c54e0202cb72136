// ModelVersion: one loaded and warmed version of a model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "infer/engine.h"
#include "oip/infer.h"
#include "oip/metadata.h"
#include "serving/config.h"
#include "serving/executor.h"
#include "serving/stats.h"
#include "serving/trial/live_counts.h"
#include "transform/pipeline.h"

namespace varda::serving {

/// Thread-safe. Constant except for the metrics.
class ModelVersion {
 public:
  struct Source {
    std::string model;
    std::string version;
    std::filesystem::path directory;
  };
  /// Reads the version's configuration, then loads and warms the model; blocks. `engines` and
  /// `registry` outlive the version.
  static Result<std::unique_ptr<ModelVersion>> load(const Source& source,
                                                    const ModelConfig& defaults, os::FileSystem& fs,
                                                    infer::Engines& engines,
                                                    metrics::Registry& registry);

  const std::string& model() const { return metadata_.name; }
  const std::string& version() const { return metadata_.versions.front(); }
  /// The inputs and outputs that clients see, including the steps that model.yaml declares before
  /// and after the run.
  const oip::ModelMetadata& metadata() const { return metadata_; }
  /// Outputs that run() accepts by plain name: the outputs of metadata(), and those that steps
  /// read.
  const std::vector<tensor::Spec>& available() const {
    return pipeline_ ? pipeline_->available() : metadata_.outputs;
  }
  /// True if requests may send images: then metadata() has the BYTES input transform::kImageInput.
  bool takes_images() const { return pipeline_ && pipeline_->takes_images(); }
  const ModelConfig& config() const { return config_; }
  Executor& executor() { return executor_; }
  VersionStats& stats() { return stats_; }
  /// Counts of the answers since the load.
  trial::LiveCounts& live() { return live_; }

  /// Runs the model on the calling thread, with the steps that model.yaml declares before and
  /// after. Inputs are those of metadata(), or the model's own inputs in place of the images.
  /// `outputs` as for Pipeline::after(); empty: the outputs of metadata(). Only jobs of executor()
  /// may call this, since the executor limits concurrent runs.
  Result<std::vector<tensor::Named>> run(std::span<const tensor::Named> inputs,
                                         std::span<const std::string> outputs);

 private:
  ModelVersion(const Source& source, ModelConfig config, metrics::Registry& registry);
  Status open(const Source& source, infer::Engines& engines);
  Status warm();
  Result<std::vector<tensor::Named>> run_model(infer::Model& model,
                                               std::span<const tensor::Named> inputs,
                                               std::span<const std::string> outputs) const;
  Result<std::vector<tensor::Named>> run_free(std::span<const tensor::Named> inputs,
                                              std::span<const std::string> outputs);
  Result<tensor::Tensor> warm_input(const tensor::Spec& spec) const;

  const ModelConfig config_;
  oip::ModelMetadata metadata_;
  VersionStats stats_;
  trial::LiveCounts live_;
  std::optional<transform::Pipeline> pipeline_;  // set if model.yaml declares steps
  std::vector<std::unique_ptr<infer::Model>>
      models_;  // several if the engine limits the runs of each
  Mutex mutex_;
  std::vector<infer::Model*> free_
      GUARDED_BY(mutex_);  // empty if one model takes any number of runs
  // Last, so that its threads end before the members that they use.
  Executor executor_;
};

}  // namespace varda::serving
