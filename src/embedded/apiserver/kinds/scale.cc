// The response of the subresource "scale", also as a table.
#include "apiserver/kinds/core_kind.h"

namespace varda::apiserver {

namespace {

class ScaleKind : public CoreKind {
 public:
  ScaleKind()
      : CoreKind({.info = {.resource = {"autoscaling", "v1", "Scale", "scales", true},
                           .verbs = {},
                           .answered = true}}) {}
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Desired", "Desired replicas.", 0, "integer"),
        column("Available", "Actual replicas.", 0, "integer"), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), object.at("spec/replicas").as_integer(),
            object.at("status/replicas").as_integer(), age_of(object, now)};
  }
};

}  // namespace

const Kind& scale_kind() {
  static const ScaleKind kind;
  return kind;
}

}  // namespace varda::apiserver
