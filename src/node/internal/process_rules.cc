#include "node/internal/process_rules.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unistd.h>

namespace varda::node::internal {
namespace {

// Default capabilities, a subset of the usual ones of container runtimes. MKNOD, NET_RAW and
// SYS_CHROOT would affect the machine.
constexpr std::string_view kDefaultCapabilities[] = {"CHOWN",  "DAC_OVERRIDE", "FOWNER",
                                                     "FSETID", "KILL",         "SETGID",
                                                     "SETUID", "SETPCAP",      "NET_BIND_SERVICE"};
constexpr const char* kPortSysctl = "net.ipv4.ip_unprivileged_port_start";

Error refused(const std::string& what) { return Error(Code::kForbidden, what); }

Result<std::uint32_t> checked_id(std::int64_t id, const char* field) {
  if (id >= 0 && id < std::numeric_limits<std::uint32_t>::max())
    return static_cast<std::uint32_t>(id);
  return refused(std::string(field) + " " + std::to_string(id) + " is not an id");
}

Result<os::Capabilities> named(const std::vector<std::string>& names) {
  os::Capabilities out = 0;
  for (const std::string& name : names) {
    const auto capability = os::capabilities_named(name);
    if (!capability) return refused("capability \"" + name + "\" is unknown");
    out |= *capability;
  }
  return out;
}

Result<os::Calls> calls_of(const Security& security) {
  if (!security.seccomp) return os::Calls::kAll;
  if (security.seccomp->type == SeccompProfile::Type::kLocalhost)
    return refused(
        "seccompProfile Localhost is not supported; the process driver supports RuntimeDefault and "
        "Unconfined");
  return security.seccomp->type == SeccompProfile::Type::kRuntimeDefault ? os::Calls::kFiltered
                                                                         : os::Calls::kAll;
}

// Without an image there is no /etc/passwd with the user's group. The machine's group 0 may read
// more than a pod should.
Result<os::User> user_as_root(const ContainerConfig& config, ImageKind image) {
  const Security& security = config.security;
  os::User out;
  out.user = image == ImageKind::kOwn ? kOwnImagesUser : 0;
  if (security.user) {
    TRY(out.user, checked_id(*security.user, "runAsUser"));
  }
  out.group = out.user;
  if (security.group) {
    TRY(out.group, checked_id(*security.group, "runAsGroup"));
  }
  for (const std::int64_t group : config.pod.groups) {
    TRY(const std::uint32_t id, checked_id(group, "group"));
    out.groups.push_back(id);
  }
  if (security.must_not_be_root && out.user == 0) {
    return refused(
        security.user
            ? "container has runAsNonRoot and runAsUser 0"
            : "container has runAsNonRoot, and commands of --image run as root: set runAsUser");
  }
  return out;
}

Result<os::Rights> rights_as_root(const ContainerConfig& config, const os::User& user,
                                  os::Calls calls) {
  const Security& security = config.security;
  os::Capabilities capabilities = 0;
  for (const std::string_view name : kDefaultCapabilities)
    capabilities |= *os::capabilities_named(name);
  TRY(const os::Capabilities dropped, named(security.dropped_capabilities));
  TRY(os::Capabilities added, named(security.added_capabilities));
  // The network is the machine's, so sysctls stay unchanged: only this pod may use the ports.
  if (const auto port = config.pod.sysctls.find(kPortSysctl); port != config.pod.sysctls.end())
    added |= *os::capabilities_named("NET_BIND_SERVICE");
  capabilities = (capabilities & ~dropped) | added;
  return os::Rights{
      .capabilities = capabilities, .ambient = user.user == 0 ? 0 : added, .calls = calls};
}

Result<ProcessRules> rules_as_root(const ContainerConfig& config, ImageKind image) {
  ProcessRules rules;
  rules.read_only_root = config.security.read_only_root;
  TRY(rules.user, user_as_root(config, image));
  if (config.security.privileged) return rules;
  TRY(const os::Calls calls, calls_of(config.security));
  TRY(rules.rights, rights_as_root(config, *rules.user, calls));
  return rules;
}

// The groups of a process are the runner's. Volumes belong to the only user.
Status check_groups(const ContainerConfig& config, const RunnerUser& runner) {
  for (const std::int64_t group : config.pod.groups) {
    const bool has = group == runner.group || std::find(runner.groups.begin(), runner.groups.end(),
                                                        group) != runner.groups.end();
    if (has || group == config.pod.volume_group) continue;
    return refused("supplementalGroups " + std::to_string(group) + ": the agent runs as user " +
                   std::to_string(runner.user) + ", which is not in that group");
  }
  return {};
}

Result<ProcessRules> rules_as_ordinary_user(const ContainerConfig& config, ImageKind image,
                                            const RunnerUser& runner) {
  const Security& security = config.security;
  const auto needs_root = [&](const std::string& what) {
    return refused(what + ": the agent runs as user " + std::to_string(runner.user) +
                   ", not as root");
  };
  if (security.privileged) return needs_root("privileged");
  if (!security.added_capabilities.empty())
    return needs_root("capability " + security.added_capabilities.front());
  os::User user{.user = runner.user, .group = runner.group, .groups = {}};
  // Root of a user namespace.
  if (runner.user == 0 && image == ImageKind::kOwn) user.user = user.group = kOwnImagesUser;
  if (security.user) {
    TRY(user.user, checked_id(*security.user, "runAsUser"));
  }
  if (security.group) {
    TRY(user.group, checked_id(*security.group, "runAsGroup"));
  }
  if (user.user == 0 && runner.user != 0) return needs_root("runAsUser 0");
  if (user.user == 0 && security.must_not_be_root)
    return refused("container has runAsNonRoot and would run as root");
  TRY_VOID(check_groups(config, runner));
  ProcessRules rules;
  rules.read_only_root = security.read_only_root;
  if (user.user != runner.user || user.group != runner.group) rules.user = user;
  TRY(const os::Calls calls, calls_of(security));
  rules.rights = os::Rights{.capabilities = 0, .ambient = 0, .calls = calls};
  return rules;
}

}  // namespace

RunnerUser this_user() {
  RunnerUser runner{.user = ::geteuid(),
                    .group = ::getegid(),
                    .groups = {},
                    .becomes_others = os::may_become_others()};
  const int count = ::getgroups(0, nullptr);
  runner.groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (count > 0)
    runner.groups.resize(
        static_cast<std::size_t>(std::max(::getgroups(count, runner.groups.data()), 0)));
  return runner;
}

Result<ProcessRules> process_rules(const ContainerConfig& config, ImageKind image,
                                   const RunnerUser& runner) {
  return runner.becomes_others ? rules_as_root(config, image)
                               : rules_as_ordinary_user(config, image, runner);
}

}  // namespace varda::node::internal
