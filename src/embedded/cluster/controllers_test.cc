// The built-in controllers over the real API server, in memory, with real listeners; the test plays
// the runners.

#include "cluster/controllers.h"

#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "api/core/node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "net/client.h"
#include "net/server.h"
#include "net/tcp_proxy.h"
#include "net/testing/raw_socket.h"
#include "runtime/manager.h"
#include "runtime/testing/at_rest.h"

namespace varda::cluster {
namespace controllers_test {

using codec::Json;
using namespace std::chrono_literals;

const std::string kPods = "/api/v1/namespaces/default/pods";
const std::string kDeployments = "/apis/apps/v1/namespaces/default/deployments";
const std::string kServices = "/api/v1/namespaces/default/services";
const std::string kEndpoints = "/api/v1/namespaces/default/endpoints";

Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message());
  return std::move(parsed).value();
}

class Machine : public ::testing::Test {
 protected:
  Machine() : api_(options()), client_(api_.transport(), {}) { start(); }
  ~Machine() override { stop(); }

  apiserver::InMemoryApiServer::Options options() {
    apiserver::InMemoryApiServer::Options out;
    out.server.sessions = &sessions_;
    out.crds = api::crds();
    return out;
  }
  void start() {
    manager_ = std::make_unique<runtime::Manager>(client_, runtime::Manager::Options{});
    controllers_ = add_all(*manager_, client_, sessions_, options_);
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_->run(Context(stop)).ok()); });
  }
  void stop() {
    thread_ = {};
    controllers_.reset();
    manager_.reset();
  }

  void post(const std::string& collection, const Json& object) {
    const auto reply = api_.post(collection, object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void patch(const std::string& path, std::string_view change) {
    const auto reply = api_.merge_patch(path, yaml(change));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  void add_node(const std::string& name) {
    sessions_.opened(agent(name));
    post("/api/v1/nodes", yaml("{apiVersion: v1, kind: Node, metadata: {name: " + name + "}}"));
    ASSERT_TRUE(eventually([&] { return node_ready(name) == "True AgentConnected"; }))
        << node_ready(name);
    // The test's next steps need this node in the cache.
    ASSERT_TRUE(eventually([&] {
      const auto seen = manager_->caches().of<api::Node>().get({"", name});
      const api::CoreCondition* ready =
          seen ? api::find_condition(seen->status.conditions, "Ready") : nullptr;
      return ready && ready->status == "True";
    }));
  }
  static apiserver::Identity agent(const std::string& name) {
    return {.name = "system:node:" + name, .groups = {"system:nodes"}};
  }

  std::string condition(const std::string& path, const std::string& type) {
    const auto reply = api_.get(path);
    for (const Json& condition : reply.body.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == type)
        return condition["status"].as_string() + " " + condition["reason"].as_string();
    }
    return "";
  }
  std::string node_ready(const std::string& name) {
    return condition("/api/v1/nodes/" + name, "Ready");
  }
  std::vector<Json> pods() { return api_.get(kPods).body["items"].as_array(); }

  /// Plays the runner: bound pods become ready at an address.
  void run_pods(const std::string& ip = "127.0.0.1") {
    for (const Json& pod : pods()) {
      if (pod.at("spec/nodeName").as_string().empty() ||
          !pod.at("status/podIP").as_string().empty())
        continue;
      patch(kPods + "/" + pod.at("metadata/name").as_string() + "/status",
            "{status: {phase: Running, hostIP: 127.0.0.1, podIP: " + ip +
                ", conditions: [{type: PodScheduled, status: 'True'}, {type: Ready, status: "
                "'True'}]}}");
    }
  }
  /// Plays the runner: deletes terminating pods.
  void reap_pods() {
    for (const Json& pod : pods()) {
      if (pod["metadata"].contains("deletionTimestamp")) {
        api_.call("DELETE", kPods + "/" + pod.at("metadata/name").as_string(),
                  Json::object({{"gracePeriodSeconds", 0}}));
      }
    }
  }
  void make_deployment(int replicas, const std::string& image = "one") {
    post(kDeployments,
         yaml("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: " +
              std::to_string(replicas) +
              ", selector: {matchLabels: {app: web}}, strategy: {rollingUpdate: {maxSurge: 1, "
              "maxUnavailable: 0}}, "
              "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: " +
              image + "}]}}}}"));
  }
  bool becomes_idle() {
    return runtime::testing::becomes_idle(
        *manager_, client_, [this] { return std::to_string(api_.store().revision()); });
  }

  Options options_{.disconnect_grace = 50ms, .missing_node_grace = 0s, .failed_pod_delay = 0s};
  NodeSessions sessions_;
  apiserver::InMemoryApiServer api_;
  kube::Client client_;
  std::unique_ptr<runtime::Manager> manager_;
  std::unique_ptr<Controllers> controllers_;
  std::jthread thread_;
};

TEST_F(Machine, PodIsBoundWhenANodeThatFitsAppears) {
  post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, "
                   "image: i}]}}"));
  ASSERT_TRUE(
      eventually([&] { return condition(kPods + "/p", "PodScheduled") == "False Unschedulable"; }));
  add_node("cloud");
  EXPECT_TRUE(eventually([&] {
    return api_.get(kPods + "/p").body.at("spec/nodeName").as_string() == "cloud";
  })) << api_.get(kPods + "/p").text
      << api_.get("/api/v1/nodes/cloud").text;
  EXPECT_EQ(condition(kPods + "/p", "PodScheduled").substr(0, 4), "True");
  EXPECT_TRUE(becomes_idle());
}

TEST_F(Machine, PodsAreSpreadOverNodes) {
  add_node("a");
  add_node("b");
  for (int i = 0; i < 6; ++i) {
    post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p" + std::to_string(i) +
                     "}, spec: {containers: [{name: c, image: i}]}}"));
  }
  ASSERT_TRUE(eventually([&] {
    int on_a = 0, on_b = 0;
    for (const Json& pod : pods()) {
      on_a += pod.at("spec/nodeName").as_string() == "a";
      on_b += pod.at("spec/nodeName").as_string() == "b";
    }
    return on_a == 3 && on_b == 3;
  }));
}

TEST_F(Machine, NodeIsUnknownWhileItsAgentIsDisconnected) {
  add_node("edge0");
  post("/apis/edgeai.io/v1alpha1/edgenodes",
       yaml("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: edge0}, spec: {}}"));
  const std::string edge_node = "/apis/edgeai.io/v1alpha1/edgenodes/edge0";
  ASSERT_TRUE(
      eventually([&] { return condition(edge_node, "Connected") == "True AgentConnected"; }));
  sessions_.closed(agent("edge0"));
  EXPECT_TRUE(eventually([&] { return node_ready("edge0") == "Unknown AgentDisconnected"; }));
  EXPECT_TRUE(
      eventually([&] { return condition(edge_node, "Connected") == "Unknown AgentDisconnected"; }));
  const auto last_seen = [&] { return api_.get(edge_node).body.at("status/lastSeen"); };
  EXPECT_TRUE(meta::parse_time(last_seen().as_string()).ok()) << "since when it is away";
  sessions_.opened(agent("edge0"));
  EXPECT_TRUE(eventually([&] { return node_ready("edge0") == "True AgentConnected"; }));
  EXPECT_TRUE(
      eventually([&] { return condition(edge_node, "Connected") == "True AgentConnected"; }));
  EXPECT_TRUE(last_seen().is_null());
  EXPECT_TRUE(becomes_idle());
}

TEST_F(Machine, NodeHasLeaseAndHeartbeatTimes) {
  add_node("edge0");
  const std::string lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge0";
  ASSERT_TRUE(eventually([&] { return api_.get(lease).status == 200; }));
  EXPECT_EQ(api_.get(lease).body.at("spec/holderIdentity"), Json("edge0"));
  const std::string renewed = api_.get(lease).body.at("spec/renewTime").as_string();
  EXPECT_TRUE(meta::parse_time(renewed)) << renewed;
  for (const Json& condition :
       api_.get("/api/v1/nodes/edge0").body.at("status/conditions").as_array()) {
    EXPECT_TRUE(meta::parse_time(condition["lastHeartbeatTime"].as_string()))
        << codec::write_json(condition);
  }
  ASSERT_EQ(api_.call("DELETE", "/api/v1/nodes/edge0", Json()).status, 200);
  EXPECT_TRUE(eventually([&] { return api_.get(lease).status == 404; }));
}

TEST_F(Machine, NodeThatNeverConnectedHasNoLastSeen) {
  post("/apis/edgeai.io/v1alpha1/edgenodes",
       yaml("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: line7}, spec: {}}"));
  const std::string edge_node = "/apis/edgeai.io/v1alpha1/edgenodes/line7";
  ASSERT_TRUE(
      eventually([&] { return condition(edge_node, "Connected") == "Unknown AgentDisconnected"; }));
  EXPECT_TRUE(api_.get(edge_node).body.at("status/lastSeen").is_null());
}

TEST_F(Machine, PodsOfARemovedNodeAreDeleted) {
  add_node("cloud");
  post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, "
                   "image: i}]}}"));
  ASSERT_TRUE(eventually(
      [&] { return !api_.get(kPods + "/p").body.at("spec/nodeName").as_string().empty(); }));
  ASSERT_EQ(api_.remove("/api/v1/nodes/cloud").status, 200);
  EXPECT_TRUE(eventually([&] { return api_.get(kPods + "/p").status == 404; }));
}

TEST_F(Machine, DeploymentRunsHealsScalesAndRolls) {
  add_node("cloud");
  make_deployment(2);
  const auto available = [&](int count, const std::string& image) {
    return eventually([&] {
      run_pods();
      reap_pods();
      const Json status = api_.get(kDeployments + "/web").body["status"];
      const auto all = pods();
      return static_cast<int>(all.size()) == count &&
             status["availableReplicas"].as_integer() == count &&
             status["updatedReplicas"].as_integer() == count &&
             status["replicas"].as_integer() == count &&
             std::all_of(all.begin(), all.end(), [&](const Json& pod) {
               return pod.at("spec/containers/0/image").as_string() == image;
             });
    });
  };
  ASSERT_TRUE(available(2, "one"));
  ASSERT_EQ(api_.remove(kPods + "/" + pods()[0].at("metadata/name").as_string()).status, 200);
  ASSERT_TRUE(available(2, "one"));
  patch(kDeployments + "/web", "{spec: {replicas: 3}}");
  ASSERT_TRUE(available(3, "one"));
  patch(kDeployments + "/web", "{spec: {template: {spec: {containers: [{name: c, image: two}]}}}}");
  ASSERT_TRUE(available(3, "two"));
  EXPECT_EQ(condition(kDeployments + "/web", "Progressing"), "True NewReplicaSetAvailable");
  patch(kDeployments + "/web", "{spec: {replicas: 1}}");
  ASSERT_TRUE(available(1, "two"));
  EXPECT_TRUE(becomes_idle());
  stop();  // pending Events are written
  const auto before = api_.store().revision();
  start();
  EXPECT_TRUE(becomes_idle());
  EXPECT_EQ(api_.store().revision(), before);  // a restart without changes writes nothing
  ASSERT_EQ(api_.remove(kDeployments + "/web").status, 200);
  EXPECT_TRUE(eventually([&] {
    reap_pods();
    return pods().empty();
  }));
}

TEST_F(Machine, ReplicaSetAdoptsPodsOfTheDeployment) {
  add_node("cloud");
  make_deployment(2);
  const auto settled = [&] {
    run_pods();
    reap_pods();
    return pods().size() == 2 &&
           api_.get(kDeployments + "/web").body.at("status/availableReplicas").as_integer() == 2;
  };
  ASSERT_TRUE(eventually(settled));
  ASSERT_TRUE(becomes_idle());
  stop();
  // A data directory from before ReplicaSets existed.
  const Json deployment = api_.get(kDeployments + "/web").body;
  const std::string sets = "/apis/apps/v1/namespaces/default/replicasets";
  std::vector<std::string> before;
  for (const Json& pod : pods()) {
    before.push_back(pod.at("metadata/name").as_string());
    patch(kPods + "/" + before.back(),
          "{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: " +
              deployment.at("metadata/uid").as_string() + ", controller: true}]}}");
  }
  ASSERT_EQ(
      api_.remove(sets + "/" + api_.get(sets).body.at("items/0/metadata/name").as_string()).status,
      200);
  start();
  ASSERT_TRUE(eventually([&] {
    const auto all = pods();
    return std::all_of(all.begin(), all.end(), [](const Json& pod) {
      return pod.at("metadata/ownerReferences/0/kind").as_string() == "ReplicaSet";
    });
  }));
  EXPECT_TRUE(eventually(settled));
  EXPECT_TRUE(becomes_idle());
  std::vector<std::string> after;
  for (const Json& pod : pods()) after.push_back(pod.at("metadata/name").as_string());
  EXPECT_EQ(after, before);
}

TEST_F(Machine, JobCountsDeletedPodsAndItsDeletionRemovesPods) {
  const std::string jobs = "/apis/batch/v1/namespaces/default/jobs";
  add_node("cloud");
  post(jobs, yaml("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {completions: 2, "
                  "parallelism: 2, template: {spec: "
                  "{restartPolicy: Never, containers: [{name: c, image: i}]}}}}"));
  ASSERT_TRUE(eventually([&] { return pods().size() == 2; }));
  const std::string first = pods()[0].at("metadata/name").as_string();
  patch(kPods + "/" + first + "/status", "{status: {phase: Succeeded}}");
  api_.call("DELETE", kPods + "/" + first, Json::object({{"gracePeriodSeconds", 0}}));
  ASSERT_TRUE(eventually(
      [&] { return api_.get(jobs + "/j").body.at("status/succeeded").as_integer() == 1; }));
  ASSERT_TRUE(eventually([&] { return pods().size() == 1; }));
  patch(kPods + "/" + pods()[0].at("metadata/name").as_string() + "/status",
        "{status: {phase: Succeeded}}");
  EXPECT_TRUE(
      eventually([&] { return condition(jobs + "/j", "Complete") == "True CompletionsReached"; }));
  EXPECT_EQ(api_.get(jobs + "/j").body.at("status/succeeded").as_integer(), 2);
  EXPECT_TRUE(becomes_idle());
  ASSERT_EQ(
      api_.call("DELETE", jobs + "/j", Json::object({{"propagationPolicy", "Background"}})).status,
      200);
  EXPECT_TRUE(eventually([&] {
    reap_pods();
    return pods().empty();
  }));
}

TEST_F(Machine, OrphansOfADeletedJobLoseTheirFinalizers) {
  const std::string jobs = "/apis/batch/v1/namespaces/default/jobs";
  add_node("cloud");
  post(jobs, yaml("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: "
                  "{restartPolicy: Never, containers: [{name: c, image: i}]}}}}"));
  ASSERT_TRUE(eventually([&] { return pods().size() == 1; }));
  ASSERT_EQ(
      api_.call("DELETE", jobs + "/j", Json::object({{"propagationPolicy", "Orphan"}})).status,
      200);
  ASSERT_TRUE(eventually([&] { return api_.get(jobs + "/j").status == 404; }));
  ASSERT_EQ(pods().size(), 1u);
  EXPECT_TRUE(eventually([&] { return pods()[0]["metadata"]["finalizers"].empty(); }))
      << codec::write_json(pods()[0]);
}

// A server would give every test the same first port, and tests may run in parallel.
int free_node_port() {
  for (int i = 0; i < 2000; ++i) {
    const int port = 30'000 + (::getpid() * 7 + i) % 2000;
    if (net::TcpProxy::create({.listen = "127.0.0.1:" + std::to_string(port)}).ok()) return port;
  }
  ADD_FAILURE() << "no node port is free";
  return 0;
}

TEST_F(Machine, ServiceForwardsOnceItsEndpointsAreListed) {
  add_node("cloud");
  auto backend = *net::Server::create({}, net::inline_handler([](const net::Request&) {
                                        net::Response response;
                                        response.body = "hello";
                                        return response;
                                      }));
  post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {app: web}}, spec: "
                   "{containers: [{name: c, image: i}]}}"));
  post(kServices, yaml("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: "
                       "NodePort, selector: {app: web}, ports: [{port: 80, "
                       "nodePort: " +
                       std::to_string(free_node_port()) +
                       ", targetPort: " + std::to_string(backend->port()) + "}]}}"));
  const auto node_port = api_.get(kServices + "/web").body.at("spec/ports/0/nodePort").as_integer();
  ASSERT_GT(node_port, 0);
  EXPECT_EQ(api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").size(), 0u);
  ASSERT_TRUE(eventually([&] {
    run_pods();
    return api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").size() == 1;
  }));
  const std::string url = "http://127.0.0.1:" + std::to_string(node_port) + "/";
  auto answer = net::make_client({})->call(Context().with_timeout(10s), {.url = url});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "hello");
  EXPECT_TRUE(becomes_idle());

  patch(kPods + "/p/status", "{status: {conditions: [{type: Ready, status: 'False'}]}}");
  EXPECT_TRUE(eventually(
      [&] { return api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").empty(); }));
  EXPECT_FALSE(net::make_client({})->call(Context().with_timeout(10s), {.url = url}).ok());

  ASSERT_EQ(api_.remove(kServices + "/web").status, 200);
  EXPECT_TRUE(eventually([&] {
    return net::Server::create(
               {.listen = "127.0.0.1:" + std::to_string(node_port)},
               net::inline_handler([](const net::Request&) { return net::Response(); }))
        .ok();
  }));
  EXPECT_TRUE(eventually([&] { return api_.get(kEndpoints + "/web").status == 404; }));
}

TEST_F(Machine, NodePortChangeKeepsConnectionsUntilTheDrainEnds) {
  add_node("cloud");
  auto backend = *net::Server::create({}, net::inline_handler([](const net::Request&) {
                                        net::Response response;
                                        response.body = "hello";
                                        return response;
                                      }));
  post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {app: web}}, spec: "
                   "{containers: [{name: c, image: i}]}}"));
  const auto spec = [&](int node_port) {
    return "{selector: {app: web}, type: NodePort, ports: [{port: 80, nodePort: " +
           std::to_string(node_port) + ", targetPort: " + std::to_string(backend->port()) + "}]}";
  };
  const int first = free_node_port();
  post(kServices,
       yaml("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: " + spec(first) + "}"));
  ASSERT_TRUE(eventually([&] {
    run_pods();
    return api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").size() == 1;
  }));
  const auto answers = [](net::testing::RawSocket& socket) {
    socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    return socket.read_until("hello").find("hello") != std::string::npos;
  };
  const auto listens = [](int port) {
    return net::make_client({})
        ->call(Context().with_timeout(10s),
               {.url = "http://127.0.0.1:" + std::to_string(port) + "/"})
        .ok();
  };
  net::testing::RawSocket old(first);
  ASSERT_TRUE(answers(old));
  const int second = free_node_port();
  patch(kServices + "/web", "{spec: " + spec(second) + "}");
  ASSERT_TRUE(eventually([&] { return listens(second); }));
  EXPECT_TRUE(eventually([&] { return !listens(first); }));
  EXPECT_TRUE(answers(old));
  net::testing::RawSocket newer(second);
  ASSERT_TRUE(answers(newer));
  // Changes the port and back while a connection is open.
  patch(kServices + "/web", "{spec: " + spec(first) + "}");
  ASSERT_TRUE(eventually([&] { return listens(first); }));
  EXPECT_TRUE(answers(old));
  EXPECT_TRUE(answers(newer));
  EXPECT_TRUE(becomes_idle());
  ASSERT_EQ(api_.remove(kServices + "/web").status, 200);
  EXPECT_TRUE(eventually([&] { return !listens(first); }));
  EXPECT_TRUE(answers(old));
  EXPECT_TRUE(answers(newer));
  options_.connection_drain = 0s;
  stop();  // closes every port
  EXPECT_EQ(old.read_all(), "");
  EXPECT_TRUE(old.closed());

  // Connections end after the drain time.
  start();
  post(kServices,
       yaml("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: " + spec(first) + "}"));
  ASSERT_TRUE(eventually([&] { return listens(first); }));
  net::testing::RawSocket late(first);
  ASSERT_TRUE(answers(late));
  patch(kServices + "/web", "{spec: {type: ClusterIP, ports: [{port: 80, targetPort: " +
                                std::to_string(backend->port()) + "}]}}");
  EXPECT_EQ(late.read_all(60s), "");
  EXPECT_TRUE(late.closed());
}

TEST_F(Machine, TakenNodePortCausesEventAndOpensLater) {
  add_node("cloud");
  const auto nothing = net::inline_handler([](const net::Request&) { return net::Response(); });
  std::unique_ptr<net::Server> squatter;
  int port = 0;
  for (port = 32000; port < 32700 && !squatter; ++port) {
    auto made = net::Server::create({.listen = "127.0.0.1:" + std::to_string(port)}, nothing);
    if (made.ok()) squatter = std::move(*made);
  }
  ASSERT_TRUE(squatter);
  --port;
  post(kPods, yaml("{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {app: web}}, spec: "
                   "{containers: [{name: c, image: i}]}}"));
  ASSERT_TRUE(eventually(
      [&] { return !api_.get(kPods + "/p").body.at("spec/nodeName").as_string().empty(); }));
  run_pods();
  post(kServices, yaml("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: "
                       "NodePort, selector: {app: web}, ports: [{port: 80, "
                       "nodePort: " +
                       std::to_string(port) + "}]}}"));
  ASSERT_TRUE(eventually([&] {
    const auto events = api_.get("/api/v1/namespaces/default/events");
    for (const Json& event : events.body["items"].as_array()) {
      if (event.at("involvedObject/kind").as_string() == "Service" &&
          event["message"].as_string().find(std::to_string(port)) != std::string::npos) {
        return true;
      }
    }
    return false;
  })) << api_.get("/api/v1/namespaces/default/events").text;
  EXPECT_EQ(api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").size(), 0u);
  squatter.reset();
  EXPECT_TRUE(eventually(
      [&] { return api_.get(kEndpoints + "/web").body.at("subsets/0/addresses").size() == 1; }));
}

}  // namespace controllers_test
}  // namespace varda::cluster
