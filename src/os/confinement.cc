#include "os/confinement.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/internal/posix.h"

namespace varda::os {

namespace {

using internal::Descriptor;

// Access rights by the Landlock version that introduced them. Headers of Debian 12 define only
// those below 3.
constexpr std::uint64_t kOfVersion1 = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr std::uint64_t kRefer = 1u << 13;        // 2
constexpr std::uint64_t kTruncate = 1u << 14;     // 3
constexpr std::uint64_t kIoctlDevice = 1u << 15;  // 5

constexpr std::uint64_t kRead =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr std::uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr std::uint64_t kChange = LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                  LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR;
// Rights that a rule for a single file may grant.
constexpr std::uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                   LANDLOCK_ACCESS_FS_READ_FILE | kTruncate | kIoctlDevice;

Error failed(const char* what) {
  return {Code::kInternal, std::string(what) + ": " + std::strerror(errno)};
}

std::uint64_t known_to(long version) {
  std::uint64_t rights = kOfVersion1;
  if (version >= 2) rights |= kRefer;
  if (version >= 3) rights |= kTruncate;
  if (version >= 5) rights |= kIoctlDevice;
  return rights;
}

Status allow(int ruleset, const Path& path, std::uint64_t rights) {
  const Descriptor target(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (target.get() < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return {};
  struct stat facts {};
  if (target.get() < 0 || ::fstat(target.get(), &facts) != 0) return failed(path.c_str());
  if (!S_ISDIR(facts.st_mode)) rights &= kOfFiles;
  const landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = target.get()};
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    return failed(path.c_str());
  return {};
}

/// Children cannot regain them, because PR_SET_NO_NEW_PRIVS is set.
Status drop_inspection_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return failed("capget");
  bool changed = false;
  for (const int capability : {CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON}) {
    __user_cap_data_struct& set = sets[CAP_TO_INDEX(capability)];
    const std::uint32_t others = ~CAP_TO_MASK(capability);
    changed = changed || (set.permitted & ~others) != 0;
    set.effective &= others;
    set.permitted &= others;
    set.inheritable &= others;
  }
  if (changed && ::syscall(SYS_capset, &header, sets) != 0) return failed("capset");
  return {};
}

}  // namespace

Status confine_files(const ReachableFiles& files) {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1)
    return Error(Code::kUnsupported, "this kernel has no Landlock, or was started without it");
  const std::uint64_t known = known_to(version);
  const landlock_ruleset_attr handled{.handled_access_fs = known};
  const Descriptor ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0)));
  if (ruleset.get() < 0) return failed("landlock_create_ruleset");
  for (const Path& path : files.read) TRY_VOID(allow(ruleset.get(), path, kRead & known));
  for (const Path& path : files.read_write)
    TRY_VOID(allow(ruleset.get(), path, (kRead | kWrite) & known));
  for (const Path& path : files.own)
    TRY_VOID(allow(ruleset.get(), path, (kRead | kWrite | kChange) & known));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("PR_SET_NO_NEW_PRIVS");
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return failed("landlock_restrict_self");
  return drop_inspection_capabilities();
}

}  // namespace varda::os
