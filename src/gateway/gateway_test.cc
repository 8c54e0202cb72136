// The gateway over the real API server in memory.
#include "gateway/gateway.h"

#include <atomic>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <semaphore>
#include <set>
#include <sstream>
#include <thread>

#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "gateway/join_token.h"
#include "gateway/node_key.h"
#include "gateway/testing/cloud.h"
#include "kube/client.h"
#include "runtime/informer.h"

namespace varda::gateway {
namespace gateway_test {

using codec::Json;
using testing::Cloud;
using testing::peer_of;

constexpr const char* kEdgeNodes = "/apis/edgeai.io/v1alpha1/edgenodes";
const meta::Resource kEdgeNode{"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false};
const meta::Resource kPod{"", "v1", "Pod", "pods", true};

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(VARDA_TESTDATA) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

net::HttpClient::Answer send_request(net::HttpClient& http, std::string method, std::string target,
                                     std::string body = "", net::Headers headers = {}) {
  return http
      .call(Context::background().with_timeout(std::chrono::seconds(60)),
            {.method = std::move(method),
             .url = std::move(target),
             .headers = std::move(headers),
             .body = std::move(body)})
      .value();
}

/// Sessions that record their calls.
class RecordingSessions final : public Sessions {
 public:
  void opened(const std::string& node) override { add("+" + node); }
  void closed(const std::string& node) override { add("-" + node); }
  /// Waits for `count` calls, and returns all as "+a -a".
  std::string reported(std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (reported_.size() < count && changed_.wait_until(mutex_, until)) {
    }
    std::string out;
    for (const std::string& text : reported_) out += (out.empty() ? "" : " ") + text;
    return out;
  }

 private:
  void add(std::string text) {
    MutexLock lock(mutex_);
    reported_.push_back(std::move(text));
    changed_.notify_all();
  }
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> reported_ GUARDED_BY(mutex_);
};

TEST(Gateway, EachRequestGetsTheAnswerInTheTable) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  // The first request for pods starts their informer.
  auto first = cloud.transport("edge0");
  ASSERT_EQ(send_request(*first, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge0").status,
            200);
  const Json others = cloud.edge_node("edge1");
  const Json cases = codec::parse_json(read_file("requests.json")).value();
  for (const Json& one : cases.as_array()) {
    SCOPED_TRACE(one["name"].as_string());
    auto http = cloud.transport(one["node"].string_or("edge0"));
    net::Headers headers;
    for (const auto& [name, value] : one["headers"].as_object())
      headers.add(name, value.as_string());
    std::string body = one["raw"].as_string();
    if (one.contains("body")) body = codec::write_json(one["body"]);
    const std::string& method = one["method"].as_string();
    if (one.contains("type")) {
      headers.add("Content-Type", one["type"].as_string());
    } else if (method == "POST" || method == "PUT") {
      headers.add("Content-Type", "application/json");
    }
    const auto answer = send_request(*http, method, one["target"].as_string(), body, headers);
    EXPECT_EQ(answer.status, one["status"].as_integer()) << answer.body;
    if (one.contains("says")) {
      // The message itself, without JSON's escapes.
      const auto json = codec::parse_json(answer.body);
      const bool failed = json.ok() && (*json)["kind"].as_string() == "Status";
      const std::string text = failed ? (*json)["message"].as_string() : answer.body;
      EXPECT_NE(text.find(one["says"].as_string()), std::string::npos) << answer.body;
    }
    if (answer.status < 400) continue;
    const auto status = codec::parse_json(answer.body);
    ASSERT_TRUE(status.ok()) << answer.body;
    EXPECT_EQ((*status)["kind"].as_string(), "Status");
    EXPECT_EQ((*status)["status"].as_string(), "Failure");
    EXPECT_EQ((*status)["code"].as_integer(), answer.status);
    EXPECT_FALSE((*status)["reason"].as_string().empty());
  }
  EXPECT_EQ(cloud.edge_node("edge1"), others);
}

TEST(Gateway, ANodeCannotPromoteItselfToTheCloud) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto evil = cloud.transport("evil");
  const net::Headers json{{"Content-Type", "application/json"}};
  const auto create = [&](const std::string& labels) {
    return send_request(
        *evil, "POST", "/api/v1/nodes",
        R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"evil","labels":)" + labels + "}}",
        json);
  };
  EXPECT_EQ(create(R"({"edgeai.io/layer":"cloud"})").status, 403);
  // The gateway adds the label and the taint that keep cloud pods away, though the node left them
  // out.
  ASSERT_EQ(create("{}").status, 201);
  const Json made = cloud.api().get("/api/v1/nodes/evil").body;
  EXPECT_TRUE(made.at("metadata/labels").contains("node-role.kubernetes.io/edge"));
  EXPECT_EQ(made.at("metadata/labels")["edgeai.io/layer"].as_string(), "edge");
  EXPECT_EQ(made.at("spec/taints/0/key").as_string(), "node-role.kubernetes.io/edge");
  EXPECT_EQ(made.at("spec/taints/0/effect").as_string(), "NoSchedule");
  // A pod of a tolerant Deployment still lands there, but its Secret stays where it is.
  cloud.apply(R"(
apiVersion: v1
kind: Pod
metadata: {name: lured, namespace: vault}
spec:
  nodeName: evil
  volumes: [{name: s, secret: {secretName: store}}]
  containers: [{name: c, image: i}]
)");
  net::HttpClient::Answer answer;
  ASSERT_TRUE(eventually("the gateway knows of the pod", [&] {
    answer = send_request(*evil, "GET", "/api/v1/namespaces/vault/secrets/store");
    return answer.body.find("edgeai.io/edge-secrets=allow") != std::string::npos;
  }));
  EXPECT_EQ(answer.status, 403);
}

TEST(Gateway, NextReportRestoresLayerOfMisplacedNode) {
  Cloud cloud;
  cloud.apply(R"(
apiVersion: v1
kind: Node
metadata: {name: evil, labels: {edgeai.io/layer: cloud}}
)");
  cloud.start_gateway();
  auto evil = cloud.transport("evil");
  const net::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  ASSERT_EQ(send_request(*evil, "PATCH", "/api/v1/nodes/evil/status",
                         R"({"status":{"capacity":{"cpu":"1"}}})", merge)
                .status,
            200);
  const Json node = cloud.api().get("/api/v1/nodes/evil").body;
  EXPECT_EQ(node.at("metadata/labels")["edgeai.io/layer"].as_string(), "edge");
  EXPECT_TRUE(node.at("metadata/labels").contains("node-role.kubernetes.io/edge"));
  EXPECT_EQ(node.at("status/capacity/cpu").as_string(), "1");
  const auto& taints = node.at("spec/taints").as_array();
  EXPECT_TRUE(std::any_of(taints.begin(), taints.end(), [](const Json& taint) {
    return taint["key"].as_string() == "node-role.kubernetes.io/edge";
  }));
}

TEST(Gateway, CloudNodeMayRegisterInItsLayer) {
  Cloud cloud;
  cloud.start_gateway();
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  ASSERT_TRUE(make_system_namespace(ctx, cloud.client()).ok());
  ASSERT_TRUE(set_node_key(ctx, cloud.client(), "big", std::string(64, 'a'), Layer::kCloud).ok());
  net::Peer peer = peer_of("big");
  peer.certificate_organizational_units = {"cloud"};
  auto big = cloud.transport(peer);
  const auto made = send_request(
      *big, "POST", "/api/v1/nodes",
      R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"big","labels":{"edgeai.io/layer":"cloud"}}})",
      {{"Content-Type", "application/json"}});
  ASSERT_EQ(made.status, 201) << made.body;
  const Json node = cloud.api().get("/api/v1/nodes/big").body;
  EXPECT_FALSE(node.at("metadata/labels").contains("node-role.kubernetes.io/edge"));
  for (const Json& taint : node.at("spec/taints").as_array()) {
    EXPECT_NE(taint["key"].as_string(), "node-role.kubernetes.io/edge");
  }
}

TEST(Gateway, LoopbackAddressIsAcceptedFromLocalAgentsOnly) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  const struct {
    const char* peer;
    int status;
  } cases[] = {{"127.0.0.1:40000", 200},
               {"127.9.1.2:40000", 200},
               {"[::1]:40000", 200},
               {"[::ffff:127.0.0.1]:40000", 200},
               {"10.0.0.7:40000", 403},
               {"[2001:db8::1]:40000", 403},
               {"", 403},
               {"127.0.0.1.example:1", 403}};
  for (const auto& one : cases) {
    net::Peer peer = peer_of("edge0");
    peer.address = one.peer;
    auto http = cloud.transport(peer);
    const auto answer = send_request(*http, "PATCH", std::string(kEdgeNodes) + "/edge0/status",
                                     R"({"status":{"address":"127.9.1.2"}})",
                                     {{"Content-Type", "application/merge-patch+json"}});
    EXPECT_EQ(answer.status, one.status) << one.peer << " " << answer.body;
  }
}

TEST(Gateway, CertificateOfAnotherLayerIsRefused) {
  Cloud cloud;
  cloud.start_gateway();
  const Context ctx = Context::background();
  const auto record = [&](Layer layer) {
    ASSERT_TRUE(make_system_namespace(ctx, cloud.client()).ok());
    ASSERT_TRUE(set_node_key(ctx, cloud.client(), "line7", std::string(64, 'a'), layer).ok());
  };
  const auto status = [&](std::vector<std::string> units, const std::string& verb = "GET") {
    net::Peer peer = peer_of("line7");
    peer.certificate_organizational_units = std::move(units);
    auto http = cloud.transport(peer);
    if (verb == "GET")
      return send_request(*http, "GET",
                          std::string(kEdgeNodes) + "?fieldSelector=metadata.name%3Dline7");
    return send_request(*http, "PATCH", "/api/v1/nodes/line7/status", R"({"status":{}})",
                        {{"Content-Type", "application/merge-patch+json"}});
  };
  EXPECT_EQ(status({}).status, 200) << "never let in, without a layer: of the edge";
  EXPECT_EQ(status({"edge"}).status, 200);
  EXPECT_EQ(status({"moon"}).status, 403);
  const auto early = status({"cloud"});
  EXPECT_EQ(early.status, 401) << early.body;  // the agent then renews, or enrols with a new token
  EXPECT_NE(early.body.find("is for the layer cloud, and the node is of the layer edge"),
            std::string::npos)
      << early.body;
  EXPECT_NE(early.body.find("varda join-token --node line7"), std::string::npos) << early.body;

  // Admitted to the cloud: no certificate waits until the gateway's memory of the former layer
  // ends.
  record(Layer::kCloud);
  EXPECT_EQ(status({"cloud"}).status, 200);
  EXPECT_EQ(status({"edge"}).status, 401);
  const auto former = status({});
  EXPECT_EQ(former.status, 401) << former.body;
  EXPECT_NE(former.body.find("the certificate must be renewed"), std::string::npos) << former.body;

  // Back to the edge: the node's next report reads the change, and later requests follow it.
  record(Layer::kEdge);
  EXPECT_EQ(status({"edge"}).status, 200);
  EXPECT_EQ(status({"cloud"}).status, 401);
}

TEST(Gateway, InvalidCertificateGivesAccessToHealthOnly) {
  Cloud cloud;
  cloud.start_gateway();
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  struct Case {
    const char* name;
    net::Peer peer;
    int status;
  };
  net::Peer expired = peer_of("edge0"), ended = peer_of("edge0"), other = peer_of("edge0"),
            two = peer_of("edge0");
  expired.certificate_expired = true;
  ended.certificate_not_after = std::chrono::system_clock::now() - std::chrono::seconds(1);
  other.certificate_organizations = {"system:masters"};
  two.certificate_organizations.push_back("system:masters");
  for (const Case& one :
       {Case{"none", {.address = "198.51.100.7:1", .certificate_common_name = ""}, 401},
        Case{"expired before", expired, 401}, Case{"ended since", ended, 401},
        Case{"of another", other, 403}, Case{"of two", two, 403},
        Case{"a name that is none", peer_of("../edge0"), 403}}) {
    SCOPED_TRACE(one.name);
    auto http = cloud.transport(one.peer);
    EXPECT_EQ(send_request(*http, "GET", own).status, one.status);
    EXPECT_EQ(send_request(*http, "GET", std::string(kEdgeNodes) + "?watch=1").status, one.status);
    EXPECT_EQ(send_request(*http, "GET", "/healthz").status, 200);
    EXPECT_EQ(send_request(*http, "GET", "/readyz").body, "ok");
    EXPECT_EQ(send_request(*http, "GET", "/metrics").status, one.status);
  }
}

/// A transport to the API server that answers a path only after open().
class Gate final : public net::HttpClient {
 public:
  explicit Gate(net::HttpClient& through) : through_(through) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    const std::string path = request.url.substr(0, request.url.find('?'));
    {
      MutexLock lock(mutex_);
      while (!open_.contains(path)) {
        if (ctx.stopped()) return Error(Code::kCancelled, "the gate is shut");
        (void)changed_.wait_until(mutex_,
                                  std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
      }
    }
    return through_.send(ctx, std::move(request));
  }
  void open(const std::string& path) {
    MutexLock lock(mutex_);
    open_.insert(path);
    changed_.notify_all();
  }

 private:
  net::HttpClient& through_;
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> open_ GUARDED_BY(mutex_);
};

TEST(Gateway, EarlyRequestsWaitForTheFirstRead) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  Gate gate(cloud.api().transport());
  const kube::Client client(gate, {});
  Gateway::Options options;
  options.client = &client;
  options.limits.first_read_patience = std::chrono::minutes(5);
  const auto gateway = Gateway::create(std::move(options)).value();
  const auto status = [&](const std::string& target) {
    auto http = net::loopback(gateway->handler(), peer_of("edge0"));
    return send_request(*http, "GET", target).status;
  };
  const std::string pods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge0",
                    own = std::string(kEdgeNodes) + "/edge0";
  std::vector<int> of_pods(4), of_own(4);
  {
    std::vector<std::jthread> threads;
    for (int& one : of_pods) threads.emplace_back([&] { one = status(pods); });
    for (int& one : of_own) threads.emplace_back([&] { one = status(own); });
    gate.open(kEdgeNodes);
    gate.open(own);
    gate.open("/api/v1/namespaces/varda-system/secrets/node-key-edge0");
    gate.open("/api/v1/pods");
  }
  EXPECT_EQ(of_pods, std::vector<int>(4, 200));
  EXPECT_EQ(of_own, std::vector<int>(4, 200));
}

TEST(Gateway, WaitForFirstReadEndsAtTimeoutOrStop) {
  Cloud cloud;
  Gate gate(cloud.api().transport());
  const kube::Client client(gate, {});
  for (const auto patience :
       {std::chrono::milliseconds(20), std::chrono::milliseconds(std::chrono::minutes(5))}) {
    std::promise<int> answered;
    auto status = answered.get_future();
    Gateway::Options options;
    options.client = &client;
    options.limits.first_read_patience = patience;
    const auto gateway = Gateway::create(std::move(options)).value();
    // The handler returns when the request waits.
    gateway->handler()(
        {.target = std::string(kEdgeNodes) + "?watch=1", .peer = peer_of("edge0")},
        net::Responder([&](const net::Response& answer) { answered.set_value(answer.status); }));
    if (patience > std::chrono::seconds(1)) {
      EXPECT_EQ(status.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
      gateway->stop();
    }
    ASSERT_EQ(status.wait_for(kTestPatience), std::future_status::ready);
    EXPECT_EQ(status.get(), 503);
  }
}

TEST(Gateway, OversizedStatusIsRefused) {
  Cloud cloud;
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const auto answer = send_request(*http, "PATCH", std::string(kEdgeNodes) + "/edge0/status",
                                   std::string((1u << 20) + 1, ' '),
                                   {{"Content-Type", "application/merge-patch+json"}});
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(codec::parse_json(answer.body).value()["reason"].as_string(), "RequestEntityTooLarge");
}

/// A clock that moves only by pass().
class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(passed_.load()); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
  void pass(Duration time) { passed_ = passed_.load() + time; }

 private:
  std::atomic<Duration> passed_{Duration(std::chrono::hours(24))};
};

net::HttpClient::Answer write_event(net::HttpClient& http, const std::string& node,
                                    const std::string& name, const std::string& message) {
  const Json event = Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Event"},
       {"metadata", Json::object({{"name", name}})},
       {"involvedObject", Json::object({{"kind", "Node"}, {"apiVersion", "v1"}, {"name", node}})},
       {"reason", "Test"},
       {"message", message}});
  return send_request(http, "POST", "/api/v1/namespaces/default/events", codec::write_json(event),
                      {{"Content-Type", "application/json"}});
}

TEST(Gateway, OversizedEventsAndEventPatchesAreRefused) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const auto large = write_event(*http, "edge0", "edge0.large", std::string(8u << 10, 'm'));
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.body.find("8192 bytes"), std::string::npos) << large.body;
  // Our longest message, of bytes that JSON escapes to the longest text.
  EXPECT_EQ(write_event(*http, "edge0", "edge0.ours", std::string(1024, '\x01')).status, 201);
  const auto patch = [&](const std::string& body) {
    return send_request(*http, "PATCH", "/api/v1/namespaces/default/events/edge0.ours", body,
                        {{"Content-Type", "application/merge-patch+json"}})
        .status;
  };
  EXPECT_EQ(patch(R"({"count": 2})"), 200);
  EXPECT_EQ(patch(R"({"message": ")" + std::string(9000, 'm') + "\"}"), 413);
  EXPECT_EQ(patch(R"({"series": {"state": ")" + std::string(6000, 's') + "\"}}"),
            413);  // the Event has 6 KiB already
  EXPECT_EQ(patch(R"({"message": "short"})"), 200);
}

TEST(Gateway, HeavyWriterIsThrottledAndOthersAreNot) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  HandClock clock;
  Gateway::Options options;
  options.clock = &clock;
  options.limits.written_kib_burst = 64;
  options.limits.written_kib_period = std::chrono::milliseconds(100);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0"), other = cloud.transport("edge1");
  int taken = 0;
  auto answer = write_event(*http, "edge0", "e.0", std::string(4000, 'm'));
  while (answer.status == 201 && taken < 1000) {
    answer = write_event(*http, "edge0", "e." + std::to_string(++taken), std::string(4000, 'm'));
  }
  EXPECT_EQ(answer.status, 429);
  EXPECT_GE(taken, 10);
  EXPECT_LE(taken, 16);
  const auto after = answer.headers.find("Retry-After");
  ASSERT_TRUE(after);
  const auto patch = [&](const std::string& text) {
    return send_request(*http, "PATCH", "/api/v1/nodes/edge0/status",
                        R"({"status": {"images": [{"names": [")" + text + "\"]}]}}",
                        {{"Content-Type", "application/merge-patch+json"}})
        .status;
  };
  EXPECT_EQ(patch("1"), 429);  // every write
  EXPECT_EQ(send_request(*http, "GET", std::string(kEdgeNodes) + "/edge0").status,
            200);  // but reads are free
  EXPECT_EQ(write_event(*other, "edge1", "f", std::string(4000, 'm')).status, 201);
  clock.pass(std::chrono::seconds(std::stoi(std::string(*after))));
  // A write larger than the rest of the allowance passes, and is charged afterwards ...
  EXPECT_EQ(patch(std::string(200'000, '7')), 200);
  EXPECT_EQ(patch("1"), 429);
  clock.pass(std::chrono::minutes(1));
  // ... and a small patch costs the size of its object.
  EXPECT_EQ(send_request(*http, "PATCH", "/api/v1/nodes/edge0/status",
                         R"({"status": {"phase": "Running"}})",
                         {{"Content-Type", "application/merge-patch+json"}})
                .status,
            200);
  EXPECT_EQ(patch("1"), 429);
}

TEST(Gateway, RefusedWritesAreNotCharged) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  HandClock clock;
  Gateway::Options options;
  options.clock = &clock;
  options.limits.written_kib_burst = 2;
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  EXPECT_EQ(write_event(*http, "edge0", "same", "m").status, 201);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(write_event(*http, "edge0", "same", "m").status, 409);
}

TEST(Gateway, RevokedNodeGets403) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  EXPECT_EQ(send_request(*http, "GET", own).status, 200);
  cloud.api().merge_patch(
      own,
      codec::parse_json(R"({"metadata":{"annotations":{"edgeai.io/revoked":"true"}}})").value());
  ASSERT_TRUE(eventually("the node is shut out",
                         [&] { return send_request(*http, "GET", own).status == 403; }));
  EXPECT_EQ(send_request(*http, "GET",
                         std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0")
                .status,
            403);
  auto other = cloud.transport("edge1");
  EXPECT_EQ(send_request(*other, "GET", std::string(kEdgeNodes) + "/edge1").status, 200);
}

// The whole conversation of an agent, with the informer that agents use.
TEST(Gateway, InformerSeesOnlyChangesOfItsOwnObject) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const kube::Client client(*http, {});
  runtime::Informer::Options options;
  options.resource = kEdgeNode;
  options.filter.field_selector = "metadata.name=edge0";
  options.watch_timeout = std::chrono::seconds(1);
  options.backoff_min = std::chrono::milliseconds(1);
  runtime::Informer informer(client, options);
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> seen;
  informer.on_change([&](const runtime::Change& change) {
    MutexLock lock(mutex);
    seen.push_back((!change.old ? "+" : !change.now ? "-" : "~") + change.key.name);
    changed.notify_all();
  });
  std::jthread thread([&](const std::stop_token& stop) { informer.run(Context(stop)); });
  const auto wait = [&](std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + kTestPatience;
    MutexLock lock(mutex);
    while (seen.size() < count && changed.wait_until(mutex, until)) {
    }
    EXPECT_GE(seen.size(), count) << "the informer tells of that many changes";
    return seen;
  };
  wait(1);
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  cloud.api().merge_patch(own, codec::parse_json(R"({"spec":{"models":[]}})").value());
  wait(2);
  cloud.api().merge_patch(std::string(kEdgeNodes) + "/edge1",
                          codec::parse_json(R"({"metadata":{"labels":{"a":"b"}}})").value());
  cloud.api().remove(own);
  wait(3);
  cloud.api().post(
      kEdgeNodes,
      codec::parse_yaml(
          "{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: edge0}, spec: {}}")
          .value());
  EXPECT_EQ(wait(4), (std::vector<std::string>{"+edge0", "~edge0", "-edge0", "+edge0"}));
  thread.request_stop();
}

TEST(Gateway, WatchEndsAtItsTimeoutWithABookmark) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const auto answer = send_request(
      *http, "GET",
      std::string(kEdgeNodes) +
          "?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dedge0");
  const std::size_t line = answer.body.find('\n');
  EXPECT_TRUE(answer.body.starts_with(R"({"type":"ADDED")")) << answer.body;
  const Json last = codec::parse_json(answer.body.substr(line + 1)).value();
  EXPECT_EQ(last["type"].as_string(), "BOOKMARK");
  EXPECT_EQ(last.at("object/kind").as_string(), "EdgeNode");
  EXPECT_FALSE(last.at("object/metadata/resourceVersion").as_string().empty());
}

TEST(Gateway, WatchTimeoutIsLimitedByTheGateway) {
  Cloud cloud;
  Gateway::Options options;
  options.limits.watch_timeout_max = std::chrono::seconds(1);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  for (const char* timeout : {"", "&timeoutSeconds=3600", "&timeoutSeconds=0"}) {
    const std::string target =
        std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0" + timeout;
    EXPECT_EQ(send_request(*http, "GET", target).body, "");
  }
}

TEST(Gateway, StoppedGatewayEndsWatches) {
  Cloud cloud;
  Gateway::Options options;
  options.limits.watch_timeout_max = std::chrono::hours(1);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  const auto watch =
      http->send(Context::background().with_timeout(std::chrono::minutes(1)),
                 {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0"})
          .value();
  ASSERT_EQ(watch.status, 200);
  cloud.gateway().stop();
  auto piece = watch.body->read();
  while (piece.ok() && *piece) piece = watch.body->read();
  EXPECT_TRUE(piece.ok()) << piece.error();  // the gateway ended it, not the client's timeout
  EXPECT_EQ(send_request(*http, "GET", "/readyz").status, 503);
}

TEST(Gateway, RevocationEndsWatchesOfTheNode) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  Gateway::Options options;
  options.limits.watch_timeout_max = std::chrono::hours(1);
  cloud.start_gateway(std::move(options));
  std::vector<net::ClientResponse> watches;
  std::vector<std::unique_ptr<net::HttpClient>> clients;
  for (const std::string& target :
       {std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0",
        std::string("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dedge0")}) {
    clients.push_back(cloud.transport("edge0"));
    net::ClientResponse watch;
    ASSERT_TRUE(eventually("the pods are read", [&] {
      watch =
          clients.back()
              ->send(Context::background().with_timeout(std::chrono::minutes(1)), {.url = target})
              .value();
      return watch.status != 503;
    }));
    ASSERT_EQ(watch.status, 200);
    watches.push_back(std::move(watch));
  }
  cloud.api().merge_patch(
      std::string(kEdgeNodes) + "/edge0",
      codec::parse_yaml("{metadata: {annotations: {edgeai.io/revoked: 'true'}}}").value());
  for (net::ClientResponse& watch : watches) {
    auto piece = watch.body->read();
    while (piece.ok() && *piece) piece = watch.body->read();
    EXPECT_TRUE(piece.ok()) << piece.error();  // the gateway ended it, not the client's timeout
  }
  EXPECT_EQ(send_request(*clients[0], "GET", std::string(kEdgeNodes) + "/edge0").status, 403);
}

TEST(Gateway, EnrolmentsDoNotDelayNodes) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  std::binary_semaphore working(0), may_finish(0);
  Gateway::Options options;
  options.limits.upstream.threads = 1;
  options.limits.anonymous.threads = 1;
  options.enrolment = [&](const Context&, const net::Request&) {
    working.release();
    may_finish.acquire();
    return net::Response{.status = 418};
  };
  cloud.start_gateway(std::move(options));
  std::jthread anonymous([&] {
    auto http =
        cloud.transport(net::Peer{.address = "10.0.0.7:4711", .certificate_common_name = ""});
    EXPECT_EQ(send_request(*http, "POST", "/gateway/v1/enroll").status, 418);
  });
  EXPECT_TRUE(working.try_acquire_for(kTestPatience)) << "the stranger's request begins";
  auto node = cloud.transport("edge0");
  EXPECT_EQ(send_request(*node, "GET", std::string(kEdgeNodes) + "/edge0").status, 200);
  may_finish.release();
}

TEST(Gateway, ConnectedConditionFromTheNodeIsIgnored) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto node = cloud.transport("edge0");
  const auto answer =
      send_request(*node, "PATCH", std::string(kEdgeNodes) + "/edge0/status",
                   R"({"status": {"agentVersion": "7", "lastSeen": "2024-05-01T10:00:00Z",
                                         "conditions": [{"type": "Connected", "status": "True", "reason": "Mine"}]}})",
                   {{"Content-Type", "application/merge-patch+json"}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json status = cloud.edge_node("edge0")["status"];
  EXPECT_EQ(status["agentVersion"].as_string(), "7");
  EXPECT_TRUE(status["conditions"].is_null() && status["lastSeen"].is_null())
      << codec::write_json(status);
}

/// A transport to an API server that can answer in its place.
class Way final : public net::HttpClient {
 public:
  explicit Way(net::HttpClient& to) : to_(to) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    std::optional<net::Response> instead;
    {
      MutexLock lock(mutex_);
      if (status_ < 0) return Error(Code::kUnavailable, "no route");
      if (status_ > 0) instead = net::Response{.status = status_, .body = body_};
    }
    if (!instead) return to_.send(ctx, std::move(request));
    auto fake_server = net::loopback(net::inline_handler([&](const net::Request&) {
      return net::Response{.status = instead->status,
                           .headers = {{"Content-Type", "text/html"}},
                           .body = instead->body};
    }));
    TRY(Answer answer, fake_server->call(ctx, std::move(request)));
    net::ClientResponse out;
    out.status = answer.status;
    out.headers = answer.headers;
    out.body = std::make_unique<Once>(std::move(answer.body));
    return out;
  }
  /// 0: the server answers. Negative: no connection.
  void answers(int status, std::string body) {
    MutexLock lock(mutex_);
    status_ = status;
    body_ = std::move(body);
  }

 private:
  class Once final : public net::BodyReader {
   public:
    explicit Once(std::string text) : text_(std::move(text)) {}
    Result<std::optional<std::string>> read() override {
      if (text_.empty()) return std::optional<std::string>();
      return std::optional<std::string>(std::exchange(text_, {}));
    }

   private:
    std::string text_;
  };
  net::HttpClient& to_;
  Mutex mutex_;
  int status_ GUARDED_BY(mutex_) = 0;
  std::string body_ GUARDED_BY(mutex_);
};

TEST(Gateway, UpstreamFailureGives429Or5xx) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  Way way(cloud.api().transport());
  const kube::Client client(way, {});
  auto gateway = Gateway::create({.client = &client}).value();
  ASSERT_TRUE(eventually("the gateway is ready", [&] { return gateway->ready(); }));
  auto node = net::loopback(gateway->handler(), peer_of("edge0"));
  const std::string own_object = std::string(kEdgeNodes) + "/edge0";
  struct Case {
    int status;
    const char* body;
  };
  for (const Case& one : {Case{200, "<html>Please log in</html>"},
                          {200, ""},
                          {302, ""},
                          {401, "{}"},
                          {403, "no"},

                          {429, ""},
                          {500, "oops"},
                          {502, "<html>"},
                          {503, ""},
                          {-1, ""}}) {
    SCOPED_TRACE(std::to_string(one.status) + " " + one.body);
    way.answers(one.status, one.body);
    for (const char* method : {"GET", "PATCH"}) {
      const bool patch = method == std::string("PATCH");
      const auto answer = send_request(*node, method, own_object + (patch ? "/status" : ""),
                                       patch ? R"({"status": {"agentVersion": "9"}})" : "",
                                       {{"Content-Type", "application/merge-patch+json"}});
      EXPECT_TRUE(answer.status == 429 || answer.status / 100 == 5)
          << method << " " << answer.status << " " << answer.body;
    }
    // Lists from memory still work.
    EXPECT_EQ(
        send_request(*node, "GET", std::string(kEdgeNodes) + "?fieldSelector=metadata.name%3Dedge0")
            .status,
        200);
  }
  way.answers(0, "");
  EXPECT_EQ(send_request(*node, "GET", own_object).status, 200);
  gateway->stop();
}

TEST(Gateway, OnePodListServesAllNodes) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  metrics::Registry registry;
  Gateway::Options options;
  options.metrics = &registry;
  cloud.start_gateway(std::move(options));
  for (int i = 0; i < 20; ++i) {
    auto http = cloud.transport("edge" + std::to_string(i % 2));
    const std::string target =
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge" + std::to_string(i % 2);
    net::HttpClient::Answer answer;
    ASSERT_TRUE(eventually("the pods are read", [&] {
      answer = send_request(*http, "GET", target);
      return answer.status != 503;
    }));
    const Json list = codec::parse_json(answer.body).value();
    ASSERT_EQ(list["items"].size(), i % 2 == 0 ? 2u : 1u);
    EXPECT_EQ(list["items"].as_array()[0].at("metadata/name").as_string(),
              i % 2 == 0 ? "mine" : "theirs");
  }
  const std::string text = registry.text();
  EXPECT_NE(text.find("varda_informer_lists_total{resource=\"pods\"} 1\n"), std::string::npos)
      << text;
  cloud.stop_gateway();
  // A scrape may come between the end of the gateway and the end of its process.
  EXPECT_NE(registry.text().find("varda_gateway_nodes_connected 0\n"), std::string::npos);
}

TEST(Gateway, NodeStaysConnectedAcrossShortWatchGaps) {
  Cloud cloud;
  RecordingSessions recorded;
  Gateway::Options options;
  options.sessions = &recorded;
  options.limits.session_linger = std::chrono::hours(1);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  for (int i = 0; i < 3; ++i) {
    std::stop_source stop;
    auto watch = http->send(
        Context(stop.get_token()),
        {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0"});
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ(watch->status, 200);
  }
  EXPECT_EQ(recorded.reported(1), "+edge0");
}

TEST(Gateway, SessionClosesWhenNodeHasNoWatch) {
  Cloud cloud;
  RecordingSessions recorded;
  Gateway::Options options;
  options.sessions = &recorded;
  options.limits.session_linger = std::chrono::milliseconds(1);
  cloud.start_gateway(std::move(options));
  for (const std::string node : {"edge0", "edge1"}) {
    auto http = cloud.transport(node);
    auto watch = http->send(
        Context::background(),
        {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3D" + node});
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ(watch->status, 200);
    watch->body.reset();
    recorded.reported(node == "edge0" ? 2 : 4);
  }
  EXPECT_EQ(recorded.reported(4), "+edge0 -edge0 +edge1 -edge1");
}

TEST(Gateway, WatchesPerNodeAreLimited) {
  Cloud cloud;
  Gateway::Options options;
  options.limits.watches_per_node_max = 2;
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  auto other = cloud.transport("edge1");
  const auto watch = [](net::HttpClient& client, const std::string& node) {
    return client
        .send(Context::background(),
              {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3D" + node})
        .value();
  };
  const auto first = watch(*http, "edge0"), second = watch(*http, "edge0");
  const auto third = watch(*http, "edge0");
  EXPECT_EQ(third.status, 429);
  EXPECT_TRUE(third.headers.find("Retry-After"));
  EXPECT_EQ(watch(*other, "edge1").status, 200);
}

}  // namespace gateway_test
}  // namespace varda::gateway
