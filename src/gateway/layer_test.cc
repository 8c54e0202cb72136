#include "gateway/layer.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::gateway {
namespace layer_test {

Json yaml(const std::string& text) { return codec::parse_yaml(text).value(); }

TEST(Layer, LayerNamesSurviveRoundTrip) {
  for (const Layer layer : {Layer::kEdge, Layer::kDevice, Layer::kCloud})
    EXPECT_EQ(parse_layer(to_string(layer)), layer);
  for (const char* text : {"", "Edge", "edge ", "core"})
    EXPECT_EQ(parse_layer(text), std::nullopt) << text;
}

TEST(Layer, ANewNodeGetsTheLabelsAndTheTaintOfItsLayer) {
  const struct {
    Layer layer;
    const char *input, *wanted;
  } cases[] = {
      {Layer::kEdge, "{metadata: {name: a}, spec: {}}",
       "{metadata: {name: a, labels: {edgeai.io/layer: edge, node-role.kubernetes.io/edge: ''}},"
       " spec: {taints: [{key: node-role.kubernetes.io/edge, effect: NoSchedule}]}}"},
      {Layer::kEdge,
       "{metadata: {labels: {node-role.kubernetes.io/edge: 'x', edgeai.io/layer: edge, "
       "kubernetes.io/os: linux}}}",
       "{metadata: {labels: {node-role.kubernetes.io/edge: '', edgeai.io/layer: edge, "
       "kubernetes.io/os: linux}},"
       " spec: {taints: [{key: node-role.kubernetes.io/edge, effect: NoSchedule}]}}"},
      {Layer::kDevice, "{metadata: {}, spec: {}}",
       "{metadata: {labels: {edgeai.io/layer: device, node-role.kubernetes.io/edge: ''}},"
       " spec: {taints: [{key: node-role.kubernetes.io/edge, effect: NoSchedule}]}}"},
      {Layer::kCloud, "{metadata: {}, spec: {}}",
       "{metadata: {labels: {edgeai.io/layer: cloud}}, spec: {}}"},
  };
  for (const auto& one : cases) {
    const auto node = placed(yaml(one.input), one.layer);
    ASSERT_TRUE(node.ok()) << node.error();
    EXPECT_EQ(*node, yaml(one.wanted)) << codec::write_yaml(*node);
  }
}

TEST(Layer, NodeWithLabelsOfAnotherLayerIsRefused) {
  const struct {
    Layer layer;
    const char* labels;
  } cases[] = {
      {Layer::kEdge, "{edgeai.io/layer: cloud}"},
      {Layer::kEdge, "{edgeai.io/layer: device}"},
      {Layer::kEdge, "{edgeai.io/layer: ''}"},
      {Layer::kEdge, "{edgeai.io/layer: null}"},
      {Layer::kDevice, "{edgeai.io/layer: edge}"},
      {Layer::kCloud, "{edgeai.io/layer: edge}"},
      {Layer::kCloud, "{node-role.kubernetes.io/edge: ''}"},
  };
  for (const auto& one : cases) {
    const auto node =
        placed(yaml("{metadata: {labels: " + std::string(one.labels) + "}}"), one.layer);
    ASSERT_FALSE(node.ok()) << one.labels;
    EXPECT_EQ(node.error().code(), Code::kForbidden);
  }
}

TEST(Layer, ExistingNodeGetsLabelsAndTaintOfItsLayer) {
  const std::string taint = "{key: node-role.kubernetes.io/edge, effect: NoSchedule}";
  const struct {
    const char* name;
    Layer layer;
    std::string labels, taints, wanted;  // wanted: "": no patch
  } cases[] = {
      {"as it should be", Layer::kEdge, "{edgeai.io/layer: edge, node-role.kubernetes.io/edge: ''}",
       "[" + taint + "]", ""},
      {"an administrator made it a device", Layer::kEdge,
       "{edgeai.io/layer: device, node-role.kubernetes.io/edge: ''}", "[" + taint + "]", ""},
      {"of an earlier gateway", Layer::kEdge, "{edgeai.io/layer: cloud}",
       "[{key: a, effect: NoExecute}]",
       "{metadata: {uid: u, resourceVersion: '7', labels: {node-role.kubernetes.io/edge: '', "
       "edgeai.io/layer: edge}},"
       " spec: {taints: [{key: a, effect: NoExecute}, " +
           taint + "]}}"},
      {"without the taint", Layer::kDevice,
       "{edgeai.io/layer: device, node-role.kubernetes.io/edge: ''}",
       "[{key: node-role.kubernetes.io/edge, effect: PreferNoSchedule}]",
       "{metadata: {uid: u, resourceVersion: '7'},"
       " spec: {taints: [{key: node-role.kubernetes.io/edge, effect: PreferNoSchedule}, " +
           taint + "]}}"},
      {"a cloud node", Layer::kCloud, "{edgeai.io/layer: cloud}", "[" + taint + "]", ""},
      {"let in again, to the cloud", Layer::kCloud,
       "{edgeai.io/layer: edge, node-role.kubernetes.io/edge: ''}", "[" + taint + "]",
       "{metadata: {uid: u, resourceVersion: '7', labels: {node-role.kubernetes.io/edge: null, "
       "edgeai.io/layer: cloud}},"
       " spec: {taints: []}}"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const Json node = yaml("{metadata: {uid: u, resourceVersion: '7', labels: " + one.labels +
                           "}, spec: {taints: " + one.taints + "}}");
    const auto patch = placement_patch(node, one.layer);
    ASSERT_EQ(patch.has_value(), !one.wanted.empty());
    EXPECT_EQ(patch.value_or(Json()), one.wanted.empty() ? Json() : yaml(one.wanted));
  }
}

}  // namespace layer_test
}  // namespace varda::gateway
