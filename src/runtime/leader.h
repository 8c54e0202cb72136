// Leader election by a Lease (coordination.k8s.io/v1): of several operators one works.
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

/// Decides, without I/O, from leases as read. Times are of the observer's steady clock: clocks of machines need not agree, a lease
/// is expired when it has not changed for its duration since *we* saw it change.
class LeaseCore {
 public:
  struct Options {
    std::string identity;
    std::chrono::seconds lease_duration{15};
    std::chrono::milliseconds renew_deadline{10'000};  // a leader that could not renew for this long steps down
    std::chrono::milliseconds retry_period{2'000};
  };
  explicit LeaseCore(Options options) : options_(std::move(options)) {}

  /// Takes note of the lease as read (null: there is none).
  void observe(const codec::Json& lease, SteadyTime now);
  /// The Lease to write to take or keep it; nothing: somebody else holds it.
  std::optional<codec::Json> attempt(const codec::Json& lease, SteadyTime now, WallTime wall, std::string_view ns,
                                     std::string_view name) const;
  /// Our write came through.
  void wrote(SteadyTime now);
  bool leading(SteadyTime now) const;
  /// Until when a leader leads without another renewal.
  std::optional<SteadyTime> leads_until() const;
  const std::string& holder() const { return holder_; }
  /// The Lease that gives it up, for a leader that ends.
  codec::Json release(const codec::Json& lease, WallTime wall) const;

 private:
  Options options_;
  std::string holder_;
  std::string seen_;  // holder and renewTime of the lease as last read
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
    /// What ends the process where the work of a former leader goes on although another may lead. Tests have one that returns.
    std::function<void()> last_resort = [] { std::_Exit(EXIT_FAILURE); };
  };
  /// What owns the transport of `client` outlives it. It does not wait as a busy server asks: a lease does not wait either.
  LeaderElector(const kube::Client& client, Options options);

  /// The Lease, as events name it; one that was not read yet has no uid.
  ObjectRef lease() const;
  const std::string& identity() const { return options_.lease.identity; }

  /// Waits for leadership, calls `lead` with a context that stops when it is lost or `ctx` stops, and gives the lease up after
  /// that. kUnavailable: leadership was lost (the process should end). Success: `ctx` stopped, or `lead` returned. A `lead` that
  /// has not returned when others may take over (lease_duration - renew_deadline after the loss) meets Options::last_resort.
  Status run(const Context& ctx, const std::function<void(const Context&)>& lead);

  // The parts of run(), for a driver of its own. One thread.

  /// Looks, and takes or renews the lease if it may, within half the renew_deadline. An error only costs this attempt.
  Status attempt(const Context& ctx);
  bool leading() const { return core_.leading(clock_.now()); }
  /// Until the next attempt.
  Duration pause();
  /// Gives the lease up, so that others need not wait for it to run out. Best effort.
  void release(const Context& ctx);

 private:
  const std::unique_ptr<kube::Client> client_;
  const Options options_;
  const Clock& clock_;
  Rng& rng_;
  const meta::ObjectKey key_;
  LeaseCore core_;
  std::string uid_;       // of the Lease as last read
  std::string followed_;  // the holder that was logged
};

}  // namespace varda::runtime
