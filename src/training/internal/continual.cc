#include "training/internal/continual.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/rng.h"
#include "samples/mixed.h"
#include "training/internal/continual_terms.h"
#include "training/internal/open_trainer.h"
#include "training/internal/text.h"
#include "training/reservoir.h"
#include "training/selection.h"

namespace varda::training {
namespace {

namespace continual {

std::vector<std::size_t> all_of(const samples::Dataset& data) {
  std::vector<std::size_t> out(data.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

/// Different purposes draw different samples.
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t purpose) {
  return seeded_rng(seed)->next() + purpose;
}
constexpr std::uint64_t kFisher = 1, kMemory = 2, kReference = 3;

}  // namespace continual

}  // namespace

Result<std::vector<std::size_t>> reservoir_of(const Context& ctx, const samples::Dataset& data,
                                              std::size_t samples, std::size_t per_class,
                                              std::uint64_t seed) {
  TRY(const auto labels, data.labels(ctx, continual::all_of(data)));
  return reservoir(ids_of(data), labels,
                   {.samples = samples, .per_class = per_class, .seed = seed});
}

Result<std::uint64_t> add_replay(const Context& ctx, Request& request) {
  const auto& replay = request.settings.continual.replay;
  if (!replay) return std::uint64_t{0};
  if (!request.old || request.old->size() == 0) {
    log::info("no old samples for continual.replay");
    return std::uint64_t{0};
  }
  TRY(const auto chosen,
      reservoir_of(ctx, *request.old, static_cast<std::size_t>(replay->samples),
                   static_cast<std::size_t>(replay->per_class), request.settings.seed));
  if (chosen.empty()) return std::uint64_t{0};
  const std::uint64_t out = chosen.size();
  TRY(request.train,
      samples::mix(ctx, {{.data = request.train, .indices = continual::all_of(*request.train)},
                         {.data = request.old, .indices = chosen}}));
  return out;
}

Result<std::unique_ptr<ContinualTerms>> ContinualTerms::open(
    const Context& ctx, infer::Engine& engine, const RunData& data, const Request& request,
    const Batches& batches, const std::string& base) {
  const Continual& continual = request.settings.continual;
  auto out = std::unique_ptr<ContinualTerms>(new ContinualTerms(data, request, batches));
  if (continual.lwf) {
    const auto threads = static_cast<unsigned>(
        request.settings.threads > 0 ? request.settings.threads
                                     : std::max(1u, std::thread::hardware_concurrency()));
    TRY(out->teacher_, Predictor::open(engine, base, threads));
  }
  if (continual.ewc) TRY_VOID(out->measure_fisher(ctx, engine, base));
  if (continual.agem) TRY_VOID(out->choose_memory(ctx));
  return out;
}

/// Old samples show which weights matter for old answers. Without them the new samples stand in,
/// because the labels are the model's own.
Status ContinualTerms::measure_fisher(const Context& ctx, infer::Engine& engine,
                                      const std::string& base) {
  const Continual::Ewc& ewc = *request_.settings.continual.ewc;
  Settings single = request_.settings;
  single.batch_size = single.accumulate = 1;
  single.continual = {};
  single.label_smoothing = 0;
  single.balanced_classes = false;
  TRY(Opened opened, open_trainer(engine, data_, single, base).context("continual.ewc"));
  train::Trainer& trainer = *opened.trainer;
  if (trainer.values().size() > trainer.weights().size())
    return Error(Code::kUnsupported,
                 "continual.ewc cannot train BatchNormalization; freeze its scale and bias");
  const bool has_old = request_.old && request_.old->size() > 0;
  const samples::Dataset& data = has_old ? *request_.old : data_.train();
  TRY(const std::vector<std::size_t> chosen,
      reservoir_of(ctx, data, static_cast<std::size_t>(ewc.samples), 0,
                   continual::seed_of(request_.settings.seed, continual::kFisher)));
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < trainer.weights().size(); ++i) {
    const auto values = trainer.values()[i].tensor.values<float>();
    sizes.push_back(values.size());
    start_.emplace_back(values.begin(), values.end());
  }
  FisherSum sum(sizes);
  const auto rng = seeded_rng(continual::seed_of(request_.settings.seed, continual::kFisher));
  samples::Loader loader(data, chosen, 1, {}, 0);
  for (;;) {
    TRY(auto batch, loader.next(ctx));
    if (!batch) break;
    TRY(const auto inputs, opened.batches.inputs(*batch));
    TRY(const tensor::Tensor output, trainer.predict(inputs));
    batch->labels = {draw_class(output.values<float>(), trainer.activation(), rng->unit())};
    TRY(const train::Batch made, opened.batches.make(*batch, data, single, 1));
    TRY_VOID(trainer.accumulate(made).context(data.place(batch->indices[0])));
    sum.add(trainer.take_gradients());
  }
  fisher_ = sum.mean();
  return {};
}

Status ContinualTerms::choose_memory(const Context& ctx) {
  // The first round of a job has no old samples, and nothing to forget that it could measure.
  if (!request_.old || request_.old->size() == 0) {
    log::info("no old samples for continual.agem");
    return {};
  }
  TRY(memory_, reservoir_of(ctx, *request_.old,
                            static_cast<std::size_t>(request_.settings.continual.agem->samples), 0,
                            continual::seed_of(request_.settings.seed, continual::kMemory)));
  return {};
}

Status ContinualTerms::complete(const samples::Batch& batch, train::Batch& made) {
  if (!teacher_) return {};
  const Continual::Lwf& lwf = *request_.settings.continual.lwf;
  TRY(const tensor::Tensor answers, teacher_->run(batch.input));
  const std::size_t width = teacher_->values();
  if (width != batches_.values())
    return Error(Code::kUnsupported, "continual.lwf needs a model with one row of scores");
  std::vector<float> soft;
  for (std::size_t i = 0; i < batch.indices.size(); ++i) {
    const auto row = answers.values<float>().subspan(i * width, width);
    const auto softened = soften(row, teacher_->activation(), lwf.temperature);
    soft.insert(soft.end(), softened.begin(), softened.end());
  }
  TRY(const tensor::Tensor rows,
      tensor::Tensor::of<float>(
          tensor::DType::kFp32,
          {static_cast<std::int64_t>(batch.indices.size()), static_cast<std::int64_t>(width)},
          std::span(std::as_const(soft))));
  TRY(const tensor::Tensor whole, filled(rows, batches_.size));
  TRY(made.soft_targets, whole.reshaped(batches_.output));
  return {};
}

Status ContinualTerms::change(const Context& ctx, train::Trainer& trainer, const Update& update,
                              Values& gradients) {
  if (fisher_)
    for (std::size_t i = 0; i < gradients.size(); ++i)
      add_elastic_term(gradients[i], trainer.values()[i].tensor.values<float>(), start_[i],
                       (*fisher_)[i], request_.settings.continual.ewc->lambda,
                       1 / std::max(update.learning_rate, 1e-12));
  if (memory_.empty()) return {};
  const auto rng =
      seeded_rng(continual::seed_of(request_.settings.seed, continual::kReference) ^ update.number);
  std::vector<std::size_t> drawn;
  const std::size_t count = std::min(memory_.size(), static_cast<std::size_t>(batches_.size));
  while (drawn.size() < count)
    drawn.push_back(memory_[static_cast<std::size_t>(rng->below(memory_.size()))]);
  TRY(const samples::Batch batch, request_.old->read_until(ctx, drawn, request_.settings.augment,
                                                           update.number, batch_memory_));
  TRY(train::Batch made, batches_.make(batch, *request_.old, request_.settings, drawn.size()));
  TRY_VOID(complete(batch, made));
  TRY_VOID(trainer.accumulate(made).context("continual.agem"));
  project(gradients, trainer.take_gradients());
  return {};
}

}  // namespace varda::training
