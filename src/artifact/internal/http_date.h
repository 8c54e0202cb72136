// Times in HTTP headers (RFC 9110, 5.6.7 and 10.2.3).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/http.h"

namespace varda::artifact {

/// "Sun, 06 Nov 1994 08:49:37 GMT"; the two obsolete forms are not read. Years before 1970 and after 2262 become the nearest time.
std::optional<WallTime> parse_http_date(std::string_view text);
/// Of whole seconds, the rest cut off; of years 0 to 9999.
std::string write_http_date(WallTime time);

/// Retry-After in seconds, or as a date, which is taken relative to the peer's own Date: our clock may be anywhere. At most an
/// hour.
std::optional<std::chrono::seconds> retry_after_of(const net::Headers& headers);

}  // namespace varda::artifact
