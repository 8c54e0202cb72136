#include "aggregator/flower_rounds.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "federated/update.h"

namespace varda::aggregator {
namespace {

constexpr std::size_t kModelsMax = 2;  // one in training, one in evaluation

/// A number of the trainer's settings at "a.b", if there is one.
std::optional<double> number_at(const codec::Json& json, std::string_view outer,
                                std::string_view inner = "") {
  const codec::Json* const member = json.find(outer);
  if (!member) return std::nullopt;
  const codec::Json* const value = inner.empty() ? member : member->find(inner);
  if (!value || !value->is_number()) return std::nullopt;
  return value->as_double();
}

}  // namespace

Result<std::unique_ptr<FlowerRounds>> FlowerRounds::create(Coordinator& coordinator,
                                                           Options options) {
  if (options.settings.aggregator.name == "SCAFFOLD") {
    return Error(Code::kUnsupported,
                 "Flower clients send no control variates, which SCAFFOLD needs");
  }
  // Flower clients would send updates without noise or masks, which the job promises.
  if (options.settings.secure)
    return Error(Code::kUnsupported, "Flower clients send no masks, which secureAggregation needs");
  if (options.settings.privacy &&
      options.settings.privacy->mode == federated::PrivacyMode::kLocal) {
    return Error(Code::kUnsupported,
                 "Flower clients add no noise, which privacy with mode: local needs");
  }
  if (options.order.size() != coordinator.layout()->tensors().size())
    return Error(Code::kInvalid, "the order of the weights does not name each of them once");
  return std::unique_ptr<FlowerRounds>(new FlowerRounds(coordinator, std::move(options)));
}

FlowerRounds::FlowerRounds(Coordinator& coordinator, Options options)
    : coordinator_(coordinator), options_(std::move(options)) {
  life_ = std::jthread([this](const std::stop_token& stop) { show_life(stop); });
}

// An open call of a client in training is silent, but the coordinator counts silent clients as
// lost.
void FlowerRounds::show_life(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<std::string> names;
    {
      const MutexLock lock(mutex_);
      (void)changed_.wait_until(mutex_, stop, system_clock().now() + options_.sign_of_life);
      for (const auto& [name, client] : clients_) names.push_back(name);
    }
    for (const std::string& name : names) (void)coordinator_.seen(name);
  }
}

Status FlowerRounds::joined(const std::string& client, const net::Peer&) {
  TRY_VOID(coordinator_.seen(client));
  const MutexLock lock(mutex_);
  clients_.try_emplace(client);
  return {};
}

void FlowerRounds::left(const std::string& client) {
  {
    const MutexLock lock(mutex_);
    clients_.erase(client);
  }
  coordinator_.left(client);
}

flower::Scalars FlowerRounds::config_of(const federated::Task& task) const {
  // Names as in the examples and strategies of Flower, equal for all clients of a round.
  const federated::TrainSettings& train = options_.settings.train;
  flower::Scalars out = {{"server_round", task.round}, {"round", task.round}};
  if (task.kind != federated::Task::Kind::kTrain) return out;
  out["local_epochs"] = train.local_epochs;
  if (train.local_steps > 0) out["local_steps"] = train.local_steps;
  if (train.proximal > 0) out["proximal_mu"] = train.proximal;
  if (const auto size = number_at(train.trainer, "batchSize"))
    out["batch_size"] = static_cast<std::int64_t>(*size);
  if (const auto rate = number_at(train.trainer, "optimizer", "learningRate"))
    out["learning_rate"] = *rate;
  return out;
}

Result<std::shared_ptr<const FlowerRounds::Loaded>> FlowerRounds::load(const std::string& model) {
  const MutexLock one(loading_);
  {
    const MutexLock lock(mutex_);
    const auto found = models_.find(model);
    if (found != models_.end()) return found->second;
  }
  TRY(const codec::Sha256 digest, codec::Sha256::parse(model));
  TRY(std::string bytes, coordinator_.store().read(digest));
  TRY(federated::Weights weights, federated::Weights::parse(std::move(bytes)));
  auto named = std::make_shared<flower::Model>();
  named->id = model;
  for (const std::string& name : options_.order) {
    TRY(tensor::Tensor tensor, weights.to_tensor(name));
    named->tensors.push_back({.name = name, .tensor = std::move(tensor)});
  }
  auto loaded = std::make_shared<const Loaded>(
      Loaded{.weights = std::move(weights), .model = std::move(named)});
  const std::set<std::string> used = [&] {
    const MutexLock lock(mutex_);
    std::set<std::string> names;
    for (const auto& [name, client] : clients_) names.insert(client.model);
    return names;
  }();
  const MutexLock lock(mutex_);
  if (models_.size() >= kModelsMax)
    std::erase_if(models_, [&](const auto& entry) { return !used.contains(entry.first); });
  while (models_.size() >= kModelsMax) models_.erase(models_.begin());
  models_[model] = loaded;
  return loaded;
}

Result<std::optional<flower::Task>> FlowerRounds::next(const std::string& client) {
  TRY_VOID(coordinator_.seen(client));
  const std::optional<federated::Task> task = coordinator_.task_for(client);
  if (!task) return std::optional<flower::Task>();
  if (task->kind == federated::Task::Kind::kEnd)
    return std::optional(flower::Task{.kind = flower::Task::Kind::kLeave, .id = task->id});
  {
    const MutexLock lock(mutex_);
    Client& known = clients_[client];
    if (known.failed == task->id) return std::optional<flower::Task>();
    known.task = task->id;
    known.model = task->model;
  }
  TRY(const auto loaded, load(task->model));
  return std::optional(flower::Task{.kind = task->kind == federated::Task::Kind::kTrain
                                                ? flower::Task::Kind::kFit
                                                : flower::Task::Kind::kEvaluate,
                                    .id = task->id,
                                    .model = loaded->model,
                                    .config = config_of(*task)});
}

Status FlowerRounds::fitted(const std::string& client, const flower::Fitted& answer) {
  std::string model;
  {
    const MutexLock lock(mutex_);
    const Client& known = clients_[client];
    if (known.task != answer.task) return Error(Code::kConflict, "the client has another task");
    model = known.model;
  }
  const flower::Task task{.kind = flower::Task::Kind::kFit, .id = answer.task};
  const auto refuse = [&](Error error) -> Status {
    failed(client, task, error);
    return error;
  };
  if (answer.weights.size() != options_.order.size()) {
    return refuse(Error(Code::kInvalid,
                        "the client sends " + std::to_string(answer.weights.size()) +
                            " arrays, but the model has " + std::to_string(options_.order.size())));
  }
  TRY(const auto loaded, load(model));
  const federated::Weights& base = loaded->weights;
  federated::Weights delta(base.layout_pointer());
  for (std::size_t i = 0; i < options_.order.size(); ++i) {
    const std::string& name = options_.order[i];
    const flower::Array& array = answer.weights[i];
    const federated::LayoutTensor* const place = base.layout().find(name);
    if (!place || place->shape != array.shape()) {
      return refuse(Error(Code::kInvalid, "array " + std::to_string(i) + " for " + name +
                                              " has the shape " + tensor::to_string(array.shape()) +
                                              " instead of " +
                                              (place ? tensor::to_string(place->shape) : "any")));
    }
    const std::span<float> values = delta.tensor(name);
    if (const Status read = array.to_floats(values); !read.ok())
      return refuse(read.error().context(name));
    const std::span<const float> before = base.tensor(name);
    for (std::size_t j = 0; j < values.size(); ++j) values[j] -= before[j];
  }
  federated::UpdateInfo info{.task = answer.task,
                             .base = codec::Sha256::parse(model).value(),
                             .samples = static_cast<std::uint64_t>(answer.examples),
                             .steps = 1};
  for (const auto& [name, value] : answer.metrics) info.metrics.set(name, value);
  auto bytes = federated::encode_update(info, delta.layout(), delta.values());
  if (!bytes.ok()) return refuse(bytes.error());
  coordinator_.count_bytes(bytes->size(), 0);
  TRY(const Coordinator::Submitted submitted,
      coordinator_.submit_bytes(client, answer.task, std::move(bytes).value()));
  if (submitted.verdict == federated::Verdict::kWanted ||
      submitted.verdict == federated::Verdict::kDuplicate)
    return {};
  {
    const MutexLock lock(mutex_);
    clients_[client].failed = answer.task;
  }
  return Error(Code::kConflict, std::string(federated::to_string(submitted.verdict)) +
                                    (submitted.message.empty() ? "" : ": " + submitted.message));
}

Status FlowerRounds::evaluated(const std::string& client, const flower::Evaluated& answer) {
  const Status taken = coordinator_.evaluated(client, answer.task,
                                              static_cast<double>(answer.examples), answer.metrics);
  if (!taken.ok()) {
    const MutexLock lock(mutex_);
    clients_[client].failed = answer.task;
  }
  return taken;
}

Status FlowerRounds::initial(const std::string&, const flower::Initial&) {
  return Error(Code::kUnsupported, "the job begins with a model file");
}

void FlowerRounds::failed(const std::string& client, const flower::Task& task, const Error& error) {
  bool again = false;
  {
    const MutexLock lock(mutex_);
    Client& known = clients_[client];
    again = known.failed == task.id;
    known.failed = task.id;
  }
  if (again) return;
  // Neither the round nor the evaluation waits for this client.
  const Status noted = task.kind == flower::Task::Kind::kEvaluate
                           ? coordinator_.evaluated(client, task.id, 0, {})
                           : coordinator_.refuse(client, task.id, error);
  if (!noted.ok())
    log::warn("failed task not recorded", {{"task", task.id}, {"error", noted.error()}});
}

void FlowerRounds::on_change(std::function<void()> changed) {
  {
    const MutexLock lock(listener_->mutex);
    listener_->changed = std::move(changed);
  }
  coordinator_.on_change([listener = listener_] {
    const MutexLock lock(listener->mutex);  // the callback only posts
    if (listener->changed) listener->changed();
  });
}

FlowerRounds::~FlowerRounds() {
  const MutexLock lock(listener_->mutex);
  listener_->changed = nullptr;
}

}  // namespace varda::aggregator
