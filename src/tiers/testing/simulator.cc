#include "tiers/testing/simulator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "tiers/machine.h"
#include "tiers/statistics.h"

namespace varda::tiers::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Kind = Step::Kind;

constexpr SteadyTime kBegin{std::chrono::hours(1)};
constexpr milliseconds kPauseMax{1200};

/// Decides before inference by a script, and records each decision.
class ScriptedPolicy final : public Policy {
 public:
  enum class Mode : std::uint8_t { kAfter, kHard, kEasy, kDraw };
  ScriptedPolicy(Mode mode, std::size_t tier, std::map<std::size_t, bool>& verdicts)
      : Policy(*find_policy("Random"), ""), mode_(mode), tier_(tier), verdicts_(verdicts) {}
  std::optional<bool> before(Rng& rng) const override {
    if (mode_ == Mode::kAfter) return std::nullopt;
    return verdicts_[tier_] = mode_ == Mode::kHard || (mode_ == Mode::kDraw && rng.below(2) == 0);
  }

 private:
  const Mode mode_;
  const std::size_t tier_;
  std::map<std::size_t, bool>& verdicts_;  // during the current event
};

enum class Weather : std::uint8_t {
  kGood,
  kSlow,
  kDead,
  kNoConnection,
  kBusy,
  kBroken,
  kTooMany,
  kRefuses,
  kMixed
};

struct Event {
  enum class What : std::uint8_t { kStart, kAnswer, kFailure, kTimer, kDisconnect, kProbes };
  SteadyTime at;
  std::uint64_t order;  // among events of the same time
  What what;
  std::size_t request = 0;
  CallId call = kNoCall;
  bool hard = false;
  Failure failure{};
  bool operator<(const Event& other) const {
    return std::pair(at, order) > std::pair(other.at, other.order);
  }
};

struct CallRecord {
  std::size_t tier = 0;
  SteadyTime until{};
  bool open = true;    // the result is still needed
  bool muted = false;  // cancelled; no event will follow
  std::optional<Failure> failure;
};

struct RequestRecord {
  std::optional<Machine> machine;
  SteadyTime deadline{};
  int ends = 0;
  bool disconnected = false;
  std::map<CallId, CallRecord> calls;
  std::map<std::size_t, bool> answers;  // delivered in time: tier -> its answer was hard
  std::map<std::size_t, bool> decided;  // before inference
  std::size_t retries = 0;
  Summary before{};  // the last event
};

struct TierRecord {
  std::vector<std::pair<SteadyTime, Weather>> weather;  // until, what
  Breaker::State state = Breaker::State::kClosed;
  std::optional<std::pair<std::size_t, CallId>> probe;  // held by a request
  std::optional<Breaker::Ticket> background;            // held by a readiness check
  bool background_probes = false;  // the check ran in a pause, not on suspicion
  SteadyTime opened{};
  SteadyTime quiet_since{};  // when it opened, or a probe ended
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : rng_(seeded_rng(seed)), machines_rng_(seeded_rng(seed + 1)) {}

  Outcome run() {
    build();
    while (!events_.empty() && violation_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      deliver(event);
      if (violation_.empty()) check_shared();
    }
    if (violation_.empty()) check_end();
    return {violation_, seen_};
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return rng_->below(bound); }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  Duration between(milliseconds low, milliseconds high) {
    return microseconds(low) +
           microseconds(below(static_cast<std::uint64_t>(microseconds(high - low).count()) + 1));
  }
  void violate(const std::string& what) {
    if (!violation_.empty()) return;
    violation_ = "at " +
                 std::to_string(std::chrono::duration_cast<microseconds>(now_ - kBegin).count()) +
                 " us, request " + std::to_string(request_index_) + ": " + what;
  }
  void require(bool holds, const std::string& what) {
    if (!holds) violate(what);
  }
  void push(SteadyTime at, Event event) {
    event.at = at;
    event.order = rng_->next();
    events_.push(std::move(event));
  }

  // --- drawn from the seed

  void build() {
    auto route = std::make_shared<Route>();
    route->deadline = between(milliseconds(50), milliseconds(2000));
    in_flight_max_ = static_cast<std::uint32_t>(1 + below(6));
    route->in_flight = std::make_shared<InFlight>(in_flight_max_);
    const std::size_t count = kTiersMin + below(kTiersMax - kTiersMin + 1);
    const Breaker::Options options{.failures_max = static_cast<unsigned>(1 + below(5)),
                                   .pause_min = milliseconds(20 + below(800)),
                                   .pause_max = kPauseMax};
    pause_min_ = options.pause_min;
    for (std::size_t i = 0; i < count; ++i) {
      Route::Tier tier{.name = "t" + std::to_string(i), .policy = {}, .gate = {}, .deadline = {}};
      if (chance(85)) tier.policy = std::make_shared<ScriptedPolicy>(policy_mode(), i, verdicts_);
      if (chance(50)) tier.deadline = between(milliseconds(5), milliseconds(1000));
      if (i > 0 && !chance(8)) tier.gate = std::make_shared<TierGate>(options, *machines_rng_);
      route->tiers.push_back(tier);
      tiers_.push_back({});
      SteadyTime until = kBegin;
      while (until < kBegin + std::chrono::seconds(60)) {
        until += between(milliseconds(50), milliseconds(5000));
        tiers_.back().weather.emplace_back(
            until, chance(45) ? Weather::kGood : static_cast<Weather>(below(9)));
      }
      counters_.push_back(statistics_.tier(tier.name));
    }
    route_ = route;
    const std::size_t requests = 5 + below(50);
    const milliseconds span(100 + below(15000));
    for (std::size_t i = 0; i < requests; ++i) {
      requests_.emplace_back();
      push(kBegin + between(milliseconds(0), span), {.what = Event::What::kStart, .request = i});
    }
    if (chance(60)) push(kBegin, {.what = Event::What::kProbes});
  }

  ScriptedPolicy::Mode policy_mode() {
    using Mode = ScriptedPolicy::Mode;
    const std::uint64_t drawn = below(100);
    return drawn < 65   ? Mode::kAfter
           : drawn < 80 ? Mode::kHard
           : drawn < 85 ? Mode::kEasy
                        : Mode::kDraw;
  }

  Weather weather(std::size_t tier) {
    Weather weather_now = Weather::kDead;
    for (const auto& [until, what] : tiers_[tier].weather) {
      if (now_ < until) {
        weather_now = what;
        break;
      }
    }
    return weather_now == Weather::kMixed ? static_cast<Weather>(below(8)) : weather_now;
  }

  // Schedules the events of a call: usually one; sometimes none, two, or two that contradict each
  // other.
  void answer_some_time(std::size_t request, CallId call, std::size_t tier) {
    Event event{.what = Event::What::kAnswer, .request = request, .call = call, .hard = chance(45)};
    Duration latency = between(milliseconds(0), milliseconds(tier == 0 ? 10 : 60));
    switch (weather(tier)) {
      case Weather::kGood:
        break;
      case Weather::kSlow:
        latency = between(milliseconds(0), milliseconds(2500));
        break;
      case Weather::kDead:
        return;
      case Weather::kNoConnection:
        set_failure(event, unreachable("refused"));
        break;
      case Weather::kBusy:
        set_failure(event, of_status(503, "busy"));
        break;
      case Weather::kBroken:
        set_failure(event, of_status(500, "broken"));
        break;
      case Weather::kTooMany:
        set_failure(event, of_status(429, "too many"));
        break;
      case Weather::kRefuses:
        set_failure(event, of_status(400, "no"));
        break;
      case Weather::kMixed:
        break;
    }
    if (tier == 0 && event.what == Event::What::kFailure && chance(60))
      event.what = Event::What::kAnswer;
    push(now_ + latency, event);
    if (chance(8)) {
      ++seen_.doubled;
      push(now_ + latency + between(milliseconds(0), milliseconds(100)), event);
    }
    if (chance(4)) {
      event.what =
          event.what == Event::What::kAnswer ? Event::What::kFailure : Event::What::kAnswer;
      event.failure = unreadable("broken off");
      push(now_ + latency + between(milliseconds(0), milliseconds(100)), event);
    }
  }
  static void set_failure(Event& event, Failure failure) {
    event.what = Event::What::kFailure;
    event.failure = std::move(failure);
  }

  // --- events

  void deliver(const Event& event) {
    request_index_ = event.request;
    if (event.what == Event::What::kProbes) return start_probes();
    RequestRecord& record = requests_[event.request];
    verdicts_.clear();
    if (event.what == Event::What::kStart) return start(record);
    Machine& machine = *record.machine;
    record.before = machine.summary();
    // Threads read the clock before they get the lock: their times may be slightly old.
    const SteadyTime reported =
        now_ - (chance(20) ? Duration(microseconds(below(500))) : Duration{});
    Step step;
    if (event.what == Event::What::kTimer) {
      step = machine.time_passed(now_);
    } else if (event.what == Event::What::kDisconnect) {
      step = leave(record);
    } else {
      const auto found = record.calls.find(event.call);
      if (found == record.calls.end()) {
        ++seen_.unknown_calls;
      } else if (found->second.muted) {
        return;
      }
      step = event.what == Event::What::kAnswer ? answered(record, event, reported)
                                                : failed(record, event, reported);
    }
    take(record, step);
  }

  void start(RequestRecord& record) {
    ++seen_.requests;
    const Duration whole =
        chance(70)
            ? route_->deadline
            : between(milliseconds(1), std::chrono::duration_cast<milliseconds>(route_->deadline));
    record.deadline = now_ + whole;
    record.machine.emplace(route_, record.deadline, *machines_rng_);
    if (chance(12))
      push(now_ + between(milliseconds(0), milliseconds(1000)),
           {.what = Event::What::kDisconnect, .request = request_index_});
    if (chance(10))
      push(now_ + between(milliseconds(0), milliseconds(1000)),
           {.what = Event::What::kTimer, .request = request_index_});
    if (chance(10)) {
      // Drawn in two statements: the evaluation order of arguments is unspecified.
      const auto what = chance(50) ? Event::What::kAnswer : Event::What::kFailure;
      const auto call = static_cast<CallId>(below(40));
      push(now_ + between(milliseconds(0), milliseconds(500)),
           {.what = what, .request = request_index_, .call = call});
    }
    take(record, record.machine->start(now_));
  }

  Step leave(RequestRecord& record) {
    const Step step = record.machine->client_disconnected(now_);
    if (record.ends == 0 && !record.disconnected) {
      require(step.kind == Kind::kNothing, "an answer for a client that is gone");
      record.disconnected = true;
      ++seen_.disconnected;
    }
    return step;
  }

  Step answered(RequestRecord& record, const Event& event, SteadyTime reported) {
    const auto call = record.calls.find(event.call);
    bool is_last = false;
    if (call != record.calls.end() && record.ends == 0 && !record.disconnected) {
      const std::size_t tier = call->second.tier;
      if (!record.answers.contains(tier)) {
        const bool judged = tier + 1 < route_->tiers.size() &&
                            route_->tiers[tier].policy != nullptr && !record.decided.contains(tier);
        record.answers[tier] = judged && event.hard;
        seen_.late_answers += call->second.open ? 0 : 1;
        is_last = !record.answers[tier] && tier == record.answers.rbegin()->first;
      }
      close(event.request, event.call);
    }
    const Step step =
        record.machine->answered(event.call, {.hard = event.hard, .samples = 1}, reported);
    if (is_last) require(step.kind == Kind::kAnswer, "an answer that is good enough was not given");
    return step;
  }

  Step failed(RequestRecord& record, const Event& event, SteadyTime reported) {
    const auto call = record.calls.find(event.call);
    if (call != record.calls.end() && record.ends == 0 && !record.disconnected) {
      if (!call->second.failure && (call->second.open || call->second.tier == 0))
        call->second.failure = event.failure;
      close(event.request, event.call);
    }
    const bool refused = call != record.calls.end() && call->second.tier == 0 &&
                         call->second.failure && call->second.failure->reason == Reason::kRefused &&
                         record.answers.empty() && record.ends == 0 && !record.disconnected;
    const Step step = record.machine->failed(event.call, event.failure, reported);
    if (refused)
      require(step.kind == Kind::kFail, "what the first tier refuses is asked of others");
    return step;
  }

  void close(std::size_t request, CallId id) {
    CallRecord& call = requests_[request].calls.at(id);
    if (call.open && call.tier > 0) --in_flight_;
    call.open = false;
    TierRecord& tier = tiers_[call.tier];
    if (tier.probe == std::pair(request, id)) {
      tier.probe.reset();
      tier.quiet_since = now_;
    }
  }

  void start_probes() {
    for (std::size_t i = 1; i < tiers_.size(); ++i) {
      TierGate* gate = route_->tiers[i].gate.get();
      if (gate == nullptr) continue;
      TierRecord& record = tiers_[i];
      if (record.background) {
        const Weather weather_now = weather(i);
        const bool ready = weather_now == Weather::kGood || weather_now == Weather::kSlow ||
                           weather_now == Weather::kRefuses;
        gate->probed(*record.background,
                     ready ? std::nullopt : std::optional(of_status(503, "not ready")), now_);
        record.background.reset();
        record.background_probes = false;
        record.quiet_since = now_;
      } else if ((record.background = gate->probe(now_))) {
        ++seen_.background_probes;
        record.background_probes = gate->health().state == Breaker::State::kHalfOpen;
        require(!record.background_probes || !record.probe,
                "a second probe, by readiness, while a request is one");
      }
    }
    const bool some_are_left =
        std::any_of(requests_.begin(), requests_.end(), [](const RequestRecord& record) {
          return !record.machine || (!record.machine->ended() &&
                                     record.machine->summary().end == Summary::End::kPending);
        });
    if (some_are_left)
      push(now_ + between(milliseconds(20), milliseconds(500)), {.what = Event::What::kProbes});
  }

  // --- handling of steps

  void take(RequestRecord& record, const Step& step) {
    for (const auto& [tier, hard] : verdicts_) record.decided[tier] = hard;
    seen_.trace = (seen_.trace ^
                   (static_cast<std::uint64_t>(step.kind) + step.tier * 16U + step.call * 256U)) *
                  0x100000001b3U;
    if (step.cancel != kNoCall) {
      const auto call = record.calls.find(step.cancel);
      const bool known = call != record.calls.end() && call->second.open && call->second.tier > 0;
      require(known, "a call is ended that nobody waits for");
      if (known) {
        close(request_index_, step.cancel);
        call->second.muted = chance(70);
      }
    }
    switch (step.kind) {
      case Kind::kRun:
        run_first(record, step);
        break;
      case Kind::kCall:
        call_tier(record, step);
        break;
      case Kind::kWait:
        break;
      case Kind::kAnswer:
        answer(record, step);
        break;
      case Kind::kFail:
        fail(record, step);
        break;
      case Kind::kNothing:
        require(record.ends > 0 || record.disconnected,
                "nothing is to be done, and there was no answer");
        break;
    }
    if (step.kind == Kind::kRun || step.kind == Kind::kCall || step.kind == Kind::kWait) {
      require(step.until <= record.deadline, "a wait beyond the deadline");
      require(step.until > now_ - milliseconds(1), "a wait for what has passed");
      push(std::max(now_, step.until), {.what = Event::What::kTimer, .request = request_index_});
    }
    check_reasons(record);
  }

  void open_call(RequestRecord& record, const Step& step) {
    require(step.call != kNoCall && !record.calls.contains(step.call),
            "a number of a call was used twice");
    require(now_ < record.deadline, "a call after the deadline");
    if (const auto own = route_->tiers[step.tier].deadline)
      require(step.until <= now_ + *own, "longer than the tier's deadline");
    if (record.decided.contains(step.tier) && record.decided[step.tier]) ++seen_.descents;
    record.calls[step.call] = {
        .tier = step.tier, .until = step.until, .open = true, .muted = false, .failure = {}};
  }

  void run_first(RequestRecord& record, const Step& step) {
    require(step.tier == 0, "another tier was run here");
    for (const auto& [id, call] : record.calls)
      require(call.tier != 0, "the first tier was run twice");
    open_call(record, step);
    answer_some_time(request_index_, step.call, 0);
  }

  void call_tier(RequestRecord& record, const Step& step) {
    require(step.tier > 0 && step.tier < route_->tiers.size() &&
                route_->tiers[step.tier].gate != nullptr,
            "a tier without an address");
    const CallRecord* earlier = nullptr;
    for (const auto& [id, call] : record.calls) {
      require(call.tier == 0 || !call.open, "two calls upwards at a time");
      if (call.tier == step.tier) earlier = &call;
    }
    require(step.new_connection == (earlier != nullptr),
            "a retry, and only it, is on another connection");
    if (earlier != nullptr) {
      ++seen_.retries;
      require(++record.retries == 1, "a second retry");
      require(earlier->failure && earlier->failure->surely_unanswered,
              "a retry of what may have been answered");
      require(step.until == earlier->until, "a retry has a deadline of its own");
    }
    open_call(record, step);
    require(++in_flight_ <= in_flight_max_, "more in flight than the bound");
    TierRecord& tier = tiers_[step.tier];
    if (route_->tiers[step.tier].gate->health().state != Breaker::State::kClosed) {
      ++seen_.probes;
      require(!tier.probe && !tier.background_probes, "a second probe at a time");
      require(now_ >= tier.opened + pause_min_ * 4 / 5 - milliseconds(1),
              "a probe before the pause is over");
      tier.probe = {request_index_, step.call};
    }
    answer_some_time(request_index_, step.call, step.tier);
  }

  void answer(RequestRecord& record, const Step& step) {
    end(record);
    ++seen_.answered;
    require(!record.answers.empty(), "an answer that no tier gave");
    if (record.answers.empty()) return;
    const std::size_t best = record.answers.rbegin()->first;
    require(step.tier == best, "not the best answer that arrived");
    const Summary& summary = record.machine->summary();
    bool missing = false;
    for (std::size_t above = best + 1; above < route_->tiers.size(); ++above) {
      const bool skipped = record.decided.contains(above) && record.decided[above];
      missing = missing || summary.tiers[above].reason;
      if (record.answers[best] && now_ < record.deadline) {
        require(summary.tiers[above].reason || skipped,
                "a hard example, and the next tier was not asked");
      }
    }
    require(missing == !summary.fallback_text(*route_).empty(), "a fallback without its reason");
    seen_.fallbacks += missing ? 1 : 0;
    bool hard = false;
    for (const auto& [tier, is_hard] : record.answers) hard = hard || is_hard;
    for (const auto& [tier, decided] : record.decided) hard = hard || decided;
    require(summary.hard == hard, "hard is not what the policies said");
  }

  void fail(RequestRecord& record, const Step& step) {
    end(record);
    ++seen_.failed;
    require(record.answers.empty(), "an answer arrived and was not given");
    std::optional<Reason> first;
    const CallRecord* run = nullptr;
    for (const auto& [id, call] : record.calls) {
      if (call.tier != 0) continue;
      run = &call;
      if (call.failure) first = call.failure->reason;
    }
    require(run != nullptr, "a failure without a try of the first tier");
    require(first || now_ >= record.deadline, "given up while the first tier may still answer");
    require(step.tier == 0, "the error of another tier than the first");
    if (first) require(step.reason == *first, "not the first one's error");
    if (!first)
      require(step.reason == Reason::kTimeout || step.reason == Reason::kDeadline,
              "an error that was not the first one's");
    if (first == Reason::kRefused || now_ >= record.deadline) return;
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      require(record.machine->summary().tiers[i].reason.has_value(),
              "given up before every tier was tried");
    }
  }

  void end(RequestRecord& record) {
    require(!record.disconnected, "an answer for a client that is gone");
    require(++record.ends == 1, "a second answer");
    require(now_ <= record.deadline, "an answer after the deadline");
    seen_.deadlines += now_ == record.deadline ? 1 : 0;
    const Summary& summary = record.machine->summary();
    statistics_.count(summary, {}, counters_);
    std::map<std::size_t, int> attempts;
    for (const auto& [id, call] : record.calls) {
      ++attempts[call.tier];
      require(call.tier == 0 || !call.open, "a call that goes on behind the answer");
    }
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      require(
          summary.tiers[i].attempts == attempts[i] && summary.tiers[i].called == (attempts[i] > 0),
          "attempts are not what was asked");
      require(summary.tiers[i].answered == record.answers.contains(i),
              "answered is not what arrived");
    }
  }

  // Checks that each new reason is true.
  void check_reasons(RequestRecord& record) {
    const Summary& summary = record.machine->summary();
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      const auto& reason = summary.tiers[i].reason;
      if (!reason || reason == record.before.tiers[i].reason) continue;
      const CallRecord* last = nullptr;
      for (const auto& [id, call] : record.calls) {
        if (call.tier == i) last = &call;
      }
      switch (*reason) {
        case Reason::kNoAddress:
          require(i > 0 && route_->tiers[i].gate == nullptr, "NoAddress of a tier that has one");
          break;
        case Reason::kBreakerOpen:
          require(
              last == nullptr && route_->tiers[i].gate->health().state != Breaker::State::kClosed,
              "BreakerOpen of a closed one");
          require(tiers_[i].probe || tiers_[i].background_probes ||
                      now_ < tiers_[i].quiet_since + kPauseMax * 5 / 4,
                  "a breaker that lets nothing through any more");
          break;
        case Reason::kInFlightLimit:
          ++seen_.limited;
          require(last == nullptr && in_flight_ == in_flight_max_,
                  "InFlightLimit while there is room");
          break;
        case Reason::kDeadline:
          require(last == nullptr && now_ >= record.deadline, "Deadline while there is time");
          break;
        case Reason::kTimeout:
          require(last != nullptr && now_ >= last->until, "Timeout of a call that has time");
          break;
        case Reason::kClientDisconnected:
          require(last != nullptr && !last->failure && record.disconnected,
                  "ClientGone of a client that waits");
          break;
        default:
          require(last != nullptr && last->failure && last->failure->reason == *reason,
                  "a reason that nobody gave");
      }
    }
    record.before = summary;
  }

  void check_shared() {
    require(route_->in_flight->now() == in_flight_, "the bound counts others than are in flight");
    for (std::size_t i = 1; i < tiers_.size(); ++i) {
      if (route_->tiers[i].gate == nullptr) continue;
      TierRecord& tier = tiers_[i];
      const Breaker::State state = route_->tiers[i].gate->health().state;
      if (state == Breaker::State::kOpen && tier.state == Breaker::State::kClosed) {
        ++seen_.openings;
        tier.opened = now_;
        tier.quiet_since = now_;
      }
      if (state == Breaker::State::kClosed) tier.probe.reset();
      require(state != Breaker::State::kHalfOpen || tier.probe || tier.background_probes,
              "half-open, and nobody probes");
      tier.state = state;
    }
  }

  void check_end() {
    for (request_index_ = 0; request_index_ < requests_.size(); ++request_index_) {
      require(
          requests_[request_index_].ends + (requests_[request_index_].disconnected ? 1 : 0) == 1,
          "a request without its one end");
    }
    require(in_flight_ == 0 && route_->in_flight->now() == 0, "in flight after the last answer");
    require(statistics_.counts().inferences == seen_.answered, "not every answer was counted once");
  }

  std::unique_ptr<Rng> rng_;
  std::unique_ptr<Rng> machines_rng_;
  std::shared_ptr<const Route> route_;
  Statistics statistics_;
  std::vector<std::shared_ptr<TierCounters>> counters_;
  std::map<std::size_t, bool> verdicts_;
  std::vector<TierRecord> tiers_;
  std::vector<RequestRecord> requests_;
  std::priority_queue<Event> events_;
  SteadyTime now_ = kBegin;
  std::size_t request_index_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint32_t in_flight_max_ = 0;
  Duration pause_min_{};
  std::string violation_;
  Seen seen_;
};

}  // namespace

void Seen::add(const Seen& other) {
  requests += other.requests;
  answered += other.answered;
  failed += other.failed;
  disconnected += other.disconnected;
  fallbacks += other.fallbacks;
  retries += other.retries;
  probes += other.probes;
  background_probes += other.background_probes;
  openings += other.openings;
  late_answers += other.late_answers;
  descents += other.descents;
  limited += other.limited;
  doubled += other.doubled;
  unknown_calls += other.unknown_calls;
  deadlines += other.deadlines;
  trace ^= other.trace;
}

Outcome simulate(std::uint64_t seed) { return World(seed).run(); }

}  // namespace varda::tiers::testing
