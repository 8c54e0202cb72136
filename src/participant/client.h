// The client of a federated job: takes tasks until the job ends.
//
//   TRY(const Outcome outcome, run(ctx, {.url = "http://10.0.0.5:7363", .directory =
//   "/data/client"},
//                                  http, fs, worker, machine, observer));
//
// A kill at any moment is harmless: the next start continues the download, the training from the
// worker's checkpoint, or the upload. A finished update is never trained again, and counts once. A
// client of secure aggregation that is killed before its upload joins the next round.
// Failures of the network and of the aggregator are retried until the context is done, or for
// Options::give_up_after.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "codec/ed25519.h"
#include "net/http.h"
#include "os/file_system.h"
#include "participant/conditions.h"
#include "participant/task.h"
#include "participant/worker.h"

namespace varda::participant {

/// Called on the thread of run(). The task is valid during the call.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void waiting() {}  // for a task
  /// `reason` changes; the client takes no task meanwhile.
  virtual void paused(const std::string& /*reason*/) {}
  virtual void downloading(const Task& /*task*/) {}
  virtual void training(const Task& /*task*/) {}
  virtual void trained(const Task& /*task*/, const TrainedUpdate& /*update*/) {}
  virtual void uploading(const std::string& /*task*/, std::uint64_t /*bytes*/) {}
  virtual void accepted(const std::string& /*task*/, std::uint64_t /*bytes*/) {}
  /// The aggregator does not take the update: late, or refused for the reason in `message`.
  virtual void dropped(const std::string& /*task*/, int /*status*/,
                       const std::string& /*message*/) {}
  virtual void evaluated(const Task& /*task*/, const Evaluated& /*result*/) {}
  /// This client cannot do the task; the next task follows.
  virtual void skipped(const Task& /*task*/, const Error& /*error*/) {}
  /// The same message is reported once in a row.
  virtual void retrying(const std::string& /*message*/) {}
};

/// The part of the client in secure aggregation that does not come from the aggregator.
struct SecureIdentity {
  /// The job promises secure aggregation: a task without it is refused.
  bool required = false;
  /// Raw public keys. Not empty: all neighbours must be signed by different ones of them.
  std::set<std::string> trusted_signers;
  std::shared_ptr<const codec::Ed25519PrivateKey> signing_key;  // null: keys without signature
};

struct Options {
  std::string url;     // of the aggregator, without a path
  std::string client;  // sent as Varda-Client; "": the stream has the name
  std::string job;     // the state of another job is removed; "": `url` stands for the job
  os::Path directory;  // of the state; the caller locks it
  SecureIdentity secure;
  When when;
  std::uint64_t bytes_per_second = 0;  // in each direction; 0: no limit
  // Refuses larger files of tasks.
  std::uint64_t file_bytes_max = std::uint64_t{16} << 30;
  std::chrono::seconds poll{30};                     // an empty answer takes this long
  std::chrono::milliseconds presence_every{30'000};  // between signs of life during the work
  std::chrono::milliseconds request_timeout{60'000};
  std::chrono::milliseconds first_pause{500};  // after a failure; doubles, with a random part
  std::chrono::milliseconds longest_pause{30'000};
  // run() fails if the aggregator has refused or not answered every request for this long. 0:
  // never.
  std::chrono::milliseconds give_up_after{0};
  std::chrono::milliseconds conditions_every{30'000};
  std::size_t piece_bytes_max = std::size_t{8} << 20;  // of an upload
  // Tasks in a row that this client cannot do. Then run() fails. Before the first task that goes
  // well, one failure is enough.
  int failures_max = 3;
};

struct Outcome {
  bool failed = false;  // of the job
  std::string message;  // of the job's end
  std::uint64_t accepted = 0, dropped = 0, evaluated = 0;
  std::uint64_t received_bytes = 0, sent_bytes = 0;  // of files
};

/// Blocks until the job ends. All references outlive the call. kCancelled, kTimeout: the context is
/// done; the next call continues. kUnavailable: Options::give_up_after is over. Other codes: the
/// last failure of the worker, or the directory is unusable.
Result<Outcome> run(const Context& ctx, const Options& options, net::HttpClient& http,
                    os::FileSystem& fs, Worker& worker, Machine& machine, Observer& observer);

}  // namespace varda::participant
