// Golden cases of testdata/dataset: a dataset of either group and the world around it. Expected are
// the work list of every EdgeNode and the dataset's status.

#include "controllers/dataset/plan.h"

#include <gtest/gtest.h>

#include "api/kind.h"
#include "codec/yaml.h"
#include "controllers/edgenode/plan.h"
#include "controllers/testing/golden.h"
#include "dataset/format.h"

namespace varda::controllers::dataset {
namespace dataset_plan_test {

using codec::Json;
using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

constexpr const char* kNow = "2024-05-01T12:00:00Z";

template <typename Dataset>
void add(edgenode::EdgeNodeWorld& world, std::shared_ptr<const Dataset> dataset) {
  if constexpr (std::is_same_v<Dataset, api::Dataset>) {
    world.datasets.push_back(std::move(dataset));
  } else {
    world.sedna_datasets.push_back(std::move(dataset));
  }
}

template <typename Dataset>
void run(const GoldenCase& test) {
  const auto dataset = typed<Dataset>(test.given["dataset"]);
  DatasetWorld world;
  edgenode::EdgeNodeWorld nodes;
  add(nodes, dataset);
  std::vector<std::shared_ptr<const api::EdgeNode>> edge_nodes;
  for (const Json& other : testing::world_of(test, "dataset")) {
    const std::string kind = other["kind"].as_string();
    if (kind == "Node" && other.at("metadata/name").as_string() == dataset->spec.node_name)
      world.node = typed<api::Node>(other);
    if (kind == "EdgeNode") edge_nodes.push_back(typed<api::EdgeNode>(other));
  }
  Json expected = Json::object();
  for (const auto& node : edge_nodes) {
    if (node->metadata.name == dataset->spec.node_name) world.edge_node = node;
    expected["work"].set(node->metadata.name, edgenode::plan_edge_node(*node, nodes).to_json());
  }
  const api::DatasetStatus status = observe(view(*dataset), world, kNow);
  expected.set("status", status.to_json());
  golden_cases("dataset").check(test.name, expected);

  // The result must be valid, and a second pass must change nothing.
  const api::Property* schema = Dataset::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, status.to_json(), "status")) {
    ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  Dataset after = *dataset;
  after.status = status;
  EXPECT_EQ(codec::write_yaml(observe(view(after), world, "2030-01-01T00:00:00Z").to_json()),
            codec::write_yaml(status.to_json()));
}

class DatasetGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(DatasetGolden, WorkAndStatusMatchGoldenFile) {
  const GoldenCase& test = golden_cases("dataset").at(GetParam());
  if (test.given["dataset"]["apiVersion"].as_string() == "sedna.io/v1alpha1") {
    run<api::SednaDataset>(test);
  } else {
    run<api::Dataset>(test);
  }
}

INSTANTIATE_TEST_SUITE_P(Case, DatasetGolden, ::testing::ValuesIn(golden_cases("dataset").names()),
                         [](const auto& test) { return test.param; });

api::Dataset dataset(const std::string& name, const std::string& created) {
  api::Dataset out;
  out.metadata.name = name;
  out.metadata.ns = "default";
  out.metadata.uid = "u-" + name;
  out.metadata.generation = 1;
  out.metadata.creation_timestamp = created;
  out.spec.url = "/data/" + name;
  out.spec.format = "csv";
  out.spec.node_name = "edge0";
  return out;
}

TEST(DatasetFormats, KnownFormatsMatchCountedFormats) {
  std::vector<std::string> counted;
  for (const varda::dataset::Format* format : varda::dataset::formats())
    counted.emplace_back(format->name);
  EXPECT_EQ(api::known_dataset_formats(), counted);
}

TEST(DatasetCopies, DatasetThatNoNodeCanShareHasTheReasonInReplication) {
  api::Dataset one = dataset("faces", "2024-05-01T10:00:00Z");
  EXPECT_FALSE(observe_copies(view(one), {}, kNow));
  one.spec.replication.emplace();
  one.spec.url = "https://files.example/faces.csv";
  const auto remote = observe_copies(view(one), {}, kNow);
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->reason, "Unsupported");
  EXPECT_NE(remote->message, "");
  one.spec.url = "/data/faces";
  one.spec.node_name.clear();
  EXPECT_EQ(observe_copies(view(one), {}, kNow)->reason, "NodeMissing");
}

TEST(DatasetCopies, CopiesCarryTheFormat) {
  api::Dataset one = dataset("faces", "2024-05-01T10:00:00Z");
  one.spec.replication.emplace();
  one.spec.format = "CSV";
  const auto claim = claim_of(view(one));
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->metadata.at("kind").as_string(), "Dataset");
  EXPECT_EQ(claim->metadata.at("metadata/name").as_string(), "faces");
  EXPECT_EQ(claim->metadata.at("spec/format").as_string(), "csv");
}

TEST(DatasetLimit, OldestDatasetsStayAndYoungestGetsReason) {
  api::EdgeNode node;
  node.metadata.name = "edge0";
  edgenode::EdgeNodeWorld world;
  for (std::size_t i = 0; i < kDatasetsPerNode; ++i)
    world.datasets.push_back(
        std::make_shared<api::Dataset>(dataset("d" + std::to_string(i), "2024-05-01T10:00:00Z")));
  const api::Dataset young = dataset("a", "2024-05-01T10:00:01Z");
  world.datasets.push_back(std::make_shared<api::Dataset>(young));
  api::SednaDataset old;
  old.metadata = dataset("z", "2024-05-01T09:00:00Z").metadata;
  static_cast<api::DatasetSpec&>(old.spec) = dataset("z", "").spec;
  world.sedna_datasets.push_back(std::make_shared<api::SednaDataset>(old));

  node.spec = edgenode::plan_edge_node(node, world);
  EXPECT_EQ(node.spec.datasets.size(), kDatasetsPerNode);
  EXPECT_NE(node.spec.find_dataset("datasets.sedna.io/default/z"), nullptr)
      << "the oldest, of whatever group";
  EXPECT_EQ(node.spec.find_dataset("datasets.edgeai.io/default/a"), nullptr) << "the youngest";
  EXPECT_EQ(node.spec.find_dataset("datasets.edgeai.io/default/d99"), nullptr)
      << "of one age by name";
  DatasetWorld around{nullptr, std::make_shared<api::EdgeNode>(node)};
  const api::DatasetStatus status = observe(view(young), around, kNow);
  const meta::Condition* ready = meta::find_condition(status.conditions, "Ready");
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(ready->reason, "TooManyDatasets");

  world.datasets.erase(world.datasets.begin(), world.datasets.begin() + 2);
  EXPECT_NE(edgenode::plan_edge_node(node, world).find_dataset("datasets.edgeai.io/default/a"),
            nullptr)
      << "there is room again";
}

// No report of a node leads to a status that the API server would reject.
TEST(DatasetReport, HostileReportIsClippedToValidStatus) {
  api::Dataset one = dataset("d", "2024-05-01T10:00:00Z");
  api::EdgeNode node;
  node.metadata.name = "edge0";
  node.spec.datasets.push_back(*work_for(view(one)));
  api::EdgeDatasetReport report;
  report.key = "datasets.edgeai.io/default/d";
  report.uid = one.metadata.uid;
  report.state = "Counted";
  report.samples = INT64_MAX;
  report.bytes = INT64_MIN;
  report.malformed = -1;
  report.further_classes = INT64_MAX;
  std::string umlauts;
  for (int i = 0; i < 40'000; ++i) umlauts += "\xC3\xA4";
  report.inexact = report.message = report.header = report.fingerprint = report.time = umlauts;
  report.first_malformed = api::EdgeMalformed{umlauts, -3, INT64_MIN, umlauts, {}};
  for (int i = 0; i < 10'000; ++i)
    report.classes.push_back({"class " + std::to_string(i), INT64_MAX, {}});
  for (int i = 0; i < 10; ++i) report.classes.push_back({"class 1", 1, {}});
  report.classes.push_back({umlauts, -1, {}});
  node.status.datasets.push_back(report);
  const api::DatasetStatus status =
      observe(view(one), {nullptr, std::make_shared<api::EdgeNode>(node)}, kNow);
  for (const auto& cause : api::validate(api::Dataset::kind().schema->find("status")->schema,
                                         status.to_json(), "status")) {
    ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  EXPECT_EQ(status.number_of_samples, INT64_MAX);
  EXPECT_EQ(status.further_classes, INT64_MAX) << "no overflow";
  EXPECT_EQ(status.classes.size(), api::EdgeDatasetReport::kClassesMax);
  EXPECT_EQ(status.bytes, 0);
  EXPECT_EQ(status.update_time, kNow);
  const meta::Condition* accepted = meta::find_condition(status.conditions, "ReportAccepted");
  ASSERT_NE(accepted, nullptr);
  EXPECT_EQ(accepted->status, "False");
}

}  // namespace dataset_plan_test
}  // namespace varda::controllers::dataset
