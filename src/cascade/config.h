// Config: the file cascade.json beside a model that is the first of several tiers.
//
//   {"version": 1, "service": "default/digits", "deadlineMs": 2000, "inFlightMax": 64,
//    "tiers": [{"name": "edge", "policy": {"name": "CrossEntropy", "parameters": {"threshold_cross_entropy": "0.8"}}},
//              {"name": "cloud", "url": "http://203.0.113.7:31080", "model": "digits-big", "deadlineMs": 1000}]}
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cascade/policy_table.h"
#include "codec/json.h"

namespace varda::cascade {

inline constexpr std::size_t kTiersMin = 2;
inline constexpr std::size_t kTiersMax = 8;
inline constexpr std::size_t kConfigBytesMax = std::size_t{256} << 10;
inline constexpr std::chrono::milliseconds kDeadlineMax{3600000};
inline constexpr std::uint32_t kInFlightMaxMax = 65536;

struct PolicyConfig {
  std::string name;
  std::vector<PolicyParameter> parameters;
  friend bool operator==(const PolicyConfig&, const PolicyConfig&) = default;
};

struct TierConfig {
  std::string name;                                   // unique
  std::optional<PolicyConfig> policy;                 // absent: nothing is hard; never there at the last tier
  std::string url;                                    // "http://host:port", without a slash at the end; "": not known yet
  std::string model;                                  // what it is called there
  std::optional<std::chrono::milliseconds> deadline;  // of one call; absent: what is left of the request's
  friend bool operator==(const TierConfig&, const TierConfig&) = default;
};

struct Config {
  std::string service;  // "namespace/name"
  std::chrono::milliseconds deadline{2000};
  std::uint32_t in_flight_max = 64;
  std::vector<TierConfig> tiers;  // the first is the model beside the file: it has neither url nor model
  friend bool operator==(const Config&, const Config&) = default;
};

/// kInvalid: no JSON, a member that is missing, given twice, of another type or out of range, another version; the message names it
/// ("tiers[1].deadlineMs: must be …"). Members that this version does not know are let be, so that a newer operator can say more.
Result<Config> parse_config(std::string_view text);
/// What parse_config() reads back as the same.
codec::Json to_json(const Config& config);

}  // namespace varda::cascade
