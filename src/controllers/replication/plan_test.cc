#include <functional>
#include <gtest/gtest.h>

#include "controllers/replication/replication.h"

namespace varda::controllers::replication {
namespace replication_plan_test {

constexpr const char* kKey = "datasets.edgeai.io/default/faces";
constexpr const char* kNow = "2026-01-02T00:00:00Z";

class Replication : public ::testing::Test {
 protected:
  api::EdgeNode& add(const std::string& name, const std::string& line) {
    auto node = std::make_shared<api::Node>();
    node->metadata.name = name;
    node->metadata.labels["line"] = line;
    world_.nodes.push_back(node);
    auto edge_node = std::make_shared<api::EdgeNode>();
    edge_node->metadata.name = name;
    edge_node->status.peer_url = "https://" + name + ":10445";
    edge_node->status.conditions.push_back({.type = "Connected", .status = "True"});
    world_.edge_nodes[name] = edge_node;
    mutable_[name] = edge_node;
    return *edge_node;
  }
  void offer(const std::string& snapshot, const std::string& path = "/data/faces") {
    mutable_.at("edge0")->status.shares = {{.key = kKey,
                                            .path = path,
                                            .state = "Ready",
                                            .snapshot = snapshot,
                                            .bytes = 7,
                                            .files = 2}};
  }
  void has(const std::string& node, const std::string& snapshot, const std::string& uid = "u") {
    mutable_.at(node)->status.replicas = {{.key = kKey,
                                           .uid = uid,
                                           .state = "Current",
                                           .snapshot = snapshot,
                                           .path = "/copies/" + node}};
  }
  ReplicationWork work(const std::string& node) const {
    return replication_for(node, {claim_}, world_);
  }
  static std::vector<std::string> names(const std::vector<api::EdgeReplicaSource>& sources) {
    std::vector<std::string> out;
    for (const auto& source : sources) out.push_back(source.node);
    return out;
  }
  api::ReplicationStatus status(const api::ReplicationStatus& before = {}) const {
    return observe_replication(claim_, world_, before, kNow);
  }

  std::map<std::string, std::shared_ptr<api::EdgeNode>> mutable_;
  ReplicationWorld world_;
  ReplicationClaim claim_{.key = kKey,
                          .uid = "u",
                          .node = "edge0",
                          .path = "/data/faces",
                          .spec = {{{"line", "a"}}, {}}};

  void SetUp() override {
    add("edge0", "a");
    add("edge1", "a");
    add("edge2", "a");
    add("edge3", "b");
    offer("s1");
  }
};

TEST_F(Replication, SourceSharesFilesWithSelectedNodes) {
  const ReplicationWork a = work("edge0"), b = work("edge1"), other = work("edge3");
  ASSERT_EQ(a.shares.size(), 1u);
  EXPECT_EQ(a.shares[0].path, "/data/faces");
  EXPECT_EQ(a.shares[0].nodes, (std::vector<std::string>{"edge1", "edge2"}));
  EXPECT_TRUE(a.replicas.empty());
  ASSERT_EQ(b.replicas.size(), 1u);
  EXPECT_EQ(b.replicas[0].snapshot, "s1");
  EXPECT_EQ(names(b.replicas[0].sources), std::vector<std::string>{"edge0"});
  EXPECT_EQ(b.replicas[0].sources[0].url, "https://edge0:10445");
  EXPECT_TRUE(b.shares.empty());
  EXPECT_TRUE(other.shares.empty() && other.replicas.empty());
}

TEST_F(Replication, ShareOfFormerPathIsIgnored) {
  offer("s0", "/data/former");
  has("edge1", "s0");
  EXPECT_EQ(work("edge2").replicas[0].snapshot, "");
  EXPECT_EQ(status().snapshot, "");
  EXPECT_EQ(status().current, 0);
}

TEST_F(Replication, CurrentReplicaServesOutdatedNodes) {
  has("edge1", "s1");
  EXPECT_EQ(names(work("edge2").replicas[0].sources), (std::vector<std::string>{"edge1", "edge0"}));
  ASSERT_EQ(work("edge1").shares.size(), 1u);
  EXPECT_EQ(work("edge1").shares[0].path, "");
  EXPECT_EQ(work("edge1").shares[0].nodes, std::vector<std::string>{"edge2"});
}

TEST_F(Replication, SourcesAreLimitedAndDifferPerNode) {
  for (int i = 10; i < 30; ++i) {
    add("n" + std::to_string(i), "a");
    has("n" + std::to_string(i), "s1");
  }
  const auto one = names(work("edge1").replicas[0].sources),
             two = names(work("edge2").replicas[0].sources);
  EXPECT_EQ(one.size(), 4u);
  EXPECT_EQ(one.back(), "edge0");
  EXPECT_NE(one, two);
}

// Updating all other lists whenever one node finishes would cost a quadratic number of writes.
TEST_F(Replication, ProgressOfOtherNodesKeepsSourcesAndShares) {
  for (const char* name : {"edge4", "edge5", "edge6", "edge7"}) add(name, "a");
  for (const char* name : {"edge1", "edge2", "edge4"}) has(name, "s1");
  const auto give = [this](const std::string& node) {
    mutable_.at(node)->spec.replicas = work(node).replicas;
  };
  for (const char* name : {"edge1", "edge5", "edge6"}) give(name);
  const ReplicationWork copied = work("edge1"), waiting = work("edge5");
  EXPECT_EQ(names(waiting.replicas[0].sources).size(), 4u);
  const auto same = [&](const char* why) {
    EXPECT_EQ(names(work("edge1").replicas[0].sources), names(copied.replicas[0].sources)) << why;
    EXPECT_EQ(work("edge1").shares.at(0).nodes, copied.shares.at(0).nodes) << why;
    EXPECT_EQ(names(work("edge5").replicas[0].sources), names(waiting.replicas[0].sources)) << why;
  };
  has("edge6", "s1");
  same("one more is done");
  has("edge7", "s0");
  same("one has an old copy");
  has("edge5", "s1");
  same("the one that waited is done too");
}

TEST_F(Replication, OutdatedReplicaIsNotASource) {
  has("edge1", "s1");
  mutable_.at("edge2")->spec.replicas = work("edge2").replicas;
  offer("s2");
  EXPECT_EQ(names(work("edge2").replicas[0].sources), std::vector<std::string>{"edge0"});
}

TEST_F(Replication, UnreachableReplicaIsNotASource) {
  has("edge1", "s1");
  mutable_.at("edge1")->status.conditions[0].status = "Unknown";
  EXPECT_EQ(names(work("edge2").replicas[0].sources), std::vector<std::string>{"edge0"});
  mutable_.at("edge1")->status.conditions[0].status = "True";
  mutable_.at("edge1")->status.peer_url.clear();
  EXPECT_EQ(names(work("edge2").replicas[0].sources), std::vector<std::string>{"edge0"});
}

TEST_F(Replication, NodeWithUnsafePeerUrlIsNotASource) {
  has("edge1", "s1");
  for (const char* url : {"http://127.0.0.1:24500/internal?x=", "https://edge1:10445/internal",
                          "https://user@edge1:10445"}) {
    mutable_.at("edge1")->status.peer_url = url;
    mutable_.at("edge0")->status.peer_url = "https://edge0:10445";
    EXPECT_EQ(names(work("edge2").replicas[0].sources), std::vector<std::string>{"edge0"}) << url;
    mutable_.at("edge0")->status.peer_url = url;
    EXPECT_TRUE(work("edge2").replicas[0].sources.empty()) << url;
  }
}

TEST_F(Replication, RevokedNodeNeitherReceivesNorServes) {
  has("edge1", "s1");
  mutable_.at("edge2")->spec.replicas = work("edge2").replicas;
  mutable_.at("edge1")->metadata.annotations["edgeai.io/revoked"] = "true";
  EXPECT_EQ(work("edge0").shares.at(0).nodes, std::vector<std::string>{"edge2"});
  EXPECT_EQ(names(work("edge2").replicas.at(0).sources), std::vector<std::string>{"edge0"})
      << "though it was told of it";
  EXPECT_TRUE(work("edge1").shares.empty() && work("edge1").replicas.empty());
  has("edge2", "s1");
  EXPECT_TRUE(work("edge2").shares.empty());
  EXPECT_EQ(status().wanted, 1);
  EXPECT_EQ(status().find_node("edge1"), nullptr);
  mutable_.at("edge1")->metadata.annotations["edgeai.io/revoked"] = "false";
  EXPECT_EQ(work("edge0").shares.at(0).nodes, (std::vector<std::string>{"edge1", "edge2"}));
}

TEST_F(Replication, ReplicasServeOthersWhenSourceIsRevoked) {
  has("edge1", "s1");
  mutable_.at("edge0")->metadata.annotations["edgeai.io/revoked"] = "true";
  EXPECT_TRUE(work("edge0").shares.empty());
  EXPECT_EQ(work("edge2").replicas.at(0).snapshot, "s1");
  EXPECT_EQ(names(work("edge2").replicas.at(0).sources), std::vector<std::string>{"edge1"});
  EXPECT_EQ(work("edge1").shares.at(0).nodes, std::vector<std::string>{"edge2"});
}

TEST_F(Replication, RevocationAffectsOtherNodesButOtherAnnotationsDoNot) {
  const api::EdgeNode before = *mutable_.at("edge1");
  api::EdgeNode& now = *mutable_.at("edge1");
  now.metadata.annotations["note"] = "by the door";
  EXPECT_TRUE(same_for_other_nodes(before, now));
  now.metadata.annotations["edgeai.io/revoked"] = "true";
  EXPECT_FALSE(same_for_other_nodes(before, now));
  EXPECT_FALSE(same_for_other_nodes(now, before));
}

TEST_F(Replication, ReplicaOfFormerObjectIsIgnored) {
  has("edge1", "s1", "former");
  EXPECT_EQ(names(work("edge2").replicas[0].sources), std::vector<std::string>{"edge0"});
  EXPECT_EQ(status().current, 0);
}

TEST_F(Replication, ReplicasWaitForFirstSnapshot) {
  mutable_.at("edge0")->status.shares.clear();
  EXPECT_EQ(work("edge1").replicas[0].snapshot, "");
  EXPECT_EQ(status().snapshot, "");
  EXPECT_EQ(status().wanted, 2);
}

TEST_F(Replication, EmptySelectorMatchesEveryNodeWithAnAgent) {
  claim_.spec.node_selector.clear();
  auto lonely = std::make_shared<api::Node>();
  lonely->metadata.name = "no-agent";
  world_.nodes.push_back(lonely);
  EXPECT_EQ(replica_nodes(claim_, world_), (std::vector<std::string>{"edge1", "edge2", "edge3"}));
}

TEST_F(Replication, StatusListsOutdatedNodesWithTime) {
  has("edge1", "s1");
  const api::ReplicationStatus first = status();
  EXPECT_EQ(first.wanted, 2);
  EXPECT_EQ(first.current, 1);
  EXPECT_EQ(first.snapshot, "s1");
  EXPECT_EQ(first.bytes, 7);
  EXPECT_EQ(first.nodes[0].node, "edge2");  // outdated ones come first
  EXPECT_EQ(first.nodes[0].state, "Pending");
  EXPECT_EQ(first.nodes[0].behind_since, kNow);
  EXPECT_EQ(first.nodes[1].state, "Current");
  EXPECT_EQ(first.nodes[1].path, "/copies/edge1");
  EXPECT_EQ(first.nodes[1].behind_since, "");
  const api::ReplicationStatus later =
      observe_replication(claim_, world_, first, "2026-01-03T00:00:00Z");
  EXPECT_EQ(later.nodes[0].behind_since, kNow);
}

TEST_F(Replication, NewSnapshotOutdatesEveryReplica) {
  has("edge1", "s1");
  has("edge2", "s1");
  offer("s2");
  const api::ReplicationStatus now = status();
  EXPECT_EQ(now.current, 0);
  EXPECT_EQ(now.nodes[0].state, "Pending");
  EXPECT_EQ(now.nodes[0].snapshot, "s1");
}

TEST_F(Replication, UnreachableNodeIsReported) {
  mutable_.at("edge2")->status.conditions[0].status = "Unknown";
  EXPECT_EQ(status().find_node("edge2")->state, "Unreachable");
}

TEST_F(Replication, FailureReasonOfShareIsReported) {
  mutable_.at("edge0")->status.shares = {{.key = kKey,
                                          .path = "/data/faces",
                                          .state = "Failed",
                                          .reason = "PathForbidden",
                                          .message = "/data/faces: not allowed"}};
  EXPECT_EQ(status().reason, "PathForbidden");
  EXPECT_EQ(status().message, "/data/faces: not allowed");
}

TEST_F(Replication, SelectorWithoutNodesIsReported) {
  claim_.spec.node_selector = {{"line", "none"}};
  EXPECT_EQ(status().wanted, 0);
  EXPECT_EQ(status().reason, "NoNodeSelected");
  claim_.spec.node_selector = {{"line", "a"}};
  EXPECT_EQ(status().reason, "");
}

TEST_F(Replication, EveryNodeWithoutTheCurrentCopyHasAReason) {
  struct Case {
    const char* name;
    std::function<void()> change;
    const char *state, *reason, *message;  // of edge2; `message` is a part
    const char* common_reason;             // of the claim
  };
  const auto report = [this](api::EdgeReplicaReport one) {
    one.key = kKey;
    one.uid = "u";
    mutable_.at("edge2")->status.replicas = {std::move(one)};
  };
  const auto source = [this]() -> api::EdgeNode& { return *mutable_.at("edge0"); };
  const Case cases[] = {
      {"no report", [] {}, "Pending", "WaitingForNode", "not begun", ""},
      {"an idle node", [&] { report({.state = "Pending"}); }, "Pending", "WaitingForNode",
       "snapshot s1", ""},
      {"a former snapshot", [&] { report({.state = "Current", .snapshot = "s0"}); }, "Pending",
       "WaitingForNode", "snapshot s1", ""},
      {"a copy in progress",
       [&] { report({.state = "Copying", .bytes_done = 3, .bytes_total = 7}); }, "Copying",
       "Copying", "3 of 7 bytes", ""},
      {"a short copy in progress", [&] { report({.state = "Copying"}); }, "Copying", "Copying",
       "copies the files", ""},
      {"a failed connection",
       [&] { report({.state = "Copying", .reason = "SourceUnreachable", .message = "refused"}); },
       "Copying", "SourceUnreachable", "refused", ""},
      {"a full disk",
       [&] { report({.state = "Failed", .reason = "DiskFull", .message = "no space"}); }, "Failed",
       "DiskFull", "no space", ""},
      {"a failure without reason", [&] { report({.state = "Failed"}); }, "Failed", "Failed",
       "without a reason", ""},
      {"a disconnected node",
       [&] {
         api::EdgeNode& node = *mutable_.at("edge2");
         node.status.conditions[0].status = "Unknown";
         node.status.last_seen = "2026-01-01T00:00:00Z";
       },
       "Unreachable", "NodeUnreachable", "since 2026-01-01", ""},
      {"no snapshot yet", [&] { source().status.shares.clear(); }, "Pending", "WaitingForSource",
       "has not reported a snapshot of /data/faces", "WaitingForSource"},
      {"a path that the source may not read",
       [&] {
         source().status.shares = {{.key = kKey,
                                    .path = "/data/faces",
                                    .state = "Failed",
                                    .reason = "PathForbidden",
                                    .message = "/data/faces: not allowed"}};
       },
       "Pending", "WaitingForSource", "not allowed", "PathForbidden"},
      {"a source without agent", [&] { world_.edge_nodes.erase("edge0"); }, "Pending",
       "WaitingForSource", "EdgeNode edge0 does not exist", "SourceUnknown"},
      {"a disconnected source",
       [&] {
         source().status.shares.clear();
         source().status.conditions[0].status = "Unknown";
       },
       "Pending", "WaitingForSource", "edge0 has the files and is not connected",
       "SourceUnreachable"},
      {"a source without address", [&] { source().status.peer_url.clear(); }, "Pending", "NoSource",
       "--address", "SourceNotListening"},
      {"a revoked source", [&] { source().metadata.annotations["edgeai.io/revoked"] = "true"; },
       "Pending", "NoSource", "is revoked", "SourceRevoked"},
      {"a source without address, and a node with a copy",
       [&] {
         source().status.peer_url.clear();
         has("edge1", "s1");
       },
       "Pending", "WaitingForNode", "not begun", "SourceNotListening"},
  };
  for (const Case& c : cases) {
    mutable_.clear();
    world_ = {};
    SetUp();
    c.change();
    const api::ReplicationStatus now = status();
    const api::NodeReplica* node = now.find_node("edge2");
    ASSERT_NE(node, nullptr) << c.name;
    EXPECT_EQ(node->state, c.state) << c.name;
    EXPECT_EQ(node->reason, c.reason) << c.name;
    EXPECT_NE(node->message.find(c.message), std::string::npos) << c.name << ": " << node->message;
    EXPECT_EQ(now.reason, c.common_reason) << c.name;
    EXPECT_EQ(now.message.empty(), now.reason.empty()) << c.name;
  }
}

TEST_F(Replication, CurrentCopiesHaveNoReason) {
  has("edge1", "s1");
  has("edge2", "s1");
  mutable_.at("edge0")->status.conditions[0].status = "Unknown";
  mutable_.at("edge1")->status.conditions[0].status = "Unknown";
  const api::ReplicationStatus now = status();
  EXPECT_EQ(now.reason, "");
  for (const api::NodeReplica& node : now.nodes) EXPECT_EQ(node.reason, "") << node.node;
}

TEST_F(Replication, CopiesCarryFactsAndCountsOfTheDataset) {
  meta::ObjectMeta metadata;
  metadata.ns = "default";
  metadata.name = "faces";
  metadata.labels = {{"team", "vision"}};
  claim_.metadata = metadata_of(
      {.group = "edgeai.io", .version = "v1alpha1", .kind = "Dataset", .plural = "datasets"},
      metadata, codec::Json::object({{"format", "csv"}}));
  EXPECT_FALSE(work("edge1").replicas.at(0).metadata.contains("status"));
  const api::EdgeNode before = *mutable_.at("edge0");
  mutable_.at("edge0")->status.datasets = {{.key = kKey,
                                            .uid = "u",
                                            .state = "Counted",
                                            .samples = 12,
                                            .classes = {{"cat", 5, {}}, {"dog", 7, {}}},
                                            .fingerprint = "f"}};
  EXPECT_EQ(codec::write_json(work("edge1").replicas.at(0).metadata),
            R"({"apiVersion":"edgeai.io/v1alpha1","kind":"Dataset",)"
            R"("metadata":{"namespace":"default","name":"faces","labels":{"team":"vision"}},)"
            R"("spec":{"format":"csv"},"status":{"numberOfSamples":12,"exact":true,)"
            R"("classes":[{"name":"cat","count":5},{"name":"dog","count":7}]}})");
  EXPECT_FALSE(same_for_other_nodes(before, *mutable_.at("edge0")));
  mutable_.at("edge0")->status.datasets[0].uid = "former";
  EXPECT_FALSE(work("edge1").replicas.at(0).metadata.contains("status"));
}

TEST_F(Replication, LongListsAreLeftOutOfTheFacts) {
  claim_.metadata = codec::Json::object(
      {{"metadata", codec::Json::object({{"name", "faces"}})},
       {"spec", codec::Json::object({{"format", "onnx"},
                                     {"labels", codec::Json::array({std::string(5000, 'x')})}})}});
  const codec::Json metadata = work("edge1").replicas.at(0).metadata;
  EXPECT_EQ(metadata.at("metadata/name").as_string(), "faces");
  EXPECT_EQ(metadata.at("spec/format").as_string(), "onnx");
  EXPECT_FALSE(metadata["spec"].contains("labels"));
}

TEST_F(Replication, NegativeSizeIsReportedAsZero) {
  mutable_.at("edge0")->status.shares[0].bytes = -5;
  EXPECT_EQ(status().bytes, 0);
}

TEST_F(Replication, ListsStayWithinTheirBounds) {
  claim_.spec.node_selector.clear();
  for (int i = 0; i < 700; ++i) add("n" + std::to_string(1000 + i), "c");
  EXPECT_EQ(work("edge0").shares[0].nodes.size(), 512u);
  EXPECT_EQ(status().nodes.size(), api::ReplicationStatus::kNodesMax);
  EXPECT_EQ(status().wanted, 512);
  std::vector<ReplicationClaim> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(claim_);
    many.back().key = "k" + std::to_string(1000 + i);
  }
  EXPECT_EQ(replication_for("edge0", many, world_).shares.size(), 128u);
}

// ---- Relay

class Relay : public Replication {
 protected:
  /// edge1 asks for a relay, and has the copy of `snapshot`.
  void ask(const std::string& snapshot = "") {
    mutable_.at("edge1")->status.replicas = {{.key = kKey,
                                              .uid = "u",
                                              .state = "Copying",
                                              .reason = "SourceUnreachable",
                                              .message = "refused",
                                              .snapshot = snapshot,
                                              .relay = true}};
  }
  api::EdgeShareReport& offered() { return mutable_.at("edge0")->status.shares.at(0); }
  std::pair<std::string, std::string> reasons() {
    const api::ReplicationStatus now = status();
    EXPECT_EQ(now.message.empty(), now.reason.empty());
    EXPECT_FALSE(now.find_node("edge1")->message.empty());
    return {now.find_node("edge1")->reason, now.reason};
  }
};

TEST_F(Relay, SourceUploadsOnlyWhileAConnectedNodeAsksAndLacksTheSnapshot) {
  EXPECT_FALSE(work("edge0").shares.at(0).relay);
  ask();
  EXPECT_TRUE(work("edge0").shares.at(0).relay);
  mutable_.at("edge1")->status.conditions[0].status = "Unknown";
  EXPECT_FALSE(work("edge0").shares.at(0).relay);
  mutable_.at("edge1")->status.conditions[0].status = "True";
  ask("s1");
  EXPECT_FALSE(work("edge0").shares.at(0).relay) << "the node has the snapshot";
  offer("s2");
  EXPECT_TRUE(work("edge0").shares.at(0).relay);
  mutable_.at("edge1")->status.replicas[0].relay = false;
  EXPECT_FALSE(work("edge0").shares.at(0).relay) << "the node reached a source";
}

TEST_F(Relay, ReplicaIsRelayedOnceTheRegistryHasTheSnapshot) {
  ask();
  EXPECT_FALSE(work("edge1").replicas.at(0).relay);
  offered().relayed = "s0";
  EXPECT_FALSE(work("edge1").replicas.at(0).relay);
  offered().relayed = "s1";
  EXPECT_TRUE(work("edge1").replicas.at(0).relay);
  EXPECT_EQ(names(work("edge1").replicas.at(0).sources), std::vector<std::string>{"edge0"})
      << "direct copies are tried first";
  EXPECT_FALSE(work("edge2").replicas.at(0).relay) << "that node reaches the source";
  mutable_.at("edge0")->status.shares.clear();
  EXPECT_FALSE(work("edge1").replicas.at(0).relay);
}

TEST_F(Relay, SourceWithoutAddressIsRelayed) {
  mutable_.at("edge0")->status.peer_url.clear();
  ask();
  EXPECT_TRUE(work("edge0").shares.at(0).relay);
  offered().relayed = "s1";
  EXPECT_TRUE(work("edge1").replicas.at(0).relay);
  EXPECT_TRUE(work("edge1").replicas.at(0).sources.empty());
}

TEST_F(Relay, HugeSnapshotIsNotRelayed) {
  ask();
  offered().bytes = (std::int64_t{16} << 30) + 1;
  EXPECT_FALSE(work("edge0").shares.at(0).relay);
  EXPECT_EQ(reasons(), std::pair(std::string("RelayTooLarge"), std::string("RelayTooLarge")));
}

TEST_F(Relay, StatusNamesTheRegistry) {
  using Reasons = std::pair<std::string, std::string>;
  ask();
  EXPECT_EQ(reasons(), (Reasons{"Relaying", "Relaying"}));
  EXPECT_NE(status().message.find("edge1 does not reach node edge0"), std::string::npos);
  offered().relay_reason = "RelayMissing";
  offered().relay_message = "this gateway has no registry";
  EXPECT_EQ(reasons(), (Reasons{"RelayMissing", "RelayMissing"}));
  EXPECT_NE(status().message.find("this gateway has no registry"), std::string::npos);
  offered().relay_reason.clear();
  offered().relay_message.clear();
  offered().relayed = "s1";
  EXPECT_EQ(reasons(), (Reasons{"Relayed", "Relayed"}));
  EXPECT_NE(status().find_node("edge1")->message.find("through the registry"), std::string::npos);
  ask("s1");
  EXPECT_EQ(reasons(), (Reasons{"Relayed", "Relayed"}));
  EXPECT_EQ(status().find_node("edge1")->state, "Current");
  EXPECT_NE(status().message.find("through the registry"), std::string::npos);
}

TEST_F(Relay, OtherProblemsOfTheNodeStayVisible) {
  ask();
  offered().relayed = "s1";
  mutable_.at("edge1")->status.replicas[0].state = "Failed";
  mutable_.at("edge1")->status.replicas[0].reason = "DiskFull";
  EXPECT_EQ(reasons().first, "DiskFull");
  ask();
  mutable_.at("edge0")->status.conditions[0].status = "Unknown";
  EXPECT_EQ(reasons(),
            std::pair(std::string("SourceUnreachable"), std::string("SourceUnreachable")));
}

TEST_F(Relay, LongMessageIsCut) {
  ask();
  offered().relay_reason = "RelayFailed";
  offered().relay_message = std::string(4096, 'x');
  EXPECT_EQ(status().find_node("edge1")->message.size(), 4096u);
  EXPECT_EQ(status().message.size(), 4096u);
}

TEST_F(Relay, RelayAffectsOtherNodes) {
  const api::EdgeNode source = *mutable_.at("edge0");
  offered().relay_message = "1 of 7 bytes are in the registry";
  EXPECT_TRUE(same_for_other_nodes(source, *mutable_.at("edge0"))) << "progress does not";
  offered().relayed = "s1";
  EXPECT_FALSE(same_for_other_nodes(source, *mutable_.at("edge0")));
  ask();
  api::EdgeNode before = *mutable_.at("edge1");
  before.status.replicas[0].relay = false;
  EXPECT_FALSE(same_for_other_nodes(before, *mutable_.at("edge1")));
}

}  // namespace replication_plan_test
}  // namespace varda::controllers::replication
