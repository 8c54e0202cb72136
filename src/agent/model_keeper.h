// ModelKeeper: installs, exposes and hides what the work list says, and tells how far it is.
//
// One thread decides (plan.h) and touches the model tree; installs run on threads of their own.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "agent/cascade_book.h"
#include "agent/desired.h"
#include "agent/download_progress.h"
#include "agent/install_schedule.h"
#include "agent/journal.h"
#include "agent/plan.h"
#include "agent/serving_poller.h"
#include "artifact/model_tree.h"
#include "artifact/store.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "replica/archives.h"
#include "runtime/strand.h"

namespace varda::agent {

class ModelKeeper {
 public:
  static constexpr std::size_t kCascadeBytesMax = 64 << 10;  // of EdgeNode.spec.models[].cascade
  // Of what is told of all tiers: a gateway takes a status of 1 MiB.
  static constexpr std::size_t kCascadeReportBytesMax = 384 << 10;

  struct Options {
    std::size_t install_threads = 2;
    RetryPolicy retry;
    ServingPoller::Options serving;
    std::chrono::seconds disk_period{60};
    std::chrono::milliseconds marks_period{2000};      // between looks at what people ask of the store (artifact/marks.h)
    std::chrono::milliseconds progress_period{10000};  // between figures of downloads, and before the first of one
    CascadeBook::Options cascades;                     // its clock is this one
    std::chrono::milliseconds cascade_retry{5000};     // of a cascade.json that the disk refused
    std::chrono::milliseconds last_words{3000};        // for servers to say what they counted, before run() returns
    const Clock* clock = nullptr;                      // null: the machine's; of `serving` too
    /// The client that knows a node; empty, or null from it: archives are not had from other nodes.
    std::function<net::HttpClient*(const std::string& node)> client_of_node;
    replica::Archives* archives = nullptr;  // null: none are shared from here
    metrics::Registry* metrics = nullptr;
  };
  /// Called on run()'s thread with the parts of the status that are about models and disk, when they change.
  /// The second is the uid of the EdgeNode whose generation they observed.
  using Report = std::function<void(const api::EdgeNodeStatus&, const std::string&)>;

  /// Everything given outlives it.
  ModelKeeper(Options options, artifact::Store& store, artifact::ModelTree& tree, os::FileSystem& fs, net::HttpClient& http,
              Journal& journal, Rng& rng, Report report);
  ~ModelKeeper();

  /// A version of the EdgeNode; kept on disk before it is acted on. One that says nothing (desired.h) is left out. Thread-safe.
  void set_desired(const api::EdgeNode& node);

  /// load(), then every strand on a thread of its own until the context is done. What servers have counted by then is kept: they
  /// may end next.
  void run(const Context& ctx);

  /// Takes up what was desired last. Before the first step.
  void load();
  /// Deciding and acting, asking the model servers, keeping what they count, and one for each install that may run at once.
  std::vector<runtime::Strand> strands();

 private:
  std::optional<SteadyTime> due() const;
  /// When there is something to look at though nothing happened.
  SteadyTime next_look() const REQUIRES(mutex_);
  std::map<JobKey, JobReport> jobs() const REQUIRES(mutex_);
  std::optional<SteadyTime> install_due() const;
  void install_loop(const Context& ctx);
  /// One job, if one is due.
  void install(const Context& ctx);
  /// One round: look, plan, act, report.
  void step();
  /// Whether something is to be installed anew.
  bool read_marks();
  /// Whether other figures are to be reported.
  bool look_at_disk();
  void note_ready_artifacts(const std::vector<JobKey>& jobs);
  void note_peers();
  void share_archives();
  void look_at_tree();
  /// The files cascade.json, before any target.
  void write_cascades();
  void act(const Plan& plan);
  /// The views of servers that know numbers only.
  void show_numbers();
  void save_failures();
  void publish();
  void wake();

  const Options options_;
  const Clock& clock_;
  artifact::Store& store_;
  artifact::ModelTree& tree_;
  os::FileSystem& fs_;
  Journal& journal_;
  Rng& rng_;
  const Report report_;
  CascadeBook book_;
  ServingPoller poller_;

  // Of run()'s thread.
  std::optional<api::EdgeNodeSpec> spec_;  // written under mutex_, for set_desired() to look
  std::string uid_;                        // of the EdgeNode that spec_ and generation_ are of
  std::int64_t generation_ = 0;
  std::map<std::string, Shown> shown_;
  std::map<std::string, std::map<std::string, JobKey>> exposed_;  // by this process: what a shown version holds
  struct NumberedState {                                          // what a view was made of
    std::string target;
    std::vector<std::string> versions;
    std::map<std::string, std::string> digests;
    std::vector<std::string> beside;
    friend bool operator==(const NumberedState&, const NumberedState&) = default;
  };
  std::map<std::string, NumberedState> numbered_;  // by this process
  struct Unwritten {                               // a cascade that did not get to the disk
    artifact::Reason reason;
    std::string word, message;
    friend bool operator==(const Unwritten&, const Unwritten&) = default;
  };
  std::map<std::string, Unwritten> unwritten_;                      // by model key
  std::map<codec::Sha256, std::set<std::string>> shared_with_;      // as the work list has it
  std::map<JobKey, JobReport> remembered_;                          // failures of a former life, until taken up
  std::optional<std::pair<std::string, codec::Json>> last_report_;  // with uid_
  api::EdgeDisk disk_;
  SteadyTime disk_due_;
  SteadyTime marks_due_;
  SteadyTime cascade_due_ = SteadyTime::max();

  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  bool dirty_ GUARDED_BY(mutex_) = false;
  std::optional<Desired> desired_ GUARDED_BY(mutex_);
  InstallSchedule schedule_ GUARDED_BY(mutex_);
  DownloadProgress progress_ GUARDED_BY(mutex_);
  std::map<JobKey, std::stop_source> running_ GUARDED_BY(mutex_);
  std::map<codec::Sha256, std::vector<api::EdgeReplicaSource>> peers_ GUARDED_BY(mutex_);  // as the work list has them
};

}  // namespace varda::agent
