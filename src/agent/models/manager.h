// Manager: installs, exposes and hides models as the work list demands, and reports the progress.
//
// One thread decides (plan.h) and changes the model tree. Installs run on separate threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "agent/core/component.h"
#include "agent/core/state_store.h"
#include "agent/models/download_progress.h"
#include "agent/models/install_schedule.h"
#include "agent/models/plan.h"
#include "agent/models/serving_poller.h"
#include "agent/models/tier_counter_store.h"
#include "artifact/model_tree.h"
#include "artifact/store.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "replica/archives.h"

namespace varda::agent::models {

class Manager final : public core::NodeComponent {
 public:
  static constexpr std::size_t kJointBytesMax = 64 << 10;  // of EdgeNode.spec.models[].joint
  // Total size of the tier reports: the gateway rejects a status above 1 MiB.
  static constexpr std::size_t kJointReportBytesMax = 384 << 10;

  struct Options {
    std::size_t install_threads = 2;
    RetryPolicy retry;
    ServingPoller::Options serving;
    std::chrono::seconds disk_period{60};
    std::chrono::milliseconds requests_period{
        2000};  // between reads of the marks (artifact/operator_requests.h)
    std::chrono::milliseconds progress_period{10000};  // between progress reports of downloads
    TierCounterStore::Options joint_reports;           // `clock` below overrides its clock
    std::chrono::milliseconds joint_retry{5000};       // retry of a failed write of joint.json
    std::chrono::milliseconds last_output{3000};       // for a last poll in finish()
    const Clock* clock = nullptr;  // null: the system clock; `serving` uses it too
    /// The client that authenticates a node. Empty, or if it returns null: archives are not fetched
    /// from other nodes.
    std::function<net::HttpClient*(const std::string& node)> client_of_node;
    std::vector<std::string> file_roots;    // for status.fileRoots
    replica::Archives* archives = nullptr;  // null: this node serves no archives
    os::Path sample_root;                   // of kept samples; "": none are kept
    metrics::Registry* metrics = nullptr;
  };
  /// All references outlive the manager.
  Manager(Options options, artifact::Store& store, artifact::ModelTree& tree, os::FileSystem& fs,
          net::HttpClient& http, core::StateStore& state_store, Rng& rng);
  ~Manager() override;

  void apply(const core::WorkList& list) override;
  /// Restores tier counters and failed installs.
  void load() override;
  void adopt(const api::EdgeNodeStatus& live) override;
  /// Deciding and acting, polling model servers, saving counters, and one task per concurrent
  /// install.
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override;
  /// Saves the servers' latest counters, because the servers may stop next.
  void finish() override;

 private:
  std::optional<SteadyTime> due() const;
  /// The next time to look without an event.
  SteadyTime next_check() const REQUIRES(mutex_);
  std::map<JobKey, JobReport> jobs() const REQUIRES(mutex_);
  std::optional<SteadyTime> install_due() const;
  /// Runs one job, if one is due.
  void install(const Context& ctx);
  void step();
  /// One round: schedules installs, changes the model tree by the plan, and sets the polls.
  void carry_out();
  void schedule_installs();
  /// The world as the plan sees it: jobs, shown_ and the servers' answers.
  World world() const;
  /// Whether something must be installed again.
  bool read_requests();
  /// Whether the reported figures changed.
  bool check_disk();
  void note_ready_artifacts(const std::vector<JobKey>& jobs);
  void note_peers();
  void note_bases();
  void share_archives();
  /// Updates shown_ from the model tree.
  void check_tree();
  /// Writes the joint.json files, before any target.
  void write_joint_files();
  /// Removes the kept samples of models that are not in the work list. Looks again until nothing
  /// is left: a server that ends may write once more.
  void remove_old_samples();
  /// Writes the samples.json files, and makes the directories of kept samples.
  void write_samples_files();
  void act(const Plan& plan);
  /// Exposes versions on trial and writes the trial.json files, after all targets.
  void follow_trials(const Plan& plan);
  /// Updates the views of servers that know only version numbers.
  void show_numbers();
  void save_failures();
  void publish_models();
  std::vector<api::EdgeModelReport> model_reports() const;
  void wake();

  const Options options_;
  const Clock& clock_;
  artifact::Store& store_;
  artifact::ModelTree& tree_;
  os::FileSystem& fs_;
  core::StateStore& state_store_;
  Rng& rng_;
  TierCounterStore tier_counters_;
  ServingPoller poller_;

  // State of the task "models".
  std::optional<core::WorkList> list_;
  std::map<std::string, Shown> shown_;
  std::map<std::string, std::map<std::string, JobKey>> exposed_;  // model -> shown version -> job
  struct NumberedState {                                          // inputs of a view
    std::string target;
    std::vector<std::string> versions;
    std::map<std::string, std::string> digests;
    std::vector<std::string> extra_files;
    friend bool operator==(const NumberedState&, const NumberedState&) = default;
  };
  std::map<std::string, NumberedState> numbered_;  // by this process
  struct Unwritten {                               // a joint.json that could not be written
    artifact::Reason reason;
    std::string reason_name, message;
    friend bool operator==(const Unwritten&, const Unwritten&) = default;
  };
  std::map<std::string, Unwritten> unwritten_;                  // by model key
  std::map<std::string, World::Problem> trial_problems_;        // by model key
  std::set<std::string> sample_folders_;                        // made by this process
  std::map<codec::Sha256, std::set<std::string>> shared_with_;  // from the work list
  std::map<JobKey, JobReport> remembered_;                      // of a previous run
  api::EdgeDisk disk_;
  SteadyTime disk_due_;
  SteadyTime requests_due_;
  SteadyTime joint_due_ = SteadyTime::max();
  SteadyTime samples_due_ = SteadyTime::max();  // for remove_old_samples()

  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool dirty_ GUARDED_BY(mutex_) = false;
  std::optional<core::WorkList> desired_ GUARDED_BY(mutex_);  // not applied yet
  InstallSchedule schedule_ GUARDED_BY(mutex_);
  DownloadProgress progress_ GUARDED_BY(mutex_);
  std::map<JobKey, std::stop_source> running_ GUARDED_BY(mutex_);
  std::map<codec::Sha256, std::vector<api::EdgeReplicaSource>> peers_
      GUARDED_BY(mutex_);  // from the work list
  std::map<codec::Sha256, std::vector<codec::Sha256>> bases_
      GUARDED_BY(mutex_);  // other versions of its models
  struct Published {
    core::ListId list;
    api::EdgeNodeStatus status;  // models and disk only
    codec::Json text;            // of `status`
  };
  std::optional<Published> published_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::models
