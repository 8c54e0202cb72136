// An informer against a server that misbehaves: whatever the faults, the copy is correct in the
// end.
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/gzip.h"
#include "net/client.h"
#include "runtime/informer.h"
#include "runtime/testing/misbehaving_server.h"

namespace varda::runtime {
namespace misbehaving_test {

using std::chrono::milliseconds, std::chrono::seconds;
using On = Fault::On;
using What = Fault::What;

const Resource& config_maps_resource() {
  static const Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}
using ConfigMap = Raw<config_maps_resource>;

constexpr const char* kGone =
    R"({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})";
constexpr const char* kFault =
    R"({"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"})";
constexpr const char* kTooLarge =
    R"({"kind": "Status", "code": 504, "reason": "Timeout", "message": "Too large resource version: 99, current: 3"})";
constexpr const char* kBusy =
    R"({"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "too many requests"})";

/// A line of a watch as an HTTP chunk.
std::string framed(const std::string& line) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", line.size() + 1);
  return size + line + "\n\r\n";
}
std::string error_event(const char* status) {
  return framed(std::string(R"({"type": "ERROR", "object": )") + status + "}");
}
Fault list_answers(std::string bytes) {
  return {.on = On::kList, .what = What::kSend, .bytes = std::move(bytes)};
}
Fault watch_answers(std::string bytes) {
  return {.on = On::kWatch, .what = What::kSend, .bytes = std::move(bytes)};
}
Fault watch_sends(std::size_t events, std::string then) {
  return {.on = On::kWatch, .what = What::kEvents, .bytes = std::move(then), .count = events};
}
std::vector<Fault> times(int count, const std::vector<Fault>& faults) {
  std::vector<Fault> out;
  for (int i = 0; i < count; ++i) out.insert(out.end(), faults.begin(), faults.end());
  return out;
}

struct Case {
  const char* name;
  std::vector<Fault> faults;
};

class Misbehaving : public ::testing::TestWithParam<Case> {
 protected:
  using Versions = std::map<std::string, std::string>;

  void SetUp() override {
    for (const char* name : {"a", "b", "c", "d", "e"}) write("POST", "", name);
  }
  void write(const char* method, const std::string& path, const std::string& name) {
    Json map = Json::object({{"metadata", Json::object({{"name", name}})}});
    map.set("data", Json::object({{"n", std::to_string(++written_)}}));
    const auto reply = api_.call(
        method, "/api/v1/namespaces/default/configmaps" + path, map,
        *method == 'P' && method[1] == 'A' ? "application/merge-patch+json" : "application/json");
    ASSERT_LT(reply.status, 300) << reply.text;
  }
  Versions stored_versions() {
    Versions out;
    for (const Json& item :
         api_.get("/api/v1/namespaces/default/configmaps").body["items"].as_array())
      out[item["metadata"]["name"].as_string()] = item["metadata"]["resourceVersion"].as_string();
    return out;
  }
  static Versions copied(const Informer& informer) {
    Versions out;
    for (const StoredPtr& stored : informer.list("default"))
      out[stored->metadata.name] = stored->metadata.resource_version;
    return out;
  }

  apiserver::InMemoryApiServer api_;
  int written_ = 0;
};

TEST_P(Misbehaving, CacheMatchesServerAfterFaults) {
  MisbehavingServer server(api_.transport(), GetParam().faults);
  const auto http = net::make_client({});
  const kube::Client client(
      *http, {.base_url = server.url(), .waits_max = 3, .response_bytes_max = 1u << 20});
  auto options = Informer::typed<ConfigMap>();
  options.backoff_min = milliseconds(1);
  options.backoff_max = milliseconds(5);
  options.page_items = 2;
  Informer informer(client, std::move(options));
  Versions reported;  // the state according to the handlers' changes
  informer.on_change([&](const Change& change) {
    if (change.key.ns != "default") return;
    if (change.now) {
      reported[change.key.name] = change.now->metadata.resource_version;
    } else {
      reported.erase(change.key.name);
    }
  });
  std::jthread thread([&](std::stop_token stop) { informer.run(Context(stop)); });

  // Objects keep changing until every fault has happened, and a little longer.
  const auto deadline = system_clock().now() + seconds(120);
  for (int after = 0; after < 3; after += server.done()) {
    ASSERT_LT(system_clock().now(), deadline) << "the faults did not come to pass";
    write("PATCH", "/b", "b");
    if (written_ % 3 == 0) {
      write("POST", "", "new" + std::to_string(written_));
      const Versions now = stored_versions();
      if (now.size() > 8)
        api_.remove("/api/v1/namespaces/default/configmaps/" + now.rbegin()->first);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  api_.remove("/api/v1/namespaces/default/configmaps/a");
  const Versions expected = stored_versions();
  EXPECT_TRUE(
      eventually("the copy agrees with the server", [&] { return copied(informer) == expected; }));
  EXPECT_EQ(copied(informer), expected);
  thread.request_stop();
  thread.join();
  EXPECT_EQ(reported, expected);
}

const Case kCases[] = {
    {"Nothing", {}},
    {"ListDroppedAtOnce", times(3, {list_answers("")})},
    {"ListCutInTheHeader", {{.on = On::kList, .what = What::kCut, .count = 20}}},
    {"ListCutInTheBody", {{.on = On::kList, .what = What::kCut, .count = 300}}},
    {"ListByteByByte", times(3, {{.on = On::kList, .what = What::kDribble}})},
    {"ListFaults", times(5, {list_answers(http_answer(500, kFault))})},
    {"ListFaultOfAProxy",
     {list_answers(http_answer(502, "<html>Bad Gateway</html>", "text/html"))}},
    {"ListIsAPage", {list_answers(http_answer(200, "<html>Please log in</html>", "text/html"))}},
    {"ListIsOtherJson", {list_answers(http_answer(200, R"({"error": "quota"})"))}},
    {"ListIsAStatus",
     {list_answers(http_answer(200, R"({"kind": "Status", "status": "Success"})"))}},
    {"ListIsGarbage", {list_answers(std::string("\0\1\2garbage\r\n\r\n", 14))}},
    {"ListIsGiant", {list_answers(http_answer(200, std::string(2u << 20, ' ')))}},
    {"ListIsABomb",
     {list_answers(http_answer(200, codec::gzip(std::string(8u << 20, ' ')), "application/json",
                               "Content-Encoding: gzip\r\n"))}},
    {"ListIsHalfPacked",
     {list_answers(http_answer(200, codec::gzip("{\"items\": []}").substr(0, 12),
                               "application/json", "Content-Encoding: gzip\r\n"))}},
    {"ListGoneOnTheFirstPage", {list_answers(http_answer(410, kGone))}},
    {"ListGoneOnTheSecondPage",
     {{.on = On::kList, .what = What::kDribble}, list_answers(http_answer(410, kGone))}},
    {"ListBusyThenNot",
     times(2, {list_answers(http_answer(429, kBusy, "application/json", "Retry-After: 0\r\n"))})},
    {"ListBusyForLong",
     times(9, {list_answers(http_answer(429, kBusy, "application/json", "Retry-After: 0\r\n"))})},
    {"ListForbiddenForAWhile",
     times(3, {list_answers(
                  http_answer(403, R"({"kind": "Status", "code": 403, "reason": "Forbidden"})"))})},
    {"WatchDroppedAtOnce", times(5, {watch_answers("")})},
    {"WatchRefusedAsGone", times(5, {watch_answers(http_answer(410, kGone))})},
    {"WatchTellsThatItIsGone", times(5, {watch_sends(0, error_event(kGone))})},
    {"WatchTellsGoneAfterEvents", times(3, {watch_sends(2, error_event(kGone))})},
    {"WatchTellsAFault", times(4, {watch_sends(1, error_event(kFault))})},
    {"WatchOfAVersionToCome", times(4, {watch_answers(http_answer(504, kTooLarge))})},
    {"WatchFaults", times(4, {watch_answers(http_answer(500, kFault))})},
    {"WatchBusy",
     times(6, {watch_answers(http_answer(429, kBusy, "application/json", "Retry-After: 0\r\n"))})},
    {"WatchCutAfterAnEvent", times(4, {watch_sends(1, "")})},
    {"WatchCutInAnEvent",
     times(4, {watch_sends(
                  1, R"(40)"
                     "\r\n"
                     R"({"type": "MODIFIED", "object": {"metadata": {"name": "b", "resour)")})},
    {"WatchEndsInAnEvent", {watch_sends(1, "9\r\n{\"type\": \"\r\n0\r\n\r\n")}},
    {"WatchTellsNoJson", times(3, {watch_sends(1, framed("<html>"))})},
    {"WatchTellsSomethingElse",
     times(3, {watch_sends(1, framed(R"({"type": "FROBBED", "object": {}})"))})},
    {"WatchTellsOfNothing",
     {watch_sends(0, framed(R"({"type": "ADDED", "object": {"metadata": {}}})"))}},
    {"WatchTellsNoObject", {watch_sends(0, framed(R"({"type": "ADDED", "object": 5})"))}},
    {"WatchTellsOldNews",
     {watch_sends(
         2,
         framed(
             R"({"type": "MODIFIED", "object": {"metadata": {"name": "b", "namespace": "default", "resourceVersion": "1"}}})"))}},
    {"WatchTellsOfAnOldEnd",
     {watch_sends(
         2,
         framed(
             R"({"type": "DELETED", "object": {"metadata": {"name": "b", "namespace": "default", "resourceVersion": "1"}}})"))}},
    {"ServerWentBack",
     {watch_sends(
          1,
          framed(
              R"({"type": "ADDED", "object": {"metadata": {"name": "lost", "namespace": "default", "resourceVersion": "999998"}}})") +
              framed(
                  R"({"type": "MODIFIED", "object": {"metadata": {"name": "c", "namespace": "default", "resourceVersion": "999999"}}})")),
      watch_answers(http_answer(410, kGone))}},
    {"WatchIsAPage",
     times(2, {watch_answers(http_answer(200, "<html>\nPlease log in\n</html>", "text/html"))})},
    {"WatchByteByByte", {{.on = On::kWatch, .what = What::kDribble}}},
    {"WatchFramedWrongly", times(3, {watch_sends(1, "zz\r\n")})},
    {"EverythingInTurn",
     times(3, {list_answers(http_answer(500, kFault)), list_answers(""),
               watch_sends(1, error_event(kGone)), list_answers(http_answer(410, kGone)),
               watch_answers(http_answer(410, kGone)), list_answers(http_answer(200, "<html>")),
               watch_sends(2, error_event(kGone))})},
};

INSTANTIATE_TEST_SUITE_P(Server, Misbehaving, ::testing::ValuesIn(kCases),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace misbehaving_test
}  // namespace varda::runtime
