#include "federated_console.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "text.h"

namespace varda::trainapp {
namespace {

using codec::Json;

constexpr std::chrono::milliseconds kRedrawPause{100};

/// "loss 0.41  accuracy 0.97".
std::string metrics_text(const Json& metrics) {
  std::string out;
  for (const char* name : {"loss", "accuracy", "f1", "rmse", "mae"})
    if (const Json* value = metrics.find(name); value != nullptr && value->is_number())
      out += (out.empty() ? "" : "  ") + std::string(name) + " " + number(value->as_double());
  return out;
}

}  // namespace

std::string byte_text(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

void FederatedProgress::begin(const participant::Task& task, const char* phase) {
  phase_ = phase;
  round_ = task.round;
  if (task.rounds > 0) rounds_ = task.rounds;
  changed();
}

std::string FederatedProgress::round_text() const {
  return "round " + std::to_string(round_) + (rounds_ > 0 ? "/" + std::to_string(rounds_) : "");
}

void FederatedProgress::waiting() {
  phase_ = "Waiting";
  changed();
}
void FederatedProgress::paused(const std::string& reason) {
  phase_ = "Paused";
  line("paused: " + reason);
  changed();
}
void FederatedProgress::downloading(const participant::Task& task) { begin(task, "Downloading"); }
void FederatedProgress::training(const participant::Task& task) {
  step_ = steps_ = 0;
  begin(task, "Training");
}

void FederatedProgress::trained(const participant::Task&,
                                const participant::TrainedUpdate& update) {
  samples_ = update.samples;
  if (const Json* loss = update.metrics.find("loss")) loss_ = loss->as_double();
  const std::string metrics = metrics_text(update.metrics);
  trained_ = "  " + grouped(update.samples) + " samples" + (metrics.empty() ? "" : "  " + metrics);
}

void FederatedProgress::uploading(const std::string&, std::uint64_t) {
  phase_ = "Uploading";
  changed();
}

void FederatedProgress::accepted(const std::string& task, std::uint64_t bytes) {
  ++accepted_;
  // After a restart the round of the update is known by the task alone.
  line((round_ > 0 ? round_text() : "task " + task) + trained_ + "  update of " + byte_text(bytes) +
       " accepted");
  trained_.clear();
}

void FederatedProgress::dropped(const std::string& task, int status, const std::string& message) {
  ++dropped_;
  line((round_ > 0 ? round_text() : "task " + task) + trained_ +
       (status == 409 ? "  update dropped: " : "  update refused: ") + message);
  trained_.clear();
}

void FederatedProgress::evaluated(const participant::Task& task,
                                  const participant::Evaluated& result) {
  begin(task, "Evaluating");
  metrics_ = result.metrics;
  if (result.samples > 0)
    line(round_text() + "  evaluation of " + grouped(result.samples) + " samples  " +
         metrics_text(result.metrics));
}

void FederatedProgress::skipped(const participant::Task& task, const Error& error) {
  line("task " + task.id + " skipped: " + error.message());
}
void FederatedProgress::retrying(const std::string& message) { line("retrying: " + message); }

void FederatedProgress::progress(const training::Progress& progress) {
  step_ = std::min(progress.step, progress.steps);
  steps_ = progress.steps;
  loss_ = progress.loss;
  changed();
}

Json FederatedProgress::data() const {
  Json out = Json::object({{"round", round_},
                           {"rounds", rounds_},
                           {"samples", samples_},
                           {"accepted", accepted_},
                           {"dropped", dropped_},
                           {"metrics", metrics_}});
  if (std::isfinite(loss_)) out.set("loss", loss_);
  return out;
}

void FederatedConsole::clear() {
  if (!terminal_ || !drawn_) return;
  drawn_.reset();
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
}

void FederatedConsole::line(const std::string& text) {
  clear();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void FederatedConsole::changed() {
  if (!terminal_) return;
  const SteadyTime now = clock_.now();
  if (drawn_ && now - *drawn_ < kRedrawPause) return;
  drawn_ = now;
  std::string text = phase_;
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (phase_ != "Waiting")
    text = "round " + std::to_string(round_) + "/" + std::to_string(rounds_) + "  " + text;
  if (phase_ == "Training" && steps_ > 0)
    text += "  step " + std::to_string(step_) + "/" + std::to_string(steps_) + "  loss " +
            number(loss_);
  std::fprintf(out_, "\r\033[K%s", text.c_str());
  std::fflush(out_);
}

void FederatedReporter::line(const std::string& text) {
  log::info("federated client", {{"event", text}});
}

void FederatedReporter::changed() {
  if (reporter_ == nullptr) return;
  Json body = Json::object({{"phase", phase_}});
  if (steps_ > 0 && phase_ == "Training") {
    body.set("step", step_);
    body.set("steps", steps_);
  }
  body.set("data", data());
  reporter_->body(std::move(body));
}

}  // namespace varda::trainapp
