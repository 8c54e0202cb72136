// Tier counters of servers, summed over restarts of servers and agents, and lost disks.
#include "agent/models/tier_counters.h"

#include <gtest/gtest.h>

#include "agent/models/tier_counter_store.h"
#include "node/testing/fakes.h"
#include "store/store.h"

namespace varda::agent::models {
namespace tier_counters_test {

using codec::Json;
using std::chrono::seconds;

Json json(const std::string& text) { return codec::parse_json(text).value(); }

constexpr const char* kTiers = R"([{"name": "edge", "state": "Ready"}])";

Json answer_json(const std::string& instance, const std::string& counters,
                 const std::string& more = "") {
  return json(R"({"instance": ")" + instance + R"(", "counters": )" + counters + R"(, "tiers": )" +
              kTiers + more + "}");
}
TierAnswer answer(const std::string& instance, const std::string& counters) {
  return read_tier_answer(answer_json(instance, counters)).value();
}

TEST(TierAnswer, InvalidAnswerIsRejectedWithReason) {
  const struct {
    std::string text, error;
  } kCases[] = {
      {R"([])", "it is not an object"},
      {R"({"counters": {}, "tiers": []})", "instance is not a text of 1 to 128 bytes"},
      {R"({"instance": "a", "tiers": []})", "counters is not an object"},
      {R"({"instance": "a", "counters": {"x": -1}, "tiers": []})",
       "counters/x must be an integer from 0 to 2^53"},
      {R"({"instance": "a", "counters": {"x": 1.5}, "tiers": []})",
       "counters/x must be an integer from 0 to 2^53"},
      {R"({"instance": "a", "counters": {"x": 9007199254740993}, "tiers": []})",
       "counters/x must be an integer from 0 to 2^53"},
      {R"({"instance": "a", "counters": {"x": "1"}, "tiers": []})",
       "counters/x must be an integer from 0 to 2^53"},
      {R"({"instance": "a", "counters": {"x": null}, "tiers": []})",
       "counters/x must be an integer from 0 to 2^53"},
      {R"({"instance": "a", "counters": {"a": {"b": {"c": {"d": {"e": 1}}}}}, "tiers": []})",
       "counters/a/b/c/d is nested too deeply"},
      {R"({"instance": "a", "counters": {")" + std::string(129, 'x') + R"(": 1}, "tiers": []})",
       "a counter's name has more than 128 bytes"},
      {R"({"instance": "a", "counters": {}})", "tiers is not a list of at most 16"},
      {R"({"instance": "a", "counters": {}, "tiers": [1]})", "a tier is not an object"},
      {R"({"instance": "a", "counters": {}, "tiers": [], "degraded": "yes"})",
       "degraded is not an object"},
      {R"({"instance": "a", "counters": {}, "tiers": [], "problem": []})",
       "problem is not an object"},
      {R"({"instance": "a", "counters": {}, "tiers": [], "more": ")" + std::string(17 << 10, 'x') +
           R"("})",
       "it has more than 16384 bytes besides counters"},
  };
  for (const auto& one : kCases) {
    const auto read = read_tier_answer(json(one.text));
    ASSERT_FALSE(read.ok()) << one.text.substr(0, 100);
    EXPECT_EQ(read.error().message(), "the answer about tiers: " + one.error);
  }
  std::string many;
  for (int i = 0; i <= 512; ++i)
    many += (i == 0 ? "" : ",") + ("\"c" + std::to_string(i) + "\": 1");
  EXPECT_EQ(read_tier_answer(answer_json("a", "{" + many + "}")).error().message(),
            "the answer about tiers: it has more than 512 counters");
}

TEST(TierAnswer, UnknownMembersAreKeptAndLatenciesRounded) {
  const auto read = read_tier_answer(
      json(R"({"instance": "9f", "counters": {"inferences": 41, "called": {"cloud/eu": 0, "~": 2},
      "errors": {"cloud": {"Timeout": 1, "Refused": 0}}}, "later": [1],
      "tiers": [{"name": "edge", "p50Us": 87, "p99Us": 1049, "x": 3}, {"name": "cloud", "p50Us": 99951}]})"));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->instance, "9f");
  EXPECT_EQ(read->counters, (Counts{{"/inferences", 41},
                                    {"/called/cloud~1eu", 0},
                                    {"/called/~0", 2},
                                    {"/errors/cloud/Timeout", 1}}));
  EXPECT_EQ(
      codec::write_json(read->rest),
      R"({"later":[1],"tiers":[{"name":"edge","p50Us":87,"p99Us":1000,"x":3},{"name":"cloud","p50Us":100000}]})");
}

TEST(TierAnswer, OnlyStateChangesAreUrgent) {
  const std::string base =
      R"({"tiers": [{"name": "cloud", "state": "Open", "lastError": "a", "p50Us": 1}],
      "degraded": {"reason": "BreakerOpen", "message": "a", "since": "1"}})";
  const struct {
    std::string other;
    bool urgent, noteworthy;
  } kCases[] = {
      {R"({"tiers": [{"name": "cloud", "state": "HalfOpen", "lastError": "a", "p50Us": 9}],
          "degraded": {"reason": "BreakerOpen", "message": "a", "since": "2"}})",
       false, false},
      {R"({"tiers": [{"name": "cloud", "state": "Open", "lastError": "b", "p50Us": 1}],
          "degraded": {"reason": "BreakerOpen", "message": "b", "since": "2"}})",
       false, true},
      {R"({"tiers": [{"name": "cloud", "state": "Ready", "lastError": "a", "p50Us": 1}],
          "degraded": {"reason": "BreakerOpen", "message": "a", "since": "1"}})",
       true, true},
      {R"({"tiers": [{"name": "cloud", "state": "Open", "lastError": "a", "p50Us": 1}]})", true,
       true},
      {R"({"tiers": [{"name": "cloud", "state": "Open", "lastError": "a", "p50Us": 1, "version": "2"}],
          "degraded": {"reason": "BreakerOpen", "message": "a", "since": "1"}})",
       true, true},
      {R"({"tiers": [{"name": "cloud", "state": "Open", "lastError": "a", "p50Us": 1}],
          "degraded": {"reason": "BreakerOpen", "message": "a", "since": "1"}, "problem": {"reason": "PolicyMismatch"}})",
       true, true},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(urgent(json(base)) != urgent(json(one.other)), one.urgent) << one.other;
    EXPECT_EQ(noteworthy(json(base)) != noteworthy(json(one.other)), one.noteworthy) << one.other;
  }
}

TEST(TierCounters, CountersAddUpOverServerRestartsWithoutDuplicates) {
  TierCounters record("e1", "");
  record.take(answer("a", R"({"n": 5, "called": {"cloud": 2}})"));
  record.take(answer("a", R"({"n": 9, "called": {"cloud": 2}})"));
  EXPECT_EQ(record.sums(), (Counts{{"/n", 9}, {"/called/cloud", 2}}));
  record.take(answer("b", R"({"n": 1, "called": {"far": 1}})"));
  EXPECT_EQ(record.sums(), (Counts{{"/n", 10}, {"/called/cloud", 2}, {"/called/far", 1}}));
  record.take(
      answer("a", R"({"n": 11, "called": {"cloud": 2}})"));  // both servers answer for a moment
  record.take(answer("b", R"({"n": 2})"));
  record.take(answer("b", R"({"n": 1})"));  // an outdated answer
  EXPECT_EQ(record.sums().at("/n"), 13);
  for (int i = 0; i < 20; ++i) record.take(answer("c" + std::to_string(i), R"({"n": 1})"));
  EXPECT_EQ(record.sums().at("/n"), 33);
  const auto restored = TierCounters::from_json(json(codec::write_json(record.to_json())));
  ASSERT_TRUE(restored.has_value());
  EXPECT_EQ(restored->sums(), record.sums());
  EXPECT_EQ(restored->report(restored->sums()), record.report(record.sums()));
  EXPECT_EQ(record.report(record.sums()).at("counters/called/cloud").as_integer(), 2);
  EXPECT_EQ(record.report(record.sums())["epoch"].as_string(), "e1");
}

TEST(TierCounters, NestedCountersReplacePlainNumberOfAnotherServer) {
  TierCounters record("e1", "");
  record.take(answer("a", R"({"called": 7})"));
  record.take(answer("b", R"({"called": {"cloud": 2}})"));
  EXPECT_EQ(record.report(record.sums()).at("counters/called/cloud").as_integer(), 2);
}

TEST(TierCounters, NewServiceOfSameNameInheritsNoCounts) {
  TierCounters record("e1", "s1");
  record.take(answer("a", R"({"n": 9})"));
  record.begin("e2", "s2");
  EXPECT_TRUE(record.report(record.sums()).is_null()) << "nothing was said of it yet";
  record.take(answer("a", R"({"n": 10})"));  // the old server, still running
  record.take(answer("b", R"({"n": 3})"));
  EXPECT_EQ(record.sums().at("/n"), 4);
  EXPECT_EQ(record.report(record.sums())["uid"].as_string(), "s2");
  record.reconcile_with_server(json(R"({"epoch": "e1", "counters": {"n": 9}})"), "e3");
  EXPECT_EQ(record.epoch(), "e2") << "the other end has not heard of it";
}

TEST(TierCounters, CountersBehindServerStartNewEpochAtFirstAnswer) {
  // e1 on the disk is older than its last report: the database was restored.
  auto record =
      *TierCounters::from_json(json(R"({"epoch": "e1", "base": {"/n": 5}, "instances": []})"));
  record.take(answer("a", R"({"n": 100})"));
  record.take(answer("a", R"({"n": 101})"));
  record.reconcile_with_server(json(R"({"epoch": "e1", "counters": {"n": 6}})"), "e2");
  EXPECT_EQ(record.epoch(), "e2");
  EXPECT_EQ(record.sums().at("/n"), 1);
  // The database was lost, and the cluster's report arrives before the server's answer.
  TierCounters lost("e7", "");
  lost.reconcile_with_server(json(R"({"epoch": "e1", "counters": {"n": 6}})"), "e8");
  lost.take(answer("a", R"({"n": 100})"));
  lost.take(answer("a", R"({"n": 104})"));
  EXPECT_EQ(lost.epoch(), "e8");
  EXPECT_EQ(lost.sums().at("/n"), 4);
  // The disk has the reported counters or more.
  auto same = *TierCounters::from_json(
      json(R"({"epoch": "e1", "base": {"/n": 6, "/m": 1}, "instances": []})"));
  same.reconcile_with_server(json(R"({"epoch": "e1", "counters": {"n": 6}})"), "e2");
  EXPECT_EQ(same.epoch(), "e1");
  EXPECT_EQ(same.sums().at("/n"), 6);
}

TEST(TierCounters, ReportIsNeverBehindServerWithinAnEpoch) {
  Json report =
      json(R"({"epoch": "e1", "counters": {"n": 5, "called": {"cloud": 3}}, "tiers": []})");
  keep_ahead(
      report,
      json(
          R"({"epoch": "e1", "counters": {"n": 7, "called": {"cloud": 1, "far": 2}}, "tiers": [1]})"));
  EXPECT_EQ(
      report,
      json(
          R"({"epoch": "e1", "counters": {"n": 7, "called": {"cloud": 3, "far": 2}}, "tiers": []})"));
  keep_ahead(report, json(R"({"epoch": "e0", "counters": {"n": 70}})"));
  EXPECT_EQ(report["counters"]["n"].as_integer(), 7);
  Json none;
  keep_ahead(none, json(R"({"epoch": "e0", "counters": {"n": 70}})"));
  EXPECT_TRUE(none.is_null());
}

// ---- the store

class TierCounterStoreTest : public ::testing::Test {
 protected:
  TierCounterStoreTest() { start(); }
  void start() {
    counters.reset();
    counters = std::make_unique<TierCounterStore>(TierCounterStore::Options{.clock = &clock},
                                                  *state_store, *rng, [this] { ++published; });
    counters->load();
  }
  /// Runs everything that is due, and returns the number of reports.
  int run() {
    const int before = published;
    while (counters->due() && *counters->due() <= clock.now()) {
      counters->step();
      CHECK(++steps < 10000);  // the store becomes idle
    }
    return published - before;
  }
  int pass(int count) {
    int updated = 0;
    for (int i = 0; i < count; ++i) {
      clock.advance(seconds(1));
      updated += run();
    }
    return updated;
  }
  std::int64_t n(const std::string& key = "default/a.edge") {
    const auto reports = counters->reports();
    return reports.contains(key) ? reports.at(key).at("counters/n").as_integer() : -1;
  }
  std::string epoch(const std::string& key = "default/a.edge") {
    return counters->reports().at(key)["epoch"].as_string();
  }
  void ingest(const std::string& instance, int count, const std::string& more = "") {
    counters->take("default/a.edge",
                   answer_json(instance, "{\"n\": " + std::to_string(count) + "}", more));
  }

  node::testing::ManualClock clock;
  std::unique_ptr<Rng> rng = seeded_rng(7);
  std::unique_ptr<core::StateStore> state_store = core::StateStore::in_memory();
  int published = 0, steps = 0;
  std::unique_ptr<TierCounterStore> counters;
};

TEST_F(TierCounterStoreTest, StateIsReportedAtOnceAndCountsEveryTenSeconds) {
  counters->set_wanted({{"default/a.edge", ""}});
  EXPECT_EQ(run(), 0);
  ingest("i", 0);
  EXPECT_EQ(run(), 1);
  int updated = 0;
  for (int second = 1; second <= 100; ++second) {
    ingest("i", second);
    updated += pass(1);
  }
  EXPECT_GE(updated, 9);
  EXPECT_LE(updated, 11);
  pass(20);
  EXPECT_EQ(n(), 100);
  ingest("i", 100, R"(, "degraded": {"reason": "BreakerOpen", "message": "x"})");
  EXPECT_EQ(run(), 1) << "at once";
  ingest("i", 100, R"(, "degraded": {"reason": "BreakerOpen", "message": "y"})");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(pass(10), 1);
  for (int i = 0; i < 300; ++i) {
    ingest("i", 100, R"(, "degraded": {"reason": "BreakerOpen", "message": "y"})");
    EXPECT_EQ(pass(1), 0) << "at rest";
  }
  EXPECT_EQ(counters->due(), std::nullopt);
}

TEST_F(TierCounterStoreTest, RestartRepeatsLastReportWithoutUpdate) {
  counters->set_wanted({{"default/a.edge", ""}});
  ingest("i", 5);
  pass(20);
  const Json before = counters->reports().at("default/a.edge");
  start();
  counters->set_wanted({{"default/a.edge", ""}});
  counters->reconcile_with_server({{"default/a.edge", before}});
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(counters->reports().at("default/a.edge"), before);
  ingest("i", 7);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(n(), 7);
  EXPECT_EQ(epoch(), before["epoch"].as_string());
}

TEST_F(TierCounterStoreTest, ReturningModelGetsNewEpochAndCountsNothingTwice) {
  counters->set_wanted({{"default/a.edge", ""}});
  ingest("i", 5);
  pass(20);
  const std::string first = epoch();
  counters->set_wanted({});
  run();
  EXPECT_TRUE(counters->reports().empty());
  ingest("i", 6);
  start();
  counters->set_wanted({{"default/a.edge", ""}});
  run();
  EXPECT_TRUE(counters->reports().empty()) << "nothing was said since";
  ingest("i", 8);
  run();
  EXPECT_EQ(n(), 3) << "6 was not seen as long as nobody wanted it";
  EXPECT_NE(epoch(), first);
}

TEST_F(TierCounterStoreTest, FormerRecordsAreBounded) {
  for (int i = 0; i < 200; ++i) {
    counters->set_wanted({{"default/m" + std::to_string(i) + ".edge", ""}});
    pass(10);
  }
  counters->set_wanted({});
  pass(10);
  EXPECT_EQ(state_store->entries("joint/")->size(), TierCounterStore::kFormerMax);
  EXPECT_TRUE(state_store->entries("joint/")->contains("joint/default/m199.edge"));
}

TEST_F(TierCounterStoreTest, InvalidAnswerIsIgnored) {
  counters->set_wanted({{"default/a.edge", ""}});
  ingest("i", 5);
  run();
  counters->take("default/a.edge", Json());
  counters->take("default/a.edge", answer_json("i", R"({"n": -7})"));
  counters->take("default/b.edge", answer_json("i", R"({"n": 7})"));
  pass(60);
  EXPECT_EQ(n(), 5);
  EXPECT_EQ(counters->reports().size(), 1u);
}

/// Rejects writes while it is full.
class Disk final : public store::Store {
 public:
  explicit Disk(const bool& full) : full_(full) {}
  Result<std::optional<store::Entry>> get(std::string_view key) override {
    return inner_->get(key);
  }
  Result<store::Page> list(const store::ListOptions& options) override {
    return inner_->list(options);
  }
  Result<store::Revision> commit(std::vector<store::Op> ops) override {
    if (full_) return Error(Code::kExhausted, "disk full");
    return inner_->commit(std::move(ops));
  }
  Result<std::unique_ptr<store::Watch>> watch(std::string, store::Revision) override {
    return Error(Code::kUnsupported, "no");
  }
  store::Revision revision() const override { return inner_->revision(); }
  store::Revision oldest() const override { return inner_->oldest(); }
  Status compact(store::Revision) override { return {}; }

 private:
  const bool& full_;
  std::unique_ptr<store::Store> inner_ = store::open_memory();
};

TEST_F(TierCounterStoreTest, FullDiskReportsStateButOnlyPersistedCounts) {
  bool full = false;
  counters.reset();
  state_store = core::StateStore::over(std::make_unique<Disk>(full));
  start();
  counters->set_wanted({{"default/a.edge", ""}});
  ingest("i", 5);
  pass(20);
  full = true;
  ingest("i", 9);
  EXPECT_LE(pass(60), 6);
  EXPECT_EQ(n(), 5);
  ingest("i", 10, R"(, "degraded": {"reason": "NoAddress"})");
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(counters->reports().at("default/a.edge").at("degraded/reason").as_string(),
            "NoAddress");
  EXPECT_EQ(n(), 5);
  full = false;
  pass(20);
  EXPECT_EQ(n(), 10);
}

// ---- random histories

/// A node's agent, disk and server, and a cluster that sums up over epochs.
class Node {
 public:
  explicit Node(std::uint64_t seed) : rng_(seeded_rng(seed)) { boot(); }

  void serve() {
    counted_ += static_cast<std::int64_t>(rng_->below(5)), truth_ += counted_ - before_,
        before_ = counted_;
  }
  void restart_server() {
    former_.reset();
    if (rng_->below(3) == 0)
      former_ = {instance_, counted_};  // the old server still answers for a while
    instance_ = rng_->uuid();
    counted_ = before_ = 0;
  }
  void poll() {
    if (!tier_counters_) return;
    const bool old = former_ && rng_->below(4) == 0;
    const auto& [instance, count] = old ? *former_ : std::pair(instance_, counted_);
    tier_counters_->take("a/b.edge", answer_json(instance, "{\"n\": " + std::to_string(count) +
                                                               R"(, "by": {"edge": )" +
                                                               std::to_string(count / 2) + "}}"));
  }
  void pass() {
    clock_.advance(seconds(static_cast<int>(rng_->below(8))));
    if (tier_counters_ && tier_counters_->due() && *tier_counters_->due() <= clock_.now())
      tier_counters_->step();
    write();
  }
  /// Toggles the link; the agent's current reports are written then.
  void toggle_link() {
    link_ = !link_;
    connect();
  }
  /// kill -9, and a new agent over the same disk.
  void kill() { boot(); }
  void save_snapshot() { snapshot_ = *state_store_->entries("joint/"); }
  void restore_snapshot() {
    if (!snapshot_) return;
    state_store_ = core::StateStore::in_memory();
    CHECK(state_store_->put_all(*snapshot_).ok());
    lose();
  }
  void lose_disk() {
    state_store_ = core::StateStore::in_memory();
    has_work_list_ = false;
    lose();
  }
  std::uint64_t draw(std::uint64_t bound) { return rng_->below(bound); }

  /// Returns the problem with the cluster's sum, or "".
  std::string check() const {
    std::int64_t sum = 0;
    for (const auto& [epoch, count] : epochs_) sum += count;
    if (!wrong_.empty()) return wrong_;
    return sum > truth_ ? std::to_string(sum) + " are counted of " + std::to_string(truth_) : "";
  }
  std::int64_t counted() const {
    std::int64_t sum = 0;
    for (const auto& [epoch, count] : epochs_) sum += count;
    return sum;
  }
  std::int64_t truth() const { return truth_; }
  bool lossy() const { return lossy_; }
  void settle() {
    if (!link_) toggle_link();
    for (int i = 0; i < 20; ++i) {
      former_.reset();
      poll();
      clock_.advance(seconds(11));
      if (tier_counters_->due() && *tier_counters_->due() <= clock_.now()) tier_counters_->step();
      write();
    }
  }

 private:
  void lose() {
    lossy_ = true;
    boot();
  }
  void boot() {
    tier_counters_.reset();
    tier_counters_ = std::make_unique<TierCounterStore>(TierCounterStore::Options{.clock = &clock_},
                                                        *state_store_, *rng_, [] {});
    tier_counters_->load();
    if (has_work_list_) tier_counters_->set_wanted({{"a/b.edge", "s"}});
    connect();
  }
  void connect() {
    if (lossy_) former_.reset();  // a stopped server that answers only now looks like a new one
    if (!link_) return;
    std::map<std::string, Json> live;
    if (!status_.is_null()) live.emplace("a/b.edge", status_);
    tier_counters_->reconcile_with_server(std::move(live));
    has_work_list_ = true;
    tier_counters_->set_wanted({{"a/b.edge", "s"}});
    write();
  }
  void write() {
    const auto reports = tier_counters_->reports();
    const auto report = reports.find("a/b.edge");
    if (!link_ || report == reports.end()) return;
    Json next = report->second;
    keep_ahead(next, status_);
    const std::string& epoch = std::as_const(next)["epoch"].as_string();
    const std::int64_t count = std::as_const(next).at("counters/n").as_integer();
    if (const auto known = epochs_.find(epoch); known != epochs_.end() && count < known->second)
      wrong_ = "epoch " + epoch + " went from " + std::to_string(known->second) + " to " +
               std::to_string(count);
    epochs_[epoch] = std::max(epochs_[epoch], count);
    status_ = std::move(next);
  }

  const std::unique_ptr<Rng> rng_;
  node::testing::ManualClock clock_;
  std::unique_ptr<core::StateStore> state_store_ = core::StateStore::in_memory();
  std::unique_ptr<TierCounterStore> tier_counters_;
  std::string instance_ = "first";
  std::int64_t counted_ = 0, before_ = 0, truth_ = 0;
  std::optional<std::pair<std::string, std::int64_t>> former_;
  bool link_ = true, has_work_list_ = false, lossy_ = false;
  std::optional<std::map<std::string, Json>> snapshot_;
  Json status_;
  std::map<std::string, std::int64_t> epochs_;
  std::string wrong_;
};

TEST(TierCounterHistories, CountersNeverDecreaseInAnEpochOrExceedRequests) {
  const char* const more = std::getenv("VARDA_TIER_SEEDS");
  const std::uint64_t seeds = more != nullptr ? std::stoul(more) : 24;
  int complete = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Node node(seed);
    const bool disk_fails = seed % 3 == 0;
    for (int step = 0; step < 120; ++step) {
      switch (node.draw(disk_fails ? 16 : 13)) {
        case 0:
          node.poll();  // so that none of its requests are lost
          node.restart_server();
          break;
        case 1:
          node.kill();
          break;
        case 2:
          node.toggle_link();
          break;
        case 13:
          node.save_snapshot();
          break;
        case 14:
          node.restore_snapshot();
          break;
        case 15:
          node.lose_disk();
          break;
        default:
          node.serve();
          if (node.draw(2) == 0) node.poll();
          node.pass();
      }
      ASSERT_EQ(node.check(), "") << "seed " << seed << " step " << step;
    }
    node.settle();
    ASSERT_EQ(node.check(), "") << "seed " << seed;
    if (!node.lossy() && node.counted() == node.truth()) ++complete;
  }
  EXPECT_GT(complete, static_cast<int>(seeds * 5 / 24))
      << "of two thirds of the seeds, whose disks are fine";
}

}  // namespace tier_counters_test
}  // namespace varda::agent::models
