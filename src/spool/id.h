// Ids of samples: 26 characters that sort by time, as ULIDs do (https://github.com/ulid/spec).
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/rng.h"

namespace varda::spool {

/// 48 bits of milliseconds since 1970, then 80 random bits, in Crockford's base 32.
std::string new_id(WallTime now, Rng& rng);
bool is_id(std::string_view text);
/// The time of new_id(). CHECKs is_id().
WallTime time_of(std::string_view id);

/// "2026-11-28T05:30:00.125Z"
std::string time_text(WallTime time);

}  // namespace varda::spool
