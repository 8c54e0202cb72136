#include "gateway/view.h"

#include <gtest/gtest.h>
#include <thread>

#include "base/testing/eventually.h"
#include "kube/client.h"
#include "runtime/testing/scripted_api.h"

namespace varda::gateway {
namespace {

using codec::Json;
using runtime::pod_list;
using runtime::watch_event;
using std::chrono::milliseconds;

const meta::Resource kPods{"", "v1", "Pod", "pods", true};

Json pod(const char* name, int version, const char* node) {
  Json out = runtime::pod_object(name, version);
  out.make("spec/nodeName") = node;
  return out;
}

/// A view of an informer with a scripted server.
class ViewTest : public ::testing::Test {
 protected:
  void start(Json list, View::Options options = {}) {
    options.node_of = [](const runtime::Stored& stored) {
      return stored.json().at("spec/nodeName").as_string();
    };
    view_ = std::make_unique<View>(std::move(options));
    runtime::Informer::Options of;
    of.resource = kPods;
    of.backoff_min = milliseconds(1);
    of.backoff_max = milliseconds(2);
    informer_ = std::make_unique<runtime::Informer>(client_, of);
    view_->follow(*informer_);
    api_.answer(200, std::move(list));
    thread_ = std::jthread([this](const std::stop_token& stop) { informer_->run(Context(stop)); });
    api_.wait_watches(1);
  }
  ~ViewTest() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void send(const char* type, Json object) {
    const std::string version = std::as_const(object).at("metadata/resourceVersion").as_string();
    api_.send(watch_event(type, std::move(object)));
    wait(std::stoull(version));
  }
  void wait(std::uint64_t version) {
    ASSERT_TRUE(eventually("the view has version " + std::to_string(version),
                           [&] { return view_->version() == version; }));
  }
  /// Lines of a watch as "+a3 ~a4 -a5".
  static std::string brief(const std::string& lines) {
    std::string out;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find('\n', at);
      const Json event = codec::parse_json(lines.substr(at, end - at)).value();
      const std::string& type = event["type"].as_string();
      const Json& metadata = event.at("object/metadata");
      EXPECT_EQ(event.at("object/kind").as_string(), "Pod") << lines;
      out += (out.empty() ? "" : " ") +
             std::string(type == "ADDED"     ? "+"
                         : type == "DELETED" ? "-"
                                             : "~") +
             metadata["name"].as_string() + metadata["resourceVersion"].as_string();
      at = end + 1;
    }
    return out;
  }
  std::string from(const std::string& node, std::string_view version) {
    auto cursor = view_->begin(node, version);
    if (!cursor.ok()) return std::string(to_string(cursor.error().code()));
    return read(*cursor);
  }
  std::string read(View::Cursor& cursor) {
    const auto changes = view_->read(cursor);
    return changes.ok() ? brief(*changes) : std::string(to_string(changes.error().code()));
  }

  runtime::ScriptedApi api_;
  std::unique_ptr<net::HttpClient> http_ = net::loopback(api_.handler());
  kube::Client client_{*http_, {}};
  std::unique_ptr<View> view_;
  std::unique_ptr<runtime::Informer> informer_;
  std::jthread thread_;
};

TEST_F(ViewTest, NodeSeesOnlyItsOwnObjects) {
  start(pod_list(10, {pod("a", 3, "n"), pod("b", 4, "m"), pod("c", 5, "n"), pod("d", 6, "")}));
  const auto listing = view_->list("n");
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->resource_version, "10");
  ASSERT_EQ(listing->items.size(), 2u);
  EXPECT_EQ(listing->items[0]->metadata.name, "a");
  EXPECT_EQ(listing->items[1]->metadata.name, "c");
  EXPECT_EQ(from("m", ""), "+b4");
  EXPECT_EQ(from("m", "0"), "+b4");
  EXPECT_EQ(from("", "0"), "");
  EXPECT_EQ(from("nobody", "10"), "");
}

TEST_F(ViewTest, WatchStartsAtItsVersionAndContinues) {
  start(pod_list(10, {pod("a", 3, "n"), pod("b", 4, "n")}));
  auto cursor = view_->begin("n", "10").value();
  EXPECT_EQ(read(cursor), "");
  send("ADDED", pod("c", 11, "n"));
  send("ADDED", pod("x", 12, "m"));
  send("MODIFIED", pod("a", 13, "n"));
  EXPECT_EQ(from("n", "10"), "+c11 ~a13");
  EXPECT_EQ(from("n", "11"), "~a13");
  EXPECT_EQ(read(cursor), "+c11 ~a13");
  EXPECT_EQ(cursor.version, 13u);
  send("MODIFIED", pod("c", 14, "n"));
  send("MODIFIED", pod("c", 15, "n"));
  EXPECT_EQ(read(cursor), "~c15");
  EXPECT_EQ(read(cursor), "");
}

TEST_F(ViewTest, DeletionsAreSentToWatchesOfTheNode) {
  start(pod_list(10, {pod("a", 3, "n"), pod("b", 4, "n")}));
  auto cursor = view_->begin("n", "10").value();
  send("DELETED", pod("a", 11, "n"));
  send("ADDED", pod("a", 12, "n"));
  EXPECT_EQ(read(cursor), "-a11 +a12");
  EXPECT_EQ(from("n", "10"), "-a11 +a12");
  EXPECT_EQ(from("n", "11"), "+a12");
  EXPECT_EQ(from("n", "0"), "+b4 +a12");
  EXPECT_EQ(from("m", "10"), "");
}

TEST_F(ViewTest, MovedObjectIsDeletedOnOldNodeAndAddedOnNewNode) {
  start(pod_list(10, {pod("a", 3, "n")}));
  auto n = view_->begin("n", "10").value(), m = view_->begin("m", "10").value();
  send("MODIFIED", pod("a", 11, "m"));
  EXPECT_EQ(read(n), "-a11");
  EXPECT_EQ(read(m), "+a11");
  EXPECT_EQ(view_->get("n", {"default", "a"}), nullptr);
  EXPECT_NE(view_->get("m", {"default", "a"}), nullptr);
}

TEST_F(ViewTest, VersionsOutsideTheWindowAreRejected) {
  start(pod_list(10, {pod("a", 3, "n")}));
  EXPECT_EQ(from("n", "9"), "gone");
  EXPECT_EQ(from("n", "11"), "gone");
  EXPECT_EQ(from("n", "x"), "invalid");
  EXPECT_EQ(from("n", "-1"), "invalid");
}

TEST_F(ViewTest, NoVersionIsTooOldForAPresentSingleObject) {
  start(pod_list(10, {pod("a", 3, "n")}), {.node_of = {}, .one_each = true});
  EXPECT_EQ(from("n", "2"), "+a3");
  EXPECT_EQ(from("n", "3"), "");
  EXPECT_EQ(from("n", "9"), "");
  EXPECT_EQ(from("m", "9"), "gone");  // it may have existed
}

TEST_F(ViewTest, TheWindowOfDeletionsIsBounded) {
  start(pod_list(10, {pod("a", 1, "n"), pod("b", 2, "n"), pod("c", 3, "m"), pod("d", 4, "m")}),
        {.node_of = {}, .tombstones_max = 2});
  auto slow = view_->begin("n", "10").value();
  EXPECT_EQ(read(slow), "");
  send("DELETED", pod("a", 11, "n"));
  send("DELETED", pod("b", 12, "n"));
  send("DELETED", pod("c", 13, "m"));
  EXPECT_EQ(from("n", "10"), "gone");
  EXPECT_EQ(from("n", "11"), "-b12");
  EXPECT_EQ(read(slow), "gone");
  send("DELETED", pod("d", 14, "m"));
  EXPECT_EQ(from("m", "12"), "-c13 -d14");
  EXPECT_EQ(from("n", "12"), "");
  EXPECT_LE(view_->nodes(), 1u);  // a node without objects, tombstones or watches costs nothing
}

TEST_F(ViewTest, RelistReportsChangesInOrderOfVersions) {
  start(pod_list(10, {pod("a", 3, "n"), pod("b", 4, "n"), pod("z", 5, "n")}));
  auto cursor = view_->begin("n", "10").value();
  EXPECT_EQ(read(cursor), "");
  // The expired watch forces a relist: "a" is gone, and "b" is newer than "c".
  api_.answer(200, pod_list(20, {pod("b", 18, "n"), pod("c", 17, "n"), pod("z", 5, "n")}));
  api_.refuse_watch(410, Json::object({{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}}));
  api_.end_watch();
  wait(20);
  EXPECT_EQ(read(cursor), "+c17 ~b18 -a20");
  // A client of another server may have seen objects that this view never had.
  EXPECT_EQ(from("n", "15"), "gone");
  EXPECT_EQ(from("n", "20"), "");
}

TEST_F(ViewTest, BookmarkAdvancesWatches) {
  start(pod_list(10, {pod("a", 3, "n")}));
  auto cursor = view_->begin("n", "10").value();
  api_.send(watch_event(
      "BOOKMARK",
      Json::object({{"kind", "Pod"}, {"metadata", Json::object({{"resourceVersion", "40"}})}})));
  wait(40);
  EXPECT_EQ(read(cursor), "");
  EXPECT_EQ(cursor.version, 40u);
  EXPECT_EQ(from("n", "40"), "");
}

TEST_F(ViewTest, ChangeWakesOnlyWatchersOfItsNode) {
  struct Count final : View::Watcher {
    std::atomic<int> woken{0};
    void notify() override { ++woken; }
  };
  start(pod_list(10, {pod("a", 3, "n")}));
  Count n, m, removed;
  view_->add("n", n);
  view_->add("m", m);
  view_->add("n", removed);
  view_->remove("n", removed);
  send("MODIFIED", pod("a", 11, "n"));
  EXPECT_EQ(n.woken, 1);
  EXPECT_EQ(m.woken, 0);
  EXPECT_EQ(removed.woken, 0);
  view_->remove("n", n);
  view_->remove("m", m);
}

}  // namespace
}  // namespace varda::gateway
