#include "node/internal/process_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::node::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr os::Capabilities kPorts = os::Capabilities{1} << 10;

const RunnerUser kRoot{.user = 0, .group = 0, .groups = {}, .becomes_others = true};
const RunnerUser kRootOfOneUser{.user = 0, .group = 0, .groups = {}};
const RunnerUser kAlice{.user = 1000, .group = 1000, .groups = {1000, 44}};

// The settings of an InferenceModel's model server.
ContainerConfig restricted() {
  ContainerConfig config;
  config.security.user = 65532;
  config.security.group = 65532;
  config.security.must_not_be_root = true;
  config.security.dropped_capabilities = {"ALL"};
  config.security.read_only_root = true;
  config.security.seccomp = SeccompProfile{};
  return config;
}

std::string refusal(const ContainerConfig& config, ImageKind image, const RunnerUser& runner) {
  const auto rules = process_rules(config, image, runner);
  if (rules.ok()) return "";
  EXPECT_EQ(rules.error().code(), Code::kForbidden);
  return rules.error().message();
}

TEST(ProcessRules, RootEnforcesAllRulesOfRestrictedContainer) {
  const ProcessRules rules = process_rules(restricted(), ImageKind::kMapped, kRoot).value();
  EXPECT_EQ(rules.user->user, 65532u);
  EXPECT_EQ(rules.user->group, 65532u);
  EXPECT_EQ(rules.rights->capabilities, 0u);
  EXPECT_EQ(rules.rights->calls, os::Calls::kFiltered);
  EXPECT_TRUE(rules.read_only_root);
}

TEST(ProcessRules, OwnImagesRunAsRootOnlyOnRequest) {
  EXPECT_EQ(process_rules({}, ImageKind::kOwn, kRoot)->user->user, kOwnImagesUser);
  EXPECT_EQ(process_rules({}, ImageKind::kOwn, kRoot)->user->group, kOwnImagesUser);
  EXPECT_EQ(process_rules({}, ImageKind::kMapped, kRoot)->user->user, 0u);
  ContainerConfig config;
  config.security.user = 0;
  EXPECT_EQ(process_rules(config, ImageKind::kOwn, kRoot)->user->user, 0u);
}

TEST(ProcessRules, SupplementalGroupsAreSetAndGroupDefaultsToUser) {
  ContainerConfig config;
  config.security.user = 1234;
  config.pod.groups = {5, 6};
  const ProcessRules rules = process_rules(config, ImageKind::kMapped, kRoot).value();
  EXPECT_EQ(rules.user->group, 1234u);
  EXPECT_THAT(rules.user->groups, ElementsAre(5, 6));
}

TEST(ProcessRules, CapabilitiesAreDefaultsMinusDroppedPlusAdded) {
  ContainerConfig config;
  const os::Capabilities usual =
      process_rules(config, ImageKind::kMapped, kRoot)->rights->capabilities;
  EXPECT_NE(usual & kPorts, 0u);
  EXPECT_EQ(usual & *os::capabilities_named("SYS_ADMIN"), 0u);
  EXPECT_EQ(usual & *os::capabilities_named("MKNOD"), 0u);
  config.security.dropped_capabilities = {"NET_BIND_SERVICE"};
  EXPECT_EQ(process_rules(config, ImageKind::kMapped, kRoot)->rights->capabilities,
            usual & ~kPorts);
  config = restricted();
  config.security.added_capabilities = {"NET_BIND_SERVICE"};
  EXPECT_EQ(process_rules(config, ImageKind::kMapped, kRoot)->rights->capabilities, kPorts);
  EXPECT_EQ(process_rules(config, ImageKind::kMapped, kRoot)->rights->ambient, kPorts);
  config.security.added_capabilities = {"FLY"};
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kRoot), HasSubstr("FLY"));
}

TEST(ProcessRules, LowPortSysctlBecomesCapability) {
  ContainerConfig config = restricted();
  config.pod.sysctls["net.ipv4.ip_unprivileged_port_start"] = "0";
  EXPECT_EQ(process_rules(config, ImageKind::kOwn, kRoot)->rights->ambient, kPorts);
}

TEST(ProcessRules, PrivilegedContainerOfRootKeepsAllRights) {
  ContainerConfig config;
  config.security.privileged = true;
  EXPECT_FALSE(process_rules(config, ImageKind::kMapped, kRoot)->rights);
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kAlice),
              HasSubstr("privileged: the agent runs as user 1000"));
}

TEST(ProcessRules, RootRefusesUnenforceableRules) {
  ContainerConfig config;
  config.security.must_not_be_root = true;
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kRoot), HasSubstr("runAsNonRoot"));
  EXPECT_EQ(refusal(config, ImageKind::kOwn, kRoot), "");
  config.security.user = 0;
  EXPECT_THAT(refusal(config, ImageKind::kOwn, kRoot), HasSubstr("runAsUser 0"));
  config = {};
  config.security.seccomp =
      SeccompProfile{.type = SeccompProfile::Type::kLocalhost, .localhost_path = "x.json"};
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kRoot), HasSubstr("Localhost"));
  config = {};
  config.security.user = std::int64_t{1} << 32;
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kRoot), HasSubstr("is not an id"));
}

TEST(ProcessRules, OrdinaryUserEnforcesRulesThatNeedNoRoot) {
  const ProcessRules rules = process_rules(restricted(), ImageKind::kOwn, kAlice).value();
  EXPECT_EQ(rules.user->user, 65532u);  // in a user namespace
  EXPECT_EQ(rules.rights->calls, os::Calls::kFiltered);
  EXPECT_TRUE(rules.read_only_root);
  EXPECT_FALSE(process_rules({}, ImageKind::kOwn, kAlice)->user);
  EXPECT_EQ(process_rules({}, ImageKind::kOwn, kAlice)->rights->capabilities, 0u);
}

TEST(ProcessRules, RootOfSingleUserNamespaceIsOrdinary) {
  EXPECT_EQ(process_rules({}, ImageKind::kOwn, kRootOfOneUser)->user->user, kOwnImagesUser);
  EXPECT_FALSE(process_rules({}, ImageKind::kMapped, kRootOfOneUser)->user);
  ContainerConfig config;
  config.security.must_not_be_root = true;
  EXPECT_EQ(refusal(config, ImageKind::kOwn, kRootOfOneUser), "");
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kRootOfOneUser), HasSubstr("runAsNonRoot"));
}

TEST(ProcessRules, OrdinaryUserRefusesRulesThatNeedRoot) {
  ContainerConfig config;
  config.security.user = 0;
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kAlice),
              HasSubstr("runAsUser 0: the agent runs as user 1000"));
  config = restricted();
  config.security.added_capabilities = {"NET_ADMIN"};
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kAlice), HasSubstr("capability NET_ADMIN"));
  config = {};
  config.pod.groups = {44, 7};
  EXPECT_THAT(refusal(config, ImageKind::kMapped, kAlice), HasSubstr("supplementalGroups 7"));
  config.pod.groups = {44, 7};
  config.pod.volume_group = 7;
  EXPECT_EQ(refusal(config, ImageKind::kMapped, kAlice), "");
}

}  // namespace
}  // namespace varda::node::internal
