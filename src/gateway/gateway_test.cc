// The gateway over the real API server in memory.
#include "gateway/gateway.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include "codec/yaml.h"
#include "gateway/testing/cloud.h"
#include "kube/client.h"
#include "runtime/informer.h"

namespace varda::gateway {
namespace {

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

net::HttpClient::Answer ask(net::HttpClient& http, std::string method, std::string target, std::string body = "",
                            net::Headers headers = {}) {
  return http
      .call(Context::background().with_timeout(std::chrono::seconds(60)),
            {.method = std::move(method), .url = std::move(target), .headers = std::move(headers), .body = std::move(body)})
      .value();
}

/// Sessions that remember.
class Heard final : public Sessions {
 public:
  void opened(const std::string& node) override { add("+" + node); }
  void closed(const std::string& node) override { add("-" + node); }
  /// Waits until that many were told, and gives them as "+a -a".
  std::string told(std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (told_.size() < count && changed_.wait_until(mutex_, until)) {
    }
    std::string out;
    for (const std::string& text : told_) out += (out.empty() ? "" : " ") + text;
    return out;
  }

 private:
  void add(std::string text) {
    MutexLock lock(mutex_);
    told_.push_back(std::move(text));
    changed_.notify_all();
  }
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> told_ GUARDED_BY(mutex_);
};

TEST(Gateway, ServesEachNodeWhatTheTableSaysAndNothingElse) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  // The pods are read once somebody asks for them.
  auto first = cloud.transport("edge0");
  while (ask(*first, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge0").status == 503) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Json others = cloud.edge_node("edge1");
  const Json cases = codec::parse_json(read_file("requests.json")).value();
  for (const Json& one : cases.as_array()) {
    SCOPED_TRACE(one["name"].as_string());
    auto http = cloud.transport(one["node"].string_or("edge0"));
    net::Headers headers;
    for (const auto& [name, value] : one["headers"].as_object()) headers.add(name, value.as_string());
    std::string body = one["raw"].as_string();
    if (one.contains("body")) body = codec::write_json(one["body"]);
    const std::string& method = one["method"].as_string();
    if (one.contains("type")) {
      headers.add("Content-Type", one["type"].as_string());
    } else if (method == "POST" || method == "PUT") {
      headers.add("Content-Type", "application/json");
    }
    const auto answer = ask(*http, method, one["target"].as_string(), body, headers);
    EXPECT_EQ(answer.status, one["status"].as_integer()) << answer.body;
    if (one.contains("says")) {
      // Messages as they read, not as JSON writes their quotes.
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

TEST(Gateway, WithoutANodesCertificateOnlyHealthIsTold) {
  Cloud cloud;
  cloud.start_gateway();
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  struct Case {
    const char* name;
    net::Peer peer;
    int status;
  };
  net::Peer expired = peer_of("edge0"), ended = peer_of("edge0"), other = peer_of("edge0"), two = peer_of("edge0");
  expired.certificate_expired = true;
  ended.certificate_not_after = std::chrono::system_clock::now() - std::chrono::seconds(1);
  other.certificate_organizations = {"system:masters"};
  two.certificate_organizations.push_back("system:masters");
  for (const Case& one : {Case{"none", {.address = "198.51.100.7:1", .certificate_common_name = ""}, 401},
                          Case{"expired before", expired, 401}, Case{"ended since", ended, 401}, Case{"of another", other, 403},
                          Case{"of two", two, 403}, Case{"a name that is none", peer_of("../edge0"), 403}}) {
    SCOPED_TRACE(one.name);
    auto http = cloud.transport(one.peer);
    EXPECT_EQ(ask(*http, "GET", own).status, one.status);
    EXPECT_EQ(ask(*http, "GET", std::string(kEdgeNodes) + "?watch=1").status, one.status);
    EXPECT_EQ(ask(*http, "GET", "/healthz").status, 200);
    EXPECT_EQ(ask(*http, "GET", "/readyz").body, "ok");
    EXPECT_EQ(ask(*http, "GET", "/metrics").status, one.status);
  }
}

TEST(Gateway, AHugeStatusIsRefusedBeforeAnybodyReadsIt) {
  Cloud cloud;
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const auto answer = ask(*http, "PATCH", std::string(kEdgeNodes) + "/edge0/status", std::string((1u << 20) + 1, ' '),
                          {{"Content-Type", "application/merge-patch+json"}});
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(codec::parse_json(answer.body).value()["reason"].as_string(), "RequestEntityTooLarge");
}

TEST(Gateway, ANodeThatWasShutOutGetsNothing) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  EXPECT_EQ(ask(*http, "GET", own).status, 200);
  cloud.api().merge_patch(own, codec::parse_json(R"({"metadata":{"annotations":{"edgeai.io/revoked":"true"}}})").value());
  while (ask(*http, "GET", own).status != 403) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ask(*http, "GET", std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0").status, 403);
  auto other = cloud.transport("edge1");
  EXPECT_EQ(ask(*other, "GET", std::string(kEdgeNodes) + "/edge1").status, 200);
}

// The whole conversation of an agent, with the informer that agents use.
TEST(Gateway, AnInformerThroughItSeesItsOwnObjectComeChangeAndGo) {
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
    MutexLock lock(mutex);
    while (seen.size() < count) changed.wait(mutex);
    return seen;
  };
  wait(1);
  const std::string own = std::string(kEdgeNodes) + "/edge0";
  cloud.api().merge_patch(own, codec::parse_json(R"({"spec":{"models":[]}})").value());
  wait(2);
  cloud.api().merge_patch(std::string(kEdgeNodes) + "/edge1", codec::parse_json(R"({"metadata":{"labels":{"a":"b"}}})").value());
  cloud.api().remove(own);
  wait(3);
  cloud.api().post(
      kEdgeNodes, codec::parse_yaml("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: edge0}, spec: {}}").value());
  EXPECT_EQ(wait(4), (std::vector<std::string>{"+edge0", "~edge0", "-edge0", "+edge0"}));
  thread.request_stop();
}

TEST(Gateway, AWatchEndsInItsTimeAndItsLastWordIsABookmark) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  const auto answer =
      ask(*http, "GET",
          std::string(kEdgeNodes) + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dedge0");
  const std::size_t line = answer.body.find('\n');
  EXPECT_TRUE(answer.body.starts_with(R"({"type":"ADDED")")) << answer.body;
  const Json last = codec::parse_json(answer.body.substr(line + 1)).value();
  EXPECT_EQ(last["type"].as_string(), "BOOKMARK");
  EXPECT_EQ(last.at("object/kind").as_string(), "EdgeNode");
  EXPECT_FALSE(last.at("object/metadata/resourceVersion").as_string().empty());
}

TEST(Gateway, AWatchThatAsksForAnHourEndsWhenTheGatewaySaysSo) {
  Cloud cloud;
  Gateway::Options options;
  options.limits.watch_timeout_max = std::chrono::seconds(1);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  for (const char* timeout : {"", "&timeoutSeconds=3600", "&timeoutSeconds=0"}) {
    const std::string target = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0" + timeout;
    EXPECT_EQ(ask(*http, "GET", target).body, "");
  }
}

TEST(Gateway, WatchesOfAStoppedGatewayEnd) {
  Cloud cloud;
  cloud.start_gateway();
  auto http = cloud.transport("edge0");
  std::jthread watching([&] {
    const auto answer = ask(*http, "GET", std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0");
    EXPECT_EQ(answer.status, 200);
  });
  cloud.gateway().stop();
  watching.join();
  EXPECT_EQ(ask(*http, "GET", "/readyz").status, 503);
}

TEST(Gateway, OnePodWatchUpstreamHoweverManyNodesAsk) {
  Cloud cloud;
  cloud.apply(read_file("world.yaml"));
  metrics::Registry registry;
  Gateway::Options options;
  options.metrics = &registry;
  cloud.start_gateway(std::move(options));
  for (int i = 0; i < 20; ++i) {
    auto http = cloud.transport("edge" + std::to_string(i % 2));
    const std::string target = "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge" + std::to_string(i % 2);
    auto answer = ask(*http, "GET", target);
    while (answer.status == 503) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      answer = ask(*http, "GET", target);
    }
    const Json list = codec::parse_json(answer.body).value();
    ASSERT_EQ(list["items"].size(), 1u);
    EXPECT_EQ(list["items"].as_array()[0].at("metadata/name").as_string(), i % 2 == 0 ? "mine" : "theirs");
  }
  const std::string text = registry.text();
  EXPECT_NE(text.find("varda_informer_lists_total{resource=\"pods\"} 1\n"), std::string::npos) << text;
  cloud.stop_gateway();
}

TEST(Gateway, ANodeThatLetsGoOfItsWatchForAMomentStaysConnected) {
  Cloud cloud;
  Heard heard;
  Gateway::Options options;
  options.sessions = &heard;
  options.limits.session_linger = std::chrono::hours(1);
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  for (int i = 0; i < 3; ++i) {
    std::stop_source stop;
    auto watch =
        http->send(Context(stop.get_token()), {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3Dedge0"});
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ(watch->status, 200);
  }
  EXPECT_EQ(heard.told(1), "+edge0");
}

TEST(Gateway, ANodeWithoutAWatchIsToldClosed) {
  Cloud cloud;
  Heard heard;
  Gateway::Options options;
  options.sessions = &heard;
  options.limits.session_linger = std::chrono::milliseconds(1);
  cloud.start_gateway(std::move(options));
  for (const std::string node : {"edge0", "edge1"}) {
    auto http = cloud.transport(node);
    auto watch =
        http->send(Context::background(), {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3D" + node});
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ(watch->status, 200);
    watch->body.reset();
    heard.told(node == "edge0" ? 2 : 4);
  }
  EXPECT_EQ(heard.told(4), "+edge0 -edge0 +edge1 -edge1");
}

TEST(Gateway, OneNodeHoldsSoManyWatchesAndNoMore) {
  Cloud cloud;
  Gateway::Options options;
  options.limits.watches_per_node_max = 2;
  cloud.start_gateway(std::move(options));
  auto http = cloud.transport("edge0");
  auto other = cloud.transport("edge1");
  const auto watch = [](net::HttpClient& client, const std::string& node) {
    return client.send(Context::background(), {.url = std::string(kEdgeNodes) + "?watch=1&fieldSelector=metadata.name%3D" + node})
        .value();
  };
  const auto first = watch(*http, "edge0"), second = watch(*http, "edge0");
  const auto third = watch(*http, "edge0");
  EXPECT_EQ(third.status, 429);
  EXPECT_TRUE(third.headers.find("Retry-After"));
  EXPECT_EQ(watch(*other, "edge1").status, 200);
}

}  // namespace
}  // namespace varda::gateway
