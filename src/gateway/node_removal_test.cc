#include "gateway/node_removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/join_token.h"
#include "gateway/node_key.h"
#include "gateway/testing/cloud.h"

namespace varda::gateway {
namespace node_removal_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NodeRemoval : public ::testing::Test {
 protected:
  NodeRemoval() { EXPECT_TRUE(make_system_namespace(ctx_, cloud_.client()).ok()); }
  void add_node() {
    cloud_.apply(R"(
apiVersion: v1
kind: Node
metadata: {name: line7}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: line7}
status: {conditions: [{type: Connected, status: "True"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: line7, namespace: kube-node-lease}
spec: {holderIdentity: line7}
)");
    ASSERT_TRUE(
        set_node_key(ctx_, cloud_.client(), "line7", std::string(64, 'a'), Layer::kEdge).ok());
  }
  void add_pod(const std::string& name, const std::string& phase) {
    cloud_.apply("{apiVersion: v1, kind: Pod, metadata: {name: " + name +
                 ", namespace: default}, spec: {nodeName: line7, " +
                 "containers: [{name: c, image: i}]}, status: {phase: " + phase + "}}");
  }
  Result<RemovedNode> remove(const std::string& node, RemovalRisk risk = RemovalRisk::kNone) {
    return remove_node(ctx_, cloud_.client(), node, risk);
  }
  int status_of(const std::string& path) { return cloud_.api().get(path).status; }

  const Context ctx_ = Context().with_timeout(std::chrono::seconds(300));
  testing::Cloud cloud_;
};

constexpr const char* kNode = "/api/v1/nodes/line7";
constexpr const char* kEdgeNode = "/apis/edgeai.io/v1alpha1/edgenodes/line7";
constexpr const char* kLease =
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/line7";

TEST_F(NodeRemoval, RemovalForgetsKeyAndDeletesObjects) {
  add_node();
  add_pod("finished", "Succeeded");
  const auto removed = remove("line7");
  ASSERT_TRUE(removed.ok()) << removed.error();
  EXPECT_TRUE(removed->key && removed->node && removed->edge_node && removed->lease &&
              removed->connected);
  EXPECT_TRUE(removed->pods.empty());
  for (const char* path : {kNode, kEdgeNode, kLease}) EXPECT_EQ(status_of(path), 404) << path;
  const auto claim = claim_node_key(ctx_, cloud_.client(), "line7", std::string(64, 'a'),
                                    {.be_first = true, .follow = true});
  EXPECT_EQ(claim.value(), KeyClaim::kIsForgotten) << "the former key renews nothing";
  // Nothing is left to remove.
  const Error again = remove("line7").error();
  EXPECT_EQ(again.code(), Code::kNotFound);
}

TEST_F(NodeRemoval, IncompleteNodeIsRemoved) {
  cloud_.apply("{apiVersion: v1, kind: Node, metadata: {name: line7}}");
  const auto removed = remove("line7");
  ASSERT_TRUE(removed.ok()) << removed.error();
  EXPECT_TRUE(removed->node);
  EXPECT_FALSE(removed->key || removed->edge_node || removed->lease || removed->connected);
}

TEST_F(NodeRemoval, BoundPodsNeedConsent) {
  add_node();
  add_pod("busy", "Running");
  const Error refused = remove("line7").error();
  EXPECT_EQ(refused.code(), Code::kConflict);
  EXPECT_THAT(refused.message(), HasSubstr("1 pod is bound to node \"line7\" (default/busy)"));
  EXPECT_EQ(status_of(kNode), 200) << "nothing was removed";
  EXPECT_TRUE(has_node_key(ctx_, cloud_.client(), "line7").value());
  const auto removed = remove("line7", RemovalRisk::kAccepted);
  ASSERT_TRUE(removed.ok()) << removed.error();
  EXPECT_THAT(removed->pods, ElementsAre("default/busy"));
  EXPECT_EQ(status_of(kNode), 404);
}

TEST_F(NodeRemoval, RevokedNodeNeedsConsent) {
  cloud_.apply(
      "{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: line7, annotations: "
      "{edgeai.io/revoked: 'true'}}}");
  const Error refused = remove("line7").error();
  EXPECT_EQ(refused.code(), Code::kConflict);
  EXPECT_THAT(refused.message(), HasSubstr("edgeai.io/revoked"));
  EXPECT_TRUE(remove("line7", RemovalRisk::kAccepted).ok());
}

TEST_F(NodeRemoval, UnknownNodeIsNamedInError) {
  const Error unknown = remove("line8").error();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("there is no node \"line8\""));
  EXPECT_EQ(remove("Line/8").error().code(), Code::kInvalid);
}

}  // namespace node_removal_test
}  // namespace varda::gateway
