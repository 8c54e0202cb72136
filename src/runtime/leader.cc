#include "runtime/leader.h"

#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace varda::runtime {
namespace {

using codec::Json;

const meta::Resource& leases_resource() {
  static const meta::Resource resource{
      .group = "coordination.k8s.io", .version = "v1", .kind = "Lease", .plural = "leases", .namespaced = true};
  return resource;
}

}  // namespace

void LeaseCore::observe(const Json& lease, SteadyTime now) {
  const Json& spec = lease["spec"];
  holder_ = spec["holderIdentity"].as_string();
  duration_seconds_ = static_cast<int>(spec["leaseDurationSeconds"].as_integer(options_.lease_duration.count()));
  std::string seen = holder_ + '\n' + spec["renewTime"].as_string();
  if (changed_ && seen == seen_) return;
  seen_ = std::move(seen);
  changed_ = now;
}

std::optional<Json> LeaseCore::attempt(const Json& lease, SteadyTime now, WallTime wall, std::string_view ns,
                                       std::string_view name) const {
  const std::string time = meta::format_micro_time(wall);
  Json out = lease;
  if (lease.is_null()) {
    out = Json::object({{"apiVersion", "coordination.k8s.io/v1"},
                        {"kind", "Lease"},
                        {"metadata", Json::object({{"namespace", ns}, {"name", name}})}});
  }
  const Json& before = lease["spec"];
  const bool mine = before["holderIdentity"].as_string() == options_.identity;
  const bool held = !before["holderIdentity"].as_string().empty();
  if (held && !mine) {
    const bool expired = changed_ && now - *changed_ >= std::chrono::seconds(duration_seconds_);
    if (!expired) return std::nullopt;
  }
  Json& spec = out["spec"];
  spec.set("holderIdentity", options_.identity);
  spec.set("leaseDurationSeconds", std::int64_t{options_.lease_duration.count()});
  if (!mine) {
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

bool LeaseCore::leading(SteadyTime now) const {
  return holder_ == options_.identity && renewed_ && now - *renewed_ < options_.renew_deadline;
}

Json LeaseCore::release(const Json& lease, WallTime wall) const {
  Json out = lease;
  Json& spec = out["spec"];
  spec.set("holderIdentity", "");
  spec.set("leaseDurationSeconds", 1);
  spec.set("renewTime", meta::format_micro_time(wall));
  return out;
}

LeaderElector::LeaderElector(const kube::Client& client, Options options) : client_(client), options_(std::move(options)) {}

Status LeaderElector::run(const Context& ctx, const std::function<void(const Context&)>& lead) {
  const Clock& clock = options_.clock ? *options_.clock : system_clock();
  Rng& rng = options_.rng ? *options_.rng : system_rng();
  metrics::Gauge* gauge = options_.metrics
                              ? &options_.metrics->gauge("leader_election_master_status", "1 while this process is the leader.",
                                                         {{"name", options_.name}})
                              : nullptr;
  const meta::ObjectKey key{options_.ns, options_.name};
  LeaseCore core(options_.lease);

  // Looks, and takes or renews the lease if it may. An error only costs this attempt.
  const auto try_once = [&](const Context& until) -> Status {
    const SteadyTime begin = clock.now();  // the lease counts from before the request, not from after it
    TRY(const std::optional<Json> lease, client_.find(until, leases_resource(), key));
    if (lease) core.observe(*lease, begin);
    const auto wanted = core.attempt(lease ? *lease : Json(), begin, clock.wall(), options_.ns, options_.name);
    if (!wanted) return {};
    TRY(const Json written,
        lease ? client_.update(until, leases_resource(), *wanted) : client_.create(until, leases_resource(), *wanted));
    core.observe(written, begin);
    core.wrote(begin);
    return {};
  };
  const auto pause = [&] {
    const auto period = std::chrono::duration_cast<Duration>(options_.lease.retry_period);
    return period + Duration(static_cast<Duration::rep>(static_cast<double>(period.count()) * 0.2 * rng.unit()));
  };

  while (!core.leading(clock.now())) {
    if (const Status tried = try_once(ctx); !tried.ok() && !ctx.stopped() && tried.error().code() != Code::kConflict) {
      log::warn("cannot look at the leader lease", {{"lease", key.str()}, {"error", tried.error()}});
    }
    if (core.leading(clock.now())) break;
    if (!ctx.sleep_for(pause()).ok()) return {};
  }
  log::info("leading", {{"lease", key.str()}, {"identity", options_.lease.identity}});
  if (gauge) gauge->set(1);

  std::stop_source stop;   // of the work that the leader does
  std::stop_source ended;  // it has ended by itself
  std::jthread work([&] {
    lead(ctx.with_stop(stop.get_token()));
    ended.request_stop();
  });
  const std::stop_callback follow(ctx.stop_token(), [&] {
    stop.request_stop();
    ended.request_stop();
  });
  bool lost = false;
  while (ctx.with_stop(ended.get_token()).sleep_for(pause()).ok()) {
    const Status tried = try_once(ctx.with_timeout(options_.lease.renew_deadline));
    if (!tried.ok() && !ctx.stopped()) log::warn("cannot renew the leader lease", {{"lease", key.str()}, {"error", tried.error()}});
    if (!core.leading(clock.now())) {
      lost = true;
      break;
    }
  }
  stop.request_stop();
  work.join();
  if (gauge) gauge->set(0);
  if (lost) return Error(Code::kUnavailable, "leadership of " + key.str() + " was lost");

  // Others need not wait for the lease to run out.
  const Context brief = Context().with_timeout(std::chrono::seconds(3));
  if (const auto lease = client_.find(brief, leases_resource(), key);
      lease.ok() && *lease && (**lease)["spec"]["holderIdentity"].as_string() == options_.lease.identity) {
    (void)client_.update(brief, leases_resource(), core.release(**lease, clock.wall()));
  }
  return {};
}

}  // namespace varda::runtime
