#include "cli/model_query.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"
#include "meta/quantity.h"

namespace varda::cli {

namespace {

constexpr std::string_view kMetricPrefix = "metrics.";
constexpr std::string_view kMetadataPrefix = "metadata.";
constexpr std::string_view kSize = "size";

struct Member {
  std::string_view name, path;
};
constexpr Member kTexts[] = {{"name", "metadata/name"},   {"namespace", "metadata/namespace"},
                             {"task", "spec/task"},       {"format", "spec/format"},
                             {"version", "spec/version"}, {"sourceJob", "spec/sourceJob"}};
constexpr Member kLists[] = {{"label", "spec/labels"}, {"parent", "spec/parents"}};

std::optional<double> number(std::string_view text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) return {};
  return out;
}

bool is_text(std::string_view name) {
  const auto named = [name](const Member& member) { return member.name == name; };
  return name == "group" || name == "url" || name.starts_with(kMetadataPrefix) ||
         std::any_of(std::begin(kTexts), std::end(kTexts), named) ||
         std::any_of(std::begin(kLists), std::end(kLists), named);
}

std::optional<double> number_of(std::string_view name, std::string_view text) {
  return name == kSize ? meta::quantity_value(text) : number(text);
}

// The Model's values of a member: none, one, or the items of a list.
std::vector<std::string> values_of(const Json& model, std::string_view name) {
  const auto one = [](const Json& value) {
    return value.is_string() && !value.as_string().empty()
               ? std::vector<std::string>{value.as_string()}
               : std::vector<std::string>{};
  };
  for (const Member& member : kTexts) {
    if (member.name == name) return one(model.at(member.path));
  }
  for (const Member& member : kLists) {
    std::vector<std::string> values;
    if (member.name != name) continue;
    for (const Json& value : model.at(member.path).as_array()) values.push_back(value.as_string());
    return values;
  }
  if (name == "group")
    return {model["apiVersion"].as_string().substr(0, model["apiVersion"].as_string().find('/'))};
  if (name == "url")
    return one(model.at(model["spec"].contains("modelUrl") ? "spec/modelUrl" : "spec/url"));
  if (name == kSize) {
    const Json& size = model.at("spec/size");
    return size.is_number() ? std::vector<std::string>{codec::write_json(size)}
                            : std::vector<std::string>{};
  }
  if (name.starts_with(kMetadataPrefix)) {
    const Json* value = model["spec"]["metadata"].find(name.substr(kMetadataPrefix.size()));
    return value != nullptr ? one(*value) : std::vector<std::string>{};
  }
  if (name.starts_with(kMetricPrefix)) name.remove_prefix(kMetricPrefix.size());
  for (const Json& metric : model.at("status/metrics").as_array()) {
    if (metric["key"].as_string() == name) return one(metric["value"]);
  }
  return {};
}

}  // namespace

Result<ModelQuery::Condition> ModelQuery::parse_condition(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return Error(Code::kInvalid, "--where \"" + text + "\": " + why);
  };
  const std::size_t at = text.find_first_of("=!<>");
  const std::string example =
      "must be NAME OPERATOR VALUE, such as accuracy>=0.9 or task=classification";
  if (at == std::string::npos) return refuse("the operator is missing; " + example);
  Condition condition;
  condition.name = std::string(trim(std::string_view(text).substr(0, at)));
  if (condition.name.empty() || condition.name == kMetricPrefix ||
      condition.name == kMetadataPrefix)
    return refuse("the name is missing; " + example);
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"==", Op::kEqual}, {"!=", Op::kDiffers}, {"<=", Op::kAtMost}, {">=", Op::kAtLeast},
      {"=", Op::kEqual},  {"<", Op::kLess},     {">", Op::kMore}};
  std::string_view rest = std::string_view(text).substr(at);
  const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                [&](const auto& one) { return rest.starts_with(one.first); });
  const std::string known = "operators are =, !=, <, <=, > and >=";
  if (op == std::end(kOps)) return refuse("\"!\" is not an operator; " + known);
  condition.op = op->second;
  rest.remove_prefix(op->first.size());
  if (!rest.empty() && std::string_view("=!<>").find(rest.front()) != std::string_view::npos)
    return refuse("\"" + std::string(op->first) + rest.front() + "\" is not an operator; " + known);
  rest = trim(rest);
  if (rest.size() >= 2 && (rest.front() == '"' || rest.front() == '\'') &&
      rest.back() == rest.front())
    rest = rest.substr(1, rest.size() - 2);
  condition.value = std::string(rest);
  if (condition.value.empty()) return refuse("the value is missing; " + example);
  if (condition.op == Op::kEqual || condition.op == Op::kDiffers) return condition;
  if (is_text(condition.name))
    return refuse(condition.name + " is text, which has no order: use = or !=");
  if (!number_of(condition.name, condition.value))
    return refuse("\"" + condition.value + "\" is not a number, but " + std::string(op->first) +
                  " compares numbers");
  return condition;
}

Result<ModelQuery> ModelQuery::parse(const std::vector<std::string>& where,
                                     std::string_view sort_by, const ModelShorthands& shorthands) {
  ModelQuery query;
  TRY_VOID(query.add(shorthands));
  for (const std::string& text : where) {
    TRY(Condition condition, parse_condition(text));
    query.conditions_.push_back(std::move(condition));
  }
  const std::size_t colon = sort_by.rfind(':');
  const std::string_view order = colon == std::string_view::npos ? "" : sort_by.substr(colon + 1);
  if (colon != std::string_view::npos && order != "asc" && order != "desc")
    return Error(Code::kInvalid,
                 "--sort-by \"" + std::string(sort_by) + "\": must end in :asc or :desc");
  query.descending_ = order == "desc";
  query.sort_by_ = std::string(trim(sort_by.substr(0, colon)));
  if (query.sort_by_.empty() && !sort_by.empty())
    return Error(Code::kInvalid, "--sort-by \"" + std::string(sort_by) +
                                     "\": must begin with a name, such as accuracy:desc");
  return query;
}

// The names and values are not parsed as in --where, so they may contain operators.
Status ModelQuery::add(const ModelShorthands& shorthands) {
  if (!shorthands.task.empty()) conditions_.push_back({"task", Op::kEqual, shorthands.task});
  const bool bounded = !shorthands.min.empty() || !shorthands.max.empty();
  if (bounded && shorthands.metric.empty())
    return Error(Code::kInvalid, "--min and --max need --metric, such as --metric accuracy");
  if (!bounded && !shorthands.metric.empty())
    return Error(Code::kInvalid, "--metric " + shorthands.metric + " needs --min or --max");
  const auto bound = [&](std::string_view flag, Op op, const std::string& value) -> Status {
    if (value.empty()) return {};
    if (!number(value))
      return Error(Code::kInvalid, std::string(flag) + " \"" + value + "\" is not a number");
    conditions_.push_back({std::string(kMetricPrefix) + shorthands.metric, op, value});
    return {};
  };
  TRY_VOID(bound("--min", Op::kAtLeast, shorthands.min));
  return bound("--max", Op::kAtMost, shorthands.max);
}

bool ModelQuery::holds(const Condition& condition, const Json& model) {
  const std::vector<std::string> values = values_of(model, condition.name);
  const auto wanted =
      is_text(condition.name) ? std::nullopt : number_of(condition.name, condition.value);
  const auto equal = [&](const std::string& value) {
    const auto found = wanted ? number(value) : std::nullopt;
    return found ? *found == *wanted : value == condition.value;
  };
  if (values.empty()) return false;
  if (condition.op == Op::kEqual) return std::any_of(values.begin(), values.end(), equal);
  if (condition.op == Op::kDiffers) return std::none_of(values.begin(), values.end(), equal);
  const auto found = number(values.front());
  if (!found || !wanted) return false;
  switch (condition.op) {
    case Op::kLess:
      return *found < *wanted;
    case Op::kAtMost:
      return *found <= *wanted;
    case Op::kMore:
      return *found > *wanted;
    default:
      return *found >= *wanted;
  }
}

std::vector<Json> ModelQuery::select(std::vector<Json> models) const {
  std::erase_if(models, [this](const Json& model) {
    return !std::all_of(conditions_.begin(), conditions_.end(),
                        [&](const Condition& one) { return holds(one, model); });
  });
  if (sort_by_.empty()) return models;
  // Numbers come before text, so that mixed values have a fixed order.
  struct Ranked {
    std::optional<double> number;
    std::optional<std::string> text;
    Json model;
  };
  std::vector<Ranked> ranked;
  for (Json& model : models) {
    const std::vector<std::string> values = values_of(model, sort_by_);
    Ranked one;
    if (!values.empty()) one.text = values.front();
    if (!values.empty() && !is_text(sort_by_)) one.number = cli::number(values.front());
    one.model = std::move(model);
    ranked.push_back(std::move(one));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [this](const Ranked& a, const Ranked& b) {
    if (a.text.has_value() != b.text.has_value()) return a.text.has_value();
    if (a.number.has_value() != b.number.has_value()) return a.number.has_value();
    const Ranked& low = descending_ ? b : a;
    const Ranked& high = descending_ ? a : b;
    return a.number ? *low.number < *high.number : low.text < high.text;
  });
  models.clear();
  for (Ranked& one : ranked) models.push_back(std::move(one.model));
  return models;
}

}  // namespace varda::cli
