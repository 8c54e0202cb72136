#include "tiers/machine.h"

#include <algorithm>

#include "base/check.h"

namespace varda::tiers {

std::optional<std::uint8_t> Summary::missing() const {
  if (end != End::kAnswered) return std::nullopt;
  for (std::uint8_t above = tier_count; above-- > tier + 1U;) {
    if (tiers[above].reason) return above;
  }
  return std::nullopt;
}

std::string Summary::called_text(const Route& route) const {
  std::string out;
  for (std::size_t i = 1; i < tier_count; ++i) {
    if (!tiers[i].called) continue;
    if (!out.empty()) out += ',';
    out += route.tiers[i].name;
  }
  return out;
}

std::string Summary::fallback_text(const Route& route) const {
  const auto above = missing();
  if (!above) return {};
  return route.tiers[*above].name + ": " + std::string(to_string(*tiers[*above].reason));
}

Machine::Machine(std::shared_ptr<const Route> route, SteadyTime deadline, Rng& rng,
                 std::size_t body_bytes)
    : route_(std::move(route)), deadline_(deadline), rng_(&rng), body_bytes_(body_bytes) {
  CHECK(!route_->tiers.empty() && route_->tiers.size() <= kTiersMax &&
        route_->in_flight != nullptr);
  summary_.tier_count = static_cast<std::uint8_t>(route_->tiers.size());
}

Step Machine::start(SteadyTime now) {
  now_ = now;
  return climb(0);
}

Step Machine::answered(CallId call, const Judgement& judgement, SteadyTime now) {
  const Call* known = find(call);
  if (ended() || known == nullptr) return ended() ? Step{} : time_passed(now);
  advance(now);
  const std::uint8_t tier = known->tier;
  if (summary_.tiers[tier].answered) return next();
  const bool awaited = current_.id != kNoCall && current_.tier == tier;
  if (call == current_.id) {
    if (permit_) permit_->succeeded(now_);
    permit_.reset();
    current_ = {};
  } else if (awaited) {
    withdraw();  // a retry is in flight, but the first attempt answered after all
  }
  if (tier == 0) first_ = First::kAnswered;
  const bool hard = wants_judgement(tier) && judgement.hard;
  summary_.tiers[tier].answered = true;
  summary_.tiers[tier].reason.reset();
  summary_.tiers[tier].latency = now_ - known->called_at;
  summary_.samples_invalid += judgement.samples_invalid;
  summary_.hard = summary_.hard || hard;
  best_ = std::max(best_.value_or(0), tier);
  const bool good = descending_ || !hard;
  if (good && tier == *best_) return end(Summary::End::kAnswered);
  if (awaited) return continue_after(tier);
  return current_.id == kNoCall ? settle() : next();
}

Step Machine::failed(CallId call, const Failure& failure, SteadyTime now) {
  const Call* known = find(call);
  if (ended() || known == nullptr) return ended() ? Step{} : time_passed(now);
  advance(now);
  const std::uint8_t tier = known->tier;
  const bool awaited = call == current_.id;
  if (!awaited && !(tier == 0 && first_ == First::kRunning)) return next();
  summary_.tiers[tier].reason = failure.reason;
  refused_[tier] = failure.reason == Reason::kRefused && !failure.tier_at_fault;
  const SteadyTime until = current_.until;
  if (awaited) {
    if (permit_)
      failure.reason != Reason::kTimeout || had_enough_time() ? permit_->failed(failure, now_)
                                                              : permit_->suspected(now_);
    permit_.reset();
    current_ = {};
  }
  if (tier == 0) {
    first_ = First::kFailed;
    if (failure.reason == Reason::kRefused && !best_) {
      for (std::size_t i = 1; i < summary_.tier_count; ++i) {
        if (refused_[i] && summary_.tiers[i].reason == Reason::kRefused)
          summary_.tiers[i].reason.reset();
      }
      return end(Summary::End::kFailed);
    }
    if (!awaited) return current_.id == kNoCall ? settle() : next();
  } else if (failure.surely_unanswered && !retried_ && now_ < until) {
    if (auto step = call_tier_until(tier, until)) {
      retried_ = true;
      step->new_connection = true;
      return *step;
    }
    summary_.tiers[tier].reason = failure.reason;
  }
  return continue_after(tier);
}

Step Machine::time_passed(SteadyTime now) {
  if (ended()) return {};
  advance(now);
  return next();
}

Step Machine::client_disconnected(SteadyTime now) {
  if (ended()) return {};
  advance(now);
  if (current_.id != kNoCall) summary_.tiers[current_.tier].reason = Reason::kClientDisconnected;
  // If every client hangs up early, a hanging tier would stay undetected.
  if (permit_) permit_->suspected(now_);
  return end(Summary::End::kDisconnected);
}

bool Machine::wants_judgement(std::uint8_t tier) const {
  return tier < route_->tiers.size() && !last(tier) && route_->tiers[tier].policy != nullptr &&
         !decided_[tier];
}

// Events of several threads may be slightly out of order; the clock never runs backwards.
void Machine::advance(SteadyTime now) { now_ = std::max(now_, now); }

// Calls the next tier from `from` on, or ends.
Step Machine::climb(std::size_t from) {
  for (std::size_t i = from; i < route_->tiers.size(); ++i) {
    const auto tier = static_cast<std::uint8_t>(i);
    if (const Policy* policy = route_->tiers[i].policy.get(); policy != nullptr && !last(i)) {
      if (const auto hard = policy->before(*rng_)) {
        decided_[i] = true;
        skipped_[i] = *hard;
        summary_.hard = summary_.hard || *hard;
        if (*hard) continue;
      }
    }
    if (const auto step = call_tier(tier)) return *step;
  }
  return settle();
}

// No later tier is left to call.
Step Machine::settle() {
  if (best_) return end(Summary::End::kAnswered);
  descending_ = true;
  for (std::uint8_t tier = summary_.tier_count; tier-- > 0;) {
    if (!std::exchange(skipped_[tier], false)) continue;
    if (const auto step = call_tier(tier)) return *step;
  }
  if (first_ == First::kRunning && now_ < deadline_) return wait();
  return end(Summary::End::kFailed);
}

Step Machine::continue_after(std::uint8_t after) {
  if (now_ >= deadline_ || descending_) return settle();
  return climb(after + std::size_t{1});
}

std::optional<Step> Machine::call_tier(std::uint8_t tier) {
  if (now_ >= deadline_) {
    summary_.tiers[tier].reason = Reason::kDeadline;
    return std::nullopt;
  }
  if (tier > 0) return call_tier_until(tier, limit(tier));
  first_ = First::kRunning;
  return begin(tier, limit(tier), Step::Kind::kRun);
}

std::optional<Step> Machine::call_tier_until(std::uint8_t tier, SteadyTime until) {
  const Route::Tier& called = route_->tiers[tier];
  if (called.gate == nullptr) {
    summary_.tiers[tier].reason = Reason::kNoAddress;
    return std::nullopt;
  }
  auto permit = Permit::acquire(*called.gate, *route_->in_flight, now_, body_bytes_);
  if (const Reason* reason = std::get_if<Reason>(&permit)) {
    summary_.tiers[tier].reason = *reason;
    return std::nullopt;
  }
  permit_.emplace(std::move(*std::get_if<Permit>(&permit)));
  return begin(tier, until, Step::Kind::kCall);
}

Step Machine::begin(std::uint8_t tier, SteadyTime until, Step::Kind kind) {
  CHECK(call_count_ < kCallsMax);
  current_ = {.id = call_count_ + CallId{1}, .tier = tier, .called_at = now_, .until = until};
  calls_[call_count_++] = current_;
  summary_.tiers[tier].called = true;
  summary_.tiers[tier].reason.reset();  // of a first attempt
  ++summary_.tiers[tier].attempts;
  return emit({.kind = kind, .call = current_.id, .tier = tier, .until = until});
}

// The step for a timeout without an event.
Step Machine::next() {
  if (now_ >= deadline_) {
    if (current_.id != kNoCall) time_out();
    return end(best_ ? Summary::End::kAnswered : Summary::End::kFailed);
  }
  if (current_.id != kNoCall && now_ >= current_.until) {
    const std::uint8_t tier = current_.tier;
    time_out();
    return continue_after(tier);
  }
  return wait();
}

Step Machine::wait() {
  return emit(
      {.kind = Step::Kind::kWait, .until = current_.id != kNoCall ? current_.until : deadline_});
}

Step Machine::end(Summary::End end) {
  if (current_.id != kNoCall) withdraw();
  summary_.end = end;
  if (end == Summary::End::kAnswered) {
    summary_.tier = *best_;
    return emit({.kind = Step::Kind::kAnswer, .tier = *best_});
  }
  if (end == Summary::End::kDisconnected) return emit({});
  return emit({.kind = Step::Kind::kFail,
               .tier = 0,
               .reason = summary_.tiers[0].reason.value_or(Reason::kTimeout)});
}

Step Machine::emit(Step step) {
  step.cancel = std::exchange(cancel_, kNoCall);
  return step;
}

// Gives up the current call without fault of the tier. A run of the first tier continues.
void Machine::withdraw() {
  if (current_.tier > 0) cancel_ = current_.id;
  permit_.reset();
  current_ = {};
}

void Machine::time_out() {
  summary_.tiers[current_.tier].reason = Reason::kTimeout;
  if (permit_ && !had_enough_time()) {
    permit_->suspected(now_);
  } else if (permit_) {
    const auto time =
        std::chrono::duration_cast<std::chrono::milliseconds>(now_ - current_.called_at);
    permit_->failed({.reason = Reason::kTimeout,
                     .message = "no answer in " + std::to_string(time.count()) + " ms"},
                    now_);
  }
  withdraw();
}

// A call with little time left is no failure; but a tier that is only called late would stay
// undetected.
bool Machine::had_enough_time() const {
  const Duration whole =
      std::min(route_->deadline, route_->tiers[current_.tier].deadline.value_or(route_->deadline));
  return 2 * (now_ - current_.called_at) >= whole;
}

SteadyTime Machine::limit(std::uint8_t tier) const {
  SteadyTime until = deadline_;
  // If no tier has answered and one was skipped, that tier is the last resort and needs some time.
  if (!best_ && std::find(skipped_.begin(), skipped_.end(), true) != skipped_.end())
    until = now_ + (deadline_ - now_) / 4 * 3;
  if (const auto own = route_->tiers[tier].deadline) until = std::min(until, now_ + *own);
  return until;
}

const Machine::Call* Machine::find(CallId id) const {
  return id == kNoCall || id > call_count_ ? nullptr : &calls_[id - 1];
}

}  // namespace varda::tiers
