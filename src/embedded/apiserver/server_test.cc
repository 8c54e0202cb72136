#include "apiserver/server.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>

#include "apiserver/testing/in_memory.h"

namespace varda::apiserver {
namespace {

using codec::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfigMaps = "/api/v1/namespaces/default/configmaps";

Json config_map(std::string name, std::string value = "v") {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", Json::object({{"name", std::move(name)}})},
                       {"data", Json::object({{"k", std::move(value)}})}});
}

Json pod(std::string name, std::string node) {
  Json spec = Json::object(
      {{"containers", Json::array({Json::object({{"name", "c"}, {"image", "varda-serve"}})})}});
  if (!node.empty()) spec.set("nodeName", node);
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata", Json::object({{"name", std::move(name)}})},
                       {"spec", std::move(spec)}});
}

Json node_port_service(std::string name) {
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Service"},
       {"metadata", Json::object({{"name", std::move(name)}})},
       {"spec", Json::object({{"type", "NodePort"},
                              {"selector", Json::object({{"app", "x"}})},
                              {"ports", Json::array({Json::object({{"port", 80}})})}})}});
}

constexpr const char* kCrd = R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.io}
spec:
  group: test.io
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, default: 3}}}
          status: {type: object, properties: {seen: {type: integer}}}
    subresources: {status: {}}
)";
constexpr const char* kThings = "/apis/test.io/v1/namespaces/default/things";

Json thing(std::string name) {
  return Json::object({{"apiVersion", "test.io/v1"},
                       {"kind", "Thing"},
                       {"metadata", Json::object({{"name", std::move(name)}})},
                       {"spec", Json::object()}});
}

/// Lines of a watch, read on the caller's thread.
class Events {
 public:
  Events(net::HttpClient& client, std::string target,
         std::chrono::seconds timeout = std::chrono::seconds(60))
      : ctx_(Context::background().with_timeout(timeout)) {
    net::ClientRequest request;
    request.url = std::move(target);
    auto sent = client.send(ctx_, std::move(request));
    response_ = std::move(sent).value();
  }
  int status() const { return response_.status; }
  /// The next event; null at the end of the stream or at the timeout.
  Json next() {
    for (;;) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        Json event = codec::parse_json(buffer_.substr(0, end)).value();
        buffer_.erase(0, end + 1);
        return event;
      }
      auto more = response_.body->read();
      ended_ = more.ok() && !more->has_value();
      if (!more.ok() || !more->has_value()) return nullptr;
      buffer_ += **more;
    }
  }
  /// True if the server ended the stream, without an error or a client timeout.
  bool ended() const { return ended_; }
  std::string line() {
    const Json event = next();
    return event["type"].as_string() + " " + event.at("object/metadata/name").as_string();
  }

 private:
  Context ctx_;
  net::ClientResponse response_;
  std::string buffer_;
  bool ended_ = false;
};

TEST(ApiServer, ObjectsAreCreatedPatchedAndDeleted) {
  InMemoryApiServer api;
  const auto made = api.post(kConfigMaps, config_map("a"));
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_FALSE(made.body.at("metadata/uid").as_string().empty());
  const auto patched = api.merge_patch(std::string(kConfigMaps) + "/a",
                                       Json::object({{"data", Json::object({{"k", "w"}})}}));
  EXPECT_EQ(patched.body.at("data/k").as_string(), "w");
  EXPECT_EQ(api.put(std::string(kConfigMaps) + "/a", made.body).status, 409)
      << "an old resourceVersion must not win";
  EXPECT_EQ(api.remove(std::string(kConfigMaps) + "/a").status, 200);
  EXPECT_EQ(api.get(std::string(kConfigMaps) + "/a").status, 404);
}

TEST(ApiServer, UnchangedWriteCausesNoRevision) {
  InMemoryApiServer api;
  const auto made = api.post(kConfigMaps, config_map("a"));
  api.settle();
  const store::Revision before = api.store().revision();
  EXPECT_EQ(api.put(std::string(kConfigMaps) + "/a", made.body).status, 200);
  EXPECT_EQ(api.merge_patch(std::string(kConfigMaps) + "/a",
                            Json::object({{"data", Json::object({{"k", "v"}})}}))
                .status,
            200);
  EXPECT_EQ(api.store().revision(), before);
}

TEST(ApiServer, IdleServerWritesNothing) {
  InMemoryApiServer api;
  api.install_crds(kCrd);
  api.settle();
  const store::Revision before = api.store().revision();
  api.settle();
  EXPECT_EQ(api.store().revision(), before);
}

TEST(ApiServer, ConcurrentPatchesOfOneObjectAreAllApplied) {
  InMemoryApiServer api;
  api.post(kConfigMaps, config_map("a"));
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 25; ++i) {
        const std::string key = "w" + std::to_string(w) + "-" + std::to_string(i);
        const auto reply = api.merge_patch(std::string(kConfigMaps) + "/a",
                                           Json::object({{"data", Json::object({{key, "x"}})}}));
        EXPECT_EQ(reply.status, 200) << reply.text;
      }
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(api.get(std::string(kConfigMaps) + "/a").body["data"].size(), 101u);
}

TEST(ApiServer, WatchFromAListMissesNothingWhileOthersWrite) {
  InMemoryApiServer api;
  std::atomic<bool> go{true};
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      api.post(kConfigMaps, config_map("n" + std::to_string(i)));
      if (i % 3 == 0) api.remove(std::string(kConfigMaps) + "/n" + std::to_string(i));
    }
    go = false;
  });
  const Json list = api.get(kConfigMaps).body;
  std::set<std::string> seen;
  for (const Json& item : list["items"].as_array())
    seen.insert(item.at("metadata/name").as_string());
  Events events(api.transport(), std::string(kConfigMaps) + "?watch=1&resourceVersion=" +
                                     list.at("metadata/resourceVersion").as_string());
  writer.join();
  api.post(kConfigMaps, config_map("last"));
  std::int64_t revision = 0;
  for (;;) {
    const Json event = events.next();
    ASSERT_FALSE(event.is_null());
    const std::string& name = event.at("object/metadata/name").as_string();
    const std::int64_t at = std::stoll(event.at("object/metadata/resourceVersion").as_string());
    EXPECT_GT(at, revision) << "in the order of revisions";
    revision = at;
    if (event["type"].as_string() == "DELETED") {
      EXPECT_EQ(seen.erase(name), 1u) << name;
    } else {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
    if (name == "last") break;
  }
  std::set<std::string> listed;
  const Json now = api.get(kConfigMaps).body;
  for (const Json& item : now["items"].as_array())
    listed.insert(item.at("metadata/name").as_string());
  EXPECT_EQ(seen, listed);
}

TEST(ApiServer, WatchWithSelectorReportsEnteringAndLeavingObjects) {
  InMemoryApiServer api;
  api.post(kConfigMaps, config_map("a"));
  const std::string path = std::string(kConfigMaps) + "/a";
  Events events(api.transport(), std::string(kConfigMaps) + "?watch=1&labelSelector=on%3Dyes");
  const auto label = [&](const char* value) {
    api.merge_patch(
        path,
        Json::object({{"metadata", Json::object({{"labels", Json::object({{"on", value}})}})}}));
  };
  label("yes");
  EXPECT_EQ(events.line(), "ADDED a");
  label("no");
  const Json left = events.next();
  EXPECT_EQ(left["type"].as_string(), "DELETED");
  EXPECT_EQ(left.at("object/metadata/labels/on").as_string(), "yes")
      << "as it was when it still matched";
}

TEST(ApiServer, WatchEndsWhenTheServerStops) {
  InMemoryApiServer api;
  Events events(api.transport(), std::string(kConfigMaps) + "?watch=1");
  api.post(kConfigMaps, config_map("a"));
  EXPECT_EQ(events.line(), "ADDED a");
  std::thread stopper([&] { api.server().stop(); });
  EXPECT_TRUE(events.next().is_null());
  EXPECT_TRUE(events.ended());
  stopper.join();
}

TEST(ApiServer, TooManyWatchesAreRefused) {
  InMemoryApiServer::Options options;
  options.server.limits.watches_max = 1;
  InMemoryApiServer api(std::move(options));
  const Events first(api.transport(), std::string(kConfigMaps) + "?watch=1");
  EXPECT_EQ(first.status(), 200);
  const Events second(api.transport(), std::string(kConfigMaps) + "?watch=1");
  EXPECT_EQ(second.status(), 429);
}

TEST(ApiServer, SlowWatcherGetsExpiredError) {
  InMemoryApiServer::Options options;
  options.store.watch_queue_events_max = 16;
  InMemoryApiServer api(std::move(options));
  Events events(api.transport(), std::string(kConfigMaps) + "?watch=1");
  for (int i = 0; i < 200; ++i) api.post(kConfigMaps, config_map("n" + std::to_string(i)));
  Json last;
  for (Json event = events.next(); !event.is_null(); event = events.next()) last = event;
  EXPECT_EQ(last["type"].as_string(), "ERROR");
  EXPECT_EQ(last.at("object/code").as_integer(), 410);
}

TEST(ApiServer, ObjectAboveTheSizeLimitIsRefused) {
  InMemoryApiServer::Options options;
  options.server.limits.object_bytes_max = 2000;
  InMemoryApiServer api(std::move(options));
  EXPECT_EQ(api.post(kConfigMaps, config_map("a", std::string(1000, 'x'))).status, 201);
  const auto large = api.post(kConfigMaps, config_map("b", std::string(2000, 'x')));
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.text.find("Request entity too large: limit is 2000"), std::string::npos)
      << large.text;
}

TEST(ApiServer, OversizedAndDeepBodiesAreRefused) {
  InMemoryApiServer api;
  const auto large = api.post(kConfigMaps, config_map("big", std::string(4u << 20, 'x')));
  EXPECT_EQ(large.status, 413) << large.text.substr(0, 200);
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::object({{"a", std::move(deep)}});
  Json object = config_map("deep");
  object.set("data", std::move(deep));
  EXPECT_EQ(api.post(kConfigMaps, object).status, 400);
  // A tree of 60 MB would come of these 600 KB.
  Json many = config_map("many");
  many.set("data", Json(Json::Array(300'000, Json(1))));
  const auto refused = api.post(kConfigMaps, many);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.text.find("more than 250000 values"), std::string::npos)
      << refused.text.substr(0, 200);
}

TEST(ApiServer, EveryServedKindIsInTheOpenApiDocument) {
  InMemoryApiServer api;
  api.install_crds(kCrd);
  const Json index = api.get("/openapi/v3").body;
  std::set<std::string> described;
  for (const auto& [name, link] : index["paths"].as_object()) {
    const auto document = api.get(link["serverRelativeURL"].as_string());
    ASSERT_EQ(document.status, 200) << name;
    for (const auto& [component, schema] : document.body.at("components/schemas").as_object()) {
      for (const Json& gvk : schema["x-kubernetes-group-version-kind"].as_array()) {
        const std::string& group = gvk["group"].as_string();
        described.insert((group.empty() ? "" : group + "/") + gvk["version"].as_string() + " " +
                         gvk["kind"].as_string());
      }
    }
  }
  std::vector<std::string> versions = {"/api/v1"};
  const Json groups = api.get("/apis").body;
  for (const Json& group : groups["groups"].as_array()) {
    for (const Json& version : group["versions"].as_array())
      versions.push_back("/apis/" + version["groupVersion"].as_string());
  }
  std::size_t kinds = 0;
  for (const std::string& version : versions) {
    const Json list = api.get(version).body;
    for (const Json& resource : list["resources"].as_array()) {
      if (resource["name"].as_string().find('/') != std::string::npos) continue;
      ++kinds;
      EXPECT_TRUE(
          described.contains(list["groupVersion"].as_string() + " " + resource["kind"].as_string()))
          << list["groupVersion"].as_string() << " " << resource["kind"].as_string();
    }
  }
  EXPECT_GE(kinds, 19u);
}

// Large objects use an index of members; results are the same as for small ones.
TEST(ApiServer, LargeObjectsAreReplacedAndPatched) {
  InMemoryApiServer api;
  constexpr int kMembers = 10'000;
  Json object = config_map("a");
  Json::Object& data = object["data"].object_members();
  data.clear();
  for (int i = 0; i < kMembers; ++i) data.emplace_back("k" + std::to_string(i), "");
  ASSERT_EQ(api.post(kConfigMaps, object).status, 201);
  const std::string path = std::string(kConfigMaps) + "/a";
  std::reverse(data.begin(), data.end());
  EXPECT_EQ(api.put(path, object).status, 200);
  Json patch = Json::object({{"data", object["data"]}});
  for (auto& [name, value] : patch["data"].object_members()) value = "x";
  EXPECT_EQ(api.call("PATCH", path, patch, "application/strategic-merge-patch+json").status, 200);
  for (auto& [name, value] : patch["data"].object_members()) value = nullptr;
  EXPECT_EQ(api.merge_patch(path, patch).status, 200);
  EXPECT_TRUE(api.get(path).body["data"].is_null());
  for (int i = 0; i < kMembers; ++i)
    object["metadata"].object_members().emplace_back("k" + std::to_string(i), 1);
  EXPECT_EQ(api.put(path, object).status, 200);
}

TEST(ApiServer, WarningHeadersAreBounded) {
  InMemoryApiServer api;
  Json object = config_map("a");
  const std::string long_word(300, 'x');
  for (int i = 0; i < 1'000; ++i) object.set("xxx" + std::to_string(i) + long_word, 1);
  net::ClientRequest request;
  request.method = "POST";
  request.url = kConfigMaps;
  request.headers.add("Content-Type", "application/json");
  request.body = codec::write_json(object);
  const auto answer = api.transport().call(Context::background(), std::move(request)).value();
  EXPECT_EQ(answer.status, 201);
  std::size_t count = 0;
  for (const auto& [name, value] : answer.headers.all()) {
    if (name != "Warning") continue;
    ++count;
    EXPECT_TRUE(value.starts_with("299 - \"unknown field \\\"xxx")) << value;
    EXPECT_LT(value.size(), 300u);
  }
  EXPECT_EQ(count, 4096u / 256);
}

/// Returns 0 for the next repeat() numbers, then random ones.
class RepeatingRng : public Rng {
 public:
  std::uint64_t next() override { return left_ > 0 ? (--left_, 0) : rng_->next(); }
  void repeat(int numbers) { left_ = numbers; }

 private:
  std::atomic<int> left_{0};
  std::unique_ptr<Rng> rng_ = seeded_rng(1);
};

TEST(ApiServer, TakenGeneratedNameIsRetriedThenRefused) {
  RepeatingRng rng;
  InMemoryApiServer::Options options;
  options.server.rng = &rng;
  options.server.controllers = false;
  InMemoryApiServer api(std::move(options));
  const Json wanted = codec::parse_json(R"({"metadata":{"generateName":"a-"}})").value();
  rng.repeat(1'000);
  const auto first = api.post(kConfigMaps, wanted);
  ASSERT_EQ(first.status, 201) << first.text;
  const auto taken = api.post(kConfigMaps, wanted);
  EXPECT_EQ(taken.status, 409);
  EXPECT_EQ(
      taken.body["message"].as_string(),
      "configmaps \"" + first.body.at("metadata/name").as_string() +
          "\" already exists, the server was not able to generate a unique name for the object");
  EXPECT_EQ(taken.body.at("details/retryAfterSeconds").as_integer(), 1);
  rng.repeat(3 * 7);  // a name and a uid take seven numbers
  const auto second = api.post(kConfigMaps, wanted);
  EXPECT_EQ(second.status, 201) << second.text;
}

TEST(ApiServer, FutureResourceVersionTimesOut) {
  InMemoryApiServer api;
  for (const char* version :
       {"99999999", "9223372036854775807", "9223372036854775808", "18446744073709551615"}) {
    const std::string path = std::string(kConfigMaps) + "?resourceVersion=" + version;
    EXPECT_EQ(api.get(path).status, 504) << version;
    EXPECT_EQ(api.get(path + "&resourceVersionMatch=Exact").status, 504) << version;
  }
}

TEST(ApiServer, NodePortsAndClusterIpsAreUnique) {
  InMemoryApiServer api;
  std::mutex mutex;
  std::set<std::int64_t> ports;
  std::set<std::string> addresses;
  std::vector<std::thread> makers;
  for (int m = 0; m < 4; ++m) {
    makers.emplace_back([&, m] {
      for (int i = 0; i < 10; ++i) {
        const auto made =
            api.post("/api/v1/namespaces/default/services",
                     node_port_service("s" + std::to_string(m) + "-" + std::to_string(i)));
        ASSERT_EQ(made.status, 201) << made.text;
        const std::lock_guard lock(mutex);
        ports.insert(made.body.at("spec/ports/0/nodePort").as_integer());
        addresses.insert(made.body.at("spec/clusterIP").as_string());
      }
    });
  }
  for (auto& maker : makers) maker.join();
  EXPECT_EQ(ports.size(), 40u);
  EXPECT_EQ(addresses.size(), 40u);
  EXPECT_GE(*ports.begin(), 30000);
  EXPECT_LE(*ports.rbegin(), 32767);
}

TEST(ApiServer, ServiceKeepsItsPortsThroughUpdates) {
  InMemoryApiServer api;
  const std::string path = "/api/v1/namespaces/default/services";
  const auto made = api.post(path, node_port_service("s"));
  const auto replaced = api.put(path + "/s", node_port_service("s"));
  ASSERT_EQ(replaced.status, 200) << replaced.text;
  EXPECT_EQ(replaced.body["spec"], made.body["spec"]);
}

TEST(ApiServer, DependentsAreDeletedWithTheirOwner) {
  InMemoryApiServer api;
  api.install_crds(kCrd);
  const auto owner = api.post(kThings, thing("owner"));
  Json child = config_map("child");
  child["metadata"].set("ownerReferences",
                        Json::array({Json::object({{"apiVersion", "test.io/v1"},
                                                   {"kind", "Thing"},
                                                   {"name", "owner"},
                                                   {"uid", owner.body.at("metadata/uid")}})}));
  ASSERT_EQ(api.post(kConfigMaps, child).status, 201);
  api.post(kConfigMaps, config_map("free"));
  api.settle();
  EXPECT_EQ(api.get(std::string(kConfigMaps) + "/child").status, 200);
  EXPECT_EQ(api.remove(std::string(kThings) + "/owner").status, 200);
  api.settle();
  EXPECT_EQ(api.get(std::string(kConfigMaps) + "/child").status, 404);
  EXPECT_EQ(api.get(std::string(kConfigMaps) + "/free").status, 200);
}

TEST(ApiServer, DeletedNamespaceLeavesNothingDespiteRacingCreators) {
  InMemoryApiServer api;
  api.post("/api/v1/namespaces", Json::object({{"apiVersion", "v1"},
                                               {"kind", "Namespace"},
                                               {"metadata", Json::object({{"name", "ns"}})}}));
  std::atomic<bool> going{true};
  std::vector<std::thread> makers;
  for (int m = 0; m < 3; ++m) {
    makers.emplace_back([&, m] {
      for (int i = 0; going; ++i) {
        const auto reply = api.post("/api/v1/namespaces/ns/configmaps",
                                    config_map("c" + std::to_string(m) + "-" + std::to_string(i)));
        EXPECT_TRUE(reply.status == 201 || reply.status == 403 || reply.status == 404)
            << reply.text;
        if (reply.status == 404) return;
      }
    });
  }
  EXPECT_EQ(api.remove("/api/v1/namespaces/ns").status, 200);
  for (int i = 0; i < 2000 && api.get("/api/v1/namespaces/ns").status != 404; ++i) api.settle();
  EXPECT_EQ(api.get("/api/v1/namespaces/ns").status, 404);
  going = false;
  for (auto& maker : makers) maker.join();
  EXPECT_TRUE(
      api.store().list({.prefix = "/registry/core/configmaps/ns/"}).value().entries.empty());
}

TEST(ApiServer, EveryNamespaceGetsItsServiceAccount) {
  InMemoryApiServer api;
  api.settle();
  EXPECT_EQ(api.get("/api/v1/namespaces/default/serviceaccounts/default").status, 200);
  EXPECT_EQ(api.remove("/api/v1/namespaces/default/serviceaccounts/default").status, 200);
  api.settle();
  EXPECT_EQ(api.get("/api/v1/namespaces/default/serviceaccounts/default").status, 200);
}

TEST(ApiServer, OldEventsAreDeleted) {
  InMemoryApiServer::Options options;
  options.server.limits.events_max = 10;
  InMemoryApiServer api(std::move(options));
  const auto post_event = [&](const std::string& name, const std::string& when) {
    const std::string text = R"({"metadata":{"name":")" + name +
                             R"("},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"},
      "reason":"R","message":"m","type":"Normal","lastTimestamp":")" +
                             when + R"("})";
    EXPECT_EQ(api.post("/api/v1/namespaces/default/events", codec::parse_json(text).value()).status,
              201);
  };
  post_event("old", "2001-01-01T00:00:00Z");
  post_event("new", meta::format_time(system_clock().wall()));
  for (int i = 0; i < 600; ++i)
    post_event("n" + std::to_string(i), meta::format_time(system_clock().wall()));
  api.settle();
  EXPECT_EQ(api.get("/api/v1/namespaces/default/events/old").status, 404);
  EXPECT_LE(api.get("/api/v1/namespaces/default/events").body["items"].size(), 600u);
}

// A restart reads events in the order of names, which is unrelated to age.
TEST(ApiServer, OldestEventsAreDeletedAfterRestart) {
  InMemoryApiServer::Options options;
  options.server.controllers = false;
  InMemoryApiServer api(std::move(options));
  constexpr int kMade = 40;
  const auto name = [](int i) { return "e" + std::to_string(99 - i); };
  for (int i = 0; i < kMade; ++i) {
    const auto event = codec::parse_json(R"({"metadata":{"name":")" + name(i) + R"("},
      "involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"reason":"R","message":"m","type":"Normal"})");
    EXPECT_EQ(api.post("/api/v1/namespaces/default/events", *event).status, 201);
  }
  Server::Options again;
  again.store = &api.store();
  again.limits.events_max = 10;
  const auto server = Server::create(std::move(again)).value();
  ASSERT_TRUE(server->settle(Context::background().with_timeout(std::chrono::seconds(60))));
  std::set<std::string> left;
  for (const Json& event : api.get("/api/v1/namespaces/default/events").body["items"].as_array())
    left.insert(event.at("metadata/name").as_string());
  std::set<std::string> latest;
  for (int i = kMade - 10; i < kMade; ++i) latest.insert(name(i));
  EXPECT_EQ(left, latest);
  server->stop();
}

TEST(ApiServer, RequestsAreCounted) {
  metrics::Registry metrics;
  InMemoryApiServer::Options options;
  options.server.metrics = &metrics;
  InMemoryApiServer api(std::move(options));
  api.get("/api/v1/namespaces/default/pods/nope");
  api.call("FROB", "/x");
  EXPECT_THAT(api.get("/metrics").text,
              HasSubstr(R"(apiserver_request_total{verb="GET",code="404"} 1)"));
  EXPECT_THAT(api.get("/metrics").text, ::testing::Not(HasSubstr("FROB")));
}

TEST(ApiServer, CustomResourceGetsDefaultsAndSeparateStatus) {
  InMemoryApiServer api;
  api.install_crds(kCrd);
  Json object = thing("a");
  object.set("status", Json::object({{"seen", 1}}));
  const auto made = api.post(kThings, object);
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(made.body.at("spec/size").as_integer(), 3);
  EXPECT_TRUE(made.body["status"].is_null());
  const auto seen = api.merge_patch(std::string(kThings) + "/a/status",
                                    Json::object({{"status", Json::object({{"seen", 2}})}}));
  EXPECT_EQ(seen.body.at("status/seen").as_integer(), 2);
  EXPECT_EQ(seen.body.at("metadata/generation").as_integer(), 1);
}

TEST(ApiServer, NativeRulesRefuseInvalidObject) {
  InMemoryApiServer::Options options;
  options.server.rules[{"test.io", "Thing"}] = [](const Json&, const Json& object) {
    std::vector<StatusCause> causes;
    if (object.at("spec/size").as_integer() > 9)
      causes.push_back({"FieldValueInvalid", "Invalid value: too large", "spec.size"});
    return causes;
  };
  InMemoryApiServer api(std::move(options));
  api.install_crds(kCrd);
  Json object = thing("a");
  object["spec"].set("size", 10);
  const auto refused = api.post(kThings, object);
  EXPECT_EQ(refused.status, 422);
  EXPECT_THAT(refused.body["message"].as_string(),
              HasSubstr("spec.size: Invalid value: too large"));
}

TEST(ApiServer, PodOnNodeStaysUntilDeletedWithZeroGrace) {
  InMemoryApiServer api;
  const std::string pods = "/api/v1/namespaces/default/pods";
  api.post(pods, pod("p", "edge0"));
  EXPECT_EQ(api.remove(pods + "/p").body.at("metadata/deletionGracePeriodSeconds").as_integer(),
            30);
  EXPECT_EQ(api.get(pods + "/p").status, 200);
  EXPECT_EQ(api.remove(pods + "/p?gracePeriodSeconds=0").status, 200);
  EXPECT_EQ(api.get(pods + "/p").status, 404);
}

TEST(ApiServer, PodIsBoundOnlyOnce) {
  InMemoryApiServer api;
  const std::string pods = "/api/v1/namespaces/default/pods";
  api.post(pods, pod("p", ""));
  const Json binding = Json::object({{"apiVersion", "v1"},
                                     {"kind", "Binding"},
                                     {"target", Json::object({{"kind", "Node"}, {"name", "n1"}})}});
  EXPECT_EQ(api.post(pods + "/p/binding", binding).status, 201);
  EXPECT_EQ(api.get(pods + "/p").body.at("spec/nodeName").as_string(), "n1");
  EXPECT_EQ(api.post(pods + "/p/binding", binding).status, 409);
}

TEST(ApiServer, BindingOfFormerPodIsRefused) {
  InMemoryApiServer api;
  const std::string pods = "/api/v1/namespaces/default/pods";
  const Json first = api.post(pods, pod("p", "")).body;
  ASSERT_EQ(api.remove(pods + "/p").status, 200);
  api.post(pods, pod("p", ""));
  const Json binding =
      Json::object({{"apiVersion", "v1"},
                    {"kind", "Binding"},
                    {"metadata", Json::object({{"name", "p"}, {"uid", first.at("metadata/uid")}})},
                    {"target", Json::object({{"kind", "Node"}, {"name", "n1"}})}});
  const auto refused = api.post(pods + "/p/binding", binding);
  EXPECT_EQ(refused.status, 409);
  EXPECT_NE(refused.body["message"].as_string().find("Precondition failed: UID"),
            std::string::npos);
  EXPECT_TRUE(api.get(pods + "/p").body.at("spec/nodeName").is_null());
}

TEST(ApiServer, PodLogsAreStreamedFromTheLogSource) {
  class Text : public net::BodyStream {
   public:
    std::optional<std::string> read() override { return std::exchange(text_, std::nullopt); }
    void on_ready(std::function<void()>) override {}

   private:
    std::optional<std::string> text_ = "hello\n";
  };
  InMemoryApiServer::Options options;
  LogRequest received;
  options.server.logs = [&](const LogRequest& request) -> Result<std::unique_ptr<net::BodyStream>> {
    received = request;
    return std::unique_ptr<net::BodyStream>(std::make_unique<Text>());
  };
  InMemoryApiServer api(std::move(options));
  api.post("/api/v1/namespaces/default/pods", pod("p", "edge0"));
  EXPECT_EQ(api.get("/api/v1/namespaces/default/pods/p/log?tailLines=5&follow=true").text,
            "hello\n");
  EXPECT_EQ(received.container, "c");
  EXPECT_EQ(received.node, "edge0");
  EXPECT_EQ(received.tail_lines, 5);
  EXPECT_TRUE(received.follow);
}

class Recorder : public SessionObserver {
 public:
  void opened(const Identity& caller) override { add("+" + caller.name); }
  void closed(const Identity& caller) override { add("-" + caller.name); }
  std::vector<std::string> reported() {
    const std::lock_guard lock(mutex_);
    return reported_;
  }

 private:
  void add(std::string what) {
    const std::lock_guard lock(mutex_);
    reported_.push_back(std::move(what));
  }
  std::mutex mutex_;
  std::vector<std::string> reported_;
};

TEST(ApiServer, ObserverIsNotifiedOfFirstAndLastWatch) {
  Recorder recorder;
  InMemoryApiServer::Options options;
  options.server.sessions = &recorder;
  InMemoryApiServer api(std::move(options));
  const auto edge = api.transport_as({.name = "system:node:edge0", .groups = {"system:nodes"}});
  {
    const Events first(*edge, std::string(kConfigMaps) + "?watch=1");
    const Events second(*edge, std::string(kConfigMaps) + "?watch=1");
    EXPECT_THAT(recorder.reported(), ElementsAre("+system:node:edge0"));
  }
  EXPECT_THAT(recorder.reported(), ElementsAre("+system:node:edge0", "-system:node:edge0"));
}

TEST(ApiServer, RequestsWithoutAKnownTokenAreRefused) {
  const auto store = store::open_memory();
  const auto tokens = token_authenticator(
      {{.token = "secret", .identity = {.name = "admin", .groups = {"system:masters"}}}});
  Server::Options options;
  options.store = store.get();
  options.authenticator = tokens.get();
  const auto server = Server::create(std::move(options)).value();
  const auto client = net::loopback(server->handler());
  const auto status_of = [&](const char* authorization, const char* target) {
    net::ClientRequest request;
    request.url = target;
    if (*authorization != '\0') request.headers.add("Authorization", authorization);
    return client->call(Context::background(), std::move(request)).value().status;
  };
  EXPECT_EQ(status_of("", kConfigMaps), 401);
  EXPECT_EQ(status_of("Bearer wrong", kConfigMaps), 401);
  EXPECT_EQ(status_of("Basic secret", kConfigMaps), 401);
  EXPECT_EQ(status_of("Bearer secret", kConfigMaps), 200);
  EXPECT_EQ(status_of("", "/healthz"), 200);
}

}  // namespace
}  // namespace varda::apiserver
