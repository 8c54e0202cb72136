// Shared wire format of snapshot files and archives.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"

namespace varda::replica {

inline constexpr std::size_t kPieceBytes = 64u << 10;

inline net::Response refuse(int status, std::string message) {
  net::Response out;
  out.status = status;
  out.headers.add("Content-Type", "text/plain");
  out.body = std::move(message) + "\n";
  return out;
}

struct Range {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> last;  // absent: to the end
};

/// "bytes=FIRST-LAST" and "bytes=FIRST-", the forms of RFC 9110, 14.1.2 that peers use.
inline std::optional<Range> parse_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  Range out;
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, out.first);
  if (error != std::errc() || dash == end || *dash != '-') return std::nullopt;
  if (dash + 1 == end) return out;
  std::uint64_t last = 0;
  const auto [stop, error2] = std::from_chars(dash + 1, end, last);
  if (error2 != std::errc() || stop != end || last < out.first) return std::nullopt;
  out.last = last;
  return out;
}

}  // namespace varda::replica
