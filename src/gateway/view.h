// View: the objects of one resource that each node may see, and the changes that open watches still
// need. An informer feeds it.
//
// A view is state, not history. A watch that begins at a version gets each newer object in its
// present state. It also gets the deletions since, as far back as tombstones go. All come in the
// order of versions, and only once the copy is complete up to these versions. So a client that
// resumes at the last version it saw has missed nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "meta/object.h"
#include "runtime/informer.h"

namespace varda::gateway {

/// Thread-safe.
class View {
 public:
  /// The node of an object; "": none.
  using NodeOf = std::function<std::string(const runtime::Stored&)>;
  struct Options {
    NodeOf node_of;
    std::size_t tombstones_max = 10'000;  // of all nodes together
    /// Each node has one object, with the node's name. While the object exists, watches may begin
    /// at any older version.
    bool one_each = false;
    /// Receives the nodes with changes, after their watches; on the informer's thread, without a
    /// lock.
    std::function<void(const std::string& node)> on_change;
    /// Called after each list, once the copy is complete; on the same thread, without a lock.
    std::function<void()> on_listed;
  };
  explicit View(Options options) : options_(std::move(options)) {}

  /// Keeps the view up to date by the informer's changes. Call it before informer.run().
  void follow(runtime::Informer& informer);

  struct Listing {
    std::vector<runtime::StoredPtr> items;  // by key
    std::string resource_version;
  };
  /// Nothing: not complete yet.
  std::optional<Listing> list(const std::string& node) const EXCLUDES(mutex_);
  runtime::StoredPtr get(const std::string& node, const meta::ObjectKey& key) const
      EXCLUDES(mutex_);
  bool complete() const EXCLUDES(mutex_);
  std::uint64_t version() const EXCLUDES(mutex_);
  std::size_t nodes() const EXCLUDES(mutex_);

  /// Position of a watch.
  struct Cursor {
    std::string node;
    std::uint64_t sequence = 0;  // last change read, by this view's own count
    std::uint64_t version = 0;   // last version read; before the first read: the start
    bool first = true;
  };
  /// "" and "0" begin with all present objects. kGone: tombstones do not go back so far, or the
  /// version is from another life of the server. kInvalid: no version. kUnavailable: not complete
  /// yet.
  Result<Cursor> begin(const std::string& node, std::string_view resource_version) const
      EXCLUDES(mutex_);
  /// New changes as lines of a watch; "": none. kGone: the last read is so old that deletions since
  /// are forgotten.
  Result<std::string> read(Cursor& cursor) const EXCLUDES(mutex_);

  /// Called when the node has changes, with the view's lock held. Must only post.
  class Watcher {
   public:
    virtual void notify() = 0;

   protected:
    ~Watcher() = default;
  };
  void add(const std::string& node, Watcher& watcher) EXCLUDES(mutex_);
  /// After it returns, the watcher is never called.
  void remove(const std::string& node, Watcher& watcher) EXCLUDES(mutex_);
  /// Calls the node's watchers though this view has no change.
  void wake(const std::string& node) EXCLUDES(mutex_);

 private:
  struct Item {
    runtime::StoredPtr object;
    std::uint64_t version = 0, sequence = 0;                  // of its last change
    std::uint64_t entered_version = 0, entered_sequence = 0;  // when the node got the object
  };
  struct Tombstone {
    std::string line;  // the DELETED event
    std::uint64_t version = 0, sequence = 0;
  };
  struct Node {
    std::vector<Item> items;
    std::vector<Tombstone> tombstones;  // the oldest first
    std::vector<Watcher*> watchers;
    bool empty() const { return items.empty() && tombstones.empty() && watchers.empty(); }
  };
  struct Staged {
    runtime::Change change;
    std::uint64_t version = 0;  // of a deletion: the copy's version with it
  };

  void changed(const runtime::Change& change);
  void progressed(const std::string& resource_version, runtime::Informer::Progress how)
      EXCLUDES(mutex_);
  /// Applies the staged changes, and returns the nodes that they touched.
  std::set<std::string> advance(const std::string& resource_version,
                                runtime::Informer::Progress how) EXCLUDES(mutex_);
  void apply(const Staged& staged) REQUIRES(mutex_);
  void put(const std::string& node, const runtime::StoredPtr& object, std::uint64_t version)
      REQUIRES(mutex_);
  void bury(const std::string& node, const runtime::Stored& object, std::uint64_t version)
      REQUIRES(mutex_);
  Result<std::string> changes_since(const Node& node, const Cursor& cursor) const REQUIRES(mutex_);

  const Options options_;
  std::vector<Staged> staged_;  // for the informer's thread only
  mutable Mutex mutex_;
  bool complete_ GUARDED_BY(mutex_) = false;
  std::uint64_t version_ GUARDED_BY(mutex_) = 0;   // the copy is complete up to it
  std::uint64_t sequence_ GUARDED_BY(mutex_) = 0;  // of the last change
  // Deletions up to these are not known.
  std::uint64_t floor_version_ GUARDED_BY(mutex_) = 0, floor_sequence_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Node> nodes_ GUARDED_BY(mutex_);
  std::deque<std::string> graves_ GUARDED_BY(mutex_);  // the node of each tombstone, oldest first
  std::set<std::string> touched_ GUARDED_BY(mutex_);   // by one progress
};

/// A bookmark line of a watch.
std::string bookmark_line(const meta::Resource& resource, std::uint64_t version);

}  // namespace varda::gateway
