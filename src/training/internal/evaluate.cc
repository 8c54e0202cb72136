#include "training/internal/evaluate.h"

#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/internal/text.h"
#include "training/metrics.h"

namespace varda::training {
namespace {

std::string number_list(std::span<const float> values) {
  std::vector<std::string> numbers;
  for (const float value : values) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", double{value});
    numbers.emplace_back(text);
  }
  return listed(numbers);
}

}  // namespace

Result<Evaluation> evaluate(const Context& ctx, const RunData& data, const Batches& batches,
                            const Settings& settings, train::Trainer& trainer,
                            const std::function<void()>& report) {
  const auto answer = [&](const samples::Batch& batch) -> Result<tensor::Tensor> {
    TRY(const auto inputs, batches.inputs(batch));
    return trainer.predict(inputs);
  };
  return evaluate(ctx, data, batches, settings, {trainer.activation(), answer}, report);
}

Result<Evaluation> evaluate(const Context& ctx, const RunData& data, const Batches& batches,
                            const Settings& settings, const Answers& answers,
                            const std::function<void()>& report) {
  const std::size_t width = batches.values();
  Metrics metrics({.task = settings.task,
                   .outputs = width,
                   .loss = settings.loss,
                   .activation = answers.activation,
                   .huber_delta = settings.huber_delta});
  Evaluation out;
  samples::Loader loader(data.evaluation(), data.split().evaluation,
                         static_cast<std::size_t>(batches.size), {}, 0);
  for (;;) {
    TRY(const auto batch, loader.next(ctx));
    if (!batch) break;
    TRY_VOID(batches.check(*batch, data.evaluation(), settings.task));
    TRY(const tensor::Tensor output, answers.of(*batch));
    for (std::size_t i = 0; i < batch->indices.size(); ++i) {
      const auto row = output.values<float>().subspan(i * width, width);
      const bool classes = data.is_classification();
      const auto targets =
          classes ? std::span<const float>() : std::span(batch->targets).subspan(i * width, width);
      const double loss = classes ? metrics.add(row, batch->labels[i]) : metrics.add(row, targets);
      if (!is_wanted(out.worst, loss)) continue;
      const std::size_t index = batch->indices[i];
      Worst worst{.index = index, .place = data.evaluation().place(index), .loss = loss};
      if (classes) {
        worst.expected = data.class_name(batch->labels[i]);
        worst.predicted = data.class_name(metrics.predicted_class(row));
      } else if (settings.task == samples::Task::kMultiLabel) {
        worst.expected = data.label_names(targets, 0.5f);
        worst.predicted = data.label_names(row, metrics.threshold());
      } else {
        worst.expected = number_list(targets);
        worst.predicted = number_list(row);
      }
      offer(out.worst, std::move(worst));
    }
    report();
  }
  out.metrics = metrics.values();
  out.confusion = metrics.confusion();
  if (!std::isfinite(out.metrics["loss"]))
    return invalid("the loss of the evaluation is not finite; lower optimizer.learningRate (" +
                   number_text(settings.optimizer.learning_rate) + "), or set clipNorm");
  return out;
}

}  // namespace varda::training
