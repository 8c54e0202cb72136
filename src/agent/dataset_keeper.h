// DatasetKeeper: watches and counts the datasets of the work list, and tells what it finds.
//
// One thread of low priority counts, one waits for changes, one tells. What was found, and where counting stopped, is on disk
// (dataset_record.h), so that a node without network that starts again knows it at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/dataset_counter.h"
#include "agent/dataset_record.h"
#include "agent/dataset_report.h"
#include "agent/dataset_schedule.h"
#include "agent/desired.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "os/file_watch.h"
#include "runtime/strand.h"

namespace varda::agent {

class DatasetKeeper {
 public:
  struct Options {
    std::vector<os::Path> roots;  // what may be read: absolute
    os::Path directory;           // of the records
    DatasetTimes times;
    std::chrono::milliseconds report_period{500};      // between reports, but for the first of a work list
    std::chrono::milliseconds fresh{300};              // so long a report waits for the first count of a dataset
    std::chrono::milliseconds long_count{1000};        // what takes longer is told as Counting
    std::chrono::milliseconds progress_period{10000};  // between figures of one
    std::chrono::milliseconds save_period{2000};       // between writes of one record
    std::uint64_t portion_bytes = 256u << 20;          // counted of one file before others have their turn
    std::uint64_t portion_steps = 10'000;              // the same of a folder: entries, or 4 KiB read
    std::size_t state_bytes_max = 16 << 10;            // a greater state stays on the disk only
    const Clock* clock = nullptr;                      // null: the machine's
    metrics::Registry* metrics = nullptr;              // varda_agent_datasets, varda_agent_dataset_counts_total
  };
  /// Called on a thread of run(), when something is other than before: what to say of the datasets, and which work list that
  /// answers.
  using Tell = std::function<void(std::vector<api::EdgeDatasetReport>, const std::string& uid, std::int64_t generation)>;
  using OpenTree = DatasetCounter::OpenTree;

  /// `fs` is for the records alone. Everything given outlives it.
  DatasetKeeper(Options options, os::FileSystem& fs, OpenTree tree, os::FileWatch& watch, Journal& journal, Tell tell);

  /// A version of the EdgeNode. One that says nothing (desired.h) is left out. Thread-safe.
  void set_desired(const api::EdgeNode& node);

  /// load(), then every strand on a thread of its own until the context is done. What is not kept yet is kept before it returns.
  void run(const Context& ctx);
  /// Takes up what was desired last. Before the first step.
  void load();
  /// Telling, counting, and noticing changes.
  std::vector<runtime::Strand> strands();

 private:
  using Id = DatasetSchedule::Id;
  struct Entry {
    api::EdgeDataset spec;
    api::EdgeDatasetReport report;
    std::string state;           // where the last count that ended stopped
    bool state_on_disk = false;  // it is too big to be held here
    std::optional<os::FileFacts> facts;
    // Of a file that is counted in portions: how far that is, and how the file was when it began.
    std::string portion_state;
    std::optional<os::FileFacts> portion_facts;
    bool portion_whole = false;
    // Of a count that runs.
    std::optional<SteadyTime> running;
    dataset::Progress progress;
    std::optional<SteadyTime> told_progress;
    // Of reports and records.
    std::optional<SteadyTime> fresh;  // since then, until its first count ends
    bool unsaved = false;
    SteadyTime saved, save_due;
  };
  // Of the telling strand.
  void tell();
  void take_up();
  std::optional<SteadyTime> tell_due() const REQUIRES(mutex_);
  void tell_running(SteadyTime now) REQUIRES(mutex_);
  // Of the counting strand.
  void work(const Context& ctx);
  std::optional<SteadyTime> work_due() const REQUIRES(mutex_);
  std::optional<CountTask> take();
  void settle(Id id, CountOutcome outcome);
  void settle_counted(Entry& entry, CountOutcome& outcome) REQUIRES(mutex_);
  void settle_portion(Entry& entry, CountOutcome& outcome) REQUIRES(mutex_);
  void save(bool all);
  void clear_up();
  void note_metrics(const CountOutcome& outcome);
  // Of the noticing strand.
  void notice();

  void drop(Id id) REQUIRES(mutex_);
  /// Waits for `due`, or until somebody wakes; then `step`.
  void loop(const Context& ctx, const std::function<std::optional<SteadyTime>()>& due, const std::function<void()>& step);
  void wake() REQUIRES(mutex_);

  const Options options_;
  const Clock& clock_;
  os::FileWatch& watch_;
  Journal& journal_;
  const Tell tell_;
  DatasetCounter counter_;  // of the counting strand
  DatasetRecords records_;  // of load(), then of the counting strand

  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  std::uint64_t wakes_ GUARDED_BY(mutex_) = 0;
  std::optional<Desired> desired_ GUARDED_BY(mutex_);  // to be taken up
  bool known_ GUARDED_BY(mutex_) = false;              // a work list was
  std::string uid_ GUARDED_BY(mutex_);
  std::int64_t generation_ GUARDED_BY(mutex_) = 0;
  std::vector<Id> order_ GUARDED_BY(mutex_);  // as in the work list
  std::map<Id, Entry> entries_ GUARDED_BY(mutex_);
  Id ids_ GUARDED_BY(mutex_) =
      0;  // one for each path that ever was to be counted: what is said of another one is never taken for it
  DatasetSchedule schedule_ GUARDED_BY(mutex_);
  std::optional<std::pair<Id, std::stop_source>> counting_ GUARDED_BY(mutex_);
  std::vector<Id> unwatch_ GUARDED_BY(mutex_);
  bool sweep_ GUARDED_BY(mutex_) = false;      // records of datasets that are gone
  bool news_ GUARDED_BY(mutex_) = true;        // something is other than was told
  bool other_list_ GUARDED_BY(mutex_) = true;  // and it is not only figures
  SteadyTime tell_after_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
