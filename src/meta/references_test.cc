#include "meta/references.h"

#include <gtest/gtest.h>

namespace varda::meta {
namespace {

using codec::parse_json;

TEST(References, PodUsesSecretsAndConfigMapsNamedInItsSpec) {
  struct Case {
    const char* spec;
    const char* resource;
    const char* name;
  };
  for (
      const Case& c : {
          Case{R"({"volumes":[{"secret":{"secretName":"a"}}]})", "secrets", "a"},
          Case{R"({"volumes":[{"configMap":{"name":"b"}}]})", "configmaps", "b"},
          Case{R"({"volumes":[{"projected":{"sources":[{"secret":{"name":"a"}}]}}]})", "secrets",
               "a"},
          Case{R"({"volumes":[{"projected":{"sources":[{"configMap":{"name":"b"}}]}}]})",
               "configmaps", "b"},
          Case{R"({"imagePullSecrets":[{"name":"other"},{"name":"a"}]})", "secrets", "a"},
          Case{R"({"containers":[{"envFrom":[{"secretRef":{"name":"a"}}]}]})", "secrets", "a"},
          Case{
              R"({"containers":[{},{"env":[{"valueFrom":{"secretKeyRef":{"name":"a","key":"k"}}}]}]})",
              "secrets", "a"},
          Case{R"({"initContainers":[{"envFrom":[{"configMapRef":{"name":"b"}}]}]})", "configmaps",
               "b"},
          Case{
              R"({"initContainers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":"b","key":"k"}}}]}]})",
              "configmaps", "b"},
      }) {
    const auto pod = parse_json(std::string(R"({"spec":)") + c.spec + "}").value();
    EXPECT_TRUE(pod_uses(pod, c.resource, c.name)) << c.spec;
    EXPECT_FALSE(pod_uses(pod, c.resource, "no-such")) << c.spec;
    const char* const other = std::string_view(c.resource) == "secrets" ? "configmaps" : "secrets";
    EXPECT_FALSE(pod_uses(pod, other, c.name)) << "a " << other << " of the same name: " << c.spec;
  }
}

TEST(References, PodWithAnInvalidSpecUsesNothing) {
  for (const char* pod :
       {"{}", R"({"spec":7})",
        R"({"spec":{"volumes":{"secret":{"secretName":"a"}},"containers":["a"]}})"})
    EXPECT_FALSE(pod_uses(parse_json(pod).value(), "secrets", "a")) << pod;
}

TEST(References, EdgeNodeUsesOnlyCredentialsNamedInItsSpec) {
  const auto node =
      parse_json(R"({"spec":{"models":[{"versions":[{},{"credentials":"team-a/files"}]}],
    "workers":[{},{"bucket":{"credentials":"team-a/results"}}]},
    "status":{"models":[{"versions":[{"credentials":"team-a/told"}]}]}})")
          .value();
  EXPECT_TRUE(edge_node_uses(node, {"team-a", "files"}));
  EXPECT_TRUE(edge_node_uses(node, {"team-a", "results"}));
  EXPECT_FALSE(edge_node_uses(node, {"team-b", "files"}));
  EXPECT_FALSE(edge_node_uses(node, {"team-a", "file"}));
  EXPECT_FALSE(edge_node_uses(node, {"team-a", "told"}))
      << "what a node says of itself entitles it to nothing";
  EXPECT_FALSE(edge_node_uses(parse_json("{}").value(), {"", ""}));
}

}  // namespace
}  // namespace varda::meta
