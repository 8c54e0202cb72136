// DatasetCounter: one look at one dataset, and the count if there is something to count. It decides nothing about when.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/dataset_report.h"
#include "agent/dataset_schedule.h"
#include "api/edgeai/edge_node.h"
#include "base/context.h"
#include "dataset/count.h"
#include "os/file_watch.h"
#include "os/readable_tree.h"

namespace varda::agent {

struct CountTask {
  DatasetSchedule::Id id = 0;  // of its watch
  DatasetSchedule::Work work = DatasetSchedule::Work::kLook;
  api::EdgeDataset spec;
  std::string state;                   // where the last count stopped, or the last portion
  bool state_on_disk = false;          // it is kept(), being too big to be held
  bool portion = false;                // `state` is of a portion: whatever happens, the count goes on from it
  bool failed = false;                 // the last look did: this one is not over when nothing changed
  std::optional<os::FileFacts> facts;  // of the file at the last count
  std::stop_token stop;                // nobody wants it any more
};

struct CountOutcome {
  DatasetSchedule::Done done;  // without `whole` and `took`
  std::optional<dataset::Counted> counted;
  DatasetFailure failure;  // its reason is "" if there is none
  bool changed_meanwhile = false;
  bool dropped = false;  // it was stopped
};

/// A file that is as long as it was and was written to: bytes of it were replaced.
bool rewritten(const os::FileFacts& before, const os::FileFacts& now);

/// One thread at a time.
class DatasetCounter {
 public:
  struct Options {
    std::vector<os::Path> roots;  // what may be read: absolute
    std::uint64_t portion_bytes = 256u << 20;
    std::uint64_t portion_steps = 10'000;  // of a folder: entries, or 4 KiB read
  };
  /// What may be read. Asked before each count: a disk may be mounted later.
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  using Progress = std::function<void(const dataset::Progress&)>;

  DatasetCounter(Options options, OpenTree tree, os::FileWatch& watch)
      : options_(std::move(options)), tree_(std::move(tree)), watch_(watch) {}

  /// Blocks. Sets up the watch anew first, so that what changes from then on is told. `kept` gives the state that is on the disk.
  /// A folder of which there is more goes on with the next task of that id.
  CountOutcome count(const Context& ctx, const CountTask& task, const std::function<std::string()>& kept, Progress progress);
  /// Nobody wants the rest of it.
  void forget(DatasetSchedule::Id id) { folders_.erase(id); }

 private:
  /// A folder that is counted in portions.
  struct Folder {
    std::unique_ptr<os::ReadableTree> tree;
    std::unique_ptr<dataset::FolderCount> count;
    bool watched = false;
  };
  struct Plan;
  CountOutcome look(const Context& ctx, const CountTask& task, const Plan& plan, const std::function<std::string()>& kept,
                    const Progress& progress);
  CountOutcome go_on(const Context& ctx, const CountTask& task, Folder folder, const Progress& progress);
  void fail(const CountTask& task, const Error& error, CountOutcome& out) const;

  const Options options_;
  const OpenTree tree_;
  os::FileWatch& watch_;
  std::map<DatasetSchedule::Id, Folder> folders_;
};

}  // namespace varda::agent
