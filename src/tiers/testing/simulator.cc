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
  ScriptedPolicy(Mode mode, std::size_t tier, std::map<std::size_t, bool>& said)
      : Policy(*find_policy("Random"), ""), mode_(mode), tier_(tier), said_(said) {}
  std::optional<bool> before(Rng& rng) const override {
    if (mode_ == Mode::kAfter) return std::nullopt;
    return said_[tier_] = mode_ == Mode::kHard || (mode_ == Mode::kDraw && rng.below(2) == 0);
  }

 private:
  const Mode mode_;
  const std::size_t tier_;
  std::map<std::size_t, bool>& said_;  // during the current event
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
  enum class What : std::uint8_t { kStart, kAnswer, kFailure, kTimer, kGone, kProbes };
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

struct CallBook {
  std::size_t tier = 0;
  SteadyTime until{};
  bool open = true;    // the result is still needed
  bool muted = false;  // cancelled; no event will follow
  std::optional<Failure> failure;
};

struct RequestBook {
  std::optional<Machine> machine;
  SteadyTime deadline{};
  int ends = 0;
  bool gone = false;
  std::map<CallId, CallBook> calls;
  std::map<std::size_t, bool> answers;  // delivered in time: tier -> its answer was hard
  std::map<std::size_t, bool> decided;  // before inference
  std::size_t retries = 0;
  Summary before{};  // the last event
};

struct TierBook {
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
                 " us, request " + std::to_string(here_) + ": " + what;
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
      if (chance(85)) tier.policy = std::make_shared<ScriptedPolicy>(policy_mode(), i, said_);
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
    Weather here = Weather::kDead;
    for (const auto& [until, what] : tiers_[tier].weather) {
      if (now_ < until) {
        here = what;
        break;
      }
    }
    return here == Weather::kMixed ? static_cast<Weather>(below(8)) : here;
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
    here_ = event.request;
    if (event.what == Event::What::kProbes) return ask_for_readiness();
    RequestBook& book = requests_[event.request];
    said_.clear();
    if (event.what == Event::What::kStart) return start(book);
    Machine& machine = *book.machine;
    book.before = machine.summary();
    // Threads read the clock before they get the lock: their times may be slightly old.
    const SteadyTime reported =
        now_ - (chance(20) ? Duration(microseconds(below(500))) : Duration{});
    Step step;
    if (event.what == Event::What::kTimer) {
      step = machine.time_passed(now_);
    } else if (event.what == Event::What::kGone) {
      step = leave(book);
    } else {
      const auto found = book.calls.find(event.call);
      if (found == book.calls.end()) {
        ++seen_.unknown_calls;
      } else if (found->second.muted) {
        return;
      }
      step = event.what == Event::What::kAnswer ? answered(book, event, reported)
                                                : failed(book, event, reported);
    }
    take(book, step);
  }

  void start(RequestBook& book) {
    ++seen_.requests;
    const Duration whole =
        chance(70)
            ? route_->deadline
            : between(milliseconds(1), std::chrono::duration_cast<milliseconds>(route_->deadline));
    book.deadline = now_ + whole;
    book.machine.emplace(route_, book.deadline, *machines_rng_);
    if (chance(12))
      push(now_ + between(milliseconds(0), milliseconds(1000)),
           {.what = Event::What::kGone, .request = here_});
    if (chance(10))
      push(now_ + between(milliseconds(0), milliseconds(1000)),
           {.what = Event::What::kTimer, .request = here_});
    if (chance(10)) {
      // Drawn in two statements: the evaluation order of arguments is unspecified.
      const auto what = chance(50) ? Event::What::kAnswer : Event::What::kFailure;
      const auto call = static_cast<CallId>(below(40));
      push(now_ + between(milliseconds(0), milliseconds(500)),
           {.what = what, .request = here_, .call = call});
    }
    take(book, book.machine->start(now_));
  }

  Step leave(RequestBook& book) {
    const Step step = book.machine->client_gone(now_);
    if (book.ends == 0 && !book.gone) {
      require(step.kind == Kind::kNothing, "an answer for a client that is gone");
      book.gone = true;
      ++seen_.gone;
    }
    return step;
  }

  Step answered(RequestBook& book, const Event& event, SteadyTime reported) {
    const auto call = book.calls.find(event.call);
    bool ends_it = false;
    if (call != book.calls.end() && book.ends == 0 && !book.gone) {
      const std::size_t tier = call->second.tier;
      if (!book.answers.contains(tier)) {
        const bool judged = tier + 1 < route_->tiers.size() &&
                            route_->tiers[tier].policy != nullptr && !book.decided.contains(tier);
        book.answers[tier] = judged && event.hard;
        seen_.late_answers += call->second.open ? 0 : 1;
        ends_it = !book.answers[tier] && tier == book.answers.rbegin()->first;
      }
      close(event.request, event.call);
    }
    const Step step =
        book.machine->answered(event.call, {.hard = event.hard, .samples = 1}, reported);
    if (ends_it) require(step.kind == Kind::kAnswer, "an answer that is good enough was not given");
    return step;
  }

  Step failed(RequestBook& book, const Event& event, SteadyTime reported) {
    const auto call = book.calls.find(event.call);
    if (call != book.calls.end() && book.ends == 0 && !book.gone) {
      if (!call->second.failure && (call->second.open || call->second.tier == 0))
        call->second.failure = event.failure;
      close(event.request, event.call);
    }
    const bool refused = call != book.calls.end() && call->second.tier == 0 &&
                         call->second.failure && call->second.failure->reason == Reason::kRefused &&
                         book.answers.empty() && book.ends == 0 && !book.gone;
    const Step step = book.machine->failed(event.call, event.failure, reported);
    if (refused)
      require(step.kind == Kind::kFail, "what the first tier refuses is asked of others");
    return step;
  }

  void close(std::size_t request, CallId id) {
    CallBook& call = requests_[request].calls.at(id);
    if (call.open && call.tier > 0) --in_flight_;
    call.open = false;
    TierBook& tier = tiers_[call.tier];
    if (tier.probe == std::pair(request, id)) {
      tier.probe.reset();
      tier.quiet_since = now_;
    }
  }

  void ask_for_readiness() {
    for (std::size_t i = 1; i < tiers_.size(); ++i) {
      TierGate* gate = route_->tiers[i].gate.get();
      if (gate == nullptr) continue;
      TierBook& book = tiers_[i];
      if (book.background) {
        const Weather here = weather(i);
        const bool ready =
            here == Weather::kGood || here == Weather::kSlow || here == Weather::kRefuses;
        gate->probed(*book.background,
                     ready ? std::nullopt : std::optional(of_status(503, "not ready")), now_);
        book.background.reset();
        book.background_probes = false;
        book.quiet_since = now_;
      } else if ((book.background = gate->probe(now_))) {
        ++seen_.background_probes;
        book.background_probes = gate->health().state == Breaker::State::kHalfOpen;
        require(!book.background_probes || !book.probe,
                "a second probe, by readiness, while a request is one");
      }
    }
    const bool some_are_left =
        std::any_of(requests_.begin(), requests_.end(), [](const RequestBook& book) {
          return !book.machine ||
                 (!book.machine->ended() && book.machine->summary().end == Summary::End::kPending);
        });
    if (some_are_left)
      push(now_ + between(milliseconds(20), milliseconds(500)), {.what = Event::What::kProbes});
  }

  // --- handling of steps

  void take(RequestBook& book, const Step& step) {
    for (const auto& [tier, hard] : said_) book.decided[tier] = hard;
    seen_.trace = (seen_.trace ^
                   (static_cast<std::uint64_t>(step.kind) + step.tier * 16U + step.call * 256U)) *
                  0x100000001b3U;
    if (step.cancel != kNoCall) {
      const auto call = book.calls.find(step.cancel);
      const bool known = call != book.calls.end() && call->second.open && call->second.tier > 0;
      require(known, "a call is ended that nobody waits for");
      if (known) {
        close(here_, step.cancel);
        call->second.muted = chance(70);
      }
    }
    switch (step.kind) {
      case Kind::kRun:
        run_first(book, step);
        break;
      case Kind::kAsk:
        ask(book, step);
        break;
      case Kind::kWait:
        break;
      case Kind::kAnswer:
        answer(book, step);
        break;
      case Kind::kFail:
        fail(book, step);
        break;
      case Kind::kNothing:
        require(book.ends > 0 || book.gone, "nothing is to be done, and there was no answer");
        break;
    }
    if (step.kind == Kind::kRun || step.kind == Kind::kAsk || step.kind == Kind::kWait) {
      require(step.until <= book.deadline, "a wait beyond the deadline");
      require(step.until > now_ - milliseconds(1), "a wait for what has passed");
      push(std::max(now_, step.until), {.what = Event::What::kTimer, .request = here_});
    }
    check_reasons(book);
  }

  void open_call(RequestBook& book, const Step& step) {
    require(step.call != kNoCall && !book.calls.contains(step.call),
            "a number of a call was used twice");
    require(now_ < book.deadline, "a call after the deadline");
    if (const auto own = route_->tiers[step.tier].deadline)
      require(step.until <= now_ + *own, "longer than the tier's deadline");
    if (book.decided.contains(step.tier) && book.decided[step.tier]) ++seen_.descents;
    book.calls[step.call] = {
        .tier = step.tier, .until = step.until, .open = true, .muted = false, .failure = {}};
  }

  void run_first(RequestBook& book, const Step& step) {
    require(step.tier == 0, "another tier was run here");
    for (const auto& [id, call] : book.calls)
      require(call.tier != 0, "the first tier was run twice");
    open_call(book, step);
    answer_some_time(here_, step.call, 0);
  }

  void ask(RequestBook& book, const Step& step) {
    require(step.tier > 0 && step.tier < route_->tiers.size() &&
                route_->tiers[step.tier].gate != nullptr,
            "a tier without an address");
    const CallBook* earlier = nullptr;
    for (const auto& [id, call] : book.calls) {
      require(call.tier == 0 || !call.open, "two calls upwards at a time");
      if (call.tier == step.tier) earlier = &call;
    }
    require(step.new_connection == (earlier != nullptr),
            "a retry, and only it, is on another connection");
    if (earlier != nullptr) {
      ++seen_.retries;
      require(++book.retries == 1, "a second retry");
      require(earlier->failure && earlier->failure->surely_unanswered,
              "a retry of what may have been answered");
      require(step.until == earlier->until, "a retry has a deadline of its own");
    }
    open_call(book, step);
    require(++in_flight_ <= in_flight_max_, "more in flight than the bound");
    TierBook& tier = tiers_[step.tier];
    if (route_->tiers[step.tier].gate->health().state != Breaker::State::kClosed) {
      ++seen_.probes;
      require(!tier.probe && !tier.background_probes, "a second probe at a time");
      require(now_ >= tier.opened + pause_min_ * 4 / 5 - milliseconds(1),
              "a probe before the pause is over");
      tier.probe = {here_, step.call};
    }
    answer_some_time(here_, step.call, step.tier);
  }

  void answer(RequestBook& book, const Step& step) {
    end(book);
    ++seen_.answered;
    require(!book.answers.empty(), "an answer that no tier gave");
    if (book.answers.empty()) return;
    const std::size_t best = book.answers.rbegin()->first;
    require(step.tier == best, "not the best answer that arrived");
    const Summary& summary = book.machine->summary();
    bool missing = false;
    for (std::size_t above = best + 1; above < route_->tiers.size(); ++above) {
      const bool skipped = book.decided.contains(above) && book.decided[above];
      missing = missing || summary.tiers[above].reason;
      if (book.answers[best] && now_ < book.deadline) {
        require(summary.tiers[above].reason || skipped,
                "a hard example, and the next tier was not asked");
      }
    }
    require(missing == !summary.fallback_text(*route_).empty(), "a fallback without its reason");
    seen_.fallbacks += missing ? 1 : 0;
    bool hard = false;
    for (const auto& [tier, goes_up] : book.answers) hard = hard || goes_up;
    for (const auto& [tier, decided] : book.decided) hard = hard || decided;
    require(summary.hard == hard, "hard is not what the policies said");
  }

  void fail(RequestBook& book, const Step& step) {
    end(book);
    ++seen_.failed;
    require(book.answers.empty(), "an answer arrived and was not given");
    std::optional<Reason> first;
    const CallBook* run = nullptr;
    for (const auto& [id, call] : book.calls) {
      if (call.tier != 0) continue;
      run = &call;
      if (call.failure) first = call.failure->reason;
    }
    require(run != nullptr, "a failure without a try of the first tier");
    require(first || now_ >= book.deadline, "given up while the first tier may still answer");
    require(step.tier == 0, "the error of another tier than the first");
    if (first) require(step.reason == *first, "not the first one's error");
    if (!first)
      require(step.reason == Reason::kTimeout || step.reason == Reason::kDeadline,
              "an error that was not the first one's");
    if (first == Reason::kRefused || now_ >= book.deadline) return;
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      require(book.machine->summary().tiers[i].reason.has_value(),
              "given up before every tier was tried");
    }
  }

  void end(RequestBook& book) {
    require(!book.gone, "an answer for a client that is gone");
    require(++book.ends == 1, "a second answer");
    require(now_ <= book.deadline, "an answer after the deadline");
    seen_.deadlines += now_ == book.deadline ? 1 : 0;
    const Summary& summary = book.machine->summary();
    statistics_.count(summary, {}, counters_);
    std::map<std::size_t, int> attempts;
    for (const auto& [id, call] : book.calls) {
      ++attempts[call.tier];
      require(call.tier == 0 || !call.open, "a call that goes on behind the answer");
    }
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      require(
          summary.tiers[i].attempts == attempts[i] && summary.tiers[i].asked == (attempts[i] > 0),
          "attempts are not what was asked");
      require(summary.tiers[i].answered == book.answers.contains(i),
              "answered is not what arrived");
    }
  }

  // Checks that each new reason is true.
  void check_reasons(RequestBook& book) {
    const Summary& summary = book.machine->summary();
    for (std::size_t i = 0; i < route_->tiers.size(); ++i) {
      const auto& reason = summary.tiers[i].reason;
      if (!reason || reason == book.before.tiers[i].reason) continue;
      const CallBook* last = nullptr;
      for (const auto& [id, call] : book.calls) {
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
          require(last == nullptr && now_ >= book.deadline, "Deadline while there is time");
          break;
        case Reason::kTimeout:
          require(last != nullptr && now_ >= last->until, "Timeout of a call that has time");
          break;
        case Reason::kClientGone:
          require(last != nullptr && !last->failure && book.gone,
                  "ClientGone of a client that waits");
          break;
        default:
          require(last != nullptr && last->failure && last->failure->reason == *reason,
                  "a reason that nobody gave");
      }
    }
    book.before = summary;
  }

  void check_shared() {
    require(route_->in_flight->now() == in_flight_, "the bound counts others than are in flight");
    for (std::size_t i = 1; i < tiers_.size(); ++i) {
      if (route_->tiers[i].gate == nullptr) continue;
      TierBook& tier = tiers_[i];
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
    for (here_ = 0; here_ < requests_.size(); ++here_) {
      require(requests_[here_].ends + (requests_[here_].gone ? 1 : 0) == 1,
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
  std::map<std::size_t, bool> said_;
  std::vector<TierBook> tiers_;
  std::vector<RequestBook> requests_;
  std::priority_queue<Event> events_;
  SteadyTime now_ = kBegin;
  std::size_t here_ = 0;
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
  gone += other.gone;
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
