// Clock: time as an interface, so that tests own it.
#pragma once

#include <chrono>

namespace varda {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Never jumps; for deadlines, back-off and measuring.
  virtual SteadyTime now() const = 0;
  /// For people to read. Never for ordering.
  virtual WallTime wall() const = 0;
};

/// The machine's clocks.
const Clock& system_clock();

}  // namespace varda
