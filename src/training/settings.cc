#include "training/settings.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "codec/settings_reader.h"

namespace varda::training {
namespace {

using codec::Json;
using samples::Task;
using train::Loss;
using train::OptimizerOptions;

constexpr double kAdamRate = 0.001;  // default of adam and adamw

template <typename T>
using Choice = codec::Choice<T>;
using codec::alternatives;
using codec::choice_name;
using codec::kAboveLow;
using codec::kBelowHigh;
using codec::SettingsReader;

constexpr Choice<Task> kTasks[] = {{"classification", Task::kClassification},
                                   {"multilabel", Task::kMultiLabel},
                                   {"regression", Task::kRegression}};
constexpr Choice<Loss> kLosses[] = {{"crossEntropy", Loss::kCrossEntropy},
                                    {"binaryCrossEntropy", Loss::kBinaryCrossEntropy},
                                    {"mse", Loss::kMse},
                                    {"huber", Loss::kHuber}};
constexpr Choice<OptimizerOptions::Kind> kOptimizers[] = {
    {"sgd", OptimizerOptions::Kind::kSgd},
    {"adam", OptimizerOptions::Kind::kAdam},
    {"adamw", OptimizerOptions::Kind::kAdamW}};
constexpr Choice<Schedule::Kind> kSchedules[] = {{"constant", Schedule::Kind::kConstant},
                                                 {"step", Schedule::Kind::kStep},
                                                 {"cosine", Schedule::Kind::kCosine}};
constexpr Choice<bool> kClassWeights[] = {{"none", false}, {"balanced", true}};

void read_optimizer(SettingsReader in, OptimizerOptions& out) {
  in.choice("name", out.kind, kOptimizers);
  if (out.kind != OptimizerOptions::Kind::kSgd) out.learning_rate = kAdamRate;
  in.number("learningRate", out.learning_rate, {0, 1000, kAboveLow});
  in.number("momentum", out.momentum, {0, 1, kBelowHigh});
  in.boolean("nesterov", out.nesterov);
  in.number("beta1", out.beta1, {0, 1, kBelowHigh});
  in.number("beta2", out.beta2, {0, 1, kBelowHigh});
  in.number("epsilon", out.epsilon, {0, 0.1, kAboveLow});
  in.number("weightDecay", out.weight_decay, {0, 1000});
  in.end();
}

void read_schedule(SettingsReader in, Schedule& out) {
  in.choice("name", out.kind, kSchedules);
  in.integer("warmupEpochs", out.warmup_epochs, 0, 100'000);
  in.integer("everyEpochs", out.every_epochs, 1, 100'000);
  in.number("factor", out.factor, {0, 1, kAboveLow});
  in.number("minimum", out.minimum, {0, 1000});
  in.end();
}

void read_early_stopping(SettingsReader in, EarlyStopping& out) {
  in.text("metric", out.metric);
  in.integer("patience", out.patience, 1, 100'000);
  in.end();
}

void read_augment(SettingsReader in, samples::Augment& out) {
  in.boolean("flip", out.flip);
  in.integer("crop", out.crop, 0, 4096);
  in.number("jitter", out.jitter, {0, 1});
  in.end();
}

Error excluded(std::string message) { return Error(Code::kInvalid, std::move(message)); }

std::vector<std::string_view> losses_of(Task task) {
  switch (task) {
    case Task::kClassification:
      return {"crossEntropy", "binaryCrossEntropy"};
    case Task::kMultiLabel:
      return {"binaryCrossEntropy"};
    case Task::kRegression:
      return {"mse", "huber"};
  }
  return {};
}

std::vector<std::string_view> metrics_of(Task task) {
  if (task == Task::kRegression) return {"loss", "mae", "rmse"};
  return {"loss", "accuracy", "precision", "recall", "f1", "auc"};
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Members that exclude each other.
Status check(const Settings& settings) {
  const std::string task(to_string(settings.task));
  if (const auto losses = losses_of(settings.task); !contains(losses, to_string(settings.loss)))
    return excluded("loss must be " + alternatives(losses) + " for the task " + task + ", not " +
                    std::string(to_string(settings.loss)));
  if (settings.label_smoothing > 0 && settings.loss != Loss::kCrossEntropy)
    return excluded("labelSmoothing needs the loss crossEntropy");
  if (settings.optimizer.kind != OptimizerOptions::Kind::kSgd && settings.optimizer.momentum > 0)
    return excluded("optimizer.momentum needs the optimizer sgd");
  if (settings.optimizer.nesterov && settings.optimizer.momentum == 0)
    return excluded("optimizer.nesterov needs optimizer.momentum above 0");
  if (settings.schedule.minimum > settings.optimizer.learning_rate)
    return excluded("schedule.minimum must not be above optimizer.learningRate");
  if (settings.schedule.warmup_epochs > settings.epochs)
    return excluded("schedule.warmupEpochs must not be above epochs");
  if (settings.early_stopping) {
    const auto metrics = metrics_of(settings.task);
    if (!contains(metrics, settings.early_stopping->metric))
      return excluded("earlyStopping.metric must be " + alternatives(metrics) + " for the task " +
                      task + ", not \"" + settings.early_stopping->metric + "\"");
  }
  if (settings.balanced_classes && settings.task != Task::kClassification)
    return excluded("classWeights: balanced needs the task classification");
  if (settings.head_classes == 1 && settings.loss == Loss::kCrossEntropy)
    return excluded("head.classes must be 2 or more for the loss crossEntropy");
  return {};
}

Loss default_loss(Task task) {
  return task == Task::kClassification ? Loss::kCrossEntropy
         : task == Task::kMultiLabel   ? Loss::kBinaryCrossEntropy
                                       : Loss::kMse;
}

Json json_of(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) out.push_back(text);
  return out;
}

}  // namespace

std::string_view to_string(Task task) { return choice_name(kTasks, task); }
std::string_view to_string(Loss loss) { return choice_name(kLosses, loss); }

Result<Settings> parse_settings(const Json& json) {
  Settings out;
  Status status;
  SettingsReader in(json, "", status);
  const auto read = [&](std::string_view name, auto& part, auto function) {
    if (const Json* value = in.object(name))
      function(SettingsReader(*value, in.path(name), status), part);
  };
  in.choice("task", out.task, kTasks);
  in.integer("epochs", out.epochs, 1, 100'000);
  in.integer("batchSize", out.batch_size, 1, 65'536);
  out.loss = default_loss(out.task);
  in.choice("loss", out.loss, kLosses);
  in.number("labelSmoothing", out.label_smoothing, {0, 1, kBelowHigh});
  in.number("huberDelta", out.huber_delta, {0, 1e6, kAboveLow});
  read("optimizer", out.optimizer, read_optimizer);
  read("schedule", out.schedule, read_schedule);
  in.number("clipNorm", out.clip_norm, {0, 1e9});
  in.integer("accumulate", out.accumulate, 1, 65'536);
  if (const Json* stopping = in.object("earlyStopping")) {
    out.early_stopping.emplace().metric = out.task == Task::kRegression ? "loss" : "accuracy";
    read_early_stopping(SettingsReader(*stopping, "earlyStopping", status), *out.early_stopping);
  }
  in.texts("freeze", out.freeze);
  if (const Json* head = in.object("head")) {
    std::int64_t classes = 0;
    SettingsReader members(*head, "head", status);
    members.integer("classes", classes, 1, 1'000'000);
    members.end();
    if (status.ok() && classes == 0) return excluded("head needs the member classes");
    out.head_classes = classes;
  }
  in.choice("classWeights", out.balanced_classes, kClassWeights);
  read("augment", out.augment, read_augment);
  in.text("labelColumn", out.label_column);
  in.texts("featureColumns", out.feature_columns);
  std::int64_t seed = 1;
  in.integer("seed", seed, 0, std::numeric_limits<std::int64_t>::max());
  out.seed = static_cast<std::uint64_t>(seed);
  in.integer("threads", out.threads, 0, 1024);
  in.integer("featureCache", out.feature_cache, 0, 1 << 20);
  in.end();
  TRY_VOID(std::move(status));
  TRY_VOID(check(out));
  return out;
}

Json to_json(const Settings& settings) {
  const OptimizerOptions& optimizer = settings.optimizer;
  const Schedule& schedule = settings.schedule;
  Json out = Json::object({
      {"task", to_string(settings.task)},
      {"epochs", settings.epochs},
      {"batchSize", settings.batch_size},
      {"loss", to_string(settings.loss)},
      {"labelSmoothing", settings.label_smoothing},
      {"huberDelta", settings.huber_delta},
      {"optimizer", Json::object({{"name", choice_name(kOptimizers, optimizer.kind)},
                                  {"learningRate", optimizer.learning_rate},
                                  {"momentum", optimizer.momentum},
                                  {"nesterov", optimizer.nesterov},
                                  {"beta1", optimizer.beta1},
                                  {"beta2", optimizer.beta2},
                                  {"epsilon", optimizer.epsilon},
                                  {"weightDecay", optimizer.weight_decay}})},
      {"schedule", Json::object({{"name", choice_name(kSchedules, schedule.kind)},
                                 {"warmupEpochs", schedule.warmup_epochs},
                                 {"everyEpochs", schedule.every_epochs},
                                 {"factor", schedule.factor},
                                 {"minimum", schedule.minimum}})},
      {"clipNorm", settings.clip_norm},
      {"accumulate", settings.accumulate},
  });
  if (settings.early_stopping)
    out.set("earlyStopping", Json::object({{"metric", settings.early_stopping->metric},
                                           {"patience", settings.early_stopping->patience}}));
  out.set("freeze", json_of(settings.freeze));
  if (settings.head_classes) out.set("head", Json::object({{"classes", *settings.head_classes}}));
  out.set("classWeights", choice_name(kClassWeights, settings.balanced_classes));
  out.set("augment", Json::object({{"flip", settings.augment.flip},
                                   {"crop", settings.augment.crop},
                                   {"jitter", settings.augment.jitter}}));
  out.set("labelColumn", settings.label_column);
  out.set("featureColumns", json_of(settings.feature_columns));
  out.set("seed", static_cast<std::int64_t>(settings.seed));
  out.set("threads", settings.threads);
  out.set("featureCache", settings.feature_cache);
  return out;
}

}  // namespace varda::training
