#include "kube/client.h"

#include <gtest/gtest.h>
#include <thread>

#include "apiserver/testing/in_memory.h"

namespace varda::kube {
namespace client_test {

using codec::parse_json;
using std::chrono::milliseconds, std::chrono::seconds;

const Resource kMaps{"", "v1", "ConfigMap", "configmaps", true};
const Resource kNodes{"", "v1", "Node", "nodes", false};

Json config_map(const std::string& name, const char* value, const char* label = "x") {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", Json::object({{"name", name},
                                                  {"namespace", "default"},
                                                  {"labels", Json::object({{"l", label}})}})},
                       {"data", Json::object({{"k", value}})}});
}

class ClientTest : public ::testing::Test {
 protected:
  apiserver::InMemoryApiServer api_;
  Client client_{api_.transport(), {.field_manager = "test"}};
  Context ctx_ = Context().with_timeout(seconds(60));
};

TEST_F(ClientTest, ObjectsAreCreatedReadUpdatedPatchedAndDeleted) {
  const ObjectKey key{"default", "a"};
  const Json created = client_.create(ctx_, kMaps, config_map("a", "1")).value();
  EXPECT_EQ(created["kind"].as_string(), "ConfigMap");
  EXPECT_EQ(client_.create(ctx_, kMaps, config_map("a", "1")).error().code(), Code::kAlreadyExists);
  Json live = client_.get(ctx_, kMaps, key).value();
  EXPECT_EQ(live, created);

  live["data"].set("k", "2");
  const Json updated = client_.update(ctx_, kMaps, live).value();
  EXPECT_NE(updated["metadata"]["resourceVersion"], live["metadata"]["resourceVersion"]);
  EXPECT_EQ(client_.update(ctx_, kMaps, live).error().code(), Code::kConflict);

  const Json patched =
      client_
          .patch(ctx_, kMaps, key, PatchType::kMerge, parse_json(R"({"data": {"m": "3"}})").value())
          .value();
  EXPECT_EQ(patched["data"], parse_json(R"({"k": "2", "m": "3"})").value());
  EXPECT_EQ(client_
                .patch(ctx_, kMaps, key, PatchType::kJson,
                       parse_json(R"([{"op": "remove", "path": "/data/m"}])").value())
                .value()["data"],
            parse_json(R"({"k": "2"})").value());
  EXPECT_EQ(client_
                .patch(ctx_, kMaps, key, PatchType::kJson,
                       parse_json(R"([{"op": "test", "path": "/data/k", "value": "x"}])").value())
                .error()
                .code(),
            Code::kInvalid);

  EXPECT_EQ(client_.remove(ctx_, kMaps, key, {.uid = "another"}).error().code(), Code::kConflict);
  EXPECT_TRUE(client_
                  .remove(ctx_, kMaps, key,
                          {.propagation = Propagation::kBackground,
                           .uid = live["metadata"]["uid"].as_string()})
                  .ok());
  const Error missing = client_.get(ctx_, kMaps, key).error();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_EQ(missing.message(), "configmaps \"a\" not found");
  EXPECT_FALSE(client_.find(ctx_, kMaps, key).value());
  EXPECT_EQ(client_.remove(ctx_, kMaps, key).error().code(), Code::kNotFound);
}

TEST_F(ClientTest, UpdateStatusWritesTheStatus) {
  const Json node =
      parse_json(R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})").value();
  Json live = client_.create(ctx_, kNodes, node).value();
  live.set("status",
           parse_json(R"({"conditions": [{"type": "Ready", "status": "True"}]})").value());
  const Json written = client_.update_status(ctx_, kNodes, live).value();
  EXPECT_EQ(written["status"]["conditions"].as_array().at(0)["status"].as_string(), "True");
}

TEST_F(ClientTest, ListUsesPagesAndSelectors) {
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(
        client_
            .create(ctx_, kMaps, config_map("m" + std::to_string(i), "1", i % 2 ? "odd" : "even"))
            .ok());
  }
  const List page =
      client_.list(ctx_, kMaps, {.ns = "default", .label_selector = "l", .limit = 3}).value();
  EXPECT_EQ(page.items.size(), 3u);
  EXPECT_FALSE(page.continue_token.empty());
  const List all =
      client_.list_all(ctx_, kMaps, {.ns = "default", .label_selector = "l", .limit = 3}).value();
  EXPECT_EQ(all.items.size(), 7u);
  for (const Json& item : all.items)
    EXPECT_EQ(item["apiVersion"].as_string() + item["kind"].as_string(), "v1ConfigMap");
  EXPECT_EQ(client_.list_all(ctx_, kMaps, {.ns = "default", .label_selector = "l=odd"})
                .value()
                .items.size(),
            3u);
  EXPECT_EQ(client_.list_all(ctx_, kMaps, {.ns = "default", .field_selector = "metadata.name=m3"})
                .value()
                .items.size(),
            1u);
  const Error bad = client_.list(ctx_, kMaps, {.label_selector = "a in ("}).error();
  EXPECT_EQ(bad.code(), Code::kInvalid);
  EXPECT_EQ(bad.message(),
            "unable to parse requirement: found '', expected: ',', ')' or identifier");
}

TEST_F(ClientTest, WatchStartsAtAVersionAndEndsWhenStopped) {
  const List before = client_.list_all(ctx_, kMaps, {.ns = "default"}).value();
  std::stop_source stop;
  auto watch = client_.watch(
      Context(stop.get_token()).with_timeout(seconds(60)), kMaps,
      {.ns = "default", .resource_version = before.resource_version, .timeout = seconds(60)});
  ASSERT_TRUE(watch.ok()) << watch.error();
  const Json created = client_.create(ctx_, kMaps, config_map("a", "1")).value();
  ASSERT_TRUE(client_
                  .patch(ctx_, kMaps, {"default", "a"}, PatchType::kMerge,
                         parse_json(R"({"data": {"k": "2"}})").value())
                  .ok());
  ASSERT_TRUE(client_.remove(ctx_, kMaps, {"default", "a"}).ok());
  using Type = WatchEvent::Type;
  for (const Type type : {Type::kAdded, Type::kModified, Type::kDeleted}) {
    const auto event = (*watch)->next();
    ASSERT_TRUE(event.ok()) << event.error();
    ASSERT_TRUE(*event);
    EXPECT_EQ((*event)->type, type);
    EXPECT_EQ((*event)->object["metadata"]["name"].as_string(), "a");
    EXPECT_EQ((*event)->resource_version,
              (*event)->object["metadata"]["resourceVersion"].as_string());
  }
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ((*watch)->next().error().code(), Code::kCancelled);
}

TEST_F(ClientTest, RawRequestsSucceedAndUnknownPathsReturnNotFound) {
  EXPECT_TRUE(client_.text(ctx_, "/version").ok());
  EXPECT_EQ(client_.json(ctx_, "GET", "/api/v1").value()["kind"].as_string(), "APIResourceList");
  EXPECT_EQ(client_.text(ctx_, "/nonsense").error().code(), Code::kNotFound);
  EXPECT_EQ(client_.open(ctx_, "GET", "/nonsense").error().code(), Code::kNotFound);
}

/// Requests as the server gets them, and unusual answers.
TEST(Client, ClientSendsItsNameAndTokenAndHandlesUnusualAnswers) {
  net::Headers seen;
  std::string target;
  net::Response answer;
  const auto http = net::loopback(net::inline_handler([&](const net::Request& request) {
    seen = request.headers;
    target = request.target;
    net::Response copy;
    copy.status = answer.status;
    copy.body = answer.body;
    return copy;
  }));
  metrics::Registry registry;
  int tokens_read = 0;
  Client client(*http, {.token_source = [&] { return "t" + std::to_string(++tokens_read); },
                        .metrics = &registry});
  const Context ctx = Context().with_timeout(seconds(60));

  answer.status = 503;
  answer.body = "upstream is down\nmore";
  const Error error = client.get(ctx, kMaps, {"n s", "a/b"}).error();
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_EQ(error.message(),
            "GET /api/v1/namespaces/n%20s/configmaps/a%2Fb: HTTP status 503: upstream is down");
  EXPECT_TRUE(seen.find("User-Agent")->starts_with("varda/"));
  EXPECT_EQ(seen.find("Authorization"), "Bearer t1");
  answer.status = 200;
  answer.body = "no json";
  EXPECT_EQ(client.get(ctx, kMaps, {"n", "a"}).error().code(), Code::kCorrupt);
  EXPECT_EQ(seen.find("Authorization"), "Bearer t2");
  EXPECT_NE(
      registry.text().find("rest_client_requests_total{code=\"503\",host=\"\",method=\"GET\"} 1"),
      std::string::npos)
      << registry.text();

  // Items in lists of core kinds have no kind.
  answer.body =
      R"({"kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "a"}}]})";
  const List list =
      client.list(ctx, kMaps, {.continue_token = "c=", .resource_version = "5"}).value();
  EXPECT_EQ(list.items.at(0)["kind"].as_string(), "ConfigMap");
  EXPECT_EQ(list.resource_version, "9");
  EXPECT_EQ(target, "/api/v1/configmaps?continue=c%3D");
}

TEST(Client, WatchReports410BrokenLinesAndTheEnd) {
  std::string body;
  int status = 200;
  const auto http = net::loopback(net::inline_handler([&](const net::Request&) {
    net::Response response;
    response.status = status;
    response.body = body;
    return response;
  }));
  Client client(*http, {});
  const Context ctx = Context().with_timeout(seconds(60));
  const auto next = [&] {
    auto watch = client.watch(ctx, kMaps, {.resource_version = "1"});
    if (!watch.ok()) return Result<std::optional<WatchEvent>>(watch.error());
    return (*watch)->next();
  };
  body =
      R"({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}})"
      "\n";
  EXPECT_EQ(next().error().code(), Code::kGone);
  body = "{\"type\": \"BOOKMARK\", \"object\": {\"metadata\": {\"resourceVersion\": \"77\"}}}\n";
  EXPECT_EQ((*next())->resource_version, "77");
  body = "\n\n";
  EXPECT_FALSE(next().value());
  body = "{\"type\": \"ADDED\", \"obj";
  EXPECT_FALSE(next().value()) << "half an event is none";
  for (const char* odd :
       {"nonsense", "6", "[]", "\"ADDED\"", "{}", "{\"type\": \"ADDED\"}",
        "{\"type\": \"ADDED\", \"object\": 5}", "{\"type\": \"ERROR\", \"object\": [1]}"}) {
    body = std::string(odd) + "\n";
    EXPECT_EQ(next().error().code(), Code::kCorrupt) << odd;
  }
  body = "{\"type\": \"FROB\", \"object\": {}}\n";
  EXPECT_EQ(next().error().code(), Code::kCorrupt);
  status = 410;
  body = R"({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})";
  EXPECT_EQ(next().error().code(), Code::kGone);
}

}  // namespace client_test
}  // namespace varda::kube
