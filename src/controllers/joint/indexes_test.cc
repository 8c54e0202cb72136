#include "controllers/joint/indexes.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "controllers/joint/ports.h"

namespace varda::controllers::joint {
namespace indexes_test {

using Names = std::vector<std::string>;
using Reports = std::set<std::string>;

template <typename T>
T read(const std::string& text) {
  auto object = T::from_json(codec::parse_yaml(text).value());
  EXPECT_TRUE(object.ok()) << text;
  return std::move(object).value();
}

api::JointInferenceService service(const std::string& name, const std::string& edge,
                                   const std::string& more = "") {
  return read<api::JointInferenceService>("{metadata: {name: " + name +
                                          ", namespace: default, uid: uid-" + name +
                                          "}, spec: {edgeWorker: {model: {name: small}, " + edge +
                                          "}, cloudWorker: {model: {name: big}}}" + more + "}");
}

TEST(JointIndexes, AServiceIsFoundByModelsChildrenAndNodes) {
  const auto named = service("a", "nodeName: edge0", ", status: {endpoints: [{node: old}]}");
  EXPECT_EQ(index_by_model(named),
            (Names{"default/a-cloud", "default/a-edge", "default/big", "default/small"}));
  EXPECT_EQ(index_by_node(named), (Names{"edge0", "old"}));
  EXPECT_EQ(index_by_first_node(named), Names{"edge0"});
  const auto selecting = service("b", "selector: {matchLabels: {line: x}}");
  EXPECT_EQ(index_by_node(selecting), Names{""});
  EXPECT_EQ(index_by_first_node(selecting), Names{""});
}

TEST(JointIndexes, APodOfAServiceIsFoundByItsNode) {
  const auto pod = [](const std::string& labels, const std::string& spec) {
    return index_pods_on(
        read<api::Pod>("{metadata: {name: p, labels: " + labels + "}, spec: " + spec + "}"));
  };
  const std::string labels =
      "{edgeai.io/job-kind: JointInferenceService, edgeai.io/job: a, edgeai.io/worker: edge}";
  EXPECT_EQ(pod(labels, "{nodeName: edge0}"), Names{"edge0"});
  EXPECT_EQ(pod(labels, "{}"), Names{});
  EXPECT_EQ(pod("{edgeai.io/job: a}", "{nodeName: edge0}"), Names{});
}

class AgentChanges : public ::testing::Test {
 protected:
  static api::EdgeNode agent(const std::string& status) {
    return read<api::EdgeNode>("{metadata: {name: edge0}, spec: {}, status: " + status + "}");
  }
  static AgentChange change(const std::string& before, const std::string& now) {
    return change_of(agent("{modelRoot: /m, " + before + "}"),
                     agent("{modelRoot: /m, " + now + "}"));
  }
  static api::EdgeNode with(std::size_t models, std::size_t workers) {
    api::EdgeNode node = agent("{}");
    node.spec.models.assign(models, {});
    for (std::size_t i = 0; i < models; ++i)
      node.spec.models[i].key = "others/m" + std::to_string(i);
    node.spec.workers.assign(workers, {});
    for (std::size_t i = 0; i < workers; ++i) {
      node.spec.workers[i].key = "others/w" + std::to_string(i);
      node.spec.workers[i].uid = "other";
    }
    return node;
  }
};

TEST_F(AgentChanges, OnlyServicesWithAnotherReportAreAffected) {
  const std::string a = "{key: default/a.edge, exposed: '1'}",
                    b = "{key: default/b.edge, exposed: '1'}";
  const std::string both = "models: [" + a + ", " + b + "]";
  EXPECT_FALSE(change(both, both).of_node);
  EXPECT_EQ(change(both, both).reports, Reports{});
  EXPECT_EQ(change(both, "models: [" + a + ", {key: default/b.edge, exposed: '2'}]").reports,
            Reports{"default/b.edge"});
  EXPECT_EQ(change(both, "models: [" + a + "]").reports, Reports{"default/b.edge"});
  EXPECT_EQ(
      change(both, "models: [" + a + ", " + b + ", {key: default/model, exposed: '1'}]").reports,
      Reports{})
      << "the report of an InferenceModel";
  EXPECT_EQ(change(both, both + ", workers: [{key: default/pod, uid: uid-b, report: {metrics: "
                                "{inferenceNumber: 1}}}]")
                .reports,
            Reports{"uid-b"});
  EXPECT_TRUE(change(both, both + ", address: 192.0.2.1").of_node);
}

TEST_F(AgentChanges, AListThatBecomesFullOrGetsRoomAffectsAllServicesOfTheNode) {
  EXPECT_FALSE(change_of(with(127, 63), with(126, 62)).of_node);
  EXPECT_TRUE(change_of(with(126, 62), with(128, 63)).of_node);
  EXPECT_FALSE(change_of(with(128, 63), with(128, 62)).of_node);
  EXPECT_TRUE(change_of(with(128, 62), with(128, 64)).of_node);
  api::EdgeNode now = with(128, 64);
  now.spec.workers.back().key = "default/a-edge";
  now.spec.workers.back().uid = "uid-a";
  EXPECT_TRUE(change_of(with(128, 64), now).reports.contains("uid-a"));
  EXPECT_TRUE(change_of(now, with(128, 64)).reports.contains("uid-a"));
}

TEST(JointIndexes, AHeartbeatOfANodeAffectsNoService) {
  const auto node = [](const std::string& heartbeat, const std::string& ready) {
    return read<api::Node>(
        "{metadata: {name: edge0, uid: node}, status: {conditions: [{type: Ready, status: '" +
        ready + "', lastHeartbeatTime: '" + heartbeat + "'}]}}");
  };
  const api::Node first = node("2026-01-01T00:00:00Z", "True");
  EXPECT_TRUE(same_to_services(first, node("2026-01-01T00:00:10Z", "True")));
  EXPECT_FALSE(same_to_services(first, node("2026-01-01T00:00:20Z", "Unknown")));
}

class JointPorts : public ::testing::Test {
 protected:
  static hosting::NodeList nodes(std::initializer_list<const char*> names) {
    hosting::NodeList out;
    for (const char* name : names)
      out.push_back(std::make_shared<const api::Node>(
          read<api::Node>("{metadata: {name: " + std::string(name) + ", labels: {line: x}}}")));
    return out;
  }
  static std::vector<workers::PodPtr> pod_on(const std::string& node, int port) {
    return {std::make_shared<const api::Pod>(read<api::Pod>(
        "{metadata: {name: p, namespace: default, labels: {edgeai.io/job-kind: "
        "JointInferenceService, edgeai.io/job: a, edgeai.io/worker: edge}, ownerReferences: "
        "[{apiVersion: sedna.io/v1alpha1, kind: JointInferenceService, name: a, uid: uid-a, "
        "controller: true}]}, spec: {nodeName: " +
        node + ", hostNetwork: true, containers: [{name: server, ports: [{containerPort: " +
        std::to_string(port) + "}]}]}}"))};
  }
  static std::string text(const std::vector<hosting::PortClaim>& claims) {
    std::string out;
    for (const hosting::PortClaim& claim : claims)
      out += claim.node + ":" + std::to_string(claim.port) + (claim.held ? " held, " : ", ");
    return out;
  }
};

TEST_F(JointPorts, AServiceClaimsThePortsOfItsPodsAndThoseThatItWants) {
  const auto selecting = service("a", "selector: {matchLabels: {line: x}}");
  EXPECT_EQ(text(claims_of(selecting, nodes({"edge0"}), {}, 0)), "") << "no port is chosen yet";
  EXPECT_EQ(text(claims_of(selecting, nodes({"edge0", "edge1"}), {}, 18080)),
            "edge0:18080, edge1:18080, ");
  EXPECT_EQ(text(claims_of(selecting, nodes({"edge0", "edge1"}), pod_on("edge0", 18080), 18080)),
            "edge0:18080 held, edge1:18080, ");
  EXPECT_EQ(text(claims_of(selecting, {}, pod_on("edge0", 18080), 18080)), "edge0:18080 held, ");
}

TEST_F(JointPorts, ATemplatesHostPortsAreClaimedWithoutAPod) {
  const auto users =
      service("a",
              "nodeName: edge0, template: {spec: {containers: [{name: c, image: i, ports: "
              "[{containerPort: 1, hostPort: 9000}]}]}}");
  EXPECT_EQ(text(claims_of(users, nodes({"edge0"}), {}, 0)), "edge0:9000, ");
}

}  // namespace indexes_test
}  // namespace varda::controllers::joint
