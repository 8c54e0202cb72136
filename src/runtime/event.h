// Events: what people see at the end of `kubectl describe`. core/v1 Event objects, aggregated and bounded.
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

namespace varda::runtime {

enum class EventType { kNormal, kWarning };

/// Thread-safe.
class EventRecorder {
 public:
  virtual ~EventRecorder() = default;
  /// Never blocks and never fails: events are best effort. `reason` is CamelCase, `message` for people (cut at 1 KiB).
  virtual void record(const ObjectRef& object, EventType type, std::string_view reason, std::string_view message) = 0;
};

/// Writes events on a thread of its own. The same event (object, type, reason, message) again raises `count` and
/// `lastTimestamp` of the one there is. Of events that differ in their messages only (object, type, reason) the tenth within ten
/// minutes of one another, and every later one, become one event whose message begins with "(combined from similar events): ". An
/// object gets a burst of 25 writes, then one every 5 minutes, the rest is dropped. All of this as client-go does it. The queue
/// holds 1024; more are dropped and counted (varda_events_dropped_total).
class ApiEventRecorder final : public EventRecorder {
 public:
  struct Options {
    std::string component = "varda";  // source.component, reportingComponent
    std::string host;                 // source.host
    std::size_t queue_max = 1024;
    std::size_t remembered_max = 4096;  // events and objects of which counts are known; the longest unused is forgotten
    std::size_t similar_max = 10;       // messages told one by one
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
  void record(const ObjectRef& object, EventType type, std::string_view reason, std::string_view message) override;
  /// Writes what is queued until `ctx` stops.
  void run(const Context& ctx);
  /// Writes what is queued; where the server is not to be reached, what is left is due a second later. What run() does, for a
  /// driver of its own.
  void step(const Context& ctx);
  /// When step() has something to write; nothing: the queue is empty.
  std::optional<SteadyTime> due() const;
  /// Writes what is queued now; for the end of a process and for tests.
  void flush(const Context& ctx);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::runtime
