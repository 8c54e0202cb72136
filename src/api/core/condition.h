// Conditions of the core kinds: meta::Condition before it was agreed on, with a heartbeat or a probe time beside.
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

const CoreCondition* find_condition(const std::vector<CoreCondition>& conditions, std::string_view type);
/// Sets or replaces the condition of that type; lastTransitionTime becomes `now` only when the status differs. True: something
/// changed.
bool set_condition(std::vector<CoreCondition>& conditions, CoreCondition wanted, std::string_view now);

}  // namespace varda::api
