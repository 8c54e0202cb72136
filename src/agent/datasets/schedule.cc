#include "agent/datasets/schedule.h"

#include <algorithm>
#include <utility>

namespace varda::agent::datasets {

Duration Schedule::recount_of(std::chrono::seconds recount) const {
  // At most a century, so that adding it to a time cannot overflow.
  return recount.count() > 0
             ? Duration(std::min(recount, std::chrono::seconds(std::chrono::hours(24 * 36525))))
             : times_.recount;
}

void Schedule::add(Id id, std::chrono::seconds recount, std::optional<Duration> age,
                   SteadyTime now) {
  Entry entry;
  entry.recount = recount_of(recount);
  if (age) entry.whole = now - std::min(*age, entry.recount);
  entry.first_change = entry.last_change =
      now - std::max<Duration>(times_.quiet, times_.busy_max);  // so that it is due at once
  entry.look = entry.not_before = now;
  entries_.insert_or_assign(id, entry);
}

void Schedule::set_recount(Id id, std::chrono::seconds recount) {
  if (const auto found = entries_.find(id); found != entries_.end())
    found->second.recount = recount_of(recount);
}

void Schedule::changed(Id id, SteadyTime now) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.last_change = now;
  if (!entry.first_change) entry.first_change = now;
}

std::optional<Schedule::Due> Schedule::due(const Entry& entry) const {
  if (entry.busy) return std::nullopt;
  if (entry.unfinished) return Due{entry.not_before, entry.working};
  Due out{entry.look, Work::kLook};
  if (entry.first_change) {
    const SteadyTime at = std::max(
        entry.not_before,
        std::min(*entry.last_change + times_.quiet, *entry.first_change + times_.busy_max));
    if (at <= out.at) out = {at, Work::kCount};
  }
  if (entry.whole) {
    const SteadyTime at = std::max(entry.not_before, *entry.whole + entry.recount);
    if (at <= out.at) out = {at, Work::kRecount};
  }
  return out;
}

std::optional<Schedule::Job> Schedule::take(SteadyTime now) {
  Entry* best = nullptr;
  Job job;
  Due first{SteadyTime::max(), Work::kLook};
  for (auto& [id, entry] : entries_) {
    const auto at = due(entry);
    if (!at || at->at > now || (best != nullptr && at->at >= first.at)) continue;
    best = &entry;
    first = *at;
    job.id = id;
  }
  if (best == nullptr) return std::nullopt;
  job.work = first.work;
  // If a recount is due anyway, it replaces the count of the change.
  if (!best->unfinished && (!best->whole || *best->whole + best->recount <= now))
    job.work = Work::kRecount;
  best->working = job.work;
  best->busy = true;
  if (!best->unfinished || !best->keeps_change_times) {
    best->first_change.reset();  // later changes need the next count
    best->last_change.reset();
  }
  return job;
}

std::optional<SteadyTime> Schedule::next() const {
  std::optional<SteadyTime> earliest;
  for (const auto& [id, entry] : entries_)
    if (const auto at = due(entry); at && (!earliest || at->at < *earliest)) earliest = at->at;
  return earliest;
}

void Schedule::done(Id id, const Done& done, SteadyTime now) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.busy = false;
  entry.unfinished = done.result == Done::Result::kPortion;
  if (entry.unfinished) {
    entry.keeps_change_times = done.folder;
    if (done.folder) entry.took += done.took;
    if (entry.working == Work::kLook) entry.working = Work::kCount;
    entry.not_before = now;
    return;
  }
  if (done.whole) {
    entry.whole = now;
  } else if (entry.working == Work::kRecount) {
    entry.whole.reset();
  }
  const Duration took = done.took + std::exchange(entry.took, Duration(0));
  // Counts up to 100 ms need no pause. Without a pause, a folder that takes ten minutes and keeps
  // changing would be counted forever.
  const bool long_one = took > std::chrono::milliseconds(100);
  entry.not_before = long_one ? now + std::min<Duration>(took * 2, std::chrono::minutes(10)) : now;
  const Duration period = done.folder ? (done.watched ? times_.rescan_folder : times_.poll_folder)
                                      : (done.watched ? times_.look : times_.poll);
  entry.look = now + std::max(period, took * 10);
  entry.failures = done.result == Done::Result::kUnreadable ? entry.failures + 1 : 0;
  if (entry.failures > 0) {
    const Duration wait = std::min<Duration>(
        times_.retry_first * (1 << std::min(entry.failures - 1, 12)), times_.retry_max);
    entry.look = std::min(entry.look, now + wait);
  }
}

bool Schedule::changed_meanwhile(Id id) const {
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second.first_change.has_value();
}

std::optional<Duration> Schedule::age(Id id, SteadyTime now) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.whole) return std::nullopt;
  return now - *found->second.whole;
}

}  // namespace varda::agent::datasets
