#include "federated/rules.h"

#include <algorithm>
#include <cmath>

#include "federated/internal/rule_base.h"
#include "federated/internal/shown.h"

namespace varda::federated {
namespace {

std::vector<RuleEntry> all_rules() {
  std::vector<RuleEntry> out(mean_rules().begin(), mean_rules().end());
  out.insert(out.end(), robust_rules().begin(), robust_rules().end());
  return out;
}

Error unknown_rule(std::string_view name) {
  const std::vector<std::string> names = Rule::names();
  const std::string_view nearest = codec::nearest_name(name, names);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return Error(Code::kInvalid, "name " + shown(name) + " is no rule" +
                                   (nearest.empty() ? ": " + codec::alternatives(views)
                                                    : ", did you mean " + std::string(nearest)) +
                                   (nearest.empty() ? "" : "?"));
}

}  // namespace

double staleness_scale(std::uint64_t versions) {
  return 1 / std::sqrt(1 + static_cast<double>(versions));
}

std::vector<std::string> Rule::names() {
  std::vector<std::string> out;
  for (const RuleEntry& entry : all_rules()) out.emplace_back(entry.name);
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

Result<std::unique_ptr<Rule>> made_for_any_layout(const codec::Json& json) {
  TRY(const LayoutPointer any, Layout::make({{.name = "weight", .shape = {1}}}));
  return Rule::make(json, any);
}

}  // namespace

Status Rule::check(const codec::Json& json) {
  TRY([[maybe_unused]] const auto rule, made_for_any_layout(json));
  return {};
}

Status Rule::check_private(const codec::Json& json) {
  TRY(const auto rule, made_for_any_layout(json));
  if (rule->supports_privacy()) return {};
  return Error(Code::kInvalid, "the rule " + rule->name() +
                                   " reads single updates; privacy and secureAggregation need a "
                                   "rule that reads the mean alone, such as FedAvg");
}

Result<std::unique_ptr<Rule>> Rule::make(const codec::Json& json, LayoutPointer layout) {
  Status status;
  codec::SettingsReader in(json, "", status);
  std::string name = "FedAvg";
  in.text("name", name);
  const codec::Json* const given = in.object("parameters");
  in.end();
  TRY_VOID(std::move(status));
  const std::vector<RuleEntry> rules = all_rules();
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const RuleEntry& entry) { return entry.name == name; });
  if (found == rules.end()) return unknown_rule(name);
  const codec::Json none = codec::Json::object();
  Status parameters_status;
  codec::SettingsReader parameters(given ? *given : none, "parameters", parameters_status);
  std::unique_ptr<Rule> out = found->make(parameters, name, std::move(layout));
  parameters.end();
  TRY_VOID(std::move(parameters_status).context(name));
  return out;
}

}  // namespace varda::federated
