// Metrics in the Prometheus text exposition format 0.0.4
// (prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace varda::metrics {

/// Label names and values, in the given order.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// A value that only increases. Thread-safe.
class Counter {
 public:
  void add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// A value that may increase and decrease. Thread-safe.
class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// Counts observations in buckets by upper bound. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);
  const std::vector<double>& bounds() const { return bounds_; }
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  /// Observations at or below bounds()[index]; index == bounds().size() counts all.
  std::uint64_t cumulative(std::size_t index) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> buckets_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

/// 100 µs to 10 s, like Prometheus client libraries, but finer at the low end.
std::vector<double> latency_buckets();

/// Owns every metric of a process; returned references live as long as the registry. Thread-safe.
class Registry {
 public:
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                       Labels labels = {});
  /// A gauge computed at each text() call. `read` must be thread-safe.
  void gauge_from(std::string_view name, std::string_view help, Labels labels,
                  std::function<double()> read);

  /// All metrics, sorted by family name.
  std::string text() const;

 private:
  struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
    std::function<double()> read;
  };
  struct Family {
    std::string help;
    std::string type;
    std::map<std::string, Series> series;  // by rendered labels
  };
  Series& series(std::string_view name, std::string_view help, std::string_view type,
                 const Labels& labels) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Family, std::less<>> families_ GUARDED_BY(mutex_);
};

/// Guards gauges that read an object with a shorter life than the registry. Once the guard is
/// destroyed, they read zero. Declare it as the object's last member. Thread-safe.
class SourceGuard {
 public:
  SourceGuard() = default;
  /// Waits for running reads.
  ~SourceGuard();
  SourceGuard(const SourceGuard&) = delete;

  /// `read` for Registry::gauge_from().
  std::function<double()> guarded(std::function<double()> read) const;

 private:
  struct State {
    Mutex mutex;
    bool alive GUARDED_BY(mutex) = true;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace varda::metrics
