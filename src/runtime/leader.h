// Leader election by a Lease (coordination.k8s.io/v1): one of several operators works.
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "kube/client.h"
#include "runtime/object.h"

namespace varda::runtime {

/// Decides without I/O, from leases as read. Times are on the observer's steady clock, so the
/// machines' clocks need not agree. A lease is expired if we saw no change for its duration.
class LeaseCore {
 public:
  struct Options {
    std::string identity;
    std::chrono::seconds lease_duration{15};
    std::chrono::milliseconds renew_deadline{
        10'000};  // a leader that could not renew for this long steps down
    std::chrono::milliseconds retry_period{2'000};
  };
  explicit LeaseCore(Options options) : options_(std::move(options)) {}

  /// Records the lease as read (null: no lease exists).
  void observe(const codec::Json& lease, SteadyTime now);
  /// The Lease to write to take or keep leadership; absent: another process holds it.
  std::optional<codec::Json> attempt(const codec::Json& lease, SteadyTime now, WallTime wall,
                                     std::string_view ns, std::string_view name) const;
  /// Records that our write succeeded.
  void wrote(SteadyTime now);
  bool leading(SteadyTime now) const;
  /// The time until which a leader leads without another renewal.
  std::optional<SteadyTime> leader_until() const;
  const std::string& holder() const { return holder_; }
  /// The Lease that gives up leadership, for a leader that ends.
  codec::Json release(const codec::Json& lease, WallTime wall) const;

 private:
  Options options_;
  std::string holder_;
  std::string seen_;  // holder and renewTime as last read
  std::optional<SteadyTime> changed_;
  std::optional<SteadyTime> renewed_;
  int duration_seconds_ = 0;
};

class LeaderElector {
 public:
  struct Options {
    std::string ns = "kube-system";
    std::string name = "varda-operator";
    LeaseCore::Options lease;  // without an identity: the host's name and a random part
    const Clock* clock = nullptr;
    Rng* rng = nullptr;
    metrics::Registry* metrics = nullptr;  // leader_election_master_status
    /// Ends the process if a former leader's work still runs when another may lead. Tests pass a
    /// function that returns.
    std::function<void()> last_resort = [] { std::_Exit(EXIT_FAILURE); };
  };
  /// The owner of `client`'s transport outlives the elector. The elector does not honour
  /// Retry-After of a busy server, because a lease expires meanwhile.
  LeaderElector(const kube::Client& client, Options options);

  /// The Lease, for events; it has no uid before the first read.
  ObjectRef lease() const;
  const std::string& identity() const { return options_.lease.identity; }

  /// Waits for leadership, then calls `lead` with a context. The context stops when leadership is
  /// lost or `ctx` stops; then the lease is released. kUnavailable: leadership was lost (the
  /// process should end). Success: `ctx` stopped, or `lead` returned. If `lead` still runs when
  /// others may take over (lease_duration - renew_deadline after the loss), Options::last_resort is
  /// called.
  Status run(const Context& ctx, const std::function<void(const Context&)>& lead);

  // The parts of run(), for callers that schedule the work themselves. One thread.

  /// Reads the lease, and takes or renews it if allowed, within half the renew_deadline. An error
  /// costs only this attempt.
  Status attempt(const Context& ctx);
  bool leading() const { return core_.leading(clock_.now()); }
  /// The time until the next attempt.
  Duration pause();
  /// Releases the lease, so that others need not wait for its expiry. Best effort.
  void release(const Context& ctx);

 private:
  const std::unique_ptr<kube::Client> client_;
  const Options options_;
  const Clock& clock_;
  Rng& rng_;
  const meta::ObjectKey key_;
  LeaseCore core_;
  std::string uid_;       // uid of the Lease as last read
  std::string followed_;  // the holder logged last
};

}  // namespace varda::runtime
