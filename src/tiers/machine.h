// Machine: one request over the tiers, from the first tier to a single answer. Events in, steps
// out; no I/O, no clock, no lock.
//
//   Machine machine(route, deadline, rng);
//   Step step = machine.start(now);
//   for (;;) {
//     if (step.cancel != kNoCall) … end that call, the result is not needed;
//     switch (step.kind) {
//       case Step::Kind::kRun:    … run the local model as call step.call,
//                                   then answered() or failed();
//       case Step::Kind::kCall:    … send the request to tiers[step.tier] as call step.call,
//                                   then answered() or failed();
//       case Step::Kind::kWait:   … for the next event, or for step.until, then time_passed();
//       case Step::Kind::kAnswer: … return the answer of tiers[step.tier];
//       case Step::Kind::kFail:   … no tier answered: return the first tier's error,
//                                   or step.reason if there is no error;
//     }
//   }
//
// The machine calls one later tier at a time, each at most once. A request has at most one retry. A
// run of the first tier cannot be cancelled. It may still run while later tiers are called, and its
// answer counts at any time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "tiers/config.h"
#include "tiers/policy.h"
#include "tiers/reason.h"
#include "tiers/tier_gate.h"

namespace varda::tiers {

/// The tiers that requests use, built once per configuration. Constant.
struct Route {
  struct Tier {
    std::string name;
    std::shared_ptr<const Policy> policy;  // null: nothing is hard
    std::shared_ptr<TierGate> gate;        // null at the first tier, and without an address
    std::optional<Duration> deadline;      // for one call
  };
  std::vector<Tier> tiers;  // 1 to kTiersMax
  Duration deadline = std::chrono::seconds(2);
  std::shared_ptr<InFlight> in_flight;  // never null
};

using CallId = std::uint32_t;
inline constexpr CallId kNoCall = 0;

struct Step {
  enum class Kind : std::uint8_t {
    kRun,
    kCall,
    kWait,
    kAnswer,
    kFail,
    kNothing,  // the request has already ended: only `cancel` may need action
  };
  Kind kind = Kind::kNothing;
  CallId call = kNoCall;             // for kRun and kCall
  CallId cancel = kNoCall;           // a call to cancel at once; its events are not needed
  std::uint8_t tier = 0;             // for kRun, kCall, kAnswer, kFail
  bool new_connection = false;       // for kCall: do not reuse a pooled connection
  Reason reason = Reason::kTimeout;  // for kFail
  SteadyTime until{};                // for kRun, kCall, kWait: time_passed() is due then
};

/// Outcome of a request.
struct Summary {
  struct Tier {
    bool called = false;  // at the first tier: it was run
    bool answered = false;
    std::uint8_t attempts = 0;
    std::optional<Reason> reason;  // why there is no answer; also absent if none was needed
    Duration latency{};            // of the attempt that answered
  };
  enum class End : std::uint8_t { kPending, kAnswered, kFailed, kDisconnected };
  End end = End::kPending;
  std::uint8_t tier = 0;  // the tier that answered
  bool hard = false;      // some policy found an answer hard, returned or not
  std::uint32_t samples_invalid = 0;
  std::array<Tier, kTiersMax> tiers;
  std::uint8_t tier_count = 0;

  /// The last tier after the answering one that failed to answer.
  std::optional<std::uint8_t> missing() const;
  /// The parameters `called` ("edge,cloud": later tiers) and `fallback` ("cloud: Timeout",
  /// or "") of an answer.
  std::string called_text(const Route& route) const;
  std::string fallback_text(const Route& route) const;
};

/// A value, for one thread at a time. The destructor returns permits. Late, unknown and duplicate
/// events are ignored.
class Machine {
 public:
  /// `deadline` is when the request must be answered: at most route.deadline from now, earlier if
  /// the client asks for that. Keeps the route; `rng` outlives the machine.
  Machine(std::shared_ptr<const Route> route, SteadyTime deadline, Rng& rng,
          std::size_t body_bytes = 0);
  Machine(Machine&&) = default;

  /// Called once, before all events.
  Step start(SteadyTime now);
  /// If wants_judgement() is false, only the counts of the judgement are used.
  Step answered(CallId call, const Judgement& judgement, SteadyTime now);
  /// A refusal by the first tier (kRefused) ends the request: the client made a mistake, which no
  /// other tier would fix. Earlier refusals by other tiers then do not count as reasons.
  Step failed(CallId call, const Failure& failure, SteadyTime now);
  /// Time passed; called at or after `until` of the last step, harmless earlier.
  Step time_passed(SteadyTime now);
  /// The client hung up: no answer is given. A call in flight is cancelled (kClientDisconnected).
  /// That is no failure of the tier, but a readiness check becomes due.
  Step client_disconnected(SteadyTime now);

  /// Whether the tier's policy must judge its answer: false without a policy, or if it decided
  /// before inference.
  bool wants_judgement(std::uint8_t tier) const;
  bool ended() const { return summary_.end != Summary::End::kPending; }
  const Summary& summary() const { return summary_; }
  const Route& route() const { return *route_; }

 private:
  enum class First : std::uint8_t { kNotRun, kRunning, kAnswered, kFailed };
  struct Call {
    CallId id = kNoCall;
    std::uint8_t tier = 0;
    SteadyTime called_at{};
    SteadyTime until{};
  };
  static constexpr std::size_t kCallsMax = kTiersMax + 1;

  void advance(SteadyTime now);
  Step climb(std::size_t from);
  Step settle();
  Step continue_after(std::uint8_t after);
  std::optional<Step> call_tier(std::uint8_t tier);
  std::optional<Step> call_tier_until(std::uint8_t tier, SteadyTime until);
  Step begin(std::uint8_t tier, SteadyTime until, Step::Kind kind);
  Step next();
  Step wait();
  Step end(Summary::End end);
  Step emit(Step step);
  void withdraw();
  void time_out();
  bool had_enough_time() const;
  SteadyTime limit(std::uint8_t tier) const;
  const Call* find(CallId id) const;
  bool last(std::size_t tier) const { return tier + 1 == route_->tiers.size(); }

  std::shared_ptr<const Route> route_;
  SteadyTime deadline_;
  Rng* rng_;
  std::size_t body_bytes_;
  SteadyTime now_{};
  Summary summary_;
  std::array<Call, kCallsMax> calls_{};
  std::uint8_t call_count_ = 0;
  Call current_{};                // kNoCall: none
  std::optional<Permit> permit_;  // of the current call; none for the first tier
  CallId cancel_ = kNoCall;       // for the next step
  First first_ = First::kNotRun;
  std::optional<std::uint8_t> best_;
  std::array<bool, kTiersMax> decided_{};  // before inference: the answer is final
  std::array<bool, kTiersMax> skipped_{};  // hard before inference, and not called since
  bool descending_ = false;                // no later tier answered: call skipped ones downwards
  std::array<bool, kTiersMax> refused_{};  // the tier called the request wrong
  bool retried_ = false;
};

}  // namespace varda::tiers
