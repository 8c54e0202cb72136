// varda-aggregate: the server of a federated job, on a desk or in a pod with --worker.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/context.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "federated/settings.h"
#include "flags.h"
#include "os/file_system.h"
#include "os/process.h"
#include "run.h"
#include "worker.h"
#include "worker/environment.h"

namespace varda::aggregate {
namespace {

// Clients poll all the time, so that they learn the end of the job at once.
constexpr std::chrono::seconds kGoodbye{10};

std::string line_of(const federated::RoundRecord& record, std::int64_t rounds) {
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  std::string out = "round " + std::to_string(record.round) + "/" + std::to_string(rounds) + ": " +
                    std::to_string(record.updates) + " updates";
  if (record.refused > 0) out += ", " + std::to_string(record.refused) + " refused";
  for (const auto& [name, value] : record.training) out += ", train " + name + " " + number(value);
  for (const auto& [name, value] : record.evaluation) out += ", " + name + " " + number(value);
  return out + ", " + number(record.seconds) + " s";
}

/// Prints each round once it is complete.
class Console {
 public:
  explicit Console(aggregator::Coordinator& coordinator) : coordinator_(coordinator) {
    for (const auto& record : coordinator.snapshot().history) last_ = record.round;
    coordinator.on_change([wake = wake_] {
      const MutexLock lock(wake->mutex);
      wake->changed = true;
      wake->condition.notify_one();
    });
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }
  ~Console() {
    thread_.request_stop();
    thread_.join();
    print();
  }

 private:
  /// Shared with the listener, which lives as long as the coordinator.
  struct Wake {
    Mutex mutex;
    CondVar condition;
    bool changed GUARDED_BY(mutex) = true;
  };

  void work(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        const MutexLock lock(wake_->mutex);
        while (!wake_->changed && !stop.stop_requested()) wake_->condition.wait(wake_->mutex, stop);
        wake_->changed = false;
      }
      print();
    }
  }

  void print() {
    const aggregator::Snapshot now = coordinator_.snapshot();
    for (const auto& record : now.history) {
      const bool open = now.evaluating && record.round == now.history.back().round;
      if (record.round <= last_ || open) continue;
      std::printf("%s\n", line_of(record, now.rounds).c_str());
      std::fflush(stdout);
      last_ = record.round;
    }
  }

  aggregator::Coordinator& coordinator_;
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  std::int64_t last_ = 0;
  std::jthread thread_;
};

Status run_here(const Context& ctx, const Flags& flags) {
  os::FileSystem& fs = os::real_file_system();
  TRY(const codec::Json json, settings_of(fs, flags));
  TRY(federated::Settings settings, federated::parse_settings(json));
  const std::size_t processors = std::max(1u, std::thread::hardware_concurrency());
  JobOptions options{
      .model = flags.model,
      .directory = flags.out,
      .settings = std::move(settings),
      .listen = flags.listen,
      .admin = flags.admin,
      .flower = flags.flower,
      .clients_expected = flags.clients,
      .threads = flags.threads == 0 ? processors : static_cast<std::size_t>(flags.threads),
      .lost_after = *parse_duration(flags.lost_after),
      .client_of = [](const net::Request&) -> Result<std::string> {
        return Error(Code::kUnauthenticated,
                     "clients have no names here: start varda-aggregate with --trust-clients");
      }};
  if (flags.trust_clients) options.client_of = client_of_header;
  TRY(const auto job, Job::open(std::move(options), fs));
  std::string addresses = "http://" + job->address();
  if (!job->admin_address().empty()) addresses += ", admin http://" + job->admin_address();
  if (!job->flower_address().empty()) addresses += ", flower " + job->flower_address();
  std::printf("varda-aggregate is ready: %s\n", addresses.c_str());
  std::fflush(stdout);
  Status status;
  {
    const Console console(job->coordinator());
    status = job->run(ctx);
    job->dismiss(ctx, kGoodbye);
  }
  const aggregator::Snapshot end = job->coordinator().snapshot();
  if (status.ok())
    std::printf("%s: %s, result in %s\n", end.reason.c_str(), end.message.c_str(),
                flags.out.c_str());
  return status;
}

int exit_code_of(const Error& error) {
  if (error.code() == Code::kCancelled && os::stopping_signal() != 0)
    return 128 + os::stopping_signal();
  return error.code() == Code::kInvalid || error.code() == Code::kUnsupported ||
                 error.code() == Code::kNotFound
             ? 2
             : 1;
}

int run(int argc, char** argv) {
  const Parsed parsed = parse_flags(argc, argv);
  if (!parsed.flags) return parsed.exit_code;
  const Flags& flags = *parsed.flags;
  log::configure(flags.log_format == "json" ? log::Format::kJson : log::Format::kText,
                 log::parse_level(flags.log_level).value_or(log::Level::kInfo));
  const Context ctx(os::stop_on_signals());
  if (flags.worker)
    return work(ctx, worker::environment_of_process(), flags, os::real_file_system());
  const Status status = run_here(ctx, flags);
  if (status.ok()) return 0;
  const int code = exit_code_of(status.error());
  if (code > 128) {
    std::fprintf(stderr, "varda-aggregate: stopped; the same command continues this job\n");
  } else {
    std::fprintf(stderr, "varda-aggregate: %s\n", status.error().message().c_str());
  }
  return code;
}

}  // namespace
}  // namespace varda::aggregate

int main(int argc, char** argv) {
  try {
    return varda::aggregate::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "varda-aggregate: %s\n", e.what());
    return 1;
  }
}
