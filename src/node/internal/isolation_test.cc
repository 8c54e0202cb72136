#include "node/internal/isolation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::node::internal {
namespace {

using ::testing::ElementsAre;

PodRecord record(const std::string& spec) {
  PodRecord out;
  out.pod = Json::object(
      {{"metadata", Json::object({{"name", "web"}, {"namespace", "shop"}, {"uid", "u1"}})}});
  out.pod.set("spec", codec::parse_yaml(spec).value());
  return out;
}
Resources resources(const std::string& yaml) {
  return container_resources(Json::object({{"resources", codec::parse_yaml(yaml).value()}}));
}

TEST(Isolation, CpuAndMemoryBecomeSharesQuotaAndLimit) {
  const Resources both = resources("{requests: {cpu: 250m}, limits: {cpu: '1.5', memory: 64Mi}}");
  EXPECT_EQ(both.cpu_shares, 256);
  EXPECT_EQ(both.cpu_period_us, 100'000);
  EXPECT_EQ(both.cpu_quota_us, 150'000);
  EXPECT_EQ(both.memory_bytes_max, 64 << 20);
  const Resources limit = resources("{limits: {cpu: 2}}");
  EXPECT_EQ(limit.cpu_shares, 2048);
  EXPECT_EQ(limit.cpu_quota_us, 200'000);
  const Resources tiny = resources("{limits: {cpu: 1m}}");
  EXPECT_EQ(tiny.cpu_shares, 2);
  EXPECT_EQ(tiny.cpu_quota_us, 1000);
  const Resources none = resources("{}");
  EXPECT_EQ(none.cpu_shares, 2);
  EXPECT_EQ(none.cpu_quota_us, 0);
  EXPECT_EQ(none.memory_bytes_max, 0);
  EXPECT_EQ(resources("{requests: {cpu: 1000k}}").cpu_shares, 262'144);
}

TEST(Isolation, ContainerSecurityContextOverridesPod) {
  const Json pod = codec::parse_yaml(
                       "{securityContext: {runAsUser: 1000, runAsGroup: 5, runAsNonRoot: true, "
                       "seccompProfile: {type: RuntimeDefault}}}")
                       .value();
  const Security inherited = container_security(pod, Json::object());
  EXPECT_EQ(inherited.user, 1000);
  EXPECT_EQ(inherited.group, 5);
  EXPECT_TRUE(inherited.must_not_be_root);
  EXPECT_EQ(inherited.seccomp->type, SeccompProfile::Type::kRuntimeDefault);
  EXPECT_FALSE(inherited.no_new_privileges);
  EXPECT_FALSE(inherited.unmasked_proc);
  const Json container =
      codec::parse_yaml(
          "{securityContext: {runAsUser: 0, runAsNonRoot: false, readOnlyRootFilesystem: true, "
          "allowPrivilegeEscalation: false, privileged: true, procMount: Unmasked, "
          "capabilities: {add: [NET_ADMIN], drop: [ALL]}, "
          "seccompProfile: {type: Localhost, localhostProfile: a.json}}}")
          .value();
  const Security own = container_security(pod, container);
  EXPECT_EQ(own.user, 0);
  EXPECT_EQ(own.group, 5);
  EXPECT_FALSE(own.must_not_be_root);
  EXPECT_TRUE(own.read_only_root);
  EXPECT_TRUE(own.no_new_privileges);
  EXPECT_TRUE(own.privileged);
  EXPECT_TRUE(own.unmasked_proc);
  EXPECT_THAT(own.added_capabilities, ElementsAre("NET_ADMIN"));
  EXPECT_THAT(own.dropped_capabilities, ElementsAre("ALL"));
  EXPECT_EQ(own.seccomp->localhost_path, "a.json");
}

TEST(Isolation, PodConfigHasNamespacesPortsAndGroups) {
  const PodConfig pod = pod_config(
      record("{hostname: shop-web, shareProcessNamespace: true, "
             "securityContext: {fsGroup: 7, supplementalGroups: [8], sysctls: [{name: a.b, value: "
             "'1'}]}, "
             "containers: [{name: c, ports: [{containerPort: 80, hostPort: 8080, protocol: UDP}, "
             "{containerPort: 81}], securityContext: {privileged: true}}]}"),
      "/pods/web");
  EXPECT_EQ(pod.ns, "shop");
  EXPECT_EQ(pod.uid, "u1");
  EXPECT_EQ(pod.hostname, "shop-web");
  EXPECT_TRUE(pod.shared_processes);
  EXPECT_TRUE(pod.privileged);
  EXPECT_THAT(pod.groups, ElementsAre(7, 8));
  EXPECT_EQ(pod.sysctls.at("a.b"), "1");
  ASSERT_EQ(pod.ports.size(), 1u);
  EXPECT_EQ(pod.ports[0].host, 8080);
  EXPECT_EQ(pod.ports[0].container, 80);
  EXPECT_EQ(pod.ports[0].protocol, "UDP");
}

TEST(Isolation, HostNetworkPodHasNoHostnameOrPorts) {
  const PodConfig pod = pod_config(record("{hostNetwork: true, hostPID: true, containers: [{name: "
                                          "c, ports: [{containerPort: 80, hostPort: 80}]}]}"),
                                   "/p");
  EXPECT_TRUE(pod.host_network);
  EXPECT_TRUE(pod.host_pid);
  EXPECT_EQ(pod.hostname, "");
  EXPECT_TRUE(pod.ports.empty());
}

}  // namespace
}  // namespace varda::node::internal
