// Manager: the workers that the work list expects on this node, and their latest reports.
//
// Key and uid identify an expected worker. The worker has a token (tokens.h), reads its
// assignment, and reports. The latest report of each item is on disk, and goes upstream with the
// EdgeNode's status when the link is up. The upstream rate is limited, whatever a worker's rate.
// Registrations and results are acknowledged once they are on disk, many with one write. Progress
// and metrics are acknowledged at once and written later; metrics go upstream once they are
// written.
//
// One thread does all disk access. Calls from the API only enqueue, and are answered through
// callbacks.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "agent/workers/artifact_store.h"
#include "agent/workers/state.h"
#include "agent/workers/streams.h"
#include "agent/workers/tokens.h"
#include "base/mutex.h"

namespace varda::agent::workers {

class Manager final : public core::NodeComponent {
 public:
  static constexpr std::size_t kWorkersMax = 64;             // as in EdgeNode.spec
  static constexpr std::size_t kReportBytesMax = 256 << 10;  // upstream reports of all workers
  static constexpr std::size_t kWaitingMax = 4;      // waits of one worker; more end the oldest
  static constexpr std::size_t kUnwrittenMax = 256;  // unacknowledged writes of all workers

  struct Options {
    os::Path directory;                              // of the tokens
    std::string socket_directory;                    // of the API's socket; "": no socket
    std::optional<std::int64_t> user;                // owner of both, for status.workerUser
    std::chrono::milliseconds report_period{1000};   // between reports; large reports wait longer
    std::size_t report_bytes_per_second = 16 << 10;  // limits upstream traffic on thin links
    std::chrono::milliseconds save_period{5000};     // between writes of progress and metrics
    std::chrono::milliseconds sync_pause{50};        // between writes of registrations and results
    std::chrono::milliseconds retry{5000};           // retry of failed disk writes
    const Clock* clock = nullptr;                    // null: the system clock
    ArtifactStore* artifacts = nullptr;  // null: workers upload nothing; outlives the manager
    Streams* streams = nullptr;          // null: workers open no streams; outlives the manager
  };
  /// All references outlive the manager. `rng` must be cryptographically secure.
  Manager(Options options, os::FileSystem& fs, core::StateStore& state_store, Rng& rng);

  void apply(const core::WorkList& list) override;
  /// Applies the work list and creates tokens, so that the first request finds its worker.
  void load() override;
  void adopt(const api::EdgeNodeStatus& live) override;
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override;
  /// Saves all unsaved records and answers all pending calls.
  void finish() override;

  /// The reports of the ArtifactStore changed. Quick; thread-safe.
  void artifacts_changed();

  // ---- for the API. Thread-safe; no call blocks on the disk. Callbacks run immediately, or in
  // the task, exactly once.

  /// A worker that was expected at the time of the lookup.
  struct Caller {
    Name name;
    std::string uid;
    std::uint64_t upload_bytes_max = 0;  // 0: no uploads
  };
  /// Finds the worker with this token, in constant time.
  std::optional<Caller> find_by_token(std::string_view token) const;

  struct Assignment {
    std::string key, uid, owner;
    std::string revision;  // digest of the members below and the uid
    codec::Json assignment;
  };
  using OnAssignment = std::function<void(Result<Assignment>)>;
  /// Answers at once if the revision differs from `after`. Otherwise answers at the next change, or
  /// with the current assignment after `patience`. kUnauthenticated: the worker is no longer
  /// expected. kUnavailable: the agent stops.
  void assignment(const Caller& caller, const std::string& after, Duration patience,
                  OnAssignment then);

  /// kUnauthenticated: as above. kExhausted: as in WorkerState. The current time is recorded.
  Status put_progress(const Caller& caller, codec::Json message);
  Status put_metrics(const Caller& caller, codec::Json message);
  using OnPersisted = std::function<void(Status)>;
  /// `then` runs once the data is on disk. Additional error kUnavailable: the disk rejects writes,
  /// or too many are queued; retry.
  void put_registration(const Caller& caller, codec::Json message, OnPersisted then);
  void put_result(const Caller& caller, const std::string& name, codec::Json message,
                  OnPersisted then);

 private:
  struct Waiter {
    std::string after;
    SteadyTime until;
    OnAssignment then;
  };
  struct Worker {
    Name name;
    api::EdgeWorker spec;
    std::string revision;
    std::string token_sha256;  // "": not created yet
    std::string problem;       // error of the token
    State state;
    std::uint64_t changes = 0, saved = 0;  // state changes, and how many are on disk
    std::list<Waiter> waiters;
  };
  /// Data to persist before the acknowledgement.
  struct Unwritten {
    Caller caller;
    std::string result;  // result name; "": a registration
    codec::Json message;
    OnPersisted then;
  };
  using Call = std::function<void()>;

  void step();
  std::optional<SteadyTime> due() const;
  void apply_work_list();
  /// Replaces workers_ by those of the list, and returns the answers to calls of removed workers.
  std::vector<Call> replace_workers(core::WorkList list, std::map<std::string, State> records)
      REQUIRES(mutex_);
  void make_tokens();
  void give_owners();
  void give_streams();
  void write();
  void save();
  void publish_reports();
  void answer_waiters();
  Status persist(const std::map<std::string, State>& states);
  Worker* find(const Caller& caller) REQUIRES(mutex_);
  void changed(Worker& worker) REQUIRES(mutex_);
  void note_change() REQUIRES(mutex_);
  void submit(Unwritten one);
  /// Restores missing state from live_: for all workers if it is new, else for new workers.
  /// Returns the uploaded files of the restored results.
  struct Adopted {
    std::string key, uid;
    codec::Json files;
  };
  std::vector<Adopted> adopt_live(bool is_new) REQUIRES(mutex_);
  static Assignment assignment_of(const Worker& worker);
  static Status apply(const Unwritten& one, const std::string& time, State& state, bool& updated);

  const Options options_;
  const Clock& clock_;
  core::StateStore& state_store_;
  // State of the one thread.
  Tokens tokens_;
  std::optional<std::string> published_;  // the last report, as text
  std::int64_t numbers_used_ = 0;         // greatest sequence of removed workers: kNumbers
  bool swept_ = false;                    // tokens and records of former workers are removed
  bool disk_refuses_ = false;             // the last write failed

  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::optional<core::WorkList> desired_ GUARDED_BY(mutex_);  // not applied yet
  // The server's reports, by key. Kept, because the list with their workers may
  // come later.
  std::optional<std::map<std::string, api::EdgeWorkerReport>> live_ GUARDED_BY(mutex_);
  bool live_is_new_ GUARDED_BY(mutex_) = false;          // not processed yet
  std::optional<core::ListId> list_ GUARDED_BY(mutex_);  // workers_ holds its workers
  std::map<std::string, Worker> workers_
      GUARDED_BY(mutex_);  // by key; only the one thread adds and removes
  std::deque<Unwritten> unwritten_ GUARDED_BY(mutex_);
  bool changed_ GUARDED_BY(mutex_) = true;
  SteadyTime publish_after_ GUARDED_BY(mutex_), write_after_ GUARDED_BY(mutex_),
      save_after_ GUARDED_BY(mutex_);
  std::optional<SteadyTime> token_retry_ GUARDED_BY(mutex_);
  struct Reported {
    core::ListId list;
    std::vector<api::EdgeWorkerReport> reports;
  };
  Reported reported_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::workers
