// View: of one resource, what each node may see of it, kept from an informer's changes, and what watches of it have still to be
// told.
//
// A view is state, not history: a watch that begins at a version gets each object that is newer, as it is now, and what was deleted
// since, as far back as the window of tombstones goes. Everything comes in the order of versions and only once the copy is complete
// up to them, so that whoever resumes at the last version he saw has missed nothing.
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
  /// Whose an object is; "" nobody's.
  using NodeOf = std::function<std::string(const runtime::Stored&)>;
  struct Options {
    NodeOf node_of;
    std::size_t tombstones_max = 10'000;  // of all nodes together
    /// Each node has one object, with its name. What became of it is then known whenever it is there, however old the version.
    bool one_each = false;
    /// Told which nodes have news, after their watches were; on the informer's thread, with no lock held.
    std::function<void(const std::string& node)> on_news;
    /// After each list: what was incomplete is complete. The same thread, no lock held.
    std::function<void()> on_listed;
  };
  explicit View(Options options) : options_(std::move(options)) {}

  /// Before informer.run(): keeps the view as the informer's changes have it.
  void follow(runtime::Informer& informer);

  struct Listing {
    std::vector<runtime::StoredPtr> items;  // by key
    std::string resource_version;
  };
  /// Nothing: not complete yet.
  std::optional<Listing> list(const std::string& node) const EXCLUDES(mutex_);
  runtime::StoredPtr get(const std::string& node, const meta::ObjectKey& key) const EXCLUDES(mutex_);
  bool complete() const EXCLUDES(mutex_);
  std::uint64_t version() const EXCLUDES(mutex_);
  std::size_t nodes() const EXCLUDES(mutex_);

  /// Where a watch stands.
  struct Cursor {
    std::string node;
    std::uint64_t sequence = 0;  // of this view's own changes; what is later is news
    std::uint64_t version = 0;   // the version it has been told up to; before the first read: that it begins at
    bool first = true;
  };
  /// "" and "0" begin with everything there is. kGone: the window does not go back so far (or the version is from another life of
  /// the server). kInvalid: no version. kUnavailable: not complete yet.
  Result<Cursor> begin(const std::string& node, std::string_view resource_version) const EXCLUDES(mutex_);
  /// News as lines of a watch; "" none. kGone: it waited for so long that some of them are forgotten.
  Result<std::string> read(Cursor& cursor) const EXCLUDES(mutex_);

  /// Called after there is news for the node; with the view's lock held: it only posts.
  class Watcher {
   public:
    virtual void news() = 0;

   protected:
    ~Watcher() = default;
  };
  void add(const std::string& node, Watcher& watcher) EXCLUDES(mutex_);
  /// After it nobody calls the watcher.
  void remove(const std::string& node, Watcher& watcher) EXCLUDES(mutex_);
  /// Calls the node's watchers though there is no news here.
  void wake(const std::string& node) EXCLUDES(mutex_);

 private:
  struct Item {
    runtime::StoredPtr object;
    std::uint64_t version = 0, sequence = 0;                  // of its last change
    std::uint64_t entered_version = 0, entered_sequence = 0;  // when it became the node's
  };
  struct Tombstone {
    std::string line;  // the event
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
    std::uint64_t version = 0;  // of a deletion: that which the copy is then complete up to
  };

  void changed(const runtime::Change& change);
  void progressed(const std::string& resource_version, runtime::Informer::Progress how) EXCLUDES(mutex_);
  /// Applies what was staged; whom it touched.
  std::set<std::string> advance(const std::string& resource_version, runtime::Informer::Progress how) EXCLUDES(mutex_);
  void apply(const Staged& staged) REQUIRES(mutex_);
  void put(const std::string& node, const runtime::StoredPtr& object, std::uint64_t version) REQUIRES(mutex_);
  void bury(const std::string& node, const runtime::Stored& object, std::uint64_t version) REQUIRES(mutex_);
  Result<std::string> news(const Node& node, const Cursor& cursor) const REQUIRES(mutex_);

  const Options options_;
  std::vector<Staged> staged_;  // of the informer's thread
  mutable Mutex mutex_;
  bool complete_ GUARDED_BY(mutex_) = false;
  std::uint64_t version_ GUARDED_BY(mutex_) = 0;   // the copy is complete up to it
  std::uint64_t sequence_ GUARDED_BY(mutex_) = 0;  // of the last change
  // Deletions up to these are not known.
  std::uint64_t floor_version_ GUARDED_BY(mutex_) = 0, floor_sequence_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Node> nodes_ GUARDED_BY(mutex_);
  std::deque<std::string> graves_ GUARDED_BY(mutex_);  // whose tombstones, the oldest first
  std::set<std::string> touched_ GUARDED_BY(mutex_);   // of one progress
};

/// A bookmark line of a watch.
std::string bookmark_line(const meta::Resource& resource, std::uint64_t version);

}  // namespace varda::gateway
