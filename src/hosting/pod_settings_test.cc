#include "hosting/pod_settings.h"

#include <gtest/gtest.h>

#include "api/ai/inference_model.h"
#include "codec/yaml.h"
#include "meta/references.h"

namespace varda::hosting {
namespace pod_settings_test {

using codec::Json;

Json yaml(const std::string& text) { return codec::parse_yaml(text).value(); }

api::PodSettings settings_of(const std::string& members) {
  auto model = api::InferenceModel::from_json(yaml("{metadata: {name: m}, spec: " + members + "}"));
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message());
  return model.ok() ? model->spec : api::PodSettings{};
}

// A planned pod with a server and an init container, after add_settings().
Json pod_with(const std::string& members) {
  api::Pod pod = api::Pod::from_json(yaml(R"({metadata: {name: m}, spec: {
    initContainers: [{name: fetch, image: varda}],
    containers: [{name: server, image: varda-serve, env: [{name: POD_IP, value: ours}]}],
    tolerations: [{key: ours, operator: Exists}],
    dnsPolicy: Default}})"))
                     .value();
  add_settings(settings_of(members), pod.spec);
  return pod.to_json();
}

constexpr const char* kAll = R"({
  resources: {requests: {cpu: "0.5"}, limits: {memory: 1024Mi, nvidia.com/gpu: 1}},
  env: [{name: LICENSE, valueFrom: {secretKeyRef: {name: vendor, key: license}}}],
  imagePullSecrets: [{name: registry}],
  tolerations: [{key: gpu, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 30}],
  priorityClassName: serving})";

TEST(PodSettings, PodGetsAllSettingsBesideItsOwn) {
  const Json pod = pod_with(kAll);
  EXPECT_EQ(pod["spec"], yaml(R"({
    initContainers: [{name: fetch, image: varda}],
    containers: [{name: server, image: varda-serve,
      resources: {requests: {cpu: 500m}, limits: {memory: 1Gi, nvidia.com/gpu: "1"}},
      env: [{name: POD_IP, value: ours},
            {name: LICENSE, valueFrom: {secretKeyRef: {name: vendor, key: license}}}]}],
    tolerations: [{key: ours, operator: Exists},
      {key: gpu, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 30}],
    dnsPolicy: Default, imagePullSecrets: [{name: registry}], priorityClassName: serving})"));
  EXPECT_TRUE(meta::pod_uses(pod, "secrets", "vendor")) << "the gateway would refuse the Secret";
  EXPECT_TRUE(meta::pod_uses(pod, "secrets", "registry")) << "the gateway would refuse the Secret";
}

TEST(PodSettings, PodWithoutSettingsStaysAsPlanned) {
  EXPECT_EQ(pod_with("{}")["spec"], yaml(R"({
    initContainers: [{name: fetch, image: varda}],
    containers: [{name: server, image: varda-serve, env: [{name: POD_IP, value: ours}]}],
    tolerations: [{key: ours, operator: Exists}], dnsPolicy: Default})"));
  EXPECT_TRUE(requested_settings(settings_of("{}")).empty());
}

TEST(PodSettings, PlannedVariableWinsOverTheUsersOfTheSameName) {
  EXPECT_EQ(pod_with("{env: [{name: POD_IP, value: other}, {name: A, value: $(POD_IP)}]}")
                .at("spec/containers/0/env"),
            yaml("[{name: POD_IP, value: ours}, {name: A, value: $(POD_IP)}]"));
}

// Other members and amounts would be written again at every reconcile.
TEST(PodSettings, RequestHasTheFormOfTheApiServer) {
  EXPECT_EQ(requested_settings(settings_of(R"({
      resources: {limits: {cpu: 1000m}},
      env: [{name: A, value: b, later: 1},
            {name: M, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1024Ki}}},
            {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}],
      imagePullSecrets: [{name: registry, later: 1}],
      tolerations: [{operator: Exists, later: 1}]})")),
            yaml(R"({
      resources: {limits: {cpu: "1"}},
      env: [{name: A, value: b},
            {name: M, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}},
            {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}],
      imagePullSecrets: [{name: registry}],
      tolerations: [{operator: Exists}]})"));
}

TEST(PodSettings, RequestChangesWithEachSetting) {
  const Json all = requested_settings(settings_of(kAll));
  ASSERT_EQ(all.size(), 5u);
  const Json written = yaml(kAll);
  for (const auto& [member, value] : written.as_object()) {
    Json less = written;
    less.erase(member);
    Json expected = all;
    expected.erase(member);
    EXPECT_EQ(requested_settings(settings_of(codec::write_json(less))), expected) << member;
    EXPECT_NE(expected, all) << member;
  }
}

}  // namespace pod_settings_test
}  // namespace varda::hosting
