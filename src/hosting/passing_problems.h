// Problems that a normal start or replacement passes through: the Warning event is delayed until
// the problem has lasted.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "meta/object.h"

namespace varda::hosting {

/// One for each controller. Not thread-safe. In memory: a new leader starts to count when it first
/// sees the problem.
class PassingProblems {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(20);

  /// Reasons that resolve by themselves on a healthy cluster.
  static bool passes(std::string_view reason);

  /// True once per problem, when a Warning is due for `now`, a condition of the object that is not
  /// True. `before` is the condition in the last written status, or null.
  bool due(const meta::ObjectKey& object, const meta::Condition* before, const meta::Condition& now,
           SteadyTime time);
  /// The object's condition `type` no longer has such a problem.
  void clear(const meta::ObjectKey& object, std::string_view type);
  void forget(const meta::ObjectKey& object) { objects_.erase(object); }
  /// Time until a problem of the object is due; empty: none is pending.
  std::optional<Duration> wait(const meta::ObjectKey& object, SteadyTime time) const;

 private:
  struct Problem {
    std::string reason;
    SteadyTime since;
    bool reported = false;
  };
  std::map<meta::ObjectKey, std::map<std::string, Problem, std::less<>>>
      objects_;  // by type of condition
};

}  // namespace varda::hosting
