#include "incremental/comparison.h"

#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"
#include "codec/text.h"
#include "incremental/condition.h"
#include "incremental/internal/read.h"

namespace varda::incremental {
namespace {

using codec::Json;

constexpr std::size_t kNameBytesMax = 253;
constexpr std::size_t kScalarBytesMax = 64;
constexpr double kBudgetMax = 1e18;  // milliseconds and bytes

Error malformed(const std::string& path, const std::string& wanted) {
  return Error(Code::kInvalid, path + " must be " + wanted);
}

Result<std::int64_t> read_count(const Json& json, std::string_view name, const std::string& path) {
  const Json& value = json[name];
  if (value.is_null()) return std::int64_t{0};
  const std::int64_t count = value.as_integer(-1);
  if (!value.is_number() || count < 0 || count > Comparison::kSamplesMax)
    return malformed(path + "." + std::string(name), "a whole number from 0 to 1000000000");
  return count;
}

Result<std::string> read_name(const Json& json, const std::string& path,
                              std::set<std::string>& names) {
  const std::string& name = json["name"].as_string();
  if (name.empty() || name.size() > kNameBytesMax || !codec::is_utf8(name))
    return malformed(path + ".name", "a text of 1 to 253 bytes");
  if (!names.insert(name).second)
    return Error(Code::kInvalid, path + ".name: " + codec::quote(name) + " occurs twice");
  return name;
}

Result<ClassCounts> read_class(const Json& json, const std::string& path,
                               std::set<std::string>& names) {
  if (!json.is_object()) return malformed(path, "an object");
  ClassCounts out;
  TRY(out.name, read_name(json, path, names));
  TRY(out.samples, read_count(json, "samples", path));
  TRY(out.base_right, read_count(json, "baseRight", path));
  TRY(out.candidate_right, read_count(json, "candidateRight", path));
  if (out.base_right > out.samples || out.candidate_right > out.samples)
    return Error(Code::kInvalid, path + " has more right answers than samples");
  return out;
}

Result<std::vector<double>> read_numbers(const Json& json, const std::string& path) {
  if (!json.is_array() || json.size() > Comparison::kValuesMax)
    return malformed(path, "a list of at most 20000 numbers");
  std::vector<double> out;
  out.reserve(json.size());
  for (const Json& item : json.as_array()) {
    if (!item.is_number() || !std::isfinite(item.as_double()))
      return malformed(path, "a list of finite numbers");
    out.push_back(item.as_double());
  }
  return out;
}

Status read_classes(const Json& json, const std::string& path, Slice& out) {
  if (json.is_null()) return {};
  if (!json.is_array() || json.size() > Comparison::kClassesMax)
    return malformed(path, "a list of at most 4096 classes");
  std::set<std::string> names;
  std::int64_t samples = 0, base = 0, candidate = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    TRY(ClassCounts counts,
        read_class(json.as_array()[i], path + "[" + std::to_string(i) + "]", names));
    samples += counts.samples;
    base += counts.base_right;
    candidate += counts.candidate_right;
    out.classes.push_back(std::move(counts));
  }
  // Samples without a class may be missing, so the sums may be lower.
  if (samples > out.samples || base > out.base_right || candidate > out.candidate_right)
    return Error(Code::kInvalid, path + " have higher sums than their slice");
  return {};
}

Status read_values(const Json& json, const std::string& path, Slice& out) {
  if (json.is_null()) return {};
  if (!json.is_object() || json.size() > Comparison::kMetricsMax)
    return malformed(path, "an object of at most 64 metrics");
  for (const auto& [name, value] : json.as_object()) {
    const std::string at = path + "." + codec::clipped(name, kNameBytesMax);
    if (name.empty() || name.size() > kNameBytesMax) return malformed(at, "a short name");
    Slice::Values values;
    TRY(values.base, read_numbers(value["base"], at + ".base"));
    TRY(values.candidate, read_numbers(value["candidate"], at + ".candidate"));
    if (values.base.size() != values.candidate.size())
      return Error(Code::kInvalid, at + " has lists of different lengths");
    out.values.emplace(name, std::move(values));
  }
  return {};
}

Result<Slice> read_slice(const Json& json, const std::string& path, std::set<std::string>& names) {
  if (!json.is_object()) return malformed(path, "an object");
  Slice out;
  TRY(out.name, read_name(json, path, names));
  TRY(out.samples, read_count(json, "samples", path));
  TRY(out.base_right, read_count(json, "baseRight", path));
  TRY(out.candidate_right, read_count(json, "candidateRight", path));
  TRY(out.only_base, read_count(json, "onlyBase", path));
  TRY(out.only_candidate, read_count(json, "onlyCandidate", path));
  const bool possible =
      out.only_base <= out.base_right && out.only_candidate <= out.candidate_right &&
      out.base_right - out.only_base == out.candidate_right - out.only_candidate &&
      out.base_right + out.only_candidate <= out.samples;
  if (!possible)
    return Error(Code::kInvalid, path +
                                     " has counts that contradict each other: baseRight - "
                                     "onlyBase and candidateRight - onlyCandidate are equal");
  TRY_VOID(read_classes(json["classes"], path + ".classes", out));
  TRY_VOID(read_values(json["values"], path + ".values", out));
  return out;
}

Result<std::optional<Pair>> read_pair(const Json& json, const std::string& path) {
  if (json.is_null()) return std::optional<Pair>();
  const auto good = [](const Json& value) {
    return value.is_number() && value.as_double() >= 0 && value.as_double() <= kBudgetMax;
  };
  if (!good(json["base"]) || !good(json["candidate"]))
    return malformed(path, "{base, candidate} with numbers from 0");
  return std::optional<Pair>(
      Pair{.base = json["base"].as_double(), .candidate = json["candidate"].as_double()});
}

bool is_number_list(const Json& json) {
  if (!json.is_array() || json.size() > Comparison::kListMax) return false;
  for (const Json& item : json.as_array())
    if (!item.is_number() || !std::isfinite(item.as_double())) return false;
  return true;
}

/// A value that conditions can read or explain. Null: another one.
Json plain_value(const Json& value) {
  if (value.is_number()) return std::isfinite(value.as_double()) ? value : Json();
  if (value.is_bool() || is_number_list(value)) return value;
  if (value.is_string() && value.as_string().size() <= kScalarBytesMax) return value;
  return {};
}

Status check_metrics(const Json& json, const std::string& path) {
  if (!json.is_null() && (!json.is_object() || json.size() > Comparison::kMetricsMax))
    return malformed(path, "an object of at most 64 metrics");
  for (const auto& [name, value] : json.as_object())
    if (name.empty() || name.size() > kNameBytesMax)
      return malformed(path, "an object with names of 1 to 253 bytes");
  return {};
}

Result<Json> read_metrics(const Json& json, const std::string& path) {
  TRY_VOID(check_metrics(json, path));
  Json out = Json::object();
  for (const auto& [name, value] : json.as_object()) out.set(name, plain_value(value));
  return out;
}

/// The metrics of a user's worker.
Status read_user_metrics(const Json& json, Comparison& out) {
  TRY_VOID(check_metrics(json, "the metrics"));
  for (const auto& [name, value] : json.as_object()) {
    const bool pair = value.is_array() && value.size() == 2;
    const Json* first = pair ? &value.as_array()[0] : &value;
    if (value.is_array() && value.size() == 1) first = &value.as_array()[0];
    out.candidate_metrics.set(name, plain_value(*first));
    if (pair) out.base_metrics.set(name, plain_value(value.as_array()[1]));
  }
  return {};
}

/// Both models' numbers, or nothing.
std::optional<Json> delta_of(const Json& candidate, const Json& base) {
  if (candidate.is_number() && base.is_number()) {
    const double delta = candidate.as_double() - base.as_double();
    return std::isfinite(delta) ? std::optional<Json>(delta) : std::nullopt;
  }
  if (!candidate.is_array() || !base.is_array() || candidate.size() != base.size())
    return std::nullopt;
  Json out = Json::array();
  for (std::size_t i = 0; i < candidate.size(); ++i) {
    const double delta = candidate.as_array()[i].as_double() - base.as_array()[i].as_double();
    if (!std::isfinite(delta)) return std::nullopt;
    out.push_back(delta);
  }
  return out;
}

Json pair_json(const Pair& pair) {
  return Json::object({{"base", pair.base}, {"candidate", pair.candidate}});
}

Json numbers_json(const std::vector<double>& numbers) {
  Json out = Json::array();
  for (const double number : numbers) out.push_back(number);
  return out;
}

Json slice_json(const Slice& slice) {
  Json classes = Json::array();
  for (const ClassCounts& counts : slice.classes)
    classes.push_back(Json::object({{"name", counts.name},
                                    {"samples", counts.samples},
                                    {"baseRight", counts.base_right},
                                    {"candidateRight", counts.candidate_right}}));
  Json out = Json::object({{"name", slice.name},
                           {"samples", slice.samples},
                           {"baseRight", slice.base_right},
                           {"candidateRight", slice.candidate_right},
                           {"onlyBase", slice.only_base},
                           {"onlyCandidate", slice.only_candidate},
                           {"classes", std::move(classes)}});
  if (slice.values.empty()) return out;
  Json values = Json::object();
  for (const auto& [name, lists] : slice.values)
    values.set(name, Json::object({{"base", numbers_json(lists.base)},
                                   {"candidate", numbers_json(lists.candidate)}}));
  out.set("values", std::move(values));
  return out;
}

}  // namespace

Result<Comparison> parse_comparison(const Json& json) {
  if (!json.is_object()) return malformed("the comparison", "an object");
  Comparison out;
  out.base_metrics = Json::object();
  out.candidate_metrics = Json::object();
  const Json& metrics = json["metrics"];
  const bool ours = json.contains("slices") || metrics["candidate"].is_object();
  if (!ours && !metrics.is_object()) {
    TRY_VOID(read_user_metrics(json, out));
    return out;
  }
  TRY(out.round, read_count(json, "round", "comparison"));
  const Json& selected = json["selected"];
  if (!selected.is_null() && !selected.is_object()) return malformed("selected", "an object");
  if (selected.is_object()) {
    Selected counts;
    TRY(counts.train, read_count(selected, "train", "selected"));
    TRY(counts.evaluate, read_count(selected, "evaluate", "selected"));
    out.selected = counts;
  }
  TRY(out.milliseconds, read_pair(json["milliseconds"], "milliseconds"));
  TRY(out.bytes, read_pair(json["bytes"], "bytes"));
  if (!ours) {
    TRY_VOID(read_user_metrics(metrics, out));
    return out;
  }
  if (!metrics.is_null() && !metrics.is_object()) return malformed("metrics", "an object");
  TRY(out.base_metrics, read_metrics(metrics["base"], "metrics.base"));
  TRY(out.candidate_metrics, read_metrics(metrics["candidate"], "metrics.candidate"));
  const Json& slices = json["slices"];
  if (!slices.is_null() && (!slices.is_array() || slices.size() > Comparison::kSlicesMax))
    return malformed("slices", "a list of at most 64 slices");
  std::set<std::string> names;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    TRY(Slice slice, read_slice(slices.as_array()[i], "slices[" + std::to_string(i) + "]", names));
    out.slices.push_back(std::move(slice));
  }
  return out;
}

Result<Comparison> parse_comparison_text(std::string_view text) {
  if (text.size() > Comparison::kTextBytesMax)
    return Error(Code::kInvalid, "the comparison is larger than 4 MiB");
  TRY(const Json json, codec::parse_json(text, {.depth_max = 16, .nodes_max = 1'000'000}));
  return parse_comparison(json);
}

Json to_json(const Comparison& comparison) {
  Json slices = Json::array();
  for (const Slice& slice : comparison.slices) slices.push_back(slice_json(slice));
  Json out =
      Json::object({{"round", comparison.round},
                    {"slices", std::move(slices)},
                    {"metrics", Json::object({{"base", comparison.base_metrics},
                                              {"candidate", comparison.candidate_metrics}})}});
  if (comparison.selected)
    out.set("selected", Json::object({{"train", comparison.selected->train},
                                      {"evaluate", comparison.selected->evaluate}}));
  if (comparison.milliseconds) out.set("milliseconds", pair_json(*comparison.milliseconds));
  if (comparison.bytes) out.set("bytes", pair_json(*comparison.bytes));
  return out;
}

Json metrics_with_deltas(const Comparison& comparison) {
  Json base = comparison.base_metrics;
  Json out = comparison.candidate_metrics;
  std::int64_t samples = 0, base_right = 0, candidate_right = 0;
  for (const Slice& slice : comparison.slices) {
    samples += slice.samples;
    base_right += slice.base_right;
    candidate_right += slice.candidate_right;
  }
  if (samples > 0 && !base.contains("accuracy") && !out.contains("accuracy")) {
    base.set("accuracy", static_cast<double>(base_right) / static_cast<double>(samples));
    out.set("accuracy", static_cast<double>(candidate_right) / static_cast<double>(samples));
  }
  const Json candidate = out;
  for (const auto& [name, value] : candidate.as_object()) {
    const Json* before = base.find(name);
    const std::string delta_name = name + "_delta";
    if (before == nullptr || out.contains(delta_name)) continue;
    if (auto delta = delta_of(value, *before)) out.set(delta_name, std::move(*delta));
  }
  return out;
}

}  // namespace varda::incremental
