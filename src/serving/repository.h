// Repository: follows a directory of models.
//
// One thread watches the directory (layout.h). A wanted version that is not loaded, or that has new
// files, is loaded and warmed beside the active one. Then new requests use the new version, running
// ones finish on the old version, and the old version is dropped. If a version does not load, the
// old one stays active, and index() shows the reason. A LoadProbe first tries each version that
// never loaded here. The repository never writes to the directory.
//
// A model with a joint.json (serving/joint) is the first tier of several. File and version take
// effect together. A version that lacks an output which the file's policy reads does not become
// active. A file that does not fit the active version is ignored until one of the two changes.
//
// A model with a trial.json has a second loaded version (serving/trial). If the target changes to
// that version, the loaded version becomes the active one at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/context.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "infer/engine.h"
#include "oip/metadata.h"
#include "os/available_memory.h"
#include "os/file_system.h"
#include "serving/internal/directory_watch.h"
#include "serving/joint/tier_runtime.h"
#include "serving/layout.h"
#include "serving/load_probe.h"
#include "serving/model_version.h"
#include "serving/trial/trial.h"

namespace varda::serving {

/// Thread-safe. The destructor waits until callers have dropped every version that find() gave
/// them.
class Repository {
 public:
  struct Options {
    std::filesystem::path directory;
    ModelConfig defaults;
    unsigned loads_max = 2;                          // concurrent loads
    std::chrono::milliseconds check_interval{1000};  // scan interval, in case events are missing
    std::chrono::milliseconds retry_interval{
        30000};                  // after failures that may pass (memory, a missing library)
    LoadProbe* probe = nullptr;  // outlives the repository; null: no probes
    joint::TierRuntime* joint = nullptr;  // likewise; null: joint.json is ignored
    /// Bytes that a version on trial may use. Nothing: unknown, and the version is loaded.
    std::function<std::optional<std::uint64_t>()> available_memory = os::available_memory;
  };
  /// Starts to follow the directory. kNotFound, kInvalid: the directory cannot be read. `fs`,
  /// `engines` and `registry` outlive the repository.
  static Result<std::unique_ptr<Repository>> open(Options options, os::FileSystem& fs,
                                                  infer::Engines& engines,
                                                  metrics::Registry& registry);
  ~Repository();

  /// Forgets every model, for shutdown. False: after `patience` a run still uses some version.
  bool release(std::chrono::milliseconds patience);

  /// The version for a request; `version` "" means the active one. kNotFound: no such model, or the
  /// version is not loaded. kUnavailable: the model is known but has no loaded version (yet); the
  /// message has the reason.
  Result<std::shared_ptr<ModelVersion>> find(std::string_view model,
                                             std::string_view version) const;

  /// The parts that answer requests without a version.
  struct Serving {
    Result<std::shared_ptr<ModelVersion>> version;  // as from find()
    std::shared_ptr<const joint::Plan> plan;  // the tiers, fitted to that version; null: no tiers
    std::shared_ptr<trial::Trial> trial;      // of that version; null: no second version is ready
  };
  Serving serving(std::string_view model) const;
  /// State of the model's tiers, for /v2/models/MODEL/joint. kNotFound: no such model, or no
  /// tiers.
  Result<codec::Json> describe_tiers(std::string_view model) const;
  /// State of the model's trial, and counts of the active version, for /v2/models/MODEL/trial.
  /// kNotFound: no such model.
  Result<codec::Json> describe_trial(std::string_view model) const;

  /// All models: READY for the active version, LOADING, and UNAVAILABLE with a reason for a wanted
  /// version that does not load.
  std::vector<oip::IndexEntry> index() const;

  /// True once every model in the directory has loaded or failed to load since the start.
  bool settled() const;
  /// Waits until no load is running and a scan has begun and ended since the call. For tests and
  /// start-up.
  Status wait_settled(const Context& ctx);

 private:
  struct Failure {
    std::string version;
    std::string fingerprint;
    LoadFailure why;
    std::optional<SteadyTime> retry_at;
  };
  // The next version to load.
  struct Candidate {
    std::string version;
    std::string fingerprint;
    bool tried = false;     // it served here before: no probe
    bool fallback = false;  // the last good version, until the wanted one is loaded
    bool trial = false;     // to answer beside the active version
  };
  struct Entry {
    Wanted wanted;
    std::shared_ptr<ModelVersion> active;
    std::string active_fingerprint;  // identifies the files it was loaded from
    std::string loading;             // version, "" if none
    std::optional<Failure> failure;
    std::string fallback_failed;  // fingerprint of a last good version that did not load
    std::unique_ptr<ModelStats> stats;
    joint::Model* joint = nullptr;            // null: no joint.json
    std::shared_ptr<const joint::Plan> plan;  // in force for `active`
    // The version of trial.json, once it is loaded.
    std::shared_ptr<ModelVersion> second;
    std::string second_fingerprint;
    std::string trial_loading;  // version, "" if none
    std::optional<Failure> trial_failure;
    std::shared_ptr<trial::Trial> trial;  // of `active` and `second`
    codec::Json ended_trial;              // the last report of a trial that became active
  };
  // One load on a separate thread. That thread touches `result` and `done` only.
  struct Load;
  // Collects versions without references. The following thread destroys them, never a thread of the
  // version itself.
  struct Retired;

  Repository(Options options, os::FileSystem& fs, infer::Engines& engines,
             metrics::Registry& registry);
  void follow(const std::stop_token& stop);
  void look();
  void collect();
  void apply(const std::string& model, Load& load) REQUIRES(mutex_);
  void follow_tiers(const std::string& model, Entry& entry, const std::optional<std::string>& file)
      REQUIRES(mutex_);
  void put_in_force(Entry& entry, std::shared_ptr<const joint::Plan> plan) REQUIRES(mutex_);
  Result<std::shared_ptr<ModelVersion>> find_locked(std::string_view model,
                                                    std::string_view version) const
      REQUIRES(mutex_);
  void start_loads();
  void start_load(const std::string& model, Entry& entry, Candidate candidate) REQUIRES(mutex_);
  void apply_trial(const std::string& model, Load& load) REQUIRES(mutex_);
  void activate(const std::string& model, Entry& entry, std::shared_ptr<ModelVersion> version,
                std::string fingerprint) REQUIRES(mutex_);
  void follow_trial(const std::string& model, Entry& entry) REQUIRES(mutex_);
  std::optional<Candidate> next_trial(const Entry& entry) const REQUIRES(mutex_);
  std::optional<LoadFailure> lacks_memory(const std::filesystem::path& directory) const;
  void fail(const std::string& model, Entry& entry, const Load& load, LoadFailure why)
      REQUIRES(mutex_);
  bool serves_wanted(const Entry& entry) const REQUIRES(mutex_);
  std::optional<Candidate> next_load(const Entry& entry) const REQUIRES(mutex_);
  bool quiet() const REQUIRES(mutex_);
  std::shared_ptr<ModelVersion> share(std::unique_ptr<ModelVersion> version);

  const Options options_;
  os::FileSystem& fs_;
  infer::Engines& engines_;
  metrics::Registry& registry_;
  internal::DirectoryWatch watch_;
  const std::shared_ptr<Retired> retired_;
  trial::ShadowRunner shadows_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mutex_);
  // Keys are models, with kTrialSuffix for a version on trial.
  std::map<std::string, std::unique_ptr<Load>> loads_ GUARDED_BY(mutex_);
  std::uint64_t scans_ GUARDED_BY(mutex_) = 0;  // scans begun
  std::uint64_t scans_done_ GUARDED_BY(mutex_) = 0;
  bool settled_ GUARDED_BY(mutex_) = false;
  bool complained_ = false;  // an unreadable directory was logged; following thread only
  std::set<std::filesystem::path> watched_;
  std::jthread thread_;
};

}  // namespace varda::serving
