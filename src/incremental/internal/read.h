// Small steps of reading settings and states, shared by the sources of this room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "codec/settings_reader.h"

namespace varda::incremental {

/// The text as a finite decimal number. Nothing: another text, also "nan", "inf" and "0x1p3".
std::optional<double> parse_finite(std::string_view text);

/// Reads a number in `range` that may be absent.
void read_optional(codec::SettingsReader& in, std::string_view name, std::optional<double>& out,
                   const codec::Range& range);

/// Runs `parse(value, path)` on the member, and keeps its error.
template <typename Out, typename Parse>
void read_part(codec::SettingsReader& in, std::string_view name, Status& status, Out& out,
               Parse parse) {
  const codec::Json* value = in.object(name);
  if (value == nullptr) return;
  auto parsed = parse(*value, in.path(name));
  if (parsed.ok())
    out = std::move(*parsed);
  else if (status.ok())
    status = std::move(parsed).error();
}

}  // namespace varda::incremental
