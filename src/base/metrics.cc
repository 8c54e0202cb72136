#include "base/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/internal/metric_text.h"

namespace varda::metrics {
namespace {

std::string render(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) add_label(out, name, value);
  return out;
}

std::string braces(const std::string& labels, std::string_view more = "") {
  if (labels.empty() && more.empty()) return "";
  std::string out = "{" + labels;
  if (!labels.empty() && !more.empty()) out += ',';
  out += more;
  return out + "}";
}

}  // namespace

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

void add_label(std::string& out, std::string_view name, std::string_view value) {
  if (!out.empty()) out += ',';
  out.append(name).append("=\"");
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  out += '"';
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), buckets_(bounds_.size() + 1) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::cumulative(std::size_t index) const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i <= index && i < buckets_.size(); ++i)
    total += buckets_[i].load(std::memory_order_relaxed);
  return total;
}

std::vector<double> latency_buckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
          0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
}

Registry::Series& Registry::series(std::string_view name, std::string_view help,
                                   std::string_view type, const Labels& labels) {
  auto it = families_.find(name);
  if (it == families_.end())
    it = families_.emplace(std::string(name), Family{std::string(help), std::string(type), {}})
             .first;
  CHECK(it->second.type == type);
  return it->second.series[render(labels)];
}

Counter& Registry::counter(std::string_view name, std::string_view help, Labels labels) {
  MutexLock lock(mutex_);
  Series& s = series(name, help, "counter", labels);
  if (!s.counter) s.counter = std::make_unique<Counter>();
  return *s.counter;
}

Gauge& Registry::gauge(std::string_view name, std::string_view help, Labels labels) {
  MutexLock lock(mutex_);
  Series& s = series(name, help, "gauge", labels);
  if (!s.gauge) s.gauge = std::make_unique<Gauge>();
  return *s.gauge;
}

Histogram& Registry::histogram(std::string_view name, std::string_view help,
                               std::vector<double> bounds, Labels labels) {
  MutexLock lock(mutex_);
  Series& s = series(name, help, "histogram", labels);
  if (!s.histogram) s.histogram = std::make_unique<Histogram>(std::move(bounds));
  return *s.histogram;
}

void Registry::gauge_from(std::string_view name, std::string_view help, Labels labels,
                          std::function<double()> read) {
  MutexLock lock(mutex_);
  series(name, help, "gauge", labels).read = std::move(read);
}

SourceGuard::~SourceGuard() {
  MutexLock lock(state_->mutex);
  state_->alive = false;
}

std::function<double()> SourceGuard::guarded(std::function<double()> read) const {
  return [state = state_, read = std::move(read)] {
    MutexLock lock(state->mutex);
    return state->alive ? read() : 0.0;
  };
}

std::string Registry::text() const {
  MutexLock lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += "# HELP " + name + " " + family.help + "\n# TYPE " + name + " " + family.type + "\n";
    for (const auto& [labels, s] : family.series) {
      if (s.counter) out += name + braces(labels) + " " + number(s.counter->value()) + "\n";
      if (s.gauge) out += name + braces(labels) + " " + number(s.gauge->value()) + "\n";
      if (s.read) out += name + braces(labels) + " " + number(s.read()) + "\n";
      if (s.histogram) {
        const Histogram& h = *s.histogram;
        for (std::size_t i = 0; i < h.bounds().size(); ++i) {
          out += name + "_bucket" + braces(labels, "le=\"" + number(h.bounds()[i]) + "\"") + " " +
                 std::to_string(h.cumulative(i)) + "\n";
        }
        const std::uint64_t all = h.cumulative(h.bounds().size());
        out += name + "_bucket" + braces(labels, "le=\"+Inf\"") + " " + std::to_string(all) + "\n";
        out += name + "_sum" + braces(labels) + " " + number(h.sum()) + "\n";
        out += name + "_count" + braces(labels) + " " + std::to_string(all) + "\n";
      }
    }
  }
  return out;
}

}  // namespace varda::metrics
