#include "hosting/agent_change.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "hosting/node_limits.h"

namespace varda::hosting {
namespace agent_change_test {

using Reports = std::set<std::string>;

api::EdgeNode agent(const std::string& status, std::int64_t generation = 0) {
  auto node = api::EdgeNode::from_json(
      codec::parse_yaml("{metadata: {name: edge0, generation: " + std::to_string(generation) +
                        "}, spec: {}, status: " + status + "}")
          .value());
  EXPECT_TRUE(node.ok()) << status;
  return std::move(node).value();
}

AgentChange change(const std::string& before, const std::string& now) {
  return change_of(agent("{modelRoot: /m, " + before + "}"), agent("{modelRoot: /m, " + now + "}"));
}

// `models` and `workers` of others.
api::EdgeNode with(std::size_t models, std::size_t workers) {
  api::EdgeNode node = agent("{}");
  node.spec.models.assign(models, {});
  for (std::size_t i = 0; i < models; ++i) node.spec.models[i].key = "others/m" + std::to_string(i);
  node.spec.workers.assign(workers, {});
  for (std::size_t i = 0; i < workers; ++i) {
    node.spec.workers[i].key = "others/w" + std::to_string(i);
    node.spec.workers[i].uid = "other";
  }
  return node;
}

TEST(AgentChange, OnlyObjectsWithChangedReportAreAffected) {
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
      Reports{"default/model"});
  EXPECT_EQ(change(both, both + ", workers: [{key: default/pod, uid: uid-b, report: {metrics: "
                                "{inferenceNumber: 1}}}]")
                .reports,
            Reports{"uid-b"});
  EXPECT_TRUE(change(both, both + ", address: 192.0.2.1").of_node);
}

TEST(AgentChange, AWorkListIsComparedUnlessItsGenerationIsTheSame) {
  api::EdgeNode before = agent("{}", 3), now = agent("{}", 3);
  now.spec.models.emplace_back().key = "default/a";
  EXPECT_EQ(change_of(before, now).reports, Reports{}) << "impossible, and not looked for";
  now.metadata.generation = 4;
  EXPECT_EQ(change_of(before, now).reports, Reports{"default/a"});
}

TEST(AgentChange, AListThatBecomesFullOrGetsRoomAffectsAllObjectsOfTheNode) {
  const std::size_t models = kModelsPerNode, workers = kWorkersPerNode;
  EXPECT_FALSE(change_of(with(models - 1, workers - 1), with(models - 2, workers - 2)).of_node);
  EXPECT_TRUE(change_of(with(models - 2, workers - 2), with(models, workers - 1)).of_node);
  EXPECT_FALSE(change_of(with(models, workers - 1), with(models, workers - 2)).of_node);
  EXPECT_TRUE(change_of(with(models, workers - 2), with(models, workers)).of_node);
  api::EdgeNode now = with(models, workers);
  now.spec.workers.back().key = "default/a-edge";
  now.spec.workers.back().uid = "uid-a";
  EXPECT_TRUE(change_of(with(models, workers), now).reports.contains("uid-a"));
  EXPECT_TRUE(change_of(now, with(models, workers)).reports.contains("uid-a"));
}

}  // namespace agent_change_test
}  // namespace varda::hosting
