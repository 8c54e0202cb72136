// Store: a revisioned log of keys and bytes, with watch. It has no knowledge of kinds.
//
// Every committed write gets the next revision of one global counter, which continues across
// restarts. A write is acknowledged after it is durable. Readers never wait for writers. A watcher
// gets every event of its prefix exactly once, in revision order.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/context.h"
#include "base/metrics.h"
#include "base/result.h"

namespace varda::store {

using Revision = std::int64_t;  // from 1; 0 means "absent"

/// Immutable bytes, with a 64-bit note in which a reader caches derived facts. The store ignores
/// the note and does not persist it: zero after a restart.
class Value final : public std::string {
 public:
  explicit Value(std::string bytes) : std::string(std::move(bytes)) {}
  std::uint64_t note() const { return note_.load(std::memory_order_relaxed); }
  void set_note(std::uint64_t note) const { note_.store(note, std::memory_order_relaxed); }

 private:
  mutable std::atomic<std::uint64_t> note_{0};
};

struct Entry {
  std::string key;
  std::shared_ptr<const Value> value;  // shared with the store and with watchers
  Revision created = 0;                // revision that created the key
  Revision modified = 0;               // revision of this value
};

enum class EventType : std::uint8_t { kPut, kDelete };

struct Event {
  EventType type = EventType::kPut;
  Entry entry;  // kDelete: the last value, with modified = the revision of the deletion
  std::shared_ptr<const Value> previous;  // value before; null for a creation
  Revision previous_modified = 0;
};

/// One write. A transaction is atomic and has one revision.
struct Put {
  std::string key;
  std::string value;
  std::optional<Revision> expected;  // required modified revision; 0: must not exist; absent: any
};
struct Delete {
  std::string key;
  std::optional<Revision> expected;
};
using Op = std::variant<Put, Delete>;

struct Page {
  std::vector<Entry> entries;   // by key
  Revision revision = 0;        // the snapshot the page shows
  bool more = false;            // more keys follow
  std::uint64_t remaining = 0;  // number of keys that follow
};

struct ListOptions {
  std::string prefix;
  std::string start_after;  // continue after this key
  std::size_t limit = 0;    // 0: all
  Revision at = 0;  // 0: now; else that snapshot (kGone if compacted, kInvalid if in the future)
};

/// A stream of events. One consumer thread at a time; another thread may close it.
class Watch {
 public:
  virtual ~Watch() = default;  // unsubscribes
  /// Returns up to `max` pending events in order, without blocking; empty: none now. kExhausted:
  /// the watcher was too slow, lost events and was closed; list again. kUnavailable: the store is
  /// closing.
  virtual Result<std::vector<Event>> poll(std::size_t max = 256) = 0;
  /// poll() has returned every event up to this revision; usable for a bookmark.
  virtual Revision progress() = 0;
  /// Calls `wake`, from any thread, when poll() may have new events, and at once if it has. `wake`
  /// must be cheap and must not call the store or destroy the watch. Not called after the watch is
  /// destroyed. Set once.
  virtual void on_ready(std::function<void()> wake) = 0;
  /// Blocks until poll() would return something or the context is done.
  virtual Status wait(const Context& ctx) = 0;
};

/// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  virtual Result<std::optional<Entry>> get(std::string_view key) = 0;
  virtual Result<Page> list(const ListOptions& options) = 0;
  /// Commits and returns the revision. kConflict: an `expected` did not match; nothing was written,
  /// the message names the key. kExhausted: disk full (reads still work) or a value too large.
  /// kInvalid: an empty transaction, an empty key or a duplicate key. Deleting an absent key writes
  /// nothing; a transaction without changes returns the current revision.
  virtual Result<Revision> commit(std::vector<Op> ops) = 0;
  Result<Revision> put(std::string key, std::string value,
                       std::optional<Revision> expected = std::nullopt);
  Result<Revision> remove(std::string key, std::optional<Revision> expected = std::nullopt);

  /// Watches keys that start with `prefix`, from revision `after` + 1. kGone: `after` is older than
  /// the history. A future `after` waits for that revision.
  virtual Result<std::unique_ptr<Watch>> watch(std::string prefix, Revision after) = 0;

  /// Revision of the last committed write.
  virtual Revision revision() const = 0;
  /// Oldest revision that list(at) and watch(after) can reach.
  virtual Revision oldest() const = 0;
  /// Drops history up to `revision`; current values stay.
  virtual Status compact(Revision revision) = 0;
};

struct Options {
  std::size_t history_events_max = 100'000;  // older events are compacted
  std::size_t history_bytes_max = 64u << 20;
  std::size_t watch_queue_events_max = 10'000;  // a watcher further behind is closed
  std::size_t value_bytes_max = 3u << 20;       // kExhausted beyond
  metrics::Registry* metrics = nullptr;
};

/// A store in memory only.
std::unique_ptr<Store> open_memory(Options options = {});
/// SQLite, WAL, synchronous=FULL, one file; concurrent commits share one fsync. kUnavailable:
/// another process has it open. kCorrupt: damaged, or a file of another program. kUnsupported:
/// written by a newer version. `FILE.lock` names the owning process.
Result<std::unique_ptr<Store>> open_sqlite(const std::filesystem::path& file, Options options = {});

}  // namespace varda::store
