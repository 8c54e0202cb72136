#include "training/settings.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/text.h"

namespace varda::training {
namespace {

using codec::Json;
using samples::Task;
using train::Loss;
using train::OptimizerOptions;

constexpr std::size_t kShownMax = 60;  // bytes of a wrong value in a message
constexpr double kAdamRate = 0.001;    // default of adam and adamw
constexpr std::size_t kListMax = 10'000, kNameMax = 1000;

template <typename T>
using Choice = std::pair<std::string_view, T>;

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

template <typename T, std::size_t N>
std::string_view name_of(const Choice<T> (&choices)[N], T value) {
  return std::find_if(std::begin(choices), std::end(choices),
                      [&](const Choice<T>& choice) { return choice.second == value; })
      ->first;
}

/// "sgd, adam or adamw"
std::string alternatives(std::span<const std::string_view> names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " or " : ", ";
    out += names[i];
  }
  return out;
}

struct Range {
  double low, high;
  enum class Ends : std::uint8_t { kClosed, kAboveLow, kBelowHigh } ends = Ends::kClosed;

  bool contains(double value) const {
    return (ends == Ends::kAboveLow ? value > low : value >= low) &&
           (ends == Ends::kBelowHigh ? value < high : value <= high);
  }
  std::string text() const {
    const std::string from = codec::write_json(short_form(low));
    const std::string to = codec::write_json(short_form(high));
    switch (ends) {
      case Ends::kAboveLow:
        return "above " + from + " and at most " + to;
      case Ends::kBelowHigh:
        return "at least " + from + " and below " + to;
      default:
        return "from " + from + " to " + to;
    }
  }
  static Json short_form(double value) {
    const auto whole = static_cast<std::int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  }
};
constexpr auto kAboveLow = Range::Ends::kAboveLow, kBelowHigh = Range::Ends::kBelowHigh;

/// Reads the members of one object. After the first error all reads do nothing.
class Members {
 public:
  Members(const Json& json, std::string path, Status& status)
      : json_(json), path_(std::move(path)), status_(status) {
    if (!json.is_null() && !json.is_object())
      fail((path_.empty() ? std::string("the settings") : path_) + " must be an object, not " +
           shown(json));
  }

  void integer(std::string_view name, std::int64_t& out, std::int64_t low, std::int64_t high) {
    const Json* value = find(name);
    if (value == nullptr) return;
    // Some writers of JSON have no integers; as_integer() takes whole doubles.
    const std::int64_t got = value->as_integer(low - 1);
    if (!value->is_number() || got < low || got > high)
      return refuse(name,
                    "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    out = got;
  }
  void number(std::string_view name, double& out, const Range& range) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_number() || !range.contains(value->as_double()))
      return refuse(name, "a number " + range.text());
    out = value->as_double();
  }
  void boolean(std::string_view name, bool& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_bool()) return refuse(name, "true or false");
    out = value->as_bool();
  }
  void text(std::string_view name, std::string& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_string() || value->as_string().size() > kNameMax)
      return refuse(name, "a text of at most " + std::to_string(kNameMax) + " bytes");
    out = value->as_string();
  }
  void texts(std::string_view name, std::vector<std::string>& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const auto fits = [](const Json& item) {
      return item.is_string() && !item.as_string().empty() && item.as_string().size() <= kNameMax;
    };
    if (!value->is_array() || value->size() > kListMax ||
        !std::all_of(value->as_array().begin(), value->as_array().end(), fits))
      return refuse(name, "a list of at most " + std::to_string(kListMax) + " names");
    for (const Json& item : value->as_array()) out.push_back(item.as_string());
  }
  template <typename T, std::size_t N>
  void choice(std::string_view name, T& out, const Choice<T> (&choices)[N]) {
    const Json* value = find(name);
    if (value == nullptr) return;
    std::vector<std::string_view> names;
    for (const auto& [text, meaning] : choices) {
      if (value->is_string() && value->as_string() == text) {
        out = meaning;
        return;
      }
      names.push_back(text);
    }
    refuse(name, alternatives(names));
  }
  /// The member, or null if absent.
  const Json* object(std::string_view name) { return find(name); }
  std::string path(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  }

  /// Refuses members that nothing has read.
  void end() {
    for (const auto& [name, value] : json_.as_object())
      if (std::find(read_.begin(), read_.end(), name) == read_.end())
        return fail("unknown setting " + path(name) + "; " +
                    (path_.empty() ? "the settings are " : path_ + " has ") + join(read_));
  }

 private:
  static std::string shown(const Json& value) {
    std::string out = codec::write_json(value);
    if (out.size() > kShownMax) out = "this " + std::string(type_name(value.type()));
    return out;
  }
  const Json* find(std::string_view name) {
    read_.emplace_back(name);
    const Json* value = json_.find(name);
    return status_.ok() && value != nullptr && !value->is_null() ? value : nullptr;
  }
  void refuse(std::string_view name, const std::string& wanted) {
    fail(path(name) + " must be " + wanted + ", not " + shown(json_[name]));
  }
  void fail(std::string message) {
    if (status_.ok()) status_ = Error(Code::kInvalid, std::move(message));
  }

  const Json& json_;
  const std::string path_;
  Status& status_;
  std::vector<std::string> read_;
};

void read_optimizer(Members in, OptimizerOptions& out) {
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

void read_schedule(Members in, Schedule& out) {
  in.choice("name", out.kind, kSchedules);
  in.integer("warmupEpochs", out.warmup_epochs, 0, 100'000);
  in.integer("everyEpochs", out.every_epochs, 1, 100'000);
  in.number("factor", out.factor, {0, 1, kAboveLow});
  in.number("minimum", out.minimum, {0, 1000});
  in.end();
}

void read_early_stopping(Members in, EarlyStopping& out) {
  in.text("metric", out.metric);
  in.integer("patience", out.patience, 1, 100'000);
  in.end();
}

void read_augment(Members in, samples::Augment& out) {
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

std::string_view to_string(Task task) { return name_of(kTasks, task); }
std::string_view to_string(Loss loss) { return name_of(kLosses, loss); }

Result<Settings> parse_settings(const Json& json) {
  Settings out;
  Status status;
  Members in(json, "", status);
  const auto read = [&](std::string_view name, auto& part, auto function) {
    if (const Json* value = in.object(name)) function(Members(*value, in.path(name), status), part);
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
    read_early_stopping(Members(*stopping, "earlyStopping", status), *out.early_stopping);
  }
  in.texts("freeze", out.freeze);
  if (const Json* head = in.object("head")) {
    std::int64_t classes = 0;
    Members members(*head, "head", status);
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
      {"optimizer", Json::object({{"name", name_of(kOptimizers, optimizer.kind)},
                                  {"learningRate", optimizer.learning_rate},
                                  {"momentum", optimizer.momentum},
                                  {"nesterov", optimizer.nesterov},
                                  {"beta1", optimizer.beta1},
                                  {"beta2", optimizer.beta2},
                                  {"epsilon", optimizer.epsilon},
                                  {"weightDecay", optimizer.weight_decay}})},
      {"schedule", Json::object({{"name", name_of(kSchedules, schedule.kind)},
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
  out.set("classWeights", name_of(kClassWeights, settings.balanced_classes));
  out.set("augment", Json::object({{"flip", settings.augment.flip},
                                   {"crop", settings.augment.crop},
                                   {"jitter", settings.augment.jitter}}));
  out.set("labelColumn", settings.label_column);
  out.set("featureColumns", json_of(settings.feature_columns));
  out.set("seed", static_cast<std::int64_t>(settings.seed));
  out.set("threads", settings.threads);
  return out;
}

}  // namespace varda::training
