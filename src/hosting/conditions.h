// Findings that become conditions of a status. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "hosting/placement.h"

namespace varda::hosting {

/// The values of a condition's status.
inline constexpr std::string_view kTrue = "True", kFalse = "False", kUnknown = "Unknown";

/// A condition without its type.
struct Verdict {
  std::string_view status = kFalse;
  std::string reason;
  std::string message;
};

inline Verdict no(Problem problem) {
  return {kFalse, std::move(problem.reason), std::move(problem.message)};
}
inline Verdict no(std::string reason, std::string message) {
  return {kFalse, std::move(reason), std::move(message)};
}

/// True: a wait with this reason ends by itself. It causes no Event.
bool is_progress(std::string_view reason);

}  // namespace varda::hosting
