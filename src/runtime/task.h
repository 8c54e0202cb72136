// Task: one sequence of steps. In the product each task has a thread that waits between steps.
// A simulator steps all tasks in one thread, in any order. Both run the same step().
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"

namespace varda::runtime {

struct Task {
  std::string name;
  /// The time at which step() has work; in the past: now. Absent: only after an event elsewhere.
  std::function<std::optional<SteadyTime>()> due;
  /// Does one piece of work. Waits only for answers to its own requests. Never called twice at
  /// once.
  std::function<void(const Context&)> step;
};

}  // namespace varda::runtime
