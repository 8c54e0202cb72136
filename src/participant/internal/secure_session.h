// SecureSession: one client in the secure sum of one task, over the aggregator's endpoints.
//
//   TRY(auto session, SecureSession::join(task, keys, exchange));   // keys, shares, members
//   if (!session) …                                                 // the round continues without
//   TRY(const std::string file, session->masked(task, trained));
//   … upload …
//   session->reveal(exchange);                                      // shares of other masks
//
// The secrets live in memory only. After a kill the client has no part in the round any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "participant/client.h"
#include "participant/task.h"
#include "participant/worker.h"
#include "privacy/secure_sum.h"

namespace varda::participant {

/// Not thread-safe.
class SecureSession {
 public:
  struct Request {
    std::string method;  // PUT; GET waits until the aggregator has an answer
    std::string part;    // keys, shares, opened or unmask
    codec::Json body = {};
  };
  /// Sends a request until the aggregator answers. Nothing: the round is over for this client.
  using Exchange = std::function<Result<std::optional<codec::Json>>(const Request&)>;

  /// Nothing: the round continues without this client. `identity` outlives the session. kInvalid: a
  /// broken or untrusted message. Other codes: from `exchange`.
  static Result<std::unique_ptr<SecureSession>> join(const Task& task,
                                                     const SecureIdentity& identity,
                                                     const Exchange& exchange);

  const std::string& task() const { return task_; }
  /// The file of the masked update. Runs once. kInvalid: a wrong length, or see
  /// federated::to_integers().
  Result<std::string> masked(const Task& task, const TrainedUpdate& trained);
  /// Waits for the aggregator's question, and answers it. kForbidden: a question that would show a
  /// single update.
  Status reveal(const Exchange& exchange);

 private:
  SecureSession(std::string task, privacy::SumClient client)
      : task_(std::move(task)), client_(std::move(client)) {}

  const std::string task_;
  privacy::SumClient client_;
  std::uint64_t clients_ = 0;  // in the sum at most
};

}  // namespace varda::participant
