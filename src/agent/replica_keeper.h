// ReplicaKeeper: shares the files that others shall have, and keeps copies of others' files (docs/design/015).
//
// One thread of low priority looks at what is shared and takes snapshots, one copies. Whether files changed is found by looking,
// the rarer the longer a look takes: changes need not be known to the second where copying takes longer than that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/desired.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "os/readable_tree.h"
#include "replica/peer.h"
#include "replica/scan.h"
#include "replica/store.h"
#include "runtime/strand.h"

namespace varda::agent {

class ReplicaKeeper {
 public:
  struct Options {
    std::vector<os::Path> roots;                             // what may be shared: absolute
    os::Path copies;                                         // the store's root
    os::Path records;                                        // what is known of shares; made if missing
    std::chrono::milliseconds look{2000};                    // between looks at a share, or twenty times what one takes
    std::chrono::milliseconds full{std::chrono::hours(24)};  // between snapshots for which every byte is read
    std::chrono::milliseconds retry_first{1000};             // of what failed, doubling, spread by half
    std::chrono::milliseconds retry_max{std::chrono::minutes(5)};
    std::chrono::milliseconds progress_period{10000};  // between figures of a copy, and before the first
    replica::Limits limits;
    std::uint64_t copy_bytes_max = UINT64_MAX;  // of one share; larger ones are refused
    const Clock* clock = nullptr;               // null: the machine's
  };
  /// Called on a thread of run(), when something is other than before, and which work list that answers.
  using Tell = std::function<void(std::vector<api::EdgeShareReport>, std::vector<api::EdgeReplicaReport>, const std::string& uid,
                                  std::int64_t generation)>;
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  /// The client that knows the node of that name by its certificate; null: none can be made, as where this node has no identity.
  using ClientOf = std::function<net::HttpClient*(const std::string& node)>;

  /// `tree` is for taking snapshots, `shares` is what a server answers from. Everything given outlives it. kInvalid, and errors of
  /// the disk: the store cannot be opened.
  static Result<std::unique_ptr<ReplicaKeeper>> open(Options options, os::FileSystem& fs, OpenTree tree, replica::Shares& shares,
                                                     ClientOf client_of, Journal& journal, Rng& rng);
  ~ReplicaKeeper();

  /// Who is told. Before load() and run().
  void on_news(Tell tell) { tell_ = std::move(tell); }

  /// A version of the EdgeNode. One that says nothing (desired.h) is left out. Thread-safe.
  void set_desired(const api::EdgeNode& node);

  /// load(), then every strand on a thread of its own until the context is done.
  void run(const Context& ctx);
  /// Takes up what was desired last. Before the first step.
  void load();
  /// Looking at shares, copying, and telling of a work list that asks for neither.
  std::vector<runtime::Strand> strands();

 private:
  struct Share;
  struct Replica;
  struct Copying;

  ReplicaKeeper(Options options, os::FileSystem& fs, OpenTree tree, replica::Shares& shares, ClientOf client_of, Journal& journal,
                Rng& rng, std::unique_ptr<replica::Store> store);

  void take_up(Desired desired);
  void look(const Context& ctx);
  void look_at(const Context& ctx, const std::string& key);
  /// What is shared is a copy of ours: it has a snapshot.
  void share_copy(const std::string& key);
  static void set_snapshot(Share& share, const replica::Snapshot& snapshot);
  void publish() REQUIRES(mutex_);
  std::optional<SteadyTime> look_due() const;
  void copy(const Context& ctx);
  Status bring(const Context& ctx, const api::EdgeReplica& spec, std::string& reason, const std::string& key);
  std::optional<SteadyTime> copy_due() const;
  void tell();
  void loop(const Context& ctx, const std::function<std::optional<SteadyTime>()>& due,
            const std::function<void(const Context&)>& step);
  os::Path record_of(const std::string& key) const;

  const Options options_;
  const Clock& clock_;
  os::FileSystem& fs_;
  const OpenTree tree_;
  replica::Shares& served_;
  const ClientOf client_of_;
  Journal& journal_;
  Rng& rng_;
  Tell tell_;
  const std::unique_ptr<replica::Store> store_;

  Mutex telling_;  // held over tell_(), so that what was said last is what is so
  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  std::uint64_t wakes_ GUARDED_BY(mutex_) = 0;
  std::optional<std::pair<std::string, std::int64_t>> list_ GUARDED_BY(mutex_);  // uid and generation of the work list
  bool untold_ GUARDED_BY(mutex_) = true;                                        // nobody was told since it came
  std::vector<std::string> share_order_ GUARDED_BY(mutex_), replica_order_ GUARDED_BY(mutex_);
  std::map<std::string, Share> shares_ GUARDED_BY(mutex_);
  std::map<std::string, Replica> replicas_ GUARDED_BY(mutex_);
  std::set<std::string> remove_ GUARDED_BY(mutex_);       // copies that nobody wants here any more
  std::unique_ptr<Copying> copying_ GUARDED_BY(mutex_);   // the one under way
  std::optional<std::string> said_ GUARDED_BY(telling_);  // what tell_() was last given, as text
};

}  // namespace varda::agent
