#include "api/ai/model_ref.h"

#include "api/describe.h"
#include "api/rule.h"
#include "api/version_name.h"

namespace varda::api {

namespace {

constexpr std::string_view kModelNameOrEmpty = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kModelLabelValue = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const rules::Member kModelSelector{"selector", rules::Shape::kObject};

}  // namespace

void ModelSelector::describe(Type<ModelSelector>& t) {
  t.doc(
      "Chooses the Model with the best value of a metric. The choice changes only when another "
      "Model is strictly better.");
  t.field("task", &ModelSelector::task, "spec.task of the Model. Default: any task.").length(0, 63);
  t.field("labels", &ModelSelector::labels,
          "Labels of the Model (metadata.labels), with their values. Default: any labels.")
      .items_max(32)
      .each_length(0, 63)
      .each_pattern(kModelLabelValue);
  t.field("metric", &ModelSelector::metric,
          "Metric in the Model's status.metrics, such as accuracy. Models without it do not match.")
      .required()
      .length(1, 253);
  t.field("atLeast", &ModelSelector::at_least, "The least value of the metric that matches.");
  t.field("atMost", &ModelSelector::at_most, "The greatest value of the metric that matches.");
  t.field("order", &ModelSelector::order,
          "max: the greatest value is the best. min: the least value is the best.")
      .defaulted()
      .one_of({std::string(kMax), std::string(kMin)});
  t.keep_unknown(&ModelSelector::unknown);
}

void ModelRef::describe(Type<ModelRef>& t) {
  t.doc("A Model of the same namespace, by name or by a selector.");
  t.field("name", &ModelRef::name, "Name of the Model.").length(0, 253).pattern(kModelNameOrEmpty);
  t.field("group", &ModelRef::group,
          "API group of the Model. Required if both groups have a Model with this name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.field("version", &ModelRef::version,
          "Version of the Model. A Model without spec.version has the first 12 digits of sha256. "
          "Default: the present version. If the Model changes to another version, the named "
          "version stays.")
      .length(0, 63);
  t.field("selector", &ModelRef::selector, "Alternative to name: chooses the best Model.");
  t.keep_unknown(&ModelRef::unknown);
  t.rule(rules::any_required({{"name"}, kModelSelector},
                             "exactly one of name and selector says which Model"));
  t.rule(rules::forbidden_with(kModelSelector, {{"name"}, {"group"}, {"version"}},
                               "may not be set together with name, group or version"));
  t.rule(rules::matches_when_set("version", kVersionPattern, kVersionForbidden, kVersionExpected));
}

}  // namespace varda::api
