// Repository: the models of a directory, followed.
//
// One thread watches the directory (layout.h). A version that is asked for and not there, or whose files were replaced, is loaded
// and warmed beside the one that serves; then requests go to the new one, those under way end on the old one, and the old one is
// dropped. A version that does not load leaves the old one serving, and its reason in index(). One that nobody has seen to load
// here is tried by a LoadProbe first. Nothing is ever written to the directory.
//
// A model with a cascade.json (serving/joint) is the first tier of several. File and version are put in force together: a version
// that does not put out what the file's policy reads is not switched to, and a file that does not fit the version that serves is
// not followed until one of both changes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
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
#include "os/file_system.h"
#include "serving/internal/directory_watch.h"
#include "serving/joint/center.h"
#include "serving/layout.h"
#include "serving/load_probe.h"
#include "serving/model_version.h"

namespace varda::serving {

/// Thread-safe. Its destructor waits for those who still have a version that find() gave them.
class Repository {
 public:
  struct Options {
    std::filesystem::path directory;
    ModelConfig defaults;
    unsigned loads_max = 2;                           // versions loading at a time
    std::chrono::milliseconds look_interval{1000};    // how often to look where nobody tells of changes
    std::chrono::milliseconds retry_interval{30000};  // of loads that failed for a reason that may pass (memory, a missing library)
    LoadProbe* probe = nullptr;                       // outlives the repository; null: every version is loaded untried
    joint::Center* joint = nullptr;                   // outlives the repository; null: cascade.json is not looked at
  };
  /// Begins to follow. kNotFound, kInvalid: the directory cannot be read. `fs`, `engines` and `registry` outlive it.
  static Result<std::unique_ptr<Repository>> open(Options options, os::FileSystem& fs, infer::Engines& engines,
                                                  metrics::Registry& registry);
  ~Repository();

  /// Forgets every model, at the server's end. False: after `patience` some version is still in use, by a run that does not end.
  bool release(std::chrono::milliseconds patience);

  /// The version that answers now; `version` "" means the active one. kNotFound: no such model, or that version is not loaded.
  /// kUnavailable: the model is known and none of its versions is loaded (yet); the message says why.
  Result<std::shared_ptr<ModelVersion>> find(std::string_view model, std::string_view version) const;

  /// Who answers requests that name no version.
  struct Serving {
    Result<std::shared_ptr<ModelVersion>> version;  // as find() has it
    std::shared_ptr<const joint::Plan> plan;        // the tiers, fitted to that version; null: there are none
  };
  Serving serving(std::string_view model) const;
  /// What the model's tiers do, as /v2/models/MODEL/cascade tells it. kNotFound: no such model, or it has no tiers.
  Result<codec::Json> describe_tiers(std::string_view model) const;

  /// By model: READY the active version, LOADING, and UNAVAILABLE with a reason what is wanted and does not load.
  std::vector<oip::IndexEntry> index() const;

  /// Whether every model in the directory has been loaded or has failed to since the start.
  bool settled() const;
  /// Waits until nothing is loading and the directory has been looked at since the call. For tests and start-up.
  Status wait_settled(const Context& ctx);

 private:
  struct Failure {
    std::string version;
    std::string fingerprint;
    LoadFailure why;
    std::optional<SteadyTime> retry_at;
  };
  // What to load next.
  struct Candidate {
    std::string version;
    std::string fingerprint;
    bool tried = false;     // it served here before: no probe
    bool fallback = false;  // not what is wanted, but what served last, for the time until that is loaded
  };
  struct Entry {
    Wanted wanted;
    std::shared_ptr<ModelVersion> active;
    std::string active_fingerprint;  // of the files it was loaded from
    std::string loading;             // version, "" none
    std::optional<Failure> failure;
    std::string fallback_failed;  // fingerprint of a last good version that did not load
    std::unique_ptr<ModelStats> stats;
    joint::Model* joint = nullptr;            // null: no cascade.json
    std::shared_ptr<const joint::Plan> plan;  // in force for `active`
  };
  // One load on a thread of its own. The thread touches `result` and `done` only.
  struct Load;
  // Where versions end up whose last reference is gone: they are destroyed on the following thread, never on one of their own.
  struct Retired;

  Repository(Options options, os::FileSystem& fs, infer::Engines& engines, metrics::Registry& registry);
  void follow(const std::stop_token& stop);
  void look();
  void collect();
  void apply(const std::string& model, Load& load) REQUIRES(mutex_);
  void follow_tiers(const std::string& model, Entry& entry, const std::optional<std::string>& file) REQUIRES(mutex_);
  void put_in_force(Entry& entry, std::shared_ptr<const joint::Plan> plan) REQUIRES(mutex_);
  Result<std::shared_ptr<ModelVersion>> find_locked(std::string_view model, std::string_view version) const REQUIRES(mutex_);
  void start_loads();
  void start_load(const std::string& model, Entry& entry, Candidate candidate) REQUIRES(mutex_);
  void fail(const std::string& model, Entry& entry, const Load& load, LoadFailure why) REQUIRES(mutex_);
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

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<Load>> loads_ GUARDED_BY(mutex_);  // by model
  std::uint64_t looks_ GUARDED_BY(mutex_) = 0;                             // begun
  std::uint64_t looks_done_ GUARDED_BY(mutex_) = 0;
  bool settled_ GUARDED_BY(mutex_) = false;
  bool complained_ = false;  // about an unreadable directory; the following thread's
  std::set<std::filesystem::path> watched_;
  std::jthread thread_;
};

}  // namespace varda::serving
