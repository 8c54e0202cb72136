#include "reporter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/log.h"
#include "codec/text.h"
#include "text.h"

namespace varda::trainapp {
namespace {

using codec::Json;
using training::EpochRecord;

constexpr std::size_t kHistoryMax = 32;
constexpr std::size_t kFinalBytesMax = 28 << 10;  // the agent accepts 32 KiB
constexpr std::chrono::milliseconds kLongestPause{30'000};

Json metrics_of(const std::map<std::string, double>& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics)
    if (std::isfinite(value)) out.set(name, value);
  return out;
}

/// Four digits: the agent accepts 4 KiB of progress.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::strtod(text, nullptr);
}

Json history_of(const std::vector<EpochRecord>& history) {
  Json out = Json::array();
  const std::size_t count = std::min(history.size(), kHistoryMax);
  for (std::size_t i = 0; i < count; ++i) {
    // The first and the last epoch are always among them.
    const EpochRecord& one = history[count < 2 ? 0 : i * (history.size() - 1) / (count - 1)];
    Json metrics = Json::object();
    const auto metric = main_metric(one.metrics, "");
    if (!metric.first.empty() && std::isfinite(metric.second))
      metrics.set(metric.first, rounded(metric.second));
    out.push_back(Json::object(
        {{"epoch", one.epoch}, {"loss", rounded(one.loss)}, {"metrics", std::move(metrics)}}));
  }
  return out;
}

/// Leaves the counts of classes out of a comparison.
void drop_classes(Json& data) {
  Json comparison = data["comparison"];
  Json slices = Json::array();
  for (Json slice : comparison["slices"].as_array()) {
    slice.erase("classes");
    slices.push_back(std::move(slice));
  }
  if (slices.size() == 0) return;
  comparison.set("slices", std::move(slices));
  data.set("comparison", std::move(comparison));
}

}  // namespace

Json progress_body(const training::Progress& progress, const std::vector<EpochRecord>& history) {
  Json data = Json::object({{"epoch", progress.epoch},
                            {"epochs", progress.epochs},
                            {"loss", progress.loss},
                            {"samplesPerSecond", std::round(progress.samples_per_second)},
                            {"remaining", std::round(progress.remaining_seconds)},
                            {"history", history_of(history)}});
  Json out = Json::object({{"phase", progress.phase}});
  // The agent refuses a step beyond the steps.
  if (progress.steps > 0) {
    out.set("step", std::min(progress.step, progress.steps));
    out.set("steps", progress.steps);
  }
  out.set("data", std::move(data));
  return out;
}

Json final_body(const training::Outcome& outcome, const ResultFiles& files) {
  Json data = Json::object({{"artifact", files.artifact},
                            {"report", files.report},
                            {"format", "onnx"},
                            {"metrics", metrics_of(outcome.metrics)},
                            {"fingerprint", outcome.fingerprint},
                            {"samples", outcome.samples},
                            {"seconds", outcome.seconds}});
  if (!files.file.empty()) data.set("file", files.file);
  data.set("history", history_of(outcome.history));
  const bool text = std::all_of(outcome.classes.begin(), outcome.classes.end(),
                                [](const std::string& name) { return codec::is_utf8(name); });
  if (!outcome.classes.empty() && text)
    data.set("classes", Json(Json::Array(outcome.classes.begin(), outcome.classes.end())));
  for (const auto& [name, value] : files.more.as_object()) data.set(name, value);
  for (const char* name : {"classes", "history"})
    if (codec::write_json(data).size() > kFinalBytesMax) data.erase(name);
  if (codec::write_json(data).size() > kFinalBytesMax) drop_classes(data);
  return Json::object({{"data", std::move(data)}});
}

Reporter::Reporter(Options options, WorkerApi& api)
    : options_(std::move(options)),
      api_(api),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

Reporter::~Reporter() { stop(); }

void Reporter::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Reporter::progress(const training::Progress& progress) {
  const MutexLock lock(mutex_);
  progress_ = progress;
  next_ = progress_body(progress, history_);
  changed_.notify_one();
}

void Reporter::epoch(const EpochRecord& record) {
  const MutexLock lock(mutex_);
  history_.push_back(record);
}

void Reporter::phase(const std::string& name) {
  const MutexLock lock(mutex_);
  training::Progress progress = progress_.value_or(training::Progress{});
  progress.phase = name;
  progress.remaining_seconds = 0;
  if (!history_.empty()) {  // the last epoch ended after its last progress
    progress.epoch = history_.back().epoch;
    progress.step = progress.steps;
    progress.loss = history_.back().loss;
  }
  next_ = progress_body(progress, history_);
  changed_.notify_one();
}

void Reporter::body(codec::Json body) {
  const MutexLock lock(mutex_);
  next_ = std::move(body);
  changed_.notify_one();
}

Status Reporter::report(const Context& ctx) {
  if (!registered_) {
    TRY_VOID(api_.send(ctx, "POST", "/v1/register",
                       Json::object({{"version", VARDA_VERSION},
                                     {"instance", options_.instance},
                                     {"capabilities", Json::array({"resume"})}})));
    registered_ = true;
  }
  std::optional<Json> body;
  {
    const MutexLock lock(mutex_);
    body = std::exchange(next_, std::nullopt);
  }
  if (!body) return {};
  Status sent = api_.send(ctx, "PUT", "/v1/progress", *body);
  if (!sent.ok() && sent.error().code() != Code::kInvalid) {
    const MutexLock lock(mutex_);
    if (!next_) next_ = std::move(body);
  }
  return sent;
}

void Reporter::work(const std::stop_token& stop) {
  std::chrono::milliseconds pause{0};
  std::string logged;
  const Context ctx(stop);
  while (!stop.stop_requested()) {
    const Status status = report(ctx);
    if (status.ok()) {
      pause = options_.every;
      logged.clear();
    } else {
      pause = std::clamp(2 * pause, options_.retry, kLongestPause);
      if (!stop.stop_requested() && status.error().message() != logged) {
        logged = status.error().message();
        log::warn("progress not reported, training continues", {{"error", logged}});
      }
    }
    if (!ctx.sleep_for(pause).ok()) break;
    const MutexLock lock(mutex_);
    while (!next_ && registered_ && !stop.stop_requested()) changed_.wait(mutex_, stop);
  }
  // Errors of the last report have no consequence: the next start reports again.
  (void)report(Context::background().with_timeout(options_.last_report));
}

}  // namespace varda::trainapp
