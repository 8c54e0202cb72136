// Golden cases of testdata/model: a Model of either group, the EdgeNodes around it, and the status.

#include "controllers/model/plan.h"

#include <gtest/gtest.h>

#include "api/kind.h"
#include "codec/yaml.h"
#include "controllers/testing/golden.h"

namespace varda::controllers::model {
namespace model_plan_test {

using codec::Json;
using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

constexpr const char* kNow = "2024-05-01T12:00:00Z";

using Nodes = std::vector<std::shared_ptr<const api::EdgeNode>>;

template <typename Model>
void run(const GoldenCase& test) {
  const auto model = typed<Model>(test.given["model"]);
  Nodes nodes;
  for (const Json& node : testing::world_of(test, "model"))
    nodes.push_back(typed<api::EdgeNode>(node));
  const ModelView which{Model::resource(), model->metadata};
  const api::ModelMetricsStatus status = observe(which, model->status, nodes, kNow);
  golden_cases("model").check(test.name, Json::object({{"status", status.to_json()}}));

  // The result must be valid, and a second pass must change nothing.
  for (const auto& cause :
       api::validate(Model::kind().schema->find("status")->schema, status.to_json(), "status")) {
    ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  EXPECT_EQ(codec::write_yaml(observe(which, status, nodes, "2030-01-01T00:00:00Z").to_json()),
            codec::write_yaml(status.to_json()));
}

class ModelGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelGolden, StatusMatchesGoldenFile) {
  const GoldenCase& test = golden_cases("model").at(GetParam());
  if (test.given["model"]["apiVersion"].as_string() == "sedna.io/v1alpha1") {
    run<api::SednaModel>(test);
  } else {
    run<api::Model>(test);
  }
}

INSTANTIATE_TEST_SUITE_P(Case, ModelGolden, ::testing::ValuesIn(golden_cases("model").names()),
                         [](const auto& test) { return test.param; });

// One node with workers, one per uid, that report about default/digits.
std::shared_ptr<api::EdgeNode> node_with(
    const std::vector<std::pair<std::string, std::string>>& workers) {
  auto node = std::make_shared<api::EdgeNode>();
  node->metadata.name = "edge0";
  for (const auto& [uid, report] : workers) {
    node->spec.workers.push_back({"default/" + uid, uid, "", Json(), {}, {}, {}, Json()});
    node->status.workers.push_back(
        {"default/" + uid, uid, codec::parse_json(report).value(), {}, Json()});
  }
  return node;
}

std::string accuracy(std::int64_t sequence, double value) {
  return R"({"sequence":)" + std::to_string(sequence) +
         R"(,"models":{"models.edgeai.io/default/digits":{"metrics":{"accuracy":)" +
         codec::write_json(Json(value)) + "}}}}";
}

const meta::ObjectMeta kDigits = [] {
  meta::ObjectMeta metadata;
  metadata.name = "digits";
  metadata.ns = "default";
  metadata.generation = 1;
  return metadata;
}();

api::ModelMetricsStatus see(const api::ModelMetricsStatus& before,
                            const std::shared_ptr<api::EdgeNode>& node) {
  return observe({api::Model::resource(), kDigits}, before, {node}, kNow);
}

// Reports may arrive in any order and repeatedly: once the last one has arrived, its values stay.
TEST(ModelReports, OldReportNeverReplacesNewerValues) {
  const std::vector<double> values{0.5, 0.9, 0.7, 0.9, 0.6};
  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  do {
    api::ModelMetricsStatus status;
    std::size_t latest = 0;
    for (const std::size_t i : order) {
      latest = std::max(latest, i);
      status =
          see(status, node_with({{"w", accuracy(static_cast<std::int64_t>(i) + 1, values[i])}}));
      ASSERT_NE(status.find_metric("accuracy"), nullptr);
      EXPECT_EQ(status.find_metric("accuracy")->value, codec::write_json(Json(values[latest])));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ModelReports, OnlyNewerReportReplacesManualMetric) {
  api::ModelMetricsStatus status = see({}, node_with({{"w", accuracy(7, 0.5)}}));
  status.metrics.front().value = "0.99";  // written by a job, or by hand
  EXPECT_EQ(see(status, node_with({{"w", accuracy(7, 0.5)}})).metrics.front().value, "0.99");
  EXPECT_EQ(see(status, node_with({{"w", accuracy(8, 0.6)}})).metrics.front().value, "0.6");
}

TEST(ModelReports, ExcessReportersWaitUntilOthersLeave) {
  std::vector<std::pair<std::string, std::string>> workers;
  for (std::size_t i = 0; i <= api::ModelMetricsStatus::kReportersMax; ++i) {
    const std::string number = std::to_string(100 + i);
    workers.emplace_back(
        "w" + number,
        R"({"sequence":1,"models":{"models.edgeai.io/default/digits":{"metrics":{"m)" + number +
            "\":1}}}}");
  }
  api::ModelMetricsStatus status = see({}, node_with(workers));
  EXPECT_EQ(status.reporters.size(), api::ModelMetricsStatus::kReportersMax);
  EXPECT_EQ(status.metrics.size(), api::ModelMetricsStatus::kReportersMax);
  EXPECT_NE(meta::find_condition(status.conditions, "ReportAccepted"), nullptr);
  EXPECT_EQ(see(status, node_with(workers)).to_json(), status.to_json()) << "nothing goes round";
  workers.erase(workers.begin());
  status = see(status, node_with(workers));
  EXPECT_EQ(status.metrics.size(), api::ModelMetricsStatus::kReportersMax + 1);
  EXPECT_EQ(meta::find_condition(status.conditions, "ReportAccepted"), nullptr);
}

TEST(ModelReports, HostileReportIsClippedToValidStatus) {
  Json metrics = Json::object();
  for (int i = 0; i < 2'000; ++i) metrics.set("m" + std::to_string(i), 1e300);
  metrics.set(std::string(10'000, 'x'), 1);
  metrics.set("", 1);
  metrics.set("text", "high");
  Json report = Json::object({{"sequence", INT64_MAX}});
  report["models"]["models.edgeai.io/default/digits"].set("metrics", metrics);
  const auto node = node_with({{"w", codec::write_json(report)}});
  const api::ModelMetricsStatus status = see({}, node);
  for (const auto& cause : api::validate(api::Model::kind().schema->find("status")->schema,
                                         status.to_json(), "status")) {
    ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  EXPECT_EQ(status.metrics.size(), api::ModelMetricsStatus::kMetricsMax);
  EXPECT_NE(meta::find_condition(status.conditions, "ReportAccepted"), nullptr);
  for (const char* odd :
       {"[]", "7", "{}", R"({"models":[]})", R"({"models":{"models.edgeai.io/default/digits":7}})",
        R"({"models":{"models.edgeai.io":{}, "models.edgeai.io/x":{}, "":{}}})",
        R"({"sequence":1.5,"models":{"models.edgeai.io/default/digits":{"metrics":[1]}}})"}) {
    EXPECT_TRUE(see({}, node_with({{"w", odd}})).metrics.empty()) << odd;
  }
}

struct PinCase {
  std::string url, version, sha256;
  std::optional<hosting::FileDigest> answer;
  std::string pinned, reason;  // afterwards; "": none
};

TEST(ModelPin, PinHoldsForOneUrlAndVersion) {
  using State = hosting::FileDigest::State;
  const std::string first(64, '1'), second(64, '2');
  const PinCase cases[] = {
      {"http://f/a.onnx", "1", "", {}, first, "FirstUse"},
      {"http://f/b.onnx", "1", "", {}, "", ""},
      {"http://f/a.onnx", "2", "", {}, "", ""},
      {"http://f/a.onnx", "1", second, {}, "", ""},
      {"http://f/a.onnx", "2", "", {{State::kReading, "", 0, ""}}, "", "Reading"},
      {"http://f/a.onnx", "2", "", {{State::kFailed, "", 0, "404"}}, "", "DownloadFailed"},
      {"http://f/a.onnx", "2", "", {{State::kRead, second, 9, ""}}, second, "FirstUse"},
  };
  for (const PinCase& c : cases) {
    api::Model model;
    model.spec.url = "http://f/a.onnx";
    model.spec.version = "1";
    model.status.pinned = api::PinnedFile{"http://f/a.onnx", "1", first, 5, kNow};
    EXPECT_EQ(api::known_sha256(model.spec, model.status), first);
    model.spec.url = c.url;
    model.spec.version = c.version;
    model.spec.sha256 = c.sha256;
    observe_pin(model.spec, c.answer, kNow, model.status);
    EXPECT_EQ(model.status.pinned ? model.status.pinned->sha256 : "", c.pinned);
    EXPECT_EQ(api::known_sha256(model.spec, model.status), c.sha256 + c.pinned);
    const auto* condition = meta::find_condition(model.status.conditions, "Pinned");
    EXPECT_EQ(condition != nullptr ? condition->reason : "", c.reason);
    for (const auto& cause : api::validate(api::Model::kind().schema->find("status")->schema,
                                           model.status.to_json(), "status"))
      ADD_FAILURE() << cause.field << ": " << cause.message;
  }
}

TEST(ModelPin, OnlyReadableFileWithoutDigestOrCredentialsNeedsAPin) {
  using Files = hosting::ReadableFiles;
  const auto needs_pin = [](const api::SednaModel& model, Files files = Files::kDownloads) {
    return model::needs_pin(model, files);
  };
  api::SednaModel model;
  model.spec.url = "s3://bucket/a.onnx";
  EXPECT_TRUE(needs_pin(model));
  model.spec.credential_name = "keys";
  EXPECT_FALSE(needs_pin(model));
  model.spec.credential_name.clear();
  for (const char* path : {"/models/a.onnx", "file:///models/a.onnx"}) {
    model.spec.url = path;
    EXPECT_FALSE(needs_pin(model));
    EXPECT_TRUE(needs_pin(model, Files::kDownloadsAndPaths));
  }
  model.spec.url = "https://f/a.onnx";
  model.spec.sha256 = std::string(64, '1');
  EXPECT_FALSE(needs_pin(model));
}

TEST(ModelPin, NodeAnswersTheItemOfThisModelOnly) {
  using State = hosting::FileDigest::State;
  auto model = std::make_shared<api::Model>();
  model->metadata.ns = "default";
  model->metadata.name = "digits";
  model->metadata.uid = "u1";
  model->spec.url = "file:///models/a%20b.onnx";
  model->spec.version = "1";
  const auto view = [&] { return hosting::any_model(std::shared_ptr<const api::Model>(model)); };
  EXPECT_TRUE(needs_node(view()));
  const api::EdgeFile item = file_of(view());
  EXPECT_EQ(item.key, "models.edgeai.io/default/digits");
  EXPECT_EQ(item.path, "/models/a b.onnx");
  api::EdgeNode node;
  api::EdgeFileReport report;
  report.key = item.key;
  report.uid = item.uid;
  report.path = item.path;
  report.version = item.version;
  report.state = api::EdgeFileReport::kRead;
  report.sha256 = std::string(64, '1');
  report.bytes = 5;
  node.status.files = {report};
  EXPECT_FALSE(answer_of(node, view())) << "the operator did not ask this node";
  node.spec.files = {item};
  ASSERT_TRUE(answer_of(node, view()));
  EXPECT_EQ(answer_of(node, view())->sha256, std::string(64, '1'));
  node.status.files[0].sha256 = "no digest";
  EXPECT_EQ(answer_of(node, view())->state, State::kReading);
  node.status.files[0] = report;
  node.status.files[0].version = "0";
  EXPECT_EQ(answer_of(node, view())->state, State::kReading) << "an answer to an earlier item";
  node.status.files[0] = report;
  node.status.files[0].state = api::EdgeFileReport::kFailed;
  node.status.files[0].message = "no such file";
  EXPECT_EQ(answer_of(node, view())->state, State::kFailed);
  observe_pin(model->spec, answer_of(node, view()), kNow, model->status, "node edge0");
  const auto* condition = meta::find_condition(model->status.conditions, "Pinned");
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ(condition->message,
            "the file has no sha256, and node edge0 cannot read it: no such file");
  model->spec.sha256 = std::string(64, '1');
  EXPECT_FALSE(needs_node(view()));
  model->spec.sha256.clear();
  model->spec.url = "https://f/a.onnx";
  EXPECT_FALSE(needs_node(view()));
}

TEST(ModelReports, ReportedModelsAreFilteredByApiGroup) {
  const auto node = node_with(
      {{"w",
        R"({"models":{"models.edgeai.io/default/a":{},"models.sedna.io/default/b":{},"models.edgeai.io/c":{}}})"}});
  EXPECT_EQ(reported_models(*node, api::Model::resource()),
            (std::vector<meta::ObjectKey>{{"default", "a"}}));
  EXPECT_EQ(reported_models(*node, api::SednaModel::resource()),
            (std::vector<meta::ObjectKey>{{"default", "b"}}));
}

}  // namespace model_plan_test
}  // namespace varda::controllers::model
