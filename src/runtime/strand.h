// Strand: one line of work as whoever drives it sees it. In the product threads drive the lines of work, each its own, and wait
// between steps; a simulator steps all of them in one thread, in any order it likes. Both run the same step().
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"

namespace varda::runtime {

struct Strand {
  std::string name;
  /// When step() has something to do: in the past, it has now. Nothing: not before something happens elsewhere.
  std::function<std::optional<SteadyTime>()> due;
  /// Does one thing. It waits for answers of those it asks, and for nothing else. Never called twice at once.
  std::function<void(const Context&)> step;
};

}  // namespace varda::runtime
