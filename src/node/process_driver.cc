#include "node/process_driver.h"

#include <charconv>
#include <filesystem>
#include <set>
#include <signal.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "node/internal/marked.h"

namespace varda::node {
namespace {

using internal::MarkedProcess;

constexpr const char* kSystemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const std::set<std::string> kOwnPrograms = {"varda", "varda-serve", "varda-train", "varda-aggregate"};

std::string id_text(const os::ProcessId& id) { return std::to_string(id.pid) + "-" + std::to_string(id.start_ticks); }

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

class ProcessDriver final : public Driver {
 public:
  ProcessDriver(ProcessDriverOptions options, os::ProcessRunner& processes) : options_(std::move(options)), processes_(processes) {
    if (options_.programs.empty()) options_.programs = os::self_path().parent_path();
  }

  std::string scheme() const override { return "process"; }
  LogFormat log_format() const override { return LogFormat::kRaw; }
  bool private_root() const override { return false; }
  // A pod is nothing but its containers.
  Result<std::string> prepare_pod(const PodConfig&) override { return std::string(); }
  Status remove_pod(const std::string&) override { return {}; }
  Result<std::vector<std::string>> pods() override { return std::vector<std::string>(); }

  Status check_image(const std::string& image) const override {
    TRY([[maybe_unused]] const std::vector<std::string> words, image_command(image));
    return {};
  }

  Result<std::string> start(const ContainerConfig& config) override {
    TRY(const os::ProcessOptions process, make_process(config, config.command, config.arguments));
    TRY(const os::ProcessId id, processes_.start(process));
    MutexLock lock(mutex_);
    if (exits_ && watched_.insert(id_text(id)).second) exits_->add(id);
    return id_text(id);
  }

  std::optional<ContainerExit> poll(const std::string& id_string, const ContainerName& name) override {
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
    // Before it is reaped: as long as the leader's pid is taken, the group's number is, too.
    (void)os::signal_process(*id, SIGKILL, true);
    sweep(name, SIGKILL);
    const auto status = processes_.poll(*id);
    if (!status.ok() || !*status || (*status)->code < 0)
      return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
    return ContainerExit{.code = (*status)->code, .signal = (*status)->signal, .known = true, .reason = ""};
  }

  void stop(const std::string& id_string, const ContainerName& name, StopSignal wanted) override {
    const int signal = wanted == StopSignal::kKill ? SIGKILL : SIGTERM;
    if (const auto id = parse_id(id_string)) (void)os::signal_process(*id, signal, true);
    if (wanted == StopSignal::kKill) sweep(name, SIGKILL);
  }

  Result<int> exec(const Context& ctx, const ContainerConfig& config, const std::vector<std::string>& command) override {
    TRY(os::ProcessOptions process, make_process(config, command, {}));
    process.environment[internal::kMarkExec] = "1";
    process.standard_output.clear();
    TRY(const os::ProcessId id, processes_.start(process));
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
      // The oldest leader of a group is the container; its children carry the same marks.
      if (process.exec || !process.leads_group || !seen.insert(process.name).second) continue;
      found.push_back({.name = process.name, .id = id_text(process.id)});
    }
    return found;
  }

  void on_exit(std::function<void()> wake) override {
    if (!wake) {
      std::unique_ptr<os::ExitWatch> ended;  // destroyed without the lock: it waits for its thread
      MutexLock lock(mutex_);
      ended = std::move(exits_);
      return;
    }
    auto exits = os::ExitWatch::create([wake = std::move(wake)](const os::ProcessId&) { wake(); });
    MutexLock lock(mutex_);
    if (exits.ok()) {
      exits_ = std::move(exits).value();
    } else {
      log::error("ends of containers are noticed late", {{"error", exits.error()}});
    }
  }

 private:
  std::string runner() const { return internal::runner_mark(options_.root); }

  // A process of a former life is watched from the first time somebody asks for it.
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

  // Where the program of that name stands.
  Result<std::string> program(const std::string& word) const {
    if (word.find('/') != std::string::npos) return word;
    if (const os::Path own = options_.programs / word; kOwnPrograms.contains(word) && executable(own)) return own.string();
    std::stringstream path(kSystemPath);
    for (std::string directory; std::getline(path, directory, ':');) {
      if (const os::Path candidate = os::Path(directory) / word; executable(candidate)) return candidate.string();
    }
    return Error(Code::kNotFound, "exec: \"" + word + "\": executable file not found in $PATH");
  }

  Result<std::vector<std::string>> image_command(const std::string& image) const {
    const std::string base = image_base_name(image);
    for (const std::string& name : {image, base}) {
      const auto mapped = options_.images.find(name);
      if (mapped == options_.images.end()) continue;
      std::istringstream words(mapped->second);
      std::vector<std::string> command;
      for (std::string word; words >> word;) command.push_back(word);
      if (!command.empty()) return command;
    }
    if (kOwnPrograms.contains(base)) {
      const os::Path own = options_.programs / base;
      if (executable(own)) return std::vector<std::string>{own.string()};
      return Error(Code::kUnsupported, "the program of image " + image + " is not installed: " + own.string() + " is missing");
    }
    return Error(Code::kUnsupported,
                 "the process driver runs programs, not images: start the node with --image " + base + "=COMMAND to run " + image);
  }

  Result<os::ProcessOptions> make_process(const ContainerConfig& config, const std::vector<std::string>& command,
                                          const std::vector<std::string>& arguments) const {
    TRY(std::vector<std::string> words, image_command(config.image));
    if (!command.empty()) words = command;
    words.insert(words.end(), arguments.begin(), arguments.end());
    os::ProcessOptions process;
    TRY(process.program, program(words.front()));
    process.arguments.assign(words.begin() + 1, words.end());
    process.environment = {{"PATH", options_.programs.string() + ":" + kSystemPath},
                           {"HOME", config.pod_directory.string()},
                           {"TMPDIR", (config.pod_directory / "tmp").string()},
                           {"POD_IP", config.pod_ip}};
    for (const auto& [name, value] : options_.environment) process.environment[name] = value;
    for (const auto& [name, value] : config.environment) process.environment[name] = value;
    process.environment[internal::kMarkRunner] = runner();
    process.environment[internal::kMarkPod] = config.name.pod_uid;
    process.environment[internal::kMarkContainer] = config.name.container;
    process.environment[internal::kMarkAttempt] = std::to_string(config.name.attempt);
    process.working_directory = config.working_directory.empty() ? config.pod_directory : os::Path(config.working_directory);
    process.standard_output = config.log;
    process.mounts = config.mounts;
    process.limits = {{"core", 0}};
    std::error_code error;
    std::filesystem::create_directories(config.pod_directory / "tmp", error);
    return process;
  }

  ProcessDriverOptions options_;
  os::ProcessRunner& processes_;
  Mutex mutex_;
  std::set<std::string> watched_ GUARDED_BY(mutex_);
  std::unique_ptr<os::ExitWatch> exits_ GUARDED_BY(mutex_);
};

}  // namespace

std::string image_base_name(const std::string& image) {
  std::string name = image.substr(0, image.find('@'));
  if (const std::size_t slash = name.rfind('/'); slash != std::string::npos) name = name.substr(slash + 1);
  return name.substr(0, name.find(':'));
}

Result<std::pair<std::string, std::string>> parse_image_flag(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return Error(Code::kInvalid, "--image wants NAME=COMMAND, got '" + text + "'");
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

std::unique_ptr<Driver> make_process_driver(ProcessDriverOptions options, os::ProcessRunner& processes) {
  return std::make_unique<ProcessDriver>(std::move(options), processes);
}

}  // namespace varda::node
