#include "scheduler.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace varda::sim {
namespace {

constexpr std::size_t kTraceLinesMax = 100'000;
constexpr std::uint64_t kFnvBasis = 14695981039346656037ULL,
                        kFnvPrime = 1099511628211ULL;  // FNV-1a

}  // namespace

Scheduler::~Scheduler() {
  for (const auto& task : tasks_) CHECK(task->fiber == nullptr);  // every process was killed before
}

void Scheduler::set_policy(Policy policy, std::uint64_t steps_expected, int changes) {
  policy_ = policy;
  changes_.clear();
  for (int i = 0; i < changes; ++i) changes_.push_back(steps_ + rng_.below(steps_expected));
}

void Scheduler::begin() {
  for (const auto& task : tasks_) task->priority = kHighest + rng_.below(1u << 30);
  lowest_ = kHighest;
  begun_ = clock_.now();
  fingerprint_ = order_ = kFnvBasis;
  trace_.clear();
}

void Scheduler::add(Process& process, runtime::Task task) {
  auto entry = std::make_unique<Task>();
  entry->process = &process;
  entry->task = std::move(task);
  entry->priority = kHighest + rng_.below(1u << 30);
  tasks_.push_back(std::move(entry));
}

void Scheduler::kill(Process& process) {
  process.alive = false;
  process.stop.request_stop();
  for (const auto& task : tasks_) {
    if (task->process != &process) continue;
    CHECK(task.get() != current_);  // a process cannot kill itself
    while (task->fiber) run(*task);
  }
  std::erase_if(tasks_, [&](const auto& task) { return task->process == &process; });
}

Scheduler::Task* Scheduler::choose() {
  ready_.clear();
  const SteadyTime now = clock_.now();
  for (const auto& task : tasks_) {
    const auto due = task->due();
    if (due && *due <= now) ready_.push_back(task.get());
  }
  if (ready_.empty()) return nullptr;
  if (policy_ == Policy::kWalk) return ready_[rng_.below(ready_.size())];
  Task* best = *std::max_element(ready_.begin(), ready_.end(),
                                 [](Task* a, Task* b) { return a->priority < b->priority; });
  if (const auto change = std::find(changes_.begin(), changes_.end(), steps_);
      change != changes_.end()) {
    changes_.erase(change);
    best->priority = --lowest_;
    best = *std::max_element(ready_.begin(), ready_.end(),
                             [](Task* a, Task* b) { return a->priority < b->priority; });
  }
  return best;
}

bool Scheduler::step() {
  Task* task = choose();
  if (!task) return false;
  ++steps_;
  if (!task->fiber) note("runs");
  run(*task);
  return true;
}

void Scheduler::run(Task& task) {
  Task* const before = current_;
  current_ = &task;
  if (!task.fiber) {
    task.fiber = &fibers_.take();
    task.fiber->start([&task] { task.task.step(Context(task.process->stop.get_token())); });
  }
  if (!task.fiber->resume()) {
    fibers_.give_back(*task.fiber);
    task.fiber = nullptr;
    task.waiting = nullptr;
  }
  current_ = before;
}

std::optional<SteadyTime> Scheduler::next() {
  std::optional<SteadyTime> earliest;
  for (const auto& task : tasks_) {
    const auto due = task->due();
    if (due && (!earliest || *due < *earliest)) earliest = due;
  }
  return earliest;
}

Status Scheduler::wait(Due due) {
  Task* const task = current_;
  CHECK(task != nullptr);
  const Error cancelled(Code::kCancelled, "the process ends");
  if (!task->process->alive) return cancelled;
  task->waiting = std::move(due);
  task->fiber->suspend();
  if (!task->process->alive) return cancelled;
  return {};
}

void Scheduler::note(std::string_view what, std::string_view detail) {
  const std::string_view process = current_ ? std::string_view(current_->process->name) : "";
  const std::string_view task = current_ ? std::string_view(current_->task.name) : "";
  const auto mix = [this](std::string_view text) {
    for (const char c : text) order_ = (order_ ^ static_cast<unsigned char>(c)) * kFnvPrime;
  };
  mix(process);
  mix(task);
  mix(what);
  fingerprint_ = (fingerprint_ ^ order_) * kFnvPrime;
  fingerprint_ =
      (fingerprint_ ^ static_cast<std::uint64_t>((clock_.now() - begun_).count())) * kFnvPrime;
  if (!keep_trace_) return;
  char time[32];
  std::snprintf(
      time, sizeof time, "%6llu %10.3f ", static_cast<unsigned long long>(steps_),
      std::chrono::duration<double>(clock_.now().time_since_epoch() % std::chrono::hours(24))
          .count());
  std::string line = time;
  line.append(process).append(task.empty() ? "" : " / ").append(task).append(": ").append(what);
  if (!detail.empty()) line.append("  ").append(detail);
  trace_.push_back(std::move(line));
  if (trace_.size() > kTraceLinesMax) trace_.pop_front();
}

}  // namespace varda::sim
