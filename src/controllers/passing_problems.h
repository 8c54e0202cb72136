// Problems that a normal start or replacement passes through: a Warning event tells of one only after it has lasted.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "meta/object.h"

namespace varda::controllers {

/// One for each controller. Not thread-safe. Kept in memory: an operator that takes over begins to count when it sees a problem
/// first.
class PassingProblems {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(20);

  /// Reasons that end by themselves on a healthy cluster.
  static bool passes(std::string_view reason);

  /// Whether a Warning is due for `now` of the object, a condition that is not True; `before` is the same condition in the status
  /// that was written last, or null. True once for each problem.
  bool due(const meta::ObjectKey& object, const meta::Condition* before, const meta::Condition& now, SteadyTime time);
  /// The condition `type` of the object has no such problem any more.
  void clear(const meta::ObjectKey& object, std::string_view type);
  void forget(const meta::ObjectKey& object) { objects_.erase(object); }
  /// How long until a problem of the object is due; nothing: none is waiting.
  std::optional<Duration> wait(const meta::ObjectKey& object, SteadyTime time) const;

 private:
  struct Problem {
    std::string reason;
    SteadyTime since;
    bool reported = false;
  };
  std::map<meta::ObjectKey, std::map<std::string, Problem, std::less<>>> objects_;  // by type of condition
};

}  // namespace varda::controllers
