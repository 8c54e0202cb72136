#include "store/internal/core.h"

#include <algorithm>

namespace varda::store::internal {
namespace {

std::size_t cost(const Event& event) {
  return event.entry.key.size() + (event.entry.value ? event.entry.value->size() : 0) +
         sizeof(Event);
}

// The entry before the event; nullopt if the key did not exist.
std::optional<Entry> before(const Event& event) {
  if (event.previous == nullptr) return std::nullopt;
  return Entry{.key = event.entry.key,
               .value = event.previous,
               .created = event.entry.created,
               .modified = event.previous_modified};
}

Error compacted(Revision wanted, Revision oldest) {
  return Error(Code::kGone, "revision " + std::to_string(wanted) +
                                " was compacted; the oldest is " + std::to_string(oldest));
}

}  // namespace

void WatchState::start_with(std::vector<EventPtr> backlog) {
  MutexLock lock(mutex_);
  limit_ += backlog.size();
  queue_.assign(std::make_move_iterator(backlog.begin()), std::make_move_iterator(backlog.end()));
}

bool WatchState::push(const EventPtr& event) {
  MutexLock lock(mutex_);
  if (lagging_) return false;
  if (queue_.size() >= limit_) {
    lagging_ = true;
    queue_.clear();
  } else {
    queue_.push_back(event);
  }
  changed_.notify_all();
  return !lagging_;
}

void WatchState::close() {
  MutexLock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
}

void WatchState::wake() {
  MutexLock lock(wake_mutex_);
  if (wake_) wake_();
}

Result<std::vector<Event>> WatchState::poll(std::size_t max) {
  MutexLock lock(mutex_);
  if (lagging_)
    return Error(Code::kExhausted,
                 "the watch of '" + prefix_ + "' was too slow and was closed: list again");
  std::vector<Event> events;
  while (!queue_.empty() && events.size() < max) {
    events.push_back(*queue_.front());
    queue_.pop_front();
  }
  if (events.empty() && closing_) return Error(Code::kUnavailable, "the store is closing");
  return events;
}

std::optional<Revision> WatchState::before_first() {
  MutexLock lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  return queue_.front()->entry.modified - 1;
}

void WatchState::on_ready(std::function<void()> wake) {
  {
    MutexLock lock(wake_mutex_);
    wake_ = std::move(wake);
  }
  bool ready = false;
  {
    MutexLock lock(mutex_);
    ready = something();
  }
  if (ready) this->wake();
}

void WatchState::forget_wake() {
  MutexLock lock(wake_mutex_);
  wake_ = nullptr;
}

Status WatchState::wait(const Context& ctx) {
  const std::stop_callback stop(ctx.stop_token(), [this] {
    MutexLock lock(mutex_);
    changed_.notify_all();
  });
  MutexLock lock(mutex_);
  while (!something()) {
    TRY_VOID(ctx.check());
    if (ctx.deadline()) {
      changed_.wait_until(mutex_, *ctx.deadline());
    } else {
      changed_.wait(mutex_);
    }
  }
  return {};
}

Core::Core(const Options& options, Loaded loaded)
    : history_events_max_(options.history_events_max),
      history_bytes_max_(options.history_bytes_max),
      watch_queue_events_max_(options.watch_queue_events_max),
      revision_(loaded.revision),
      compacted_(loaded.compacted) {
  if (options.metrics != nullptr) {
    closed_watchers_ = &options.metrics->counter("varda_store_slow_watchers_total",
                                                 "Watchers closed because they did not keep up.");
  }
  for (Entry& entry : loaded.entries) {
    std::string key = entry.key;
    entries_.emplace_hint(entries_.end(), std::move(key), std::move(entry));
  }
  for (const EventPtr& event : loaded.events) {
    history_bytes_ += cost(*event);
    history_.push_back(event);
  }
  MutexLock lock(mutex_);
  trim();
}

std::optional<Entry> Core::get(std::string_view key) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

// Keys in the range that differed at that revision, with the old entries.
std::map<std::string, std::optional<Entry>> Core::undo(const ListOptions& options) const {
  std::map<std::string, std::optional<Entry>> changes;
  for (auto it = history_.rbegin(); it != history_.rend() && (*it)->entry.modified > options.at;
       ++it) {
    const Event& event = **it;
    if (event.entry.key.starts_with(options.prefix) && event.entry.key > options.start_after)
      changes[event.entry.key] = before(event);
  }
  return changes;
}

Result<Page> Core::list(const ListOptions& options) const {
  MutexLock lock(mutex_);
  Page page;
  page.revision = options.at == 0 ? revision_ : options.at;
  if (options.at < 0 || options.at > revision_) {
    return Error(Code::kInvalid, "revision " + std::to_string(options.at) +
                                     " is in the future; the latest is " +
                                     std::to_string(revision_));
  }
  if (page.revision < compacted_) return compacted(options.at, compacted_);
  const auto changes =
      page.revision == revision_ ? std::map<std::string, std::optional<Entry>>() : undo(options);
  const auto take = [&](const Entry& entry) {
    if (options.limit != 0 && page.entries.size() == options.limit) {
      page.more = true;
      ++page.remaining;
    } else {
      page.entries.push_back(entry);
    }
  };
  auto now = options.start_after < options.prefix ? entries_.lower_bound(options.prefix)
                                                  : entries_.upper_bound(options.start_after);
  auto then = changes.begin();
  const auto in_range = [&now, &options, end = entries_.end()] {
    return now != end && now->first.starts_with(options.prefix);
  };
  while (in_range() || then != changes.end()) {
    if (then == changes.end() || (in_range() && now->first < then->first)) {
      take((now++)->second);
      continue;
    }
    if (in_range() && now->first == then->first) ++now;
    if (then->second) take(*then->second);
    ++then;
  }
  return page;
}

Result<std::shared_ptr<WatchState>> Core::watch(std::string prefix, Revision after) {
  auto state = std::make_shared<WatchState>(std::move(prefix), after, watch_queue_events_max_);
  MutexLock lock(mutex_);
  if (closed_) return Error(Code::kUnavailable, "the store is closing");
  if (after < compacted_) return compacted(after, compacted_);
  const auto first = std::partition_point(history_.begin(), history_.end(), [&](const EventPtr& e) {
    return e->entry.modified <= after;
  });
  std::vector<EventPtr> backlog;
  std::copy_if(first, history_.end(), std::back_inserter(backlog),
               [&](const EventPtr& event) { return state->wants(*event); });
  state->start_with(std::move(backlog));
  watchers_.push_back(state);
  return state;
}

void Core::unwatch(const std::shared_ptr<WatchState>& state) {
  state->forget_wake();
  MutexLock lock(mutex_);
  std::erase(watchers_, state);
}

Revision Core::progress(WatchState& state) const {
  // The order matters: events up to revision() are already pushed. An empty queue afterwards means
  // that poll() returned all of them.
  const Revision pushed = std::max(revision(), state.after());
  return std::min(state.before_first().value_or(pushed), pushed);
}

Revision Core::revision() const {
  MutexLock lock(mutex_);
  return revision_;
}

Revision Core::oldest() const {
  MutexLock lock(mutex_);
  return compacted_;
}

Core::History Core::history() const {
  MutexLock lock(mutex_);
  return {.events = history_.size(), .bytes = history_bytes_, .compactions = compactions_};
}

Status Core::check_compaction(Revision revision) const {
  MutexLock lock(mutex_);
  if (revision > revision_)
    return Error(Code::kInvalid, "cannot compact up to " + std::to_string(revision) +
                                     "; the latest is " + std::to_string(revision_));
  return {};
}

void Core::compact(Revision revision) {
  MutexLock lock(mutex_);
  compacted_ = std::max(compacted_, revision);
  ++compactions_;
  while (!history_.empty() && history_.front()->entry.modified <= revision) drop_oldest();
}

void Core::drop_oldest() {
  history_bytes_ -= cost(*history_.front());
  compacted_ = std::max(compacted_, history_.front()->entry.modified);
  history_.pop_front();
}

void Core::trim() {
  while (history_.size() > history_events_max_ || history_bytes_ > history_bytes_max_) {
    const Revision revision = history_.front()->entry.modified;
    ++compactions_;
    // Drops all events of one revision together, because a partial transaction is useless.
    while (!history_.empty() && history_.front()->entry.modified == revision) drop_oldest();
  }
}

void Core::apply(const std::vector<EventPtr>& events) {
  std::vector<std::shared_ptr<WatchState>> woken;
  {
    MutexLock lock(mutex_);
    for (const EventPtr& event : events) {
      const Entry& entry = event->entry;
      if (event->type == EventType::kPut) {
        entries_.insert_or_assign(entry.key, entry);
      } else {
        entries_.erase(entry.key);
      }
      history_.push_back(event);
      history_bytes_ += cost(*event);
      for (std::size_t i = 0; i < watchers_.size();) {
        if (!watchers_[i]->wants(*event)) {
          ++i;
          continue;
        }
        if (woken.empty() || woken.back() != watchers_[i]) woken.push_back(watchers_[i]);
        if (watchers_[i]->push(event)) {
          ++i;
        } else {
          if (closed_watchers_ != nullptr) closed_watchers_->add();
          watchers_.erase(watchers_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    }
    if (!events.empty()) revision_ = events.back()->entry.modified;
    trim();
  }
  std::sort(woken.begin(), woken.end());
  woken.erase(std::unique(woken.begin(), woken.end()), woken.end());
  for (const auto& state : woken) state->wake();
}

void Core::close() {
  std::vector<std::shared_ptr<WatchState>> watchers;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    watchers.swap(watchers_);
  }
  for (const auto& state : watchers) {
    state->close();
    state->wake();
  }
}

}  // namespace varda::store::internal
