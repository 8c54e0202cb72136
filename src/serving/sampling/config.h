// Config: the file samples.json beside a model, about its hard requests that are kept.
//
//   {"version": 1, "policy": {"name": "Margin", "parameters": {"threshold_margin": "0.4"}},
//    "controlShare": 0.02, "bytesMax": 67108864, "countMax": 1000,
//    "replacement": "class-balanced", "pseudoLabels": {"minimum": 0.9}}
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "spool/selection.h"
#include "tiers/config.h"

namespace varda::serving::sampling {

inline constexpr std::size_t kConfigBytesMax = 64 << 10;

struct Config {
  std::optional<tiers::PolicyConfig> policy;  // absent: only control samples are kept
  double control_share = 0;                   // of all requests
  spool::Bounds bounds;
  // A later tier's answer becomes a pseudo-label from this score on. Absent: never.
  std::optional<double> pseudo_label_minimum;
  friend bool operator==(const Config&, const Config&) = default;
};

/// kInvalid: no JSON, another version, or a member of a wrong type or out of range; the message
/// names it. Unknown members are ignored, so that newer operators may add some.
Result<Config> parse_config(std::string_view text);
/// The inverse of parse_config().
codec::Json to_json(const Config& config);

}  // namespace varda::serving::sampling
