// Reviews of the caller: own identity and own permissions. A POST is answered and not stored.
#include "apiserver/kinds/core_kind.h"

namespace varda::apiserver {

namespace {

class ReviewKind : public CoreKind {
 public:
  explicit ReviewKind(meta::Resource resource)
      : CoreKind(
            {.info = {.resource = std::move(resource), .verbs = {"create"}, .answered = true}}) {}

  Causes validate_create(const Json& object) const override {
    const Json& spec = object["spec"];
    const std::string& kind = resource().kind;
    if (kind == "SelfSubjectAccessReview" &&
        spec["resourceAttributes"].is_null() == spec["nonResourceAttributes"].is_null()) {
      return {
          invalid("spec.resourceAttributes", spec["resourceAttributes"],
                  "exactly one of nonResourceAttributes or resourceAttributes must be specified")};
    }
    if (kind == "SelfSubjectRulesReview" && spec["namespace"].as_string().empty()) {
      return {required("spec.namespace", "no namespace on request")};
    }
    return {};
  }
};

KindPtr review(const char* group, const char* version, const char* kind, const char* plural) {
  return std::make_shared<ReviewKind>(meta::Resource{group, version, kind, plural, false});
}

}  // namespace

std::vector<KindPtr> make_reviews() {
  return {
      review("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews"),
      review("authentication.k8s.io", "v1beta1", "SelfSubjectReview",
             "selfsubjectreviews"),  // used by kubectl 1.27
      review("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
      review("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")};
}

}  // namespace varda::apiserver
