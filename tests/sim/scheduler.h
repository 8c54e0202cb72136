// Scheduler: runs all tasks of all simulated processes in one thread and one virtual time. The
// seed draws the next task among those that are due, so the same seed is the same schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/rng.h"
#include "fiber.h"
#include "runtime/task.h"

namespace varda::sim {

/// Advances only by move_to().
class VirtualClock final : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override {
    return WallTime(kWallBegin +
                    std::chrono::duration_cast<WallTime::duration>(now_.time_since_epoch()));
  }
  void move_to(SteadyTime when) { now_ = std::max(now_, when); }

 private:
  static constexpr std::chrono::hours kWallBegin{24 * 365 * 56};  // some day in 2026
  SteadyTime now_{std::chrono::hours(24)};
};

/// splitmix64 behind Rng; reseeded for every schedule. One thread.
class SeededRng final : public Rng {
 public:
  void seed(std::uint64_t seed) { state_ = seed; }
  std::uint64_t next() override {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  bool chance(std::uint32_t per_thousand) { return per_thousand > 0 && below(1000) < per_thousand; }

 private:
  std::uint64_t state_ = 0;
};

/// A unit that dies at once: an operator, an agent.
struct Process {
  explicit Process(std::string n) : name(std::move(n)) {}
  std::string name;
  bool alive = true;
  std::stop_source stop;
};

class Scheduler {
 public:
  enum class Policy {
    kWalk,      // any due task, with equal probability
    kPriority,  // the due task of highest priority; a few random steps lower the highest
  };

  Scheduler(VirtualClock& clock, SeededRng& rng) : clock_(clock), rng_(rng) {}
  ~Scheduler();

  VirtualClock& clock() { return clock_; }
  SeededRng& rng() { return rng_; }

  void set_policy(Policy policy, std::uint64_t steps_expected, int changes);
  void add(Process& process, runtime::Task task);
  /// Ends running calls with kCancelled and removes all tasks. The caller may then destroy the
  /// objects that they use.
  void kill(Process& process);

  /// Starts a new schedule: resets trace, fingerprint, order and priorities.
  void begin();
  /// One step of one task; false: no task is due now.
  bool step();
  /// When the next task is due; nothing: never.
  std::optional<SteadyTime> next();
  std::uint64_t steps() const { return steps_; }

  // Within a task's step.

  using Due = std::function<std::optional<SteadyTime>()>;
  /// Runs other tasks until `due` is reached. kCancelled: the process was killed.
  Status wait(Due due);
  /// Lets others run first, if the seed decides so.
  Status pause() {
    return wait([] { return std::optional(SteadyTime::min()); });
  }

  // The trace, for people, and for comparing two runs.
  void keep_trace(bool keep) { keep_trace_ = keep; }
  void note(std::string_view what, std::string_view detail = {});
  const std::deque<std::string>& trace() const { return trace_; }
  /// Hash of all notes since begin(), with their times.
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Hash of the same without times.
  std::uint64_t order() const { return order_; }

 private:
  struct Task {
    Process* process;
    runtime::Task task;
    Fiber* fiber = nullptr;  // set: in the middle of a step
    Due waiting;
    std::uint64_t priority = 0;
    std::optional<SteadyTime> due() const { return fiber ? waiting() : task.due(); }
  };
  Task* choose();
  void run(Task& task);

  VirtualClock& clock_;
  SeededRng& rng_;
  FiberPool fibers_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> ready_;
  Task* current_ = nullptr;
  Policy policy_ = Policy::kWalk;
  std::vector<std::uint64_t> changes_;                 // steps at which a priority falls
  static constexpr std::uint64_t kHighest = 1u << 20;  // above all priorities that were lowered
  std::uint64_t lowest_ = kHighest;                    // the next lowest priority
  std::uint64_t steps_ = 0;
  bool keep_trace_ = false;
  std::deque<std::string> trace_;
  SteadyTime begun_{};
  std::uint64_t fingerprint_ = 0, order_ = 0;
};

}  // namespace varda::sim
