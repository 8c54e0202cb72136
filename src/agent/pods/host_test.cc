// Deletions of pods that the runner finished, over the real API server in memory.
#include "agent/pods/host.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "api/core/pod.h"
#include "apiserver/testing/in_memory.h"
#include "codec/yaml.h"
#include "kube/client.h"
#include "meta/patch.h"

namespace varda::agent::pods {
namespace host_test {

using codec::Json;

class NoEvents final : public runtime::EventRecorder {
 public:
  void record(const runtime::ObjectRef&, runtime::EventType, std::string_view,
              std::string_view) override {}
};

class AgentPodHost : public ::testing::Test {
 protected:
  static constexpr const char* kPods = "/api/v1/namespaces/default/pods";

  /// A pod that a client deleted and that waits for its node.
  node::PodName deleted_pod(const std::string& name) {
    const Json pod =
        codec::parse_yaml("{metadata: {name: " + name +
                          "}, spec: {nodeName: edge0, containers: [{name: c, image: i}]}}")
            .value();
    const auto made = api_.post(kPods, pod);
    EXPECT_EQ(made.status, 201) << made.text;
    EXPECT_EQ(api_.remove(std::string(kPods) + "/" + name).status, 200);
    return {"default", name, made.body.at("metadata/uid").as_string()};
  }
  int status_of(const std::string& name) {
    return api_.get(std::string(kPods) + "/" + name).status;
  }
  /// Lists the pods. The watch ends with this object.
  void list() {
    lists_ = std::jthread([this](const std::stop_token& stop) { pods_.run(Context(stop)); });
    while (!pods_.has_synced()) std::this_thread::yield();
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  runtime::Informer pods_{client_, {.resource = api::Pod::resource()}};
  NoEvents events_;
  std::jthread lists_;
};

TEST_F(AgentPodHost, HostDeletesEachFinishedPod) {
  Host host(client_, pods_, events_, {.pods_max = 2});
  for (const char* name : {"a", "b", "c", "d"}) host.finished(deleted_pod(name));
  list();
  host.step(Context::background());
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(status_of(name), 404) << name;
  EXPECT_TRUE(host.idle());
}

TEST_F(AgentPodHost, HostForgetsFinishedPodsUnknownToServer) {
  Host host(client_, pods_, events_, {});
  list();
  for (int i = 0; i < 3000; ++i) host.finished({"default", "gone", std::to_string(i)});
  host.step(Context::background());
  EXPECT_TRUE(host.idle());
}

TEST(AgentPods, StatusPatchKeepsValuesOfOtherWriters) {
  Json live = *codec::parse_json(
      R"({"metadata":{"uid":"u"},"status":{"phase":"Pending","qosClass":"BestEffort","reason":"old",
          "conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"False"}]}})");
  const Json status =
      *codec::parse_json(R"({"phase":"Running","conditions":[{"type":"Ready","status":"True"}]})");
  const auto patch = pod_status_patch(live, status);
  ASSERT_TRUE(patch);
  EXPECT_EQ(patch->at("metadata/uid").as_string(), "u");
  live = meta::apply_merge_patch(live, *patch);
  EXPECT_EQ(live["status"], *codec::parse_json(R"({"phase":"Running","qosClass":"BestEffort",
      "conditions":[{"type":"Ready","status":"True"},{"type":"PodScheduled","status":"True"}]})"));
  EXPECT_FALSE(pod_status_patch(live, status));
}

}  // namespace host_test
}  // namespace varda::agent::pods
