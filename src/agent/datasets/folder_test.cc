// Folders are counted in portions: other datasets are counted in between, no change is lost, and a
// stop works at any time.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/datasets/manager.h"
#include "base/check.h"
#include "node/testing/fakes.h"
#include "os/testing/memory_file_watch.h"

namespace varda::agent::datasets {
namespace folder_test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Report = api::EdgeDatasetReport;
using Result = Schedule::Done::Result;

class DatasetFolder : public ::testing::Test {
 protected:
  DatasetFolder() {
    std::string pattern = ::testing::TempDir() + "varda-folders-XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = fs::canonical(pattern);
    for (const char* name : {"data/photos/cats", "data/photos/dogs", "agent"})
      fs::create_directories(root_ / name);
    for (int i = 0; i < 60; ++i)
      put("photos/" + std::string(i % 3 == 0 ? "cats/" : "dogs/") + std::to_string(i) + ".jpg");
    // A second change within one clock tick would leave the same mtime.
    for (const char* name : {"data/photos/cats", "data/photos/dogs"})
      fs::last_write_time(root_ / name, fs::file_time_type::clock::now() - 1h);
  }
  ~DatasetFolder() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void put(const std::string& name) const { std::ofstream(root_ / "data" / name) << "1\n2\n3\n"; }
  api::EdgeDataset dataset(const std::string& name, const std::string& format) const {
    api::EdgeDataset out;
    out.key = "datasets.edgeai.io/default/" + name;
    out.uid = "u";
    out.path = root_ / "data" / name;
    out.format = format;
    return out;
  }
  auto open_tree() {
    return [this] { return os::open_readable_tree({root_ / "data"}); };
  }

  fs::path root_;
  os::testing::MemoryFileWatch watch_;
};

class DatasetFolderCounter : public DatasetFolder {
 protected:
  CountOutcome count(const Context& ctx = Context::background()) {
    return counter_.count(
        ctx, {.id = 1, .spec = dataset("photos", "imagefolder")}, [] { return ""; },
        [this](const dataset::Progress& far) { published_.push_back(far.entries); });
  }
  std::vector<std::uint64_t> published_;
  Counter counter_{{.roots = {root_ / "data"}, .portion_steps = 16}, open_tree(), watch_};
};

TEST_F(DatasetFolderCounter, CountResumesInPortionsUntilComplete) {
  CountOutcome outcome = count();
  for (int portions = 1; outcome.done.result == Result::kPortion; ++portions) {
    ASSERT_EQ(published_.size(), static_cast<std::size_t>(portions));
    ASSERT_LE(published_.back(), static_cast<std::uint64_t>(16 * portions));
    ASSERT_TRUE(outcome.done.folder && outcome.done.watched && outcome.failure.reason.empty());
    outcome = count();
  }
  EXPECT_EQ(published_.size(),
            4U);  // a fifth portion counts the rest: 60 images, 2 folders and the ends of 3
  ASSERT_TRUE(outcome.counted);
  EXPECT_EQ(outcome.counted->tally.samples, 60U);
  EXPECT_EQ(outcome.counted->tally.classes,
            (std::map<std::string, std::uint64_t>{{"cats", 20}, {"dogs", 40}}));
  const auto format = dataset::find_format("imagefolder").value();
  const auto tree = open_tree()().value();
  const auto at_once = dataset::count(Context::background(), *tree,
                                      {.path = root_ / "data/photos", .format = format})
                           .value();
  EXPECT_EQ(outcome.counted->fingerprint, at_once.fingerprint);
  EXPECT_EQ(outcome.counted->bytes, at_once.bytes);
}

TEST_F(DatasetFolderCounter, StoppedOrForgottenCountRestarts) {
  for (const bool stopped : {true, false}) {
    published_.clear();
    ASSERT_EQ(count().done.result, Result::kPortion);
    if (stopped) {
      std::stop_source stop;
      stop.request_stop();
      EXPECT_TRUE(count(Context(stop.get_token())).dropped);
    } else {
      counter_.forget(1);
    }
    put("photos/dogs/later" + std::to_string(stopped) + ".jpg");
    CountOutcome outcome = count();
    EXPECT_LE(published_.back(), 16U);
    while (outcome.done.result == Result::kPortion) outcome = count();
    EXPECT_EQ(outcome.counted->tally.samples, stopped ? 61U : 62U);
  }
}

TEST_F(DatasetFolderCounter, FolderGrowthDuringCountIsReportedAsInexact) {
  ASSERT_EQ(count().done.result, Result::kPortion);
  put("photos/cats/new.jpg");
  put("photos/dogs/new.jpg");
  CountOutcome outcome = count();
  while (outcome.done.result == Result::kPortion) outcome = count();
  // One of the two folders is still being listed after the first portion.
  EXPECT_NE(outcome.counted->tally.inexact.find("the folder changed while it was counted"),
            std::string::npos);
}

class FolderOfFilesCounter : public DatasetFolderCounter {
 protected:
  FolderOfFilesCounter() {
    fs::create_directories(root_ / "data/lines");
    put("lines/a.txt");
    put("lines/b.txt");
  }
  dataset::Counted count_lines(Schedule::Work work, const std::string& state,
                               const os::FileFacts& facts) {
    for (;;) {
      CountOutcome outcome = counter_.count(
          Context::background(),
          {.id = 2, .work = work, .spec = dataset("lines", "txt"), .state = state, .facts = facts},
          [] { return ""; }, [](const dataset::Progress&) {});
      EXPECT_TRUE(outcome.done.folder);
      if (outcome.counted) return std::move(*outcome.counted);
    }
  }
};

TEST_F(FolderOfFilesCounter, CountReadsOnlyWhatChangedUntilTheRecount) {
  const dataset::Counted first = count_lines(Schedule::Work::kRecount, "", {});
  EXPECT_EQ(first.tally.samples, 6U);
  EXPECT_EQ(first.from_byte, 0U);
  std::ofstream(root_ / "data/lines/b.txt", std::ios::app) << "4\n";
  put("lines/c.txt");
  const dataset::Counted second = count_lines(Schedule::Work::kCount, first.state, first.facts);
  EXPECT_EQ(second.tally.samples, 10U);
  EXPECT_EQ(second.from_byte, 12U);
  const dataset::Counted third = count_lines(Schedule::Work::kRecount, second.state, second.facts);
  EXPECT_EQ(third.tally, second.tally);
  EXPECT_EQ(third.from_byte, 0U);
}

class DatasetFolderManager : public DatasetFolder {
 protected:
  DatasetFolderManager() {
    manager_ = std::make_unique<Manager>(Manager::Options{.roots = {root_ / "data"},
                                                          .directory = root_ / "agent/datasets",
                                                          .portion_steps = 4,
                                                          .clock = &clock_},
                                         os::real_file_system(), open_tree(), watch_);
    manager_->on_publish([this] {
      api::EdgeNodeStatus status;
      (void)manager_->put_report(status, {});
      reports_ = std::move(status.datasets);
    });
    manager_->load();
    tasks_ = manager_->tasks();
  }
  void want(std::vector<api::EdgeDataset> datasets) {
    core::WorkList list{{"node", ++generation_}, {}};
    list.spec.datasets = std::move(datasets);
    manager_->apply(list);
  }
  /// Runs one due task, counts last. False: no task is due.
  bool step() {
    for (const char* name : {"datasets", "dataset changes", "dataset counts"}) {
      for (const runtime::Task& task : tasks_) {
        const auto due = task.due();
        if (task.name != name || !due || *due > clock_.now()) continue;
        task.step(Context::background());
        counts_ += task.name == "dataset counts" ? 1 : 0;
        return true;
      }
    }
    return false;
  }
  const Report& report(const std::string& name) const {
    static const Report kNone;
    for (const Report& one : reports_)
      if (one.key.ends_with("/" + name)) return one;
    return kNone;
  }
  /// Advances time until `published` holds, for at most a minute.
  void run_until(const std::function<bool()>& published) {
    for (int i = 0; i < 60'000 && !published(); ++i)
      if (!step()) clock_.advance(1ms);
    ASSERT_TRUE(published());
  }

  node::testing::ManualClock clock_;
  std::int64_t generation_ = 1;
  std::vector<Report> reports_;
  int counts_ = 0;
  std::unique_ptr<Manager> manager_;
  std::vector<runtime::Task> tasks_;
};

TEST_F(DatasetFolderManager, OtherDatasetIsCountedBetweenFolderPortions) {
  put("lines");
  want({dataset("photos", "imagefolder"), dataset("lines", "txt")});
  for (int i = 0; i < 100 && !report("lines").samples; ++i) {
    (void)step();
    clock_.advance(50ms);  // reports wait until all are counted, or for long counts
  }
  EXPECT_EQ(report("lines").samples, 3);
  EXPECT_FALSE(report("photos").samples);
  run_until([&] { return report("photos").samples == 60; });
  EXPECT_EQ(report("photos").inexact, "");
}

TEST_F(DatasetFolderManager, ChangeBetweenPortionsIsReportedAndRecounted) {
  want({dataset("photos", "imagefolder")});
  while (counts_ < 3) ASSERT_TRUE(step());
  put("photos/dogs/new.jpg");
  watch_.change(root_ / "data/photos/dogs/new.jpg");
  run_until([&] { return report("photos").samples.has_value(); });
  EXPECT_NE(report("photos").inexact.find("the folder changed while it was counted"),
            std::string::npos);
  run_until([&] { return report("photos").samples == 61 && report("photos").inexact.empty(); });
}

TEST_F(DatasetFolderManager, FolderOfFilesIsCountedAfterEveryChange) {
  const fs::path lines = root_ / "data/lines";
  fs::create_directories(lines);
  put("lines/a.txt");
  want({dataset("lines", "txt")});
  run_until([&] { return report("lines").samples == 3; });
  std::ofstream(lines / "a.txt", std::ios::app) << "4\n";
  watch_.change(lines / "a.txt");
  run_until([&] { return report("lines").samples == 4; });
  put("lines/b.txt");
  watch_.change(lines / "b.txt");
  run_until([&] { return report("lines").samples == 7 && report("lines").inexact.empty(); });
  fs::remove(lines / "a.txt");
  watch_.change(lines / "a.txt");
  run_until([&] { return report("lines").samples == 3 && report("lines").inexact.empty(); });
}

TEST_F(DatasetFolderManager, MessageNamesTheFormatOfTheSpec) {
  put("lines");
  want({dataset("lines", "xml")});
  run_until([&] { return report("lines").reason == "FormatInvalid"; });
  EXPECT_TRUE(report("lines").message.ends_with(" is not a folder; xml is counted in a folder"))
      << report("lines").message;
}

TEST_F(DatasetFolderManager, ProgressOfRunningCountIsReported) {
  want({dataset("photos", "imagefolder")});
  while (counts_ < 3) ASSERT_TRUE(step());
  clock_.advance(2s);
  ASSERT_TRUE(step());
  EXPECT_EQ(report("photos").state, "Counting");
  EXPECT_NE(report("photos").message.find(" files and folders looked at"), std::string::npos)
      << report("photos").message;
}

}  // namespace folder_test
}  // namespace varda::agent::datasets
