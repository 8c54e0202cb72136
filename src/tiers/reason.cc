#include "tiers/reason.h"

#include <utility>

namespace varda::tiers {

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::kTimeout:
      return "Timeout";
    case Reason::kUnreachable:
      return "Unreachable";
    case Reason::kRefused:
      return "Refused";
    case Reason::kFailed:
      return "Failed";
    case Reason::kOverloaded:
      return "Overloaded";
    case Reason::kClientDisconnected:
      return "ClientGone";
    case Reason::kBreakerOpen:
      return "BreakerOpen";
    case Reason::kInFlightLimit:
      return "InFlightLimit";
    case Reason::kNoAddress:
      return "NoAddress";
    case Reason::kDeadline:
      return "Deadline";
  }
  return "Failed";
}

Failure unreachable(std::string message) {
  return {.reason = Reason::kUnreachable, .message = std::move(message), .surely_unanswered = true};
}

Failure of_status(int status, std::string message) {
  const bool clients = status >= 400 && status < 500;
  // These 4xx codes concern the request: another request may succeed.
  const bool neutral = status == 400 || status == 413 || status == 415 || status == 422;
  Failure failure{.reason = clients ? Reason::kRefused : Reason::kFailed,
                  .message = std::move(message)};
  if (status == 429 || status == 503) failure.reason = Reason::kOverloaded;
  failure.surely_unanswered = status == 503;
  failure.tier_at_fault = !neutral;
  return failure;
}

Failure unreadable(std::string message) {
  return {.reason = Reason::kFailed, .message = std::move(message)};
}

}  // namespace varda::tiers
