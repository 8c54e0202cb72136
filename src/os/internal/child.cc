// The child between fork and exec. Only async-signal-safe calls: no allocation, no locks, no stdio.
#include <cerrno>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/internal/spawn.h"

// glibc's <sys/mount.h> and <linux/mount.h> of Debian 12 cannot be included together.
extern "C" int mount(const char*, const char*, const char*, unsigned long, const void*) noexcept;
extern "C" int umount2(const char*, int) noexcept;

namespace varda::os::internal {
namespace {

// A directory that exists on every machine. A tmpfs covers it in the child's namespace until the
// tmpfs becomes "/".
constexpr const char* kBase = "/tmp";
constexpr const char* kOldRoot = "/.old-root";
constexpr int kDetach = 2;                     // MNT_DETACH
constexpr unsigned long kNoSuid = 2;           // MS_NOSUID
constexpr unsigned long kNoDev = 4;            // MS_NODEV
constexpr unsigned long kReadOnly = 1;         // MS_RDONLY
constexpr unsigned long kRemount = 32;         // MS_REMOUNT
constexpr unsigned long kBindFlag = 4096;      // MS_BIND
constexpr unsigned long kRecursive = 16384;    // MS_REC
constexpr unsigned long kPrivate = 1ul << 18;  // MS_PRIVATE

[[noreturn]] void fail(const SpawnPlan& plan, Stage stage, int root_step = -1) {
  const Failure failure{.stage = stage, .number = errno, .root_step = root_step};
  (void)!::write(plan.report, &failure, sizeof(failure));
  ::_exit(127);
}

bool write_text(const char* path, const char* text, std::size_t size) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = ::write(fd, text, size) == static_cast<ssize_t>(size);
  const int number = errno;
  ::close(fd);
  errno = number;
  return done;
}

void enter_namespaces(const SpawnPlan& plan) {
  // Root needs no user namespace if it may mount. Otherwise (in a container) it continues like an
  // ordinary user.
  if (::geteuid() == 0 && !plan.show_user && ::unshare(CLONE_NEWNS) == 0) return;
  // A user namespace with one user would still run as the caller's root.
  if (plan.switch_user && plan.user.user != 0) fail(plan, Stage::kNamespace);
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) fail(plan, Stage::kNamespace);
  // Absent on very old kernels, which do not need it.
  (void)write_text("/proc/self/setgroups", "deny", 4);
  if (!write_text("/proc/self/uid_map", plan.uid_map.data(), plan.uid_map.size()))
    fail(plan, Stage::kNamespace);
  if (!write_text("/proc/self/gid_map", plan.gid_map.data(), plan.gid_map.size()))
    fail(plan, Stage::kNamespace);
}

bool set_read_only(const char* path, bool recursive) {
  mount_attr attributes;
  ::memset(&attributes, 0, sizeof(attributes));
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (::syscall(SYS_mount_setattr, AT_FDCWD, path, recursive ? 0x8000 /* AT_RECURSIVE */ : 0,
                &attributes, sizeof(attributes)) == 0)
    return true;
  if (errno != ENOSYS) return false;
  // Before Linux 5.12: one mount only; existing flags must be repeated.
  struct statvfs info;
  if (::statvfs(path, &info) != 0) return false;
  const unsigned long kept_flags = info.f_flag & (kNoSuid | kNoDev | 8 /* MS_NOEXEC */ |
                                                  1024 /* MS_NOATIME */ | 2048 /* MS_NODIRATIME */);
  return ::mount(nullptr, path, nullptr, kRemount | kBindFlag | kReadOnly | kept_flags, nullptr) ==
         0;
}

bool make_file(const char* path) {
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno == EEXIST;
  ::close(fd);
  return true;
}

// Creates `path` and its missing parents.
bool make_path(const char* path, bool directory) {
  char text[4096];
  const std::size_t size = ::strlen(path);
  if (size >= sizeof(text)) {
    errno = ENAMETOOLONG;
    return false;
  }
  for (std::size_t i = 1; i < size; ++i) {
    if (path[i] != '/') continue;
    ::memcpy(text, path, i);
    text[i] = '\0';
    if (::mkdir(text, 0755) != 0 && errno != EEXIST && errno != EROFS) return false;
  }
  if (!directory) return make_file(path);
  return ::mkdir(path, 0755) == 0 || errno == EEXIST;
}

bool apply(const RootStep& step) {
  switch (step.kind) {
    case RootStep::Kind::kDirectory:
      return ::mkdir(step.target.c_str(), 0755) == 0 || errno == EEXIST;
    case RootStep::Kind::kFile:
      return make_file(step.target.c_str());
    case RootStep::Kind::kSymlink:
      return ::symlink(step.source.c_str(), step.target.c_str()) == 0;
    case RootStep::Kind::kHide:
      // ENOENT: the directory above could not be bound, so nothing is visible.
      return ::mount("tmpfs", step.target.c_str(), "tmpfs", kNoSuid | kNoDev,
                     "mode=755,size=64k") == 0 ||
             errno == ENOENT;
    case RootStep::Kind::kBind:
      break;
  }
  char source[4200];
  const std::size_t prefix = ::strlen(kOldRoot);
  if (prefix + step.source.size() >= sizeof(source)) {
    errno = ENAMETOOLONG;
    return false;
  }
  ::memcpy(source, kOldRoot, prefix);
  ::memcpy(source + prefix, step.source.c_str(), step.source.size() + 1);
  if (step.make_target && !make_path(step.target.c_str(), step.directory)) return false;
  if (::mount(source, step.target.c_str(), nullptr, kBindFlag | kRecursive, nullptr) != 0)
    return step.optional;
  return !step.read_only || set_read_only(step.target.c_str(), true);
}

void build_root(const SpawnPlan& plan) {
  enter_namespaces(plan);
  if (::mount(nullptr, "/", nullptr, kRecursive | kPrivate, nullptr) != 0)
    fail(plan, Stage::kPrivateRoot);
  if (::mount("tmpfs", kBase, "tmpfs", kNoSuid | kNoDev, "mode=755,size=4m") != 0)
    fail(plan, Stage::kPrivateRoot);
  if (::chdir(kBase) != 0 || ::mkdir(kOldRoot + 1, 0700) != 0) fail(plan, Stage::kPrivateRoot);
  if (::syscall(SYS_pivot_root, ".", kOldRoot + 1) != 0 || ::chdir("/") != 0)
    fail(plan, Stage::kPrivateRoot);
  int index = 0;
  for (const RootStep& step : plan.root) {
    if (!apply(step)) fail(plan, Stage::kBind, index);
    ++index;
  }
  for (const RootStep& step : plan.root) {
    if (step.kind != RootStep::Kind::kHide) continue;
    if (!set_read_only(step.target.c_str(), false) && errno != EINVAL && errno != ENOENT)
      fail(plan, Stage::kPrivateRoot);
  }
  if (::umount2(kOldRoot, kDetach) != 0 || ::rmdir(kOldRoot) != 0) fail(plan, Stage::kPrivateRoot);
  if (!set_read_only("/", false)) fail(plan, Stage::kPrivateRoot);
}

bool set_capabilities(Capabilities held, Capabilities inheritable) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2];
  for (int i = 0; i < 2; ++i) {
    const auto half = [i](Capabilities all) { return static_cast<std::uint32_t>(all >> (32 * i)); };
    data[i] = {.effective = half(held), .permitted = half(held), .inheritable = half(inheritable)};
  }
  return ::syscall(SYS_capset, &header, data) == 0;
}

void limit_bounding_set(const SpawnPlan& plan) {
  for (int number = 0; number < 64; ++number) {
    if ((plan.rights.capabilities >> number & 1) != 0) continue;
    const int in_set = ::prctl(PR_CAPBSET_READ, number, 0, 0, 0);
    if (in_set < 0) return;  // the kernel has no further capabilities
    if (in_set == 0 || ::prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0) continue;
    // Without a namespace, an ordinary user's process has no capability and cannot gain one
    // (no-new-privileges).
    if (!plan.ordinary) fail(plan, Stage::kPrivileges);
    return;
  }
}

// Raw system calls: after fork, glibc's functions would signal threads that no longer exist.
void become_user(const SpawnPlan& plan) {
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) fail(plan, Stage::kUser);
  if (::syscall(SYS_setgroups, plan.user.groups.size(), plan.user.groups.data()) != 0)
    fail(plan, Stage::kUser);
  if (::syscall(SYS_setresgid, plan.user.group, plan.user.group, plan.user.group) != 0)
    fail(plan, Stage::kUser);
  if (::syscall(SYS_setresuid, plan.user.user, plan.user.user, plan.user.user) != 0)
    fail(plan, Stage::kUser);
}

// Locked, so that no later call or file can give the process a capability again.
bool lock_securebits() {
  const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                             SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                             SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  return ::prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) == 0;
}

void limit_rights(const SpawnPlan& plan) {
  const bool root = !plan.ordinary && (!plan.switch_user || plan.user.user == 0);
  const Capabilities held = root ? plan.rights.capabilities : plan.rights.ambient;
  if (root) {
    if (!set_capabilities(held, 0)) fail(plan, Stage::kPrivileges);
    return;
  }
  // The last calls here need a capability that the process does not keep.
  const Capabilities set_rights = own_capabilities() & (Capabilities{1} << CAP_SETPCAP);
  if (!set_capabilities(held | set_rights, plan.rights.ambient)) fail(plan, Stage::kPrivileges);
  for (int number = 0; number < 64; ++number) {
    if ((plan.rights.ambient >> number & 1) == 0) continue;
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) != 0)
      fail(plan, Stage::kPrivileges);
  }
  if (set_rights != 0 && !lock_securebits()) fail(plan, Stage::kPrivileges);
  if (!set_capabilities(held, plan.rights.ambient)) fail(plan, Stage::kPrivileges);
}

void filter_calls(const SpawnPlan& plan) {
  const sock_fprog program{.len = static_cast<unsigned short>(plan.filter.size()),
                           .filter = const_cast<sock_filter*>(plan.filter.data())};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
    fail(plan, Stage::kPrivileges);
}

void reset_signals() {
  struct sigaction action;
  ::memset(&action, 0, sizeof(action));
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void close_all_on_exec() {
  if (::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) == 0) return;
  rlimit limit;
  const int end = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536
                      ? static_cast<int>(limit.rlim_cur)
                      : 65536;
  for (int fd = 3; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void set_streams(const SpawnPlan& plan) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) fail(plan, Stage::kOutput);
  const int output = plan.output >= 0 ? plan.output : null;
  if (::dup2(null, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(output, 2) < 0)
    fail(plan, Stage::kOutput);
}

}  // namespace

void run_child(const SpawnPlan& plan) {
  if (plan.new_group && ::setpgid(0, 0) != 0) fail(plan, Stage::kGroup);
  reset_signals();
  ::umask(022);
  if (!plan.root.empty()) build_root(plan);
  set_streams(plan);
  if (::chdir(plan.working_directory.c_str()) != 0) fail(plan, Stage::kDirectory);
  for (const auto& [resource, limit] : plan.limits) {
    if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0)
      fail(plan, Stage::kLimits);
  }
  if (plan.limit_rights) limit_bounding_set(plan);
  if (plan.switch_user) become_user(plan);
  if (plan.limit_rights) limit_rights(plan);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(plan, Stage::kPrivileges);
  // Late, because a change of credentials (a user namespace) clears this setting.
  if (plan.die_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) fail(plan, Stage::kPrivileges);
  }
  // A parent that died earlier never recorded this process, and no other program would find it.
  if (::getppid() != plan.parent) ::_exit(127);
  close_all_on_exec();
  if (!plan.filter.empty()) filter_calls(plan);
  ::execve(plan.program.c_str(), plan.argv.data(), plan.envp.data());
  fail(plan, Stage::kExec);
}

}  // namespace varda::os::internal
