// Manager: watches and counts the datasets of the work list, and reports the results.
//
// Three tasks: one counts at low priority, one notices changes, one reports. Results and resume
// states are on disk (record.h), so that a restart without network keeps them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "agent/datasets/counter.h"
#include "agent/datasets/record.h"
#include "agent/datasets/report.h"
#include "agent/datasets/schedule.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "os/file_watch.h"

namespace varda::agent::datasets {

class Manager final : public core::NodeComponent {
 public:
  struct Options {
    std::vector<os::Path> roots;              // absolute; only files below may be read
    std::vector<std::string> reported_roots;  // for status.datasetRoots
    os::Path directory;                       // of the records
    Times times;
    std::chrono::milliseconds report_period{500};      // except the first for a work list
    std::chrono::milliseconds fresh{300};              // reports wait so long for a first count
    std::chrono::milliseconds long_count{1000};        // a longer count is reported as Counting
    std::chrono::milliseconds progress_period{10000};  // between progress reports of one count
    std::chrono::milliseconds save_period{2000};       // between writes of one record
    std::uint64_t portion_bytes = 256u << 20;          // of a file, then others are counted
    std::uint64_t portion_steps = 10'000;              // of a folder: entries, or 4 KiB read
    std::size_t state_bytes_max = 16 << 10;            // larger resume states stay on disk only
    const Clock* clock = nullptr;                      // null: the system clock
    metrics::Registry* metrics = nullptr;  // varda_agent_datasets, varda_agent_dataset_counts_total
  };
  using OpenTree = Counter::OpenTree;

  /// Only the records use `fs`. All references outlive the manager.
  Manager(Options options, os::FileSystem& fs, OpenTree tree, os::FileWatch& watch);

  void apply(const core::WorkList& list) override;
  /// Restores the records of the datasets in the work list.
  void load() override { apply_work_list(); }
  /// Reporting, counting, and noticing changes.
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override;
  /// Saves all unsaved records.
  void finish() override { save(/*all=*/true); }

 private:
  using Id = Schedule::Id;
  struct Entry {
    api::EdgeDataset spec;
    api::EdgeDatasetReport report;
    std::string state;           // resume state of the last finished count
    bool state_on_disk = false;  // too big for memory
    std::optional<os::FileFacts> facts;
    // A file that is counted in portions: the progress, and the file's facts at the start.
    std::string portion_state;
    std::optional<os::FileFacts> portion_facts;
    bool portion_whole = false;
    // A running count.
    std::optional<SteadyTime> running;
    dataset::Progress progress;
    std::optional<SteadyTime> reported_progress;
    // Reports and records.
    std::optional<SteadyTime> fresh;  // start of the wait for the first count; unset once it ends
    bool unsaved = false;
    SteadyTime saved, save_due;
  };
  // Reporting task.
  void publish_reports();
  void apply_work_list();
  std::optional<SteadyTime> publish_due() const;
  void publish_running(SteadyTime now) REQUIRES(mutex_);
  // Counting task.
  void work(const Context& ctx);
  std::optional<SteadyTime> work_due() const;
  std::optional<CountTask> take();
  void settle(Id id, CountOutcome outcome);
  void settle_counted(Entry& entry, CountOutcome& outcome) REQUIRES(mutex_);
  void settle_portion(Entry& entry, CountOutcome& outcome) REQUIRES(mutex_);
  void save(bool all);
  Status restore_state(Record& record);
  std::optional<Record> read_record(const api::EdgeDataset& spec);  // of load() too
  void clear_up();
  void note_metrics(const CountOutcome& outcome);
  // Noticing task.
  void notice();

  void drop(Id id) REQUIRES(mutex_);

  const Options options_;
  const Clock& clock_;
  os::FileWatch& watch_;
  Counter counter_;  // of the counting task
  Records records_;  // of load(), then of the counting task

  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  std::optional<core::WorkList> desired_ GUARDED_BY(mutex_);  // not applied yet
  bool known_ GUARDED_BY(mutex_) = false;                     // a work list was applied
  core::ListId list_ GUARDED_BY(mutex_);
  std::vector<Id> order_ GUARDED_BY(mutex_);  // order of the work list
  std::map<Id, Entry> entries_ GUARDED_BY(mutex_);
  Id ids_ GUARDED_BY(mutex_) = 0;  // a path added again gets a new id
  Schedule schedule_ GUARDED_BY(mutex_);
  std::optional<std::pair<Id, std::stop_source>> counting_ GUARDED_BY(mutex_);
  std::vector<Id> unwatch_ GUARDED_BY(mutex_);
  bool sweep_ GUARDED_BY(mutex_) = false;      // delete records of removed datasets
  bool changed_ GUARDED_BY(mutex_) = true;     // unreported changes exist
  bool other_list_ GUARDED_BY(mutex_) = true;  // unreported changes beyond progress figures
  SteadyTime publish_after_ GUARDED_BY(mutex_);
  struct Published {
    core::ListId list;
    std::vector<api::EdgeDatasetReport> reports;
  };
  Published published_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::datasets
