// The manager of datasets with threads, on the real disk, with real change notifications.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "agent/datasets/manager.h"

namespace varda::agent::datasets {
namespace machine_test {

namespace fs = std::filesystem;
using Report = api::EdgeDatasetReport;

class DatasetMachine : public ::testing::Test {
 protected:
  DatasetMachine() {
    std::string pattern = ::testing::TempDir() + "varda-datasets-XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = fs::canonical(pattern);
    fs::create_directory(root_ / "data");
    fs::create_directory(root_ / "agent");
  }
  ~DatasetMachine() override {
    stop();
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  void start() {
    manager_ = std::make_unique<Manager>(
        Manager::Options{.roots = {root_ / "data"}, .directory = root_ / "agent/datasets"},
        os::real_file_system(), [this] { return os::open_readable_tree({root_ / "data"}); },
        *watch_);
    manager_->on_publish([this] {
      api::EdgeNodeStatus status;
      (void)manager_->put_report(status, {});
      const MutexLock lock(mutex_);
      reports_ = std::move(status.datasets);
      published_.notify_all();
    });
    manager_->apply(list_);
    manager_->load();
    thread_ = std::jthread([this](const std::stop_token& stop) {
      runtime::run_tasks(Context(stop), manager_->tasks());
      manager_->finish();
    });
  }
  void stop() {
    thread_ = {};  // stops and joins
    manager_.reset();
  }
  void want(const std::vector<std::pair<std::string, std::string>>& path_and_format) {
    list_ = {{"node", list_.id.generation + 1}, {}};
    for (const auto& [path, format] : path_and_format) {
      api::EdgeDataset dataset;
      dataset.key = "datasets.edgeai.io/default/" + path;
      dataset.uid = "u";
      dataset.path = root_ / "data" / path;
      dataset.format = format;
      list_.spec.datasets.push_back(dataset);
    }
    manager_->apply(list_);
  }
  /// Waits for a report. Only a hang takes until the timeout.
  void expect(const std::string& path, std::optional<std::int64_t> samples,
              const std::string& state = "Counted") {
    const SteadyTime end = system_clock().now() + std::chrono::seconds(60);
    const auto expected = [&](const Report& one) {
      // Failed datasets keep the figures of the last count, which a removal may have disturbed.
      return one.key.ends_with("/" + path) && one.samples == samples && one.state == state &&
             (state != "Counted" || one.inexact.empty());
    };
    const MutexLock lock(mutex_);
    while (std::none_of(reports_.begin(), reports_.end(), expected))
      ASSERT_TRUE(published_.wait_until(mutex_, end))
          << path << ": " << samples.value_or(-1) << " " << state;
  }
  void append(const std::string& path, const std::string& text) {
    std::ofstream(root_ / "data" / path, std::ios::app) << text;
  }

  fs::path root_;
  std::unique_ptr<os::FileWatch> watch_ = os::make_file_watch();
  core::WorkList list_{{"node", 1}, {}};
  Mutex mutex_;
  CondVar published_;
  std::vector<Report> reports_ GUARDED_BY(mutex_);
  std::unique_ptr<Manager> manager_;
  std::jthread thread_;
};

TEST_F(DatasetMachine, FileAndFolderChangesAreCountedAcrossRestarts) {
  append("rows.csv", "1,2\n3,4\n");
  fs::create_directories(root_ / "data/photos/cats");
  append("photos/cats/1.jpg", "x");
  start();
  want({{"rows.csv", "csv"}, {"photos", "imagefolder"}, {"late/lines", "txt"}});
  expect("rows.csv", 2);
  expect("photos", 1);
  expect("late/lines", std::nullopt, "Failed");

  append("rows.csv", "5,6\n");
  expect("rows.csv", 3);
  fs::create_directories(root_ / "data/photos/dogs/old");
  append("photos/dogs/old/1.png", "x");
  expect("photos", 2);
  append("photos/dogs/old/2.png", "x");  // in a folder created while it was watched
  expect("photos", 3);
  fs::create_directory(root_ / "data/late");
  append("late/lines", "a\nb\n");
  expect("late/lines", 2);
  fs::rename(root_ / "data/rows.csv", root_ / "data/rows.csv.1");
  append("rows.csv", "7,8\n");
  expect("rows.csv", 1);

  stop();
  append("rows.csv", "9,10\n");
  {
    const MutexLock lock(mutex_);
    reports_.clear();
  }
  start();  // reads its work list from disk
  expect("rows.csv", 2);
  expect("photos", 3);
  fs::remove_all(root_ / "data/late");
  expect("late/lines", 2, "Failed");
}

TEST_F(DatasetMachine, RunningCountIsInterruptedByNewListAndStop) {
  std::ofstream big(root_ / "data/big", std::ios::binary);
  big.seekp(std::int64_t{40} << 30);  // a hole uses no space, but takes minutes to read
  big << "end\n";
  big.close();
  start();
  want({{"big", "txt"}});
  expect("big", std::nullopt, "Counting");
  want({});  // stops the count; the next one starts at once
  append("small", "1\n");
  want({{"small", "txt"}});
  expect("small", 1);
  want({{"big", "txt"}});
  expect("big", std::nullopt, "Counting");
  stop();
}

}  // namespace machine_test
}  // namespace varda::agent::datasets
