// Conditions of the core kinds: an older form of meta::Condition, also with a heartbeat or a probe
// time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "meta/object.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

struct CoreCondition {
  std::string type{};
  std::string status{};  // True, False, Unknown
  std::string reason{};
  std::string message{};
  std::string last_transition_time{};
  Json unknown{};  // lastHeartbeatTime, lastProbeTime, lastUpdateTime
  static void describe(Type<CoreCondition>& t);
};

const CoreCondition* find_condition(const std::vector<CoreCondition>& conditions,
                                    std::string_view type);
/// Sets or replaces the condition of that type. lastTransitionTime becomes `now` only if the status
/// differs. Returns true if the condition changed.
bool set_condition(std::vector<CoreCondition>& conditions, CoreCondition wanted,
                   std::string_view now);

}  // namespace varda::api
