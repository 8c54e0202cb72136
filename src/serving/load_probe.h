// LoadProbe: a version's first load, where a crash hurts nobody.
//
// An engine that meets a file it was not written for may end its process, and with it every model served there. So a version that
// has not been seen to load on this machine is first loaded and warmed by a child process of the server: the server itself, started
// with `--probe-load MODEL/VERSION`. Only if the child lives to tell that it loads is it loaded in the server.
#pragma once

#include <chrono>
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

/// Why a version does not load. `code` is one word: LoadFailed (the engine says so), LoadCrashed (its process ended), LoadTimedOut.
struct LoadFailure {
  std::string code;
  std::string message;
  /// When to try again with the same files; nothing: never.
  std::optional<std::chrono::milliseconds> retry_after;
  friend bool operator==(const LoadFailure&, const LoadFailure&) = default;
};

/// Thread-safe.
class LoadProbe {
 public:
  virtual ~LoadProbe() = default;
  /// Loads and warms the version elsewhere and drops it. Nothing: it loads, or nobody can tell (then the reason is logged). Blocks;
  /// a stopped context ends it with LoadTimedOut.
  virtual std::optional<LoadFailure> probe(const Context& ctx, const ModelVersion::Source& source) = 0;
};

/// Child processes.
class ChildProbe final : public LoadProbe {
 public:
  struct Options {
    std::string program;                               // absolute path
    std::vector<std::string> arguments;                // `--probe-load MODEL/VERSION` is appended
    std::map<std::string, std::string> environment;    // all of it
    std::chrono::milliseconds timeout{600'000};        // of one load; 0: none
    std::chrono::milliseconds retry_interval{30'000};  // of loads that failed for a reason that may pass
    std::chrono::milliseconds crash_retry_interval{3'600'000};
  };
  /// `processes` outlives it.
  explicit ChildProbe(Options options, os::ProcessRunner& processes = os::real_processes())
      : options_(std::move(options)), processes_(processes) {}

  std::optional<LoadFailure> probe(const Context& ctx, const ModelVersion::Source& source) override;

  /// What the child does: loads, warms and drops the version, and writes the outcome to stdout as its last line. The exit code.
  /// Makes itself the first to go when memory runs out.
  static int child(const ModelVersion::Source& source, const ModelConfig& defaults, os::FileSystem& fs, infer::Engines& engines);

 private:
  std::optional<LoadFailure> judge(const os::ExitStatus& ended, std::string_view output) const;

  const Options options_;
  os::ProcessRunner& processes_;
};

}  // namespace varda::serving
