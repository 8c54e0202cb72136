#include "runtime/informer.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/testing/eventually.h"
#include "runtime/testing/scripted_api.h"

namespace varda::runtime {
namespace informer_test {

using std::chrono::milliseconds;

const Resource& pods_resource() {
  static const Resource resource{"", "v1", "Pod", "pods", true};
  return resource;
}
using Pod = Raw<pods_resource>;

/// A pod whose spec must be an object.
struct StrictPod {
  meta::ObjectMeta metadata;
  Json json;
  static const Resource& resource() { return pods_resource(); }
  static Result<StrictPod> from_json(const Json& json) {
    if (!json["spec"].is_null() && !json["spec"].is_object())
      return Error(Code::kInvalid, "spec: must be an object");
    TRY(meta::ObjectMeta metadata, meta::ObjectMeta::from_json(json["metadata"]));
    return StrictPod{std::move(metadata), json};
  }
  Json to_json() const { return json; }
};

/// A pod type with a decoder that throws for some pods.
struct ThrowingPod {
  meta::ObjectMeta metadata;
  Json json;
  static const Resource& resource() { return pods_resource(); }
  static Result<ThrowingPod> from_json(const Json& json) {
    if (json["metadata"]["name"].as_string() == "poison")
      throw std::runtime_error("thrown by the test");
    TRY(meta::ObjectMeta metadata, meta::ObjectMeta::from_json(json["metadata"]));
    return ThrowingPod{std::move(metadata), json};
  }
  Json to_json() const { return json; }
};

/// A pod type that decodes until `faded` is set.
struct FadingPod {
  static inline std::atomic<bool> faded{false};
  meta::ObjectMeta metadata;
  Json json;
  static const Resource& resource() { return pods_resource(); }
  static Result<FadingPod> from_json(const Json& json) {
    if (faded) return Error(Code::kInvalid, "faded");
    TRY(meta::ObjectMeta metadata, meta::ObjectMeta::from_json(json["metadata"]));
    return FadingPod{std::move(metadata), json};
  }
  Json to_json() const { return json; }
};

class InformerTest : public ::testing::Test {
 protected:
  template <Object T = Pod>
  void start(Informer::Filter filter = {}) {
    auto options = Informer::typed<T>(std::move(filter));
    options.backoff_min = milliseconds(1);
    options.backoff_max = milliseconds(5);
    options.page_items = 2;
    options.keep = keep_;
    options.decoded_max = 1;
    options.trim = [this](Json& object) {
      ++read_;
      object.erase("extra");
    };
    options.whole = whole_;
    options.on_problem = [this](const Stored& stored) {
      record("problem " + stored.metadata.name + ": " + stored.problem);
    };
    informer_ = std::make_unique<Informer>(client_, std::move(options));
    informer_->on_change([this](const Change& change) {
      if (change.key.name == "trap") throw std::runtime_error("thrown by the test");
      record((!change.old   ? "+"
              : !change.now ? "-"
                            : "~") +
             change.key.name +
             (change.now ? change.now->metadata.resource_version : std::string()));
    });
    if (prepare_) prepare_(*informer_);
    if (report_progress_) {
      informer_->on_progress([this](const std::string& version, Informer::Progress how) {
        record((how == Informer::Progress::kListed ? "list" : "to") + version);
      });
    }
    thread_ = std::jthread([this](std::stop_token stop) { informer_->run(Context(stop)); });
  }

  void record(std::string text) {
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(std::move(text));
    }
    changed_.notify_all();
  }

  /// Waits for `count` changes and returns all as "+a1 ~a2 -a".
  std::string seen(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return seen_.size() >= count; });
    std::string out;
    for (const std::string& text : seen_) out += (out.empty() ? "" : " ") + text;
    return out;
  }
  void wait_version(const std::string& version) {
    ASSERT_TRUE(eventually("the informer has version " + version, [&] {
      return informer_->resource_version() == version;
    })) << informer_->resource_version();
  }
  void stop() {
    thread_.request_stop();
    thread_.join();
  }

  ScriptedApi api_;
  std::unique_ptr<net::HttpClient> http_ = net::loopback(api_.handler());
  kube::Client client_{*http_, {}};
  std::unique_ptr<Informer> informer_;
  bool report_progress_ = false;
  Informer::Keep keep_ = Informer::Keep::kObject;
  std::function<bool(const Json&)> whole_;
  std::function<void(Informer&)> prepare_;
  std::atomic<int> read_{0};  // objects decoded from lists, watches and writes
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> seen_;
  std::jthread thread_;
};

TEST_F(InformerTest, InformerListsInPagesThenWatches) {
  api_.answer(200, pod_list(10, {pod_object("a", 3), pod_object("b", 4)}, "token"));
  api_.answer(200, pod_list(10, {pod_object("c", 5)}));
  start();
  const std::string watch = api_.wait_watches(1);
  EXPECT_NE(watch.find("resourceVersion=10"), std::string::npos) << watch;
  EXPECT_NE(watch.find("allowWatchBookmarks=true"), std::string::npos) << watch;
  EXPECT_TRUE(informer_->has_synced());
  EXPECT_EQ(seen(3), "+a3 +b4 +c5");
  EXPECT_NE(api_.requests()[1].find("limit=2&continue=token"), std::string::npos)
      << api_.requests()[1];

  api_.send(watch_event("ADDED", pod_object("d", 11)));
  api_.send(watch_event("MODIFIED", pod_object("a", 12)));
  api_.send(watch_event("DELETED", pod_object("b", 13)));
  EXPECT_EQ(seen(6), "+a3 +b4 +c5 +d11 ~a12 -b");
  EXPECT_EQ(informer_->size(), 3u);
  EXPECT_EQ(informer_->get({"default", "b"}), nullptr);
  EXPECT_EQ(Cache<Pod>(*informer_).get({"default", "a"})->metadata.resource_version, "12");
  stop();
}

TEST_F(InformerTest, ProgressIsReportedAfterTheChanges) {
  report_progress_ = true;
  api_.answer(200, pod_list(10, {pod_object("a", 3), pod_object("b", 4)}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(seen(3), "+a3 +b4 list10");
  api_.send(watch_event("MODIFIED", pod_object("a", 12)));
  api_.send(watch_event("DELETED", pod_object("b", 13)));
  api_.send(watch_event(
      "BOOKMARK",
      Json::object({{"kind", "Pod"}, {"metadata", Json::object({{"resourceVersion", "40"}})}})));
  EXPECT_EQ(seen(8), "+a3 +b4 list10 ~a12 to12 -b to13 to40");
  stop();
}

TEST_F(InformerTest, TrimmedMembersAreNotStored) {
  Json pod = pod_object("a", 3);
  pod.make("metadata/managedFields").push_back(Json::object({{"manager", "kubectl"}}));
  pod.set("extra", "of no interest");
  api_.answer(200, pod_list(10, {pod}));
  start();
  EXPECT_EQ(seen(1), "+a3");
  const StoredPtr stored = informer_->get({"default", "a"});
  EXPECT_EQ(stored->text.find("managedFields"), std::string::npos) << stored->text;
  EXPECT_EQ(stored->text.find("extra"), std::string::npos) << stored->text;
  EXPECT_EQ(stored->metadata.unknown["managedFields"], Json());
  stop();
}

TEST_F(InformerTest, WatchResumesFromLastVersionWithoutList) {
  api_.answer(200, pod_list(10, {pod_object("a", 3)}));
  start();
  api_.wait_watches(1);
  api_.send(watch_event("MODIFIED", pod_object("a", 15)));
  EXPECT_EQ(seen(2), "+a3 ~a15");
  api_.end_watch();
  EXPECT_NE(api_.wait_watches(2).find("resourceVersion=15"), std::string::npos);
  api_.send(watch_event(
      "BOOKMARK",
      Json::object({{"kind", "Pod"}, {"metadata", Json::object({{"resourceVersion", "40"}})}})));
  wait_version("40");
  api_.end_watch();
  EXPECT_NE(api_.wait_watches(3).find("resourceVersion=40"), std::string::npos);
  int lists = 0;
  for (const std::string& request : api_.requests())
    lists += request.find("watch=true") == std::string::npos;
  EXPECT_EQ(lists, 1);
  stop();
}

TEST_F(InformerTest, ExpiredVersionCausesRelistAndReportsDifferences) {
  api_.answer(200, pod_list(10, {pod_object("a", 3), pod_object("b", 4), pod_object("c", 5)}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(seen(3), "+a3 +b4 +c5");
  api_.answer(200, pod_list(50, {pod_object("a", 3), pod_object("c", 45), pod_object("d", 46)}));
  const Json expired =
      codec::parse_json(
          R"({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})")
          .value();
  api_.send(watch_event("ERROR", expired));
  EXPECT_NE(api_.wait_watches(2).find("resourceVersion=50"), std::string::npos);
  EXPECT_EQ(seen(6), "+a3 +b4 +c5 -b ~c45 +d46");
  // The same if the request itself is refused.
  api_.answer(200, pod_list(60, {}));
  api_.refuse_watch(410, expired);
  api_.end_watch();
  EXPECT_NE(api_.wait_watches(3).find("resourceVersion=60"), std::string::npos);
  EXPECT_EQ(informer_->size(), 0u);
  stop();
}

TEST_F(InformerTest, FailuresAreRetriedUntilTheServerAnswers) {
  for (int i = 0; i < 3; ++i) api_.answer(500, Json::object());
  api_.answer(200, pod_list(10, {pod_object("a", 3)}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(seen(1), "+a3");
  EXPECT_GE(api_.requests().size(), 5u);
  stop();
}

TEST_F(InformerTest, MissingOptionalResourceIsSyncedAndEmpty) {
  api_.answer(404, Json::object());
  Informer::Options options = Informer::typed<Pod>();
  options.optional = true;
  Informer informer(client_, std::move(options));
  EXPECT_GE(informer.step(Context()), std::chrono::minutes(1))
      << "it is asked for again, and not soon";
  EXPECT_TRUE(informer.has_synced());
  EXPECT_FALSE(informer.served());
  EXPECT_EQ(informer.size(), 0u);
}

TEST_F(InformerTest, UnreadableObjectIsReportedAndHiddenFromCache) {
  Json bad = pod_object("bad", 4);
  bad.set("spec", "text");
  api_.answer(200, pod_list(10, {pod_object("a", 3), bad}));
  start<StrictPod>();
  api_.wait_watches(1);
  EXPECT_EQ(seen(3), "+a3 problem bad: spec: must be an object +bad4");
  const Cache<StrictPod> cache(*informer_);
  EXPECT_EQ(cache.get({"default", "bad"}), nullptr);
  EXPECT_EQ(cache.list().size(), 1u);
  EXPECT_EQ(informer_->list().size(), 2u);
  Json worse = pod_object("worse", 11);
  worse["metadata"].set("labels", 3);
  api_.send(watch_event("ADDED", worse));
  Json good = pod_object("bad", 12);
  api_.send(watch_event("MODIFIED", good));
  EXPECT_EQ(seen(6),
            "+a3 problem bad: spec: must be an object +bad4 problem worse: metadata.labels: must "
            "be an object of strings +worse11 "
            "~bad12");
  EXPECT_NE(cache.get({"default", "bad"}), nullptr);
  stop();
}

TEST_F(InformerTest, ExceptionsDoNotAffectOtherObjects) {
  api_.answer(200, pod_list(10, {pod_object("a", 3), pod_object("poison", 4), pod_object("trap", 5),
                                 pod_object("z", 6)}));
  start<ThrowingPod>();
  api_.wait_watches(1);  // the list in which the handler threw is read again
  EXPECT_TRUE(informer_->has_synced());
  EXPECT_EQ(seen(4), "+a3 problem poison: exception: thrown by the test +poison4 +z6");
  api_.send(watch_event("MODIFIED", pod_object("trap", 11)));
  api_.answer(200, pod_list(20, {pod_object("a", 12), pod_object("trap", 11)}));
  EXPECT_NE(api_.wait_watches(2).find("resourceVersion=20"), std::string::npos);
  EXPECT_EQ(seen(7),
            "+a3 problem poison: exception: thrown by the test +poison4 +z6 -poison -z ~a12");
  stop();
}

TEST_F(InformerTest, OwnWriteIsVisibleAtOnceAndItsEchoIsIgnored) {
  api_.answer(200, pod_list(10, {pod_object("a", 3)}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(seen(1), "+a3");
  informer_->wrote(pod_object("a", 20));
  informer_->wrote(pod_object("n", 21));
  EXPECT_EQ(seen(3), "+a3 ~a20 +n21");
  EXPECT_EQ(read_, 3);
  api_.send(watch_event("MODIFIED", pod_object("a", 15)));  // older: sent before our write
  api_.send(watch_event("MODIFIED", pod_object("a", 20)));
  api_.send(watch_event("ADDED", pod_object("n", 21)));
  api_.send(watch_event("DELETED", pod_object("n", 22)));
  EXPECT_EQ(seen(4), "+a3 ~a20 +n21 -n");
  wait_version("22");
  EXPECT_EQ(read_, 4) << "only the older of the events that the watch sent";
  informer_->wrote(pod_object("n", 21));  // late: the watch has delivered the deletion
  EXPECT_EQ(informer_->get({"default", "n"}), nullptr);
  stop();
}

TEST_F(InformerTest, RelistKeepsNewerOwnWrites) {
  api_.answer(200, pod_list(10, {}));
  start();
  api_.wait_watches(1);
  informer_->wrote(pod_object("mine", 30));
  api_.answer(200, pod_list(20, {}));
  api_.send(watch_event(
      "ERROR", codec::parse_json(R"({"kind": "Status", "code": 410, "reason": "Gone"})").value()));
  api_.wait_watches(2);
  EXPECT_NE(informer_->get({"default", "mine"}), nullptr);
  api_.send(watch_event("ADDED", pod_object("mine", 30)));
  api_.send(watch_event("DELETED", pod_object("mine", 31)));
  EXPECT_EQ(seen(2), "+mine30 -mine");
  stop();
}

TEST_F(InformerTest, ExpiredPageRestartsTheList) {
  api_.answer(200, pod_list(10, {pod_object("a", 3), pod_object("b", 4)}, "token"));
  api_.answer(410,
              codec::parse_json(R"({"kind": "Status", "code": 410, "reason": "Expired"})").value());
  api_.answer(200, pod_list(12, {pod_object("b", 4), pod_object("c", 11)}));
  start();
  EXPECT_NE(api_.wait_watches(1).find("resourceVersion=12"), std::string::npos);
  EXPECT_EQ(seen(2), "+b4 +c11") << "a has gone meanwhile";
  EXPECT_EQ(informer_->size(), 2u);
  stop();
}

Json labelled(const char* name, int version, const std::string& label) {
  Json pod = pod_object(name, version);
  pod.make("metadata/labels").set("app", label);
  pod.make("metadata/annotations").set("long", "a long text");
  return pod;
}

// Readers see the same, however an informer keeps its objects.
class InformerCacheModeTest : public InformerTest,
                              public ::testing::WithParamInterface<Informer::Keep> {};
INSTANTIATE_TEST_SUITE_P(Informer, InformerCacheModeTest,
                         ::testing::Values(Informer::Keep::kObject, Informer::Keep::kText),
                         [](const auto& keep) {
                           return keep.param == Informer::Keep::kText ? "Text" : "Object";
                         });

TEST_P(InformerCacheModeTest, IndexReturnsCurrentObjectsByValue) {
  keep_ = GetParam();
  prepare_ = [](Informer& informer) {
    informer.add_index("app", [](const Stored& stored) -> std::vector<std::string> {
      const auto pod = std::static_pointer_cast<const Pod>(stored.object());
      const auto label = pod->metadata.labels.find("app");
      if (label == pod->metadata.labels.end()) return {};
      return {label->second, "any", label->second};
    });
    informer.add_index("app", [](const Stored&) -> std::vector<std::string> {
      return {"the second of a name is not kept"};
    });
  };
  api_.answer(200, pod_list(10, {labelled("b", 4, "x"), labelled("a", 3, "x")}, "token"));
  api_.answer(200, pod_list(10, {pod_object("c", 5)}));
  start();
  api_.wait_watches(1);
  const Cache<Pod> cache(*informer_);
  const auto names = [&](std::string_view value) {
    std::string out;
    for (const auto& pod : cache.by_index("app", value)) out += pod->metadata.name;
    return out;
  };
  EXPECT_EQ(names("x"), "ab") << "by key, once each";
  EXPECT_EQ(names("any"), "ab");
  EXPECT_EQ(names("y"), "");
  EXPECT_EQ(names("the second of a name is not kept"), "");
  api_.send(watch_event("MODIFIED", labelled("a", 11, "y")));
  api_.send(watch_event("MODIFIED", labelled("c", 12, "y")));
  api_.send(watch_event("DELETED", labelled("b", 13, "x")));
  wait_version("13");
  EXPECT_EQ(names("x"), "");
  EXPECT_EQ(names("y"), "ac");
  EXPECT_EQ(names("any"), "ac");
  EXPECT_EQ(cache.first_by_index("app", "y")->metadata.name, "a");
  EXPECT_EQ(cache.first_by_index("app", "x"), nullptr);
  EXPECT_EQ(cache.by_index("app", "y").front()->metadata.resource_version, "11")
      << "the newest version";
  EXPECT_EQ(cache.list().size(), 2u);
  EXPECT_EQ(cache.select(meta::LabelSelector::equals({{"app", "y"}})).size(), 2u);
  EXPECT_EQ(cache.select(meta::LabelSelector::equals({{"app", "x"}})).size(), 0u);
  stop();
}

TEST_P(InformerCacheModeTest, IndexFunctionRunsOncePerVersion) {
  keep_ = GetParam();
  std::atomic<int> requests{0};
  prepare_ = [&](Informer& informer) {
    informer.add_index("app", [&](const Stored& stored) -> std::vector<std::string> {
      ++requests;
      return {stored.object() ? stored.metadata.labels.at("app") : "cannot be read"};
    });
  };
  api_.answer(200, pod_list(10, {labelled("a", 3, "x"), labelled("b", 4, "x")}));
  start<FadingPod>();
  api_.wait_watches(1);
  FadingPod::faded = true;
  api_.send(watch_event("DELETED", labelled("a", 11, "x")));
  api_.send(watch_event("MODIFIED", labelled("b", 12, "x")));
  wait_version("12");
  FadingPod::faded = false;
  EXPECT_EQ(informer_->by_index("app", "x").size(), 0u)
      << "one is gone, and the other cannot be read any more";
  EXPECT_EQ(requests, 2);
  api_.send(watch_event("MODIFIED", labelled("b", 13, "y")));
  api_.send(watch_event("MODIFIED", labelled("b", 14, "z")));
  wait_version("14");
  EXPECT_EQ(informer_->by_index("app", "y").size(), 0u);
  EXPECT_EQ(informer_->by_index("app", "z").size(), 1u);
  EXPECT_EQ(requests, 4);
  stop();
}

TEST_P(InformerCacheModeTest, ThrowingIndexFunctionAffectsOnlyItsObject) {
  keep_ = GetParam();
  prepare_ = [](Informer& informer) {
    informer.add_index("app", [](const Stored& stored) -> std::vector<std::string> {
      if (stored.metadata.name == "poison") throw std::runtime_error("thrown by the test");
      return {"any"};
    });
  };
  api_.answer(200, pod_list(10, {labelled("poison", 3, "x"), labelled("z", 4, "x")}));
  start();
  api_.wait_watches(1);
  EXPECT_TRUE(informer_->has_synced());
  EXPECT_EQ(seen(2), "+poison3 +z4");
  EXPECT_EQ(informer_->by_index("app", "any").size(), 1u);
  stop();
}

TEST_P(InformerCacheModeTest, PartialObjectIsFoundByOwnerOnly) {
  keep_ = GetParam();
  whole_ = [](const Json& object) { return object["metadata"]["name"].as_string() != "part"; };
  prepare_ = [](Informer& informer) {
    informer.add_index("name", [](const Stored& stored) -> std::vector<std::string> {
      return {"any", std::static_pointer_cast<const Pod>(stored.object())->metadata.name};
    });
  };
  const auto owned = [](const char* name, int version) {
    Json pod = pod_object(name, version);
    pod.make("metadata")
        .set("ownerReferences",
             Json::array({Json::object({{"kind", "ReplicaSet"}, {"uid", "u1"}})}));
    return pod;
  };
  api_.answer(200, pod_list(10, {owned("part", 3), owned("whole", 4)}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(informer_->by_index("name", "any").size(), 1u);
  EXPECT_EQ(informer_->by_index("name", "whole").size(), 1u);
  EXPECT_EQ(informer_->owned_by("u1").size(), 2u);
  stop();
}

TEST_P(InformerCacheModeTest, CacheReturnsFullObjectsAndOmitsUnreadableOnes) {
  keep_ = GetParam();
  Json bad = pod_object("bad", 4);
  bad.set("spec", "text");
  api_.answer(200, pod_list(10, {labelled("a", 3, "x"), bad}));
  start<StrictPod>();
  api_.wait_watches(1);
  const StoredPtr stored = informer_->get({"default", "a"});
  EXPECT_EQ(stored->typed == nullptr, keep_ == Informer::Keep::kText);
  EXPECT_EQ(stored->json(), labelled("a", 3, "x"));
  EXPECT_EQ(stored->metadata.annotations.size(), 0u) << "they stand in the text";
  const Cache<StrictPod> cache(*informer_);
  const auto before = cache.get({"default", "a"});
  EXPECT_EQ(before->metadata.annotations.at("long"), "a long text");
  EXPECT_EQ(cache.get({"default", "bad"}), nullptr);
  EXPECT_EQ(cache.list().size(), 1u);
  // Returned objects never change.
  api_.send(watch_event("MODIFIED", labelled("a", 11, "y")));
  api_.send(watch_event("MODIFIED", pod_object("bad", 12)));
  wait_version("12");
  EXPECT_EQ(before->metadata.labels.at("app"), "x");
  EXPECT_EQ(std::static_pointer_cast<const StrictPod>(stored->object())->metadata.labels.at("app"),
            "x");
  EXPECT_EQ(cache.get({"default", "a"})->metadata.labels.at("app"), "y");
  EXPECT_EQ(cache.list().size(), 2u);
  stop();
}

TEST_F(InformerTest, FiltersAreSentInEveryRequest) {
  api_.answer(200, pod_list(10, {}));
  start({.ns = "n", .label_selector = "a=b", .field_selector = "spec.nodeName=edge0"});
  api_.wait_watches(1);
  for (const std::string& request : api_.requests()) {
    EXPECT_NE(request.find("/api/v1/namespaces/n/pods?"), std::string::npos) << request;
    EXPECT_NE(request.find("labelSelector=a%3Db"), std::string::npos) << request;
    EXPECT_NE(request.find("fieldSelector=spec.nodeName%3Dedge0"), std::string::npos) << request;
  }
  informer_->wrote(pod_object("x", 20, "n"));
  EXPECT_EQ(informer_->size(), 0u) << "whether a filter lets it through is not known here";
  stop();
}

TEST_F(InformerTest, ChildrenAreFoundByTheirOwner) {
  Json child = pod_object("c", 4);
  child["metadata"].set("ownerReferences",
                        codec::parse_json(R"([{"uid": "o1"}, {"uid": "o2"}])").value());
  api_.answer(200, pod_list(10, {pod_object("a", 3), child}));
  start();
  api_.wait_watches(1);
  EXPECT_EQ(informer_->owned_by("o1").size(), 1u);
  EXPECT_EQ(informer_->owned_by("o2").size(), 1u);
  child["metadata"].set("ownerReferences", codec::parse_json(R"([{"uid": "o2"}])").value());
  child["metadata"].set("resourceVersion", "11");
  api_.send(watch_event("MODIFIED", child));
  EXPECT_EQ(seen(3), "+a3 +c4 ~c11");
  EXPECT_EQ(informer_->owned_by("o1").size(), 0u);
  EXPECT_EQ(informer_->owned_by("o2").size(), 1u);
  api_.send(watch_event("DELETED", pod_object("c", 12)));
  EXPECT_EQ(seen(4), "+a3 +c4 ~c11 -c");
  EXPECT_EQ(informer_->owned_by("o2").size(), 0u);
  stop();
}

}  // namespace informer_test
}  // namespace varda::runtime
