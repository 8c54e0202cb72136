#include "node/process_driver.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <signal.h>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "node/internal/marked.h"
#include "node/internal/process_rules.h"

namespace varda::node {
namespace {

using internal::MarkedProcess;

constexpr const char* kSystemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const std::set<std::string> kOwnPrograms = {"varda", "varda-serve", "varda-train",
                                            "varda-aggregate"};

std::string id_text(const os::ProcessId& id) {
  return std::to_string(id.pid) + "-" + std::to_string(id.start_ticks);
}

std::optional<os::ProcessId> parse_id(const std::string& text) {
  os::ProcessId id;
  const char* end = text.data() + text.size();
  const auto pid = std::from_chars(text.data(), end, id.pid);
  if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != '-') return std::nullopt;
  const auto start = std::from_chars(pid.ptr + 1, end, id.start_ticks);
  if (start.ec != std::errc() || start.ptr != end || id.pid <= 1) return std::nullopt;
  return id;
}

bool executable(const os::Path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// The outermost directory of `path` that the user may not enter. Nothing: all can be entered, or
// one is missing.
std::optional<os::Path> closed_directory(const os::Path& path, const os::User& user) {
  os::Path at;
  for (const os::Path& part : path.parent_path()) {
    at /= part;
    struct stat info;
    if (::stat(at.c_str(), &info) != 0) return std::nullopt;
    const bool in_group =
        info.st_gid == user.group ||
        std::find(user.groups.begin(), user.groups.end(), info.st_gid) != user.groups.end();
    const mode_t wanted = info.st_uid == user.user ? S_IXUSR : in_group ? S_IXGRP : S_IXOTH;
    if ((info.st_mode & wanted) == 0) return at;
  }
  return std::nullopt;
}

bool enters_every_directory(const os::ProcessOptions& process) {
  const os::Capabilities overrides = *os::capabilities_named("DAC_OVERRIDE");
  return process.user->user == 0 &&
         (!process.rights || (process.rights->capabilities & overrides) != 0);
}

// A directory for containers of any user. Containers may own the parent, so links in its place are
// not followed.
Result<int> open_shared_directory(int parent, const char* name, mode_t mode) {
  if (::mkdirat(parent, name, mode) != 0 && errno != EEXIST)
    return Error(Code::kInternal,
                 std::string("make directory ") + name + ": " + std::strerror(errno));
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return Error(Code::kInternal,
                 std::string("open directory ") + name + ": " + std::strerror(errno));
  if (::fchmod(fd, mode) == 0) return fd;
  const int number = errno;
  ::close(fd);
  return Error(Code::kInternal,
               std::string("set mode of directory ") + name + ": " + std::strerror(number));
}

class ProcessDriver final : public Driver {
 public:
  ProcessDriver(ProcessDriverOptions options, os::ProcessRunner& processes)
      : options_(std::move(options)), processes_(processes) {
    if (options_.programs.empty()) options_.programs = os::self_path().parent_path();
    if (!options_.root.empty()) options_.hidden.push_back(options_.root);
  }

  std::string scheme() const override { return "process"; }
  LogFormat log_format() const override { return LogFormat::kRaw; }
  bool private_root() const override { return false; }
  // A pod has no state besides its containers.
  Result<std::string> prepare_pod(const PodConfig&) override { return std::string(); }
  Status remove_pod(const std::string&) override { return {}; }
  Result<std::vector<std::string>> pods() override { return std::vector<std::string>(); }

  Status check_image(const std::string& image) const override {
    TRY([[maybe_unused]] const ImageCommand command, image_command(image));
    return {};
  }

  Result<std::string> start(const ContainerConfig& config) override {
    TRY(os::ProcessOptions process, make_process(config, config.command, config.arguments));
    TRY(const os::ProcessId id, run(config, std::move(process)));
    MutexLock lock(mutex_);
    if (exits_ && watched_.insert(id_text(id)).second) exits_->add(id);
    return id_text(id);
  }

  std::optional<ContainerExit> poll(const std::string& id_string,
                                    const ContainerName& name) override {
    const auto id = parse_id(id_string);
    if (!id) return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
    if (os::alive(*id)) {
      watch(*id);
      return std::nullopt;
    }
    {
      MutexLock lock(mutex_);
      watched_.erase(id_string);
    }
    // Kill the group before the leader is reaped: until then, its number cannot be reused.
    (void)os::signal_process(*id, SIGKILL, true);
    sweep(name, SIGKILL);
    const auto status = processes_.poll(*id);
    if (status.ok() && !*status) {
      watch(*id);
      return std::nullopt;
    }
    if (!status.ok() || !*status || (*status)->code < 0)
      return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
    return ContainerExit{
        .code = (*status)->code, .signal = (*status)->signal, .known = true, .reason = ""};
  }

  void stop(const std::string& id_string, const ContainerName& name, StopSignal wanted) override {
    const int signal = wanted == StopSignal::kKill ? SIGKILL : SIGTERM;
    if (const auto id = parse_id(id_string)) (void)os::signal_process(*id, signal, true);
    if (wanted == StopSignal::kKill) sweep(name, SIGKILL);
  }

  Result<int> exec(const Context& ctx, const ContainerConfig& config,
                   const std::vector<std::string>& command) override {
    TRY(os::ProcessOptions process, make_process(config, command, {}));
    process.environment[internal::kMarkExec] = "1";
    process.standard_output.clear();
    TRY(const os::ProcessId id, run(config, std::move(process)));
    const Status ended = os::wait_for_exit(ctx, id);
    if (!ended.ok()) {
      (void)os::signal_process(id, SIGKILL, true);
      (void)os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(5)), id);
    }
    TRY(const std::optional<os::ExitStatus> status, processes_.poll(id));
    TRY_VOID(ended);
    return status ? status->code : -1;
  }

  Result<std::vector<FoundContainer>> find() override {
    std::vector<FoundContainer> found;
    std::set<ContainerName> seen;
    for (const MarkedProcess& process : internal::find_marked(options_.root)) {
      // The oldest group leader is the container; children carry the same marks.
      if (process.exec || !process.leads_group || !seen.insert(process.name).second) continue;
      found.push_back({.name = process.name, .id = id_text(process.id)});
    }
    return found;
  }

  void on_exit(std::function<void()> wake) override {
    if (!wake) {
      std::unique_ptr<os::ExitWatch>
          ended;  // destroyed without the lock, because it joins its thread
      MutexLock lock(mutex_);
      ended = std::move(exits_);
      return;
    }
    auto exits = os::ExitWatch::create([wake = std::move(wake)](const os::ProcessId&) { wake(); });
    MutexLock lock(mutex_);
    if (exits.ok()) {
      exits_ = std::move(exits).value();
    } else {
      log::error("cannot watch processes, container exits are noticed late",
                 {{"error", exits.error()}});
    }
  }

 private:
  std::string runner() const { return internal::runner_mark(options_.root); }

  // A process of a previous run is watched from its first poll.
  void watch(const os::ProcessId& id) {
    MutexLock lock(mutex_);
    if (!exits_ || !watched_.insert(id_text(id)).second) return;
    exits_->add(id);
  }

  // Children that left the group still carry the marks.
  void sweep(const ContainerName& name, int signal) {
    for (const MarkedProcess& process : internal::find_marked(options_.root)) {
      if (process.name == name) (void)os::signal_process(process.id, signal, false);
    }
  }

  // Path of the program with that name.
  Result<std::string> program(const std::string& name) const {
    if (name.find('/') != std::string::npos) return name;
    if (const os::Path own = options_.programs / name;
        kOwnPrograms.contains(name) && executable(own))
      return own.string();
    std::stringstream path(kSystemPath);
    for (std::string directory; std::getline(path, directory, ':');) {
      if (const os::Path candidate = os::Path(directory) / name; executable(candidate))
        return candidate.string();
    }
    return Error(Code::kNotFound, "exec: \"" + name + "\": executable file not found in $PATH");
  }

  struct ImageCommand {
    internal::ImageKind kind = internal::ImageKind::kMapped;
    std::vector<std::string> words;
  };

  Result<ImageCommand> image_command(const std::string& image) const {
    const std::string base = image_base_name(image);
    for (const std::string& name : {image, base}) {
      const auto mapped = options_.images.find(name);
      if (mapped == options_.images.end()) continue;
      std::istringstream words(mapped->second);
      ImageCommand command;
      for (std::string word; words >> word;) command.words.push_back(word);
      if (!command.words.empty()) return command;
    }
    if (kOwnPrograms.contains(base)) {
      const os::Path own = options_.programs / base;
      if (executable(own))
        return ImageCommand{.kind = internal::ImageKind::kOwn, .words = {own.string()}};
      return Error(Code::kUnsupported, "the program of image " + image +
                                           " is not installed: " + own.string() + " is missing");
    }
    return Error(Code::kUnsupported,
                 "the process driver runs programs, not images: start the node with --image " +
                     base + "=COMMAND to run " + image);
  }

  Result<os::ProcessOptions> make_process(const ContainerConfig& config,
                                          const std::vector<std::string>& command,
                                          const std::vector<std::string>& arguments) const {
    TRY(const ImageCommand image, image_command(config.image));
    TRY(internal::ProcessRules rules,
        internal::process_rules(config, image.kind, internal::this_user()));
    std::vector<std::string> words = command.empty() ? image.words : command;
    words.insert(words.end(), arguments.begin(), arguments.end());
    os::ProcessOptions process;
    TRY(process.program, program(words.front()));
    process.arguments.assign(words.begin() + 1, words.end());
    process.environment = {{"PATH", options_.programs.string() + ":" + kSystemPath},
                           {"POD_IP", config.pod_ip}};
    set_directory(process, config, config.pod_directory);
    for (const auto& [name, value] : options_.environment) process.environment[name] = value;
    for (const auto& [name, value] : config.environment) process.environment[name] = value;
    process.environment[internal::kMarkRunner] = runner();
    process.environment[internal::kMarkPod] = config.name.pod_uid;
    process.environment[internal::kMarkContainer] = config.name.container;
    process.environment[internal::kMarkAttempt] = std::to_string(config.name.attempt);
    process.standard_output = config.log;
    process.limits = {{"core", 0}};
    process.user = rules.user;
    process.rights = rules.rights;
    process.read_only_root = rules.read_only_root;
    process.mounts = config.mounts;
    process.hidden = options_.hidden;
    // The pod's directory holds its record and secrets. A container sees only its `work`
    // subdirectory.
    TRY_VOID(make_work_directory(config.pod_directory));
    process.mounts.push_back({.source = config.pod_directory / kWork,
                              .target = config.pod_directory.string(),
                              .read_only = false});
    reveal_paths(process);
    return process;
  }

  static void set_directory(os::ProcessOptions& process, const ContainerConfig& config,
                            const os::Path& directory) {
    process.environment["HOME"] = directory.string();
    process.environment["TMPDIR"] = (directory / "tmp").string();
    process.working_directory =
        config.working_directory.empty() ? directory : os::Path(config.working_directory);
  }

  static Status make_work_directory(const os::Path& pod_directory) {
    std::error_code error;
    std::filesystem::create_directories(pod_directory, error);
    TRY(const int work, open_shared_directory(AT_FDCWD, (pod_directory / kWork).c_str(), 0777));
    const Result<int> scratch = open_shared_directory(work, "tmp", 01777);
    ::close(work);
    TRY(const int fd, scratch);
    ::close(fd);
    return {};
  }

  // Some users cannot enter the directories above our programs and mounts, for example a closed
  // home. Such a directory is replaced by an empty one that contains only these paths.
  void reveal_paths(os::ProcessOptions& process) const {
    if (!process.user || !os::may_become_others() || enters_every_directory(process)) return;
    std::vector<os::Path> wanted;
    for (const os::Mount& mount : process.mounts) wanted.emplace_back(mount.target);
    for (const os::Path& path :
         {options_.programs, options_.programs.parent_path() / "lib" / "varda"}) {
      std::error_code error;
      if (!closed_directory(path / "x", *process.user) ||
          !std::filesystem::is_directory(path, error))
        continue;
      process.mounts.push_back({.source = path, .target = path.string(), .read_only = true});
      wanted.push_back(path);
    }
    for (const os::Path& path : wanted) {
      if (auto closed = closed_directory(path, *process.user))
        process.hidden.push_back(std::move(*closed));
    }
  }

  // Without namespaces, a container without mounts still runs, but sees all files of its user.
  Result<os::ProcessId> run(const ContainerConfig& config, os::ProcessOptions process) {
    auto id = processes_.start(process);
    if (id.ok() || id.error().code() != Code::kUnsupported || !config.mounts.empty()) return id;
    if (process.read_only_root)
      return Error(Code::kForbidden, "readOnlyRootFilesystem: " + id.error().message());
    if (!warned_.exchange(true)) {
      log::warn("pods can read all files of their user: this machine allows no private root",
                {{"user", std::to_string(::geteuid())}, {"error", id.error()}});
    }
    process.mounts.clear();
    process.hidden.clear();
    set_directory(process, config, config.pod_directory / kWork);
    for (const auto& [name, value] : config.environment) process.environment[name] = value;
    return processes_.start(process);
  }

  static constexpr const char* kWork = "work";
  std::atomic<bool> warned_{false};
  ProcessDriverOptions options_;
  os::ProcessRunner& processes_;
  Mutex mutex_;
  std::set<std::string> watched_ GUARDED_BY(mutex_);
  std::unique_ptr<os::ExitWatch> exits_ GUARDED_BY(mutex_);
};

}  // namespace

std::string image_base_name(const std::string& image) {
  std::string name = image.substr(0, image.find('@'));
  if (const std::size_t slash = name.rfind('/'); slash != std::string::npos)
    name = name.substr(slash + 1);
  return name.substr(0, name.find(':'));
}

Result<std::pair<std::string, std::string>> parse_image_flag(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return Error(Code::kInvalid, "--image must be NAME=COMMAND, not '" + text + "'");
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

std::unique_ptr<Driver> make_process_driver(ProcessDriverOptions options,
                                            os::ProcessRunner& processes) {
  return std::make_unique<ProcessDriver>(std::move(options), processes);
}

}  // namespace varda::node
