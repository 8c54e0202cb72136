#include "hosting/node_index.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "kube/client.h"

namespace varda::hosting {
namespace node_index_test {

using Values = std::vector<std::string>;

// True: a search by the node's labels finds an object with the selector.
bool found(const Labels& selector, const Labels& labels) {
  const Values search = values_to_search(labels), at = selector_values(selector);
  return std::find(search.begin(), search.end(), at.front()) != search.end();
}

TEST(NodeIndex, ASelectorIsFoundByEveryNodeThatMatchesIt) {
  const Labels node{{"line", "x"}, {"site", "hall"}};
  for (const Labels& selector : {Labels{}, Labels{{"line", "x"}}, Labels{{"site", "hall"}}, node}) {
    EXPECT_TRUE(matches(selector, node));
    EXPECT_TRUE(found(selector, node));
  }
  EXPECT_FALSE(found({{"line", "y"}}, node));
  EXPECT_FALSE(matches({{"line", "x"}, {"site", "yard"}}, node)) << "found by its first label only";
  EXPECT_EQ(values_of(node), (Values{"line", "line=x", "site", "site=hall"}));
}

api::Node node_of(const std::string& text) {
  auto node = api::Node::from_json(codec::parse_yaml(text).value());
  EXPECT_TRUE(node.ok()) << text;
  return std::move(node).value();
}

TEST(NodeIndex, AReadyNodeOfTheCloudForwardsNodePorts) {
  const std::string status =
      "status: {addresses: [{type: InternalIP, address: 10.0.0.1}], "
      "conditions: [{type: Ready, status: '";
  const auto forwards = [&](const std::string& labels, const std::string& ready) {
    return index_by_forwarding(
        node_of("{metadata: {name: edge0, labels: " + labels + "}, " + status + ready + "'}]}}"));
  };
  EXPECT_EQ(forwards("{}", "True"), (Values{"", "10.0.0.1"}));
  EXPECT_EQ(forwards("{}", "Unknown"), Values{});
  EXPECT_EQ(forwards("{node-role.kubernetes.io/edge: ''}", "True"), Values{});
}

TEST(NodeSet, SetContainsFirstForwardingNodeAndNodeOfUrl) {
  apiserver::InMemoryApiServer api{{.crds = {}}};
  for (const char* number : {"1", "2", "3", "4"}) {
    const std::string name = std::string("n") + number;
    api.post(
        "/api/v1/nodes",
        codec::parse_yaml("{apiVersion: v1, kind: Node, metadata: {name: " + name + "}}").value());
    const std::string ready = name == "n1" ? "'False'" : "'True'";
    const auto reply = api.merge_patch(
        "/api/v1/nodes/" + name + "/status",
        codec::parse_yaml("{status: {addresses: [{type: InternalIP, address: 10.0.0." +
                          std::string(number) + "}], conditions: [{type: Ready, status: " + ready +
                          "}]}}")
            .value());
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  const kube::Client client(api.transport(), {});
  runtime::Caches caches;
  runtime::Informer& nodes = caches.add(client, runtime::Informer::typed<api::Node>());
  runtime::ControllerSpec spec;
  runtime::Watches<api::Node> watches(spec);
  index_nodes(watches);
  for (const auto& source : spec.sources) nodes.add_index(source.index, source.index_of);
  const std::jthread thread([&](const std::stop_token& stop) { nodes.run(Context(stop)); });
  ASSERT_TRUE(eventually("the cache is complete", [&] { return nodes.has_synced(); }));
  const auto names = [&](std::string_view url) {
    NodeSet set(caches);
    set.add_forwarding(url);
    Values out;
    for (const auto& node : set.list()) out.push_back(node->metadata.name);
    return out;
  };
  EXPECT_EQ(names(""), Values{"n2"}) << "n1 is not Ready";
  EXPECT_EQ(names("http://10.0.0.4:30001"), (Values{"n2", "n4"}));
  EXPECT_EQ(names("http://10.0.0.1:30001"), Values{"n2"});
}

TEST(NodeIndex, AHeartbeatOfANodeAffectsNoPod) {
  const auto node = [](const std::string& heartbeat, const std::string& ready) {
    return node_of(
        "{metadata: {name: edge0, uid: node}, status: {conditions: [{type: Ready, "
        "status: '" +
        ready + "', lastHeartbeatTime: '" + heartbeat + "'}]}}");
  };
  const api::Node first = node("2026-01-01T00:00:00Z", "True");
  EXPECT_TRUE(same_to_pods(first, node("2026-01-01T00:00:10Z", "True")));
  EXPECT_FALSE(same_to_pods(first, node("2026-01-01T00:00:20Z", "Unknown")));
}

}  // namespace node_index_test
}  // namespace varda::hosting
