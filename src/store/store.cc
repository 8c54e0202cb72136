#include "store/store.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <semaphore.h>
#include <set>
#include <utility>

#include "base/check.h"
#include "store/internal/core.h"
#include "store/internal/journal.h"

namespace varda::store {
namespace {

using internal::Core;
using internal::EventPtr;
using internal::Journal;
using internal::Loaded;
using internal::WatchState;

// Maximum number of transactions per fsync.
constexpr std::size_t kBatchMax = 512;

class CoreWatch final : public Watch {
 public:
  CoreWatch(std::shared_ptr<Core> core, std::shared_ptr<WatchState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~CoreWatch() override { core_->unwatch(state_); }

  Result<std::vector<Event>> poll(std::size_t max) override { return state_->poll(max); }
  Revision progress() override { return core_->progress(*state_); }
  void on_ready(std::function<void()> wake) override { state_->on_ready(std::move(wake)); }
  Status wait(const Context& ctx) override { return state_->wait(ctx); }

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<WatchState> state_;
};

const std::string& key_of(const Op& op) {
  return std::visit([](const auto& some) -> const std::string& { return some.key; }, op);
}

// Signals a waiting writer. With a condition variable, all writers of a commit would contend for
// one mutex. POSIX allows destroying a semaphore once its wait has returned, even while the post is
// still running.
class Turn {
 public:
  Turn() { CHECK(::sem_init(&semaphore_, 0, 0) == 0); }
  ~Turn() { ::sem_destroy(&semaphore_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void give() { CHECK(::sem_post(&semaphore_) == 0); }
  void await() {
    while (::sem_wait(&semaphore_) != 0) CHECK(errno == EINTR);
  }

 private:
  sem_t semaphore_;
};

// Group commit without a separate thread. The first writer without a running commit commits for all
// waiting writers, in order of arrival. Later writers form the next batch.
class GroupStore final : public Store {
 public:
  GroupStore(const Options& options, std::unique_ptr<Journal> journal, Loaded loaded)
      : value_bytes_max_(options.value_bytes_max),
        core_(std::make_shared<Core>(options, std::move(loaded))),
        journal_(std::move(journal)) {
    if (options.metrics == nullptr) return;
    commits_ = &options.metrics->counter("varda_store_commits_total", "Transactions committed.");
    batches_ = &options.metrics->counter("varda_store_batches_total",
                                         "Group commits; each group shares one sync.");
    seconds_ = &options.metrics->histogram(
        "varda_store_batch_seconds", "Duration of a group commit.", metrics::latency_buckets());
    measure(*options.metrics);
  }
  ~GroupStore() override { core_->close(); }

  Result<std::optional<Entry>> get(std::string_view key) override { return core_->get(key); }
  Result<Page> list(const ListOptions& options) override { return core_->list(options); }
  Revision revision() const override { return core_->revision(); }
  Revision oldest() const override { return core_->oldest(); }

  Result<std::unique_ptr<Watch>> watch(std::string prefix, Revision after) override {
    TRY(std::shared_ptr<WatchState> state, core_->watch(std::move(prefix), after));
    return std::make_unique<CoreWatch>(core_, std::move(state));
  }

  Result<Revision> commit(std::vector<Op> ops) override {
    TRY_VOID(check(ops));
    Request request{.ops = std::move(ops), .compaction = 0, .result = Revision{0}};
    return run(request);
  }

  Status compact(Revision revision) override {
    TRY_VOID(core_->check_compaction(revision));
    Request request{.ops = {}, .compaction = revision, .result = Revision{0}};
    TRY([[maybe_unused]] const Revision done, run(request));
    return {};
  }

 private:
  struct Request {
    std::vector<Op> ops;
    Revision compaction = 0;  // if set, a compaction and no write
    Result<Revision> result;
    bool commits_batch = false;  // commits the next batch, starting with this request
    Turn turn;  // given once: it leads, or the result is ready and no other thread uses the request
  };

  // The gauges may outlive the store, so they share ownership of `core_`.
  void measure(metrics::Registry& metrics) const {
    const auto gauge = [&](const char* name, const char* help, auto read) {
      metrics.gauge_from(name, help, {},
                         [core = core_, read] { return static_cast<double>(read(*core)); });
    };
    gauge("varda_store_revision", "Revision of the last write.",
          [](const Core& core) { return core.revision(); });
    gauge("varda_store_oldest_revision", "The oldest revision from which a watch can resume.",
          [](const Core& core) { return core.oldest(); });
    gauge("varda_store_history_events", "Events in the history.",
          [](const Core& core) { return core.history().events; });
    gauge("varda_store_history_bytes", "Memory of the history, in bytes.",
          [](const Core& core) { return core.history().bytes; });
    gauge("varda_store_compactions_total", "Compactions of the history.",
          [](const Core& core) { return core.history().compactions; });
  }

  Status check(const std::vector<Op>& ops) const {
    if (ops.empty()) return Error(Code::kInvalid, "an empty transaction");
    std::set<std::string_view> keys;
    for (const Op& op : ops) {
      const std::string& key = key_of(op);
      if (key.empty()) return Error(Code::kInvalid, "an empty key");
      if (!keys.insert(key).second)
        return Error(Code::kInvalid, key + " occurs twice in one transaction");
      if (const Put* put = std::get_if<Put>(&op);
          put != nullptr && put->value.size() > value_bytes_max_) {
        return Error(Code::kExhausted, key + ": value of " + std::to_string(put->value.size()) +
                                           " bytes, at most " + std::to_string(value_bytes_max_) +
                                           " are allowed");
      }
    }
    return {};
  }

  Result<Revision> run(Request& request) {
    bool waits = true;
    {
      MutexLock lock(mutex_);
      waiting_.push_back(&request);
      waits = std::exchange(committing_, true);
    }
    if (waits) {
      request.turn.await();
      if (!request.commits_batch) return std::move(request.result);
    }
    std::vector<Request*> batch;
    {
      MutexLock lock(mutex_);
      while (!waiting_.empty() && batch.size() < kBatchMax) {
        batch.push_back(waiting_.front());
        waiting_.pop_front();
      }
    }
    process(batch);
    Request* next = nullptr;
    {
      MutexLock lock(mutex_);
      committing_ = !waiting_.empty();
      if (committing_) next = waiting_.front();
    }
    // Wakes the next leader first, so that its commit starts while the others wake up.
    if (next != nullptr) {
      next->commits_batch = true;
      next->turn.give();
    }
    for (Request* item : batch) {
      if (item != &request) item->turn.give();  // destroyed when its thread returns
    }
    return std::move(request.result);
  }

  // Uncommitted changes of the batch; nullopt for a deleted key.
  using Overlay = std::map<std::string, std::optional<Entry>, std::less<>>;

  std::optional<Entry> current(const Overlay& overlay, const std::string& key) const {
    const auto found = overlay.find(key);
    return found != overlay.end() ? found->second : core_->get(key);
  }

  // The events of one transaction at `revision`; empty without changes.
  Result<std::vector<EventPtr>> plan(std::vector<Op>& ops, const Overlay& overlay,
                                     Revision revision) const {
    std::vector<EventPtr> events;
    for (Op& op : ops) {
      std::optional<Entry> old = current(overlay, key_of(op));
      const auto expected = std::visit([](const auto& some) { return some.expected; }, op);
      const Revision modified = old ? old->modified : 0;
      if (expected && *expected != modified) {
        return Error(Code::kConflict, key_of(op) + ": expected revision " +
                                          std::to_string(*expected) + ", it is at " +
                                          std::to_string(modified));
      }
      Event event;
      if (Put* put = std::get_if<Put>(&op)) {
        event.entry = {.key = std::move(put->key),
                       .value = std::make_shared<const Value>(std::move(put->value)),
                       .created = old ? old->created : revision,
                       .modified = revision};
      } else {
        if (!old) continue;
        event.type = EventType::kDelete;
        event.entry = {
            .key = old->key, .value = old->value, .created = old->created, .modified = revision};
      }
      if (old) {
        event.previous = std::move(old->value);
        event.previous_modified = old->modified;
      }
      events.push_back(std::make_shared<const Event>(std::move(event)));
    }
    return events;
  }

  // Restores the operations after plan() moved bytes out of them.
  static void restore_operations(std::vector<Op>& ops, const std::vector<EventPtr>& events,
                                 std::size_t at, std::size_t end) {
    for (Op& op : ops) {
      if (at == end) return;
      const Entry& entry = events[at]->entry;
      if (Put* put = std::get_if<Put>(&op)) {
        put->key = entry.key;
        put->value = *entry.value;
        ++at;
      } else if (entry.key ==
                 std::get<Delete>(op).key) {  // else nothing was deleted, without an event
        ++at;
      }
    }
  }

  void process(const std::vector<Request*>& batch) {
    const SteadyTime start = system_clock().now();
    Overlay overlay;
    std::vector<EventPtr> events;
    std::vector<std::size_t> ends;  // end of each request's events
    Revision revision = core_->revision();
    Revision compaction = 0;
    for (Request* request : batch) {
      ends.push_back(events.size());
      if (request->compaction > 0) {
        compaction = std::max(compaction, request->compaction);
        continue;
      }
      Result<std::vector<EventPtr>> planned = plan(request->ops, overlay, revision + 1);
      if (!planned.ok()) {
        request->result = std::move(planned).error();
        continue;
      }
      if (!planned->empty()) ++revision;
      request->result = revision;
      for (EventPtr& event : *planned) {
        overlay[event->entry.key] =
            event->type == EventType::kPut ? std::optional(event->entry) : std::nullopt;
        events.push_back(std::move(event));
      }
      ends.back() = events.size();
    }
    Status written =
        events.empty() || journal_ == nullptr ? Status() : journal_->write(events, core_->oldest());
    if (written.ok()) core_->apply(events);
    if (written.ok() && compaction > 0) {
      if (journal_ != nullptr) written = journal_->compact(compaction);
      if (written.ok()) core_->compact(compaction);
      for (Request* request : batch) {
        if (request->compaction > 0)
          request->result =
              written.ok() ? Result<Revision>(compaction) : Result<Revision>(written.error());
      }
    } else if (!written.ok() && written.error().code() == Code::kExhausted && batch.size() > 1) {
      // A full disk still has space for deletions, so retry each request alone.
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const std::size_t begin = i == 0 ? 0 : ends[i - 1];
        if (begin == ends[i] && batch[i]->ops.size() > 1) {
          batch[i]->result = written.error();  // rejected half-way by plan(); its bytes are gone
          continue;
        }
        restore_operations(batch[i]->ops, events, begin, ends[i]);
        process({batch[i]});
      }
      return;
    } else if (!written.ok()) {
      // The whole batch failed, so results that depend on earlier transactions in it are invalid
      // too.
      for (Request* request : batch) request->result = written.error();
    }
    if (commits_ == nullptr || !written.ok() || events.empty()) return;
    commits_->add(static_cast<double>(batch.size()));
    batches_->add();
    seconds_->observe(std::chrono::duration<double>(system_clock().now() - start).count());
  }

  const std::size_t value_bytes_max_;
  const std::shared_ptr<Core> core_;
  const std::unique_ptr<Journal> journal_;  // used by one committing writer at a time
  metrics::Counter* commits_ = nullptr;
  metrics::Counter* batches_ = nullptr;
  metrics::Histogram* seconds_ = nullptr;

  Mutex mutex_;
  std::deque<Request*> waiting_ GUARDED_BY(mutex_);  // at most one per writer thread
  bool committing_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<Revision> Store::put(std::string key, std::string value, std::optional<Revision> expected) {
  std::vector<Op> ops;
  ops.emplace_back(Put{.key = std::move(key), .value = std::move(value), .expected = expected});
  return commit(std::move(ops));
}

Result<Revision> Store::remove(std::string key, std::optional<Revision> expected) {
  std::vector<Op> ops;
  ops.emplace_back(Delete{.key = std::move(key), .expected = expected});
  return commit(std::move(ops));
}

std::unique_ptr<Store> internal::make_store(Options options, std::unique_ptr<Journal> journal,
                                            Loaded loaded) {
  return std::make_unique<GroupStore>(options, std::move(journal), std::move(loaded));
}

std::unique_ptr<Store> open_memory(Options options) {
  return internal::make_store(options, nullptr, {});
}

Result<std::unique_ptr<Store>> open_sqlite(const std::filesystem::path& file, Options options) {
  TRY(internal::OpenedJournal opened, internal::open_sqlite_journal(file, {}));
  if (options.metrics != nullptr) {
    for (const auto& [part, suffix] :
         {std::pair("database", ""), std::pair("log", "-wal"), std::pair("reserve", ".reserve")}) {
      options.metrics->gauge_from("varda_store_file_bytes", "Size of the store's files.",
                                  {{"part", part}}, [path = file.string() + suffix] {
                                    std::error_code failed;
                                    const auto bytes = std::filesystem::file_size(path, failed);
                                    return failed ? 0.0 : static_cast<double>(bytes);
                                  });
    }
  }
  return internal::make_store(options, std::move(opened.journal), std::move(opened.loaded));
}

}  // namespace varda::store
