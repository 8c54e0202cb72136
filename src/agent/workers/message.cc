#include "agent/workers/message.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "api/edgeai/model.h"
#include "meta/object.h"

namespace varda::agent::workers {
namespace {

using codec::Json;

constexpr std::size_t kDepthMax = 32;
constexpr std::size_t kMetricNameBytesMax = 253;  // the limit of a Model's status
constexpr std::size_t kWorkerNameBytesMax = 63;
constexpr std::size_t kMessageBytesMax = 1024;
constexpr std::size_t kProgressDataBytesMax = 4096;  // it goes upstream with each change
constexpr std::size_t kShownBytesMax = 64;           // of a wrong name, in a message

Error wrong(const std::string& where, const std::string& what) {
  return {Code::kInvalid, where + ": " + what};
}

std::string in_quotes(std::string_view name) {
  std::string shown(name.substr(0, kShownBytesMax));
  // Drops a partial UTF-8 character at the end.
  while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xC0U) == 0x80U)
    shown.pop_back();
  if (!shown.empty() && shown.size() < name.size() &&
      (static_cast<unsigned char>(shown.back()) & 0x80U) != 0)
    shown.pop_back();
  return "\"" + shown + (shown.size() < name.size() ? "…" : "") + "\"";
}

/// Number of insertions, deletions, substitutions and swaps of adjacent characters.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

using Names = std::initializer_list<std::string_view>;

Status known_members(const Json& object, const std::string& where, Names names) {
  for (const auto& [name, value] : object.as_object()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string message = "unknown member " + in_quotes(name);
    std::string_view best;
    std::size_t least = 3;  // a greater distance suggests nothing
    for (const std::string_view candidate : names) {
      const std::size_t far = name.size() > kWorkerNameBytesMax ? least : distance(name, candidate);
      if (far < least && far < candidate.size()) {
        least = far;
        best = candidate;
      }
    }
    if (!best.empty()) {
      message += ", did you mean \"" + std::string(best) + "\"?";
    } else {
      message += ", expected";
      for (const std::string_view candidate : names)
        message += (candidate == *names.begin() ? " " : ", ") + std::string(candidate);
    }
    return wrong(where, message);
  }
  return {};
}

Result<Json> read_object(std::string_view text, Names names) {
  std::vector<std::string> twice;
  auto body = codec::parse_json(text, {.depth_max = kDepthMax, .duplicates = &twice});
  if (!body.ok())
    return wrong("body",
                 (text.empty() ? "it is empty" : "it is not JSON: " + body.error().message()));
  if (!body->is_object()) return wrong("body", "it is not a JSON object");
  if (!twice.empty()) return wrong("body", "member " + in_quotes(twice.front()) + " occurs twice");
  TRY_VOID(known_members(*body, "body", names));
  return std::move(*body);
}

/// Copies an optional string into `out` unless it is empty.
Status take_text(const Json& body, const char* name, std::size_t bytes_max, Json& out) {
  const Json* value = body.find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong(name, "it is not a string");
  if (value->as_string().size() > bytes_max)
    return wrong(name, "it is longer than " + std::to_string(bytes_max) + " bytes");
  if (!value->as_string().empty()) out.set(name, *value);
  return {};
}

Status take_count(const Json& body, const char* name, Json& out) {
  const Json* value = body.find(name);
  if (value == nullptr) return {};
  if (!value->is_integer() || value->as_integer() < 0)
    return wrong(name, "must be an integer of 0 or more");
  out.set(name, *value);
  return {};
}

Status check_metrics(const Json& metrics, const std::string& where, std::size_t max) {
  if (!metrics.is_object()) return wrong(where, "it is not an object of names and numbers");
  if (metrics.size() > max)
    return wrong(where, "there are " + std::to_string(metrics.size()) + ", and " +
                            std::to_string(max) + " are allowed");
  for (const auto& [name, value] : metrics.as_object()) {
    if (name.empty() || name.size() > kMetricNameBytesMax)
      return wrong(where, "the name of a metric must have 1 to 253 bytes, not " +
                              std::to_string(name.size()));
    if (!value.is_number() || !std::isfinite(value.as_double()))
      return wrong(where + "." + in_quotes(name), "it is not a number");
  }
  return {};
}

Status check_model(const Name& caller, const std::string& key, const Json& model) {
  const std::string where = "models." + in_quotes(key);
  std::string_view suffix;
  for (const meta::Resource* resource : {&api::Model::resource(), &api::SednaModel::resource()}) {
    const std::string start = resource->group_resource() + "/";
    if (key.starts_with(start)) suffix = std::string_view(key).substr(start.size());
  }
  const auto named = suffix.empty() ? Result<Name>(Error(Code::kInvalid, "")) : Name::parse(suffix);
  if (!named.ok())
    return wrong(where,
                 "expected models.edgeai.io/NAMESPACE/NAME or models.sedna.io/NAMESPACE/NAME");
  if (named->ns != caller.ns)
    return Error(Code::kForbidden, where + ": worker " + caller.key() +
                                       " may report Models of its own namespace only");
  if (!model.is_object()) return wrong(where, "it is not an object");
  TRY_VOID(known_members(model, where, {"metrics"}));
  return check_metrics(model["metrics"], where + ".metrics", kModelMetricsMax);
}

}  // namespace

Result<Name> Name::parse(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos)
    return Error(Code::kInvalid, in_quotes(key) + ": expected NAMESPACE/NAME");
  Name out{std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
  if (const std::string why = meta::check_dns_label(out.ns); !why.empty())
    return Error(Code::kInvalid, in_quotes(key) + ": " + why);
  if (const std::string why = meta::check_dns_subdomain(out.name); !why.empty())
    return Error(Code::kInvalid, in_quotes(key) + ": " + why);
  return out;
}

Result<Json> read_registration(const Name& caller, std::string_view body) {
  TRY(const Json message, read_object(body, {"version", "instance", "capabilities", "worker"}));
  Json out = Json::object();
  TRY_VOID(take_text(message, "version", kWorkerNameBytesMax, out));
  TRY_VOID(take_text(message, "instance", kWorkerNameBytesMax, out));
  if (!out.contains("version")) return wrong("version", "must be set to the version of the worker");
  if (const Json* worker = message.find("worker"); worker != nullptr && !worker->is_null()) {
    if (!worker->is_string()) return wrong("worker", "it is not a string");
    if (worker->as_string() != caller.key())
      return Error(Code::kForbidden, "worker: the token belongs to " + caller.key() + ", not of " +
                                         in_quotes(worker->as_string()));
  }
  const Json* capabilities = message.find("capabilities");
  if (capabilities == nullptr) return out;
  if (!capabilities->is_array()) return wrong("capabilities", "it is not a list");
  if (capabilities->size() > kCapabilitiesMax)
    return wrong("capabilities", "it has more than " + std::to_string(kCapabilitiesMax) + " items");
  for (const Json& one : capabilities->as_array()) {
    if (!one.is_string() || one.as_string().empty() || one.as_string().size() > kWorkerNameBytesMax)
      return wrong("capabilities", "each must be a string of 1 to 63 bytes");
  }
  if (!capabilities->empty()) out.set("capabilities", *capabilities);
  return out;
}

Result<Json> read_progress(std::string_view body) {
  TRY(const Json message,
      read_object(body, {"phase", "fraction", "step", "steps", "message", "data"}));
  Json out = Json::object();
  TRY_VOID(take_text(message, "phase", kWorkerNameBytesMax, out));
  if (const Json* fraction = message.find("fraction")) {
    if (!fraction->is_number() || fraction->as_double() < 0 || fraction->as_double() > 1)
      return wrong("fraction", "it is not a number from 0 to 1");
    out.set("fraction", *fraction);
  }
  TRY_VOID(take_count(message, "step", out));
  TRY_VOID(take_count(message, "steps", out));
  if (message.contains("steps") && message["step"].as_integer() > message["steps"].as_integer())
    return wrong("step", "it is greater than steps");
  TRY_VOID(take_text(message, "message", kMessageBytesMax, out));
  if (const Json* data = message.find("data"); data != nullptr && !data->is_null()) {
    if (codec::write_json(*data).size() > kProgressDataBytesMax)
      return wrong("data", "it is longer than " + std::to_string(kProgressDataBytesMax) + " bytes");
    out.set("data", *data);
  }
  if (out.empty())
    return wrong("body", "must have at least one of phase, fraction, step, steps, message, data");
  return out;
}

Result<Json> read_metrics(std::string_view body) {
  TRY(const Json message, read_object(body, {"metrics"}));
  TRY_VOID(check_metrics(message["metrics"], "metrics", kMetricsMax));
  return message["metrics"];
}

Result<Json> read_result(const Name& caller, std::string_view body) {
  TRY(const Json message, read_object(body, {"models", "data"}));
  Json out = Json::object();
  if (const Json* models = message.find("models")) {
    if (!models->is_object())
      return wrong("models", "must be an object with an entry for each Model");
    if (models->size() > kModelsMax)
      return wrong("models", "there are more than " + std::to_string(kModelsMax));
    for (const auto& [key, model] : models->as_object()) TRY_VOID(check_model(caller, key, model));
    if (!models->empty()) out.set("models", *models);
  }
  if (const Json* data = message.find("data"); data != nullptr && !data->is_null())
    out.set("data", *data);
  if (out.empty()) return wrong("body", "must have models or data");
  return out;
}

std::string check_result_name(std::string_view name) {
  const auto letter_or_digit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool good =
      !name.empty() && name.size() <= kWorkerNameBytesMax && letter_or_digit(name.front()) &&
      std::all_of(name.begin(), name.end(),
                  [&](char c) { return letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
  return good ? ""
              : "the name of a result must have 1 to 63 letters, digits, '.', '_' and '-', and "
                "begin with a letter or a digit";
}

}  // namespace varda::agent::workers
