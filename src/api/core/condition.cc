#include "api/core/condition.h"

#include "api/describe.h"

namespace varda::api {

void CoreCondition::describe(Type<CoreCondition>& t) {
  t.field("type", &CoreCondition::type, "Name of the condition.").required();
  t.field("status", &CoreCondition::status, "True, False or Unknown.").required();
  t.field("reason", &CoreCondition::reason, "Machine-readable reason, one CamelCase word.");
  t.field("message", &CoreCondition::message, "Human-readable explanation.");
  t.field("lastTransitionTime", &CoreCondition::last_transition_time,
          "Time of the last change of status.");
  t.keep_unknown(&CoreCondition::unknown);
}

const CoreCondition* find_condition(const std::vector<CoreCondition>& conditions,
                                    std::string_view type) {
  for (const CoreCondition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool set_condition(std::vector<CoreCondition>& conditions, CoreCondition wanted,
                   std::string_view now) {
  for (CoreCondition& condition : conditions) {
    if (condition.type != wanted.type) continue;
    if (condition.status == wanted.status && condition.reason == wanted.reason &&
        condition.message == wanted.message)
      return false;
    if (condition.status != wanted.status) condition.last_transition_time = std::string(now);
    condition.status = std::move(wanted.status);
    condition.reason = std::move(wanted.reason);
    condition.message = std::move(wanted.message);
    return true;
  }
  wanted.last_transition_time = std::string(now);
  conditions.push_back(std::move(wanted));
  return true;
}

}  // namespace varda::api
