#include "training/internal/open_trainer.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "onnx/model.h"
#include "samples/samples.h"
#include "train/head.h"
#include "training/internal/text.h"

namespace varda::training {

Result<Opened> open_trainer(infer::Engine& engine, const RunData& data, const Settings& settings,
                            std::string file) {
  if (settings.head_classes) {
    TRY_VOID(data.check_head(*settings.head_classes));
    TRY(file, train::replace_head(std::move(file), *settings.head_classes, settings.seed));
  }
  TRY(const onnx::Model model, onnx::parse(file));
  if (model.graph.inputs.size() != 1)
    return Error(Code::kUnsupported, "the model has " + std::to_string(model.graph.inputs.size()) +
                                         " inputs; models with one input can be trained");
  Opened out;
  Batches& batches = out.batches;
  batches.input = model.graph.inputs[0].name;
  batches.size = std::min<std::int64_t>(settings.batch_size,
                                        static_cast<std::int64_t>(data.split().train.size()));
  const auto& shape = model.graph.inputs[0].shape;
  if (shape && !shape->empty() && shape->front().size > 0) {
    if (shape->front().size != settings.batch_size)
      return invalid("the model takes batches of " + std::to_string(shape->front().size) +
                     " samples; set batchSize: " + std::to_string(shape->front().size));
    batches.size = settings.batch_size;
  }
  batches.classes = data.train().outputs();
  if (settings.balanced_classes) batches.weights = data.balanced_weights();

  const std::size_t first[] = {data.split().train.front()};
  TRY(const samples::Batch example, data.train().read(first, {}, 0));
  TRY(const auto inputs, batches.inputs(example));
  train::Trainer::Options options = {
      .gradients = {.loss = settings.loss,
                    .huber_delta = settings.huber_delta,
                    .freeze = settings.freeze},
      .optimizer = settings.optimizer,
      .clip_norm = settings.clip_norm,
      .threads = settings.threads > 0 ? static_cast<unsigned>(settings.threads)
                                      : std::max(1u, std::thread::hardware_concurrency())};
  if (const auto& lwf = settings.continual.lwf)
    options.gradients.distillation =
        train::Distillation{.weight = lwf->lambda, .temperature = lwf->temperature};
  TRY(out.trainer, train::Trainer::open(engine, std::move(file), inputs, options));
  batches.output = out.trainer->output_shape();
  TRY_VOID(data.check_outputs(batches.values()));
  return out;
}

}  // namespace varda::training
