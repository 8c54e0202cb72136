// Controllers, writer and manager against the real API server in memory.
#include <atomic>
#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "runtime/manager.h"

namespace varda::runtime {
namespace controller_test {

using codec::parse_json;
using std::chrono::milliseconds, std::chrono::seconds;

constexpr const char* kCrd = R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.varda.io}
spec:
  group: test.varda.io
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

const Resource& widgets_resource() {
  static const Resource resource{"test.varda.io", "v1", "Widget", "widgets", true};
  return resource;
}
const Resource& config_maps_resource() {
  static const Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}
const Resource& pods_resource() {
  static const Resource resource{"", "v1", "Pod", "pods", true};
  return resource;
}
const Resource& nodes_resource() {
  static const Resource resource{"", "v1", "Node", "nodes", false};
  return resource;
}

/// spec.mode selects what the test wants; it must be a string.
struct Widget {
  meta::ObjectMeta metadata;
  Json json;
  static const Resource& resource() { return widgets_resource(); }
  static Result<Widget> from_json(const Json& json) {
    if (!json["spec"]["mode"].is_null() && !json["spec"]["mode"].is_string()) {
      return Error(Code::kInvalid, "spec.mode: must be a string");
    }
    TRY(meta::ObjectMeta metadata, meta::ObjectMeta::from_json(json["metadata"]));
    return Widget{std::move(metadata), json};
  }
  Json to_json() const { return json; }
};
using ConfigMap = Raw<config_maps_resource>;
using Pod = Raw<pods_resource>;
using Node = Raw<nodes_resource>;

Json widget(const char* name, const char* spec) {
  Json out = Json::object({{"apiVersion", "test.varda.io/v1"}, {"kind", "Widget"}});
  out.set("metadata", Json::object({{"name", name}, {"namespace", "default"}}));
  out.set("spec", parse_json(spec).value());
  return out;
}

/// Makes a ConfigMap with that data for every entry of spec.maps, and a Pod for spec.image. The
/// status counts reconciles and echoes the spec.
class WidgetReconciler {
 public:
  void watches(Watches<Widget>& w) const {
    w.owns<ConfigMap>()
        .owns<Pod>(Update::kRecreate)
        .workers(2)
        .backoff({.first = milliseconds(1), .max = milliseconds(20)});
    w.maps<Node>([](const Node& node) -> std::vector<ObjectKey> {
      return {{"default", node.metadata.labels.at("widget")}};
    });
    w.changes<Node>([this](const Node* before, const Node* now, const Caches&) {
      std::lock_guard lock(mutex);
      node_changes.push_back((before != nullptr ? "before " : "") +
                             std::string(now != nullptr ? "now" : ""));
      return std::vector<ObjectKey>{{"default", "of-a-change"}};
    });
    w.indexes<Pod>("node", [](const Pod& pod) {
      return std::vector<std::string>{pod.json["spec"]["nodeName"].as_string()};
    });
  }

  Result<Action> reconcile(const Context& ctx, const Widget& widget, Writer& writer) {
    ++runs;
    const std::string& mode = widget.json["spec"]["mode"].as_string();
    if (mode == "throw" && failures++ < 3) throw std::runtime_error("thrown by the test");
    if (mode == "fail" && failures++ < 3) return Error(Code::kUnavailable, "failed by the test");
    if (mode == "hopeless") return Error(Code::kInvalid, "spec is hopeless");
    std::vector<Json> wanted;
    for (const auto& [name, data] : widget.json["spec"]["maps"].as_object()) {
      wanted.push_back(Json::object({{"apiVersion", "v1"},
                                     {"kind", "ConfigMap"},
                                     {"metadata", Json::object({{"name", name}})},
                                     {"data", data}}));
    }
    if (const Json* image = widget.json["spec"].find("image")) {
      Json pod =
          parse_json(
              R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})")
              .value();
      pod["spec"]["containers"].array_items()[0].set("image", *image);
      wanted.push_back(std::move(pod));
    }
    TRY_VOID(writer.converge(ctx, widget, std::move(wanted)));
    TRY_VOID(writer.status(ctx, widget,
                           Json::object({{"seen", widget.json["spec"]["say"]},
                                         {"observedGeneration", widget.metadata.generation}})));
    return mode == "again" ? Action::after(milliseconds(1)) : Action::await_change();
  }

  Result<Action> on_deleted(const Context&, const ObjectKey& key, Writer&) {
    std::lock_guard lock(mutex);
    deleted_keys.insert(key);
    return Action::await_change();
  }

  std::atomic<int> runs{0}, failures{0};
  mutable std::mutex mutex;
  mutable std::vector<std::string> node_changes;
  std::set<ObjectKey> deleted_keys;
};

class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() { api_.install_crds(kCrd); }
  ~ControllerTest() override { stop(); }

  void start() {
    const auto keep = [this](Informer::Options& options) {
      options.keep = keep_;
      options.decoded_max = 1;
    };
    manager_ =
        std::make_unique<Manager>(client_, Manager::Options{.informers = keep,
                                                            .informer_backoff_min = milliseconds(1),
                                                            .metrics = &metrics_});
    enqueue_ = manager_->add<Widget>(reconciler_);
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_->run(Context(stop)).ok()); });
    ASSERT_TRUE(eventually("the manager is ready", [&] { return manager_->ready(); }));
  }
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
  }

  /// Waits until the queue is idle and the store's revision is stable for 20 checks.
  void settle() {
    api_.settle();
    int calm = 0;
    std::string before;
    ASSERT_TRUE(eventually("everything is calm", [&] {
      const std::string now = revision();
      calm = manager_->idle() && now == before && seen_up_to(now) ? calm + 1 : 0;
      before = now;
      return calm > 20;
    }));
  }
  std::string revision() {
    return api_.get("/api/v1/namespaces").body["metadata"]["resourceVersion"].as_string();
  }
  /// The copies agree with the server. Compares contents, because the version of a quiet kind lags
  /// behind.
  bool seen_up_to(const std::string&) {
    const auto same = [&](const char* path, const Resource& resource) {
      const auto list = api_.get(path).body;
      const Informer* informer = manager_->caches().find(resource);
      if (list["items"].size() != informer->size()) return false;
      for (const Json& item : list["items"].as_array()) {
        const auto& m = item["metadata"];
        const StoredPtr have = informer->get({m["namespace"].as_string(), m["name"].as_string()});
        if (!have || have->metadata.resource_version != m["resourceVersion"].as_string())
          return false;
      }
      return true;
    };
    return same("/apis/test.varda.io/v1/widgets", widgets_resource()) &&
           same("/api/v1/configmaps", config_maps_resource()) &&
           same("/api/v1/pods", pods_resource());
  }

  Json get_widget(const char* name) { return api_.get(path(name)).body; }
  static std::string path(const char* name) {
    return std::string("/apis/test.varda.io/v1/namespaces/default/widgets/") + name;
  }
  static std::string map_path(const char* name) {
    return std::string("/api/v1/namespaces/default/configmaps/") + name;
  }
  void post(const Json& object) {
    const auto reply = api_.post("/apis/test.varda.io/v1/namespaces/default/widgets", object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void patch(const std::string& target, const char* merge) {
    const auto reply = api_.merge_patch(target, parse_json(merge).value());
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  std::vector<Json> events() {
    const Json list = api_.get("/api/v1/namespaces/default/events").body;
    return list["items"].as_array();
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  metrics::Registry metrics_;
  WidgetReconciler reconciler_;
  Informer::Keep keep_ = Informer::Keep::kObject;
  std::unique_ptr<Manager> manager_;
  std::function<void(const ObjectKey&)> enqueue_;
  std::jthread thread_;
};

// The result must not depend on how the copies are kept.
class ControllerCacheModeTest : public ControllerTest,
                                public ::testing::WithParamInterface<Informer::Keep> {
 protected:
  ControllerCacheModeTest() { keep_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Controller, ControllerCacheModeTest,
                         ::testing::Values(Informer::Keep::kObject, Informer::Keep::kText),
                         [](const auto& keep) {
                           return keep.param == Informer::Keep::kText ? "Text" : "Object";
                         });

TEST_P(ControllerCacheModeTest, ChildrenAreCreatedUpdatedAndDeleted) {
  start();
  post(widget("w", R"({"say": "one", "maps": {"a": {"k": "1"}, "b": {"k": "2"}}})"));
  settle();
  Json a = api_.get(map_path("a")).body;
  EXPECT_EQ(a["data"], parse_json(R"({"k": "1"})").value());
  const Json& owner = a["metadata"]["ownerReferences"].as_array().at(0);
  EXPECT_EQ(owner["kind"].as_string(), "Widget");
  EXPECT_TRUE(owner["controller"].as_bool());
  EXPECT_EQ(get_widget("w")["status"]["seen"].as_string(), "one");

  // Another client adds its own fields; the controller changes its fields.
  patch(map_path("a"), R"({"data": {"theirs": "x"}, "metadata": {"labels": {"theirs": "y"}}})");
  patch(path("w"), R"({"spec": {"maps": {"a": {"k2": "3", "k": null}, "b": null}}})");
  settle();
  a = api_.get(map_path("a")).body;
  EXPECT_EQ(a["data"], parse_json(R"({"k2": "3", "theirs": "x"})").value());
  EXPECT_EQ(a["metadata"]["labels"]["theirs"].as_string(), "y");
  EXPECT_EQ(api_.get(map_path("b")).status, 404);

  // Drift is reverted, and a deleted object is created again.
  patch(map_path("a"), R"({"data": {"k2": "drift"}})");
  settle();
  EXPECT_EQ(api_.get(map_path("a")).body["data"]["k2"].as_string(), "3");
  EXPECT_EQ(api_.remove(map_path("a")).status, 200);
  settle();
  EXPECT_EQ(api_.get(map_path("a")).body["data"], parse_json(R"({"k2": "3"})").value());
}

TEST_P(ControllerCacheModeTest, RepeatedReconcileWritesNothing) {
  start();
  post(widget("w", R"({"say": "one", "image": "i:1", "maps": {"a": {"k": "1"}}})"));
  settle();
  const std::string before = revision();
  const int runs = reconciler_.runs;
  for (int i = 0; i < 50; ++i) {
    enqueue_({"default", "w"});
    std::this_thread::yield();
  }
  ASSERT_TRUE(eventually("it was reconciled again", [&] { return reconciler_.runs > runs; }));
  settle();
  EXPECT_EQ(revision(), before);
  // A new manager adopts existing objects without a write.
  stop();
  manager_.reset();
  start();
  settle();
  EXPECT_EQ(revision(), before);
  EXPECT_TRUE(events().empty());
}

TEST_F(ControllerTest, ForeignObjectIsNotChanged) {
  start();
  const Json foreign =
      parse_json(
          R"({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}})")
          .value();
  ASSERT_EQ(api_.post("/api/v1/namespaces/default/configmaps", foreign).status, 201);
  post(widget("w", R"({"maps": {"a": {"k": "1"}, "b": {"k": "2"}}})"));
  ASSERT_TRUE(eventually("an event tells", [&] { return !events().empty(); }));
  EXPECT_EQ(api_.get(map_path("a")).body["data"], foreign["data"]);
  EXPECT_EQ(api_.get(map_path("b")).status, 200) << "the others are made all the same";
  EXPECT_NE(
      events()[0]["message"].as_string().find("ConfigMap default/a: an object of that name exists"),
      std::string::npos)
      << events()[0]["message"].as_string();
  ASSERT_EQ(api_.remove(map_path("a")).status, 200);
  ASSERT_TRUE(eventually("it is made once the name is free", [&] {
    return api_.get(map_path("a")).body["data"]["k"].as_string() == "1";
  }));
}

TEST_P(ControllerCacheModeTest, ChangedPodSpecReplacesThePod) {
  start();
  post(widget("w", R"({"image": "i:1"})"));
  settle();
  const Json first = api_.get("/api/v1/namespaces/default/pods/p").body;
  patch("/api/v1/namespaces/default/pods/p", R"({"metadata": {"labels": {"theirs": "x"}}})");
  settle();
  EXPECT_EQ(api_.get("/api/v1/namespaces/default/pods/p").body["metadata"]["uid"],
            first["metadata"]["uid"]);
  patch(path("w"), R"({"spec": {"image": "i:2"}})");
  const auto pod = [&] { return api_.get("/api/v1/namespaces/default/pods/p").body; };
  // A pod without a node goes at once or after a confirmed end. Here the test plays the node.
  ASSERT_TRUE(eventually("the old pod goes and the new one comes", [&] {
    if (!pod()["metadata"]["deletionTimestamp"].is_null()) {
      api_.call("DELETE", "/api/v1/namespaces/default/pods/p",
                parse_json(R"({"gracePeriodSeconds": 0})").value());
    }
    const Json now = pod();
    return now["metadata"]["uid"].is_string() && now["metadata"]["uid"] != first["metadata"]["uid"];
  }));
  EXPECT_EQ(pod()["spec"]["containers"].as_array().at(0)["image"].as_string(), "i:2");
}

TEST_F(ControllerTest, ErrorsAreReportedAsEventsAndRetriedUnlessTerminal) {
  start();
  post(widget("w", R"({"mode": "throw", "say": "done"})"));
  ASSERT_TRUE(eventually("it worked in the end",
                         [&] { return get_widget("w")["status"]["seen"].as_string() == "done"; }));
  post(widget("v", R"({"mode": "hopeless"})"));
  ASSERT_TRUE(eventually("both are reported", [&] { return events().size() >= 2; }));
  settle();
  const int runs = reconciler_.runs;
  int counted = 0;
  for (const Json& event : events()) {
    EXPECT_EQ(event["reason"].as_string(), "ReconcileFailed");
    EXPECT_EQ(event["type"].as_string(), "Warning");
    if (event["involvedObject"]["name"].as_string() == "w") {
      counted += static_cast<int>(event["count"].as_integer());
      EXPECT_EQ(event["message"].as_string(), "exception: thrown by the test");
    } else {
      EXPECT_EQ(event["message"].as_string(), "spec is hopeless");
      EXPECT_EQ(event["involvedObject"]["uid"], get_widget("v")["metadata"]["uid"]);
    }
  }
  EXPECT_EQ(counted, 3);
  settle();
  EXPECT_EQ(reconciler_.runs, runs) << "what is hopeless waits for a change";
  patch(path("v"), R"({"spec": {"mode": "", "say": "better"}})");
  ASSERT_TRUE(eventually("the change helps", [&] {
    return get_widget("v")["status"]["seen"].as_string() == "better";
  }));
  const std::string text = metrics_.text();
  EXPECT_NE(text.find("controller_runtime_reconcile_errors_total{controller=\"widgets\"} 4"),
            std::string::npos)
      << text;
}

TEST_F(ControllerTest, UnreadableObjectIsReportedAndChildrenStay) {
  post(widget("bad", R"({"mode": 7})"));
  start();
  post(widget("w", R"({"say": "fine", "maps": {"a": {"k": "1"}}})"));
  ASSERT_TRUE(eventually("the good one is served",
                         [&] { return get_widget("w")["status"]["seen"].as_string() == "fine"; }));
  ASSERT_TRUE(eventually("the bad one is reported", [&] { return !events().empty(); }));
  EXPECT_EQ(events()[0]["reason"].as_string(), "Unreadable");
  EXPECT_NE(events()[0]["message"].as_string().find("spec.mode: must be a string"),
            std::string::npos);
  patch(path("w"), R"({"spec": {"mode": 7}})");
  ASSERT_TRUE(eventually("now both are", [&] { return events().size() == 2; }));
  settle();
  EXPECT_EQ(api_.get(map_path("a")).status, 200);
  std::lock_guard lock(reconciler_.mutex);
  EXPECT_TRUE(reconciler_.deleted_keys.empty());
}

TEST_F(ControllerTest, ReconcilerIsNotifiedOfDeletedObject) {
  start();
  post(widget("w", R"({"maps": {"a": {"k": "1"}}})"));
  settle();
  ASSERT_EQ(api_.remove(path("w")).status, 200);
  ASSERT_TRUE(eventually("gone() is called", [&] {
    std::lock_guard lock(reconciler_.mutex);
    return reconciler_.deleted_keys.contains({"default", "w"});
  }));
  settle();
  EXPECT_EQ(api_.get(map_path("a")).status, 404) << "collected by the server";
}

TEST_F(ControllerTest, ChangeOfRelatedKindReconcilesObject) {
  start();
  post(widget("w", R"({})"));
  settle();
  const int runs = reconciler_.runs;
  const Json node =
      parse_json(
          R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"widget": "w"}}})")
          .value();
  ASSERT_EQ(api_.post("/api/v1/nodes", node).status, 201);
  ASSERT_TRUE(
      eventually("the node reconciles the widget", [&] { return reconciler_.runs > runs; }));
  const Json pod = parse_json(R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there"},
                                  "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})")
                       .value();
  ASSERT_EQ(api_.post("/api/v1/namespaces/default/pods", pod).status, 201);
  const auto pods = manager_->caches().of<Pod>();
  ASSERT_TRUE(eventually("the pod is found by what the controller's index says",
                         [&] { return pods.by_index("node", "n").size() == 1; }));
  EXPECT_TRUE(pods.by_index("node", "").empty());
  // A map function that throws does not harm the controller.
  const Json odd =
      parse_json(R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "odd"}})").value();
  ASSERT_EQ(api_.post("/api/v1/nodes", odd).status, 201);
  post(widget("v", R"({"say": "still here"})"));
  ASSERT_TRUE(eventually("the controller lives", [&] {
    return get_widget("v")["status"]["seen"].as_string() == "still here";
  }));
}

TEST_F(ControllerTest, ChangeMapperGetsBothVersions) {
  start();
  ASSERT_EQ(
      api_.post(
              "/api/v1/nodes",
              parse_json(
                  R"({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"widget": "w"}}})")
                  .value())
          .status,
      201);
  patch("/api/v1/nodes/n", R"({"metadata": {"labels": {"more": "x"}}})");
  ASSERT_EQ(api_.remove("/api/v1/nodes/n").status, 200);
  ASSERT_TRUE(eventually("all changes are mapped", [&] {
    std::lock_guard lock(reconciler_.mutex);
    return reconciler_.node_changes.size() == 3;
  }));
  std::lock_guard lock(reconciler_.mutex);
  EXPECT_EQ(reconciler_.node_changes, (std::vector<std::string>{"now", "before now", "before "}));
}

TEST_F(ControllerTest, DelayedObjectIsReconciledAgain) {
  start();
  post(widget("w", R"({"mode": "again"})"));
  ASSERT_TRUE(eventually("it came again and again", [&] { return reconciler_.runs > 10; }));
}

TEST_F(ControllerTest, ConflictingWritersBothSucceed) {
  start();
  post(widget("w", R"({"say": "0", "maps": {"a": {"k": "0"}}})"));
  settle();
  for (int i = 1; i <= 50; ++i) {
    patch(path("w"), ("{\"spec\": {\"say\": \"" + std::to_string(i) +
                      "\", \"maps\": {\"a\": {\"k\": \"" + std::to_string(i) + "\"}}}}")
                         .c_str());
    patch(map_path("a"), ("{\"data\": {\"theirs\": \"" + std::to_string(i) + "\"}}").c_str());
  }
  settle();
  EXPECT_EQ(get_widget("w")["status"]["seen"].as_string(), "50");
  EXPECT_EQ(api_.get(map_path("a")).body["data"],
            parse_json(R"({"k": "50", "theirs": "50"})").value());
}

TEST_F(ControllerTest, WriterEditsAppliesAndKeepsFinalizers) {
  start();
  manager_->caches();
  post(widget("w", R"({"mode": "hopeless"})"));
  settle();
  Writer& writer = manager_->writer();
  const Context ctx = Context().with_timeout(seconds(60));
  const Json live = get_widget("w");
  const ObjectRef ref{
      &widgets_resource(), {"default", "w"}, live["metadata"]["uid"].as_string(), ""};
  ASSERT_TRUE(writer.add_finalizer(ctx, ref, "test.varda.io/f").ok());
  ASSERT_TRUE(writer.add_finalizer(ctx, ref, "test.varda.io/f").ok());
  EXPECT_EQ(get_widget("w")["metadata"]["finalizers"].size(), 1u);
  ASSERT_TRUE(writer.remove(ctx, ref).ok());
  EXPECT_FALSE(get_widget("w")["metadata"]["deletionTimestamp"].is_null());
  ASSERT_TRUE(writer.remove_finalizer(ctx, ref, "test.varda.io/f").ok());
  EXPECT_EQ(api_.get(path("w")).status, 404);
  EXPECT_TRUE(writer.remove(ctx, ref).ok()) << "gone is no error";
  EXPECT_TRUE(writer
                  .edit(ctx, ref, Part::kStatus,
                        [](Json& object) {
                          object.set("status", Json::object({{"x", 1}}));
                        })
                  .ok());

  const Json map =
      parse_json(
          R"({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}, "data": {"a": "1"}})")
          .value();
  ASSERT_TRUE(writer.apply(ctx, map).ok());
  patch(map_path("m"), R"({"data": {"b": "2"}})");
  Json changed = map;
  changed.set("data", parse_json(R"({"c": "3"})").value());
  ASSERT_TRUE(writer.apply(ctx, changed).ok());
  EXPECT_EQ(api_.get(map_path("m")).body["data"], parse_json(R"({"b": "2", "c": "3"})").value());
  EXPECT_EQ(
      writer
          .apply(ctx,
                 parse_json(R"({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})")
                     .value())
          .error()
          .code(),
      Code::kInternal)
      << "nobody watches Secrets";
}

// A new leader's copy may be behind the writes of the previous leader.
TEST_F(ControllerTest, StatusOfOlderGenerationIsNotWritten) {
  start();
  post(widget("w", R"({"mode": "hopeless"})"));
  settle();
  const Context ctx = Context().with_timeout(seconds(60));
  const Widget read = Widget::from_json(get_widget("w")).value();
  const auto write_status = [&](int generation, const char* seen) {
    const Json status = Json::object({{"observedGeneration", generation}, {"seen", seen}});
    EXPECT_TRUE(manager_->writer().status(ctx, read, status).ok());
    return get_widget("w")["status"]["seen"].as_string();
  };
  EXPECT_EQ(write_status(2, "second"), "second");
  EXPECT_EQ(write_status(1, "first"), "second");
  EXPECT_EQ(write_status(2, "more"), "more");
  EXPECT_EQ(write_status(3, "third"), "third");
}

TEST_F(ControllerTest, BusyManagerStopsWithinAMinute) {
  start();
  for (int i = 0; i < 20; ++i)
    post(widget(("w" + std::to_string(i)).c_str(), R"({"mode": "again", "maps": {}})"));
  const auto begin = system_clock().now();
  stop();
  EXPECT_LT(system_clock().now() - begin,
            seconds(60));  // below the timeout of a watch, which takes minutes
}

TEST_F(ControllerTest, RepeatedEventsAreCounted) {
  metrics::Registry registry;
  ApiEventRecorder recorder(client_, {.component = "test", .metrics = &registry});
  const ObjectRef ref{&widgets_resource(), {"default", "w"}, "uid-1", "7"};
  const Context ctx = Context().with_timeout(seconds(60));
  for (int i = 0; i < 3; ++i) {
    recorder.record(ref, EventType::kWarning, "Broken", "it broke");
    recorder.flush(ctx);
  }
  recorder.record(ref, EventType::kWarning, "Broken", "it broke");
  recorder.record(ref, EventType::kWarning, "Broken", "it broke");
  recorder.flush(ctx);
  ASSERT_EQ(events().size(), 1u);
  EXPECT_EQ(events()[0]["count"].as_integer(), 5);
  EXPECT_EQ(events()[0]["source"]["component"].as_string(), "test");
  for (int i = 0; i < 100; ++i)
    recorder.record(ref, EventType::kNormal, "Many", "number " + std::to_string(i));
  recorder.flush(ctx);
  EXPECT_LE(events().size(), 26u) << "an object has a burst of 25";
  EXPECT_NE(registry.text().find("varda_events_dropped_total"), std::string::npos);
  recorder.record({&widgets_resource(), {"default", "x"}, "uid-2", ""}, EventType::kNormal, "Long",
                  std::string(5000, 'x'));
  recorder.flush(ctx);
  for (const Json& event : events()) EXPECT_LE(event["message"].as_string().size(), 1024u);
}

}  // namespace controller_test
}  // namespace varda::runtime
