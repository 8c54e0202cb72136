#include "training/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "codec/digest.h"
#include "onnx/model.h"
#include "train/head.h"
#include "train/order.h"
#include "train/trainer.h"
#include "training/internal/batches.h"
#include "training/internal/run_checkpoint.h"
#include "training/metrics.h"
#include "training/schedule.h"
#include "training/split.h"

namespace varda::training {
namespace {

using codec::Json;
using samples::Task;
using tensor::Tensor;

constexpr std::chrono::milliseconds kProgressEvery{200};
constexpr std::size_t kIdentitySamples = 8;
constexpr std::size_t kNamedMax = 4;                        // samples or classes in a message
constexpr std::uint64_t kFileMax = std::uint64_t{1} << 36;  // bytes

Error invalid(std::string message) { return Error(Code::kInvalid, std::move(message)); }

/// The first names, and the number of the others.
std::string listed(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamedMax);
  const std::string out = join(std::span(names).first(shown));
  return shown == names.size() ? out
                               : out + " and " + std::to_string(names.size() - shown) + " more";
}

double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Random changes of samples differ between epochs.
std::uint64_t augment_seed(std::uint64_t seed, std::int64_t epoch) {
  return seeded_rng(seeded_rng(seed)->next() ^ static_cast<std::uint64_t>(epoch))->next();
}

std::string number_text(double value) { return codec::write_json(Json(value)); }

/// One run. Members without a comment on change are constant after prepare_data() and open().
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
        model_path_(request_.directory / "model.onnx"),
        metrics_path_(request_.directory / "metrics.json") {}

  Result<Outcome> run() {
    TRY_VOID(fs_.make_directories(request_.directory));
    TRY_VOID(os::remove_leftovers(fs_, request_.directory));
    TRY(identity_, make_identity());
    if (std::optional<Outcome> outcome = finished()) return std::move(*outcome);
    TRY_VOID(prepare_data());
    TRY_VOID(open());
    resume();
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
  const samples::Dataset& data() const { return *request_.train; }
  const samples::Dataset& evaluated() const {
    return request_.evaluation ? *request_.evaluation : *request_.train;
  }
  bool is_classification() const { return settings_.task == Task::kClassification; }

  // --- before the first step

  Status prepare_data() {
    if (data().size() == 0) return invalid("the training data have no samples");
    if (!request_.evaluation && !(request_.hold_out >= 0 && request_.hold_out < 1))
      return invalid("holdOut must be a number at least 0 and below 1, not " +
                     number_text(request_.hold_out));
    if (is_classification()) TRY_VOID(check_classes());
    if (request_.evaluation) {
      if (evaluated().size() == 0) return invalid("the evaluation data have no samples");
      if (evaluated().outputs() != data().outputs() || evaluated().classes() != data().classes())
        return invalid("the evaluation data have other classes (" + listed(evaluated().classes()) +
                       ") than the training data (" + listed(data().classes()) + ")");
    }
    if (request_.evaluation || request_.hold_out == 0) {
      split_.train.resize(data().size());
      for (std::size_t i = 0; i < split_.train.size(); ++i) split_.train[i] = i;
      if (request_.evaluation) {
        split_.evaluation.resize(evaluated().size());
        for (std::size_t i = 0; i < split_.evaluation.size(); ++i) split_.evaluation[i] = i;
      }
    } else {
      std::vector<std::int64_t> labels;
      if (is_classification()) {
        TRY(labels, read_labels());
      }
      split_ = hold_out(data().size(), labels, request_.hold_out, settings_.seed);
      if (split_.evaluation.empty())
        return invalid(
            "the training data have too few samples to hold some out for the "
            "evaluation; add samples, or set holdOut: 0");
    }
    if (settings_.early_stopping && split_.evaluation.empty())
      return invalid("earlyStopping needs an evaluation; set holdOut above 0");
    return {};
  }

  Status check_classes() const {
    std::size_t present = 0, last = 0;
    const std::vector<std::uint64_t> counts = data().class_counts();
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0) {
        ++present;
        last = i;
      }
    if (present >= 2) return {};
    return invalid("all training data have the class \"" +
                   (last < data().classes().size() ? data().classes()[last] : std::string("0")) +
                   "\"; classification needs samples of two classes or more");
  }

  /// The class of each sample.
  Result<std::vector<std::int64_t>> read_labels() const {
    std::vector<std::size_t> all(data().size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    std::vector<std::int64_t> out;
    samples::Loader loader(data(), std::move(all), static_cast<std::size_t>(settings_.batch_size),
                           {}, 0);
    for (;;) {
      TRY(const auto batch, loader.next(ctx_));
      if (!batch) break;
      out.insert(out.end(), batch->labels.begin(), batch->labels.end());
    }
    if (out.size() != data().size())
      return Error(Code::kInternal, "the data have another number of labels than samples");
    return out;
  }

  Status open() {
    std::string file = std::move(request_.model);
    if (settings_.head_classes) {
      TRY_VOID(check_head());
      TRY(file, train::replace_head(std::move(file), *settings_.head_classes, settings_.seed));
    }
    TRY(const onnx::Model model, onnx::parse(file));
    if (model.graph.inputs.size() != 1)
      return Error(Code::kUnsupported, "the model has " +
                                           std::to_string(model.graph.inputs.size()) +
                                           " inputs; models with one input can be trained");
    batches_.input = model.graph.inputs[0].name;
    batches_.size = std::min<std::int64_t>(settings_.batch_size,
                                           static_cast<std::int64_t>(split_.train.size()));
    const auto& shape = model.graph.inputs[0].shape;
    if (shape && !shape->empty() && shape->front().size > 0) {
      if (shape->front().size != settings_.batch_size)
        return invalid("the model takes batches of " + std::to_string(shape->front().size) +
                       " samples; set batchSize: " + std::to_string(shape->front().size));
      batches_.size = settings_.batch_size;
    }
    batches_.classes = data().outputs();
    if (settings_.balanced_classes) batches_.weights = balanced_weights();

    const std::size_t first[] = {split_.train.front()};
    TRY(const samples::Batch example, data().read(first, {}, 0));
    TRY(const auto inputs, batches_.inputs(example));
    train::Trainer::Options options = {
        .gradients = {.loss = settings_.loss,
                      .huber_delta = settings_.huber_delta,
                      .freeze = settings_.freeze},
        .optimizer = settings_.optimizer,
        .clip_norm = settings_.clip_norm,
        .threads = settings_.threads > 0 ? static_cast<unsigned>(settings_.threads)
                                         : std::max(1u, std::thread::hardware_concurrency())};
    TRY(trainer_, train::Trainer::open(engine_, std::move(file), inputs, options));
    batches_.output = trainer_->output_shape();
    TRY_VOID(check_outputs());
    const std::size_t size = static_cast<std::size_t>(batches_.size);
    batches_each_ = (split_.train.size() + size - 1) / size;
    const auto accumulate = static_cast<std::uint64_t>(settings_.accumulate);
    updates_each_ = (batches_each_ + accumulate - 1) / accumulate;
    return {};
  }

  /// A digest of all that decides the bytes of the result. The number of threads has no part,
  /// because a run may continue on another machine.
  Result<std::string> make_identity() const {
    Json settings = to_json(settings_);
    settings.erase("threads");
    Json json = Json::object(
        {{"settings", std::move(settings)}, {"model", codec::Sha256::of(request_.model).hex()}});
    TRY(Json train, identity_of(data()));
    json.set("data", std::move(train));
    if (request_.evaluation) {
      TRY(Json evaluation, identity_of(evaluated()));
      json.set("evaluation", std::move(evaluation));
    } else {
      json.set("holdOut", request_.hold_out);
    }
    return codec::Sha256::of(codec::write_json(codec::sorted(json))).hex();
  }

  /// The fingerprint covers files, not the way to read them, such as the preprocessing. So some
  /// samples have a part, as the model sees them.
  static Result<Json> identity_of(const samples::Dataset& data) {
    std::vector<std::size_t> some;
    const std::size_t stride = std::max<std::size_t>(1, data.size() / kIdentitySamples);
    for (std::size_t i = 0; i < data.size() && some.size() < kIdentitySamples; i += stride)
      some.push_back(i);
    codec::Sha256Stream digest;
    const auto update = [&](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      digest.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    if (!some.empty()) {
      TRY(const samples::Batch batch, data.read(some, {}, 0));
      update(batch.input.bytes());
      update(batch.labels);
      update(batch.targets);
    }
    Json classes = Json::array();
    for (const std::string& name : data.classes()) classes.push_back(name);
    return Json::object({{"fingerprint", data.fingerprint()},
                         {"samples", digest.finish().hex()},
                         {"classes", std::move(classes)}});
  }

  std::string describe_outputs() const {
    return std::to_string(data().outputs()) +
           (settings_.task == Task::kRegression ? " targets" : " classes") +
           (data().classes().empty() ? "" : " (" + listed(data().classes()) + ")");
  }

  bool fits(std::size_t values) const {
    const bool one_for_two = is_classification() &&
                             settings_.loss == train::Loss::kBinaryCrossEntropy && values == 1 &&
                             data().outputs() == 2;
    return values == data().outputs() || one_for_two;
  }

  Status check_head() const {
    if (fits(static_cast<std::size_t>(*settings_.head_classes))) return {};
    return invalid("head.classes is " + std::to_string(*settings_.head_classes) +
                   "; the training data have " + describe_outputs());
  }

  Status check_outputs() const {
    if (fits(batches_.values())) return {};
    return invalid("the model has " + std::to_string(batches_.values()) +
                   " outputs for a sample, the training data have " + describe_outputs() +
                   "; set head: {classes: " + std::to_string(data().outputs()) +
                   "}, or give the model's labels");
  }

  std::vector<float> balanced_weights() const {
    const std::vector<std::uint64_t> counts = data().class_counts();
    double samples = 0, classes = 0;
    for (const std::uint64_t count : counts) {
      samples += static_cast<double>(count);
      classes += count > 0 ? 1 : 0;
    }
    std::vector<float> out;
    for (const std::uint64_t count : counts)
      out.push_back(
          count == 0 ? 0 : static_cast<float>(samples / (classes * static_cast<double>(count))));
    return out;
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
    order.reserve(split_.train.size());
    for (const std::size_t at : train::epoch_order(split_.train.size(), settings_.seed,
                                                   static_cast<std::uint64_t>(state_.epoch)))
      order.push_back(split_.train[at]);
    const std::size_t size = static_cast<std::size_t>(batches_.size);
    samples::Loader loader(data(), std::move(order), size, settings_.augment,
                           augment_seed(settings_.seed, state_.epoch),
                           static_cast<std::size_t>(state_.batch));
    while (state_.batch < batches_each_) {
      const std::uint64_t end = std::min<std::uint64_t>(
          state_.batch + static_cast<std::uint64_t>(settings_.accumulate), batches_each_);
      const std::size_t samples =
          std::min<std::size_t>(end * size, split_.train.size()) - state_.batch * size;
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
      TRY(const train::Batch made, batches_.make(*batch, data(), settings_, samples));
      const bool last = at + 1 == end;
      const auto done = last ? trainer_->step(made, rate) : trainer_->accumulate(made);
      if (!done.ok()) return failure(done.error(), at, *batch);
      inside_update_ = !last;
      loss += done->loss;
    }
    state_.batch = end;
    state_.loss_sum += loss * static_cast<double>(samples);
    state_.samples += samples;
    state_.learning_rate = rate;
    return {};
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
      all.push_back(data().place(batch.indices[i]));
      if ((batch.input.dtype() == tensor::DType::kFp32 &&
           !is_finite(batch.input.values<float>(), i)) ||
          !is_finite(batch.targets, i))
        wrong.push_back(all.back());
    }
    const std::string where = "epoch " + std::to_string(state_.epoch + 1) + ", step " +
                              std::to_string(at + 1) + " of " + std::to_string(batches_each_);
    if (!wrong.empty())
      return invalid(where + ": a value that is not finite is in " + listed(wrong));
    Error out = error.context(where + ", optimizer.learningRate " +
                              number_text(settings_.optimizer.learning_rate) + ", clipNorm " +
                              number_text(settings_.clip_norm) + ", samples " + listed(all));
    return out;
  }

  Status end_epoch() {
    EpochRecord record{.epoch = state_.epoch + 1,
                       .loss = state_.loss_sum / static_cast<double>(split_.train.size()),
                       .learning_rate = state_.learning_rate};
    if (!split_.evaluation.empty()) {
      TRY(Evaluation evaluation, evaluate());
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

  Result<Evaluation> evaluate() {
    const std::size_t width = batches_.values();
    Metrics metrics({.task = settings_.task,
                     .outputs = width,
                     .loss = settings_.loss,
                     .activation = trainer_->activation(),
                     .huber_delta = settings_.huber_delta});
    Evaluation out;
    samples::Loader loader(evaluated(), split_.evaluation, static_cast<std::size_t>(batches_.size),
                           {}, 0);
    for (;;) {
      TRY(const auto batch, loader.next(ctx_));
      if (!batch) break;
      TRY(const auto inputs, batches_.inputs(*batch));
      TRY(const Tensor output, trainer_->predict(inputs));
      const auto values = output.values<float>();
      for (std::size_t i = 0; i < batch->indices.size(); ++i)
        add(*batch, i, values.subspan(i * width, width), metrics, out);
      report("Evaluating");
    }
    out.metrics = metrics.values();
    out.confusion = metrics.confusion();
    if (!std::isfinite(out.metrics["loss"]))
      return invalid("epoch " + std::to_string(state_.epoch + 1) +
                     ": the loss of the evaluation is not finite; lower optimizer.learningRate (" +
                     number_text(settings_.optimizer.learning_rate) + "), or set clipNorm");
    return out;
  }

  /// Adds one sample of the evaluation.
  void add(const samples::Batch& batch, std::size_t at, std::span<const float> row,
           Metrics& metrics, Evaluation& out) const {
    const std::size_t index = batch.indices[at];
    const auto targets = std::span(batch.targets)
                             .subspan(is_classification() ? 0 : at * row.size(),
                                      is_classification() ? 0 : row.size());
    const double loss =
        is_classification() ? metrics.add(row, batch.labels.at(at)) : metrics.add(row, targets);
    if (!is_wanted(out.worst, loss)) return;
    Worst worst{.index = index, .place = evaluated().place(index), .loss = loss};
    if (is_classification()) {
      worst.expected = class_name(batch.labels[at]);
      worst.predicted = class_name(metrics.predicted_class(row));
    } else if (settings_.task == Task::kMultiLabel) {
      worst.expected = label_names(targets, [](float value) { return value > 0.5f; });
      worst.predicted =
          label_names(row, [&](float value) { return metrics.predicted_label(value); });
    } else {
      worst.expected = number_list(targets);
      worst.predicted = number_list(row);
    }
    offer(out.worst, std::move(worst));
  }

  std::string class_name(std::int64_t label) const {
    const auto at = static_cast<std::size_t>(label);
    return at < data().classes().size() ? data().classes()[at] : std::to_string(label);
  }

  template <typename IsSet>
  std::string label_names(std::span<const float> values, IsSet is_set) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (is_set(values[i])) names.push_back(class_name(static_cast<std::int64_t>(i)));
    return names.empty() ? "none" : listed(names);
  }

  static std::string number_list(std::span<const float> values) {
    std::vector<std::string> numbers;
    for (const float value : values) {
      char text[32];
      std::snprintf(text, sizeof text, "%.6g", double{value});
      numbers.emplace_back(text);
    }
    return listed(numbers);
  }

  // --- the result

  Result<Outcome> finish() {
    std::string model = std::move(state_.best_model);
    if (model.empty()) {
      TRY(model, trainer_->save());
    }
    take_lap();
    Outcome out{.model = model_path_,
                .history = std::move(state_.history),
                .classes = data().classes(),
                .stopped_early = state_.stopped,
                .samples = split_.train.size(),
                .fingerprint = data().fingerprint(),
                .seconds = state_.seconds};
    if (state_.evaluation) {
      out.metrics = std::move(state_.evaluation->metrics);
      out.confusion = std::move(state_.evaluation->confusion);
      out.worst = std::move(state_.evaluation->worst);
    }
    TRY_VOID(os::write_file_atomically(fs_, model_path_, model));
    Json json = to_json(out);
    json.set("run", identity_);
    json.set("sha256", codec::Sha256::of(model).hex());
    TRY_VOID(os::write_file_atomically(fs_, metrics_path_, codec::write_json_pretty(json) + "\n"));
    TRY_VOID(remove_checkpoint());
    add_pictures(out);
    return out;
  }

  Status remove_checkpoint() {
    TRY_VOID(fs_.remove(checkpoint_path_));
    return fs_.sync_directory(request_.directory);
  }

  void add_pictures(Outcome& out) const {
    for (Worst& one : out.worst)
      // A missing picture must not fail a finished run.
      one.picture = evaluated().picture(one.index).value_or("");
  }

  /// The outcome, if an earlier process finished this run and its files are whole.
  std::optional<Outcome> finished() {
    const auto read = [&]() -> Result<Outcome> {
      TRY(const std::string text, os::read_file(fs_, metrics_path_));
      TRY(const Json json, codec::parse_json(text));
      if (json["run"].as_string() != identity_) return Error(Code::kNotFound, "another run");
      TRY(const std::string model, os::read_file(fs_, model_path_, kFileMax));
      if (codec::Sha256::of(model).hex() != json["sha256"].as_string())
        return Error(Code::kCorrupt, "another model");
      return parse_outcome(json);
    };
    Result<Outcome> out = read();
    if (!out.ok() || !remove_checkpoint().ok()) return std::nullopt;
    log::info("this run was finished before", {{"path", model_path_.string()}});
    out->model = model_path_;
    for (const EpochRecord& record : out->history) observer_.epoch(record);
    add_pictures(*out);
    return std::move(*out);
  }

  static Result<Outcome> parse_outcome(const Json& json) {
    TRY(Evaluation evaluation, parse_evaluation(json));
    Outcome out{.metrics = std::move(evaluation.metrics),
                .confusion = std::move(evaluation.confusion),
                .worst = std::move(evaluation.worst),
                .stopped_early = json["stoppedEarly"].as_bool(),
                .samples = static_cast<std::uint64_t>(json["samples"].as_integer()),
                .fingerprint = json["fingerprint"].as_string(),
                .seconds = json["seconds"].as_double()};
    for (const Json& name : json["classes"].as_array()) out.classes.push_back(name.as_string());
    for (const Json& record : json["history"].as_array()) {
      TRY(EpochRecord parsed, parse_epoch_record(record));
      out.history.push_back(std::move(parsed));
    }
    return out;
  }

  const Context& ctx_;
  infer::Engine& engine_;
  os::FileSystem& fs_;
  Request request_;
  const Settings settings_;
  Observer& observer_;
  const os::Path checkpoint_path_, model_path_, metrics_path_;

  Split split_;
  std::string identity_;
  Batches batches_;
  std::unique_ptr<train::Trainer> trainer_;
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

Json to_json(const Outcome& outcome) {
  Json out = to_json(Evaluation{outcome.metrics, outcome.confusion, outcome.worst});
  Json history = Json::array();
  for (const EpochRecord& record : outcome.history) history.push_back(to_json(record));
  out.set("history", std::move(history));
  Json classes = Json::array();
  for (const std::string& name : outcome.classes) classes.push_back(name);
  out.set("classes", std::move(classes));
  out.set("stoppedEarly", outcome.stopped_early);
  out.set("samples", outcome.samples);
  out.set("fingerprint", outcome.fingerprint);
  out.set("seconds", outcome.seconds);
  return out;
}

}  // namespace varda::training
