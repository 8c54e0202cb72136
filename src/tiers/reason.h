// Reasons why a tier did not answer or was not called, as in design 017.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace varda::tiers {

enum class Reason : std::uint8_t {
  // The tier was called.
  kTimeout,             // no answer in time
  kUnreachable,         // no connection, or it broke
  kRefused,             // 4xx
  kFailed,              // 5xx, or a malformed answer
  kOverloaded,          // 429, 503
  kClientDisconnected,  // cancelled since the client hung up; not the tier's fault
  // The tier was not called.
  kBreakerOpen,
  kInFlightLimit,
  kNoAddress,
  kDeadline,  // no time was left
};
inline constexpr std::size_t kReasons = 10;
inline constexpr std::array<Reason, kReasons> kAllReasons = {
    Reason::kTimeout,     Reason::kUnreachable,   Reason::kRefused,
    Reason::kFailed,      Reason::kOverloaded,    Reason::kClientDisconnected,
    Reason::kBreakerOpen, Reason::kInFlightLimit, Reason::kNoAddress,
    Reason::kDeadline};

/// "Timeout"
std::string_view to_string(Reason reason);
/// True: the tier was called and gave no answer. False: it was not called.
constexpr bool is_error(Reason reason) { return reason <= Reason::kClientDisconnected; }

/// A call without an answer.
struct Failure {
  Reason reason = Reason::kFailed;
  std::string message;             // human-readable: "connection refused"
  bool surely_unanswered = false;  // the tier did not process the request: a retry is safe
  bool tier_at_fault = true;       // counts against the tier's breaker
};

/// No connection could be made. If a connection broke before the first byte of the answer,
/// surely_unanswered stays false.
Failure unreachable(std::string message);
/// An error status. 503 may be retried once. 400, 413, 415 and 422 concern the request and do not
/// count against the tier. Any other 4xx does: a tier that answers 404, 401 or 429 is unusable.
Failure of_status(int status, std::string message);
/// A success status with a body that is malformed or broke off.
Failure unreadable(std::string message);

}  // namespace varda::tiers
