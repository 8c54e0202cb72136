#include "tiers/config.h"

#include <algorithm>
#include <span>

#include "codec/text.h"

namespace varda::tiers {
namespace {

using codec::Json;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kNameBytesMax = 253;
constexpr std::size_t kUrlBytesMax = 2048;

Error wrong(std::string_view where, std::string_view what) {
  return Error(Code::kInvalid, std::string(where) + ": " + std::string(what));
}

/// An optional member, or null.
const Json* member(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::string> text(const Json& object, const std::string& path, std::string_view name,
                         std::size_t bytes_max) {
  const std::string where = path + std::string(name);
  const Json* value = member(object, name);
  if (value == nullptr) return wrong(where, "is required");
  if (!value->is_string()) return wrong(where, "must be a text");
  if (value->as_string().size() > bytes_max)
    return wrong(where, "must have at most " + std::to_string(bytes_max) + " bytes");
  return value->as_string();
}

Result<std::optional<std::int64_t>> number(const Json& object, const std::string& path,
                                           std::string_view name, std::int64_t max) {
  const Json* value = member(object, name);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > max) {
    return wrong(path + std::string(name),
                 "must be a whole number from 1 to " + std::to_string(max));
  }
  return std::optional(value->as_integer());
}

/// Checks the characters of a name: names appear in comma-separated lists and in metric labels.
Status check_name(std::string_view name, const std::string& where) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (name.empty() || name.size() > 63 || !std::all_of(name.begin(), name.end(), fits)) {
    return wrong(where, "must be 1 to 63 letters, digits, '-', '_' or '.'");
  }
  return ok_status();
}

Status check_url(std::string_view url, const std::string& where) {
  const std::size_t scheme = url.starts_with("http://") ? 7 : url.starts_with("https://") ? 8 : 0;
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (scheme == 0 || url.size() == scheme || url[scheme] == '/' || url[scheme] == ':' ||
      !std::all_of(url.begin(), url.end(), printable) ||
      url.find_first_of("?#", scheme) != std::string_view::npos) {
    return wrong(where,
                 "must be http://HOST:PORT or https://HOST:PORT, or empty while it is not known");
  }
  return ok_status();
}

}  // namespace

Result<PolicyConfig> parse_policy(const Json& json, const std::string& path) {
  if (!json.is_object()) return wrong(path, "must be an object");
  PolicyConfig policy;
  TRY(policy.name, text(json, path + ".", "name", kPolicyNameBytesMax));
  if (const Json* parameters = member(json, "parameters")) {
    if (!parameters->is_object()) return wrong(path + ".parameters", "must be an object of texts");
    for (const auto& [key, value] : parameters->as_object()) {
      if (!value.is_string()) return wrong(path + ".parameters." + key, "must be a text");
      policy.parameters.push_back({key, value.as_string()});
    }
  }
  const auto faults = check_policy(policy.name, policy.parameters);
  if (faults.empty()) return policy;
  const PolicyFault& fault = faults.front();
  if (fault.index)
    return wrong(path + ".parameters." + policy.parameters[*fault.index].key, fault.what);
  return wrong(path + "." + fault.where, fault.what);
}

namespace {

Result<TierConfig> read_tier(const Json& json, const std::string& path, bool first, bool last) {
  if (!json.is_object()) return wrong(path, "must be an object");
  const std::string within = path + ".";
  TierConfig tier;
  TRY(tier.name, text(json, within, "name", 63));
  TRY_VOID(check_name(tier.name, within + "name"));
  TRY(const auto deadline, number(json, within, "deadlineMs", kDeadlineMax.count()));
  if (deadline) tier.deadline = std::chrono::milliseconds(*deadline);
  if (const Json* policy = member(json, "policy")) {
    if (last) return wrong(within + "policy", "must not be set: no tier follows the last tier");
    TRY(tier.policy, parse_policy(*policy, within + "policy"));
  }
  if (first) {
    for (const char* name : {"url", "model"}) {
      if (json.contains(name))
        return wrong(within + name,
                     "must not be set: the first tier is the model in the file's own directory");
    }
    return tier;
  }
  TRY(tier.url, text(json, within, "url", kUrlBytesMax));
  if (!tier.url.empty()) TRY_VOID(check_url(tier.url, within + "url"));
  while (tier.url.ends_with('/')) tier.url.pop_back();
  TRY(tier.model, text(json, within, "model", kNameBytesMax));
  if (tier.model.empty()) return wrong(within + "model", "must not be empty");
  return tier;
}

Result<std::vector<TierConfig>> read_tiers(const Json& json) {
  const Json* list = member(json, "tiers");
  if (list == nullptr) return wrong("tiers", "is required");
  if (!list->is_array() || list->size() < kTiersMin || list->size() > kTiersMax) {
    return wrong("tiers", "must be a list of " + std::to_string(kTiersMin) + " to " +
                              std::to_string(kTiersMax));
  }
  std::vector<TierConfig> tiers;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = "tiers[" + std::to_string(i) + "]";
    TRY(TierConfig tier, read_tier(list->as_array()[i], path, i == 0, i + 1 == list->size()));
    const auto same = [&](const TierConfig& other) { return other.name == tier.name; };
    if (std::any_of(tiers.begin(), tiers.end(), same))
      return wrong(path + ".name", "'" + tier.name + "' occurs twice");
    tiers.push_back(std::move(tier));
  }
  return tiers;
}

}  // namespace

Result<Config> parse_config(std::string_view source) {
  if (source.size() > kConfigBytesMax)
    return Error(Code::kInvalid, "must have at most " + std::to_string(kConfigBytesMax) + " bytes");
  std::vector<std::string> duplicates;
  TRY(const Json json, codec::parse_json(source, {.depth_max = 16, .duplicates = &duplicates}));
  if (!json.is_object()) return Error(Code::kInvalid, "must be an object");
  if (!duplicates.empty()) return wrong(duplicates.front(), "occurs twice");
  const Json* version = member(json, "version");
  if (version == nullptr || !version->is_integer() || version->as_integer() != kVersion) {
    return wrong("version", "must be " + std::to_string(kVersion));
  }
  Config config;
  TRY(config.service, text(json, "", "service", 2 * kNameBytesMax));
  TRY(const auto deadline, number(json, "", "deadlineMs", kDeadlineMax.count()));
  if (deadline) config.deadline = std::chrono::milliseconds(*deadline);
  TRY(const auto in_flight, number(json, "", "inFlightMax", kInFlightMaxMax));
  if (in_flight) config.in_flight_max = static_cast<std::uint32_t>(*in_flight);
  TRY(config.tiers, read_tiers(json));
  return config;
}

Json to_json(const PolicyConfig& policy) {
  Json parameters = Json::object();
  for (const PolicyParameter& parameter : policy.parameters)
    parameters.set(parameter.key, parameter.value);
  return Json::object({{"name", policy.name}, {"parameters", std::move(parameters)}});
}

Json to_json(const Config& config) {
  Json tiers = Json::array();
  for (const TierConfig& tier : config.tiers) {
    Json item = Json::object({{"name", tier.name}});
    if (&tier != &config.tiers.front()) {
      item.set("url", tier.url);
      item.set("model", tier.model);
    }
    if (tier.policy) item.set("policy", to_json(*tier.policy));
    if (tier.deadline) item.set("deadlineMs", std::int64_t{tier.deadline->count()});
    tiers.push_back(std::move(item));
  }
  return Json::object({{"version", kVersion},
                       {"service", config.service},
                       {"deadlineMs", std::int64_t{config.deadline.count()}},
                       {"inFlightMax", std::int64_t{config.in_flight_max}},
                       {"tiers", std::move(tiers)}});
}

}  // namespace varda::tiers
