// Streams of a worker in the work list of its node, and the reported port.
#include <gtest/gtest.h>

#include "api/core/node.h"
#include "controllers/testing/golden.h"
#include "controllers/workers/workers.h"

namespace varda::controllers::workers {
namespace worker_streams_test {

using testing::typed;

struct Fixture {
  meta::ObjectMeta metadata;
  hosting::NodeList nodes;
  api::EdgeNode node;
  Worker worker;

  Fixture() {
    metadata.name = "digits";
    metadata.ns = "default";
    metadata.uid = "j1";
    nodes.push_back(typed<api::Node>(
        codec::parse_json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"edge0"}})")
            .value()));
    node.metadata.name = "edge0";
    worker.name = "train";
    worker.node_name = "edge0";
    worker.needs_model = false;
    worker.streams.push_back(
        {.name = "aggregator", .address = "10.0.0.1:7363", .listen = true, .unknown = {}});
  }
  Job job() const { return {"FederatedLearningJob", metadata}; }
};

TEST(WorkerStreams, WorkListOfTheNodeHasThem) {
  const Fixture test;
  const auto work = workers_for(test.job(), test.worker, test.nodes, test.node, {});
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].streams, test.worker.streams);
}

TEST(WorkerStreams, ReportedPortBelongsToTheJobAndTheReplica) {
  Fixture test;
  const auto port = [&](std::int64_t number = 0) {
    return stream_listener(test.job(), test.worker, test.node, number, "aggregator");
  };
  EXPECT_EQ(port(), "");
  api::EdgeWorkerReport report;
  report.key = "default/" + worker_pod_name(test.job(), test.worker, "edge0", 0);
  report.uid = "j1";
  report.streams.push_back(
      {.name = "aggregator", .address = "127.0.0.1:23817", .message = "", .unknown = {}});
  test.node.status.workers.push_back(report);
  EXPECT_EQ(port(), "127.0.0.1:23817");
  EXPECT_EQ(port(1), "");
  EXPECT_EQ(stream_listener(test.job(), test.worker, test.node, 0, "other"), "");
  test.node.status.workers[0].uid = "another job";
  EXPECT_EQ(port(), "");
}

}  // namespace worker_streams_test
}  // namespace varda::controllers::workers
