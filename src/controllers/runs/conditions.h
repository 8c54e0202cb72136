// Conditions of a run's status, and the time of the next look. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "hosting/conditions.h"
#include "meta/object.h"

namespace varda::controllers::runs {

class ConditionWriter {
 public:
  /// Borrows all arguments.
  ConditionWriter(std::vector<meta::Condition>& conditions, const std::int64_t& generation,
                  std::optional<Duration>& recheck_in, WallTime now);

  void set(std::string type, hosting::Verdict verdict);
  void erase(std::string_view type);
  /// Asks for another look after `delay`, but not within a second.
  void recheck(Duration delay);
  void recheck_at(WallTime time);
  /// Keeps the condition False. True once it is False for `patience`.
  bool await(const char* type, const char* reason, const std::string& message, Duration patience);

 private:
  std::vector<meta::Condition>& conditions_;
  const std::int64_t& generation_;
  std::optional<Duration>& recheck_in_;
  const WallTime wall_;
  const std::string now_;
};

}  // namespace varda::controllers::runs
