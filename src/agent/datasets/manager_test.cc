#include "agent/datasets/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "dataset/testing/memory_tree.h"
#include "dataset/testing/reference.h"
#include "node/testing/fakes.h"
#include "os/testing/crashing_file_system.h"
#include "os/testing/memory_file_watch.h"

namespace varda::agent::datasets {
namespace manager_test {

using namespace std::chrono_literals;
using dataset::testing::MemoryTree;
using ::testing::HasSubstr;
using Report = api::EdgeDatasetReport;

/// A tree that outlives its reader.
class Borrowed final : public os::ReadableTree {
 public:
  explicit Borrowed(os::ReadableTree& tree) : tree_(tree) {}
  Result<os::FileFacts> facts(const os::Path& path) override { return tree_.facts(path); }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path& path) override {
    return tree_.open(path);
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path& path) override {
    return tree_.list(path);
  }

 private:
  os::ReadableTree& tree_;
};

api::EdgeDataset dataset_of(const std::string& name, const std::string& path,
                            const std::string& format, const std::string& uid = "u1") {
  api::EdgeDataset out;
  out.key = "datasets.edgeai.io/default/" + name;
  out.uid = uid;
  out.path = path;
  out.format = format;
  return out;
}

/// A node with a disk and data that outlive its agent. Time advances in pass() only.
class Bench {
 public:
  struct Published {
    std::vector<Report> reports;
    core::ListId list;
    SteadyTime at;
  };

  explicit Bench(std::uint64_t seed = 1)
      : disk(std::make_unique<os::testing::CrashingFileSystem>(seed)) {
    CHECK(disk->make_directories("/agent", 0700).ok());
    CHECK(disk->sync_directory("/").ok());
  }

  void start() {
    manager = std::make_unique<Manager>(
        Manager::Options{.roots = {"/data"},
                         .directory = "/agent/datasets",
                         .portion_bytes = portion_bytes,
                         .state_bytes_max = state_bytes_max,
                         .clock = &clock},
        *disk,
        [this]() -> Result<std::unique_ptr<os::ReadableTree>> {
          return std::make_unique<Borrowed>(tree);
        },
        watch);
    manager->on_publish([this] {
      api::EdgeNodeStatus status;
      const core::ListId list = manager->put_report(status, {});
      if (!published.empty() && published.back().list == list) {
        EXPECT_GE(clock.now() - published.back().at, 500ms) << "too often";
      }
      published.push_back({std::move(status.datasets), list, clock.now()});
    });
    if (list) manager->apply(*list);
    manager->load();
    tasks = manager->tasks();
  }
  void stop() {
    manager.reset();
    tasks.clear();
    published.clear();
    watch.refuse(Error(Code::kUnsupported, "nobody is there"));
    watch.refuse(refused);
  }
  void power_cut(std::uint64_t seed) {
    stop();
    disk = disk->crashed(seed);
  }
  void kill() {
    stop();
    disk = disk->killed();
  }

  /// Delivers a work list like Core, which delivers it again after a restart.
  void want(std::vector<api::EdgeDataset> datasets) {
    list.emplace();
    list->id = {"node", ++generation};
    list->spec.datasets = std::move(datasets);
    if (manager) manager->apply(*list);
  }

  /// Runs everything that becomes due within `time`.
  void pass(Duration time) {
    const SteadyTime end = clock.now() + time;
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 100'000) << "there is always something to do";
      const runtime::Task* next = nullptr;
      SteadyTime first = end;
      for (const runtime::Task& task : tasks) {
        if (!counts && task.name == "dataset counts") continue;
        const auto due = task.due();
        if (!due || *due > end || (next != nullptr && *due >= first)) continue;
        next = &task;
        first = *due;
      }
      if (next == nullptr) break;
      if (first > clock.now()) clock.advance(first - clock.now());
      next->step(Context::background());
    }
    clock.advance(end - clock.now());
  }
  const Report& last(const std::string& name = "a") const {
    static const Report kNone;
    if (published.empty()) return kNone;
    for (const Report& report : published.back().reports)
      if (report.key == "datasets.edgeai.io/default/" + name) return report;
    return kNone;
  }
  void change(const std::string& path, const std::function<void()>& how) {
    how();
    watch.change(path);
  }

  node::testing::ManualClock clock;
  MemoryTree tree;
  os::testing::MemoryFileWatch watch;
  Status refused;
  std::unique_ptr<os::testing::CrashingFileSystem> disk;
  std::optional<core::WorkList> list;
  std::uint64_t portion_bytes = 256u << 20;
  std::size_t state_bytes_max = 16 << 10;
  bool counts = true;  // false: time passes without counting
  std::int64_t generation = 1;
  std::vector<Published> published;
  std::unique_ptr<Manager> manager;
  std::vector<runtime::Task> tasks;
};

TEST(DatasetManager, EachWorkListGetsOneReportWithCounts) {
  Bench bench;
  bench.tree.put("/data/a", "x,y\n1,2\n3,4\n");
  bench.start();
  bench.pass(0s);
  ASSERT_EQ(bench.published.size(), 1U) << "there is nothing to do, and that is told too";
  EXPECT_TRUE(bench.published[0].reports.empty());
  bench.want({dataset_of("b", "/data/b", "txt"), dataset_of("a", "/data/a", "csv")});
  bench.pass(0s);
  ASSERT_EQ(bench.published.size(), 2U) << "one report for both";
  EXPECT_EQ(bench.published[1].list.uid, "node");
  EXPECT_EQ(bench.published[1].list.generation, 2);
  ASSERT_EQ(bench.published[1].reports.size(), 2U);
  EXPECT_EQ(bench.published[1].reports[0].key, "datasets.edgeai.io/default/b")
      << "in the order of the list";
  EXPECT_EQ(bench.last("b").reason, "PathNotFound");
  EXPECT_FALSE(bench.last("b").samples);
  EXPECT_EQ(bench.last("a").state, "Counted");
  EXPECT_EQ(bench.last("a").uid, "u1");
  EXPECT_EQ(bench.last("a").samples, 2);
  EXPECT_EQ(bench.last("a").header, "yes");
  EXPECT_EQ(bench.last("a").inexact, "");

  // A new list with the same datasets is answered at once, without counting.
  const std::uint64_t read = bench.tree.bytes_read;
  bench.want({dataset_of("b", "/data/b", "txt"), dataset_of("a", "/data/a", "csv")});
  bench.pass(0s);
  ASSERT_EQ(bench.published.size(), 3U);
  EXPECT_EQ(bench.published[2].list.generation, 3);
  EXPECT_EQ(bench.tree.bytes_read, read);
  bench.pass(30min);
  EXPECT_EQ(bench.published.size(), 3U) << "at rest it says nothing";
}

TEST(DatasetManager, AppendedRowsAreReportedWithinASecondWithoutFullRead) {
  Bench bench;
  std::string rows;
  while (rows.size() < (4u << 20)) rows += "12,34567\n";
  bench.tree.put("/data/a", rows);
  bench.start();
  bench.want({dataset_of("a", "/data/a", "csv")});
  bench.pass(10s);
  std::int64_t samples = *bench.last().samples;
  const std::size_t reports = bench.published.size();
  bench.tree.bytes_read = 0;
  // One row every 50 ms, for ten seconds.
  for (int i = 0; i < 200; ++i) {
    bench.change("/data/a", [&] { bench.tree.append("/data/a", "1,2\n"); });
    ++samples;
    bench.pass(50ms);
    if (i >= 20) {
      EXPECT_GE(*bench.last().samples, samples - 20) << "what was there a second ago is told";
    }
  }
  bench.pass(1s);
  EXPECT_EQ(bench.last().samples, samples);
  EXPECT_LT(bench.published.size() - reports, 22U);
  EXPECT_LT(bench.tree.bytes_read, 20 * 1'500'000U)
      << "the checks, a block of the fingerprint, the new rows; never all";
}

TEST(DatasetManager, PollingReportsChangesWhenFileWatchIsUnsupported) {
  Bench bench;
  bench.refused = Error(Code::kUnsupported, "a network file system");
  bench.watch.refuse(bench.refused);
  bench.tree.put("/data/a", "1\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(10s);
  bench.tree.append("/data/a", "2\n");
  bench.pass(1500ms);
  EXPECT_EQ(bench.last().samples, 2);
  const std::uint64_t read = bench.tree.bytes_read;
  const std::size_t reports = bench.published.size();
  bench.pass(60s);
  EXPECT_EQ(bench.tree.bytes_read, read) << "looking is not reading";
  EXPECT_EQ(bench.published.size(), reports);
}

TEST(DatasetManager, ReplacedBytesAreDetectedByFileTime) {
  Bench bench;
  std::string rows;
  while (rows.size() < (1u << 20)) rows += "12345678\n";
  bench.tree.put("/data/a", rows);
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(10s);
  const std::int64_t samples = *bench.last().samples;
  rows[(500'000 / 9 * 9) + 4] = '\n';
  bench.change("/data/a", [&] { bench.tree.put("/data/a", rows); });
  bench.pass(1s);
  EXPECT_EQ(bench.last().samples, samples + 1);
}

TEST(DatasetManager, RecountFindsChangeMissedByIncrementalCount) {
  Bench bench;
  std::string rows;
  while (rows.size() < (1u << 20)) rows += "12345678\n";
  bench.tree.put("/data/a", rows);
  bench.start();
  auto spec = dataset_of("a", "/data/a", "txt");
  spec.recount_seconds = 600;
  bench.want({spec});
  bench.pass(10s);
  const std::int64_t samples = *bench.last().samples;
  // Changed in the middle and grown at the same time, which looks like growth.
  rows[(500'000 / 9 * 9) + 4] = '\n';
  bench.change("/data/a", [&] { bench.tree.put("/data/a", rows + "1\n"); });
  bench.pass(1s);
  EXPECT_EQ(bench.last().samples, samples + 1);
  bench.pass(10min);
  EXPECT_EQ(bench.last().samples, samples + 2);
}

TEST(DatasetManager, RecountPeriodSurvivesAgentRestarts) {
  Bench bench;
  bench.tree.put("/data/a", "1\n");
  bench.start();
  auto spec = dataset_of("a", "/data/a", "txt");
  spec.recount_seconds = 24 * 3600;
  bench.want({spec});
  bench.pass(13h);
  for (int day = 0; day < 2; ++day) {
    bench.kill();
    bench.start();
    bench.pass(5h);
  }
  const std::uint64_t read = bench.tree.bytes_read;
  bench.pass(7h);
  EXPECT_GT(bench.tree.bytes_read, read)
      << "a day of work is over, in parts; of each an eighth of a day at most is not known of";
}

TEST(DatasetManager, ChangeDuringCountIsReportedAndRecounted) {
  Bench bench;
  bench.tree.put("/data/a", "1\n2\n");
  int changes = 3;
  bench.tree.on_read = [&](std::uint64_t) {
    if (changes-- > 0) bench.change("/data/a", [&] { bench.tree.append("/data/a", "3\n"); });
    return Status();
  };
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(0s);
  EXPECT_EQ(bench.last().samples, 2);
  EXPECT_THAT(bench.last().inexact, HasSubstr("grew"));
  bench.pass(2s);
  EXPECT_EQ(bench.last().samples, 5);
  EXPECT_EQ(bench.last().inexact, "");
}

TEST(DatasetManager, FailedReadKeepsLastCountAndIsRetried) {
  Bench bench;
  bench.tree.put("/data/a", "1\n2\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(5s);
  bool broken = true;
  bench.tree.on_read = [&](std::uint64_t) -> Status {
    if (broken) return Error(Code::kInternal, "read /data/a: Input/output error");
    return {};
  };
  bench.change("/data/a", [&] { bench.tree.append("/data/a", "3\n"); });
  bench.pass(2s);
  EXPECT_EQ(bench.last().state, "Failed");
  EXPECT_EQ(bench.last().reason, "ReadFailed");
  EXPECT_EQ(bench.last().samples, 2);
  const std::size_t reports = bench.published.size();
  bench.pass(1h);
  EXPECT_EQ(bench.published.size(), reports) << "the same failure is no news";
  broken = false;
  bench.pass(5min);
  EXPECT_EQ(bench.last().state, "Counted");
  EXPECT_EQ(bench.last().samples, 3);
}

TEST(DatasetManager, InvalidDatasetFailsWithoutReadingFile) {
  struct Case {
    std::string path, format, header, reason, message;
  };
  Bench bench;
  bench.tree.put("/data/a", "1\n");
  bench.tree.put("/etc/a", "1\n");
  bench.start();
  for (const Case& one : {Case{"/data/a", "parquett", "", "FormatInvalid", "imagefolder"},
                          Case{"/data/a", "csv", "perhaps", "FormatInvalid", "auto"},
                          Case{"/data/a", "voc", "", "FormatInvalid", "not a folder"},
                          Case{"data/a", "txt", "", "PathForbidden", "absolute"},
                          Case{"/etc/b", "txt", "", "PathForbidden", "/data"}}) {
    SCOPED_TRACE(one.path + " " + one.format);
    auto spec = dataset_of("a", one.path, one.format);
    spec.header = one.header;
    bench.want({spec});
    bench.pass(1s);
    EXPECT_EQ(bench.last().state, "Failed");
    EXPECT_EQ(bench.last().reason, one.reason);
    EXPECT_THAT(bench.last().message, HasSubstr(one.message));
    EXPECT_FALSE(bench.last().samples)
        << "what was counted of another path or format is nothing of this one";
  }
  EXPECT_EQ(bench.tree.bytes_read, 0U);
}

TEST(DatasetManager, NewUidDiscardsFormerCount) {
  Bench bench;
  bench.tree.put("/data/a", "1\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(5s);
  const std::string time = bench.last().time;
  bench.counts = false;
  bench.want({dataset_of("a", "/data/a", "txt", "u2")});
  bench.pass(1s);
  EXPECT_EQ(bench.last().uid, "u2");
  EXPECT_EQ(bench.last().state, "Pending");
  EXPECT_FALSE(bench.last().samples);
  bench.counts = true;
  bench.pass(5s);
  EXPECT_EQ(bench.last().samples, 1);
  EXPECT_NE(bench.last().time, time);
}

TEST(DatasetManager, RemovedDatasetLeavesNoRecordOrWatch) {
  Bench bench;
  bench.tree.put("/data/a", "1\n");
  bench.tree.put("/data/b", "1\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt"), dataset_of("b", "/data/b", "txt")});
  bench.pass(5s);
  EXPECT_EQ(bench.disk->list("/agent/datasets")->size(), 2U);
  EXPECT_EQ(bench.watch.watched().size(), 2U);
  bench.want({dataset_of("b", "/data/b", "txt")});
  bench.pass(1s);
  EXPECT_EQ(bench.published.back().reports.size(), 1U);
  EXPECT_EQ(bench.disk->list("/agent/datasets")->size(), 1U);
  EXPECT_EQ(bench.watch.watched().size(), 1U);
  // While the agent is off.
  bench.kill();
  bench.want({});
  bench.start();
  bench.pass(1s);
  EXPECT_TRUE(bench.published.back().reports.empty());
  EXPECT_TRUE(bench.disk->list("/agent/datasets")->empty());
}

TEST(DatasetManager, RestartReportsLastCountBeforeRecounting) {
  Bench bench;
  bench.tree.put("/data/a", "1\n2\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt"), dataset_of("b", "/data/b", "txt")});
  bench.pass(5s);
  const Report before = bench.last();
  for (const bool power : {false, true}) {
    power ? bench.power_cut(7) : bench.kill();
    bench.counts = false;
    bench.start();
    bench.pass(1s);
    bench.counts = true;
    ASSERT_EQ(bench.published.size(), 1U);
    EXPECT_EQ(bench.published[0].list.generation, 2);
    EXPECT_EQ(bench.last().state, "Counted");
    EXPECT_EQ(bench.last().samples, 2);
    EXPECT_EQ(bench.last().time, before.time);
    EXPECT_EQ(bench.last("b").reason, "PathNotFound");
  }
}

TEST(DatasetManager, FirstCountResumesAfterPowerCut) {
  Bench bench;
  std::string rows;
  while (rows.size() < (8u << 20)) rows += "12345678\n";
  bench.tree.put("/data/a", rows);
  bench.tree.put("/data/b", "1\n");
  bench.portion_bytes = 1 << 20;
  bench.start();
  // Each portion takes a minute, so that a record is saved before the next one.
  bench.tree.on_read = [&](std::uint64_t offset) {
    if (offset % (1 << 20) == 0) bench.clock.advance(20s);
    return Status();
  };
  bench.want({dataset_of("a", "/data/a", "txt"), dataset_of("b", "/data/b", "txt")});
  for (int i = 0; i < 200 && bench.last().message.find("read") == std::string::npos; ++i)
    bench.pass(1s);
  EXPECT_EQ(bench.last().state, "Counting");
  EXPECT_EQ(bench.last("b").samples, 1) << "others have their turn";
  bench.power_cut(3);
  bench.tree.bytes_read = 0;
  bench.start();
  bench.pass(1h);
  EXPECT_EQ(bench.last().state, "Counted");
  EXPECT_EQ(bench.last().samples, static_cast<std::int64_t>(rows.size() / 9));
  EXPECT_EQ(bench.last().message, "");
  EXPECT_LT(bench.tree.bytes_read, rows.size() + 7 * 1'400'000U) << "not from the beginning";
}

TEST(DatasetManager, FileChangedBetweenPortionsIsRecounted) {
  Bench bench;
  std::string rows;
  while (rows.size() < (4u << 20)) rows += "12345678\n";
  bench.tree.put("/data/a", rows);
  bench.portion_bytes = 1 << 20;
  bench.start();
  std::string changed = rows;
  changed[(500'000 / 9 * 9) + 4] = '\n';
  bool once = true;
  bench.tree.on_read = [&](std::uint64_t offset) {
    if (offset < (3u << 20) || !once) return Status();
    once = false;
    bench.change("/data/a", [&] { bench.tree.put("/data/a", changed); });
    return Status();
  };
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(10s);
  EXPECT_EQ(bench.last().samples, static_cast<std::int64_t>(rows.size() / 9) + 1);
  EXPECT_EQ(bench.last().inexact, "");
}

TEST(DatasetManager, FullDiskDelaysRecordButNotReport) {
  Bench bench;
  bench.tree.put("/data/a", "1\n");
  bench.disk->set_capacity(0);
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(5s);
  EXPECT_EQ(bench.last().samples, 1);
  bench.disk->set_capacity(1 << 20);
  bench.pass(1min);
  EXPECT_EQ(bench.disk->list("/agent/datasets")->size(), 1U) << "tried again";
}

TEST(DatasetManager, UnreadableStateOnDiskIsNotOverwritten) {
  Bench bench;
  bench.state_bytes_max = 0;
  bench.tree.put("/data/a", "1\n2\n");
  bench.start();
  const api::EdgeDataset a = dataset_of("a", "/data/a", "txt");
  bench.want({a});
  bench.pass(5s);
  const auto record = [&] {
    return Records(*bench.disk, "/agent/datasets").read(a).value().value();
  };
  const std::string state = record().state;
  ASSERT_NE(state, "");
  bench.disk->on_call([](std::string_view call, const os::Path& path) -> Status {
    if (call == "open" && path.extension() == ".json")
      return Error(Code::kInternal, "Input/output error");
    return {};
  });
  bench.tree.on_read = [](std::uint64_t) -> Status {
    return Error(Code::kInternal, "Input/output error");
  };
  bench.change("/data/a", [&] { bench.tree.append("/data/a", "3\n"); });
  bench.pass(5s);
  ASSERT_EQ(bench.last().reason, "ReadFailed");
  bench.disk->on_call({});
  bench.pass(1min);
  EXPECT_EQ(record().report.reason, "ReadFailed") << "written later";
  EXPECT_EQ(record().state, state);
}

TEST(DatasetManager, DatasetWithDamagedRecordIsRecounted) {
  Bench bench;
  bench.tree.put("/data/a", "1\n2\n");
  bench.start();
  bench.want({dataset_of("a", "/data/a", "txt")});
  bench.pass(5s);
  const std::string name = bench.disk->list("/agent/datasets")->at(0);
  const std::string good = os::read_file(*bench.disk, os::Path("/agent/datasets") / name).value();
  const auto rng = seeded_rng(5);
  for (int round = 0; round < 300; ++round) {
    bench.stop();
    std::string bad = good;
    if (rng->below(4) == 0) {
      bad.resize(rng->below(bad.size()));
    } else {
      for (std::uint64_t flips = 1 + rng->below(3); flips > 0; --flips)
        bad[rng->below(bad.size())] ^= static_cast<char>(1 << rng->below(8));
    }
    ASSERT_TRUE(
        os::write_file_atomically(*bench.disk, os::Path("/agent/datasets") / name, bad, 0600).ok());
    bench.start();
    bench.pass(5s);
    ASSERT_EQ(bench.last().samples, 2) << bad;
    ASSERT_EQ(bench.last().state, "Counted");
  }
}

// ---- random histories

class DatasetHistory : public ::testing::TestWithParam<std::string> {};

std::string random_rows(Rng& rng, const std::string& format) {
  std::string out;
  const std::uint64_t rows = rng.below(30);
  for (std::uint64_t i = 0; i < rows; ++i) {
    switch (rng.below(8)) {
      case 0:
        out += "1,\"a\nb\"\"c\"\n";
        break;
      case 1:
        out += format == "jsonl" ? "{\"a\": [1, 2]}\n" : "x\xFF,y\n";
        break;
      case 2:
        out += "\n";
        break;
      case 3:
        out += "3,4\r\n";
        break;
      case 4:
        out += "bad\"row,,\n";
        break;
      default:
        out += format == "jsonl" ? "{\"n\": " + std::to_string(rng.below(1000)) + "}\n"
                                 : std::to_string(rng.below(1000)) + ",5\n";
    }
  }
  if (rng.below(3) == 0) out += rng.below(2) == 0 ? "7,\"un" : "{\"half\": ";
  if (rng.below(20) == 0) out.append(70'000, 'z');
  return out;
}

TEST_P(DatasetHistory, ReportMatchesFileAfterRandomEvents) {
  const std::string format = GetParam();
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto rng = seeded_rng(seed);
    Bench bench(seed);
    auto spec = dataset_of("a", "/data/a", format);
    spec.header = "no";
    bench.start();
    bench.want({spec});
    std::uint64_t inode = 1;
    const auto touch = [&] { bench.watch.change("/data/a"); };
    for (int step = 0; step < 40; ++step) {
      const bool exists = bench.tree.facts("/data/a").ok();
      switch (rng->below(12)) {
        case 0:
        case 1:
        case 2:
          if (exists) bench.tree.append("/data/a", random_rows(*rng, format));
          touch();
          break;
        case 3:  // rotated and recreated
          bench.tree.rename("/data/a", "/data/a.1");
          touch();
          if (rng->below(2) == 0) bench.pass(std::chrono::milliseconds(rng->below(700)));
          bench.tree.put("/data/a", random_rows(*rng, format), ++inode);
          touch();
          break;
        case 4:
          if (exists)
            bench.tree.truncate("/data/a", rng->below(bench.tree.facts("/data/a")->size_bytes + 1));
          touch();
          break;
        case 5:  // replaced by another file
          bench.tree.put("/data/new", random_rows(*rng, format), ++inode);
          bench.tree.rename("/data/new", "/data/a");
          touch();
          break;
        case 6:
          bench.tree.remove("/data/a");
          touch();
          break;
        case 7:
          if (!exists) bench.tree.put("/data/a", random_rows(*rng, format), ++inode);
          touch();
          break;
        case 8:
          bench.kill();
          if (rng->below(2) == 0 && exists) bench.tree.append("/data/a", random_rows(*rng, format));
          bench.start();
          break;
        case 9:
          bench.power_cut(rng->next());
          bench.start();
          break;
        case 10:  // the watch starts or stops failing
          bench.refused = rng->below(2) == 0 ? Status() : Error(Code::kExhausted, "too many");
          bench.watch.refuse(bench.refused);
          break;
        default:
          bench.pass(std::chrono::milliseconds(rng->below(3000)));
      }
      if (rng->below(3) > 0) continue;
      // Quiet for longer than the longest look period: the report matches the data, and no further
      // report follows.
      bench.pass(62s);
      const auto facts = bench.tree.facts("/data/a");
      if (!facts.ok()) {
        ASSERT_EQ(bench.last().reason, "PathNotFound") << "step " << step;
      } else {
        const auto whole = dataset::count(Context::background(), bench.tree,
                                          {.path = "/data/a",
                                           .format = dataset::find_format(format).value(),
                                           .options = {.header = dataset::Header::kNo}})
                               .value();
        ASSERT_EQ(bench.last().state, "Counted") << "step " << step;
        ASSERT_EQ(bench.last().samples, static_cast<std::int64_t>(whole.tally.samples))
            << "step " << step;
        ASSERT_EQ(bench.last().malformed, static_cast<std::int64_t>(whole.tally.malformed));
        ASSERT_EQ(bench.last().bytes, static_cast<std::int64_t>(whole.bytes));
        ASSERT_EQ(bench.last().fingerprint, whole.fingerprint);
        ASSERT_EQ(bench.last().inexact, "");
      }
      const std::size_t reports = bench.published.size();
      const std::string time = bench.last().time;
      bench.pass(10min);
      ASSERT_EQ(bench.published.size(), reports);
      if (rng->below(2) == 0) {
        bench.power_cut(rng->next());
        bench.start();
        bench.pass(5s);
        ASSERT_EQ(bench.last().time, time) << "the data is as it was";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DatasetHistory, ::testing::Values("csv", "jsonl", "txt"),
                         [](const auto& format) { return format.param; });

}  // namespace manager_test
}  // namespace varda::agent::datasets
