// User and rights of a started process.
//
//   process.user = os::User{.user = 65532, .group = 65532};
//   process.rights = os::Rights{.capabilities = 0, .calls = os::Calls::kFiltered};
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace varda::os {

/// True if this program is root and may become other users. Root of a user namespace with only one
/// user may not.
bool may_become_others();

/// Root becomes this user. An ordinary caller becomes it only inside a user namespace: outside, the
/// process keeps the caller's user.
struct User {
  std::uint32_t user = 0, group = 0;
  std::vector<std::uint32_t> groups;  // supplementary groups; all others are dropped
};

/// Bit N is capability N.
using Capabilities = std::uint64_t;
inline constexpr Capabilities kAllCapabilities = ~Capabilities{0};

/// "NET_BIND_SERVICE", with or without "CAP_"; "ALL" gives all. nullopt: unknown name.
std::optional<Capabilities> capabilities_named(std::string_view name);

enum class Calls {
  kAll,
  /// Calls that change the machine (mount, load modules, reboot) or look into other processes fail
  /// with EPERM.
  kFiltered,
};

/// Upper limits of a process's rights. Never adds rights that the caller lacks.
struct Rights {
  Capabilities capabilities = 0;  // upper limit, also for programs it starts
  Capabilities ambient = 0;       // effective for users other than root; a subset of `capabilities`
  Calls calls = Calls::kAll;
};

}  // namespace varda::os
