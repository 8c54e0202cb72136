#include "training/run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "train/order.h"
#include "train/trainer.h"
#include "training/internal/batches.h"
#include "training/internal/continual.h"
#include "training/internal/evaluate.h"
#include "training/internal/feature_data.h"
#include "training/internal/open_trainer.h"
#include "training/internal/predictor.h"
#include "training/internal/result_files.h"
#include "training/internal/run_checkpoint.h"
#include "training/internal/run_data.h"
#include "training/internal/streaming.h"
#include "training/internal/text.h"
#include "training/schedule.h"

namespace varda::training {
namespace {

constexpr std::chrono::milliseconds kProgressEvery{200};

double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Random changes of samples differ between epochs.
std::uint64_t augment_seed(std::uint64_t seed, std::int64_t epoch) {
  return seeded_rng(seeded_rng(seed)->next() ^ static_cast<std::uint64_t>(epoch))->next();
}

/// One run. Members without a comment on change are constant after prepare_data_.train() and
/// open().
class Run {
 public:
  Run(const Context& ctx, infer::Engine& engine, os::FileSystem& fs, Request request,
      Observer& observer)
      : ctx_(ctx),
        engine_(engine),
        fs_(fs),
        request_(std::move(request)),
        settings_(request_.settings),
        observer_(observer),
        checkpoint_path_(request_.directory / "checkpoint"),
        data_(request_) {}

  Result<Outcome> run() {
    TRY_VOID(fs_.make_directories(request_.directory));
    TRY_VOID(os::remove_leftovers(fs_, request_.directory));
    // The fingerprint of mixed data has places only, and would hide a change of the files.
    TRY(identity_, identity_of(request_));
    fingerprint_ = request_.train->fingerprint();
    TRY(replayed_, add_replay(ctx_, request_));
    if (auto earlier = read_result(fs_, request_.directory, identity_)) {
      log::info("this run was finished before", {{"path", earlier->model.string()}});
      for (const EpochRecord& record : earlier->history) observer_.epoch(record);
      return completed(std::move(*earlier));
    }
    TRY_VOID(data_.prepare(ctx_));
    if (settings_.continual.slda) return learn_last_layer();
    TRY_VOID(open());
    resume();
    begin_ = system_clock().now();
    begin_step_ = step();
    TRY_VOID(compute_features());
    begin_ = lap_ = saved_at_ = system_clock().now();
    begin_step_ = step();
    if (Status status = train(); !status.ok()) {
      const Code code = status.error().code();
      if (code == Code::kCancelled || code == Code::kTimeout) save_checkpoint();
      return std::move(status).error();
    }
    return finish();
  }

 private:
  // --- before the first step

  Status open() {
    const std::string base =
        settings_.continual.ewc || settings_.continual.lwf ? request_.model : std::string();
    TRY(Opened opened, open_trainer(engine_, data_, settings_, std::move(request_.model)));
    batches_ = std::move(opened.batches);
    trainer_ = std::move(opened.trainer);
    const std::size_t size = static_cast<std::size_t>(batches_.size);
    batches_each_ = (data_.split().train.size() + size - 1) / size;
    const auto accumulate = static_cast<std::uint64_t>(settings_.accumulate);
    updates_each_ = (batches_each_ + accumulate - 1) / accumulate;
    if (settings_.continual.any()) {
      TRY(terms_, ContinualTerms::open(ctx_, engine_, data_, request_, batches_, base));
    }
    return {};
  }

  /// Replaces the data by the features of the frozen layers, if they fit into memory and are used
  /// at least twice. Random changes of samples make other features in each epoch.
  Status compute_features() {
    const samples::Augment& augment = settings_.augment;
    if (settings_.feature_cache == 0 || settings_.freeze.empty() || augment.flip ||
        augment.crop != 0 || augment.jitter != 0 || settings_.epochs - state_.epoch < 2)
      return {};
    std::vector<std::size_t> first = data_.split().train;
    first.resize(std::min(first.size(), static_cast<std::size_t>(batches_.size)));
    TRY(const samples::Batch batch, data_.train().read(first, {}, 0));
    TRY(const train::Batch check,
        batches_.make(batch, data_.train(), settings_, batch.indices.size()));
    const std::size_t samples =
        request_.train->size() + (request_.evaluation ? request_.evaluation->size() : 0);
    const std::uint64_t values = (static_cast<std::uint64_t>(settings_.feature_cache) << 20) /
                                 sizeof(float) / std::max<std::size_t>(samples, 1);
    auto part = trainer_->separate(check, values);
    // The first step reports an error of the model with its samples.
    if (!part.ok() || *part == nullptr) return {};
    const auto report = [this] { this->report("Training"); };
    TRY(auto train, features_of(ctx_, request_.train, batches_, **part, report));
    std::shared_ptr<const samples::Dataset> evaluation;
    if (request_.evaluation) {
      TRY(evaluation, features_of(ctx_, request_.evaluation, batches_, **part, report));
    }
    request_.train = std::move(train);
    request_.evaluation = std::move(evaluation);
    batches_.input = (*part)->name();
    log::info("features of the frozen layers are in memory",
              {{"tensor", (*part)->name()},
               {"shape", tensor::to_string((*part)->shape())},
               {"samples", samples}});
    return {};
  }

  // --- checkpoints

  void resume() {
    const auto info = fs_.stat(checkpoint_path_);
    if (info.ok() && !*info) return;
    const auto read = [&]() -> Status {
      TRY(const std::string bytes, os::read_file(fs_, checkpoint_path_, kFileMax));
      TRY(RunCheckpoint found, RunCheckpoint::decode(bytes));
      if (found.identity != identity_)
        return invalid("the checkpoint belongs to another model, other data or other settings");
      if (found.epoch > settings_.epochs || found.batch > batches_each_ ||
          (found.batch < batches_each_ &&
           found.batch % static_cast<std::uint64_t>(settings_.accumulate) != 0))
        return Error(Code::kCorrupt, "the position in the checkpoint is out of range");
      TRY_VOID(trainer_->restore(found.trainer));
      found.trainer.clear();
      state_ = std::move(found);
      return {};
    };
    if (const Status status = read(); !status.ok()) {
      log::warn("checkpoint ignored, training starts from the first epoch",
                {{"path", checkpoint_path_.string()}, {"error", status.error()}});
      return;
    }
    log::info("training continues from a checkpoint",
              {{"epochs_done", state_.epoch}, {"batches_done", state_.batch}});
    for (const EpochRecord& record : state_.history) observer_.epoch(record);
  }

  /// Keeps the last checkpoint if an update is incomplete, because accumulated gradients have no
  /// place in a checkpoint.
  void save_checkpoint() {
    saved_at_ = system_clock().now();
    if (inside_update_) return;
    take_lap();
    state_.identity = identity_;
    state_.trainer = trainer_->checkpoint();
    const Status status = os::write_file_atomically(fs_, checkpoint_path_, state_.encode());
    state_.trainer.clear();
    if (!status.ok())
      log::warn("checkpoint not written",
                {{"path", checkpoint_path_.string()}, {"error", status.error()}});
  }

  void save_checkpoint_if_due() {
    if (system_clock().now() - saved_at_ >= request_.checkpoint_every) save_checkpoint();
  }

  // --- the loop

  /// Adds the time since the last call to the epoch.
  void take_lap() {
    const SteadyTime now = system_clock().now();
    const double seconds = seconds_between(std::exchange(lap_, now), now);
    state_.epoch_seconds += seconds;
    state_.seconds += seconds;
  }

  std::uint64_t step() const {
    return static_cast<std::uint64_t>(state_.epoch) * batches_each_ + state_.batch;
  }

  void report(const char* phase) {
    const SteadyTime now = system_clock().now();
    if (reported_at_ && now - *reported_at_ < kProgressEvery) return;
    reported_at_ = now;
    Progress out{.phase = phase,
                 .epoch = std::min(state_.epoch + 1, settings_.epochs),
                 .epochs = settings_.epochs,
                 .step = step(),
                 .steps = static_cast<std::uint64_t>(settings_.epochs) * batches_each_};
    if (state_.samples > 0) out.loss = state_.loss_sum / static_cast<double>(state_.samples);
    if (training_seconds_ > 0)
      out.samples_per_second = static_cast<double>(trained_samples_) / training_seconds_;
    if (out.step > begin_step_)
      out.remaining_seconds = seconds_between(begin_, now) *
                              static_cast<double>(out.steps - out.step) /
                              static_cast<double>(out.step - begin_step_);
    observer_.progress(out);
  }

  Status train() {
    while (state_.epoch < settings_.epochs && !state_.stopped) {
      TRY_VOID(train_epoch());
      TRY_VOID(end_epoch());
    }
    return {};
  }

  Status train_epoch() {
    std::vector<std::size_t> order;
    order.reserve(data_.split().train.size());
    for (const std::size_t at : train::epoch_order(data_.split().train.size(), settings_.seed,
                                                   static_cast<std::uint64_t>(state_.epoch)))
      order.push_back(data_.split().train[at]);
    const std::size_t size = static_cast<std::size_t>(batches_.size);
    samples::Loader loader(data_.train(), std::move(order), size, settings_.augment,
                           augment_seed(settings_.seed, state_.epoch),
                           static_cast<std::size_t>(state_.batch));
    while (state_.batch < batches_each_) {
      const std::uint64_t end = std::min<std::uint64_t>(
          state_.batch + static_cast<std::uint64_t>(settings_.accumulate), batches_each_);
      const std::size_t samples =
          std::min<std::size_t>(end * size, data_.split().train.size()) - state_.batch * size;
      const SteadyTime from = system_clock().now();
      TRY_VOID(update(loader, end, samples));
      training_seconds_ += seconds_between(from, system_clock().now());
      trained_samples_ += samples;
      report("Training");
      save_checkpoint_if_due();
    }
    return {};
  }

  /// One update of the weights from the batches up to `end`, which have `samples` samples.
  Status update(samples::Loader& loader, std::uint64_t end, std::size_t samples) {
    TRY_VOID(ctx_.check());
    const std::uint64_t number = static_cast<std::uint64_t>(state_.epoch) * updates_each_ +
                                 state_.batch / static_cast<std::uint64_t>(settings_.accumulate);
    const double rate = learning_rate(settings_, number, updates_each_);
    double loss = 0;
    for (std::uint64_t at = state_.batch; at < end; ++at) {
      // An update is not interrupted, so that a stopped run has a checkpoint of this moment.
      TRY(const auto batch, loader.next(inside_update_ ? Context::background() : ctx_));
      if (!batch) return Error(Code::kInternal, "the data ended before the epoch");
      TRY(train::Batch made, batches_.make(*batch, data_.train(), settings_, samples));
      if (terms_) TRY_VOID(terms_->complete(*batch, made));
      const bool last = at + 1 == end;
      const auto done =
          last && !changes_gradients() ? trainer_->step(made, rate) : trainer_->accumulate(made);
      if (!done.ok()) return failure(done.error(), at, *batch);
      if (last && changes_gradients())
        if (const Status status = apply_terms(number, rate); !status.ok())
          return failure(status.error(), at, *batch);
      inside_update_ = !last;
      loss += done->loss;
    }
    state_.batch = end;
    state_.loss_sum += loss * static_cast<double>(samples);
    state_.samples += samples;
    state_.learning_rate = rate;
    return {};
  }

  bool changes_gradients() const { return terms_ && terms_->changes_gradients(); }

  Status apply_terms(std::uint64_t number, double rate) {
    Values gradients = trainer_->take_gradients();
    TRY_VOID(terms_->change(Context::background(), *trainer_, {number, rate}, gradients));
    return trainer_->apply(gradients, rate);
  }

  /// The error of a step, with the samples. If some samples have values that are not finite, then
  /// these only.
  Error failure(const Error& error, std::uint64_t at, const samples::Batch& batch) const {
    std::vector<std::string> wrong, all;
    const std::size_t count = batch.indices.size();
    const auto is_finite = [&](std::span<const float> values, std::size_t row) {
      const std::size_t width = values.size() / count;
      return std::ranges::all_of(values.subspan(row * width, width),
                                 [](float value) { return std::isfinite(value); });
    };
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(data_.train().place(batch.indices[i]));
      if ((batch.input.dtype() == tensor::DType::kFp32 &&
           !is_finite(batch.input.values<float>(), i)) ||
          !is_finite(batch.targets, i))
        wrong.push_back(all.back());
    }
    const std::string where = "epoch " + std::to_string(state_.epoch + 1) + ", step " +
                              std::to_string(at + 1) + " of " + std::to_string(batches_each_);
    if (!wrong.empty())
      return invalid(where + ": a value that is not finite is in " + listed(wrong));
    if (error.code() != Code::kInvalid) return error.context(where);
    return error.context(where + ", optimizer.learningRate " +
                         number_text(settings_.optimizer.learning_rate) + ", clipNorm " +
                         number_text(settings_.clip_norm) + ", samples " + listed(all));
  }

  Status end_epoch() {
    EpochRecord record{.epoch = state_.epoch + 1,
                       .loss = state_.loss_sum / static_cast<double>(data_.split().train.size()),
                       .learning_rate = state_.learning_rate};
    if (!data_.split().evaluation.empty()) {
      TRY(Evaluation evaluation, evaluate(ctx_, data_, batches_, settings_, *trainer_, [this] {
                                   report("Evaluating");
                                 }).context("epoch " + std::to_string(record.epoch)));
      record.evaluation_loss = evaluation.metrics.at("loss");
      record.metrics = evaluation.metrics;
      TRY_VOID(choose(std::move(evaluation), record.epoch));
    }
    take_lap();
    record.seconds = state_.epoch_seconds;
    state_.history.push_back(record);
    ++state_.epoch;
    state_.batch = 0;
    state_.loss_sum = state_.epoch_seconds = 0;
    state_.samples = 0;
    observer_.epoch(record);
    save_checkpoint_if_due();
    return {};
  }

  /// Decides whether the run keeps the present weights, and whether it ends.
  Status choose(Evaluation evaluation, std::int64_t epoch) {
    if (!settings_.early_stopping) {
      state_.evaluation = std::move(evaluation);
      return {};
    }
    const EarlyStopping& stopping = *settings_.early_stopping;
    const auto metric = evaluation.metrics.find(stopping.metric);
    if (metric == evaluation.metrics.end())
      return invalid("earlyStopping.metric " + stopping.metric +
                     " is not defined for these evaluation data; they need samples of each class");
    const bool better =
        state_.best_epoch == 0 || (stopping.lower_is_better() ? metric->second < state_.best_value
                                                              : metric->second > state_.best_value);
    if (better) {
      TRY(state_.best_model, trainer_->save());
      state_.best_epoch = epoch;
      state_.best_value = metric->second;
      state_.evaluation = std::move(evaluation);
    }
    state_.stopped = epoch - state_.best_epoch >= stopping.patience && epoch < settings_.epochs;
    return {};
  }

  // --- the result

  Result<Outcome> finish() {
    std::string model = std::move(state_.best_model);
    if (model.empty()) {
      TRY(model, trainer_->save());
    }
    take_lap();
    Outcome out{.model = request_.directory / "model.onnx",
                .history = std::move(state_.history),
                .classes = data_.train().classes(),
                .stopped_early = state_.stopped,
                .samples = data_.split().train.size(),
                .replayed = replayed_,
                .fingerprint = fingerprint_,
                .seconds = state_.seconds};
    if (state_.evaluation) {
      out.metrics = std::move(state_.evaluation->metrics);
      out.confusion = std::move(state_.evaluation->confusion);
      out.worst = std::move(state_.evaluation->worst);
    }
    TRY_VOID(write_result(fs_, request_.directory, identity_, model, out));
    return completed(std::move(out));
  }

  /// The run of `continual.slda`. It writes no checkpoint: a pass over the samples is short, and a
  /// repeated one gives the same bytes.
  Result<Outcome> learn_last_layer() {
    begin_ = lap_ = system_clock().now();
    TRY(const Streamed streamed,
        stream(ctx_, engine_, data_, request_, [this](std::uint64_t samples) {
          trained_samples_ = samples;
          training_seconds_ = seconds_between(begin_, system_clock().now());
          report("Training");
        }));
    EpochRecord record{.epoch = 1};
    if (!data_.split().evaluation.empty()) {
      TRY(Predictor predictor, Predictor::open(engine_, streamed.model, threads()));
      batches_.size = settings_.batch_size;
      batches_.classes = data_.train().outputs();
      batches_.output = {batches_.size, static_cast<std::int64_t>(batches_.classes)};
      const Answers answers{predictor.activation(), [&](const samples::Batch& batch) {
                              return predictor.run(batch.input);
                            }};
      TRY(state_.evaluation,
          evaluate(ctx_, data_, batches_, settings_, answers, [this] { report("Evaluating"); }));
      record.metrics = state_.evaluation->metrics;
      record.loss = record.metrics.at("loss");
      record.evaluation_loss = record.loss;
    }
    record.seconds = seconds_between(begin_, system_clock().now());
    state_.history.push_back(record);
    observer_.epoch(record);
    state_.best_model = streamed.model;
    return finish();
  }

  unsigned threads() const {
    return static_cast<unsigned>(settings_.threads > 0
                                     ? settings_.threads
                                     : std::max(1u, std::thread::hardware_concurrency()));
  }

  /// Removes the checkpoint, because the files are durable, and adds what the files lack.
  Result<Outcome> completed(Outcome out) {
    TRY_VOID(fs_.remove(checkpoint_path_));
    TRY_VOID(fs_.sync_directory(request_.directory));
    for (Worst& one : out.worst)
      // A missing picture must not fail a finished run.
      one.picture = data_.evaluation().picture(one.index).value_or("");
    return out;
  }

  const Context& ctx_;
  infer::Engine& engine_;
  os::FileSystem& fs_;
  Request request_;
  const Settings settings_;
  Observer& observer_;
  const os::Path checkpoint_path_;

  RunData data_;
  std::uint64_t replayed_ = 0;
  std::string identity_, fingerprint_;  // of the data without replayed samples
  Batches batches_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<ContinualTerms> terms_;              // null: none
  std::uint64_t batches_each_ = 0, updates_each_ = 0;  // of an epoch

  RunCheckpoint state_;         // the position; without the trainer's bytes
  bool inside_update_ = false;  // the trainer has accumulated gradients

  SteadyTime begin_, lap_, saved_at_;
  std::optional<SteadyTime> reported_at_;
  std::uint64_t begin_step_ = 0, trained_samples_ = 0;  // of this process
  double training_seconds_ = 0;
};

}  // namespace

Result<Outcome> run(const Context& ctx, infer::Engine& engine, os::FileSystem& fs, Request request,
                    Observer& observer) {
  return Run(ctx, engine, fs, std::move(request), observer).run();
}

}  // namespace varda::training
