#include "gateway/liveness.h"

#include <array>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "gateway/gateway.h"
#include "gateway/testing/cloud.h"

namespace varda::gateway {
namespace liveness_test {

using codec::Json;
using testing::Cloud;

const WallTime kSeen = meta::parse_time("2024-05-01T09:59:00Z").value();
const WallTime kNow = meta::parse_time("2024-05-01T10:00:00Z").value();

TEST(ConnectedPatch, PatchContainsOnlyTransitions) {
  struct Case {
    const char* name;
    const char* status;
    bool connected;
    const char* patch;  // of status; "": none
  };
  const Case cases[] = {
      {"new", "{}", true,
       R"({conditions: [{type: Connected, lastTransitionTime: "2024-05-01T10:00:00Z", status: "True", reason: AgentConnected,
           message: the node's agent is connected}]})"},
      {"never seen", "{}", false,
       R"({conditions: [{type: Connected, lastTransitionTime: "2024-05-01T10:00:00Z", status: Unknown, reason: AgentDisconnected,
           message: the node's agent has no connection to the gateway; pods on the node keep running}]})"},
      {"connected still",
       R"({conditions: [{type: Connected, status: "True", reason: AgentConnected, message: other words}]})",
       true, ""},
      {"cut off still",
       R"({lastSeen: "2024-05-01T08:00:00Z", conditions: [{type: Connected, status: Unknown, reason: AgentDisconnected}]})",
       false, ""},
      {"cut off now",
       R"({conditions: [{type: Other, status: "True"}, {type: Connected, status: "True", reason: AgentConnected, lastTransitionTime: x}]})",
       false,
       R"({lastSeen: "2024-05-01T09:59:00Z", conditions: [{type: Other, status: "True"}, {type: Connected, status: Unknown,
           lastTransitionTime: "2024-05-01T10:00:00Z", reason: AgentDisconnected,
           message: the node's agent has no connection to the gateway; pods on the node keep running}]})"},
      {"back",
       R"({lastSeen: "2024-05-01T08:00:00Z", conditions: [{type: Connected, status: Unknown, reason: AgentDisconnected}]})",
       true,
       R"({lastSeen: null, conditions: [{type: Connected, status: "True", lastTransitionTime: "2024-05-01T10:00:00Z", reason: AgentConnected,
           message: the node's agent is connected}]})"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const Json object = Json::object(
        {{"metadata", Json::object({{"uid", "u"}, {"resourceVersion", "7"}, {"name", "n"}})},
         {"status", codec::parse_yaml(one.status).value()}});
    const auto patch = connected_patch(object, one.connected, kSeen, kNow);
    if (std::string(one.patch).empty()) {
      EXPECT_FALSE(patch) << codec::write_json(*patch);
      continue;
    }
    ASSERT_TRUE(patch);
    EXPECT_EQ((*patch)["metadata"], Json::object({{"uid", "u"}, {"resourceVersion", "7"}}));
    EXPECT_EQ((*patch)["status"], codec::parse_yaml(one.patch).value())
        << codec::write_json(*patch);
  }
}

/// A gateway with its own process, over a cloud.
class LivenessTest : public ::testing::Test {
 protected:
  void start(std::chrono::milliseconds start_grace) {
    liveness_ = std::make_unique<Liveness>(
        cloud_.client(),
        Liveness::Options{.start_grace = start_grace, .retry = std::chrono::milliseconds(1)});
    Gateway::Options options;
    options.sessions = liveness_.get();
    options.edge_node_changed = [this](const runtime::Change& change) {
      liveness_->changed(change);
    };
    options.limits.session_linger = std::chrono::milliseconds(1);
    cloud_.start_gateway(std::move(options));
  }
  ~LivenessTest() override { cloud_.stop_gateway(); }
  void make(const std::string& name) {
    cloud_.apply("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: " + name +
                 "}, spec: {}}");
  }
  std::string connected(const std::string& name) {
    const Json node = cloud_.edge_node(name);
    for (const Json& condition : node.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == "Connected") return condition["status"].as_string();
    }
    return "";
  }
  void wait(const std::string& name, const std::string& status) {
    EXPECT_TRUE(eventually("condition Connected of " + name + " is " + status,
                           [&] { return connected(name) == status; }));
  }
  net::ClientResponse watch(net::HttpClient& http, const std::string& name) {
    return http
        .send(Context::background(),
              {.url = "/apis/edgeai.io/v1alpha1/edgenodes?watch=1&fieldSelector=metadata.name%3D" +
                      name})
        .value();
  }

  Cloud cloud_;
  std::unique_ptr<Liveness> liveness_;
};

TEST_F(LivenessTest, ConnectedConditionFollowsTheAgentsWatch) {
  start(std::chrono::hours(1));
  auto http = cloud_.transport("edge0");
  {
    const auto open = watch(*http, "edge0");
    make("edge0");  // the object appears after its node
    wait("edge0", "True");
    EXPECT_TRUE(cloud_.edge_node("edge0").at("status/lastSeen").is_null());
  }
  wait("edge0", "Unknown");
  EXPECT_TRUE(meta::parse_time(cloud_.edge_node("edge0").at("status/lastSeen").as_string()).ok());
  const auto open = watch(*http, "edge0");
  wait("edge0", "True");
  EXPECT_TRUE(cloud_.edge_node("edge0").at("status/lastSeen").is_null());
}

TEST_F(LivenessTest, AbsentNodeIsDisconnectedAfterTheGrace) {
  make("edge0");
  const Json reported =
      codec::parse_yaml(
          R"({status: {conditions: [{type: Connected, status: "True", reason: AgentConnected}]}})")
          .value();
  cloud_.api().merge_patch("/apis/edgeai.io/v1alpha1/edgenodes/edge0/status", reported);
  start(std::chrono::milliseconds(1));
  wait("edge0", "Unknown");
  EXPECT_FALSE(cloud_.edge_node("edge0").at("status/lastSeen").is_null());
}

TEST_F(LivenessTest, AbsentNodeIsUndecidedDuringTheGrace) {
  make("edge0");
  make("edge1");
  start(std::chrono::hours(1));
  auto http = cloud_.transport("edge1");
  const auto open = watch(*http, "edge1");
  wait("edge1", "True");
  EXPECT_EQ(connected("edge0"), "");
}

TEST_F(LivenessTest, RemovedConditionIsWrittenAgain) {
  make("edge0");
  start(std::chrono::hours(1));
  auto http = cloud_.transport("edge0");
  const auto open = watch(*http, "edge0");
  wait("edge0", "True");
  cloud_.api().merge_patch("/apis/edgeai.io/v1alpha1/edgenodes/edge0/status",
                           codec::parse_yaml("{status: {conditions: []}}").value());
  wait("edge0", "True");
}

/// Two gateways that see each other's writes.
class TwoGateways {
 public:
  TwoGateways() {
    cloud_.apply(
        "{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: edge0}, spec: {}}");
    for (auto& gateway : gateways_) {
      gateway = std::make_unique<Liveness>(
          cloud_.client(), Liveness::Options{.start_grace = std::chrono::milliseconds(0),
                                             .retry = std::chrono::milliseconds(1)});
    }
  }
  void opened(std::size_t gateway) { gateways_[gateway]->opened("edge0"); }
  void closed(std::size_t gateway) { gateways_[gateway]->closed("edge0"); }
  /// Shows the object to both gateways, again after each of their writes, until they write no more.
  /// Returns the number of rounds.
  int settle() {
    int shown = 0;
    EXPECT_TRUE(eventually("both gateways are idle", [&] {
      const bool idle = gateways_[0]->idle() && gateways_[1]->idle();
      const Json object = cloud_.edge_node("edge0");
      auto metadata = meta::ObjectMeta::from_json(object["metadata"]).value();
      if (metadata.resource_version == shown_) return idle;
      shown_ = metadata.resource_version;
      auto now = std::make_shared<runtime::Stored>();
      now->text = codec::write_json(object);
      now->metadata = std::move(metadata);
      for (auto& gateway : gateways_) gateway->changed({{"", "edge0"}, last_, now});
      last_ = now;
      return ++shown == 100;
    }));
    return shown;
  }
  std::string status() {
    const Json object = cloud_.edge_node("edge0");
    for (const Json& condition : object.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == "Connected") return condition["status"].as_string();
    }
    return "";
  }
  /// Another writer changes another field.
  void touch() {
    cloud_.api().merge_patch(
        "/apis/edgeai.io/v1alpha1/edgenodes/edge0",
        Json::object(
            {{"metadata", Json::object({{"annotations", Json::object({{"touched", shown_}})}})}}));
  }

 private:
  Cloud cloud_;
  std::array<std::unique_ptr<Liveness>, 2> gateways_;
  runtime::StoredPtr last_;
  std::string shown_;
};

TEST(LivenessOfTwo, ConditionSettlesAndFollowsBothGateways) {
  for (const char* course : {"+0 -0", "+0 +1 -0 -1", "+0 +1 -1 -0", "+0 +1 -0 +0 -1 -0",
                             "+0 -0 +1 -1 +0", "+1 -1 +1 +0 -1 +1 -0"}) {
    SCOPED_TRACE(course);
    TwoGateways two;
    EXPECT_LT(two.settle(), 10);
    EXPECT_EQ(two.status(), "Unknown");
    std::array<bool, 2> has{};
    std::istringstream steps(course);
    for (std::string step; steps >> step;) {
      const std::size_t which = step[1] == '1' ? 1 : 0;
      has[which] = step[0] == '+';
      has[which] ? two.opened(which) : two.closed(which);
      two.touch();
      EXPECT_LT(two.settle(), 10) << step;
      EXPECT_EQ(two.status(), has[0] || has[1] ? "True" : "Unknown") << step;
    }
  }
}

}  // namespace liveness_test
}  // namespace varda::gateway
