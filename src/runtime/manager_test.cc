#include "runtime/manager.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"

namespace varda::runtime {
namespace manager_test {

using std::chrono::milliseconds, std::chrono::seconds;

const Resource& nodes_resource() {
  static const Resource resource{"", "v1", "Node", "nodes", false};
  return resource;
}
using Node = Raw<nodes_resource>;

/// Stays busy until released is set.
struct Slow {
  void watches(Watches<Node>&) const {}
  Result<Action> reconcile(const Context&, const Node&, Writer&) {
    busy = true;
    released.wait(false);
    return Action::await_change();
  }
  std::atomic<bool> busy{false}, released{false};
};

TEST(Manager, ManagerStopsLeadingAtStopRequest) {
  apiserver::InMemoryApiServer api;
  const kube::Client client(api.transport(), {});
  ASSERT_EQ(api.post("/api/v1/nodes", Json::object({{"metadata", Json::object({{"name", "one"}})}}))
                .status,
            201);
  LeaderElector::Options election;
  election.lease.lease_duration = seconds(1000);  // no other process takes over while the work ends
  Manager manager(client, {.election = election});
  Slow slow;
  manager.add<Node>(slow);
  std::jthread thread([&](std::stop_token stop) { EXPECT_TRUE(manager.run(Context(stop)).ok()); });
  EXPECT_TRUE(eventually("it works", [&] { return slow.busy.load(); }));
  EXPECT_TRUE(manager.leading());
  thread.request_stop();
  EXPECT_TRUE(eventually("it leads no more", [&] { return !manager.leading(); }));
  slow.released = true;
  slow.released.notify_all();
  thread.join();
  EXPECT_FALSE(manager.leading());
}

}  // namespace manager_test
}  // namespace varda::runtime
