#include "api/edgeai/edge_summary.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::api {
namespace {

EdgeSummary of(const char* node) {
  return summarize(EdgeNode::from_json(codec::parse_yaml(node).value()).value().spec,
                   EdgeNode::from_json(codec::parse_yaml(node).value()).value().status);
}

TEST(EdgeSummary, IdleNodeHasZeroCounts) { EXPECT_EQ(of("{}"), (EdgeSummary{"0/0", "0/0", ""})); }

TEST(EdgeSummary, AModelIsReadyWhenItsTargetServesOrWaitsForAServer) {
  const std::string spec =
      "{spec: {models: [{key: d/a, target: '2'}, {key: d/b, target: '2', serving: {url: "
      "'http://h'}}]}, status: {models: [";
  const auto models = [&](const std::string& reports) {
    return of((spec + reports + "]}}").c_str()).models;
  };
  EXPECT_EQ(models(""), "0/2");
  EXPECT_EQ(models("{key: d/a, versions: [{version: '1', state: Ready}]}"), "0/2");
  EXPECT_EQ(models("{key: d/a, versions: [{version: '2', state: Ready}]}"), "1/2");
  EXPECT_EQ(models("{key: d/b, versions: [{version: '2', state: Ready}]}"), "0/2")
      << "it shall be served";
  EXPECT_EQ(models("{key: d/b, serving: {version: '1', state: Ready}}"), "0/2");
  EXPECT_EQ(models("{key: d/b, serving: {version: '2', state: Loading}}"), "0/2");
  EXPECT_EQ(models("{key: d/b, serving: {version: '2', state: Ready}}"), "1/2");
  EXPECT_EQ(models("{key: d/c, versions: [{version: '2', state: Ready}]}"), "0/2")
      << "nobody wants that one";
}

TEST(EdgeSummary, DatasetIsReadyWhenCountedUnderTheSameUid) {
  const std::string spec =
      "{spec: {datasets: [{key: k/d/a, uid: u, path: /a, format: csv}]}, status: {datasets: [";
  const auto datasets = [&](const std::string& reports) {
    return of((spec + reports + "]}}").c_str()).datasets;
  };
  EXPECT_EQ(datasets(""), "0/1");
  EXPECT_EQ(datasets("{key: k/d/a, uid: u, state: Counting}"), "0/1");
  EXPECT_EQ(datasets("{key: k/d/a, uid: u, state: Counted, samples: 0}"), "1/1");
  EXPECT_EQ(datasets("{key: k/d/a, uid: u, state: Counting, samples: 5}"), "1/1");
  EXPECT_EQ(datasets("{key: k/d/a, uid: u, state: Failed, samples: 5}"), "0/1");
  EXPECT_EQ(datasets("{key: k/d/a, uid: other, state: Counted, samples: 5}"), "0/1");
}

TEST(EdgeSummary, DiskSizesUseReadableUnits) {
  const auto disk = [](std::int64_t available, std::int64_t capacity) {
    EdgeNodeStatus status;
    status.disk.available_bytes = available;
    status.disk.capacity_bytes = capacity;
    return summarize({}, status).disk;
  };
  EXPECT_EQ(disk(0, 0), "");
  EXPECT_EQ(disk(0, 1000), "full: 0 free of 1000");
  EXPECT_EQ(disk(104857600, 9 * 1073741824LL + 536870912), "100Mi free of 9.5Gi");
  EXPECT_EQ(disk(12 * 1073741824LL, 5LL << 50), "12Gi free of 5120Ti");
  EXPECT_EQ(disk(-5, 1LL << 20), "full: 0 free of 1Mi");
}

TEST(EdgeSummary, DiskIsReportedFullUpToTheThreshold) {
  const auto disk = [](std::int64_t available, std::int64_t capacity) {
    EdgeNodeStatus status;
    status.disk.available_bytes = available << 20;
    status.disk.capacity_bytes = capacity << 20;
    return summarize({}, status).disk;
  };
  EXPECT_EQ(disk(20, 400), "full: 20Mi free of 400Mi");
  EXPECT_EQ(disk(21, 400), "21Mi free of 400Mi");
  EXPECT_EQ(disk(64, 9 << 10), "full: 64Mi free of 9.0Gi");
  EXPECT_EQ(disk(65, 9 << 10), "65Mi free of 9.0Gi");
}

}  // namespace
}  // namespace varda::api
