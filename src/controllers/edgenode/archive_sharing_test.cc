#include "controllers/edgenode/archive_sharing.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace varda::controllers::edgenode {
namespace archive_sharing_test {

using State = ArchiveHolder::State;
using Names = std::vector<std::string>;

const std::string kArchive(64, 'a'), kOther(64, 'b');

std::vector<ArchiveHolder> holders(std::size_t count) {
  std::vector<ArchiveHolder> out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "n" + std::to_string(i);
    out.push_back({.node = name, .url = "https://" + name, .connected = true});
  }
  return out;
}
ArchiveHolder& of(std::vector<ArchiveHolder>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.node == name; });
}
Names names(const std::vector<api::EdgeReplicaSource>& peers) {
  Names out;
  for (const auto& peer : peers) out.push_back(peer.node);
  return out;
}

TEST(ArchivePeers, PeerCountGrowsWithNodesUpToEight) {
  for (const auto& [nodes, peers] : std::map<std::size_t, std::size_t>{
           {1, 1}, {2, 2}, {8, 2}, {9, 2}, {10, 3}, {50, 8}, {500, 8}})
    EXPECT_EQ(choose_peers(kArchive, holders(nodes), {}).size(), peers) << nodes;
}

TEST(ArchivePeers, DifferentArchivesGetDifferentPeers) {
  std::set<std::string> first;
  for (char c = 'a'; c <= 'f'; ++c)
    first.insert(choose_peers(std::string(64, c), holders(50), {}).front());
  EXPECT_GT(first.size(), 3u);
}

TEST(ArchivePeers, PeersStayWhileUsable) {
  auto all = holders(8);
  const Names before = choose_peers(kArchive, all, {});
  // Connections, progress and additional nodes change nothing.
  for (auto& one : all)
    one.state = one.node == before[0] || one.node == before[1] ? State::kStored : State::kUnpacked;
  all.push_back({.node = "another", .url = "https://another", .connected = true});
  EXPECT_EQ(choose_peers(kArchive, all, before), before);
  EXPECT_EQ(choose_peers(kArchive, all, {"n7", "n2"}).size(), 2u);
}

TEST(ArchivePeers, UnusablePeerIsReplacedByTheReserve) {
  for (const auto change : {+[](ArchiveHolder& one) { one.connected = false; },
                            +[](ArchiveHolder& one) { one.state = State::kUnpacked; },
                            +[](ArchiveHolder& one) { one.state = State::kFailed; }}) {
    auto all = holders(8);
    const Names before = choose_peers(kArchive, all, {});
    change(of(all, before[0]));
    const Names now = choose_peers(kArchive, all, before);
    ASSERT_EQ(now.size(), 2u);
    EXPECT_EQ(now[0], before[1]) << "the one in reserve";
    EXPECT_NE(now[1], before[0]);
    EXPECT_EQ(choose_peers(kArchive, all, now), now);
  }
}

TEST(ArchivePeers, PeersStabilizeWhenAllNodesFail) {
  auto all = holders(8);
  Names now = choose_peers(kArchive, all, {});
  int changes = 0;
  for (auto& one : all) {
    one.state = State::kFailed;
    const Names next = choose_peers(kArchive, all, now);
    changes += next != now ? 1 : 0;
    now = next;
  }
  EXPECT_LE(changes, 8);
  EXPECT_EQ(now.size(), 2u);
  EXPECT_EQ(choose_peers(kArchive, all, now), now);
}

TEST(ArchivePeers, RestartedOperatorRecoversPeersFromWorkLists) {
  auto all = holders(8);
  const Names before{"n6", "n1"};
  for (auto& one : all) {
    const ArchiveRole role = role_of(one.node, all, before);
    one.listed_peers = role.peers;
    one.listed_share_with = role.share_with;
  }
  EXPECT_EQ(choose_peers(kArchive, all, {}), before);
}

TEST(ArchivePeers, NodeWithTheArchiveIsPreferredAsNewPeer) {
  auto all = holders(8);
  of(all, "n5").state = State::kStored;
  EXPECT_EQ(choose_peers(kArchive, all, {"gone"}).front(), "n5");
}

TEST(ArchiveRoles, PeerCopiesOnlyFromEarlierPeers) {
  const auto all = holders(30);
  const Names peers = choose_peers(kArchive, all, {});
  for (const auto& one : all) {
    const ArchiveRole role = role_of(one.node, all, peers);
    const auto at =
        static_cast<std::size_t>(std::find(peers.begin(), peers.end(), one.node) - peers.begin());
    Names role_peers = names(role.peers);
    std::sort(role_peers.begin(), role_peers.end());
    Names may(peers.begin(), peers.begin() + static_cast<std::ptrdiff_t>(at));
    std::sort(may.begin(), may.end());
    EXPECT_EQ(role_peers, may) << one.node;
    EXPECT_EQ(role.share_with.size(), at < peers.size() ? all.size() - 1 : 0u) << one.node;
  }
}

TEST(ArchiveRoles, NodeIsInTheShareListOfEachOfItsPeers) {
  const auto all = holders(30);
  const Names peers = choose_peers(kArchive, all, {});
  for (const auto& one : all) {
    for (const auto& peer : role_of(one.node, all, peers).peers) {
      const Names may = role_of(peer.node, all, peers).share_with;
      EXPECT_TRUE(std::binary_search(may.begin(), may.end(), one.node))
          << one.node << " asks " << peer.node;
      EXPECT_EQ(peer.url, "https://" + peer.node);
    }
  }
}

TEST(ArchiveRoles, NodeWithTheArchiveKeepsItsPeers) {
  auto all = holders(8);
  of(all, "n3").state = State::kUnpacked;
  of(all, "n3").listed_peers = {{.node = "gone", .url = "https://gone", .unknown = {}}};
  EXPECT_EQ(names(role_of("n3", all, {"n1", "n2"}).peers), Names{"gone"});
}

TEST(ArchiveRoles, DisconnectedNodeKeepsItsShareList) {
  auto all = holders(3);
  of(all, "n0").connected = false;
  of(all, "n0").listed_share_with = {"n1", "n2"};
  EXPECT_EQ(role_of("n0", all, {"n1", "n2"}).share_with, (Names{"n1", "n2"}));
  of(all, "n0").listed_share_with.clear();
  EXPECT_EQ(role_of("n0", all, {"n1"}).share_with, Names());
  EXPECT_EQ(names(role_of("n0", all, {"n1"}).peers), Names{"n1"})
      << "one that comes for the first time does not begin at the source";
}

TEST(ArchiveRoles, SingleNodeSharesNothing) {
  EXPECT_EQ(role_of("n0", holders(1), {"n0"}), ArchiveRole());
}

class ShareArchives : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& zone = "") {
    auto node = std::make_shared<api::Node>();
    node->metadata.name = name;
    if (!zone.empty()) node->metadata.labels[std::string(kZoneLabel)] = zone;
    world_.nodes.push_back(node);
    auto edge_node = std::make_shared<api::EdgeNode>();
    edge_node->metadata.name = name;
    edge_node->status.peer_url = "https://" + name;
    edge_node->status.conditions.push_back({.type = "Connected", .status = "True"});
    world_.edge_nodes[name] = edge_node;
    edge_nodes_[name] = edge_node;
  }
  void want(const std::string& node, const std::string& sha256,
            const std::string& url = "http://f/1.tgz", const std::string& secret = "") {
    auto model = std::make_shared<api::InferenceModel>();
    model->metadata.ns = "default";
    model->metadata.name = "m" + std::to_string(world_.models.size());
    model->spec.model_name = "m";
    model->spec.deploy_to_layer = "edge";
    model->spec.framework_type = "onnx";
    model->spec.node_name = node;
    model->spec.target_version = "1";
    model->spec.manifest.push_back({.version = "1", .download_url = url, .sha256sum = sha256});
    if (!secret.empty()) model->spec.manifest.back().credentials.emplace().secret_name = secret;
    world_.models.push_back(model);
  }
  /// Plans every node in turn, as the controller does, and stores the result.
  std::size_t write_all() {
    std::size_t writes = 0;
    for (const auto& [name, edge_node] : edge_nodes_) {
      api::EdgeNodeSpec spec = plan_edge_node(*edge_node, world_);
      share_archives(spec, *edge_node, world_, peers_);
      if (spec.to_json() == edge_node->spec.to_json()) continue;
      edge_node->spec = std::move(spec);
      ++writes;
    }
    return writes;
  }
  const api::EdgeModelVersion& version(const std::string& node) {
    return edge_nodes_.at(node)->spec.models.at(0).versions.at(0);
  }
  void report(const std::string& node, std::string_view state, bool shared = false,
              std::int64_t done = 0) {
    api::EdgeVersionReport one{.version = "1",
                               .state = std::string(state),
                               .sha256 = version(node).sha256,
                               .bytes_done = done};
    one.shared = shared;
    edge_nodes_.at(node)->status.models = {
        {.key = edge_nodes_.at(node)->spec.models[0].key, .versions = {one}}};
  }
  Names sharing() {
    Names out;
    for (const auto& [name, edge_node] : edge_nodes_)
      if (!version(name).share_with.empty()) out.push_back(name);
    return out;
  }
  std::string seed() {
    for (const std::string& name : sharing())
      if (version(name).peers.empty()) return name;
    return "";
  }

  EdgeNodeWorld world_;
  std::map<std::string, std::shared_ptr<api::EdgeNode>> edge_nodes_;
  ArchivePeers peers_;
};

TEST_F(ShareArchives, RolloutIsWrittenOncePerNodeAndProgressNever) {
  for (int i = 0; i < 8; ++i) {
    add("n" + std::to_string(i));
    want("n" + std::to_string(i), kArchive);
  }
  EXPECT_EQ(write_all(), 8u);
  EXPECT_EQ(write_all(), 0u);
  ASSERT_EQ(sharing().size(), 2u);
  const std::string first = seed();
  ASSERT_NE(first, "");
  EXPECT_EQ(version(first).share_with.size(), 7u);
  const Names peers = sharing();
  for (const auto& [name, edge_node] : edge_nodes_) {
    report(name, "Downloading", false, 1000);
    EXPECT_EQ(write_all(), 0u) << name;
    report(name, "Ready", std::find(peers.begin(), peers.end(), name) != peers.end());
    EXPECT_EQ(write_all(), 0u) << name;
  }
  // A new operator knows only the written lists.
  peers_.clear();
  EXPECT_EQ(write_all(), 0u);
}

TEST_F(ShareArchives, FirstNodeStaysSeedWhenOthersJoin) {
  for (const char* name : {"n0", "n1", "n2", "n3"}) {
    add(name);
    want(name, kArchive);
    write_all();
    EXPECT_EQ(seed(), name == std::string("n0") ? "" : "n0") << name;
  }
  EXPECT_TRUE(version("n0").peers.empty());
}

TEST_F(ShareArchives, NodesOfOneMachineTakeNoPart) {
  add("edge0");
  add("edge1");
  edge_nodes_.at("edge0")->status.peer_url = "https://127.1.2.3:10445";
  edge_nodes_.at("edge1")->status.peer_url = "https://127.4.5.6:10445";
  EXPECT_EQ(archive_peer_url(*edge_nodes_.at("edge0")), "");
  EXPECT_EQ(sharing_facts(*edge_nodes_.at("edge0")), "");
  edge_nodes_.at("edge1")->status.peer_url = "https://192.168.1.7:10445";
  EXPECT_EQ(archive_peer_url(*edge_nodes_.at("edge1")), "https://192.168.1.7:10445");
}

TEST_F(ShareArchives, UnshareableArchivesGetNoPeers) {
  add("plain0", "a");
  add("plain1", "b");  // another zone
  add("silent0", "c");
  add("silent1", "c");
  edge_nodes_.at("silent1")->status.peer_url.clear();
  add("hostile0", "f");
  add("hostile1", "f");
  edge_nodes_.at("hostile0")->status.peer_url = "http://127.0.0.1:24500/internal?x=";
  add("file0", "d");
  add("file1", "d");
  add("secret0", "e");
  add("secret1", "e");
  for (const char* name : {"plain0", "plain1", "silent0", "silent1", "hostile0", "hostile1"})
    want(name, kArchive);
  want("file0", kOther, "file:///models/1.tgz");
  want("file1", kOther, "file:///models/1.tgz");
  want("secret0", kOther, "http://f/1.tgz", "hush");
  want("secret1", kOther);
  write_all();
  EXPECT_EQ(sharing(), Names());
  for (const auto& [name, edge_node] : edge_nodes_)
    EXPECT_TRUE(version(name).peers.empty()) << name;
}

TEST_F(ShareArchives, LostSeedChangesAtMostFourWorkLists) {
  for (int i = 0; i < 8; ++i) {
    add("n" + std::to_string(i));
    want("n" + std::to_string(i), kArchive);
  }
  write_all();
  const std::string first = seed();
  const Names peers = sharing();
  std::size_t missing = 0;
  for (const auto& [name, edge_node] : edge_nodes_) {
    if (std::find(peers.begin(), peers.end(), name) != peers.end()) {
      report(name, "Ready", true);
    } else if (++missing > 2) {
      report(name, "Ready");
    }
  }
  edge_nodes_.at(first)->status.conditions[0].status = "False";
  EXPECT_LE(write_all(), 4u) << "the next seed, one more giver, and two that miss it";
  EXPECT_EQ(write_all(), 0u);
  const std::string next = seed();
  edge_nodes_.at(first)->status.conditions[0].status = "True";
  write_all();
  EXPECT_EQ(write_all(), 0u);
  EXPECT_NE(next, "");
}

TEST_F(ShareArchives, RevokedNodeNeitherSharesNorReceives) {
  for (int i = 0; i < 8; ++i) {
    add("n" + std::to_string(i));
    want("n" + std::to_string(i), kArchive);
  }
  write_all();
  const std::string first = seed();
  const Names peers = sharing();
  std::string away, installed;  // nodes that keep their role
  for (const auto& [name, edge_node] : edge_nodes_) {
    const bool gives = std::find(peers.begin(), peers.end(), name) != peers.end();
    if (gives && name != first) {
      away = name;
    } else if (!gives && installed.empty()) {
      installed = name;
    }
  }
  report(installed, "Ready");
  edge_nodes_.at(away)->status.conditions[0].status = "Unknown";
  ASSERT_FALSE(version(away).share_with.empty());
  ASSERT_FALSE(version(installed).peers.empty());
  const std::string victim = installed == "n7" ? "n6" : "n7";
  for (const std::string& revoked :
       std::set<std::string>{first, victim == first || victim == away ? "n5" : victim}) {
    edge_nodes_.at(revoked)->metadata.annotations["edgeai.io/revoked"] = "true";
    write_all();
    EXPECT_TRUE(version(revoked).peers.empty() && version(revoked).share_with.empty()) << revoked;
    for (const auto& [name, edge_node] : edge_nodes_) {
      const Names sources = names(version(name).peers), shares = version(name).share_with;
      EXPECT_EQ(std::count(sources.begin(), sources.end(), revoked), 0)
          << name << " asks " << revoked;
      EXPECT_EQ(std::count(shares.begin(), shares.end(), revoked), 0)
          << name << " gives to " << revoked;
    }
  }
  EXPECT_EQ(version(away).share_with.size(), 5u) << "it is still the one it was to all others";
  EXPECT_NE(seed(), "");
  EXPECT_EQ(write_all(), 0u);
}

TEST(SharingFacts, FactsChangeOnlyIfOtherNodesAreAffected) {
  api::EdgeNode node;
  node.metadata.name = "n0";
  EXPECT_EQ(sharing_facts(node), "");
  node.status.peer_url = "https://n0";
  node.spec.models = {
      {.key = "default/m", .versions = {{.version = "1", .url = "http://f", .sha256 = kArchive}}}};
  const std::string facts = sharing_facts(node);
  node.status.models = {
      {.key = "default/m", .versions = {{.version = "1", .state = "Ready", .sha256 = kArchive}}}};
  node.status.disk.available_bytes = 7;
  EXPECT_EQ(sharing_facts(node), facts) << "it has the archive, and gives it to nobody";
  node.status.models[0].versions[0].state = "Failed";
  EXPECT_NE(sharing_facts(node), facts);
  node.status.models.clear();
  node.status.conditions.push_back({.type = "Connected", .status = "True"});
  EXPECT_NE(sharing_facts(node), facts);
  node.metadata.annotations["edgeai.io/revoked"] = "true";
  EXPECT_EQ(sharing_facts(node), "") << "as one that nobody reaches";
  node.metadata.annotations.clear();
  EXPECT_NE(sharing_facts(node), "");
  node.status.peer_url = "http://n0";
  EXPECT_EQ(sharing_facts(node), "") << "as one that nobody is to ask";
}

}  // namespace archive_sharing_test
}  // namespace varda::controllers::edgenode
