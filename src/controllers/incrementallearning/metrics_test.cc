// Metrics of IncrementalLearningJobs over the real API server, in memory. The test writes the
// statuses.
#include "controllers/incrementallearning/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "api/ai/inference_model.h"
#include "api/kind.h"
#include "api/sedna/incremental_learning_job.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::controllers::incrementallearning {
namespace incremental_metrics_test {

using codec::Json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kJobs =
    "/apis/sedna.io/v1alpha1/namespaces/default/incrementallearningjobs";
constexpr std::string_view kModels =
    "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";

Json yaml(std::string_view text) { return codec::parse_yaml(text).value(); }

class IncrementalMetricsOfJobs : public ::testing::Test {
 protected:
  IncrementalMetricsOfJobs() {
    manager_.watch<api::IncrementalLearningJob>();
    manager_.watch<api::InferenceModel>();
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_.run(Context(stop)).ok()); });
  }

  void post(std::string_view path, const Json& object) {
    const auto reply = api_.post(std::string(path), object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void add_job(std::string_view status) {
    post(kJobs, yaml(R"(
apiVersion: sedna.io/v1alpha1
kind: IncrementalLearningJob
metadata: {name: digits}
spec: {dataset: {name: d}, initialModel: {name: m}, trainSpec: {}, deploySpec: {model: {name: m}}}
)"));
    set_status(kJobs, "digits", status);
  }
  /// A server of the job.
  void add_server(const std::string& name, const std::string& samples, std::string_view status) {
    Json server = yaml(R"(
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {}
spec: {modelName: m, deployToLayer: edge, frameworkType: onnx, nodeName: edge0, targetVersion: '1', manifest: [{version: '1', downloadURL: 'http://f/1', sha256sum: )" +
                       std::string(64, 'a') + "}], samples: " + samples + "}");
    server.make("metadata").set("name", name);
    const Json job = api_.get(std::string(kJobs) + "/digits").body;
    server.make("metadata")
        .set("ownerReferences", Json::array({Json::object({{"apiVersion", job["apiVersion"]},
                                                           {"kind", job["kind"]},
                                                           {"name", "digits"},
                                                           {"uid", job.at("metadata/uid")},
                                                           {"controller", true}})}));
    post(kModels, server);
    set_status(kModels, name, status);
  }
  void set_status(std::string_view path, const std::string& name, std::string_view status) {
    Json change = Json::object({{"status", yaml(status)}});
    const auto reply =
        api_.merge_patch(std::string(path) + "/" + name + "/status", std::move(change));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  std::string text() const { return metrics::text_of({&collector_}); }
  static std::string line(const std::string& metric, const std::string& value,
                          const std::string& label = "") {
    return "varda_incremental_job_" + metric + "{namespace=\"default\",name=\"digits\"" + label +
           "} " + value + "\n";
  }

  apiserver::InMemoryApiServer api_{{.crds = api::crds()}};
  kube::Client client_{api_.transport(), {}};
  runtime::Manager manager_{client_, {}};
  IncrementalMetrics collector_{manager_.caches(), [] { return true; }};
  std::jthread thread_;
};

TEST_F(IncrementalMetricsOfJobs, RefusalsInARowEndWithAnotherOutcome) {
  add_job(R"(
rounds:
- {round: 1, outcome: Refused}
- {round: 2, outcome: Accepted}
- {round: 3, outcome: Refused}
- {round: 4, outcome: Refused, rolledBack: true}
)");
  ASSERT_TRUE(eventually([&] {
    return text().find(line("rounds_in_a_row", "2", ",outcome=\"Refused\"")) != std::string::npos;
  })) << text();
  EXPECT_THAT(text(), HasSubstr(line("rounds_in_a_row", "0", ",outcome=\"Failed\"")));
  EXPECT_THAT(text(), HasSubstr(line("rolled_back", "1")));
  EXPECT_THAT(text(), Not(HasSubstr("varda_incremental_job_labels{"))) << "no label came so far";
  EXPECT_THAT(text(), Not(HasSubstr("varda_incremental_job_spool_used{")));
}

TEST_F(IncrementalMetricsOfJobs, FullestNodeAndAllDroppedRequestsCount) {
  add_job(R"(
conditions: [{type: Labels, status: 'False', reason: DiskFull, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]
)");
  add_server("digits-a", "{countMax: 100, bytesMax: 1Ki}",
             "{samples: {version: '1', answers: 1, failures: 0, hard: 1, kept: 1, dropped: 3, "
             "pending: 10, bytes: 768}}");
  add_server("digits-b", "{}",
             "{samples: {version: '1', answers: 1, failures: 0, hard: 1, kept: 1, dropped: 4, "
             "pending: 500, bytes: 768}}");
  ASSERT_TRUE(eventually([&] {
    return text().find(line("samples_dropped_total", "7")) != std::string::npos;
  })) << text();
  EXPECT_THAT(text(), HasSubstr(line("spool_used", "0.75")));
  EXPECT_THAT(text(), HasSubstr(line("labels", "0")));
  EXPECT_THAT(text(), HasSubstr(line("rolled_back", "0")));
}

}  // namespace incremental_metrics_test
}  // namespace varda::controllers::incrementallearning
