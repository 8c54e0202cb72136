#include "kube/discovery.h"

#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"

namespace varda::kube {
namespace {

constexpr const char* kCrd = R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inferencemodels.ai.test.io}
spec:
  group: ai.test.io
  scope: Namespaced
  names: {kind: InferenceModel, listKind: InferenceModelList, plural: inferencemodels, singular: inferencemodel, shortNames: [im], categories: [edgeai]}
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object}}}
)";

TEST(Discovery, KindsAreFoundByNameShortNameAndGroup) {
  apiserver::InMemoryApiServer api;
  api.install_crds(kCrd);
  Client client(api.transport(), {});
  const Discovery discovery =
      Discovery::load(Context().with_timeout(std::chrono::seconds(60)), client).value();
  const std::pair<const char*, const char*> cases[] = {
      {"pods", "Pod"},
      {"po", "Pod"},
      {"pod", "Pod"},
      {"Pod", "Pod"},
      {"deploy", "Deployment"},
      {"deployments.apps", "Deployment"},
      {"deployments.v1.apps", "Deployment"},
      {"cm", "ConfigMap"},
      {"no", "Node"},
      {"svc", "Service"},
      {"inferencemodels", "InferenceModel"},
      {"im", "InferenceModel"},
      {"INFERENCEMODEL", "InferenceModel"},
      {"inferencemodels.ai.test.io", "InferenceModel"},
      {"im.v1alpha1.ai.test.io", "InferenceModel"},
      {"crd", "CustomResourceDefinition"},
  };
  for (const auto& [name, kind] : cases) {
    const auto found = discovery.find(name);
    ASSERT_TRUE(found.ok()) << name << ": " << found.error();
    EXPECT_EQ(found->resource.kind, kind) << name;
  }
  EXPECT_EQ(discovery.find("frobs").error().code(), Code::kNotFound);
  EXPECT_EQ(discovery.find("pods.apps").error().code(), Code::kNotFound);
  const ApiResource pods = discovery.find("pods").value();
  EXPECT_TRUE(pods.resource.namespaced);
  EXPECT_TRUE(pods.can("watch"));
  EXPECT_NE(std::find(pods.subresources.begin(), pods.subresources.end(), "status"),
            pods.subresources.end());
  EXPECT_FALSE(discovery.find("nodes").value().resource.namespaced);
  ASSERT_EQ(discovery.category("edgeai").size(), 1u);
  EXPECT_EQ(discovery.of("apps/v1", "Deployment").value().resource.plural, "deployments");
  EXPECT_EQ(discovery.of("apps/v2", "Deployment").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace varda::kube
