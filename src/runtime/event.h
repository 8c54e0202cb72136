// Events: the lines at the end of `kubectl describe`. core/v1 Event objects, aggregated and
// bounded.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "kube/client.h"
#include "runtime/object.h"
#include "runtime/task.h"

namespace varda::runtime {

enum class EventType { kNormal, kWarning };

/// Thread-safe.
class EventRecorder {
 public:
  virtual ~EventRecorder() = default;
  /// Never blocks and never fails: events are best effort. `reason` is CamelCase; `message` is for
  /// people (cut at 1 KiB).
  virtual void record(const ObjectRef& object, EventType type, std::string_view reason,
                      std::string_view message) = 0;
};

/// Writes events on a separate thread, with the limits of client-go:
/// - A repeated event (same object, type, reason, message) raises `count` and `lastTimestamp`.
/// - If ten events differ only in the message, each within ten minutes of the last, the tenth and
///   all later events become one. The message begins with "(combined from similar events): ".
/// - An object gets a burst of 25 writes, then one every 5 minutes; the rest is dropped.
/// The queue holds 1024 events; more are dropped and counted (varda_events_dropped_total).
class ApiEventRecorder final : public EventRecorder {
 public:
  struct Options {
    std::string component = "varda";  // source.component, reportingComponent
    std::string host;                 // source.host
    std::size_t queue_max = 1024;
    std::size_t remembered_max = 4096;  // counts are kept for this many events and objects; the
                                        // least recently used are forgotten
    std::size_t similar_max = 10;       // messages reported one by one
    std::chrono::seconds similar_within{600};
    int burst = 25;
    std::chrono::seconds refill{300};
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;            // null: the machine's; names of Event objects
    metrics::Registry* metrics = nullptr;
  };
  /// `client` outlives the recorder.
  ApiEventRecorder(const kube::Client& client, Options options);
  ~ApiEventRecorder() override;
  void record(const ObjectRef& object, EventType type, std::string_view reason,
              std::string_view message) override;
  /// Writes queued events until `ctx` stops.
  void run(const Context& ctx);
  /// The same work for run_tasks(). If the server is unreachable, the rest is due a second later.
  Task task();
  /// Writes queued events now, at the end of a process or in tests.
  void flush(const Context& ctx);

 private:
  void step(const Context& ctx);
  std::optional<SteadyTime> due() const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::runtime
