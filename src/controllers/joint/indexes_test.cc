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
  const auto selecting = service("b", "selector: {matchLabels: {line: x, site: hall}}");
  EXPECT_EQ(index_by_node(selecting), Names{"line=x"});
  EXPECT_EQ(index_by_first_node(selecting), Names{"line=x"});
}

TEST(JointIndexes, ATierIsFoundByALabelOrTheLayerOfEveryNodeThatItSelects) {
  const auto first = [](const std::string& requirement) {
    const auto found = service("a", "selector: " + requirement);
    return places_of(tiers_of(found).front());
  };
  EXPECT_EQ(first("{matchExpressions: [{key: line, operator: NotIn, values: [z]}, "
                  "{key: line, operator: In, values: [left, right]}]}"),
            (Names{"line=left", "line=right"}));
  EXPECT_EQ(first("{matchExpressions: [{key: line, operator: Exists}]}"), Names{"line"});
  EXPECT_EQ(first("{matchExpressions: [{key: line, operator: DoesNotExist}]}"), Names{""});
  EXPECT_EQ(first("{}"), Names{""});
  const auto layers = read<api::JointInferenceService>(
      "{metadata: {name: a}, spec: {tiers: [{name: d, layer: device, model: {name: m}}, {name: e, "
      "layer: edge, model: {name: m}}, {name: c, layer: cloud, model: {name: m}}]}}");
  EXPECT_EQ(index_by_first_node(layers), Names{":device"});
  EXPECT_EQ(index_by_node(layers), (Names{":device", ":edge"}));

  const auto node = read<api::Node>("{metadata: {name: edge0, labels: {line: x}}}");
  EXPECT_EQ(values_to_search("edge0", &node), (Names{"", "edge0", "line", "line=x", ":cloud"}));
  EXPECT_EQ(values_to_search("edge0", nullptr), (Names{"", "edge0"}));
}

TEST(JointIndexes, ACloudWorkerWithANodePortIsFoundByTheAddressOfItsNode) {
  const std::string managed =
      "{metadata: {name: a}, spec: {edgeWorker: {model: {name: m}, nodeName: "
      "edge0}, cloudWorker: {model: {name: m}";
  const std::string users = managed + ", template: {spec: {containers: [{name: c, image: i}]}}";
  const auto found = [](const std::string& text) {
    return index_by_address(read<api::JointInferenceService>(text));
  };
  EXPECT_EQ(found(managed + "}}}"), Names{});
  EXPECT_EQ(found(users + "}}}"), Names{""});
  EXPECT_EQ(found(users + "}}, status: {tiers: [{name: cloud, url: 'http://10.0.0.1:30001'}]}}"),
            Names{"10.0.0.1"});
  EXPECT_EQ(found(users + ", service: {type: ClusterIP}}}}"), Names{});
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

TEST_F(JointPorts, ServiceClaimsPortsOfPodsAndPlannedPorts) {
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
