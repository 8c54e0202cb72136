// Machine: one request over the tiers, from the first to its one answer. Events in, steps out; no I/O, no clock, no lock.
//
//   Machine machine(route, deadline, rng);
//   Step step = machine.start(now);
//   for (;;) {
//     if (step.cancel != kNoCall) … end that call, nobody waits for it;
//     switch (step.kind) {
//       case Step::Kind::kRun:    … run the model beside the file as call step.call, then answered() or failed();
//       case Step::Kind::kAsk:    … send the request to tiers[step.tier] as call step.call, then answered() or failed();
//       case Step::Kind::kWait:   … for the next event, or for step.until, then time_passed();
//       case Step::Kind::kAnswer: … give the answer of tiers[step.tier];
//       case Step::Kind::kFail:   … no tier answered: tell the first one's error, or step.reason if it has none;
//     }
//   }
//
// Upwards one tier is asked at a time, each at most once, but for one retry a request. A run of the first tier cannot be ended: it
// may still be under way when others are asked, and its answer counts whenever it comes.
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
#include "cascade/config.h"
#include "cascade/policy.h"
#include "cascade/reason.h"
#include "cascade/tier_gate.h"

namespace varda::cascade {

/// The tiers that requests go over, made once a configuration. Constant.
struct Route {
  struct Tier {
    std::string name;
    std::shared_ptr<const Policy> policy;  // null: nothing is hard
    std::shared_ptr<TierGate> gate;        // null at the first tier, and where no address is known
    std::optional<Duration> deadline;      // of one call
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
    kAsk,
    kWait,
    kAnswer,
    kFail,
    kNothing,  // the request has ended before: nothing is to be done, but `cancel`
  };
  Kind kind = Kind::kNothing;
  CallId call = kNoCall;             // of kRun and kAsk
  CallId cancel = kNoCall;           // a call to end at once; no event of it is needed any more
  std::uint8_t tier = 0;             // of kRun, kAsk, kAnswer, kFail
  bool new_connection = false;       // of kAsk: not one that was used before
  Reason reason = Reason::kTimeout;  // of kFail
  SteadyTime until{};                // of kRun, kAsk, kWait: when time_passed() is due if nothing comes before
};

/// What became of a request.
struct Summary {
  struct Tier {
    bool asked = false;  // at the first tier: it was run
    bool answered = false;
    std::uint8_t attempts = 0;
    std::optional<Reason> reason;  // why it has no answer; absent also where none was wanted
    Duration latency{};            // of the attempt that answered
  };
  enum class End : std::uint8_t { kPending, kAnswered, kFailed, kGone };
  End end = End::kPending;
  std::uint8_t tier = 0;  // that answered
  bool hard = false;      // the policy of any tier that answered said so, also of one whose answer is not the one given
  std::uint32_t samples_invalid = 0;
  std::array<Tier, kTiersMax> tiers;
  std::uint8_t tier_count = 0;

  /// The tier above the one that answered whose answer is missing, the highest where there are several.
  std::optional<std::uint8_t> missing() const;
  /// The parameters `asked` ("edge,cloud": tiers above the first) and `fallback` ("cloud: Timeout", "" if none) of an answer.
  std::string asked_text(const Route& route) const;
  std::string fallback_text(const Route& route) const;
};

/// A value, for one thread at a time. Destroying it gives back what it holds of gates and bounds. Events after the end, of calls it
/// does not know, or that come twice do nothing.
class Machine {
 public:
  /// `deadline` is when the request must have its answer: at most route.deadline from now, sooner if the client says so. The route
  /// is kept; `rng` outlives it.
  Machine(std::shared_ptr<const Route> route, SteadyTime deadline, Rng& rng, std::size_t body_bytes = 0);
  Machine(Machine&&) = default;

  /// Once, first.
  Step start(SteadyTime now);
  /// Where wants_judgement() says no, only the counts of the judgement are looked at.
  Step answered(CallId call, const Judgement& judgement, SteadyTime now);
  /// A first tier that refuses (kRefused) ends the request: it is the client's mistake, which no other tier would mend; that others
  /// refused it before is then no reason of theirs.
  Step failed(CallId call, const Failure& failure, SteadyTime now);
  /// Some time at or after `until` of the last step. Harmless at any other time.
  Step time_passed(SteadyTime now);
  /// The client does not wait any more: no answer is given. The call under way, if there is one, is ended (kClientGone): no failure
  /// of its tier, but a reason to ask whether it is ready.
  Step client_gone(SteadyTime now);

  /// Whether the answer of this tier is to be judged by its policy: it has one, and that did not decide before inference.
  bool wants_judgement(std::uint8_t tier) const;
  bool ended() const { return summary_.end != Summary::End::kPending; }
  const Summary& summary() const { return summary_; }
  const Route& route() const { return *route_; }

 private:
  enum class First : std::uint8_t { kNotRun, kRunning, kAnswered, kFailed };
  struct Call {
    CallId id = kNoCall;
    std::uint8_t tier = 0;
    SteadyTime asked{};
    SteadyTime until{};
  };
  static constexpr std::size_t kCallsMax = kTiersMax + 1;

  void advance(SteadyTime now);
  Step climb(std::size_t from);
  Step settle();
  Step go_on(std::uint8_t after);
  std::optional<Step> call_tier(std::uint8_t tier);
  std::optional<Step> call_upper(std::uint8_t tier, SteadyTime until);
  Step begin(std::uint8_t tier, SteadyTime until, Step::Kind kind);
  Step next();
  Step wait();
  Step end(Summary::End end);
  Step emit(Step step);
  void take_back();
  void time_out();
  bool had_its_time() const;
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
  std::optional<Permit> permit_;  // of the current call, if it is not the first tier's
  CallId cancel_ = kNoCall;       // for the next step
  First first_ = First::kNotRun;
  std::optional<std::uint8_t> best_;
  std::array<bool, kTiersMax> decided_{};  // before inference: the answer is taken as it is
  std::array<bool, kTiersMax> skipped_{};  // hard before inference, and not called since
  bool descending_ = false;                // nothing above answered: those that were skipped are called, the highest first
  std::array<bool, kTiersMax> refused_{};  // said that the request is wrong
  bool retried_ = false;
};

}  // namespace varda::cascade
