#include "serving/load_probe.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "codec/json.h"

namespace varda::serving {
namespace {

using codec::Json;

// Exit codes of the child. An engine that calls exit() uses another code, or does not write the
// line.
constexpr int kLoads = 0, kDoesNotLoad = 3;
constexpr std::string_view kOutcome = "varda-serve probe-load: ";

// A file in memory for the child's output: the last lines before a crash are the best hint at the
// cause. A confined server may not create other files.
class Output {
 public:
  Output() : fd_(::memfd_create("varda-probe", MFD_CLOEXEC)) {}
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  Output(const Output&) = delete;

  /// -1 if there is no file: then the exit code alone counts.
  int descriptor() const { return fd_; }
  // The last bytes of the output.
  std::string tail() const {
    constexpr off_t kMax = 16384;
    const off_t size = fd_ < 0 ? 0 : ::lseek(fd_, 0, SEEK_END);
    std::string text(static_cast<std::size_t>(std::clamp<off_t>(size, 0, kMax)), '\0');
    const ssize_t count = text.empty() ? 0
                                       : ::pread(fd_, text.data(), text.size(),
                                                 size - static_cast<off_t>(text.size()));
    text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return text;
  }

 private:
  const int fd_;
};

std::string_view last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const std::size_t at = text.rfind('\n');
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

}  // namespace

std::optional<LoadFailure> ChildProbe::judge(const os::ExitStatus& ended,
                                             std::string_view output) const {
  const std::string_view last = last_line(output);
  if (ended.signal == 0 && last.starts_with(kOutcome)) {
    if (ended.code == kLoads) return std::nullopt;
    const Json outcome = codec::parse_json(last.substr(kOutcome.size())).value_or(Json());
    if (ended.code == kDoesNotLoad && outcome.is_object()) {
      LoadFailure failure{"LoadFailed", outcome["message"].as_string(), std::nullopt};
      if (outcome["mayPass"].as_bool()) failure.retry_after = options_.retry_interval;
      return failure;
    }
  }
  // Without recorded output the exit code alone decides.
  if (ended.signal == 0 && ended.code == kLoads && output.empty()) return std::nullopt;
  LoadFailure failure{"LoadCrashed", "", options_.crash_retry_interval};
  failure.message =
      "the engine ended its process while loading (" +
      (ended.signal != 0 ? signal_name(ended.signal) : "exit code " + std::to_string(ended.code)) +
      ")";
  if (ended.signal == SIGKILL) failure.message += "; memory may have run out";
  if (!last.empty() && !last.starts_with(kOutcome))
    failure.message += "; last output: " + std::string(last.substr(0, 512));
  return failure;
}

std::optional<LoadFailure> ChildProbe::probe(const Context& ctx,
                                             const ModelVersion::Source& source) {
  Output output;
  os::ProcessOptions start{.program = options_.program,
                           .arguments = options_.arguments,
                           .environment = options_.environment,
                           .working_directory = std::filesystem::current_path(),
                           .output_descriptor = output.descriptor(),
                           .mounts = {},
                           .limits = {{"core", 0}},
                           .new_group = false,  // signals to the server's group reach the child
                           .die_with_parent = true};
  start.arguments.insert(start.arguments.end(),
                         {"--probe-load", source.model + "/" + source.version});
  const auto child = processes_.start(start);
  if (!child.ok()) {
    // An untried load is better than none: most sandboxes that forbid processes hold models that
    // were tried before.
    log::warn("probe process not started, loading model version without a probe",
              {{"model", source.model}, {"version", source.version}, {"error", child.error()}});
    return std::nullopt;
  }
  if (options_.started) options_.started(child->pid);
  const Context limited = options_.timeout.count() > 0 ? ctx.with_timeout(options_.timeout) : ctx;
  const Status waited = os::wait_for_exit(limited, *child);
  if (!waited.ok()) (void)os::signal_process(*child, SIGKILL, false);
  (void)os::wait_for_exit(Context::background(), *child);
  const auto ended = processes_.poll(*child);
  if (!waited.ok()) {
    return LoadFailure{"LoadTimedOut",
                       "the version did not load within " +
                           std::to_string(options_.timeout.count() / 1000) + " s (--load-timeout)",
                       options_.crash_retry_interval};
  }
  if (!ended.ok() || !ended->has_value()) {
    return LoadFailure{"LoadFailed", "the exit status of the probe process is unknown",
                       options_.retry_interval};
  }
  return judge(**ended, output.tail());
}

int ChildProbe::child(const ModelVersion::Source& source, const ModelConfig& defaults,
                      os::FileSystem& fs, infer::Engines& engines) {
  // The OOM killer must choose the child, not the server. Raising one's own score needs no
  // privilege.
  if (std::FILE* score = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("1000\n", score);
    std::fclose(score);
  }
  (void)!::nice(5);
  metrics::Registry registry;
  auto loaded = ModelVersion::load(source, defaults, fs, engines, registry);
  Json outcome = Json::object({{"loads", loaded.ok()}});
  if (loaded.ok()) {
    // The server will also drop the version one day, so a crash in the destructor counts.
    loaded->reset();
  } else {
    outcome.set("message", loaded.error().message());
    outcome.set("mayPass", !loaded.error().terminal());
  }
  std::fflush(nullptr);
  const std::string line = "\n" + std::string(kOutcome) + codec::write_json(outcome) + "\n";
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
  return loaded.ok() ? kLoads : kDoesNotLoad;
}

}  // namespace varda::serving
