#include "controllers/joint/index.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::controllers::joint {
namespace {

using codec::Json;
using Keys = JointIndex::Keys;

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
                                          "}, cloudWorker: {model: {name: big}}" + more + "}}");
}

api::EdgeNode agent(const std::string& status) {
  return read<api::EdgeNode>("{metadata: {name: edge0}, spec: {}, status: " + status + "}");
}

class JointIndexTest : public ::testing::Test {
 protected:
  void add(const api::JointInferenceService& one) { index_.set(one.metadata.key(), &one); }
  static Keys keys(std::initializer_list<const char*> names) {
    Keys out;
    for (const char* name : names) out.push_back({"default", name});
    return out;
  }
  static Keys sorted(Keys all) {
    std::sort(all.begin(), all.end());
    return all;
  }
  JointIndex index_;
};

TEST_F(JointIndexTest, FindsServicesByWhatTheirTiersName) {
  add(service("a", "nodeName: edge0"));
  add(service("b", "selector: {matchLabels: {line: x}}"));
  add(service("c", "nodeName: edge1"));
  EXPECT_EQ(index_.of_model({"default", "small"}), keys({"a", "b", "c"}));
  EXPECT_EQ(index_.of_model({"other", "small"}), Keys{});
  EXPECT_EQ(index_.of_model({"default", "b-cloud"}), keys({"b"})) << "what its child is called";
  EXPECT_EQ(sorted(index_.of_node("edge0")), keys({"a", "b"}));
  EXPECT_EQ(sorted(index_.first_on("edge1")), keys({"b", "c"}));
  EXPECT_EQ(index_.first_node({"default", "a"}), std::pair(true, std::string("edge0")));
  EXPECT_EQ(index_.first_node({"default", "b"}), std::pair(false, std::string()));
}

TEST_F(JointIndexTest, ForgetsWhatAServiceNamedBefore) {
  add(service("a", "nodeName: edge0"));
  add(service("a", "nodeName: edge1"));
  EXPECT_EQ(index_.of_node("edge0"), Keys{});
  EXPECT_EQ(index_.first_on("edge1"), keys({"a"}));
  index_.set({"default", "a"}, static_cast<const api::JointInferenceService*>(nullptr));
  EXPECT_EQ(index_.first_on("edge1"), Keys{});
  EXPECT_EQ(index_.of_model({"default", "small"}), Keys{});
}

TEST_F(JointIndexTest, OfANodesReportOnlyWhatIsNewConcernsAnybody) {
  add(service("a", "nodeName: edge0"));
  add(service("b", "nodeName: edge0"));
  const std::string a = "{key: default/a.edge, exposed: '1'}",
                    b = "{key: default/b.edge, exposed: '1'}";
  const auto changes = [&](const std::string& models, const std::string& more = "") {
    const api::EdgeNode node = agent("{modelRoot: /m, models: [" + models + "]" + more + "}");
    return sorted(index_.changes_of("edge0", &node));
  };
  EXPECT_EQ(changes(a + ", " + b), keys({"a", "b"})) << "the node is new";
  EXPECT_EQ(changes(a + ", " + b), Keys{});
  EXPECT_EQ(changes(a + ", {key: default/b.edge, exposed: '2'}"), keys({"b"}));
  EXPECT_EQ(changes(a), keys({"b"})) << "its report went";
  EXPECT_EQ(changes(a + ", {key: default/model, exposed: '1'}"), Keys{}) << "an InferenceModel's";
  EXPECT_EQ(
      changes(
          a,
          ", workers: [{key: default/pod, uid: uid-b, report: {metrics: {inferenceNumber: 1}}}]"),
      keys({"b"}));
  EXPECT_EQ(changes(a,
                    ", address: 192.0.2.1, workers: [{key: default/pod, uid: uid-b, report: "
                    "{metrics: {inferenceNumber: 1}}}]"),
            keys({"a", "b"}));
  EXPECT_EQ(sorted(index_.changes_of("edge0", static_cast<const api::EdgeNode*>(nullptr))),
            keys({"a", "b"}));
  EXPECT_EQ(index_.changes_of("edge0", static_cast<const api::EdgeNode*>(nullptr)), Keys{});
}

TEST_F(JointIndexTest, WhoIsLeftOutHearsThatAListIsFullAndThatItHasRoom) {
  add(service("a", "nodeName: edge0"));
  api::EdgeNode node = agent("{}");
  const auto with = [&](std::size_t models, std::size_t workers) {
    node.spec.models.assign(models, {});
    for (std::size_t i = 0; i < models; ++i)
      node.spec.models[i].key = "others/m" + std::to_string(i);
    node.spec.workers.assign(workers, {});
    for (std::size_t i = 0; i < workers; ++i)
      node.spec.workers[i].key = "others/w" + std::to_string(i);
    return index_.changes_of("edge0", &node);
  };
  with(127, 63);
  EXPECT_EQ(with(126, 62), Keys{});
  EXPECT_EQ(with(128, 63), keys({"a"}));
  EXPECT_EQ(with(128, 62), Keys{}) << "it is full as before";
  EXPECT_EQ(with(128, 64), keys({"a"}));
  node.spec.workers.back().key = "default/a-edge";
  node.spec.workers.back().uid = "uid-a";
  EXPECT_EQ(index_.changes_of("edge0", &node), keys({"a"})) << "it is told of now";
  EXPECT_EQ(index_.changes_of("edge0", &node), Keys{});
  EXPECT_EQ(with(128, 64), keys({"a"})) << "it is left out again";
}

TEST_F(JointIndexTest, AHeartbeatOfANodeConcernsNobody) {
  add(service("a", "nodeName: edge0"));
  const auto changes = [&](const std::string& heartbeat, const std::string& ready) {
    const auto node = read<api::Node>(
        "{metadata: {name: edge0, uid: node}, status: {conditions: [{type: Ready, status: '" +
        ready + "', lastHeartbeatTime: '" + heartbeat + "'}]}}");
    return index_.changes_of("edge0", &node);
  };
  EXPECT_EQ(changes("2026-01-01T00:00:00Z", "True"), keys({"a"}));
  EXPECT_EQ(changes("2026-01-01T00:00:10Z", "True"), Keys{});
  EXPECT_EQ(changes("2026-01-01T00:00:20Z", "Unknown"), keys({"a"}));
}

TEST_F(JointIndexTest, PortsOfOthersAreKnownByNodeAndWhoWaitsHearsOfTheirEnd) {
  const auto model = read<api::InferenceModel>(
      "{metadata: {name: m, namespace: default, uid: uid-m}, spec: {deployToLayer: edge, nodeName: "
      "edge0, servingPort: 18080}}");
  EXPECT_EQ(index_.set(model.metadata.key(), &model), Keys{});
  add(read<api::JointInferenceService>(
      "{metadata: {name: a, namespace: default, uid: uid-a}, spec: {edgeWorker: {model: {name: "
      "small}, nodeName: edge0}, "
      "cloudWorker: {model: {name: big}}}, status: {endpoints: [{node: edge0, url: "
      "'http://127.0.0.1:18081'}]}}"));
  std::vector<std::int64_t> ports;
  for (const hosting::PortClaim& claim : index_.claims_on({"edge0"}, "uid-b"))
    ports.push_back(claim.port);
  std::sort(ports.begin(), ports.end());
  EXPECT_EQ(ports, (std::vector<std::int64_t>{18080, 18081}));
  EXPECT_EQ(index_.claims_on({"edge0"}, "uid-a").size(), 1u);
  EXPECT_EQ(index_.claims_on({"edge1"}, "uid-a").size(), 0u);
  index_.set_waiting({"default", "a"}, {"edge0"});
  EXPECT_EQ(index_.set(model.metadata.key(), &model), Keys{}) << "it stays where it is";
  EXPECT_EQ(index_.set(model.metadata.key(), static_cast<const api::InferenceModel*>(nullptr)),
            keys({"a"}));
}

TEST_F(JointIndexTest, WhereAPodIsItsServiceIsAskedWhateverItNamesNow) {
  add(service("a", "nodeName: edge1"));
  index_.set_pod({"default", "a-edge-1"}, {"default", "a"}, "edge0");
  index_.set_pod({"default", "a-edge-2"}, {"default", "a"}, "edge1");
  EXPECT_EQ(index_.first_on("edge0"), keys({"a"}));
  EXPECT_EQ(index_.first_on("edge1"), keys({"a"})) << "once";
  index_.set_pod({"default", "a-edge-1"}, {"default", "a"}, "");
  EXPECT_EQ(index_.first_on("edge0"), Keys{});
}

TEST_F(JointIndexTest, WhoLosesOrGetsAPortByAClaimOfAnotherServiceIsWoken) {
  const auto claim = [](const std::string& service, const std::string& node, std::int64_t port,
                        bool held = false) {
    return hosting::PortClaim{.node = node,
                              .port = port,
                              .owner = "JointInferenceService default/" + service,
                              .uid = "uid-" + service,
                              .held = held};
  };
  for (const char* name : {"a", "b", "c"}) add(service(name, "nodeName: edge0"));
  index_.set_claims({"default", "a"}, {claim("a", "edge0", 18080)});
  index_.set_claims({"default", "c"}, {claim("c", "edge0", 18081)});
  EXPECT_EQ(index_.woken(), Keys{});
  index_.set_claims({"default", "b"}, {claim("b", "edge1", 18080), claim("b", "edge0", 18080)});
  EXPECT_EQ(index_.woken(), keys({"a"}));
  EXPECT_EQ(index_.woken(), Keys{}) << "once";
  index_.set_claims({"default", "b"}, {claim("b", "edge1", 18080), claim("b", "edge0", 18080)});
  EXPECT_EQ(index_.woken(), Keys{}) << "nothing is new";
  index_.set_claims({"default", "b"}, {claim("b", "edge0", 18080, true)});
  EXPECT_EQ(index_.woken(), keys({"a"})) << "it is in use now";
  index_.set_waiting({"default", "a"}, {"edge0"});
  index_.set_claims({"default", "b"}, {});
  EXPECT_EQ(index_.woken(), keys({"a"}));
  const auto model = read<api::InferenceModel>(
      "{metadata: {name: m, namespace: default, uid: uid-m}, spec: {deployToLayer: edge, nodeName: "
      "edge0, servingPort: 18081}}");
  EXPECT_EQ(index_.set(model.metadata.key(), &model), keys({"c"}));
}

}  // namespace
}  // namespace varda::controllers::joint
