#include "serving/joint/journey.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace varda::serving::joint {
namespace {

using cascade::CallId;
using cascade::Machine;
using cascade::Reason;
using cascade::Step;
using codec::Json;

constexpr std::array<std::string_view, 5> kOwnParameters = {"tier", "hard", "asked", "fallback",
                                                            "tier_version"};

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// The failure that an error of the first tier means for the route.
cascade::Failure failure_of(const Error& error) {
  cascade::Failure out{.message = error.message()};
  switch (error.code()) {
    case Code::kInvalid:
    case Code::kUnsupported:
      out.reason = Reason::kRefused;
      break;
    case Code::kExhausted:
    case Code::kUnavailable:
      out.reason = Reason::kOverloaded;
      break;
    case Code::kTimeout:
      out.reason = Reason::kTimeout;
      break;
    default:
      out.reason = Reason::kFailed;
  }
  return out;
}

// The earlier of the request's own deadline and the route's. The search avoids parsing bodies
// without a timeout.
SteadyTime deadline_of(const InferCall& call, const cascade::Route& route,
                       const oip::Limits& limits) {
  Duration time = route.deadline;
  if (call.body->find("timeout") != std::string::npos) {
    if (const auto own = oip::read_preamble(call.body, call.json_length, limits).timeout)
      time = std::min<Duration>(time, *own);
  }
  return call.arrived + time;
}

Error no_answer(Reason reason) {
  const std::string message = "no tier answered: " + std::string(to_string(reason));
  return Error(reason == Reason::kTimeout || reason == Reason::kDeadline ? Code::kTimeout
                                                                         : Code::kUnavailable,
               message);
}

class Journey final : public Sleeper, public std::enable_shared_from_this<Journey> {
 public:
  Journey(Center& center, Start start, net::Responder respond, const oip::Limits& limits)
      : center_(center),
        plan_(std::move(start.plan)),
        version_(std::move(start.version)),
        call_(std::move(start.call)),
        limits_(limits),
        respond_(std::move(respond)),
        machine_(plan_->route, deadline_of(call_, *plan_->route, limits_), center.rng(),
                 call_.bytes()) {}

  ~Journey() override {
    if (alarm_) center_.cancel(*alarm_);
  }

  void begin() {
    perform(tell([&](SteadyTime now) REQUIRES(mutex_) { return machine_.start(now); }));
    // Still inside the handler's call. Most requests are already answered and need no callback.
    MutexLock lock(mutex_);
    if (!respond_) return;
    respond_->on_gone([kept = weak_from_this()] {
      if (const auto journey = kept.lock()) journey->client_gone();
    });
  }

  /// The time of the last wait step has come.
  void wake() override {
    const Step step = tell([&](SteadyTime now) REQUIRES(mutex_) {
      alarm_.reset();
      return machine_.time_passed(now);
    });
    // The center's thread runs no models and sends no answers: both may take long, and other timers
    // wait.
    step.kind == Step::Kind::kWait || step.kind == Step::Kind::kNothing ? perform(step)
                                                                        : hand_over(step);
  }

  bool ended() const {
    MutexLock lock(mutex_);
    return machine_.ended();
  }

 private:
  class Run;
  class Ask;

  // Feeds one event to the machine. The caller performs the returned step without the lock.
  template <typename Event>
  Step tell(const Event& event) EXCLUDES(mutex_) {
    std::shared_ptr<std::stop_source> ended;
    Step step;
    {
      MutexLock lock(mutex_);
      step = event(system_clock().now());
      if (step.cancel != cascade::kNoCall) {
        cancelled_ = step.cancel;
        if (asking_ == step.cancel) ended = asking_stop_;
      }
      if (machine_.ended() && alarm_) {
        center_.cancel(*alarm_);
        alarm_.reset();
      }
    }
    if (ended != nullptr) ended->request_stop();
    return step;
  }

  void perform(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kRun:
        return run(step);
      case Step::Kind::kAsk:
        return hand_over(step);
      case Step::Kind::kWait:
        return wake_me_at(step.until);
      case Step::Kind::kAnswer:
        return answer(step.tier);
      case Step::Kind::kFail:
        return fail(step.reason);
      case Step::Kind::kNothing:
        return;
    }
  }

  // Keeps one timer, for the earliest requested time: each wake() sets the next one.
  void wake_me_at(SteadyTime when) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (machine_.ended() || (alarm_ && alarm_->first <= when)) return;
    if (alarm_) center_.cancel(*alarm_);
    alarm_ = center_.wake_at(when, weak_from_this());
  }

  void client_gone();
  void run(const Step& step);
  void hand_over(const Step& step);
  Step ran(CallId id, Result<Inferred> inferred);
  Step called(CallId id, std::uint8_t tier, Called called);
  cascade::Judgement judge_first(const Inferred& inferred) const;
  cascade::Judgement judge_upper(std::uint8_t tier, const oip::Envelope& answer) const;
  bool chooses_outputs() const;
  Json parameters(std::uint8_t tier, const std::string& version, const Json& given) const
      REQUIRES(mutex_);
  void answer(std::uint8_t tier);
  void fail(Reason reason);
  void count() REQUIRES(mutex_);
  net::Responder take_responder() REQUIRES(mutex_);

  Center& center_;
  const std::shared_ptr<const Plan> plan_;
  const Result<std::shared_ptr<ModelVersion>> version_;
  const InferCall call_;
  const oip::Limits limits_;

  mutable Mutex mutex_;
  std::optional<net::Responder> respond_ GUARDED_BY(mutex_);  // empty after the answer
  Machine machine_ GUARDED_BY(mutex_);
  std::optional<Inferred> inferred_ GUARDED_BY(mutex_);  // the first tier's result
  std::optional<Error> error_ GUARDED_BY(mutex_);        // the first tier's error
  std::array<std::optional<oip::Envelope>, cascade::kTiersMax> answers_ GUARDED_BY(mutex_);
  std::optional<Center::Alarm> alarm_ GUARDED_BY(mutex_);
  std::size_t samples_ GUARDED_BY(mutex_) = 1;
  std::uint64_t bytes_up_ GUARDED_BY(mutex_) = 0;
  CallId asking_ GUARDED_BY(mutex_) = cascade::kNoCall;
  std::shared_ptr<std::stop_source> asking_stop_ GUARDED_BY(mutex_);
  CallId cancelled_ GUARDED_BY(mutex_) = cascade::kNoCall;  // the last cancelled call
  std::atomic<std::uint64_t> place_{0};                     // in the queue; 0: not queued
};

// Runs the first tier, as a job of its version's executor.
class Journey::Run final : public Job {
 public:
  Run(std::shared_ptr<Journey> journey, CallId id, SteadyTime given)
      : journey_(std::move(journey)), id_(id), given_(given) {}

  std::size_t bytes() const override { return journey_->call_.bytes(); }
  void waits(std::uint64_t place) override { journey_->place_ = place; }
  void run() override {
    // The request was answered while queued: leave the instance to waiting requests.
    if (journey_->ended()) return;
    ModelVersion& version = **journey_->version_;
    VersionStats& stats = version.stats();
    stats.queue_us.add(microseconds(system_clock().now() - given_));
    auto inferred = infer(version, journey_->call_, reads(), journey_->limits_);
    (inferred.ok() ? stats.success : stats.failure).add();
    const Step next = journey_->ran(id_, std::move(inferred));
    stats.request_us.add(microseconds(system_clock().now() - given_));
    journey_->perform(next);
  }

 private:
  std::span<const std::string> reads() const {
    const auto& policy = journey_->plan_->policy;
    return policy ? std::span<const std::string>(policy->reads()) : std::span<const std::string>();
  }

  const std::shared_ptr<Journey> journey_;
  const CallId id_;
  const SteadyTime given_;
};

// Work that may block: calls of upper tiers, one after the other, and the steps that follow.
class Journey::Ask final : public Job {
 public:
  Ask(std::shared_ptr<Journey> journey, const Step& step)
      : journey_(std::move(journey)), step_(step) {}

  std::size_t bytes() const override { return 0; }
  void run() override {
    Step step = step_;
    while (step.kind == Step::Kind::kAsk) step = call(step);
    journey_->perform(step);
  }

 private:
  Step call(const Step& step) {
    Journey& journey = *journey_;
    const auto stop = std::make_shared<std::stop_source>();
    {
      MutexLock lock(journey.mutex_);
      if (journey.machine_.ended() || journey.cancelled_ == step.call) return {};
      journey.asking_ = step.call;
      journey.asking_stop_ = stop;
    }
    const std::stop_callback all(journey.center_.stopping(), [&] { stop->request_stop(); });
    Upper& upper = *journey.plan_->uppers[step.tier];
    upper.asked_at = system_clock().now().time_since_epoch().count();
    const Context ctx = Context(stop->get_token()).with_deadline(step.until);
    const auto connection =
        step.new_connection ? Upstream::Connection::kNew : Upstream::Connection::kAny;
    return journey.called(
        step.call, step.tier,
        journey.center_.upstream().infer(ctx, upper.url, upper.model, journey.call_, connection));
  }

  const std::shared_ptr<Journey> journey_;
  const Step step_;
};

// Runs on the connection's thread. Cancels the upstream call, which closes its connection and frees
// its place. A queued run is withdrawn.
void Journey::client_gone() {
  std::optional<net::Responder> nobody;
  tell([&](SteadyTime now) REQUIRES(mutex_) {
    const Step step = machine_.client_gone(now);
    if (respond_ && machine_.summary().end == cascade::Summary::End::kGone) {
      nobody.emplace(take_responder());
      if (asking_ == cascade::kNoCall)
        count();  // else called() counts, once the bytes sent are known
    }
    return step;
  });
  if (!nobody) return;
  if (const std::uint64_t place = place_;
      place != 0 && version_.ok() && (*version_)->executor().withdraw(place)) {
    (*version_)->stats().abandoned.add();
  }
}

void Journey::run(const Step& step) {
  if (!version_.ok()) return perform(ran(step.call, version_.error()));
  // Keeps the executor's owner alive: the job, with the last reference to the owner, may end before
  // submit() returns.
  const std::shared_ptr<ModelVersion> keeper = *version_;
  std::unique_ptr<Job> job =
      std::make_unique<Run>(shared_from_this(), step.call, system_clock().now());
  if (const Status status = keeper->executor().submit(job); !status.ok()) {
    keeper->stats().failure.add();
    return perform(
        ran(step.call, Error(status.error()).context("model \"" + keeper->model() + "\"")));
  }
  // A job that ran at once needs no timer.
  bool pending = false;
  {
    MutexLock lock(mutex_);
    pending = !machine_.ended() && !inferred_ && !error_;
  }
  if (pending) wake_me_at(step.until);
}

// Gives a step that may block, or take long, to a thread of the center.
void Journey::hand_over(const Step& step) {
  std::unique_ptr<Job> job = std::make_unique<Ask>(shared_from_this(), step);
  const Status status = center_.threads().submit(job);
  if (status.ok()) return;
  if (step.kind == Step::Kind::kAnswer || step.kind == Step::Kind::kFail) return perform(step);
  perform(tell([&](SteadyTime now) REQUIRES(mutex_) {
    const Reason reason =
        status.error().code() == Code::kExhausted ? Reason::kInFlightLimit : Reason::kFailed;
    return machine_.failed(
        step.call, {.reason = reason, .message = status.error().message(), .tier_at_fault = false},
        now);
  }));
}

cascade::Judgement Journey::judge_first(const Inferred& inferred) const {
  if (inferred.others.empty()) return plan_->policy->after(inferred.outputs);
  std::vector<tensor::Named> all = inferred.outputs;
  all.insert(all.end(), inferred.others.begin(), inferred.others.end());
  return plan_->policy->after(all);
}

Step Journey::ran(CallId id, Result<Inferred> inferred) {
  bool judged = false;
  {
    MutexLock lock(mutex_);
    judged = inferred.ok() && plan_->policy && machine_.wants_judgement(0);
  }
  // Without the lock: tensors may be large, and client_gone() must not wait.
  cascade::Judgement judgement;
  if (judged) judgement = judge_first(*inferred);
  return tell([&](SteadyTime now) REQUIRES(mutex_) {
    if (!inferred.ok()) {
      error_ = inferred.error();
      return machine_.failed(id, failure_of(*error_), now);
    }
    samples_ = inferred->samples;
    inferred_ = std::move(inferred).value();
    return machine_.answered(id, judgement, now);
  });
}

cascade::Judgement Journey::judge_upper(std::uint8_t tier, const oip::Envelope& answer) const {
  std::optional<std::string> length;
  if (answer.has_binary) length = std::to_string(answer.body->size() - answer.binary.size());
  const auto response = oip::parse_infer_response(answer.body, length, limits_);
  const std::vector<tensor::Named> none;
  std::string misfit;
  const auto judgement = cascade::judge(plan_->route->tiers[tier].policy,
                                        response.ok() ? response->outputs : none, &misfit);
  Misfit& told = *plan_->misfits[tier];
  if (misfit.empty()) {
    told.set("");
  } else if (response.ok() && !told.known() && !chooses_outputs()) {
    told.set(std::move(misfit));
    if (told.is_news(system_clock().now())) {
      log::warn("policy cannot read the tier's answers", {{"model", plan_->model->name()},
                                                          {"tier", plan_->route->tiers[tier].name},
                                                          {"error", told.why()}});
    }
  }
  return judgement;
}

// If the client chooses outputs, a missing output is no fault of the tier's model.
bool Journey::chooses_outputs() const {
  const auto request = oip::parse_infer_request(call_.body, call_.json_length, limits_);
  return request.ok() && !request->outputs.empty();
}

Step Journey::called(CallId id, std::uint8_t tier, Called called) {
  bool judged = false;
  {
    MutexLock lock(mutex_);
    bytes_up_ += called.bytes_sent;
    if (asking_ == id) {
      asking_ = cascade::kNoCall;
      asking_stop_.reset();
      if (machine_.summary().end == cascade::Summary::End::kGone) count();
    }
    judged = !called.failure && machine_.wants_judgement(tier);
  }
  cascade::Judgement judgement;
  if (judged) judgement = judge_upper(tier, called.answer);
  if (!called.failure) plan_->uppers[tier]->gate->set_version(called.answer.model_version);
  const Step step = tell([&](SteadyTime now) REQUIRES(mutex_) {
    if (called.failure) return machine_.failed(id, *called.failure, now);
    answers_[tier] = std::move(called.answer);
    return machine_.answered(id, judgement, now);
  });
  plan_->meters[tier]->breaker_state.set(breaker_number(plan_->uppers[tier]->gate->health().state));
  return step;
}

Json Journey::parameters(std::uint8_t tier, const std::string& version, const Json& given) const {
  const cascade::Summary& summary = machine_.summary();
  const cascade::Route& route = machine_.route();
  Json out = Json::object();
  // Parameters from the tier stay, except those that this server sets.
  for (const auto& [name, value] : given.as_object()) {
    if (std::find(kOwnParameters.begin(), kOwnParameters.end(), name) == kOwnParameters.end())
      out.set(name, value);
  }
  out.set("tier", route.tiers[tier].name);
  out.set("hard", summary.hard);
  out.set("asked", summary.asked_text(route));
  if (std::string fallback = summary.fallback_text(route); !fallback.empty())
    out.set("fallback", std::move(fallback));
  out.set("tier_version", version);
  return out;
}

void Journey::count() {
  const cascade::Summary& summary = machine_.summary();
  plan_->model->statistics().count(
      summary, {.samples = static_cast<std::uint32_t>(samples_), .bytes_up = bytes_up_},
      plan_->counters);
  plan_->model->meters().count(summary, machine_.route(), plan_->meters, bytes_up_);
}

net::Responder Journey::take_responder() {
  net::Responder out = std::move(*respond_);
  respond_.reset();
  return out;
}

void Journey::answer(std::uint8_t tier) {
  mutex_.lock();
  if (!respond_) return mutex_.unlock();
  count();
  net::Responder respond = take_responder();
  // The reported version is the first tier's, whichever tier answers; without a local version it is
  // the answering tier's.
  const std::string own = version_.ok() ? (*version_)->version() : "";
  if (tier == 0) {
    Json told = parameters(tier, own, nullptr);
    Inferred inferred = std::move(*inferred_);
    mutex_.unlock();
    return respond(infer_response(plan_->model->name(), own, std::move(inferred), std::move(told)));
  }
  oip::Envelope envelope = std::move(*answers_[tier]);
  const Json told = parameters(tier, envelope.model_version, envelope.parameters);
  mutex_.unlock();
  envelope.id = oip::read_preamble(call_.body, call_.json_length, limits_).id;  // the client's id
  oip::Message message =
      oip::reseal(envelope, plan_->model->name(), own.empty() ? envelope.model_version : own, told);
  net::Response response{200,
                         {{"Content-Type", std::string(message.content_type())}},
                         std::move(message.body),
                         nullptr};
  if (message.json_length)
    response.headers.add(std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length));
  respond(std::move(response));
}

void Journey::fail(Reason reason) {
  mutex_.lock();
  if (!respond_) return mutex_.unlock();
  count();
  net::Responder respond = take_responder();
  const Error error = error_.value_or(no_answer(reason));
  mutex_.unlock();
  respond(error_response(error));
}

}  // namespace

void begin(Center& center, Start start, net::Responder respond, const oip::Limits& limits) {
  std::make_shared<Journey>(center, std::move(start), std::move(respond), limits)->begin();
}

}  // namespace varda::serving::joint
