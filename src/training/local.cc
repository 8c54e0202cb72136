#include "training/local.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "codec/digest.h"
#include "codec/json.h"
#include "onnx/model.h"
#include "onnx/weights.h"
#include "train/head.h"
#include "training/internal/evaluate.h"
#include "training/internal/local_round.h"
#include "training/internal/open_trainer.h"
#include "training/internal/run_data.h"
#include "training/internal/text.h"
#include "training/metrics.h"

namespace varda::training {
namespace {

namespace local {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;

bool is_finite(const Tensor& tensor) {
  return std::ranges::all_of(tensor.values<float>(),
                             [](float value) { return std::isfinite(value); });
}

bool is_equal(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.bytes(), b.bytes()); }

class LocalTrainerImpl final : public LocalTrainer {
 public:
  LocalTrainerImpl(infer::Engine& engine, os::FileSystem& fs, LocalOptions options)
      : engine_(engine),
        fs_(fs),
        request_{.model = std::move(options.model),
                 .train = std::move(options.train),
                 .evaluation = std::move(options.evaluation),
                 .hold_out = options.hold_out,
                 .classes_min = 1,
                 .settings = options.settings},
        settings_(std::move(options.settings)),
        privacy_(options.privacy),
        data_(request_) {}

  Status start(const Context& ctx) {
    if (settings_.continual.any())
      return invalid("continual has no effect in federated rounds; remove the member");
    request_.settings.early_stopping.reset();
    TRY_VOID(data_.prepare(ctx));
    if (settings_.head_classes) {
      TRY_VOID(data_.check_head(*settings_.head_classes));
      TRY(request_.model,
          train::replace_head(std::move(request_.model), *settings_.head_classes, settings_.seed));
      settings_.head_classes.reset();
    }
    if (privacy_) TRY_VOID(prepare_private_steps());
    TRY(const onnx::Model model, onnx::parse(request_.model));
    for (const onnx::Tensor& one : model.graph.initializers) {
      if (onnx::dtype_of(one.data_type) != DType::kFp32 || one.dims.empty()) continue;
      specs_.push_back({one.name, DType::kFp32, one.dims});
      TRY(Tensor value, one.value());
      others_.emplace(one.name, std::move(value));
    }
    std::ranges::sort(specs_, {}, &tensor::Spec::name);
    TRY_VOID(open());
    // The global model has initializers only, so weights in other places stay as they are.
    std::vector<std::string> unshared;
    for (const std::string& name : trainer_->weights())
      if (!others_.contains(name)) unshared.push_back(name);
    if (!unshared.empty()) {
      settings_.freeze.insert(settings_.freeze.end(), unshared.begin(), unshared.end());
      TRY_VOID(open());
    }
    if (privacy_ && trainer_->values().size() > trainer_->weights().size())
      return Error(Code::kUnsupported,
                   "private training cannot update the statistics of BatchNormalization; freeze "
                   "its scale and bias");
    for (const Named& value : trainer_->values()) others_.erase(value.name);
    TRY(identity_, identity_of(request_));
    remember_start();
    return {};
  }

  const std::vector<tensor::Spec>& weights() const override { return specs_; }

  Status set_weights(std::span<const Named> weights) override {
    std::vector<Named> trained;
    std::map<std::string, Tensor> changed;
    for (const Named& one : weights) {
      TRY_VOID(check(one));
      const auto other = others_.find(one.name);
      if (other == others_.end())
        trained.push_back(one);
      else if (!is_equal(other->second, one.tensor))
        changed.emplace(one.name, one.tensor);
    }
    if (!changed.empty()) TRY_VOID(change_constants(std::move(changed)));
    TRY_VOID(trainer_->set_values(trained));
    remember_start();
    return {};
  }

  Result<RoundResult> train(const Context& ctx, const LocalRound& round,
                            Observer& observer) override {
    const RoundParts parts{.data = data_,
                           .batches = batches_,
                           .settings = settings_,
                           .privacy = privacy_,
                           .expected_samples = expected_samples_,
                           .trainer = *trainer_,
                           .start = start_,
                           .fs = fs_,
                           .identity = identity_};
    return train_round(ctx, parts, round, observer);
  }

  Result<Evaluation> evaluate(const Context& ctx) override {
    if (evaluation_samples() == 0)
      return invalid("there are no data for an evaluation; set holdOut above 0");
    return training::evaluate(ctx, data_, batches_, settings_, *trainer_, [] {});
  }

  Result<double> training_loss(const Context& ctx) override {
    const std::size_t width = batches_.values();
    Metrics metrics({.task = settings_.task,
                     .outputs = width,
                     .loss = settings_.loss,
                     .activation = trainer_->activation(),
                     .huber_delta = settings_.huber_delta,
                     .auc_scores_max = 1});
    double sum = 0;
    samples::Loader loader(data_.train(), data_.split().train,
                           static_cast<std::size_t>(batches_.size), {}, 0);
    for (;;) {
      TRY(const auto batch, loader.next(ctx));
      if (!batch) break;
      TRY_VOID(batches_.check(*batch, data_.train(), settings_.task));
      TRY(const auto inputs, batches_.inputs(*batch));
      TRY(const Tensor output, trainer_->predict(inputs));
      for (std::size_t i = 0; i < batch->indices.size(); ++i) {
        const auto row = output.values<float>().subspan(i * width, width);
        sum += data_.is_classification()
                   ? metrics.add(row, batch->labels[i])
                   : metrics.add(row, std::span(batch->targets).subspan(i * width, width));
      }
    }
    return sum / static_cast<double>(samples());
  }

  std::uint64_t samples() const override { return data_.split().train.size(); }
  std::uint64_t evaluation_samples() const override { return data_.split().evaluation.size(); }
  double sampling_rate() const override {
    return expected_samples_ / static_cast<double>(samples());
  }
  Result<std::string> save() const override { return trainer_->save(); }

 private:
  Status prepare_private_steps() {
    const double expected =
        static_cast<double>(settings_.batch_size) * static_cast<double>(settings_.accumulate);
    expected_samples_ = std::min(expected, static_cast<double>(samples()));
    if (!(privacy_->clip_norm > 0) || !std::isfinite(privacy_->clip_norm))
      return invalid("the clip norm of private training must be above 0");
    if (!(privacy_->noise >= 0) || !std::isfinite(privacy_->noise))
      return invalid("the noise of private training must be 0 or more");
    if (settings_.clip_norm > 0) return invalid("clipNorm and private training exclude each other");
    settings_.batch_size = settings_.accumulate = 1;
    return {};
  }

  Status open() {
    TRY(Opened opened, open_trainer(engine_, data_, settings_, request_.model));
    batches_ = std::move(opened.batches);
    trainer_ = std::move(opened.trainer);
    return {};
  }

  Status check(const Named& weight) const {
    const auto spec = std::ranges::find(specs_, weight.name, &tensor::Spec::name);
    if (spec == specs_.end()) return invalid("the model has no weight \"" + weight.name + "\"");
    if (weight.tensor.dtype() != DType::kFp32 || weight.tensor.shape() != spec->shape)
      return invalid("weight \"" + weight.name + "\" is " +
                     std::string(tensor::to_string(weight.tensor.dtype())) + " " +
                     tensor::to_string(weight.tensor.shape()) + "; the model has FP32 " +
                     tensor::to_string(spec->shape));
    if (!is_finite(weight.tensor)) return invalid("weight \"" + weight.name + "\" is not finite");
    return {};
  }

  /// Opens the model again: the engine has constants compiled in.
  Status change_constants(std::map<std::string, Tensor> changed) {
    TRY(request_.model, onnx::replace_weights(request_.model, changed));
    TRY(Opened opened, open_trainer(engine_, data_, settings_, request_.model));
    TRY_VOID(opened.trainer->set_values(trainer_->values()));
    trainer_ = std::move(opened.trainer);
    for (auto& [name, value] : changed) {
      // The caller may change the bytes of a borrowed tensor later.
      TRY(others_.at(name), Tensor::copy(value.dtype(), value.shape(), value.bytes()));
    }
    TRY(identity_, identity_of(request_));
    return {};
  }

  void remember_start() {
    start_.clear();
    for (const Named& one : trainer_->values()) {
      const auto values = one.tensor.values<float>();
      start_.emplace_back(values.begin(), values.end());
    }
  }

  infer::Engine& engine_;
  os::FileSystem& fs_;
  Request request_;  // `model` has the present constants
  Settings settings_;
  const std::optional<PrivacyOptions> privacy_;
  RunData data_;
  double expected_samples_ = 0;
  std::vector<tensor::Spec> specs_;
  std::map<std::string, Tensor> others_;  // of `specs_`, those that do not train
  Batches batches_;
  std::unique_ptr<train::Trainer> trainer_;
  Values start_;  // of Trainer::values()
  std::string identity_;
};

}  // namespace local

}  // namespace

Result<std::unique_ptr<LocalTrainer>> LocalTrainer::open(const Context& ctx, infer::Engine& engine,
                                                         os::FileSystem& fs, LocalOptions options) {
  auto out = std::make_unique<local::LocalTrainerImpl>(engine, fs, std::move(options));
  TRY_VOID(out->start(ctx));
  return std::unique_ptr<LocalTrainer>(std::move(out));
}

}  // namespace varda::training
