// WorkerKeeper: the workers that the work list expects on this node, and what they said last.
//
// A worker is expected by key and uid. It has a token (worker_tokens.h), reads its assignment, and reports. What it says is on
// disk, latest per item, and goes upstream with the EdgeNode's status whenever there is a link: at most so often, whatever a worker
// says how often. Registrations and results are acknowledged when they are safe on the disk, many with one write; progress and
// metrics at once, and are on the disk a moment later.
//
// One thread does all that touches the disk. What the API calls only notes down, and is answered through callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/desired.h"
#include "agent/worker_state.h"
#include "agent/worker_tokens.h"
#include "base/mutex.h"
#include "runtime/strand.h"

namespace varda::agent {

class WorkerKeeper {
 public:
  static constexpr std::size_t kWorkersMax = 64;             // as in EdgeNode.spec
  static constexpr std::size_t kReportBytesMax = 256 << 10;  // of all workers of the node, upstream
  static constexpr std::size_t kWaitingMax = 4;              // that one worker may have for a change; one more ends the oldest wait
  static constexpr std::size_t kUnwrittenMax = 256;          // of all workers, not acknowledged yet

  struct Options {
    os::Path directory;                              // of the tokens
    std::chrono::milliseconds report_period{1000};   // between reports, and longer the more there is to tell
    std::size_t report_bytes_per_second = 16 << 10;  // what reports may cost a thin link
    std::chrono::milliseconds save_period{5000};     // between writes of progress and metrics
    std::chrono::milliseconds sync_pause{50};        // between writes of registrations and results
    std::chrono::milliseconds retry{5000};           // of what the disk refused
    const Clock* clock = nullptr;                    // null: the machine's
  };
  /// Called on a thread of run(), when something is other than before, and which work list that answers.
  using Tell = std::function<void(std::vector<api::EdgeWorkerReport>, const std::string& uid, std::int64_t generation)>;

  /// Everything given outlives it. `rng` is fit for keys.
  WorkerKeeper(Options options, os::FileSystem& fs, Journal& journal, Rng& rng);

  /// Who is told. Before load() and run().
  void on_news(Tell tell) { tell_ = std::move(tell); }
  /// A version of the EdgeNode, as the server has it. Thread-safe.
  void set_desired(const api::EdgeNode& node);

  /// load(), then works until the context is done. Then what is not kept yet is kept, and nobody waits any more.
  void run(const Context& ctx);
  /// Takes up what was desired last. Before the first step; once, again changes nothing.
  void load();
  std::vector<runtime::Strand> strands();

  // ---- for the API. Thread-safe; none blocks on the disk. Callbacks come at once or later, from a thread of run(), each once.

  /// A worker that was expected when it was looked for.
  struct Who {
    WorkerName name;
    std::string uid;
  };
  /// Whose token that is. Takes as long whoever's it is.
  std::optional<Who> who_has(std::string_view token) const;

  struct Assignment {
    std::string key, uid, owner;
    std::string revision;  // of what follows, and of the uid
    codec::Json assignment;
  };
  using OnAssignment = std::function<void(Result<Assignment>)>;
  /// At once if its revision is not `after`; else when it is another one, or after `patience`, as it is then. kUnauthenticated: the
  /// worker is not expected any more. kUnavailable: the agent stops.
  void assignment(const Who& who, const std::string& after, Duration patience, OnAssignment then);

  /// kUnauthenticated, as above; kExhausted: WorkerState says so. The time is now.
  Status put_progress(const Who& who, codec::Json said);
  Status put_metrics(const Who& who, codec::Json said);
  using OnKept = std::function<void(Status)>;
  /// `then` comes when it is safe on the disk. Besides the errors above, kUnavailable: the disk takes nothing now, or too much
  /// waits for it; try again.
  void put_registration(const Who& who, codec::Json said, OnKept then);
  void put_result(const Who& who, const std::string& name, codec::Json said, OnKept then);

 private:
  struct Waiter {
    std::string after;
    SteadyTime until;
    OnAssignment then;
  };
  struct Worker {
    WorkerName name;
    api::EdgeWorker spec;
    std::string revision;
    std::string token_sha256;  // "": it has none yet
    std::string problem;       // of the token
    WorkerState state;
    std::uint64_t changes = 0, saved = 0;  // of the state, and how many of them the disk has
    std::list<Waiter> waiters;
  };
  /// Something to be kept before it is acknowledged.
  struct Unwritten {
    Who who;
    std::string result;  // its name; "": a registration
    codec::Json said;
    OnKept then;
  };
  using Call = std::function<void()>;

  void step();
  std::optional<SteadyTime> due() const REQUIRES(mutex_);
  void take_up();
  void make_tokens();
  void write();
  void save();
  void tell();
  void answer_waiters();
  void end();
  Status keep(const std::map<std::string, WorkerState>& states);
  Worker* find(const Who& who) REQUIRES(mutex_);
  void changed(Worker& worker) REQUIRES(mutex_);
  void note_news() REQUIRES(mutex_);
  void submit(Unwritten one);
  static Assignment assignment_of(const Worker& worker);
  static Status apply(const Unwritten& one, const std::string& time, WorkerState& state, bool& news);
  void wake() REQUIRES(mutex_);

  const Options options_;
  const Clock& clock_;
  Journal& journal_;
  Tell tell_;
  // Of the one thread.
  WorkerTokens tokens_;
  std::optional<std::string> told_;  // what tell_() was last given, as text
  std::int64_t numbers_used_ = 0;    // greatest sequence of removed workers: kNumbers
  bool swept_ = false;               // no tokens and records of former workers are left
  bool disk_refuses_ = false;        // what was to be kept last

  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  std::uint64_t wakes_ GUARDED_BY(mutex_) = 0;
  bool loaded_ GUARDED_BY(mutex_) = false, ended_ GUARDED_BY(mutex_) = false;
  std::optional<Desired> desired_ GUARDED_BY(mutex_);                                    // to be taken up
  std::optional<std::map<std::string, api::EdgeWorkerReport>> live_ GUARDED_BY(mutex_);  // as the server has them, to be looked at
  bool seen_live_ GUARDED_BY(mutex_) = false;
  std::optional<Desired> list_ GUARDED_BY(mutex_);            // its workers are below
  std::map<std::string, Worker> workers_ GUARDED_BY(mutex_);  // by key; only the one thread adds and takes away
  std::deque<Unwritten> unwritten_ GUARDED_BY(mutex_);
  bool news_ GUARDED_BY(mutex_) = true;
  SteadyTime tell_after_ GUARDED_BY(mutex_), write_after_ GUARDED_BY(mutex_), save_after_ GUARDED_BY(mutex_);
  std::optional<SteadyTime> token_retry_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
