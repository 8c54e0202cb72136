// Config: the file joint.json beside a model that is the first of several tiers.
//
//   {"version": 1, "service": "default/digits", "deadlineMs": 2000, "inFlightMax": 64,
//    "tiers": [{"name": "edge", "policy": {"name": "CrossEntropy",
//                                          "parameters": {"threshold_cross_entropy": "0.8"}}},
//              {"name": "cloud", "url": "http://203.0.113.7:31080", "model": "digits-big",
//               "deadlineMs": 1000}]}
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "tiers/policy_table.h"

namespace varda::tiers {

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
  std::string name;                    // unique
  std::optional<PolicyConfig> policy;  // absent: nothing is hard; never set at the end
  std::string url;                     // "http://host:port", no trailing slash; "": unknown
  std::string model;                   // the model's name at that tier
  std::optional<std::chrono::milliseconds>
      deadline;  // per call; absent: the time left for the request
  friend bool operator==(const TierConfig&, const TierConfig&) = default;
};

struct Config {
  std::string service;  // "namespace/name"
  std::chrono::milliseconds deadline{2000};
  std::uint32_t in_flight_max = 64;
  std::vector<TierConfig> tiers;  // the first is the local model, without url and model
  friend bool operator==(const Config&, const Config&) = default;
};

/// kInvalid: no JSON, another version, or a member that is missing, duplicate, of a wrong type or
/// out of range. The message names the member ("tiers[1].deadlineMs: must be …"). Unknown members
/// are ignored, so that newer operators may add some.
Result<Config> parse_config(std::string_view text);
/// The inverse of parse_config().
codec::Json to_json(const Config& config);
/// A policy as a member of such a file; `path` is its place in messages. kInvalid: as above.
Result<PolicyConfig> parse_policy(const codec::Json& json, const std::string& path);
codec::Json to_json(const PolicyConfig& policy);

}  // namespace varda::tiers
