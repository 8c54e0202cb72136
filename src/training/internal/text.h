// Texts for messages.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "codec/json.h"

namespace varda::training {

inline constexpr std::size_t kNamedMax = 4;

/// The first names, and the number of the others.
inline std::string listed(const std::vector<std::string>& names) {
  if (names.size() <= kNamedMax) return join(names);
  return join(std::vector(names.begin(), names.begin() + kNamedMax)) + " and " +
         std::to_string(names.size() - kNamedMax) + " more";
}

inline std::string number_text(double value) { return codec::write_json(codec::Json(value)); }

inline Error invalid(std::string message) { return Error(Code::kInvalid, std::move(message)); }

}  // namespace varda::training
