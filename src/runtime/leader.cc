#include "runtime/leader.h"

#include <algorithm>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace varda::runtime {
namespace {

using codec::Json;

const meta::Resource& leases_resource() {
  static const meta::Resource resource{.group = "coordination.k8s.io",
                                       .version = "v1",
                                       .kind = "Lease",
                                       .plural = "leases",
                                       .namespaced = true};
  return resource;
}

/// The default identity differs for every process. It is not empty, because an empty holder means a
/// free lease.
LeaderElector::Options with_identity(LeaderElector::Options options) {
  if (!options.lease.identity.empty()) return options;
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') host[0] = '-';
  options.lease.identity =
      std::string(host) + "_" + (options.rng ? *options.rng : system_rng()).uuid();
  return options;
}

}  // namespace

void LeaseCore::observe(const Json& lease, SteadyTime now) {
  const Json& spec = lease["spec"];
  holder_ = spec["holderIdentity"].as_string();
  duration_seconds_ =
      static_cast<int>(spec["leaseDurationSeconds"].as_integer(options_.lease_duration.count()));
  std::string seen = holder_ + '\n' + spec["renewTime"].as_string();
  if (changed_ && seen == seen_) return;
  seen_ = std::move(seen);
  changed_ = now;
}

std::optional<Json> LeaseCore::attempt(const Json& lease, SteadyTime now, WallTime wall,
                                       std::string_view ns, std::string_view name) const {
  const std::string time = meta::format_micro_time(wall);
  Json out = lease;
  if (lease.is_null()) {
    out = Json::object({{"apiVersion", "coordination.k8s.io/v1"},
                        {"kind", "Lease"},
                        {"metadata", Json::object({{"namespace", ns}, {"name", name}})}});
  }
  const Json& before = lease["spec"];
  const bool is_holder = before["holderIdentity"].as_string() == options_.identity;
  const bool held = !before["holderIdentity"].as_string().empty();
  if (held && !is_holder) {
    const bool expired = changed_ && now - *changed_ >= std::chrono::seconds(duration_seconds_);
    if (!expired) return std::nullopt;
  }
  Json& spec = out["spec"];
  spec.set("holderIdentity", options_.identity);
  spec.set("leaseDurationSeconds", std::int64_t{options_.lease_duration.count()});
  if (!is_holder) {
    spec.set("acquireTime", time);
    spec.set("leaseTransitions", lease.is_null() ? 0 : before["leaseTransitions"].as_integer() + 1);
  }
  spec.set("renewTime", time);
  return out;
}

void LeaseCore::wrote(SteadyTime now) {
  holder_ = options_.identity;
  renewed_ = now;
}

std::optional<SteadyTime> LeaseCore::leader_until() const {
  if (holder_ != options_.identity || !renewed_) return std::nullopt;
  return *renewed_ + options_.renew_deadline;
}

bool LeaseCore::leading(SteadyTime now) const {
  const auto until = leader_until();
  return until && now < *until;
}

Json LeaseCore::release(const Json& lease, WallTime wall) const {
  Json out = lease;
  Json& spec = out["spec"];
  spec.set("holderIdentity", "");
  spec.set("leaseDurationSeconds", 1);
  spec.set("renewTime", meta::format_micro_time(wall));
  return out;
}

LeaderElector::LeaderElector(const kube::Client& client, Options options)
    : client_(client.without_waits()),
      options_(with_identity(std::move(options))),
      clock_(options_.clock ? *options_.clock : system_clock()),
      rng_(options_.rng ? *options_.rng : system_rng()),
      key_{options_.ns, options_.name},
      core_(options_.lease) {}

Status LeaderElector::attempt(const Context& caller) {
  // A hanging attempt leaves time for another attempt over a new connection.
  const Context ctx = caller.with_timeout(options_.lease.renew_deadline / 2);
  const SteadyTime begin = clock_.now();  // our own lease counts from before the request
  TRY(const std::optional<Json> lease, client_->find(ctx, leases_resource(), key_));
  const SteadyTime seen = clock_.now();  // another holder's lease counts from after the answer,
                                         // because it may have been renewed that late
  if (lease) {
    core_.observe(*lease, seen);
    uid_ = (*lease)["metadata"]["uid"].as_string();
  }
  const auto wanted =
      core_.attempt(lease ? *lease : Json(), seen, clock_.wall(), options_.ns, options_.name);
  if (!wanted) {
    if (core_.holder() != followed_) {
      followed_ = core_.holder();
      log::info("another process leads, waiting for the lease",
                {{"lease", key_.str()}, {"holder", followed_}});
    }
    return {};
  }
  TRY(const Json written, lease ? client_->update(ctx, leases_resource(), *wanted)
                                : client_->create(ctx, leases_resource(), *wanted));
  core_.observe(written, clock_.now());
  core_.wrote(begin);
  uid_ = written["metadata"]["uid"].as_string();
  return {};
}

ObjectRef LeaderElector::lease() const { return {&leases_resource(), key_, uid_, ""}; }

Duration LeaderElector::pause() {
  const auto period = std::chrono::duration_cast<Duration>(options_.lease.retry_period);
  return period + Duration(static_cast<Duration::rep>(static_cast<double>(period.count()) * 0.2 *
                                                      rng_.unit()));
}

void LeaderElector::release(const Context& ctx) {
  if (const auto lease = client_->find(ctx, leases_resource(), key_);
      lease.ok() && *lease &&
      (**lease)["spec"]["holderIdentity"].as_string() == options_.lease.identity) {
    (void)client_->update(ctx, leases_resource(), core_.release(**lease, clock_.wall()));
  }
}

Status LeaderElector::run(const Context& ctx, const std::function<void(const Context&)>& lead) {
  metrics::Gauge* gauge = options_.metrics
                              ? &options_.metrics->gauge("leader_election_master_status",
                                                         "1 while this process is the leader.",
                                                         {{"name", options_.name}})
                              : nullptr;
  while (!leading()) {
    if (const Status tried = attempt(ctx);
        !tried.ok() && !ctx.stopped() && tried.error().code() != Code::kConflict) {
      log::warn("cannot read or take the leader lease",
                {{"lease", key_.str()}, {"error", tried.error()}});
    }
    if (leading()) break;
    if (!ctx.sleep_for(pause()).ok()) return {};
  }
  log::info("leading", {{"lease", key_.str()}, {"identity", options_.lease.identity}});
  if (gauge) gauge->set(1);

  std::stop_source stop;   // stops the leader's work
  std::stop_source done;   // the work has ended
  std::stop_source ended;  // the work has ended or must end
  std::jthread work([&] {
    lead(ctx.with_stop(stop.get_token()));
    done.request_stop();
    ended.request_stop();
  });
  const std::stop_callback follow(ctx.stop_token(), [&] {
    stop.request_stop();
    ended.request_stop();
  });
  bool lost = false;
  const auto until_deadline = [this] {
    const SteadyTime now = clock_.now();
    return core_.leader_until().value_or(now) - now;
  };
  SteadyTime begun = clock_.now();  // start of the last attempt, subtracted from the pause
  while (ctx.with_stop(ended.get_token())
             .sleep_for(std::min(pause() - (clock_.now() - begun), until_deadline()))
             .ok()) {
    begun = clock_.now();
    // An answer after the deadline is useless, because another process may lead by then.
    const Status tried = attempt(ctx.with_timeout(until_deadline()));
    if (!tried.ok() && !ctx.stopped())
      log::warn("cannot renew the leader lease", {{"lease", key_.str()}, {"error", tried.error()}});
    if (!leading()) {
      lost = true;
      break;
    }
  }
  stop.request_stop();
  // Renewals have stopped. Work that outlasts the lease ends with the process.
  const Duration left =
      until_deadline() + options_.lease.lease_duration - options_.lease.renew_deadline;
  if (Context(done.get_token()).sleep_for(left).ok()) {
    log::error("work still runs after leadership was lost, ending the process",
               {{"lease", key_.str()}});
    options_.last_resort();
  }
  work.join();
  if (gauge) gauge->set(0);
  if (lost) return Error(Code::kUnavailable, "leadership of " + key_.str() + " was lost");
  release(Context().with_timeout(std::chrono::seconds(3)));
  return {};
}

}  // namespace varda::runtime
