#include "federated_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "codec/digest.h"
#include "federated/safetensors.h"

namespace varda::trainapp {
namespace {

using codec::Json;
using participant::Assignment;
using participant::Task;
using tensor::DType;
using tensor::Named;
using tensor::Tensor;

constexpr std::uint64_t kSentModelBytesMax = std::uint64_t{2} << 30;  // the limit of protobuf
constexpr std::string_view kVariate = "variate/";
constexpr const char* kOptimizer = "optimizer";

/// Values that the worker keeps from round to round: own control variates, the optimizer's state.
struct Carry {
  std::vector<Named> own;
  std::string optimizer;
};

Carry read_carry(const std::string& bytes) {
  Carry out;
  if (bytes.empty()) return out;
  const auto read = [&]() -> Status {
    TRY(const auto file, federated::Safetensors::of(bytes));
    for (const federated::SafetensorsEntry& entry : file.header().entries()) {
      TRY(Tensor value, file.tensor(entry.name));
      if (entry.name == kOptimizer) {
        const auto raw = value.bytes();
        out.optimizer.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
      } else if (entry.name.starts_with(kVariate)) {
        // A copy, because the file ends with this function.
        TRY(Tensor own, Tensor::copy(value.dtype(), value.shape(), value.bytes()));
        out.own.push_back({entry.name.substr(kVariate.size()), std::move(own)});
      }
    }
    return {};
  };
  if (const Status status = read(); !status.ok()) {
    log::warn("values of the last round ignored", {{"error", status.error()}});
    return {};
  }
  return out;
}

Result<std::string> write_carry(const training::RoundResult& result) {
  std::vector<Named> tensors;
  for (const Named& one : result.control)
    tensors.push_back({std::string(kVariate) + one.name, one.tensor});
  if (!result.optimizer.empty()) {
    const auto raw = std::as_bytes(std::span(result.optimizer));
    TRY(Tensor value, Tensor::copy(DType::kUint8, {static_cast<std::int64_t>(raw.size())}, raw));
    tensors.push_back({kOptimizer, std::move(value)});
  }
  if (tensors.empty()) return std::string();
  return federated::write_safetensors(tensors);
}

Result<std::vector<Named>> tensors_of(const federated::Weights& weights) {
  std::vector<Named> out;
  TRY(auto tensors, weights.to_tensors());
  for (auto& [name, value] : tensors) out.push_back({name, std::move(value)});
  return out;
}

/// The values in the order of the layout; 0 for tensors that are absent.
std::vector<float> vector_of(const federated::Layout& layout, std::span<const Named> tensors) {
  std::vector<float> out(layout.size());
  for (const Named& one : tensors) {
    const federated::LayoutTensor* const place = layout.find(one.name);
    if (place == nullptr) continue;
    const auto values = one.tensor.values<float>();
    std::ranges::copy(values, out.begin() + static_cast<std::ptrdiff_t>(place->first));
  }
  return out;
}

Json numbers(const std::map<std::string, double>& values) {
  Json out = Json::object();
  for (const auto& [name, value] : values)
    if (std::isfinite(value)) out.set(name, value);
  return out;
}

/// The members of `changes` replace those of `json`, member by member in objects.
void merge(Json& json, const Json& changes) {
  for (const auto& [name, value] : changes.as_object()) {
    if (value.is_object() && json[name].is_object())
      merge(json[name], value);
    else
      json.set(name, value);
  }
}

}  // namespace

FederatedWorker::FederatedWorker(Options options, infer::Engines& engines, os::FileSystem& fs,
                                 training::Observer& observer)
    : options_(std::move(options)), engines_(engines), fs_(fs), observer_(observer) {}

FederatedWorker::~FederatedWorker() = default;

Result<ModelSource> FederatedWorker::source_of(const Assignment& assignment) {
  if (!options_.job.model.empty()) return read_model(fs_, options_.job.model);
  if (!assignment.model_file)
    return Error(Code::kInvalid, "the aggregator sends no ONNX file; name it with --model");
  const Task::ModelFile& file = *assignment.task.file;
  const os::Path directory = options_.directory / "model";
  TRY(const std::string bytes, os::read_file(fs_, *assignment.model_file, kSentModelBytesMax));
  TRY_VOID(fs_.make_directories(directory));
  TRY_VOID(os::write_file_atomically(fs_, directory / "model.onnx", bytes));
  ModelSource written;
  written.yaml = file.yaml;
  TRY_VOID(write_beside(fs_, directory, written, file.labels));
  TRY(ModelSource out, read_model(fs_, directory));
  if (out.labels.empty()) out.labels = file.labels;
  return out;
}

Result<Json> FederatedWorker::settings_of(const Task& task) const {
  // An evaluation may come without settings; then those of the training count.
  Json out = task.train.trainer.empty() && settings_.is_object() ? settings_ : task.train.trainer;
  merge(out, options_.trainer);
  // A round counts as an epoch of the schedule.
  if (task.rounds > 0) out.set("epochs", std::min<std::int64_t>(task.rounds, 100'000));
  if (options_.client.threads > 0) out.set("threads", options_.client.threads);
  return out;
}

Result<std::optional<training::PrivacyOptions>> FederatedWorker::privacy() {
  std::optional<training::PrivacyOptions> out;
  if (!options_.client.privacy) return out;
  out = training::PrivacyOptions{.clip_norm = options_.client.privacy->clip_norm,
                                 .noise = options_.client.privacy->noise};
  const os::Path path = options_.directory / "noise.key";
  TRY(const auto info, fs_.stat(path));
  std::string key;
  if (info) {
    TRY(key, os::read_file(fs_, path, 1024));
  } else {
    while (key.size() < out->key.size()) {
      const std::uint64_t part = system_rng().next();
      key.append(reinterpret_cast<const char*>(&part), sizeof part);
    }
    TRY_VOID(os::write_file_atomically(fs_, path, key, 0600));
  }
  if (key.size() != out->key.size())
    return Error(Code::kCorrupt, path.string() + " is damaged; remove it for a new key");
  std::memcpy(out->key.data(), key.data(), key.size());
  return out;
}

Status FederatedWorker::prepare(const Context& ctx, const Assignment& assignment) {
  const Task& task = assignment.task;
  TRY(Json settings, settings_of(task));
  const std::string key = codec::write_json(codec::sorted(settings)) +
                          (task.file ? task.file->digest.hex() : std::string());
  if (!task.train.trainer.empty()) settings_ = task.train.trainer;
  if (trainer_ && key == key_) return {};
  trainer_.reset();
  opened_.reset();
  TRY(ModelSource source, source_of(assignment));
  Job job = options_.job;
  TRY(job.settings, training::parse_settings(settings).context("settings of the trainer"));
  TRY(opened_, open(ctx, job, source, engines_));
  TRY(const auto private_steps, privacy());
  TRY(trainer_, training::LocalTrainer::open(ctx, *opened_->engine, fs_,
                                             {.model = std::move(source.bytes),
                                              .train = opened_->data,
                                              .evaluation = opened_->evaluation,
                                              .hold_out = job.hold_out,
                                              .settings = job.settings,
                                              .privacy = private_steps}));
  key_ = key;
  log::info("model and data opened", {{"samples", trainer_->samples()},
                                      {"evaluation_samples", trainer_->evaluation_samples()}});
  return {};
}

Status FederatedWorker::set_weights(const Assignment& assignment) {
  TRY(const std::vector<Named> weights, tensors_of(assignment.model));
  return trainer_->set_weights(weights).context("the model of the task");
}

Result<participant::TrainedUpdate> FederatedWorker::train(const Context& ctx,
                                                          const Assignment& assignment) {
  const Task& task = assignment.task;
  TRY_VOID(prepare(ctx, assignment));
  TRY_VOID(set_weights(assignment));
  std::optional<double> loss_before;
  if (task.train.loss_before) {
    TRY(loss_before, trainer_->training_loss(ctx));
  }
  Carry carry = read_carry(assignment.carry);
  training::LocalRound round{.round = std::max<std::int64_t>(task.round, 1),
                             .epochs = task.train.local_epochs,
                             .steps = static_cast<std::uint64_t>(task.train.local_steps),
                             .seed = task.train.seed,
                             .proximal = task.train.proximal,
                             .keep_optimizer = options_.client.keep_optimizer,
                             .optimizer = std::move(carry.optimizer),
                             .checkpoint = assignment.checkpoint,
                             .checkpoint_every = options_.job.checkpoint_every};
  if (task.train.use_control) {
    round.control.emplace().own = std::move(carry.own);
    if (assignment.control != nullptr) {
      TRY(round.control->server, tensors_of(*assignment.control));
    }
  }
  TRY(const training::RoundResult result, trainer_->train(ctx, round, observer_));
  const federated::Layout& layout = assignment.model.layout();
  participant::TrainedUpdate out{
      .delta = vector_of(layout, result.delta), .samples = result.samples, .steps = result.steps};
  if (task.train.use_control) out.control = vector_of(layout, result.control_delta);
  // The loss of private training would reveal what the noise hides.
  if (loss_before)
    out.metrics = Json::object({{"loss", *loss_before}, {"trainingLoss", result.loss}});
  else if (!options_.client.privacy)
    out.metrics = Json::object({{"loss", result.loss}});
  TRY(out.carry, write_carry(result));
  return out;
}

Result<participant::Evaluated> FederatedWorker::evaluate(const Context& ctx,
                                                         const Assignment& assignment) {
  TRY_VOID(prepare(ctx, assignment));
  if (trainer_->evaluation_samples() == 0) return participant::Evaluated{};
  TRY_VOID(set_weights(assignment));
  TRY(const training::Evaluation evaluation, trainer_->evaluate(ctx));
  return participant::Evaluated{trainer_->evaluation_samples(), numbers(evaluation.metrics)};
}

}  // namespace varda::trainapp
