#include "serving/model_version.h"

#include "base/log.h"

namespace varda::serving {
namespace {

double to_microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Rows of a batch if the model's first dimension is open, else 1.
double rows(const std::vector<tensor::Spec>& specs, std::span<const tensor::Named> inputs) {
  if (specs.empty() || inputs.empty() || specs[0].shape.empty() || specs[0].shape[0] != -1)
    return 1;
  const tensor::Shape& shape = inputs[0].tensor.shape();
  return shape.empty() ? 1 : static_cast<double>(shape[0]);
}

Executor::Options executor_options(const ModelConfig& config) {
  Executor::Options out{.instances = config.instances,
                        .queue_max = config.queue_max,
                        .queue_bytes_max = config.queue_bytes_max};
  // An image of eight kilobytes may take a second to decode, however fast earlier images were.
  // Images are therefore never decoded on the caller's thread, which serves connections.
  if (config.transform.image) out.inline_bytes_max = 0;
  return out;
}

}  // namespace

ModelVersion::ModelVersion(const Source& source, ModelConfig config, metrics::Registry& registry)
    : config_(std::move(config)),
      stats_(registry, source.model, source.version),
      live_(&stats_.best_score),
      executor_(executor_options(config_)) {
  metadata_.name = source.model;
  metadata_.versions = {source.version};
  metadata_.labels = config_.labels;
}

Result<std::unique_ptr<ModelVersion>> ModelVersion::load(const Source& source,
                                                         const ModelConfig& defaults,
                                                         os::FileSystem& fs,
                                                         infer::Engines& engines,
                                                         metrics::Registry& registry) {
  const SteadyTime start = system_clock().now();
  TRY(ModelConfig config, read_config(fs, source.directory, defaults));
  std::unique_ptr<ModelVersion> made(
      new ModelVersion(source, std::move(config), registry));  // NOLINT: private constructor
  TRY_VOID(made->open(source, engines));
  TRY_VOID(made->warm());
  made->stats_.load_seconds.set(
      std::chrono::duration<double>(system_clock().now() - start).count());
  return made;
}

Status ModelVersion::open(const Source& source, infer::Engines& engines) {
  TRY(infer::Engine * engine, engines.get(config_.engine));
  const infer::LoadOptions options = {.directory = source.directory,
                                      .file = source.directory / config_.file,
                                      .intra_op_threads = config_.threads,
                                      .memory_arena = config_.memory_arena,
                                      .options = config_.options};
  TRY(std::unique_ptr<infer::Model> first, engine->load(options));
  metadata_.inputs = first->inputs();
  metadata_.outputs = first->outputs();
  if (!config_.transform.empty()) {
    auto pipeline = transform::Pipeline::compile(config_.transform, metadata_.inputs,
                                                 metadata_.outputs, config_.labels);
    if (!pipeline.ok()) return std::move(pipeline).error().context("model.yaml");
    pipeline_ = std::move(pipeline).value();
    metadata_.inputs = pipeline_->inputs();
    metadata_.outputs = pipeline_->outputs();
  }
  const std::size_t dot = config_.file.rfind('.');
  metadata_.platform =
      config_.engine + (dot != std::string::npos ? "_" + config_.file.substr(dot + 1) : "");
  const unsigned runs = first->concurrent_runs_max();
  models_.push_back(std::move(first));
  if (runs == 0) return {};
  for (unsigned places = runs; places < config_.instances; places += runs) {
    TRY(std::unique_ptr<infer::Model> copy, engine->load(options));
    models_.push_back(std::move(copy));
  }
  MutexLock lock(mutex_);
  for (unsigned i = 0; i < config_.instances; ++i)
    free_.push_back(models_[i % models_.size()].get());
  return {};
}

Result<tensor::Tensor> ModelVersion::warm_input(const tensor::Spec& spec) const {
  tensor::Shape shape = spec.shape;
  if (const auto it = config_.warmup_shapes.find(spec.name); it != config_.warmup_shapes.end()) {
    if (!tensor::fits(it->second, spec.shape)) {
      return Error(Code::kInvalid, "model.yaml: warmup.shapes." + spec.name + " does not fit " +
                                       tensor::to_string(spec.shape));
    }
    shape = it->second;
  }
  if (!shape.empty() && shape[0] == -1) shape[0] = 1;
  for (const std::int64_t size : shape) {
    // Not every size of an open dimension works in a graph, so none is guessed.
    if (size < 0)
      return Error(Code::kUnsupported, "input \"" + spec.name + "\" has open dimensions " +
                                           tensor::to_string(spec.shape));
  }
  if (spec.dtype == tensor::DType::kBytes) {
    TRY(const std::size_t count, tensor::elements(shape));
    return tensor::Tensor::of_strings(shape, std::vector<std::string>(count));
  }
  return tensor::Tensor::allocate(spec.dtype, std::move(shape));
}

Status ModelVersion::warm() {
  if (config_.warmup_runs == 0) return {};
  std::vector<tensor::Named> inputs;
  if (pipeline_) {
    TRY(inputs, pipeline_->sample());
  }
  for (const tensor::Spec& spec : metadata_.inputs) {
    if (takes_images() && spec.name == transform::kImageInput) continue;
    auto input = warm_input(spec);
    if (!input.ok() && input.error().code() == Code::kUnsupported) {
      log::info("warm-up skipped, set warmup.shapes in model.yaml",
                {{"model", model()}, {"version", version()}, {"reason", input.error().message()}});
      return {};
    }
    if (!input.ok()) return std::move(input).error();
    inputs.push_back({spec.name, std::move(input).value()});
  }
  Duration last{};
  for (const auto& copy : models_) {
    for (unsigned i = 0; i < config_.warmup_runs; ++i) {
      const SteadyTime start = system_clock().now();
      auto outputs = run_model(*copy, inputs, {});
      if (!outputs.ok()) return std::move(outputs).error().context("the first run failed");
      last = system_clock().now() - start;
    }
  }
  executor_.expect(last);
  return {};
}

Result<std::vector<tensor::Named>> ModelVersion::run_model(
    infer::Model& model, std::span<const tensor::Named> inputs,
    std::span<const std::string> outputs) const {
  if (!pipeline_) return model.run(inputs, outputs);
  TRY(const transform::Prepared prepared, pipeline_->before({inputs.begin(), inputs.end()}));
  TRY(const std::vector<std::string> needed, pipeline_->needs(outputs));
  TRY(const std::vector<tensor::Named> raw, model.run(prepared.inputs, needed));
  return pipeline_->after(prepared, raw, outputs);
}

Result<std::vector<tensor::Named>> ModelVersion::run(std::span<const tensor::Named> inputs,
                                                     std::span<const std::string> outputs) {
  if (!pipeline_) return run_free(inputs, outputs);
  // Rejects unknown outputs before any image is decoded.
  TRY(const std::vector<std::string> needed, pipeline_->needs(outputs));
  const SteadyTime start = system_clock().now();
  TRY(const transform::Prepared prepared, pipeline_->before({inputs.begin(), inputs.end()}));
  stats_.compute_input_us.add(to_microseconds(system_clock().now() - start));
  TRY(const std::vector<tensor::Named> raw, run_free(prepared.inputs, needed));
  const SteadyTime done = system_clock().now();
  TRY(std::vector<tensor::Named> answer, pipeline_->after(prepared, raw, outputs));
  stats_.compute_output_us.add(to_microseconds(system_clock().now() - done));
  return answer;
}

// Runs on a free model; the limit of concurrent jobs guarantees that one is free.
Result<std::vector<tensor::Named>> ModelVersion::run_free(std::span<const tensor::Named> inputs,
                                                          std::span<const std::string> outputs) {
  infer::Model* model = models_.front().get();
  bool taken = false;
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      model = free_.back();
      free_.pop_back();
      taken = true;
    }
  }
  const SteadyTime start = system_clock().now();
  auto result = model->run(inputs, outputs);
  const Duration duration = system_clock().now() - start;
  if (taken) {
    MutexLock lock(mutex_);
    free_.push_back(model);
  }
  if (result.ok()) {
    stats_.executions.add();
    stats_.inferences.add(rows(metadata_.inputs, inputs));
    stats_.compute_us.add(to_microseconds(duration));
    stats_.predict_seconds.observe(std::chrono::duration<double>(duration).count());
  }
  return result;
}

}  // namespace varda::serving
