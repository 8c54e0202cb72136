// Manager: shares files with other nodes, and keeps copies of their files (docs/design/015).
//
// One thread of low priority scans shares and takes snapshots; another copies; a third uploads
// snapshots for nodes that do not reach this node. Changes are found by
// scanning, and slow scans run less often. Copying takes longer than a scan period, so faster
// detection would not help.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "os/readable_tree.h"
#include "replica/peer.h"
#include "replica/scan.h"
#include "replica/store.h"

namespace varda::agent::replicas {

class Manager final : public core::NodeComponent {
 public:
  struct Options {
    std::vector<os::Path> roots;                // absolute; only files below may be shared
    os::Path copies;                            // root of the replica store
    os::Path records;                           // records of shares; created if missing
    std::chrono::milliseconds scan_next{2000};  // between scans, or 20 times a scan
    std::chrono::milliseconds full{
        std::chrono::hours(24)};                  // between snapshots that read every byte
    std::chrono::milliseconds retry_first{1000};  // doubles; up to 50 % jitter
    std::chrono::milliseconds retry_max{std::chrono::minutes(5)};
    std::chrono::milliseconds progress_period{10000};  // between progress reports of a copy
    replica::Limits limits;
    std::uint64_t copy_bytes_max = UINT64_MAX;  // limit for one share; larger ones are refused
    std::function<std::string()> url;           // where nodes fetch the shares; empty, "": nowhere
    /// The registry behind the node's API server; outlives the manager. Null: nothing is relayed.
    net::HttpClient* registry = nullptr;
    std::chrono::milliseconds relay_again{
        std::chrono::hours(6)};    // between checks that the registry still has everything
    const Clock* clock = nullptr;  // null: the system clock
  };
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  /// The client that authenticates the node by its certificate; null if impossible, for example
  /// without an identity.
  using ClientOf = std::function<net::HttpClient*(const std::string& node)>;

  /// `tree` is for snapshots; `shares` is what the server answers from. All references outlive the
  /// manager. kInvalid, and errors of the disk: the store cannot be opened.
  static Result<std::unique_ptr<Manager>> open(Options options, os::FileSystem& fs, OpenTree tree,
                                               replica::Shares& shares, ClientOf client_of,
                                               Rng& rng);
  ~Manager() override;

  void apply(const core::WorkList& list) override;
  /// Scanning shares, copying, and reporting for work lists without shares and replicas.
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override;
  /// Reports again, because Options::url changed.
  void url_changed() { publish_reports(); }

 private:
  struct Share;
  struct Replica;
  struct Copying;
  struct Attempt;
  struct Relaying;

  Manager(Options options, os::FileSystem& fs, OpenTree tree, replica::Shares& shares,
          ClientOf client_of, Rng& rng, std::unique_ptr<replica::Store> store);

  void apply_shares(const std::vector<api::EdgeShare>& specs) REQUIRES(mutex_);
  void apply_replicas(const std::vector<api::EdgeReplica>& specs) REQUIRES(mutex_);
  void scan_next(const Context& ctx);
  void scan_share(const Context& ctx, const std::string& key);
  /// Shares a local replica, which has a snapshot already.
  void share_copy(const std::string& key);
  void set_snapshot(Share& share, const replica::Snapshot& snapshot) REQUIRES(mutex_);
  /// Passes the shares to the server.
  void serve() REQUIRES(mutex_);
  std::optional<SteadyTime> scan_due() const;
  void copy(const Context& ctx);
  Status bring(const Context& ctx, const api::EdgeReplica& spec, Attempt& attempt);
  Status bring_from(const Context& ctx, const api::EdgeReplica& spec,
                    const std::vector<replica::Peer>& peers, Attempt& attempt);
  /// Notes whether the sources were reachable.
  static void note_reach(Replica& replica, const Attempt& attempt, const Status& status);
  std::optional<SteadyTime> relay_due() const;
  void relay(const Context& ctx);
  void note_relay_progress(const replica::Progress& progress);
  void finish_relay(const std::string& key, const std::string& snapshot, const Status& status);
  /// Writes the facts about the copy for readers; an error is only logged.
  void put_metadata(const api::EdgeReplica& spec);
  std::optional<SteadyTime> copy_due() const;
  void publish_reports();
  os::Path record_of(const std::string& key) const;

  const Options options_;
  const Clock& clock_;
  os::FileSystem& fs_;
  const OpenTree tree_;
  replica::Shares& served_;
  const ClientOf client_of_;
  Rng& rng_;
  const std::unique_ptr<replica::Store> store_;

  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  core::ListId list_ GUARDED_BY(mutex_);
  bool unpublished_ GUARDED_BY(mutex_) = true;  // not reported since the list came
  std::vector<std::string> share_order_ GUARDED_BY(mutex_), replica_order_ GUARDED_BY(mutex_);
  std::map<std::string, Share> shares_ GUARDED_BY(mutex_);
  std::map<std::string, Replica> replicas_ GUARDED_BY(mutex_);
  std::set<std::string> remove_ GUARDED_BY(mutex_);          // copies no longer in the work list
  std::unique_ptr<Copying> copying_ GUARDED_BY(mutex_);      // the running copy
  std::unique_ptr<Relaying> relaying_ GUARDED_BY(mutex_);    // the running upload
  std::optional<std::string> published_ GUARDED_BY(mutex_);  // the last report, as text
};

}  // namespace varda::agent::replicas
