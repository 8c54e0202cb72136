// Sessions: the connected nodes, which are nodes with an open watch.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::gateway {

/// Notified when a node's first watch opens, and some time after its last one closed. One call at a
/// time, in order; must not block and must not call the gateway.
class Sessions {
 public:
  virtual ~Sessions() = default;
  virtual void opened(const std::string& node) = 0;
  virtual void closed(const std::string& node) = 0;
};

/// Counts open watches. Watches end and reopen all the time, so an end is reported only after
/// `linger` without a watch. Thread-safe; outlives its handles.
class OpenWatches {
 public:
  struct Options {
    Sessions* sessions = nullptr;  // null: no notifications; outlives this
    Duration linger{};
    std::size_t watches_max = 0, watches_per_node_max = 0;
  };
  explicit OpenWatches(Options options);
  ~OpenWatches();
  OpenWatches(const OpenWatches&) = delete;
  OpenWatches& operator=(const OpenWatches&) = delete;

  /// One open watch; the destructor closes it.
  class Handle {
   public:
    Handle(OpenWatches& watches, std::string node) : watches_(watches), node_(std::move(node)) {}
    ~Handle() { watches_.close(node_); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

   private:
    OpenWatches& watches_;
    const std::string node_;
  };
  /// Null: too many watches are open.
  std::unique_ptr<Handle> open(const std::string& node) EXCLUDES(mutex_);
  std::size_t watches() const EXCLUDES(mutex_);
  std::size_t nodes() const EXCLUDES(mutex_);

 private:
  struct Node {
    std::size_t open = 0;
    std::uint64_t ended = 0;  // number of the last end
  };
  struct End {
    SteadyTime report_at;
    std::string node;
    std::uint64_t number = 0;
  };
  void close(const std::string& node) EXCLUDES(mutex_);
  void run() EXCLUDES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::size_t total_ GUARDED_BY(mutex_) = 0;
  std::uint64_t ends_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Node> nodes_ GUARDED_BY(mutex_);  // nodes reported as opened
  std::deque<End> ended_ GUARDED_BY(mutex_);                        // the next one to report first
  std::thread thread_;
};

}  // namespace varda::gateway
