#include "runtime/leader.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"

namespace varda::runtime {
namespace leader_test {

using codec::Json;
using std::chrono::milliseconds, std::chrono::seconds;

const SteadyTime kStart = SteadyTime(std::chrono::hours(10));
const WallTime kWall = WallTime(std::chrono::hours(400'000));

TEST(LeaseCore, FreeLeaseIsAcquiredAndRenewed) {
  LeaseCore core({.identity = "a"});
  const auto lease = core.attempt(nullptr, kStart, kWall, "ns", "l");
  ASSERT_TRUE(lease);
  EXPECT_EQ((*lease)["spec"]["holderIdentity"].as_string(), "a");
  EXPECT_EQ((*lease)["spec"]["leaseDurationSeconds"].as_integer(), 15);
  EXPECT_EQ((*lease)["spec"]["renewTime"].as_string().size(),
            std::string("2024-05-01T10:00:00.000000Z").size());
  EXPECT_FALSE(core.leading(kStart));
  core.observe(*lease, kStart);
  core.wrote(kStart);
  EXPECT_TRUE(core.leading(kStart + seconds(9)));
  EXPECT_FALSE(core.leading(kStart + seconds(10))) << "not renewed within the deadline";
  const auto renewed = core.attempt(*lease, kStart + seconds(2), kWall + seconds(2), "ns", "l");
  ASSERT_TRUE(renewed);
  EXPECT_EQ((*renewed)["spec"]["leaseTransitions"].as_integer(), 0);
  EXPECT_EQ((*renewed)["spec"]["acquireTime"], (*lease)["spec"]["acquireTime"]);
  EXPECT_NE((*renewed)["spec"]["renewTime"], (*lease)["spec"]["renewTime"]);
}

TEST(LeaseCore, ForeignLeaseIsTakenOnlyAfterItStopsChanging) {
  LeaseCore a({.identity = "a"}), b({.identity = "b"});
  Json lease = *a.attempt(nullptr, kStart, kWall, "ns", "l");
  // Wall clocks do not matter; the time at which b saw a change counts.
  b.observe(lease, kStart + seconds(100));
  EXPECT_FALSE(b.attempt(lease, kStart + seconds(114), kWall, "ns", "l"));
  lease = *a.attempt(lease, kStart, kWall + seconds(1), "ns", "l");
  b.observe(lease, kStart + seconds(114));
  EXPECT_FALSE(b.attempt(lease, kStart + seconds(128), kWall, "ns", "l"));
  b.observe(lease, kStart + seconds(128));
  const auto taken = b.attempt(lease, kStart + seconds(129), kWall, "ns", "l");
  ASSERT_TRUE(taken);
  EXPECT_EQ((*taken)["spec"]["holderIdentity"].as_string(), "b");
  EXPECT_EQ((*taken)["spec"]["leaseTransitions"].as_integer(), 1);
}

TEST(LeaseCore, ReleasedLeaseIsAcquiredAtOnce) {
  LeaseCore a({.identity = "a"}), b({.identity = "b"});
  const Json lease = a.release(*a.attempt(nullptr, kStart, kWall, "ns", "l"), kWall);
  b.observe(lease, kStart);
  EXPECT_TRUE(b.attempt(lease, kStart, kWall, "ns", "l"));
}

TEST(LeaderElector, SecondElectorLeadsAfterFirstStops) {
  apiserver::InMemoryApiServer api;
  kube::Client client(api.transport(), {});
  const auto options = [](const char* name) {
    LeaderElector::Options out;
    out.lease = {.identity = name,
                 .lease_duration = seconds(900),
                 .renew_deadline = seconds(600),
                 .retry_period = milliseconds(5)};
    return out;
  };
  std::atomic<int> leaders{0}, most{0};
  std::atomic<bool> first_leads{false}, second_leads{false};
  const auto lead = [&](std::atomic<bool>& flag) {
    return [&](const Context& ctx) {
      most = std::max<int>(most, ++leaders);
      flag = true;
      while (ctx.sleep_for(std::chrono::hours(1)).ok()) {
      }
      --leaders;
    };
  };
  LeaderElector one(client, options("one")), two(client, options("two"));
  std::jthread first(
      [&](std::stop_token stop) { EXPECT_TRUE(one.run(Context(stop), lead(first_leads)).ok()); });
  ASSERT_TRUE(eventually("the first leads", [&] { return first_leads.load(); }));
  std::jthread second(
      [&](std::stop_token stop) { EXPECT_TRUE(two.run(Context(stop), lead(second_leads)).ok()); });
  first.request_stop();
  first.join();
  ASSERT_TRUE(eventually("the second leads", [&] { return second_leads.load(); }))
      << "a released lease need not run out";
  second.request_stop();
  second.join();
  EXPECT_EQ(most, 1);
}

/// A clock that only the test advances, so that the machine's speed does not matter.
class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return kStart + Duration(passed_); }
  WallTime wall() const override {
    return kWall + std::chrono::duration_cast<WallTime::duration>(Duration(passed_));
  }
  void pass(Duration duration) { passed_ += duration.count(); }

 private:
  std::atomic<Duration::rep> passed_{0};
};

/// A transport on which `next` handles the next request, before or instead of the server.
class Link final : public net::HttpClient {
 public:
  using Next =
      std::function<Result<net::ClientResponse>(const Context& ctx, net::ClientRequest request)>;
  explicit Link(net::HttpClient& inner) : inner_(inner) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    ++requests;
    return next ? next(ctx, std::move(request)) : inner_.send(ctx, std::move(request));
  }
  net::HttpClient& inner() { return inner_; }
  Next next;
  int requests = 0;

 private:
  net::HttpClient& inner_;
};

LeaderElector::Options named(const char* name, const HandClock& clock) {
  LeaderElector::Options out;
  out.lease = {.identity = name, .retry_period = milliseconds(1)};
  out.clock = &clock;
  out.last_resort = [] { ADD_FAILURE() << "the process would have ended"; };
  return out;
}

TEST(LeaderElector, SlowReadDoesNotAgeAFreshLease) {
  apiserver::InMemoryApiServer api;
  HandClock clock;
  Link slow(api.transport());
  const kube::Client near(api.transport(), {}), far(slow, {});
  LeaderElector leader(near, named("one", clock)), follower(far, named("two", clock));
  ASSERT_TRUE(leader.attempt(Context()).ok());
  slow.next = [&](const Context& ctx, net::ClientRequest request) {
    clock.pass(seconds(8));
    EXPECT_TRUE(leader.attempt(Context()).ok());
    clock.pass(seconds(8));
    EXPECT_TRUE(leader.attempt(Context()).ok());
    return slow.inner().send(ctx, std::move(request));
  };
  ASSERT_TRUE(follower.attempt(Context()).ok());
  slow.next = nullptr;
  ASSERT_TRUE(follower.attempt(Context()).ok());
  EXPECT_FALSE(follower.leading());
  EXPECT_TRUE(leader.leading());
  clock.pass(seconds(15));
  ASSERT_TRUE(follower.attempt(Context()).ok());
  EXPECT_TRUE(follower.leading()) << "one that nobody renews runs out all the same";
}

TEST(LeaderElector, HangingRenewalLeavesTimeForAnother) {
  apiserver::InMemoryApiServer api;
  HandClock clock;
  Link link(api.transport());
  const kube::Client client(link, {});
  LeaderElector elector(client, named("one", clock));
  std::atomic<int> hung{0};
  int requests = 0;
  link.next = [&](const Context& ctx, net::ClientRequest request) -> Result<net::ClientResponse> {
    // The first two requests take the lease. After that, every other read takes all its time.
    if (++requests < 3 || hung % 2 == 1 || request.method != "GET") {
      if (request.method == "PUT") ++hung;
      return link.inner().send(ctx, std::move(request));
    }
    ++hung;
    clock.pass(*ctx.deadline() - system_clock().now());
    return Error(Code::kTimeout, "never");
  };
  const Status end = elector.run(Context().with_timeout(seconds(120)), [&](const Context& ctx) {
    while (hung < 6 && ctx.sleep_for(milliseconds(1)).ok()) {
    }
    EXPECT_FALSE(ctx.stopped());
  });
  EXPECT_TRUE(end.ok()) << end.error();
}

TEST(LeaderElector, ElectorIgnoresRetryAfter) {
  const auto busy = net::loopback(net::inline_handler([](const net::Request&) {
    net::Response later{.status = 429};
    later.headers.add("Retry-After", "1");
    return later;
  }));
  HandClock clock;
  Link link(*busy);
  const kube::Client patient(link, {.waits_max = 10});
  LeaderElector elector(patient, named("one", clock));
  EXPECT_FALSE(elector.attempt(Context()).ok());
  EXPECT_EQ(link.requests, 1);
}

TEST(LeaderElector, DisconnectedLeaderStopsAndItsLeaseExpires) {
  apiserver::InMemoryApiServer api;
  HandClock clock;
  Link link(api.transport());
  const kube::Client cut_off(link, {}), near(api.transport(), {});
  auto options = named("one", clock);
  options.lease.lease_duration = seconds(1000);
  LeaderElector one(cut_off, options);
  int writes = 0;
  link.next = [&](const Context& ctx, net::ClientRequest request) -> Result<net::ClientResponse> {
    if (request.method != "GET") ++writes;
    if (request.method != "GET" || writes == 0) return link.inner().send(ctx, std::move(request));
    clock.pass(seconds(4));
    return Error(Code::kTimeout, "never");
  };
  bool stopped_inside = false;
  const Status end = one.run(Context().with_timeout(seconds(120)), [&](const Context& ctx) {
    stopped_inside = ctx.sleep_for(std::chrono::hours(1)).error().code() == Code::kCancelled;
  });
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code(), Code::kUnavailable);
  EXPECT_TRUE(stopped_inside) << "its work was asked to stop";

  const auto left = near.get(Context(), {"coordination.k8s.io", "v1", "Lease", "leases", true},
                             {"kube-system", "varda-operator"});
  ASSERT_TRUE(left.ok()) << left.error();
  EXPECT_EQ((*left)["spec"]["holderIdentity"].as_string(), "one") << "it could not give it up";
  LeaderElector two(near, named("two", clock));
  ASSERT_TRUE(two.attempt(Context()).ok());
  clock.pass(seconds(999));
  ASSERT_TRUE(two.attempt(Context()).ok());
  EXPECT_FALSE(two.leading());
  clock.pass(seconds(1));
  ASSERT_TRUE(two.attempt(Context()).ok());
  EXPECT_TRUE(two.leading());
}

TEST(LeaderElector, StuckWorkEndsTheProcessAfterLeaseLoss) {
  apiserver::InMemoryApiServer api;
  HandClock clock;
  Link link(api.transport());
  const kube::Client client(link, {});
  auto options = named("one", clock);
  std::atomic<bool> process_ended{false};
  options.last_resort = [&] { process_ended = true; };
  LeaderElector one(client, options);
  int writes = 0;
  link.next = [&](const Context& ctx, net::ClientRequest request) -> Result<net::ClientResponse> {
    if (request.method != "GET") ++writes;
    if (request.method != "GET" || writes == 0) return link.inner().send(ctx, std::move(request));
    clock.pass(seconds(15));
    return Error(Code::kTimeout, "never");
  };
  const Status end = one.run(Context().with_timeout(seconds(120)), [&](const Context&) {
    EXPECT_TRUE(eventually("the process ends",
                           [&] { return process_ended.load(); }));  // ignores its context
  });
  EXPECT_EQ(end.error().code(), Code::kUnavailable);
}

TEST(LeaderElector, DefaultIdentitiesAreUnique) {
  apiserver::InMemoryApiServer api;
  kube::Client client(api.transport(), {});
  LeaderElector one(client, {}), two(client, {});
  EXPECT_NE(one.identity(), two.identity());
  ASSERT_TRUE(one.attempt(Context()).ok());
  ASSERT_TRUE(two.attempt(Context()).ok());
  EXPECT_TRUE(one.leading());
  EXPECT_FALSE(two.leading());
  one.release(Context());
  ASSERT_TRUE(two.attempt(Context()).ok());
  EXPECT_TRUE(two.leading());
}

}  // namespace leader_test
}  // namespace varda::runtime
