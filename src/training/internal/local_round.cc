#include "training/internal/local_round.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "tensor/pool.h"
#include "train/order.h"
#include "training/internal/result_files.h"
#include "training/internal/run_checkpoint.h"
#include "training/internal/text.h"
#include "training/schedule.h"

namespace varda::training {
namespace {

namespace local_round {

using codec::Json;
using tensor::Named;
using tensor::Tensor;

constexpr std::chrono::milliseconds kReportPause{200};

std::string digest_of(std::span<const Named> tensors) {
  codec::Sha256Stream digest;
  for (const Named& one : tensors) {
    digest.update(one.name + "\n");
    const auto bytes = one.tensor.bytes();
    digest.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return digest.finish().hex();
}

std::string digest_of(const Values& values) {
  codec::Sha256Stream digest;
  for (const std::vector<float>& one : values)
    digest.update({reinterpret_cast<const char*>(one.data()), one.size() * sizeof(float)});
  return digest.finish().hex();
}

Tensor tensor_of(std::span<const float> values, const tensor::Shape& shape) {
  return Tensor::of<float>(tensor::DType::kFp32, shape, values).value();
}

void sort_by_name(std::vector<Named>& tensors) { std::ranges::sort(tensors, {}, &Named::name); }

/// Row `i` as a batch of one sample.
Result<samples::Batch> row_of(const samples::Batch& batch, std::size_t i) {
  samples::Batch out;
  tensor::Shape shape = batch.input.shape();
  const std::size_t row = batch.input.bytes().size() / batch.indices.size();
  shape[0] = 1;
  TRY(out.input,
      Tensor::copy(batch.input.dtype(), shape, batch.input.bytes().subspan(i * row, row)));
  if (!batch.labels.empty()) out.labels = {batch.labels[i]};
  const std::size_t width = batch.targets.size() / batch.indices.size();
  const auto targets = std::span(batch.targets).subspan(i * width, width);
  out.targets.assign(targets.begin(), targets.end());
  out.indices = {batch.indices[i]};
  return out;
}

/// One round. Members without a comment on change are constant after prepare().
class Round {
 public:
  Round(const Context& ctx, const RoundParts& parts, const LocalRound& round, Observer& observer)
      : ctx_(ctx),
        parts_(parts),
        settings_(parts.settings),
        trainer_(parts.trainer),
        round_(round),
        observer_(observer),
        count_(parts.data.split().train.size()),
        weights_(trainer_.weights().size()) {}

  Result<RoundResult> run() {
    TRY_VOID(prepare());
    TRY_VOID(begin());
    saved_at_ = begin_ = system_clock().now();
    begin_update_ = update_number();
    while (update_number() < updates_)
      if (Status status = train_epoch(); !status.ok()) {
        const Code code = status.error().code();
        if (code == Code::kCancelled || code == Code::kTimeout) save_checkpoint();
        return std::move(status).error();
      }
    return result();
  }

 private:
  // --- before the first step

  Status prepare() {
    if (round_.round < 1) return invalid("the round must be 1 or more");
    if (round_.steps == 0 && round_.epochs < 1) return invalid("a round needs epochs or steps");
    if (!(round_.proximal >= 0) || !std::isfinite(round_.proximal))
      return invalid("proximal must be 0 or more");
    if (round_.control) {
      if (settings_.optimizer.kind != train::OptimizerOptions::Kind::kSgd ||
          settings_.optimizer.momentum > 0)
        return invalid("control variates need the optimizer sgd without momentum");
      TRY(server_, variates(round_.control->server));
      TRY(own_, variates(round_.control->own));
    }
    if (parts_.privacy) {
      batches_each_ = updates_each_ = static_cast<std::uint64_t>(
          std::ceil(static_cast<double>(count_) / parts_.expected_samples));
    } else {
      const auto size = static_cast<std::size_t>(parts_.batches.size);
      const auto accumulate = static_cast<std::uint64_t>(settings_.accumulate);
      batches_each_ = (count_ + size - 1) / size;
      updates_each_ = (batches_each_ + accumulate - 1) / accumulate;
    }
    updates_ =
        round_.steps > 0 ? round_.steps : static_cast<std::uint64_t>(round_.epochs) * updates_each_;
    identity_ = identity();
    return {};
  }

  /// The variates in the order of the weights.
  Result<Values> variates(std::span<const Named> tensors) const {
    Values out(weights_);
    for (const Named& one : tensors) {
      std::size_t at = 0;
      while (at < weights_ && trainer_.values()[at].name != one.name) ++at;
      if (at == weights_) continue;  // of a weight that does not train here
      if (one.tensor.dtype() != tensor::DType::kFp32 ||
          one.tensor.shape() != trainer_.values()[at].tensor.shape())
        return invalid("the control variate \"" + one.name + "\" has another type or shape");
      const auto values = one.tensor.values<float>();
      if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
        return invalid("the control variate \"" + one.name + "\" is not finite");
      out[at].assign(values.begin(), values.end());
    }
    return out;
  }

  std::string identity() const {
    Json json = Json::object({{"parts", parts_.identity},
                              {"start", digest_of(parts_.start)},
                              {"round", round_.round},
                              {"updates", updates_},
                              {"seed", codec::write_json(Json(std::to_string(round_.seed)))},
                              {"proximal", round_.proximal},
                              {"keepOptimizer", round_.keep_optimizer}});
    if (round_.keep_optimizer) json.set("optimizer", codec::Sha256::of(round_.optimizer).hex());
    if (round_.control)
      json.set("control", digest_of(round_.control->server) + " " + digest_of(round_.control->own));
    if (parts_.privacy) {
      const PrivacyOptions& privacy = *parts_.privacy;
      json.set("privacy",
               Json::object(
                   {{"clipNorm", privacy.clip_norm},
                    {"noise", privacy.noise},
                    {"expected", parts_.expected_samples},
                    {"key", codec::Sha256::of({reinterpret_cast<const char*>(privacy.key.data()),
                                               privacy.key.size()})
                                .hex()}}));
    }
    return codec::Sha256::of(codec::write_json(codec::sorted(json))).hex();
  }

  /// Sets the weights of the start, or those of the checkpoint.
  Status begin() {
    if (restore_checkpoint()) {
      log::info("round continues from a checkpoint",
                {{"updates_done", update_number()}, {"updates", updates_}});
      return {};
    }
    state_ = {};
    trainer_.reset_optimizer();
    if (round_.keep_optimizer && !round_.optimizer.empty())
      if (const Status status = trainer_.restore(round_.optimizer); !status.ok()) {
        log::warn("state of the optimizer ignored", {{"error", status.error()}});
        trainer_.reset_optimizer();
      }
    std::vector<Named> values;
    for (std::size_t i = 0; i < parts_.start.size(); ++i) {
      const Named& value = trainer_.values()[i];
      values.push_back({value.name, tensor_of(parts_.start[i], value.tensor.shape())});
    }
    return trainer_.set_values(values);
  }

  // --- checkpoints

  bool restore_checkpoint() {
    if (round_.checkpoint.empty()) return false;
    const auto info = parts_.fs.stat(round_.checkpoint);
    if (info.ok() && !*info) return false;
    const auto read = [&]() -> Result<bool> {
      TRY(const std::string bytes, os::read_file(parts_.fs, round_.checkpoint, kFileMax));
      TRY(RunCheckpoint found, RunCheckpoint::decode(bytes));
      if (found.identity != identity_) return false;  // the last round's
      if (found.batch >= batches_each_ ||
          found.batch % static_cast<std::uint64_t>(settings_.accumulate) != 0)
        return Error(Code::kCorrupt, "the position in the checkpoint is out of range");
      TRY_VOID(trainer_.restore(found.trainer));
      found.trainer.clear();
      state_ = std::move(found);
      return true;
    };
    const auto done = read();
    if (done.ok()) return *done;
    log::warn("checkpoint ignored, the round starts from its first step",
              {{"path", round_.checkpoint.string()}, {"error", done.error()}});
    return false;
  }

  /// Keeps the last checkpoint if an update is incomplete.
  void save_checkpoint() {
    saved_at_ = system_clock().now();
    if (inside_update_ || round_.checkpoint.empty()) return;
    state_.identity = identity_;
    state_.trainer = trainer_.checkpoint();
    const Status status = os::write_file_atomically(parts_.fs, round_.checkpoint, state_.encode());
    state_.trainer.clear();
    if (!status.ok())
      log::warn("checkpoint not written",
                {{"path", round_.checkpoint.string()}, {"error", status.error()}});
  }

  // --- the loop

  std::uint64_t update_number() const {
    return static_cast<std::uint64_t>(state_.epoch) * updates_each_ +
           state_.batch / static_cast<std::uint64_t>(settings_.accumulate);
  }

  double rate_of(std::uint64_t update) const {
    return learning_rate(
        settings_, static_cast<std::uint64_t>(round_.round - 1) * updates_ + update, updates_);
  }

  Status train_epoch() {
    std::optional<samples::Loader> loader;
    if (!parts_.privacy) {
      std::vector<std::size_t> order;
      order.reserve(count_);
      for (const std::size_t at :
           train::epoch_order(count_, round_.seed, static_cast<std::uint64_t>(state_.epoch)))
        order.push_back(parts_.data.split().train[at]);
      loader.emplace(parts_.data.train(), std::move(order),
                     static_cast<std::size_t>(parts_.batches.size), settings_.augment,
                     augment_seed_of_epoch(), static_cast<std::size_t>(state_.batch));
    }
    while (state_.batch < batches_each_ && update_number() < updates_) {
      TRY_VOID(ctx_.check());
      const std::uint64_t number = update_number();
      const Status status =
          loader ? update(*loader, rate_of(number)) : update_privately(number, rate_of(number));
      if (!status.ok())
        return status.error().context("step " + std::to_string(number + 1) + " of " +
                                      std::to_string(updates_));
      if (state_.batch == batches_each_) {
        ++state_.epoch;
        state_.batch = 0;
      }
      report();
      if (system_clock().now() - saved_at_ >= round_.checkpoint_every) save_checkpoint();
      if (state_.batch == 0) break;
    }
    return {};
  }

  std::uint64_t augment_seed_of_epoch() const {
    return seeded_rng(seeded_rng(round_.seed)->next() ^ static_cast<std::uint64_t>(state_.epoch))
        ->next();
  }

  bool has_terms() const { return round_.proximal > 0 || round_.control.has_value(); }

  Status update(samples::Loader& loader, double rate) {
    const auto size = static_cast<std::size_t>(parts_.batches.size);
    const std::uint64_t end = std::min<std::uint64_t>(
        state_.batch + static_cast<std::uint64_t>(settings_.accumulate), batches_each_);
    const std::size_t samples = std::min<std::size_t>(end * size, count_) - state_.batch * size;
    double loss = 0;
    for (std::uint64_t at = state_.batch; at < end; ++at) {
      // An update is not interrupted, so that a stopped round has a checkpoint of this moment.
      TRY(const auto batch, loader.next(inside_update_ ? Context::background() : ctx_));
      if (!batch) return Error(Code::kInternal, "the data ended before the epoch");
      TRY(const train::Batch made,
          parts_.batches.make(*batch, parts_.data.train(), settings_, samples));
      const bool last = at + 1 == end;
      TRY(const train::Step step,
          last && !has_terms() ? trainer_.step(made, rate) : trainer_.accumulate(made));
      inside_update_ = !last;
      loss += step.loss;
    }
    if (has_terms()) {
      Values gradients = trainer_.take_gradients();
      add_terms(gradients);
      TRY_VOID(trainer_.apply(gradients, rate));
    }
    state_.batch = end;
    state_.loss_sum += loss * static_cast<double>(samples);
    state_.samples += samples;
    return {};
  }

  Status update_privately(std::uint64_t number, double rate) {
    const PrivacyOptions& privacy = *parts_.privacy;
    // The aggregator knows the seed of a round, so the key makes draws and noise secret. The
    // identity separates rounds that an aggregator sends with equal seeds.
    KeyStream stream(privacy.key, identity_ + " " + std::to_string(number));
    const std::vector<std::size_t> drawn = poisson_sample(
        parts_.data.split().train, parts_.expected_samples / static_cast<double>(count_), stream);
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < weights_; ++i) sizes.push_back(trainer_.values()[i].tensor.size());
    PrivateSum sum(sizes, privacy.clip_norm);
    double loss = 0;
    for (std::size_t first = 0; first < drawn.size(); first += kReadAtOnce) {
      const auto part =
          std::span(drawn).subspan(first, std::min(kReadAtOnce, drawn.size() - first));
      TRY(const samples::Batch batch,
          parts_.data.train().read_until(ctx_, part, settings_.augment, augment_seed_of_epoch(),
                                         batch_memory_));
      for (std::size_t i = 0; i < part.size(); ++i) {
        TRY_VOID(ctx_.check());
        TRY(const samples::Batch row, row_of(batch, i));
        TRY(const train::Batch made, parts_.batches.make(row, parts_.data.train(), settings_, 1));
        TRY(const train::Step step, trainer_.accumulate(made));
        if (!sum.add(trainer_.take_gradients()))
          return invalid("the gradient of " + parts_.data.train().place(part[i]) +
                         " is not finite");
        loss += step.loss;
      }
    }
    Values gradients = sum.finish(privacy.noise, parts_.expected_samples, stream);
    add_terms(gradients);
    TRY_VOID(trainer_.apply(gradients, rate));
    ++state_.batch;
    state_.loss_sum += loss;
    state_.samples += drawn.size();
    return {};
  }

  void add_terms(Values& gradients) const {
    for (std::size_t i = 0; i < weights_; ++i) {
      if (round_.proximal > 0)
        add_proximal_term(gradients[i], trainer_.values()[i].tensor.values<float>(),
                          parts_.start[i], round_.proximal);
      if (round_.control) add_control(gradients[i], server_[i], own_[i]);
    }
  }

  void report() {
    const SteadyTime now = system_clock().now();
    if (reported_at_ && now - *reported_at_ < kReportPause) return;
    reported_at_ = now;
    Progress out{.phase = "Training",
                 .epoch = state_.epoch + 1,
                 .epochs = std::max<std::int64_t>(
                     round_.epochs,
                     static_cast<std::int64_t>((updates_ + updates_each_ - 1) / updates_each_)),
                 .step = update_number(),
                 .steps = updates_};
    out.epoch = std::min(out.epoch, out.epochs);
    if (state_.samples > 0) out.loss = state_.loss_sum / static_cast<double>(state_.samples);
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    if (seconds > 0 && out.step > begin_update_) {
      const double done = static_cast<double>(out.step - begin_update_);
      out.remaining_seconds = seconds * static_cast<double>(out.steps - out.step) / done;
      out.samples_per_second =
          done / seconds * static_cast<double>(count_) / static_cast<double>(updates_each_);
    }
    observer_.progress(out);
  }

  // --- the result

  Result<RoundResult> result() {
    RoundResult out{.samples = std::min<std::uint64_t>(count_, state_.samples), .steps = updates_};
    // A private round draws samples at random, so the number of different ones is not known.
    if (parts_.privacy) out.samples = count_;
    if (state_.samples > 0) out.loss = state_.loss_sum / static_cast<double>(state_.samples);
    double rates = 0;
    for (std::uint64_t i = 0; i < updates_ && round_.control; ++i) rates += rate_of(i);
    if (round_.control && !(rates > 0)) return invalid("the learning rate of the round is 0");
    for (std::size_t i = 0; i < trainer_.values().size(); ++i) {
      const Named& value = trainer_.values()[i];
      const tensor::Shape& shape = value.tensor.shape();
      const auto trained = value.tensor.values<float>();
      std::vector<float> delta(trained.size());
      for (std::size_t j = 0; j < delta.size(); ++j) delta[j] = trained[j] - parts_.start[i][j];
      if (!std::ranges::all_of(delta, [](float one) { return std::isfinite(one); }))
        return invalid("weight \"" + value.name + "\" is not finite after the round; lower " +
                       "optimizer.learningRate, or set clipNorm");
      out.delta.push_back({value.name, tensor_of(delta, shape)});
      if (!round_.control || i >= weights_) continue;
      const std::vector<float> next =
          next_control(server_[i], own_[i], parts_.start[i], trained, rates);
      std::vector<float> change = next;
      for (std::size_t j = 0; j < change.size() && !own_[i].empty(); ++j) change[j] -= own_[i][j];
      out.control.push_back({value.name, tensor_of(next, shape)});
      out.control_delta.push_back({value.name, tensor_of(change, shape)});
    }
    for (auto* tensors : {&out.delta, &out.control, &out.control_delta}) sort_by_name(*tensors);
    if (round_.keep_optimizer) out.optimizer = trainer_.checkpoint();
    return out;
  }

  static constexpr std::size_t kReadAtOnce = 64;

  const Context& ctx_;
  const RoundParts& parts_;
  const Settings& settings_;
  train::Trainer& trainer_;
  const LocalRound& round_;
  Observer& observer_;
  const std::size_t count_, weights_;
  Values server_, own_;
  std::uint64_t batches_each_ = 0, updates_each_ = 0;  // of an epoch
  std::uint64_t updates_ = 0;                          // of the round
  std::string identity_;

  RunCheckpoint state_;           // the position; without the trainer's bytes
  bool inside_update_ = false;    // the trainer has accumulated gradients
  tensor::Pool batch_memory_{1};  // of private updates
  SteadyTime begin_, saved_at_;
  std::optional<SteadyTime> reported_at_;
  std::uint64_t begin_update_ = 0;
};

}  // namespace local_round

}  // namespace

Result<RoundResult> train_round(const Context& ctx, const RoundParts& parts,
                                const LocalRound& round, Observer& observer) {
  return local_round::Round(ctx, parts, round, observer).run();
}

}  // namespace varda::training
