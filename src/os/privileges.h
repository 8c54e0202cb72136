// The user that a process becomes, and the rights that it keeps.
//
//   process.user = os::User{.user = 65532, .group = 65532};
//   process.rights = os::Rights{.capabilities = 0, .calls = os::Calls::kFiltered};
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace varda::os {

/// This program is root where there are other users. Root of a user namespace with one user is as ordinary as any.
bool may_become_others();

/// Root becomes this user. An ordinary user becomes it inside a user namespace only: the machine still sees the caller's user.
struct User {
  std::uint32_t user = 0, group = 0;
  std::vector<std::uint32_t> groups;  // further ones; no others are kept
};

/// Bit N stands for capability N.
using Capabilities = std::uint64_t;
inline constexpr Capabilities kAllCapabilities = ~Capabilities{0};

/// "NET_BIND_SERVICE", also with CAP_ before it; "ALL": all of them. Nothing: no capability has that name.
std::optional<Capabilities> capabilities_named(std::string_view name);

enum class Calls {
  kAll,
  /// Calls that change the machine (mount, load modules, reboot) or look into other processes fail with EPERM.
  kFiltered,
};

/// All that a process may have. Rights that the caller lacks are not gained.
struct Rights {
  Capabilities capabilities = 0;  // at most these, also for programs that it starts
  Capabilities ambient = 0;       // those that a user other than root really gets; a part of `capabilities`
  Calls calls = Calls::kAll;
};

}  // namespace varda::os
