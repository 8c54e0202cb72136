#include "agent/datasets/manager.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/log.h"
#include "os/background.h"

namespace varda::agent::datasets {
namespace {

using Report = api::EdgeDatasetReport;
using CountResult = Schedule::Done::Result;

// Limits how often changes are read when a writer never stops.
constexpr std::chrono::milliseconds kNoticePause{20};
constexpr std::chrono::seconds kSaveRetry{30};
constexpr int kAgeNotes = 8;  // notes of a dataset's age per recount period

std::string gigabytes(std::uint64_t bytes) {
  char text[32];
  (void)std::snprintf(text, sizeof(text), "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

std::string_view state_of(const Report& report) {
  if (!report.reason.empty()) return Report::kFailed;
  return report.samples ? Report::kCounted : Report::kPending;
}

}  // namespace

Manager::Manager(Options options, os::FileSystem& fs, OpenTree tree, os::FileWatch& watch)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      watch_(watch),
      counter_({.roots = options_.roots,
                .portion_bytes = options_.portion_bytes,
                .portion_steps = options_.portion_steps},
               std::move(tree), watch),
      records_(fs, options_.directory),
      schedule_(options_.times) {}

void Manager::apply(const core::WorkList& list) {
  const MutexLock lock(mutex_);
  desired_ = list;
  wakeup_.notify();
}

void Manager::drop(Id id) {
  if (counting_ && counting_->first == id) counting_->second.request_stop();
  schedule_.remove(id);
  entries_.erase(id);
  unwatch_.push_back(id);
  sweep_ = true;
}

void Manager::apply_work_list() {
  std::optional<core::WorkList> desired;
  std::vector<api::EdgeDataset> unknown;
  {
    const MutexLock lock(mutex_);
    desired.swap(desired_);
    if (!desired) return;
    for (const api::EdgeDataset& spec : desired->spec.datasets)
      if (std::none_of(entries_.begin(), entries_.end(),
                       [&](const auto& entry) { return same_dataset(entry.second.spec, spec); }))
        unknown.push_back(spec);
  }
  std::map<std::string, Record> records;
  for (const api::EdgeDataset& spec : unknown)
    if (auto record = read_record(spec)) records.emplace(spec.key, std::move(*record));

  const MutexLock lock(mutex_);
  const SteadyTime now = clock_.now();
  if (!known_ || !unknown.empty()) sweep_ = true;  // old records
  known_ = true;
  list_ = desired->id;
  std::vector<Id> order;
  for (api::EdgeDataset& spec : desired->spec.datasets) {
    const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) {
      return same_dataset(e.second.spec, spec);
    });
    if (known != entries_.end()) {
      schedule_.set_recount(known->first, std::chrono::seconds(spec.recount_seconds));
      known->second.spec = std::move(spec);
      order.push_back(known->first);
      continue;
    }
    const Id id = ++ids_;
    Entry entry;
    std::optional<Duration> age;
    if (const auto record_entry = records.find(spec.key); record_entry != records.end()) {
      Record& record = record_entry->second;
      entry.report = std::move(record.report);
      entry.facts = record.facts;
      if (!record.state.empty()) age = record.age.value_or(std::chrono::seconds(0));
      entry.state_on_disk = record.state.size() > options_.state_bytes_max;
      if (!entry.state_on_disk) entry.state = std::move(record.state);
    }
    entry.report.key = spec.key;
    entry.report.uid = spec.uid;
    entry.report.state = state_of(entry.report);
    if (entry.report.reason.empty()) entry.report.message.clear();  // outdated progress
    entry.fresh = entry.saved = entry.save_due = now;
    schedule_.add(id, std::chrono::seconds(spec.recount_seconds), age, now);
    entry.spec = std::move(spec);
    entries_.emplace(id, std::move(entry));
    order.push_back(id);
  }
  const std::set<Id> wanted(order.begin(), order.end());
  std::vector<Id> removed;
  for (const auto& [id, entry] : entries_)
    if (!wanted.contains(id)) removed.push_back(id);
  for (const Id id : removed) drop(id);
  order_ = std::move(order);
  changed_ = other_list_ = true;
  if (options_.metrics != nullptr)
    options_.metrics->gauge("varda_agent_datasets", "Datasets of the work list.")
        .set(static_cast<double>(entries_.size()));
  wakeup_.notify();
}

// ---- reporting

std::optional<SteadyTime> Manager::publish_due() const {
  const MutexLock lock(mutex_);
  if (desired_) return SteadyTime::min();
  std::optional<SteadyTime> due;
  const auto at = [&due](SteadyTime time) {
    if (!due || time < *due) due = time;
  };
  if (changed_) {
    SteadyTime time = other_list_ ? SteadyTime::min() : publish_after_;
    for (const auto& [id, entry] : entries_)
      if (entry.fresh) time = std::max(time, *entry.fresh + options_.fresh);
    at(time);
  }
  for (const auto& [id, entry] : entries_) {
    if (!entry.running) continue;
    at(entry.reported_progress ? *entry.reported_progress + options_.progress_period
                               : *entry.running + options_.long_count);
  }
  return due;
}

void Manager::publish_running(SteadyTime now) {
  for (auto& [id, entry] : entries_) {
    if (!entry.running) continue;
    if (now < (entry.reported_progress ? *entry.reported_progress + options_.progress_period
                                       : *entry.running + options_.long_count))
      continue;
    entry.reported_progress = now;
    Report& report = entry.report;
    const dataset::Progress& far = entry.progress;
    std::string message;
    if (far.bytes > 0)
      message = gigabytes(far.bytes) + " of " + gigabytes(far.bytes_total) + " read";
    if (far.entries > 0) message = std::to_string(far.entries) + " files and folders looked at";
    changed_ = changed_ || report.state != Report::kCounting || report.message != message;
    report.state = Report::kCounting;
    report.reason.clear();
    report.message = std::move(message);
  }
}

void Manager::publish_reports() {
  apply_work_list();
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    publish_running(now);
    for (auto& [id, entry] : entries_)
      if (entry.fresh && *entry.fresh + options_.fresh <= now) entry.fresh.reset();
    const bool waits = std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
      return entry.second.fresh.has_value();
    });
    if (!changed_ || waits || (!other_list_ && now < publish_after_)) return;
    changed_ = other_list_ = false;
    publish_after_ = now + options_.report_period;
    published_ = {list_, {}};
    for (const Id id : order_) published_.reports.push_back(entries_.at(id).report);
  }
  publish();
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& /*live*/) const {
  status.dataset_roots = options_.reported_roots;
  const MutexLock lock(mutex_);
  status.datasets = published_.reports;
  return published_.list;
}

// ---- counting

std::optional<SteadyTime> Manager::work_due() const {
  const MutexLock lock(mutex_);
  if (sweep_ || !unwatch_.empty()) return SteadyTime::min();
  std::optional<SteadyTime> due = schedule_.next();
  for (const auto& [id, entry] : entries_)
    if (entry.unsaved && (!due || entry.save_due < *due)) due = entry.save_due;
  return due;
}

std::optional<CountTask> Manager::take() {
  const MutexLock lock(mutex_);
  const SteadyTime now = clock_.now();
  const auto job = schedule_.take(now);
  if (!job) return std::nullopt;
  Entry& entry = entries_.at(job->id);
  if (!entry.running) {
    entry.running = now;
    entry.reported_progress.reset();
    entry.progress = {};
    wakeup_.notify();  // the reporting task, for long counts
  }
  counting_.emplace(job->id, std::stop_source());
  CountTask task;
  task.id = job->id;
  task.work = job->work;
  task.spec = entry.spec;
  task.portion = !entry.portion_state.empty();
  task.state = task.portion ? entry.portion_state : entry.state;
  task.state_on_disk = entry.state_on_disk;
  task.failed = !entry.report.reason.empty();
  task.facts = entry.facts;
  task.stop = counting_->second.get_token();
  return task;
}

void Manager::settle_portion(Entry& entry, CountOutcome& outcome) {
  dataset::Counted& counted = *outcome.counted;
  if (counted.state.empty()) {
    // The file changed during the count: start over once it is quiet.
    entry.portion_state.clear();
    outcome.done.result = CountResult::kCounted;
    outcome.changed_meanwhile = true;
    return;
  }
  outcome.changed_meanwhile = false;  // the next portions notice it
  if (entry.portion_state.empty() || counted.from_byte == 0) {
    entry.portion_facts = counted.facts;
    entry.portion_whole = counted.from_byte == 0;
  }
  entry.portion_state = std::move(counted.state);
  entry.unsaved =
      entry.unsaved || !entry.report.samples;  // while no complete count exists to resume from
}

void Manager::settle_counted(Entry& entry, CountOutcome& outcome) {
  dataset::Counted& counted = *outcome.counted;
  outcome.done.whole = counted.from_byte == 0;
  if (!entry.portion_state.empty() && counted.from_byte > 0) {
    outcome.done.whole = entry.portion_whole;
    if (rewritten(*entry.portion_facts, counted.facts)) {
      counted.tally.inexact = "the file was written to while it was read";
      counted.state.clear();
      outcome.changed_meanwhile = true;
    }
  }
  entry.portion_state.clear();
  Report& report = entry.report;
  const Report before = report;
  report.reason.clear();
  report.message.clear();
  put_figures(counted, classes_max(entries_.size()), clock_.wall(), report);
  report.state = Report::kCounted;
  changed_ = changed_ || before.state != report.state || before.reason != report.reason ||
             before.message != report.message || before.inexact != report.inexact ||
             !same_figures(before, report);
  entry.unsaved = entry.unsaved || entry.state != counted.state || entry.facts != counted.facts ||
                  !same_figures(before, report) || before.inexact != report.inexact ||
                  before.reason != report.reason;
  entry.state = std::move(counted.state);
  entry.state_on_disk = false;
  entry.facts = counted.facts;
}

void Manager::settle(Id id, CountOutcome outcome) {
  const MutexLock lock(mutex_);
  counting_.reset();
  const auto found = entries_.find(id);
  if (found == entries_.end() || outcome.dropped) return;
  Entry& entry = found->second;
  Report& report = entry.report;
  const SteadyTime now = clock_.now();
  note_metrics(outcome);
  if (!outcome.failure.reason.empty()) {
    const bool updated = report.state != Report::kFailed ||
                         report.reason != outcome.failure.reason ||
                         report.message != outcome.failure.message;
    if (report.reason != outcome.failure.reason)
      log::warn("dataset not counted", {{"dataset", entry.spec.key},
                                        {"reason", outcome.failure.reason},
                                        {"why", outcome.failure.message}});
    report.state = Report::kFailed;
    report.reason = std::move(outcome.failure.reason);
    report.message = std::move(outcome.failure.message);
    entry.portion_state.clear();
    entry.facts.reset();
    changed_ = changed_ || updated;
    entry.unsaved = entry.unsaved || updated;
  } else if (outcome.done.result == CountResult::kPortion) {
    if (!outcome.done.folder) settle_portion(entry, outcome);
  } else if (outcome.counted) {
    const bool first = !report.samples;
    // A file's count already reports this in `inexact`.
    if (outcome.done.folder && outcome.counted->tally.inexact.empty() &&
        schedule_.changed_meanwhile(id))
      outcome.counted->tally.inexact = "the folder changed while it was counted";
    settle_counted(entry, outcome);
    if (first)
      log::info(
          "dataset counted",
          {{"dataset", entry.spec.key}, {"samples", *report.samples}, {"bytes", report.bytes}});
  } else if (report.state == Report::kCounting) {  // a long look found no change
    report.state = state_of(report);
    report.message.clear();
    changed_ = true;
  }
  const Duration period = entry.spec.recount_seconds > 0
                              ? Duration(std::chrono::seconds(entry.spec.recount_seconds))
                              : options_.times.recount;
  if (now - entry.saved >= period / kAgeNotes && (!entry.state.empty() || entry.state_on_disk))
    entry.unsaved = true;
  schedule_.done(id, outcome.done, now);
  if (outcome.done.result != CountResult::kPortion) {
    entry.running.reset();
    entry.fresh.reset();
  }
  if (outcome.changed_meanwhile) schedule_.changed(id, now);
  wakeup_.notify();
}

void Manager::note_metrics(const CountOutcome& outcome) {
  if (options_.metrics == nullptr || outcome.done.result == CountResult::kPortion) return;
  const std::string result = !outcome.failure.reason.empty() ? outcome.failure.reason
                             : outcome.counted               ? "Counted"
                                                             : "Unchanged";
  options_.metrics
      ->counter("varda_agent_dataset_counts_total", "Looks at datasets, by result.",
                {{"result", result}})
      .add();
}

void Manager::clear_up() {
  std::vector<Id> unwatch;
  std::optional<std::set<std::string>> keys;
  {
    const MutexLock lock(mutex_);
    unwatch.swap(unwatch_);
    if (sweep_) {
      keys.emplace();
      for (const auto& [id, entry] : entries_) keys->insert(entry.spec.key);
    }
    sweep_ = false;
  }
  for (const Id id : unwatch) {
    watch_.unwatch(id);
    counter_.forget(id);
  }
  if (!keys) return;
  if (const Status cleared = records_.keep_only(*keys); !cleared.ok())
    log::warn("cannot remove records of former datasets", {{"error", cleared.error()}});
}

std::optional<Record> Manager::read_record(const api::EdgeDataset& spec) {
  auto record = records_.read(spec);
  if (record.ok()) return std::move(*record);
  log::warn("dataset record cannot be read", {{"dataset", spec.key}, {"error", record.error()}});
  return std::nullopt;
}

Status Manager::restore_state(Record& record) {
  TRY(auto before, records_.read(record.spec));
  if (before) record.state = std::move(before->state);
  return {};
}

void Manager::save(bool all) {
  struct Due {
    Id id;
    Record record;
    bool state_on_disk;
  };
  std::vector<Due> due;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    for (auto& [id, entry] : entries_) {
      if (!entry.unsaved || (!all && entry.save_due > now)) continue;
      entry.unsaved = false;
      entry.saved = now;
      entry.save_due = now + options_.save_period;
      Record record;
      record.spec = entry.spec;
      record.report = entry.report;
      record.state =
          entry.report.samples || entry.portion_state.empty() ? entry.state : entry.portion_state;
      record.facts = entry.facts;
      if (const auto age = schedule_.age(id, now))
        record.age = std::chrono::duration_cast<std::chrono::seconds>(*age);
      due.push_back({id, std::move(record), entry.state_on_disk});
    }
  }
  for (Due& one : due) {
    // If the disk holds the only copy of the state, the record is not replaced without it.
    Status written = one.state_on_disk ? restore_state(one.record) : Status();
    if (written.ok()) written = records_.write(one.record);
    const MutexLock lock(mutex_);
    const auto found = entries_.find(one.id);
    if (found == entries_.end()) {
      sweep_ = true;  // removed meanwhile
    } else if (!written.ok()) {
      log::warn("dataset count not persisted; a restart would count again",
                {{"dataset", one.record.spec.key}, {"error", written.error()}});
      found->second.unsaved = true;
      found->second.save_due = clock_.now() + kSaveRetry;
    } else if (found->second.state.size() > options_.state_bytes_max) {
      found->second.state = std::string();
      found->second.state_on_disk = true;
    }
  }
}

void Manager::work(const Context& ctx) {
  clear_up();
  if (const auto task = take()) {
    std::stop_source stop;
    const std::stop_callback ended(ctx.stop_token(), [&stop] { stop.request_stop(); });
    const std::stop_callback dropped(task->stop, [&stop] { stop.request_stop(); });
    const SteadyTime began = clock_.now();
    const auto load_state = [&] {
      const auto record = read_record(task->spec);
      return record ? record->state : "";
    };
    const auto progress = [this, id = task->id](const dataset::Progress& far) {
      const MutexLock lock(mutex_);
      if (const auto found = entries_.find(id); found != entries_.end())
        found->second.progress = far;
    };
    CountOutcome outcome =
        counter_.count(ctx.with_stop(stop.get_token()), *task, load_state, progress);
    outcome.done.took = clock_.now() - began;
    if (outcome.done.folder && outcome.counted) notice();  // before settle()
    settle(task->id, std::move(outcome));
  }
  save(false);
}

void Manager::notice() {
  const std::vector<os::FileWatch::Id> changed = watch_.take();
  const MutexLock lock(mutex_);
  for (const os::FileWatch::Id id : changed) schedule_.changed(id, clock_.now());
  wakeup_.notify();
}

// ---- driving

std::vector<runtime::Task> Manager::tasks() {
  std::vector<runtime::Task> out;
  out.push_back({.name = "datasets",
                 .due = [this] { return publish_due(); },
                 .step = [this](const Context&) { publish_reports(); },
                 .wakeup = &wakeup_});
  out.push_back({.name = "dataset counts",
                 .due = [this] { return work_due(); },
                 .step = [this](const Context& ctx) { work(ctx); },
                 .wakeup = &wakeup_,
                 .prepare_thread = os::lower_thread_priority});
  out.push_back(
      {.name = "dataset changes",
       .due = [this] { return watch_.pending() ? std::optional(SteadyTime::min()) : std::nullopt; },
       .step = [this](const Context&) { notice(); },
       .wait =
           [this](const Context& ctx) {
             (void)ctx.sleep_for(kNoticePause);
             (void)watch_.wait(ctx);
           }});
  return out;
}

}  // namespace varda::agent::datasets
