// Coordinator: one federated job on a disk, without a protocol. A server passes the requests of
// clients on, and one thread runs the rounds.
//
//   TRY(const auto job, Coordinator::open({.settings = settings}, model, directory, fs));
//   job->on_change([&] { … task_for() may have changed … });
//   std::thread rounds([&] { job->run(ctx); });
//   if (const auto task = job->task_for("node-7")) send(job->task_json(*task));
//
// No answer to a client is lost: the state is on the disk before task_for() returns a
// task, and an update before submit() returns kWanted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "aggregator/model_file.h"
#include "aggregator/secure_round.h"
#include "aggregator/store.h"
#include "aggregator/task_document.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "federated/round_machine.h"
#include "federated/settings.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "os/file_system.h"

namespace varda::aggregator {

/// The state of a job at one moment, for reports.
struct Snapshot {
  federated::RoundMachine::Phase phase = federated::RoundMachine::Phase::kWaiting;
  std::int64_t round = 0, rounds = 0, attempt = 0;
  std::int64_t target = 0, quorum = 0, updates = 0;
  std::size_t present = 0;
  std::vector<federated::RoundMachine::Client> clients;
  std::vector<federated::RoundRecord> history;
  std::optional<double> seconds_left;
  std::string model;              // SHA-256 of the latest weights, in hex
  std::optional<double> epsilon;  // spent; nothing: the job is not private
  std::string updates_digest;     // SHA-256 over the digests of all updates that count
  std::string job;
  bool evaluating = false;  // clients evaluate the last round
  bool failed = false;
  std::string reason, message;                       // of the end
  std::uint64_t received_bytes = 0, sent_bytes = 0;  // since the start of the process
};

/// Thread-safe.
class Coordinator {
 public:
  struct Options {
    federated::Settings settings;
    std::string job;                    // "": a random name; kept from the first start on
    std::size_t threads = 1;            // for the aggregation
    std::int64_t clients_expected = 0;  // 0: unknown
    Duration settle = std::chrono::seconds(5);
    Duration lost_after = std::chrono::seconds(90);  // without a sign of life
    std::size_t clients_max = 10'000;
    /// kAssigned: no client takes part before set_participants().
    enum class Admission : std::uint8_t { kOpen, kAssigned };
    Admission admission = Admission::kOpen;
    ModelExtras extras;
    const Clock* clock = &system_clock();
  };

  /// Opens or begins the job of the directory. kCorrupt: the directory has another job's state, or
  /// a broken one. kInvalid: the rule's name or parameters.
  static Result<std::unique_ptr<Coordinator>> open(Options options, const ModelFile& model,
                                                   os::Path directory, os::FileSystem& fs);
  virtual ~Coordinator() = default;

  // ---- clients ----

  /// The client is there. kUnavailable: the participants are not known yet. kForbidden: no
  /// participant, or excluded. kExhausted: too many clients.
  virtual Status seen(const std::string& client) = 0;
  /// The client is gone. Without this call it counts as gone after `lost_after`.
  virtual void left(const std::string& client) = 0;
  /// The client's task; nothing: the client waits for on_change().
  virtual std::optional<federated::Task> task_for(const std::string& client) = 0;
  /// The task as the client reads it.
  virtual codec::Json task_json(const std::string& client, const federated::Task& task) = 0;

  virtual federated::Verdict judge(const std::string& client, std::string_view task,
                                   const codec::Sha256& digest) = 0;
  struct Submitted {
    federated::Verdict verdict = federated::Verdict::kWanted;  // kWanted: accepted
    std::string message;                                       // of kRefused
    std::optional<federated::RefusalReason> reason;            // of kRefused
  };
  /// A finished upload: its bytes have the digest of the request.
  struct UploadedFile {
    os::Path path;
    std::optional<double> norm = {};  // of a federated::UpdateScan over exactly these bytes
  };
  /// Checks an update and makes it count. Blocks. An error is the disk's, and a retry may help.
  virtual Result<Submitted> submit(const std::string& client, const std::string& task,
                                   const codec::Sha256& digest, const UploadedFile& file) = 0;
  /// The same for an update in memory.
  virtual Result<Submitted> submit_bytes(const std::string& client, const std::string& task,
                                         std::string bytes) = 0;
  /// The client answered a task of training with something that is no update: it counts as
  /// refused. Ignored for another task.
  virtual Status refuse(const std::string& client, const std::string& task, const Error& why) = 0;
  /// Metrics of an evaluation task. No samples: the client has nothing to report. Ignored if the
  /// evaluation is over.
  virtual Status evaluated(const std::string& client, std::string_view task, double samples,
                           const federated::Metrics& metrics) = 0;
  /// A message of secure aggregation for the task, as SecureRound::put(). kNotFound: the job has no
  /// secure aggregation. kConflict also: the round of the task is over.
  virtual Status put_secure(const std::string& client, std::string_view task,
                            SecureRound::Message message, const codec::Json& json) = 0;
  /// The answer, as SecureRound::get(); nothing: wait for on_change().
  virtual Result<std::optional<codec::Json>> secure_answer(const std::string& client,
                                                           std::string_view task,
                                                           SecureRound::Message message) = 0;
  /// Bytes of the largest acceptable update.
  virtual std::uint64_t update_bytes_max() const = 0;
  virtual Store& store() = 0;
  virtual void count_bytes(std::uint64_t received, std::uint64_t sent) = 0;

  // ---- the owner ----

  /// `changed` is called when task_for() may have another result, from any thread. It must not
  /// block. Call before run().
  virtual void on_change(std::function<void()> changed) = 0;
  /// Only these clients may take part; nothing: all clients. Their number is the one of expected
  /// clients.
  virtual void set_participants(std::optional<std::set<std::string>> participants) = 0;
  /// Settings that may change between rounds change; the others stay as the job began with them.
  virtual Status update_settings(const federated::Settings& settings) = 0;
  /// Does what is due: deadlines, lost clients, the state's file, the aggregation. Returns the time
  /// of the next deadline, if there is one. An error is the disk's: call again later.
  virtual Result<std::optional<SteadyTime>> work(const Context& ctx) = 0;
  /// Calls work() until the job ends. Errors of the disk are retried. kCancelled, kTimeout: the
  /// context.
  virtual Status run(const Context& ctx) = 0;
  virtual Snapshot snapshot() = 0;
  virtual const federated::LayoutPointer& layout() const = 0;
  /// The latest model. kCorrupt, or the disk's error.
  virtual Result<federated::Weights> weights() = 0;
  /// The metrics of all rounds as CSV.
  virtual std::string metrics_csv() = 0;
};

}  // namespace varda::aggregator
