// One suite for both stores.
#include "store/store.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <stdlib.h>
#include <thread>

namespace varda::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Which { kMemory, kSqlite };

class Stores : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "store_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }
  void open(Options options = {}) {
    store_.reset();
    if (GetParam() == Which::kMemory) {
      store_ = open_memory(options);
    } else {
      auto opened = open_sqlite(root_ / "store.db", options);
      ASSERT_TRUE(opened.ok()) << opened.error();
      store_ = std::move(opened).value();
    }
  }
  Revision put(const std::string& key, const std::string& value,
               std::optional<Revision> expected = std::nullopt) {
    auto revision = store_->put(key, value, expected);
    EXPECT_TRUE(revision.ok()) << revision.error();
    return revision.value_or(-1);
  }
  std::vector<std::string> list(ListOptions options = {}) {
    auto page = store_->list(options);
    if (!page.ok()) return {page.error().message()};
    std::vector<std::string> out;
    for (const Entry& entry : page->entries)
      out.push_back(entry.key + "=" + *entry.value + "@" + std::to_string(entry.modified));
    return out;
  }
  static std::string text(const Event& event) {
    return (event.type == EventType::kPut ? "put " : "delete ") + event.entry.key + "=" +
           *event.entry.value + "@" + std::to_string(event.entry.modified) +
           (event.previous
                ? " was " + *event.previous + "@" + std::to_string(event.previous_modified)
                : "");
  }
  static std::vector<std::string> poll(Watch& watch, std::size_t max = 256) {
    auto events = watch.poll(max);
    if (!events.ok()) return {std::string(to_string(events.error().code()))};
    std::vector<std::string> out;
    for (const Event& event : *events) out.push_back(text(event));
    return out;
  }

  std::filesystem::path root_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(All, Stores, ::testing::Values(Which::kMemory, Which::kSqlite),
                         [](const auto& which) {
                           return which.param == Which::kMemory ? "Memory" : "Sqlite";
                         });

TEST_P(Stores, RevisionsCountCommits) {
  EXPECT_EQ(store_->revision(), 0);
  EXPECT_EQ(put("a", "1"), 1);
  EXPECT_EQ(put("b", "1"), 2);
  EXPECT_EQ(put("a", "2"), 3);
  const Entry entry = store_->get("a").value().value();
  EXPECT_EQ(*entry.value, "2");
  EXPECT_EQ(entry.created, 1);
  EXPECT_EQ(entry.modified, 3);
  EXPECT_FALSE(store_->get("c").value());
  EXPECT_EQ(store_->revision(), 3);
}

TEST_P(Stores, ExpectedRevisionGuardsWritesAndDeletions) {
  put("a", "1", 0);
  EXPECT_EQ(store_->put("a", "2", 0).error().code(), Code::kConflict);
  EXPECT_EQ(store_->put("a", "2", 7).error().code(), Code::kConflict);
  EXPECT_EQ(store_->remove("a", 7).error().code(), Code::kConflict);
  EXPECT_EQ(store_->remove("nothing", 7).error().code(), Code::kConflict);
  EXPECT_THAT(store_->put("a", "2", 7).error().message(),
              HasSubstr("a: expected revision 7, it is at 1"));
  EXPECT_EQ(put("a", "2", 1), 2);
  EXPECT_EQ(store_->remove("a", 2).value(), 3);
  EXPECT_FALSE(store_->get("a").value());
  EXPECT_EQ(put("a", "3", 0), 4);
  EXPECT_EQ(store_->get("a").value()->created, 4);
}

TEST_P(Stores, DeletingAMissingKeyIsNoCommit) {
  put("a", "1");
  EXPECT_EQ(store_->remove("b").value(), 1);
  EXPECT_EQ(store_->revision(), 1);
}

TEST_P(Stores, TransactionAppliesCompletelyOrNotAtAll) {
  put("a", "1");
  std::vector<Op> bad;
  bad.emplace_back(Put{.key = "b", .value = "1", .expected = {}});
  bad.emplace_back(Put{.key = "a", .value = "2", .expected = 9});
  EXPECT_EQ(store_->commit(bad).error().code(), Code::kConflict);
  EXPECT_THAT(list(), ElementsAre("a=1@1"));
  std::vector<Op> good;
  good.emplace_back(Put{.key = "b", .value = "1", .expected = 0});
  good.emplace_back(Delete{.key = "a", .expected = 1});
  auto watch = store_->watch("", 0).value();
  EXPECT_EQ(store_->commit(good).value(), 2);
  EXPECT_THAT(poll(*watch), ElementsAre("put a=1@1", "put b=1@2", "delete a=1@2 was 1@1"));
}

TEST_P(Stores, InvalidTransactionsAreRefused) {
  EXPECT_EQ(store_->commit({}).error().code(), Code::kInvalid);
  EXPECT_EQ(store_->put("", "x").error().code(), Code::kInvalid);
  std::vector<Op> twice;
  twice.emplace_back(Put{.key = "a", .value = "1", .expected = {}});
  twice.emplace_back(Delete{.key = "a", .expected = {}});
  EXPECT_EQ(store_->commit(twice).error().code(), Code::kInvalid);
  open({.value_bytes_max = 4});
  EXPECT_EQ(store_->put("a", "12345").error().code(), Code::kExhausted);
  EXPECT_TRUE(store_->put("a", "1234").ok());
}

TEST_P(Stores, ListReturnsPagesOfAPrefix) {
  for (const char* key : {"/p/a", "/p/b", "/p/c", "/q/a", "/o"}) put(key, "v");
  EXPECT_THAT(list({.prefix = "/p/"}), ElementsAre("/p/a=v@1", "/p/b=v@2", "/p/c=v@3"));
  const Page first = store_->list({.prefix = "/p/", .start_after = "", .limit = 2}).value();
  EXPECT_EQ(first.entries.size(), 2u);
  EXPECT_TRUE(first.more);
  EXPECT_EQ(first.remaining, 1u);
  const Page second =
      store_->list({.prefix = "/p/", .start_after = "/p/b", .limit = 2, .at = first.revision})
          .value();
  EXPECT_EQ(second.entries.at(0).key, "/p/c");
  EXPECT_FALSE(second.more);
  EXPECT_THAT(list({.prefix = "/x"}), IsEmpty());
}

TEST_P(Stores, ListAtARevisionReturnsTheSnapshot) {
  put("/p/a", "1");
  put("/p/b", "1");
  put("/p/a", "2");
  (void)store_->remove("/p/b").value();
  put("/p/c", "1");
  put("/q", "1");
  EXPECT_THAT(list({.prefix = "/p/", .at = 1}), ElementsAre("/p/a=1@1"));
  EXPECT_THAT(list({.prefix = "/p/", .at = 2}), ElementsAre("/p/a=1@1", "/p/b=1@2"));
  EXPECT_THAT(list({.prefix = "/p/", .at = 3}), ElementsAre("/p/a=2@3", "/p/b=1@2"));
  EXPECT_THAT(list({.prefix = "/p/", .at = 4}), ElementsAre("/p/a=2@3"));
  EXPECT_THAT(list({.prefix = "/p/"}), ElementsAre("/p/a=2@3", "/p/c=1@5"));
  EXPECT_THAT(list({.prefix = "/p/", .start_after = "/p/a", .limit = 1, .at = 3}),
              ElementsAre("/p/b=1@2"));
  EXPECT_EQ(store_->list({.prefix = "", .start_after = "", .limit = 0, .at = 99}).error().code(),
            Code::kInvalid);
}

TEST_P(Stores, WatchSendsHistoryThenEventsOfItsPrefix) {
  put("/p/a", "1");
  put("/q/a", "1");
  put("/p/a", "2");
  auto watch = store_->watch("/p/", 1).value();
  EXPECT_EQ(watch->progress(), 2);  // revision 3 is queued
  EXPECT_THAT(poll(*watch), ElementsAre("put /p/a=2@3 was 1@1"));
  EXPECT_EQ(watch->progress(), 3);
  EXPECT_THAT(poll(*watch), IsEmpty());
  put("/q/a", "2");
  EXPECT_THAT(poll(*watch), IsEmpty());
  EXPECT_EQ(watch->progress(), 4);
  (void)store_->remove("/p/a").value();
  EXPECT_THAT(poll(*watch), ElementsAre("delete /p/a=2@5 was 2@3"));
}

TEST_P(Stores, PollReturnsAtMostTheRequestedCount) {
  auto watch = store_->watch("", 0).value();
  for (int i = 0; i < 5; ++i) put("k" + std::to_string(i), "v");
  EXPECT_EQ(poll(*watch, 2).size(), 2u);
  EXPECT_EQ(watch->progress(), 2);
  EXPECT_EQ(poll(*watch).size(), 3u);
}

TEST_P(Stores, WatchFromAFutureRevisionWaits) {
  auto watch = store_->watch("", 2).value();
  put("a", "1");
  put("a", "2");
  EXPECT_THAT(poll(*watch), IsEmpty());
  put("a", "3");
  EXPECT_THAT(poll(*watch), ElementsAre("put a=3@3 was 2@2"));
}

TEST_P(Stores, SlowWatchIsClosedAndWritersContinue) {
  open({.watch_queue_events_max = 3});
  auto slow = store_->watch("", 0).value();
  auto other = store_->watch("k0", 0).value();
  for (int i = 0; i < 5; ++i) put("k" + std::to_string(i), "v");
  EXPECT_THAT(poll(*slow), ElementsAre("exhausted"));
  EXPECT_THAT(poll(*other), ElementsAre("put k0=v@1"));
}

TEST_P(Stores, LongHistoryDoesNotCloseAResumingWatch) {
  open({.watch_queue_events_max = 3});
  for (int i = 0; i < 20; ++i) put("k", std::to_string(i));
  auto watch = store_->watch("", 0).value();
  put("k", "last");
  EXPECT_EQ(poll(*watch).size(), 21u);
}

TEST_P(Stores, CompactionRemovesHistoryAndKeepsValues) {
  put("a", "1");
  put("a", "2");
  put("a", "3");
  ASSERT_TRUE(store_->compact(2).ok());
  EXPECT_EQ(store_->oldest(), 2);
  EXPECT_EQ(store_->watch("", 1).error().code(), Code::kGone);
  EXPECT_EQ(store_->list({.prefix = "", .start_after = "", .limit = 0, .at = 1}).error().code(),
            Code::kGone);
  EXPECT_THAT(list({.at = 2}), ElementsAre("a=2@2"));
  EXPECT_THAT(poll(*store_->watch("", 2).value()), ElementsAre("put a=3@3 was 2@2"));
  EXPECT_EQ(store_->compact(9).error().code(), Code::kInvalid);
  EXPECT_EQ(put("a", "4"), 4);
}

TEST_P(Stores, HistoryStaysWithinItsLimits) {
  open({.history_events_max = 10});
  for (int i = 0; i < 25; ++i) put("k", std::to_string(i));
  EXPECT_EQ(store_->oldest(), 15);
  EXPECT_EQ(poll(*store_->watch("", 15).value()).size(), 10u);
  open({.history_bytes_max = 5000});
  for (int i = 0; i < 25; ++i) put("k", std::string(1000, 'x'));
  EXPECT_GT(store_->oldest(), store_->revision() - 6);
}

TEST_P(Stores, ReadyCallbackRunsOnEventsAndWaitEndsWithItsContext) {
  auto watch = store_->watch("/p/", 0).value();
  std::atomic<int> wakes{0};
  watch->on_ready([&] { ++wakes; });
  EXPECT_EQ(wakes, 0);
  put("/q/a", "1");
  EXPECT_EQ(wakes, 0);
  put("/p/a", "1");
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(watch->wait(Context::background()).ok());
  EXPECT_EQ(poll(*watch).size(), 1u);
  EXPECT_EQ(
      watch->wait(Context::background().with_timeout(std::chrono::milliseconds(5))).error().code(),
      Code::kTimeout);
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(watch->wait(Context(stop.get_token())).error().code(), Code::kCancelled);
}

TEST_P(Stores, WatchOutlivesItsStore) {
  auto watch = store_->watch("", 0).value();
  put("a", "1");
  store_.reset();
  EXPECT_THAT(poll(*watch), ElementsAre("put a=1@1"));
  EXPECT_THAT(poll(*watch), ElementsAre("unavailable"));
  EXPECT_TRUE(watch->wait(Context::background()).ok());
}

TEST_P(Stores, EveryWatchGetsEveryEventOnceInOrder) {
  constexpr int kWriters = 8, kWrites = 60, kWatchers = 4;
  std::vector<std::jthread> threads;
  std::vector<std::vector<Revision>> seen(kWatchers);
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  for (int w = 0; w < kWatchers; ++w) {
    threads.emplace_back([&, w] {
      auto watch = store_->watch("/k/", 0).value();
      while (seen[w].size() < kWriters * kWrites) {
        if (!watch->wait(ctx).ok()) return;
        const auto events = watch->poll(16).value();
        for (const Event& event : events) seen[w].push_back(event.entry.modified);
        const Revision progress = watch->progress();
        if (!events.empty() && progress < events.back().entry.modified) seen[w].push_back(-1);
      }
    });
  }
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < kWrites; ++i) {
        // Half of the writes race for one key, with optimistic locking.
        if (i % 2 == 0) {
          (void)put("/k/" + std::to_string(w), std::to_string(i));
          continue;
        }
        for (;;) {
          const auto old = store_->get("/k/shared").value();
          const auto done =
              store_->put("/k/shared", std::to_string(old ? std::stoi(*old->value) + 1 : 1),
                          old ? old->modified : 0);
          if (done.ok()) break;
          ASSERT_EQ(done.error().code(), Code::kConflict);
        }
      }
    });
  }
  threads.clear();
  std::vector<Revision> all(kWriters * kWrites);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Revision>(i) + 1;
  for (const auto& revisions : seen) EXPECT_EQ(revisions, all);
  EXPECT_EQ(*store_->get("/k/shared").value()->value, std::to_string(kWriters * kWrites / 2));
}

TEST_P(Stores, WatchesOpenAndCloseDuringWrites) {
  constexpr int kWatchers = 3;
  std::latch opened(kWatchers);  // the first watch of each thread
  std::atomic<bool> done{false};
  std::jthread writer([&] {
    opened.wait();
    for (int i = 0; i < 300; ++i) (void)put("k", std::to_string(i));
    done = true;
  });
  std::vector<std::jthread> watchers;
  for (int w = 0; w < kWatchers; ++w) {
    watchers.emplace_back([&] {
      for (int round = 0; round == 0 || !done; ++round) {
        auto page = store_->list({}).value();
        std::atomic<int> wakes{0};  // outlives the watch, which uses it until its end
        auto watch = store_->watch("", page.revision).value();
        watch->on_ready([&wakes] { ++wakes; });
        if (round == 0) opened.count_down();
        Revision last = page.revision;
        for (int i = 0; i < 3; ++i) {
          const bool certain = round == 0 && i == 0;  // all writes are still to come
          const Status ready = watch->wait(
              Context::background().with_timeout(std::chrono::milliseconds(certain ? 60'000 : 2)));
          EXPECT_TRUE(ready.ok() || !certain) << "no event";
          const auto events = watch->poll().value();
          for (const Event& event : events) EXPECT_EQ(event.entry.modified, ++last);
        }
      }
    });
  }
}

}  // namespace
}  // namespace varda::store
