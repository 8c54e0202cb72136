// Informers and managers that are limited to some namespaces.
#include <algorithm>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "runtime/manager.h"

namespace varda::runtime {
namespace namespaces_test {

using std::chrono::milliseconds, std::chrono::seconds;

const Resource& config_maps_resource() {
  static const Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}
const Resource& nodes_resource() {
  static const Resource resource{"", "v1", "Node", "nodes", false};
  return resource;
}
using ConfigMap = Raw<config_maps_resource>;
using Node = Raw<nodes_resource>;

/// Records the request paths, which a role for some namespaces would have to allow.
class Recording final : public net::HttpClient {
 public:
  explicit Recording(net::HttpClient& inner) : inner_(inner) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    {
      const std::lock_guard lock(mutex_);
      paths_.push_back(request.url.substr(0, request.url.find('?')));
    }
    return inner_.send(ctx, std::move(request));
  }
  std::vector<std::string> paths() const {
    const std::lock_guard lock(mutex_);
    auto out = paths_;
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

 private:
  net::HttpClient& inner_;
  mutable std::mutex mutex_;
  std::vector<std::string> paths_;
};

/// Records the objects it gets.
struct Reconciler {
  void watches(Watches<ConfigMap>& w) const { w.reads<Node>(); }
  Result<Action> reconcile(const Context&, const ConfigMap& map, Writer&) {
    const std::lock_guard lock(mutex);
    seen.push_back(map.metadata.key().str());
    return Action::await_change();
  }
  std::mutex mutex;
  std::vector<std::string> seen;
};

class NamespacesTest : public ::testing::Test {
 protected:
  NamespacesTest() {
    for (const char* ns : {"a", "b", "c"}) {
      api_.post("/api/v1/namespaces", Json::object({{"metadata", Json::object({{"name", ns}})}}));
      make(ns, "first");
    }
  }
  void make(const std::string& ns, const char* name) {
    const auto made = api_.post("/api/v1/namespaces/" + ns + "/configmaps",
                                Json::object({{"metadata", Json::object({{"name", name}})}}));
    ASSERT_EQ(made.status, 201) << made.text;
  }
  static std::vector<std::string> keys(const Informer& informer) {
    std::vector<std::string> out;
    for (const StoredPtr& stored : informer.list()) out.push_back(stored->metadata.key().str());
    return out;
  }
  using Keys = std::vector<std::string>;

  apiserver::InMemoryApiServer api_;
  Recording http_{api_.transport()};
  kube::Client client_{http_, {}};
};

TEST_F(NamespacesTest, ManagerReadsOnlyConfiguredNamespaces) {
  Manager manager(client_, {.namespaces = {"a", "b"}, .informer_backoff_min = milliseconds(1)});
  Reconciler reconciler;
  manager.add<ConfigMap>(reconciler);
  const Informer& maps = *manager.caches().find(config_maps_resource());
  EXPECT_EQ(maps.scopes(), 2u);
  EXPECT_EQ(manager.caches().find(nodes_resource())->scopes(), 1u);
  std::jthread thread([&](std::stop_token stop) { EXPECT_TRUE(manager.run(Context(stop)).ok()); });
  ASSERT_TRUE(eventually("both namespaces are known", [&] { return manager.ready(); }));
  const auto firsts = keys(maps);
  for (const char* key : {"a/first", "b/first"})
    EXPECT_NE(std::find(firsts.begin(), firsts.end(), key), firsts.end());

  for (const char* ns : {"c", "b", "a"}) make(ns, "second");
  api_.remove("/api/v1/namespaces/b/configmaps/first");
  ASSERT_TRUE(eventually("changes of both are seen", [&] {
    return maps.get({"a", "second"}) && maps.get({"b", "second"}) && !maps.get({"b", "first"});
  }));
  EXPECT_FALSE(maps.get({"c", "first"}) || maps.get({"c", "second"}));
  ASSERT_TRUE(eventually("they are reconciled", [&] {
    const std::lock_guard lock(reconciler.mutex);
    return std::find(reconciler.seen.begin(), reconciler.seen.end(), "a/second") !=
           reconciler.seen.end();
  }));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(http_.paths(), (Keys{"/api/v1/namespaces/a/configmaps",
                                 "/api/v1/namespaces/b/configmaps", "/api/v1/nodes"}));
}

TEST_F(NamespacesTest, EachStepListsOneNamespaceAndKeepsOthers) {
  auto options = Informer::typed<ConfigMap>();
  options.namespaces = {"a", "b"};
  options.watch_timeout = seconds(1);
  Informer informer(client_, std::move(options));
  // Each step makes a list, then watches for one second.
  (void)informer.step(Context(), 0);
  EXPECT_FALSE(informer.has_synced());
  EXPECT_TRUE(informer.get({"a", "first"}));
  EXPECT_FALSE(informer.get({"b", "first"}));
  (void)informer.step(Context(), 1);
  EXPECT_TRUE(informer.has_synced());
  EXPECT_TRUE(informer.get({"a", "first"}));
  EXPECT_TRUE(informer.get({"b", "first"}));
  // wrote() adds an object to the scope of its namespace.
  const Json made = api_.post("/api/v1/namespaces/b/configmaps",
                              Json::object({{"metadata", Json::object({{"name", "mine"}})}}))
                        .body;
  informer.wrote(made);
  EXPECT_TRUE(informer.get({"b", "mine"}));
  Json other = made;
  other["metadata"].set("namespace", "c");
  informer.wrote(other);
  EXPECT_FALSE(informer.get({"c", "mine"}));
}

}  // namespace namespaces_test
}  // namespace varda::runtime
