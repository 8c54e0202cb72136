// Sources of a node's Ready: a varda control plane sets it; for the node controller of Kubernetes
// the agent posts it.
#include "agent/pods/registration.h"

#include <chrono>
#include <gtest/gtest.h>
#include <string>

#include "apiserver/testing/in_memory.h"
#include "artifact/testing/manual_clock.h"
#include "codec/yaml.h"
#include "kube/client.h"

namespace varda::agent::pods {
namespace registration_test {

using codec::Json;
using std::chrono::seconds;

constexpr const char* kNode = "/api/v1/nodes/cam";

Json yaml(const std::string& text) { return codec::parse_yaml(text).value(); }

class AgentNodeReady : public ::testing::Test {
 protected:
  void step() { registration_.step(Context::background()); }
  Json node() { return api_.get(kNode).body; }
  Json ready() {
    for (const Json& condition : node().at("status/conditions").as_array()) {
      if (condition["type"].as_string() == "Ready") return condition;
    }
    return nullptr;
  }
  std::string version() { return node().at("metadata/resourceVersion").as_string(); }
  void set_conditions(const std::string& conditions) {
    ASSERT_EQ(api_.merge_patch(std::string(kNode) + "/status",
                               yaml("{status: {conditions: " + conditions + "}}"))
                  .status,
              200);
  }

  apiserver::InMemoryApiServer api_;
  artifact::testing::ManualClock clock_;
  kube::Client client_{api_.transport(), {}};
  Registration registration_{
      client_, {.name = "cam", .layer = "device", .address = "192.0.2.7"}, seconds(10), clock_};
};

TEST_F(AgentNodeReady, ReadyConditionIsLeftToControlPlane) {
  step();
  ASSERT_EQ(node().at("status/addresses").as_array().size(), 2u);
  EXPECT_TRUE(ready().is_null()) << "nobody judges yet";
  for (const char* conditions :
       {"[{type: Ready, status: 'True', reason: AgentConnected}]",
        "[{type: Ready, status: Unknown, reason: AgentDisconnected}]",
        "[{type: DiskPressure, status: Unknown, reason: NodeStatusUnknown}]"}) {
    set_conditions(conditions);
    const std::string before = version();
    clock_.advance(seconds(10));
    step();
    EXPECT_EQ(version(), before) << conditions;
  }
}

TEST(AgentNodeStatus, UnreportedAddressLeavesOnlyHostname) {
  const Json addresses = node_status({.name = "cam", .address = ""})["addresses"];
  EXPECT_EQ(addresses, yaml("[{type: Hostname, address: cam}]"));
}

TEST_F(AgentNodeReady, ReadyConditionIsPostedWhenNodeControllerWaits) {
  step();
  for (const char* reason : {"NodeStatusNeverUpdated", "NodeStatusUnknown"}) {
    set_conditions("[{type: Ready, status: Unknown, reason: " + std::string(reason) +
                   ", lastTransitionTime: '2026-01-01T00:00:00Z'}, {type: Other, status: 'True'}]");
    clock_.advance(seconds(10));
    step();
    const Json first = ready();
    EXPECT_EQ(first["status"].as_string(), "True") << reason;
    EXPECT_EQ(first["reason"].as_string(), "AgentRuns");
    EXPECT_NE(first["lastTransitionTime"].as_string(), "2026-01-01T00:00:00Z");
    EXPECT_EQ(node().at("status/conditions").as_array().size(), 2u) << "what others say stays";

    clock_.advance(seconds(10));
    step();
    const Json second = ready();
    EXPECT_NE(second["lastHeartbeatTime"], first["lastHeartbeatTime"])
        << "this is what the node controller looks at";
    EXPECT_EQ(second["lastTransitionTime"], first["lastTransitionTime"]);
  }
}

TEST(AgentNode, ObjectHasTheLabelsSchedulersMatch) {
  const NodeFacts edge{.name = "edge0", .layer = "edge", .address = "127.1.2.3"};
  const Json object = node_object(edge);
  const auto label = [&object](const char* name) { return object["metadata"]["labels"][name]; };
  EXPECT_EQ(label("kubernetes.io/hostname").as_string(), "edge0");
  EXPECT_EQ(label("edgeai.io/layer").as_string(), "edge");
  EXPECT_TRUE(label("edgeai.io/runner").is_string()) << "the DaemonSet of agents keeps away";
  EXPECT_TRUE(label("node-role.kubernetes.io/edge").is_string());
  const Json device = node_object({.name = "cam", .layer = "device"});
  EXPECT_EQ(device["metadata"]["labels"]["edgeai.io/layer"].as_string(), "device");
  EXPECT_TRUE(device["metadata"]["labels"]["node-role.kubernetes.io/edge"].is_string())
      << "what is for the cloud keeps away";
  const Json cloud = node_object({.name = "cloud", .layer = "cloud"});
  EXPECT_TRUE(cloud["metadata"]["labels"]["node-role.kubernetes.io/edge"].is_null());
  EXPECT_EQ(
      node_status(edge)["addresses"],
      *codec::parse_json(
          R"([{"type":"InternalIP","address":"127.1.2.3"},{"type":"Hostname","address":"edge0"}])"));
}

}  // namespace registration_test
}  // namespace varda::agent::pods
