// SecureRound: the secure sum of one open round, from the clients' keys to the sum. Events in,
// steps out, without clock, files, network and lock.
//
//   SecureRound round("3-train-5f1c", {.sum = {"job/3-train-5f1c", length}, …}, now);
//   TRY_VOID(round.put(client, SecureRound::Message::kKeys, json));
//   TRY(const auto closed, round.advance(working, least, now));  // after each put(), and at due()
//   if (closed) machine.fix_clients(*closed, now);               // round.step() has changed
//   …
//   auto server = round.take_server();                           // add the vectors without a lock
//   round.return_server(std::move(server), SecureRound::Step::kUnmask, now);
//   if (round.can_unmask()) … take_server(), sum(), return_server() …
//
// Any error of advance() and of the server means: the round cannot end, repeat it. The state is in
// memory alone, so a restart of the process repeats the round too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "privacy/secure_sum.h"

namespace varda::aggregator {

/// A value for one thread at a time; cannot be copied.
class SecureRound {
 public:
  /// kVectors: the clients train and upload.
  enum class Step : std::uint8_t { kKeys, kShares, kOpened, kVectors, kUnmask };
  /// The parts of the protocol that clients send and ask for, as in /v1/secure/TASK/keys.
  enum class Message : std::uint8_t { kKeys, kShares, kOpened, kUnmask };
  struct Options {
    privacy::SumTask sum;
    std::size_t neighbours = 10;
    std::uint64_t seed = 0;  // of the graph; secret until the keys are closed
    Duration step_time = std::chrono::seconds(60);
    std::set<std::string> trusted_signers = {};  // as SumServer's
  };
  SecureRound(std::string task, const Options& options, SteadyTime now);

  const std::string& task() const { return task_; }
  Step step() const { return step_; }
  /// Clients that sent keys: the number of vectors that the sum may have.
  std::size_t clients() const { return keys_.size(); }

  /// A client's message. A repeated one is ignored. kConflict: the step is over, not yet due, or
  /// the client has sent other keys. kForbidden: the client has no part in the step. kInvalid: a
  /// broken message. kUnauthenticated: keys without a trusted signature.
  Status put(const std::string& client, Message message, const codec::Json& json);
  /// The answer for a client; nothing: not yet. kForbidden: the client is not in the sum.
  Result<std::optional<codec::Json>> get(const std::string& client, Message message) const;

  /// Ends a step before the vectors when all of `working` have sent their message, or when its time
  /// is over, but not with fewer than `least` keys. Returns the clients that remain if a step
  /// ended. kUnavailable: too few are left.
  Result<std::optional<std::set<std::string>>> advance(const std::set<std::string>& working,
                                                       std::size_t least, SteadyTime now);
  /// Clients that the step kOpened dropped because of bad shares, with the reason. Also set after
  /// an error of advance().
  const std::map<std::string, std::string>& refused() const { return refused_; }
  /// Time for the next advance(), or the end of the step kUnmask.
  std::optional<SteadyTime> due() const;

  bool can_unmask() const { return server_ && server_->can_unmask(); }
  /// For long work without a lock. Null: another thread has it. put() and get() continue meanwhile.
  std::unique_ptr<privacy::SumServer> take_server() { return std::move(server_); }
  void return_server(std::unique_ptr<privacy::SumServer> server, Step step, SteadyTime now);

 private:
  const std::string task_;
  const Duration step_time_;
  std::unique_ptr<privacy::SumServer> server_;
  Step step_ = Step::kKeys;
  SteadyTime deadline_;
  std::map<std::string, std::string> keys_;  // by client, as JSON
  std::set<std::string> shares_;             // clients that sent them; after kOpened, the members
  std::set<std::string> opened_;             // clients that opened the shares for them
  std::map<std::string, std::string> refused_;
};

std::string_view to_string(SecureRound::Message message);
/// "keys", "shares", "opened", "unmask"; nothing: another word.
std::optional<SecureRound::Message> parse_secure_message(std::string_view text);

}  // namespace varda::aggregator
