#include "text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace varda::trainapp {
namespace {

constexpr std::size_t kBar = 20;

std::string whole(std::int64_t value, const char* unit) { return std::to_string(value) + unit; }

}  // namespace

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string grouped(std::uint64_t value) {
  std::string out = std::to_string(value);
  for (std::size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string time_span(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds > 0 && seconds < 1)
    return whole(static_cast<std::int64_t>(std::ceil(seconds * 1000)), " ms");
  const auto total = static_cast<std::int64_t>(std::min(std::ceil(seconds), 1e9));
  if (total < 60) return whole(total, " s");
  if (total < 3600) {
    const std::int64_t rest = total % 60;
    return whole(total / 60, " min") + (rest > 0 ? " " + whole(rest, " s") : "");
  }
  const std::int64_t minutes = (total + 59) / 60;
  const std::int64_t rest = minutes % 60;
  return whole(minutes / 60, " h") + (rest > 0 ? " " + whole(rest, " min") : "");
}

std::pair<std::string, double> main_metric(const std::map<std::string, double>& metrics,
                                           const std::string& preferred) {
  if (const auto found = metrics.find(preferred); found != metrics.end()) return *found;
  for (const char* name : {"accuracy", "f1", "rmse", "mae"})
    if (const auto found = metrics.find(name); found != metrics.end()) return *found;
  if (!metrics.empty()) return *metrics.begin();
  return {"", 0};
}

std::string progress_line(const training::Progress& progress,
                          const std::pair<std::string, double>& metric, std::size_t columns) {
  const double fraction =
      progress.steps == 0
          ? 0
          : std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps),
                       0.0, 1.0);
  const auto filled = static_cast<std::size_t>(fraction * kBar);
  std::string out = "epoch " + std::to_string(progress.epoch) + "/" +
                    std::to_string(progress.epochs) + " [" + std::string(filled, '=') +
                    std::string(kBar - filled, ' ') + "]";
  // The most important parts come first: a narrow terminal shows only these.
  std::vector<std::string> parts;
  if (progress.phase == "Evaluating") {
    parts.push_back("evaluating");
  } else {
    parts.push_back("loss " + number(progress.loss));
  }
  if (!metric.first.empty()) parts.push_back(metric.first + " " + number(metric.second));
  if (progress.remaining_seconds > 0)
    parts.push_back(time_span(progress.remaining_seconds) + " left");
  if (progress.samples_per_second > 0)
    parts.push_back(
        grouped(static_cast<std::uint64_t>(std::min(progress.samples_per_second, 1e15))) +
        " samples/s");
  for (const std::string& part : parts) {
    if (out.size() + 2 + part.size() > columns) break;
    out += "  " + part;
  }
  return out.substr(0, columns);
}

std::string epoch_line(const training::EpochRecord& record, std::int64_t epochs) {
  std::string out = "epoch " + std::to_string(record.epoch) + "/" + std::to_string(epochs) +
                    "  loss " + number(record.loss);
  if (record.evaluation_loss) out += "  evaluation loss " + number(*record.evaluation_loss);
  if (const auto metric = main_metric(record.metrics, ""); !metric.first.empty())
    out += "  " + metric.first + " " + number(metric.second);
  return out + "  " + time_span(record.seconds);
}

}  // namespace varda::trainapp
