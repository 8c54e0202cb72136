// Counter: one look at one dataset, and a count if the dataset changed. The caller decides when.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/datasets/report.h"
#include "agent/datasets/schedule.h"
#include "api/edgeai/edge_node.h"
#include "base/context.h"
#include "dataset/count.h"
#include "os/file_watch.h"
#include "os/readable_tree.h"

namespace varda::agent::datasets {

struct CountTask {
  Schedule::Id id = 0;  // id of its watch
  Schedule::Work work = Schedule::Work::kLook;
  api::EdgeDataset spec;
  std::string state;                   // resume state of the last count, or of the last portion
  bool state_on_disk = false;          // the state is too big for memory; read it with load_state()
  bool portion = false;                // `state` is of a portion: always resume from it
  bool failed = false;                 // the last look failed, so count even without a change
  std::optional<os::FileFacts> facts;  // of the file at the last count
  std::stop_token stop;                // requested when the dataset is dropped
};

struct CountOutcome {
  Schedule::Done done;  // `whole` and `took` are not set
  std::optional<dataset::Counted> counted;
  Failure failure;  // reason "": no failure
  bool changed_meanwhile = false;
  bool dropped = false;  // the task was stopped
};

/// Whether the file was written to but kept its size, so that existing bytes were replaced.
bool rewritten(const os::FileFacts& before, const os::FileFacts& now);

/// One thread at a time.
class Counter {
 public:
  struct Options {
    std::vector<os::Path> roots;  // absolute; only files below may be read
    std::uint64_t portion_bytes = 256u << 20;
    std::uint64_t portion_steps = 10'000;  // for a folder: entries, or units of 4 KiB read
  };
  /// Opens the readable tree. Called before each count, because a disk may be mounted later.
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  using Progress = std::function<void(const dataset::Progress&)>;

  Counter(Options options, OpenTree tree, os::FileWatch& watch)
      : options_(std::move(options)), tree_(std::move(tree)), watch_(watch) {}

  /// Blocks. Renews the watch first, so that later changes are noticed. `load_state` reads the
  /// state from disk. A folder with more portions continues with the next task of the same id.
  CountOutcome count(const Context& ctx, const CountTask& task,
                     const std::function<std::string()>& load_state, Progress progress);
  /// Drops the unfinished count of this dataset.
  void forget(Schedule::Id id) { folders_.erase(id); }

 private:
  /// A folder with an unfinished count.
  struct Folder {
    std::unique_ptr<os::ReadableTree> tree;
    std::unique_ptr<dataset::FolderCount> count;
    bool watched = false;
  };
  struct Plan;
  CountOutcome look(const Context& ctx, const CountTask& task, const Plan& plan,
                    const std::function<std::string()>& load_state, const Progress& progress);
  CountOutcome resume(const Context& ctx, const CountTask& task, Folder folder,
                      const Progress& progress);
  void fail(const CountTask& task, const Error& error, CountOutcome& out) const;

  const Options options_;
  const OpenTree tree_;
  os::FileWatch& watch_;
  std::map<Schedule::Id, Folder> folders_;
};

}  // namespace varda::agent::datasets
