#include "datadir/supervisor.h"

#include <csignal>

#include "base/log.h"
#include "codec/json.h"

namespace varda::datadir {
namespace {

using codec::Json;

Result<Json> read_record(const std::filesystem::path& record) {
  TRY(const std::string text, os::read_file(os::real_file_system(), record));
  return codec::parse_json(text);
}

os::ProcessId process_of(const Json& record) {
  return {static_cast<pid_t>(record["pid"].as_integer()),
          static_cast<std::uint64_t>(record["startTicks"].as_integer())};
}

void end_hard(const os::ProcessId& id) {
  (void)os::signal_process(id, SIGKILL, /*group=*/false);
  (void)os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(10)), id);
}

/// The process in the record, if it still runs.
std::optional<os::ProcessId> recorded_process(const std::filesystem::path& record) {
  auto json = read_record(record);
  if (!json.ok()) return std::nullopt;
  const os::ProcessId id = process_of(*json);
  if (id.pid <= 0 || !os::alive(id)) return std::nullopt;
  return id;
}

}  // namespace

std::vector<os::ProcessId> agents_of(const std::filesystem::path& data_directory) {
  const std::string first(1, '\0');
  const std::string agent = first + "agent" + first,
                    place = first + "--data-dir" + first + data_directory.string() + first;
  std::vector<os::ProcessId> out;
  auto entries = os::real_file_system().list("/proc");
  if (!entries.ok()) return out;
  for (const std::string& entry : *entries) {
    if (entry.find_first_not_of("0123456789") != std::string::npos) continue;
    auto command = os::read_file(os::real_file_system(), os::Path("/proc") / entry / "cmdline");
    if (!command.ok() || command->find(agent) != command->find('\0') ||
        command->find(place) == std::string::npos)
      continue;
    if (const auto id = os::find_process(static_cast<pid_t>(std::stol(entry)))) out.push_back(*id);
  }
  return out;
}

void end_processes(const std::vector<os::ProcessId>& processes, std::chrono::milliseconds grace) {
  for (const os::ProcessId& process : processes)
    (void)os::signal_process(process, SIGTERM, /*group=*/false);
  const Context until = Context::background().with_timeout(grace);
  for (const os::ProcessId& process : processes) {
    if (!os::wait_for_exit(until, process).ok()) end_hard(process);
  }
}

std::chrono::milliseconds RestartPause::after(Duration ran) {
  if (ran > kSettledAfter) next_ = std::min(min_, max_);
  const std::chrono::milliseconds pause = next_;
  next_ = next_ > max_ / 2 ? max_ : next_ * 2;
  return pause;
}

Supervisor::Supervisor(Options options) : options_(std::move(options)) {}
Supervisor::~Supervisor() = default;

void Supervisor::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

std::optional<os::ProcessId> Supervisor::adopt() {
  std::optional<os::ProcessId> running = recorded_process(options_.record);
  if (running) {
    auto json = read_record(options_.record);
    if (!json.ok() || (*json)["fingerprint"].as_string() != options_.fingerprint) {
      // Another address or version: SIGKILL is enough, since the successor adopts the child's own
      // processes.
      log::info("replacing a process that was started differently",
                {{"name", options_.name}, {"pid", running->pid}});
      end_hard(*running);
      running.reset();
    }
  }
  for (const os::ProcessId& other : agents_of(options_.data)) {
    if (running && other == *running) continue;
    log::info("ending a process without a record", {{"name", options_.name}, {"pid", other.pid}});
    end_hard(other);
  }
  return running;
}

void Supervisor::run(const std::stop_token& stop) {
  const Context ctx{stop};
  RestartPause pause(options_.backoff_min, options_.backoff_max);
  std::optional<os::ProcessId> adopted = adopt();
  if (adopted) {
    // Set also after an early stop request: stop() ends this child.
    MutexLock lock(mutex_);
    child_ = *adopted;
  }
  while (!stop.stop_requested()) {
    os::ProcessId child;
    if (adopted) {
      child = *adopted;
      adopted.reset();
      log::info("adopted a running process", {{"name", options_.name}, {"pid", child.pid}});
    } else {
      auto started = os::real_processes().start(options_.process);
      if (!started.ok()) {
        log::error("cannot start a process", {{"name", options_.name}, {"error", started.error()}});
        if (!ctx.sleep_for(pause.after(Duration::zero())).ok()) return;
        continue;
      }
      child = *started;
      const Json record = Json::object({{"pid", static_cast<std::int64_t>(child.pid)},
                                        {"startTicks", child.start_ticks},
                                        {"fingerprint", options_.fingerprint}});
      if (Status written = os::write_file_atomically(os::real_file_system(), options_.record,
                                                     codec::write_json(record) + "\n", 0600);
          !written.ok()) {
        log::error("process record not written",
                   {{"name", options_.name}, {"error", written.error()}});
      }
    }
    {
      MutexLock lock(mutex_);
      child_ = child;
    }
    const SteadyTime since = system_clock().now();
    for (;;) {
      const Status exited = os::wait_for_exit(ctx, child);
      if (exited.ok()) break;
      if (stop.stop_requested()) return;  // stop() ends the child
      // The child still runs and stays supervised, as after a lack of descriptors.
      log::error("cannot wait for a process",
                 {{"name", options_.name}, {"pid", child.pid}, {"error", exited.error()}});
      if (!ctx.sleep_for(options_.backoff_max).ok()) return;
    }
    (void)os::real_processes().poll(child);
    log::warn("process ended, restarting", {{"name", options_.name}, {"pid", child.pid}});
    if (!ctx.sleep_for(pause.after(system_clock().now() - since)).ok()) return;
  }
}

void Supervisor::stop(std::chrono::milliseconds grace) {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  os::ProcessId child;
  {
    MutexLock lock(mutex_);
    child = child_;
  }
  if (child.pid <= 0 || !os::alive(child)) return;
  (void)os::signal_process(child, SIGTERM, /*group=*/false);
  if (!os::wait_for_exit(Context::background().with_timeout(grace), child).ok()) {
    log::warn("process did not end in time, killing",
              {{"name", options_.name}, {"pid", child.pid}});
    (void)os::signal_process(child, SIGKILL, /*group=*/false);
    (void)os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(10)), child);
  }
  (void)os::real_processes().poll(child);
}

}  // namespace varda::datadir
