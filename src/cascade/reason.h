// Why a tier did not answer, or was not asked: the words of design 017.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace varda::cascade {

enum class Reason : std::uint8_t {
  // It was asked.
  kTimeout,      // no answer in its time
  kUnreachable,  // no connection, or none that lasted
  kRefused,      // 4xx
  kFailed,       // 5xx, or no answer of the protocol
  kOverloaded,   // 429, 503
  kClientGone,   // it was given up, because the client did not wait; no fault of the tier's
  // It was not.
  kBreakerOpen,
  kInFlightLimit,
  kNoAddress,
  kDeadline,  // no time was left
};
inline constexpr std::size_t kReasons = 10;
inline constexpr std::array<Reason, kReasons> kAllReasons = {
    Reason::kTimeout,    Reason::kUnreachable, Reason::kRefused,       Reason::kFailed,    Reason::kOverloaded,
    Reason::kClientGone, Reason::kBreakerOpen, Reason::kInFlightLimit, Reason::kNoAddress, Reason::kDeadline};

/// "Timeout"
std::string_view to_string(Reason reason);
/// Whether the tier was asked and gave no answer; false: it was not asked.
constexpr bool is_error(Reason reason) { return reason <= Reason::kClientGone; }

/// A call that gave no answer.
struct Failure {
  Reason reason = Reason::kFailed;
  std::string message;             // for people: "connection refused"
  bool surely_unanswered = false;  // the tier did nothing with it: it may be sent once more
  bool tier_at_fault = true;       // counts against its breaker
};

/// No connection could be made. One that broke before the first byte of an answer is not surely_unanswered.
Failure unreachable(std::string message);
/// An answer that is no success. 503 may be tried once more. 400, 413, 415 and 422 are about the request and say nothing about the
/// tier's health; a tier that answers anything else (404, 401, 429, …) to what it is asked is of no use while it does.
Failure of_status(int status, std::string message);
/// An answer that is a success and not one of the protocol, or that broke off.
Failure unreadable(std::string message);

}  // namespace varda::cascade
