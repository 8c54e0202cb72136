// Times in HTTP headers (RFC 9110, 5.6.7 and 10.2.3).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/http.h"

namespace varda::artifact {

/// Parses "Sun, 06 Nov 1994 08:49:37 GMT", not the two obsolete forms. Years before 1970 and after
/// 2262 become the nearest time.
std::optional<WallTime> parse_http_date(std::string_view text);
/// Whole seconds, rounded down; years 0 to 9999.
std::string write_http_date(WallTime time);

/// Retry-After in seconds or as a date. A date is relative to the server's own Date header, because
/// our clock may be wrong. At most one hour.
std::optional<std::chrono::seconds> retry_after_of(const net::Headers& headers);

}  // namespace varda::artifact
