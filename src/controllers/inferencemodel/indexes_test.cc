#include "controllers/inferencemodel/indexes.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::controllers::inferencemodel {
namespace indexes_test {

struct Case {
  const char* what;
  const char* spec;
  const char* status;
  std::vector<std::string> nodes, ports, addresses;
};

class InferenceModelIndexes : public ::testing::TestWithParam<Case> {};

TEST_P(InferenceModelIndexes, ModelIsIndexedByNodePortAndAddress) {
  const Case& c = GetParam();
  api::InferenceModel model;
  const auto read = [](const char* text) { return codec::parse_yaml(text).value(); };
  model = api::InferenceModel::from_json(
              codec::Json::object(
                  {{"apiVersion", "ai.kubeedge.io/v1alpha1"},
                   {"kind", "InferenceModel"},
                   {"metadata", codec::Json::object({{"name", "m"}, {"namespace", "n"}})},
                   {"spec", read(c.spec)},
                   {"status", read(c.status)}}))
              .value();
  EXPECT_EQ(index_by_node(model), c.nodes);
  EXPECT_EQ(index_by_port(model), c.ports);
  EXPECT_EQ(index_by_address(model), c.addresses);
}

using Names = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Models, InferenceModelIndexes,
    ::testing::Values(
        Case{"Named",
             "{deployToLayer: edge, nodeName: a, servingPort: 81}",
             "{}",
             {"a"},
             {"81", "81 a"},
             {}},
        Case{"NamedAndStillElsewhere",
             "{deployToLayer: edge, nodeName: a}",
             "{node: b}",
             {"a", "b"},
             {"8080", "8080 a"},
             {}},
        Case{"Selects",
             "{deployToLayer: edge, nodeSelector: {site: hall}}",
             "{node: b}",
             {"b"},
             {"8080", "8080 "},
             {}},
        Case{"Cloud", "{deployToLayer: cloud}", "{node: b}", {}, {}, {}},
        Case{"CloudWithoutAnAddress", "{deployToLayer: cloud}", "{readyReplicas: 1}", {}, {}, {""}},
        Case{"CloudAt4",
             "{deployToLayer: cloud}",
             "{readyReplicas: 1, url: 'http://10.0.0.1:30001/v2'}",
             {},
             {},
             {"10.0.0.1"}},
        Case{"CloudAt6",
             "{deployToLayer: cloud}",
             "{readyReplicas: 1, url: 'http://[fd00::1]:30001/v2'}",
             {},
             {},
             {"fd00::1"}},
        Case{"CloudOverTls",
             "{deployToLayer: cloud}",
             "{readyReplicas: 1, url: 'https://10.0.0.1:30001/v2'}",
             {},
             {},
             {"10.0.0.1"}},
        Case{"CloudElsewhere",
             "{deployToLayer: cloud}",
             "{readyReplicas: 1, url: '10.0.0.1:1'}",
             {},
             {},
             {}},
        Case{"CloudByClusterIP",
             "{deployToLayer: cloud, service: {type: ClusterIP}}",
             "{readyReplicas: 1}",
             {},
             {},
             {}}),
    [](const auto& tried) { return std::string(tried.param.what); });

TEST(ModelPodIndexes, PodIsIndexedByModelLabelAndNode) {
  api::Pod pod;
  pod.metadata.ns = "n";
  EXPECT_EQ(index_by_model(pod), Names{});
  pod.metadata.labels["edgeai.io/inference-model"] = "m";
  EXPECT_EQ(index_by_model(pod), Names{"n/m"});
  EXPECT_EQ(index_model_pods_by_node(pod), Names{});
  pod.spec.node_name = "edge0";
  EXPECT_EQ(index_model_pods_by_node(pod), Names{"edge0"});
  pod.metadata.labels.clear();
  EXPECT_EQ(index_model_pods_by_node(pod), Names{}) << "another's";
}

TEST(ModelRefIndexes, ModelIsIndexedByNamedModelOrNamespace) {
  api::InferenceModel model;
  model.metadata.ns = "n";
  EXPECT_EQ(index_by_model_ref(model), Names{});
  model.spec.model_ref.emplace().name = "m";
  EXPECT_EQ(index_by_model_ref(model), Names{"n/m"});
  model.spec.model_ref = api::ModelRef{};
  model.spec.model_ref->selector.emplace().metric = "accuracy";
  EXPECT_EQ(index_by_model_ref(model), Names{"n/"});
}

// Nodes share archives by their digests, whatever the source of the model.
TEST(ModelRefIndexes, ChosenArchivesAreIndexedByDigest) {
  api::InferenceModel model;
  model.spec.deploy_to_layer = "edge";
  model.spec.model_ref.emplace().name = "m";
  EXPECT_EQ(index_by_digest(model), Names{});
  model.status.model_ref.emplace().versions.emplace_back().sha256sum = "abc";
  EXPECT_EQ(index_by_digest(model), Names{"abc"});
}

}  // namespace indexes_test
}  // namespace varda::controllers::inferencemodel
