// LoadProbe: loads a version for the first time in a place where a crash does no harm.
//
// An engine that reads an unexpected file may crash its process, and with it every served model.
// Therefore a child process first loads and warms each version that never loaded on this machine.
// The child is the server itself, started with `--probe-load MODEL/VERSION`. The server loads the
// version only after the child reported success.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/process.h"
#include "serving/model_version.h"

namespace varda::serving {

/// Why a version does not load. `code` is LoadFailed (the engine refused it), LoadCrashed (the
/// process ended) or LoadTimedOut.
struct LoadFailure {
  std::string code;
  std::string message;
  /// When to retry with the same files; empty: never.
  std::optional<std::chrono::milliseconds> retry_after;
  friend bool operator==(const LoadFailure&, const LoadFailure&) = default;
};

/// Thread-safe.
class LoadProbe {
 public:
  virtual ~LoadProbe() = default;
  /// Loads and warms the version elsewhere and drops it. Empty: it loads, or the probe could not
  /// run (then the reason is logged). Blocks; a stopped context ends the probe with LoadTimedOut.
  virtual std::optional<LoadFailure> probe(const Context& ctx,
                                           const ModelVersion::Source& source) = 0;
};

/// Probes in child processes.
class ChildProbe final : public LoadProbe {
 public:
  struct Options {
    std::string program;                               // absolute path
    std::vector<std::string> arguments;                // `--probe-load MODEL/VERSION` is appended
    std::map<std::string, std::string> environment;    // the complete environment
    std::chrono::milliseconds timeout{600'000};        // for one load; 0: no limit
    std::chrono::milliseconds retry_interval{30'000};  // after failures that may pass
    std::chrono::milliseconds crash_retry_interval{3'600'000};
    std::function<void(pid_t)> started = {};  // called with each child
  };
  /// `processes` outlives the probe.
  explicit ChildProbe(Options options, os::ProcessRunner& processes = os::real_processes())
      : options_(std::move(options)), processes_(processes) {}

  std::optional<LoadFailure> probe(const Context& ctx, const ModelVersion::Source& source) override;

  /// Entry point of the child: loads, warms and drops the version, and writes the outcome to stdout
  /// as the last line. Returns the exit code. Makes the child the first victim of the OOM killer.
  static int child(const ModelVersion::Source& source, const ModelConfig& defaults,
                   os::FileSystem& fs, infer::Engines& engines);

 private:
  std::optional<LoadFailure> judge(const os::ExitStatus& ended, std::string_view output) const;

  const Options options_;
  os::ProcessRunner& processes_;
};

}  // namespace varda::serving
