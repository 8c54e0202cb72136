#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/internal/posix.h"
#include "os/internal/proc.h"
#include "os/internal/spawn.h"
#include "os/process.h"

namespace varda::os {
namespace {

using internal::Descriptor;
using internal::errno_error;
using internal::Failure;
using internal::retry;
using internal::SpawnPlan;
using internal::Stage;

Result<int> resource_of(const std::string& name) {
  if (name == "nofile") return int{RLIMIT_NOFILE};
  if (name == "core") return int{RLIMIT_CORE};
  if (name == "as") return int{RLIMIT_AS};
  if (name == "nproc") return int{RLIMIT_NPROC};
  return Error(Code::kInvalid, "unknown limit '" + name + "': nofile, core, as or nproc");
}

Result<std::vector<std::pair<int, rlimit>>> plan_limits(
    const std::map<std::string, std::uint64_t>& limits) {
  std::vector<std::pair<int, rlimit>> planned;
  for (const auto& [name, value] : limits) {
    TRY(const int resource, resource_of(name));
    rlimit now{};
    ::getrlimit(static_cast<__rlimit_resource_t>(resource), &now);
    // An ordinary user cannot raise the hard limit, so use at most the current one.
    const rlim_t wanted = ::geteuid() == 0 ? value : std::min<rlim_t>(value, now.rlim_max);
    planned.emplace_back(resource, rlimit{.rlim_cur = wanted, .rlim_max = wanted});
  }
  return planned;
}

void plan_strings(const ProcessOptions& options, SpawnPlan& plan) {
  plan.strings.push_back(options.program);
  for (const std::string& argument : options.arguments) plan.strings.push_back(argument);
  const std::size_t arguments = plan.strings.size();
  for (const auto& [name, value] : options.environment) plan.strings.push_back(name + "=" + value);
  // Takes pointers after the vector stops growing.
  for (std::size_t i = 0; i < plan.strings.size(); ++i)
    (i < arguments ? plan.argv : plan.envp).push_back(plan.strings[i].data());
  plan.argv.push_back(nullptr);
  plan.envp.push_back(nullptr);
}

Error explain(const Failure& failure, const SpawnPlan& plan) {
  const std::string command = "start " + plan.program;
  const auto unsupported = [&](const std::string& what) {
    return Error(Code::kUnsupported, command + ": mounts are not possible here: " +
                                         errno_error(failure.number, what).message());
  };
  switch (failure.stage) {
    case Stage::kGroup:
      return errno_error(failure.number, command + ": setpgid");
    case Stage::kNamespace:
      return unsupported("user and mount namespaces");
    case Stage::kPrivateRoot:
      return unsupported("private root");
    case Stage::kBind:
      return unsupported("bind " + plan.root[static_cast<std::size_t>(failure.root_step)].source +
                         " to " + plan.root[static_cast<std::size_t>(failure.root_step)].target);
    case Stage::kLimits:
      return errno_error(failure.number, command + ": setrlimit");
    case Stage::kOutput:
      return errno_error(failure.number, command + ": standard streams");
    case Stage::kDirectory:
      return errno_error(failure.number, command + ": working directory " + plan.working_directory);
    case Stage::kUser:
      return Error(Code::kForbidden, errno_error(failure.number, command + ": become user " +
                                                                     std::to_string(plan.user.user))
                                         .message());
    case Stage::kPrivileges:
      return errno_error(failure.number, command + ": limit privileges");
    case Stage::kExec:
      break;
  }
  return errno_error(failure.number, command);
}

// An ordinary user stays that user. Only a user namespace, which needs a private root, can show
// another one.
Status plan_user(const ProcessOptions& options, SpawnPlan& plan) {
  plan.ordinary = !may_become_others();
  plan.user = options.user.value_or(User{.user = ::geteuid(), .group = ::getegid(), .groups = {}});
  plan.switch_user = options.user && !plan.ordinary;
  plan.uid_map = std::to_string(plan.user.user) + " " + std::to_string(::geteuid()) + " 1\n";
  plan.gid_map = std::to_string(plan.user.group) + " " + std::to_string(::getegid()) + " 1\n";
  const bool same = plan.user.user == ::geteuid() && plan.user.group == ::getegid();
  plan.show_user = plan.ordinary && !same;
  if (!plan.show_user || !plan.root.empty()) return {};
  return Error(Code::kForbidden, "start " + plan.program + ": user " + std::to_string(::geteuid()) +
                                     " cannot become user " + std::to_string(plan.user.user) +
                                     ", group " + std::to_string(plan.user.group));
}

Status plan_rights(const ProcessOptions& options, SpawnPlan& plan) {
  if (!options.rights) return {};
  plan.limit_rights = true;
  plan.rights = *options.rights;
  const Capabilities own = plan.ordinary ? 0 : internal::own_capabilities();
  if ((plan.rights.ambient & ~own) != 0 && plan.rights.ambient != kAllCapabilities)
    return Error(
        Code::kForbidden,
        "start " + plan.program + ": the child needs a capability that this program does not have");
  plan.rights.capabilities &= own;
  plan.rights.ambient &= own;
  if (plan.rights.calls == Calls::kFiltered) plan.filter = internal::call_filter();
  return {};
}

// Reads until exec closes the child's end of the pipe, or until a failure report arrives.
std::optional<Failure> read_report(int fd) {
  Failure failure;
  std::size_t size = 0;
  while (size < sizeof(failure)) {
    const ssize_t count = retry([&] {
      return ::read(fd, reinterpret_cast<char*>(&failure) + size, sizeof(failure) - size);
    });
    if (count <= 0) return std::nullopt;
    size += static_cast<std::size_t>(count);
  }
  return failure;
}

class RealProcesses final : public ProcessRunner {
 public:
  Result<ProcessId> start(const ProcessOptions& options) override {
    SpawnPlan plan;
    plan.program = options.program;
    plan_strings(options, plan);
    plan.working_directory =
        options.working_directory.empty() ? "/" : options.working_directory.string();
    plan.new_group = options.new_group;
    plan.die_with_parent = options.die_with_parent;
    plan.parent = ::getpid();
    TRY(plan.limits, plan_limits(options.limits));
    TRY(plan.root, internal::plan_root(options));
    TRY_VOID(plan_user(options, plan));
    TRY_VOID(plan_rights(options, plan));
    Descriptor output;
    if (options.output_descriptor >= 0) {
      output = Descriptor(::fcntl(options.output_descriptor, F_DUPFD_CLOEXEC, 3));
      if (!output.ok()) return errno_error(errno, "output descriptor");
      plan.output = output.get();
    } else if (!options.standard_output.empty()) {
      output = Descriptor(::open(options.standard_output.c_str(),
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640));
      if (!output.ok()) return errno_error(errno, "open " + options.standard_output.string());
      plan.output = output.get();
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "pipe");
    Descriptor read_end(ends[0]), write_end(ends[1]);
    plan.report = write_end.get();

    const pid_t pid = ::fork();
    if (pid < 0) return errno_error(errno, "start " + options.program + ": fork");
    if (pid == 0) internal::run_child(plan);
    write_end.reset();
    const std::optional<Failure> failure = read_report(read_end.get());
    // The pid stays reserved until waitpid(), so this is the child's start time even if it has
    // ended.
    const auto stat = internal::read_proc_stat(pid);
    if (failure || !stat) {
      retry([&] { return ::waitpid(pid, nullptr, 0); });
      if (!failure)
        return Error(Code::kInternal,
                     "start " + options.program + ": /proc has no data about the child");
      return explain(*failure, plan);
    }
    return ProcessId{.pid = pid, .start_ticks = stat->start_ticks};
  }

  Result<std::optional<ExitStatus>> poll(const ProcessId& id) override {
    const std::optional<ExitStatus> unknown_exit = ExitStatus{.code = -1, .signal = 0};
    const auto stat = internal::read_proc_stat(id.pid);
    if (!stat || stat->start_ticks != id.start_ticks) return unknown_exit;
    int raw = 0;
    const pid_t pid = retry([&] { return ::waitpid(id.pid, &raw, WNOHANG); });
    if (pid == 0) return std::optional<ExitStatus>();
    if (pid < 0) {
      if (errno != ECHILD) return errno_error(errno, "wait for process " + std::to_string(id.pid));
      return alive(id) ? std::nullopt : unknown_exit;
    }
    if (WIFSIGNALED(raw))
      return std::optional(ExitStatus{.code = 128 + WTERMSIG(raw), .signal = WTERMSIG(raw)});
    return std::optional(ExitStatus{.code = WEXITSTATUS(raw), .signal = 0});
  }
};

}  // namespace

ProcessRunner& real_processes() {
  static RealProcesses processes;
  return processes;
}

}  // namespace varda::os
