#include "runtime/leader.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"

namespace varda::runtime {
namespace {

using codec::Json;
using std::chrono::milliseconds, std::chrono::seconds;

const SteadyTime kStart = SteadyTime(std::chrono::hours(10));
const WallTime kWall = WallTime(std::chrono::hours(400'000));

TEST(LeaseCore, TakesAFreeLeaseAndRenewsIt) {
  LeaseCore core({.identity = "a"});
  const auto lease = core.attempt(nullptr, kStart, kWall, "ns", "l");
  ASSERT_TRUE(lease);
  EXPECT_EQ((*lease)["spec"]["holderIdentity"].as_string(), "a");
  EXPECT_EQ((*lease)["spec"]["leaseDurationSeconds"].as_integer(), 15);
  EXPECT_EQ((*lease)["spec"]["renewTime"].as_string().size(), std::string("2024-05-01T10:00:00.000000Z").size());
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

TEST(LeaseCore, WaitsForTheLeaseOfAnotherAsLongAsItChanges) {
  LeaseCore a({.identity = "a"}), b({.identity = "b"});
  Json lease = *a.attempt(nullptr, kStart, kWall, "ns", "l");
  // Whatever the clocks on the wall say: what counts is when b saw a change.
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

TEST(LeaseCore, AReleasedLeaseIsTakenAtOnce) {
  LeaseCore a({.identity = "a"}), b({.identity = "b"});
  const Json lease = a.release(*a.attempt(nullptr, kStart, kWall, "ns", "l"), kWall);
  b.observe(lease, kStart);
  EXPECT_TRUE(b.attempt(lease, kStart, kWall, "ns", "l"));
}

TEST(LeaderElector, OneLeadsAndTheOtherFollowsWhenItEnds) {
  apiserver::InMemoryApiServer api;
  kube::Client client(api.transport(), {});
  const auto options = [](const char* name) {
    LeaderElector::Options out;
    out.lease = {.identity = name, .lease_duration = seconds(15), .renew_deadline = seconds(10), .retry_period = milliseconds(5)};
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
  const auto wait = [](const std::atomic<bool>& flag) {
    for (int i = 0; i < 10'000 && !flag; ++i) std::this_thread::sleep_for(milliseconds(1));
    return flag.load();
  };
  LeaderElector one(client, options("one")), two(client, options("two"));
  std::jthread first([&](std::stop_token stop) { EXPECT_TRUE(one.run(Context(stop), lead(first_leads)).ok()); });
  ASSERT_TRUE(wait(first_leads));
  std::jthread second([&](std::stop_token stop) { EXPECT_TRUE(two.run(Context(stop), lead(second_leads)).ok()); });
  first.request_stop();
  first.join();
  ASSERT_TRUE(wait(second_leads)) << "a released lease need not run out";
  second.request_stop();
  second.join();
  EXPECT_EQ(most, 1);
}

/// A way to the server that can be made to swallow everything, as a link that is cut does.
class Swallowing final : public net::HttpClient {
 public:
  explicit Swallowing(net::HttpClient& inner) : inner_(inner) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    if (!swallow) return inner_.send(ctx, std::move(request));
    TRY_VOID(ctx.sleep_for(std::chrono::hours(1)));
    return Error(Code::kUnavailable, "never");
  }
  std::atomic<bool> swallow{false};

 private:
  net::HttpClient& inner_;
};

TEST(LeaderElector, ALeaderThatIsCutOffEndsByItselfAndLeavesTheLeaseToRunOut) {
  apiserver::InMemoryApiServer api;
  Swallowing link(api.transport());
  kube::Client cut_off(link, {}), near(api.transport(), {});
  const LeaseCore::Options lease{
      .identity = "one", .lease_duration = seconds(1), .renew_deadline = milliseconds(200), .retry_period = milliseconds(5)};
  LeaderElector one(cut_off, {.lease = lease});
  bool stopped_inside = false;
  const Status end = one.run(Context().with_timeout(seconds(120)), [&](const Context& ctx) {
    link.swallow = true;
    stopped_inside = ctx.sleep_for(std::chrono::hours(1)).error().code() == Code::kCancelled;
  });
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code(), Code::kUnavailable);
  EXPECT_TRUE(stopped_inside) << "its work was told to stop";

  const auto left = near.get(Context(), {"coordination.k8s.io", "v1", "Lease", "leases", true}, {"kube-system", "varda-operator"});
  ASSERT_TRUE(left.ok()) << left.error();
  EXPECT_EQ((*left)["spec"]["holderIdentity"].as_string(), "one") << "it could not give it up";
  LeaseCore::Options other = lease;
  other.identity = "two";
  LeaderElector two(near, {.lease = other});
  EXPECT_TRUE(two.run(Context().with_timeout(seconds(120)), [](const Context&) {}).ok());
}

TEST(LeaderElector, WithoutANameEachHasOneOfItsOwn) {
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

}  // namespace
}  // namespace varda::runtime
