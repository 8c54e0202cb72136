// Keeper: writes samples to the spools of all models, on one thread behind a bounded queue.
#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "oip/infer.h"
#include "os/file_system.h"
#include "serving/sampling/model.h"
#include "spool/spool.h"

namespace varda::serving::sampling {

/// Thread-safe. Free without models: the thread starts with the first one.
class Keeper {
 public:
  struct Options {
    std::filesystem::path directory;                      // the spool of a model is DIRECTORY/MODEL
    std::size_t queue_max = 64;                           // requests
    std::size_t queue_bytes_max = std::size_t{32} << 20;  // with outputs and later answers
    std::chrono::milliseconds retry{5000};                // after a spool that could not be opened
    std::chrono::milliseconds recount{500};               // least time between counts of a spool
    oip::Limits limits = {};
  };
  /// All references outlive the keeper.
  Keeper(Options options, os::FileSystem& fs, metrics::Registry& registry, Rng& rng);
  /// Calls stop().
  ~Keeper();
  Keeper(const Keeper&) = delete;

  /// The model of that name, created on first use; it lives as long as the keeper.
  Model& model(const std::string& name);

  struct Item {
    std::shared_ptr<const Plan> plan;
    Answered answered;
    bool control = false;
  };
  /// False: the queue is full, or stop() was called. Blocks on no disk.
  bool submit(Item item);
  /// Opens the plan's spool in the background, so that its state is known without a sample. An open
  /// spool is counted again.
  void open(std::shared_ptr<const Plan> plan);
  std::chrono::milliseconds recount_period() const { return options_.recount; }
  /// Writes the queued samples and ends the thread.
  void stop();
  /// Waits until the queue is empty and written. For tests.
  void flush();

 private:
  struct Store {
    std::unique_ptr<os::FileLock> lock;
    std::unique_ptr<spool::Spool> spool;
    SteadyTime retry_at{};
  };
  void start() REQUIRES(mutex_);
  void work();
  void write(const Item& item);
  spool::Spool* store_of(const Plan& plan);
  Status keep(spool::Spool& spool, const Item& item);

  const Options options_;
  os::FileSystem& fs_;
  metrics::Registry& registry_;
  Rng& rng_;
  std::map<std::string, Store> stores_;  // the thread's

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::unique_ptr<Model>> models_ GUARDED_BY(mutex_);
  std::deque<Item> queue_ GUARDED_BY(mutex_);
  std::size_t queue_bytes_ GUARDED_BY(mutex_) = 0;
  bool busy_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace varda::serving::sampling
