#include "serving/sampling/config.h"

#include <string>

namespace varda::serving::sampling {
namespace {

using codec::Json;

constexpr std::int64_t kFileVersion = 1;
constexpr std::int64_t kBytesMaxMax = std::int64_t{1} << 50;
constexpr std::int64_t kCountMaxMax = 1'000'000;
constexpr std::string_view kReservoirName = "reservoir", kBalancedName = "class-balanced";

Error wrong_member(std::string_view where, std::string_view what) {
  return Error(Code::kInvalid, std::string(where) + ": " + std::string(what));
}

Result<double> share(const Json& value, std::string_view where) {
  if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 1))
    return wrong_member(where, "must be a number from 0 to 1");
  return value.as_double();
}

Result<std::uint64_t> bound_of(const Json& value, std::string_view where, std::int64_t max) {
  if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > max)
    return wrong_member(where, "must be a whole number from 0 to " + std::to_string(max));
  return static_cast<std::uint64_t>(value.as_integer());
}

}  // namespace

Result<Config> parse_config(std::string_view text) {
  if (text.size() > kConfigBytesMax)
    return Error(Code::kInvalid, "must have at most " + std::to_string(kConfigBytesMax) + " bytes");
  TRY(const Json json, codec::parse_json(text, {.depth_max = 16}));
  if (!json.is_object()) return Error(Code::kInvalid, "must be an object");
  if (!json["version"].is_integer() || json["version"].as_integer() != kFileVersion)
    return wrong_member("version", "must be " + std::to_string(kFileVersion));
  Config out;
  if (const Json& policy = json["policy"]; !policy.is_null()) {
    TRY(out.policy, tiers::parse_policy(policy, "policy"));
  }
  if (const Json& value = json["controlShare"]; !value.is_null()) {
    TRY(out.control_share, share(value, "controlShare"));
  }
  if (const Json& value = json["bytesMax"]; !value.is_null()) {
    TRY(out.bounds.bytes_max, bound_of(value, "bytesMax", kBytesMaxMax));
  }
  if (const Json& value = json["countMax"]; !value.is_null()) {
    TRY(out.bounds.count_max, bound_of(value, "countMax", kCountMaxMax));
  }
  if (const Json& value = json["replacement"]; !value.is_null()) {
    if (value.as_string() != kReservoirName && value.as_string() != kBalancedName)
      return wrong_member("replacement", "must be reservoir or class-balanced");
    out.bounds.replacement = value.as_string() == kReservoirName
                                 ? spool::Replacement::kReservoir
                                 : spool::Replacement::kClassBalanced;
  }
  if (const Json& labels = json["pseudoLabels"]; !labels.is_null()) {
    if (!labels.is_object()) return wrong_member("pseudoLabels", "must be an object");
    TRY(out.pseudo_label_minimum, share(labels["minimum"], "pseudoLabels.minimum"));
  }
  return out;
}

Json to_json(const Config& config) {
  Json out =
      Json::object({{"version", kFileVersion},
                    {"controlShare", config.control_share},
                    {"bytesMax", config.bounds.bytes_max},
                    {"countMax", config.bounds.count_max},
                    {"replacement", config.bounds.replacement == spool::Replacement::kReservoir
                                        ? kReservoirName
                                        : kBalancedName}});
  if (config.policy) out.set("policy", tiers::to_json(*config.policy));
  if (config.pseudo_label_minimum)
    out.set("pseudoLabels", Json::object({{"minimum", *config.pseudo_label_minimum}}));
  return out;
}

}  // namespace varda::serving::sampling
