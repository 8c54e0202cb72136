// Text of unknown length in messages.
#pragma once

#include <string>
#include <string_view>

namespace varda::federated {

/// The text in quotes. Names come from outside, so at most 200 bytes of them reach a message.
inline std::string shown(std::string_view text) {
  constexpr std::size_t kBytesMax = 200;
  return "\"" + std::string(text.substr(0, kBytesMax)) + (text.size() > kBytesMax ? "…\"" : "\"");
}

}  // namespace varda::federated
