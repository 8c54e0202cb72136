// Metrics of JointInferenceServices over the real API server, in memory. The test writes the
// statuses.
#include "controllers/joint/metrics.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "api/kind.h"
#include "api/sedna/joint_inference_service.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::controllers::joint {
namespace metrics_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kStatus = R"(
conditions:
- {type: Ready, status: 'True', reason: Serving, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}
- {type: Degraded, status: Unknown, reason: NodeUnreachable, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}
active: 2
failed: 1
inferenceNumber: 360
hardExampleNumber: 121
uploadCloudRatio: '0.34'
bytesSent: 48400
tiers:
- {name: edge, model: small, ready: true, answered: 239, p50Ms: '0.09', p99Ms: '1.5'}
- {name: cloud, model: big, ready: false, answered: 119, called: 121, errors: {Timeout: 1, Refused: 1}, p50Ms: '12'}
)";

constexpr std::string_view kText =
    R"(# HELP varda_joint_service_answered_total Requests by the tier that answered.
# TYPE varda_joint_service_answered_total counter
varda_joint_service_answered_total{namespace="default",name="digits",tier="edge"} 239
varda_joint_service_answered_total{namespace="default",name="digits",tier="cloud"} 119
# HELP varda_joint_service_calls_total Requests by the tier that was called.
# TYPE varda_joint_service_calls_total counter
varda_joint_service_calls_total{namespace="default",name="digits",tier="edge"} 0
varda_joint_service_calls_total{namespace="default",name="digits",tier="cloud"} 121
# HELP varda_joint_service_degraded 1 if the condition Degraded is True, else 0.
# TYPE varda_joint_service_degraded gauge
varda_joint_service_degraded{namespace="default",name="digits"} 0
# HELP varda_joint_service_errors_total Calls that a tier did not answer, by reason. ClientGone: the client disconnected; the tier did not fail.
# TYPE varda_joint_service_errors_total counter
varda_joint_service_errors_total{namespace="default",name="digits",tier="cloud",reason="Refused"} 1
varda_joint_service_errors_total{namespace="default",name="digits",tier="cloud",reason="Timeout"} 1
# HELP varda_joint_service_hard_examples_total Answered requests that a policy classified as hard examples.
# TYPE varda_joint_service_hard_examples_total counter
varda_joint_service_hard_examples_total{namespace="default",name="digits"} 121
# HELP varda_joint_service_inferences_total Requests answered.
# TYPE varda_joint_service_inferences_total counter
varda_joint_service_inferences_total{namespace="default",name="digits"} 360
# HELP varda_joint_service_latency_p50_seconds Median duration of the tier's calls, at the slowest node.
# TYPE varda_joint_service_latency_p50_seconds gauge
varda_joint_service_latency_p50_seconds{namespace="default",name="digits",tier="edge"} 9e-05
varda_joint_service_latency_p50_seconds{namespace="default",name="digits",tier="cloud"} 0.012
# HELP varda_joint_service_latency_p99_seconds 99th percentile of the duration of the tier's calls, at the slowest node.
# TYPE varda_joint_service_latency_p99_seconds gauge
varda_joint_service_latency_p99_seconds{namespace="default",name="digits",tier="edge"} 0.0015
# HELP varda_joint_service_ready 1 if the condition Ready is True, else 0.
# TYPE varda_joint_service_ready gauge
varda_joint_service_ready{namespace="default",name="digits"} 1
# HELP varda_joint_service_sent_bytes_total Bytes of requests sent to later tiers.
# TYPE varda_joint_service_sent_bytes_total counter
varda_joint_service_sent_bytes_total{namespace="default",name="digits"} 48400
# HELP varda_joint_service_tier_ready 1 if the tier answers, else 0.
# TYPE varda_joint_service_tier_ready gauge
varda_joint_service_tier_ready{namespace="default",name="digits",tier="edge"} 1
varda_joint_service_tier_ready{namespace="default",name="digits",tier="cloud"} 0
# HELP varda_joint_service_workers Workers by state: active or failed.
# TYPE varda_joint_service_workers gauge
varda_joint_service_workers{namespace="default",name="digits",state="active"} 2
varda_joint_service_workers{namespace="default",name="digits",state="failed"} 1
)";

codec::Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << text << (parsed.ok() ? "" : parsed.error().message());
  return std::move(parsed).value();
}

std::string path(const std::string& ns, const std::string& name = "") {
  return "/apis/sedna.io/v1alpha1/namespaces/" + ns + "/jointinferenceservices" +
         (name.empty() ? "" : "/" + name);
}

/// One operator. The test decides what the manager runs.
class Operator {
 public:
  explicit Operator(const kube::Client& client, runtime::Manager::Options options = {})
      : manager_(client, std::move(options)) {}

  runtime::Manager& manager() { return manager_; }
  void start() {
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_.run(Context(stop)).ok()); });
  }
  void stop() { thread_ = {}; }

 private:
  runtime::Manager manager_;
  std::jthread thread_;
};

class JointMetricsOfServices : public ::testing::Test {
 protected:
  void add(const std::string& ns, const std::string& name) {
    codec::Json service = yaml(R"(
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
spec: {edgeWorker: {model: {name: small}, nodeName: edge0}, cloudWorker: {model: {name: big}}}
)");
    service.set("metadata", codec::Json::object({{"name", name}}));
    const auto reply = api_.post(path(ns), service);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void set_status(const std::string& ns, const std::string& name, std::string_view status) {
    codec::Json change;
    change["status"] = yaml(status);
    const auto reply = api_.merge_patch(path(ns, name) + "/status", change);
    ASSERT_EQ(reply.status, 200) << reply.text;
  }

  apiserver::InMemoryApiServer api_{{.crds = api::crds()}};
  kube::Client client_{api_.transport(), {}};
};

TEST_F(JointMetricsOfServices, MetricsFollowServiceStatusUntilDeletion) {
  Operator one(client_);
  one.manager().watch<api::JointInferenceService>();
  const JointMetrics collector(one.manager().caches(), [&] { return one.manager().leading(); });
  const auto text = [&] { return metrics::text_of({&collector}); };
  EXPECT_EQ(text(), "") << "nothing is told of a copy that is not complete";
  one.start();
  add("default", "digits");
  set_status("default", "digits", kStatus);
  ASSERT_TRUE(eventually([&] { return text() == kText; })) << text();
  ASSERT_EQ(api_.post("/api/v1/namespaces",
                      yaml("{apiVersion: v1, kind: Namespace, metadata: {name: other}}"))
                .status,
            201);
  add("other", "digits");
  const std::string fresh =
      "varda_joint_service_inferences_total{namespace=\"other\",name=\"digits\"} 0\n";
  ASSERT_TRUE(eventually([&] { return text().find(fresh) != std::string::npos; })) << text();
  EXPECT_THAT(text(), Not(HasSubstr("tier_ready{namespace=\"other\"")))
      << "nobody has said yet which tiers there are";
  api_.remove(path("other", "digits"));
  EXPECT_TRUE(eventually([&] { return text() == kText; })) << text();
  api_.remove(path("default", "digits"));
  EXPECT_TRUE(eventually([&] { return text().empty(); })) << text();
}

// A text that is no number is no measurement; a sample of 0 would be wrong.
TEST_F(JointMetricsOfServices, NonNumericLatencyIsOmitted) {
  Operator one(client_);
  one.manager().watch<api::JointInferenceService>();
  const JointMetrics collector(one.manager().caches(), [] { return true; });
  one.start();
  add("default", "digits");
  set_status("default", "digits",
             "{tiers: [{name: edge, model: m, p50Ms: soon, p99Ms: 1.5ms}, {name: cloud, model: m, "
             "p50Ms: '', p99Ms: '2'}]}");
  std::string text;
  ASSERT_TRUE(eventually([&] {
    text = metrics::text_of({&collector});
    return text.find(
               "varda_joint_service_latency_p99_seconds{namespace=\"default\",name=\"digits\",tier="
               "\"cloud\"} 0.002\n") != std::string::npos;
  })) << text;
  EXPECT_THAT(text, Not(HasSubstr("p50_seconds")));
  EXPECT_THAT(text,
              Not(HasSubstr("p99_seconds{namespace=\"default\",name=\"digits\",tier=\"edge\"")));
}

// An operator and its stand-by report the sums once.
TEST_F(JointMetricsOfServices, OnlyLeadingOperatorExportsMetrics) {
  const auto elects = [](const char* identity) {
    runtime::Manager::Options options;
    options.election.emplace();
    options.election->lease = {
        .identity = identity,
        .lease_duration = std::chrono::seconds(600),  // a stalled machine keeps the lease
        .renew_deadline = std::chrono::seconds(500),
        .retry_period = std::chrono::milliseconds(20)};
    return options;
  };
  add("default", "digits");
  Operator first(client_, elects("first")), second(client_, elects("second"));
  const auto of_first = add_all(first.manager(), {}), of_second = add_all(second.manager(), {});
  const auto has_metrics = [](const Controllers& controllers) {
    return metrics::text_of(controllers.metrics()).find("varda_joint_service_ready{") !=
           std::string::npos;
  };
  first.start();
  ASSERT_TRUE(eventually([&] { return has_metrics(*of_first); }));
  second.start();
  ASSERT_TRUE(eventually([&] { return second.manager().ready(); }));
  EXPECT_FALSE(has_metrics(*of_second));
  EXPECT_TRUE(has_metrics(*of_first));
  first.stop();
  EXPECT_FALSE(has_metrics(*of_first));
  EXPECT_TRUE(eventually([&] { return has_metrics(*of_second); }));
  second.stop();
}

}  // namespace metrics_test
}  // namespace varda::controllers::joint
