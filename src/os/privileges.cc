#include "os/privileges.h"

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "os/internal/spawn.h"

namespace varda::os {
namespace {

// Sorted by number (linux/capability.h).
constexpr std::string_view kCapabilityNames[] = {"CHOWN",
                                                 "DAC_OVERRIDE",
                                                 "DAC_READ_SEARCH",
                                                 "FOWNER",
                                                 "FSETID",
                                                 "KILL",
                                                 "SETGID",
                                                 "SETUID",
                                                 "SETPCAP",
                                                 "LINUX_IMMUTABLE",
                                                 "NET_BIND_SERVICE",
                                                 "NET_BROADCAST",
                                                 "NET_ADMIN",
                                                 "NET_RAW",
                                                 "IPC_LOCK",
                                                 "IPC_OWNER",
                                                 "SYS_MODULE",
                                                 "SYS_RAWIO",
                                                 "SYS_CHROOT",
                                                 "SYS_PTRACE",
                                                 "SYS_PACCT",
                                                 "SYS_ADMIN",
                                                 "SYS_BOOT",
                                                 "SYS_NICE",
                                                 "SYS_RESOURCE",
                                                 "SYS_TIME",
                                                 "SYS_TTY_CONFIG",
                                                 "MKNOD",
                                                 "LEASE",
                                                 "AUDIT_WRITE",
                                                 "AUDIT_CONTROL",
                                                 "SETFCAP",
                                                 "MAC_OVERRIDE",
                                                 "MAC_ADMIN",
                                                 "SYSLOG",
                                                 "WAKE_ALARM",
                                                 "BLOCK_SUSPEND",
                                                 "AUDIT_READ",
                                                 "PERFMON",
                                                 "BPF",
                                                 "CHECKPOINT_RESTORE"};

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "add the architecture of this machine (linux/audit.h)"
#endif

// The leak checker of AddressSanitizer attaches to threads of the same process.
#if defined(__SANITIZE_ADDRESS__)
#define VARDA_LEAK_CHECKER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VARDA_LEAK_CHECKER
#endif
#endif

constexpr std::uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                         CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Calls that no pod needs: they change the machine or inspect other processes. Most need a
// capability too, but the filter also protects against kernel bugs in that check.
constexpr long kDenied[] = {
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_setns,
    SYS_unshare,
    SYS_chroot,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_acct,
    SYS_reboot,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_kcmp,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_open_by_handle_at,
    SYS_lookup_dcookie,
    SYS_fanotify_init,
#ifndef VARDA_LEAK_CHECKER
    SYS_ptrace,
#endif
#ifdef SYS_nfsservctl
    SYS_nfsservctl,
#endif
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_open_tree
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
#endif
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
#ifdef SYS_create_module
    SYS_create_module,
    SYS_get_kernel_syms,
    SYS_query_module,
    SYS_uselib,
    SYS__sysctl,
    SYS_sysfs,
    SYS_ustat,
#endif
};

constexpr sock_filter statement(std::uint16_t code, std::uint32_t value) {
  return {.code = code, .jt = 0, .jf = 0, .k = value};
}
constexpr sock_filter load(std::size_t offset) {
  return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
constexpr sock_filter refuse(int number) {
  return statement(BPF_RET | BPF_K,
                   SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(number) & SECCOMP_RET_DATA));
}
constexpr sock_filter allow() { return statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
// The next statement runs only if the comparison holds.
constexpr sock_filter when(std::uint16_t comparison, std::uint32_t value) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | BPF_K | comparison),
          .jt = 0,
          .jf = 1,
          .k = value};
}
constexpr sock_filter unless_equal(std::uint32_t value) {
  return {.code = BPF_JMP | BPF_K | BPF_JEQ, .jt = 1, .jf = 0, .k = value};
}

}  // namespace

bool may_become_others() {
  if (::geteuid() != 0) return false;
  // "INSIDE OUTSIDE COUNT", one line per range of users.
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0, users = 0;
  while (map >> inside >> outside >> count) users += count;
  return users != 1;
}

std::optional<Capabilities> capabilities_named(std::string_view name) {
  if (name == "ALL") return kAllCapabilities;
  if (name.starts_with("CAP_")) name.remove_prefix(4);
  for (std::size_t number = 0; number < std::size(kCapabilityNames); ++number) {
    if (kCapabilityNames[number] == name) return Capabilities{1} << number;
  }
  return std::nullopt;
}

Capabilities internal::own_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return 0;
  return Capabilities{data[0].permitted} | Capabilities{data[1].permitted} << 32;
}

std::vector<sock_filter> internal::call_filter() {
  std::vector<sock_filter> program = {load(offsetof(seccomp_data, arch)),
                                      unless_equal(kArchitecture), refuse(EPERM),
                                      load(offsetof(seccomp_data, nr))};
  const auto deny = [&](std::uint16_t comparison, std::uint32_t value, int number) {
    program.push_back(when(comparison, value));
    program.push_back(refuse(number));
  };
#if defined(__x86_64__)
  deny(BPF_JGE, 0x40000000u, EPERM);  // x32: the same calls with other numbers
#endif
  for (const long call : kDenied) deny(BPF_JEQ, static_cast<std::uint32_t>(call), EPERM);
  // A filter cannot read the arguments of clone3, so ENOSYS makes libraries use clone.
  deny(BPF_JEQ, SYS_clone3, ENOSYS);
  program.push_back(unless_equal(SYS_clone));
  program.push_back(allow());
  program.push_back(
      load(offsetof(seccomp_data, args)));  // the flags; both architectures are little-endian
  deny(BPF_JSET, kNewNamespaces, EPERM);
  program.push_back(allow());
  return program;
}

}  // namespace varda::os
