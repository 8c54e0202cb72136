#include "serving/joint/tiered_request.h"

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

using codec::Json;
using tiers::CallId;
using tiers::Machine;
using tiers::Reason;
using tiers::Step;

constexpr std::array<std::string_view, 5> kOwnParameters = {"tier", "hard", "called", "fallback",
                                                            "tier_version"};

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// The failure that an error of the first tier means for the route.
tiers::Failure failure_of(const Error& error) {
  tiers::Failure out{.message = error.message()};
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
SteadyTime deadline_of(const InferCall& call, const tiers::Route& route,
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

class TieredRequest final : public TimerCallback,
                            public std::enable_shared_from_this<TieredRequest> {
 public:
  TieredRequest(TierRuntime& runtime, Start start, net::Responder respond,
                const oip::Limits& limits)
      : tiers_(runtime),
        plan_(std::move(start.plan)),
        sampling_(std::move(start.samples)),
        version_(std::move(start.version)),
        call_(std::move(start.call)),
        limits_(limits),
        respond_(std::move(respond)),
        machine_(plan_->route, deadline_of(call_, *plan_->route, limits_), runtime.rng(),
                 call_.bytes()) {}

  ~TieredRequest() override {
    if (timer_) tiers_.cancel(*timer_);
  }

  void begin() {
    perform(advance([&](SteadyTime now) REQUIRES(mutex_) { return machine_.start(now); }));
    // Still inside the handler's call. Most requests are already answered and need no callback.
    MutexLock lock(mutex_);
    if (!respond_) return;
    respond_->on_disconnect([weak = weak_from_this()] {
      if (const auto request = weak.lock()) request->client_disconnected();
    });
  }

  /// The time of the last wait step has come.
  void wake() override {
    const Step step = advance([&](SteadyTime now) REQUIRES(mutex_) {
      timer_.reset();
      return machine_.time_passed(now);
    });
    // The tier runtime's thread runs no models and sends no answers: both may take long, and other
    // timers wait.
    step.kind == Step::Kind::kWait || step.kind == Step::Kind::kNothing ? perform(step)
                                                                        : hand_over(step);
  }

  bool ended() const {
    MutexLock lock(mutex_);
    return machine_.ended();
  }

 private:
  class Run;
  class RemoteCalls;

  // Feeds one event to the machine. The caller performs the returned step without the lock.
  template <typename Event>
  Step advance(const Event& event) EXCLUDES(mutex_) {
    std::shared_ptr<std::stop_source> ended;
    Step step;
    {
      MutexLock lock(mutex_);
      step = event(system_clock().now());
      if (step.cancel != tiers::kNoCall) {
        cancelled_ = step.cancel;
        if (remote_call_ == step.cancel) ended = remote_call_stop_;
      }
      if (machine_.ended() && timer_) {
        tiers_.cancel(*timer_);
        timer_.reset();
      }
    }
    if (ended != nullptr) ended->request_stop();
    return step;
  }

  void perform(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kRun:
        return run(step);
      case Step::Kind::kCall:
        return hand_over(step);
      case Step::Kind::kWait:
        return schedule_step(step.until);
      case Step::Kind::kAnswer:
        return answer(step.tier);
      case Step::Kind::kFail:
        return fail(step.reason);
      case Step::Kind::kNothing:
        return;
    }
  }

  // Keeps one timer, for the earliest requested time: each wake() sets the next one.
  void schedule_step(SteadyTime when) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (machine_.ended() || (timer_ && timer_->first <= when)) return;
    if (timer_) tiers_.cancel(*timer_);
    timer_ = tiers_.wake_at(when, weak_from_this());
  }

  void client_disconnected();
  void run(const Step& step);
  void hand_over(const Step& step);
  Step ran(CallId id, Result<Inferred> inferred);
  Step called(CallId id, std::uint8_t tier, Called called);
  tiers::Judgement judge_first(const Inferred& inferred) const;
  tiers::Judgement judge_later_tier(std::uint8_t tier, const oip::Envelope& answer) const;
  bool chooses_outputs() const;
  Json parameters(std::uint8_t tier, const std::string& version, const Json& tier_parameters) const
      REQUIRES(mutex_);
  void answer(std::uint8_t tier);
  void fail(Reason reason);
  void count() REQUIRES(mutex_);
  std::optional<sampling::Answered> to_be_kept() const REQUIRES(mutex_);
  net::Responder take_responder() REQUIRES(mutex_);

  TierRuntime& tiers_;
  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<const sampling::Plan> sampling_;  // null: the request is not kept
  const Result<std::shared_ptr<ModelVersion>> version_;
  const InferCall call_;
  const oip::Limits limits_;

  mutable Mutex mutex_;
  std::optional<net::Responder> respond_ GUARDED_BY(mutex_);  // empty after the answer
  Machine machine_ GUARDED_BY(mutex_);
  std::optional<Inferred> inferred_ GUARDED_BY(mutex_);  // the first tier's result
  std::optional<Error> error_ GUARDED_BY(mutex_);        // the first tier's error
  std::array<std::optional<oip::Envelope>, tiers::kTiersMax> answers_ GUARDED_BY(mutex_);
  std::optional<TierRuntime::Timer> timer_ GUARDED_BY(mutex_);
  std::size_t samples_ GUARDED_BY(mutex_) = 1;
  std::uint64_t bytes_sent_ GUARDED_BY(mutex_) = 0;
  CallId remote_call_ GUARDED_BY(mutex_) = tiers::kNoCall;
  std::shared_ptr<std::stop_source> remote_call_stop_ GUARDED_BY(mutex_);
  CallId cancelled_ GUARDED_BY(mutex_) = tiers::kNoCall;  // the last cancelled call
  std::atomic<std::uint64_t> place_{0};                   // in the queue; 0: not queued
};

// Runs the first tier, as a job of its version's executor.
class TieredRequest::Run final : public Job {
 public:
  Run(std::shared_ptr<TieredRequest> request, CallId id, SteadyTime queued_at)
      : request_(std::move(request)), id_(id), queued_at_(queued_at) {}

  std::size_t bytes() const override { return request_->call_.bytes(); }
  void waits(std::uint64_t place) override { request_->place_ = place; }
  void run() override {
    // The request was answered while queued: leave the instance to waiting requests.
    if (request_->ended()) return;
    ModelVersion& version = **request_->version_;
    VersionStats& stats = version.stats();
    stats.queue_us.add(microseconds(system_clock().now() - queued_at_));
    std::vector<std::string> both;
    auto inferred = infer(version, request_->call_, reads(both), request_->limits_);
    (inferred.ok() ? stats.success : stats.failure).add();
    const Step next = request_->ran(id_, std::move(inferred));
    stats.request_us.add(microseconds(system_clock().now() - queued_at_));
    request_->perform(next);
  }

 private:
  // `both` holds the list if the tiers' policy and the samples read different outputs.
  std::span<const std::string> reads(std::vector<std::string>& both) const {
    const auto& policy = request_->plan_->policy;
    const auto& samples = request_->sampling_;
    if (samples == nullptr || (policy && policy->reads() == samples->reads))
      return policy ? std::span<const std::string>(policy->reads())
                    : std::span<const std::string>();
    if (!policy) return samples->reads;
    both = policy->reads();
    for (const std::string& name : samples->reads)
      if (std::find(both.begin(), both.end(), name) == both.end()) both.push_back(name);
    return both;
  }

  const std::shared_ptr<TieredRequest> request_;
  const CallId id_;
  const SteadyTime queued_at_;
};

// Work that may block: calls of later tiers, one after the other, and the steps that follow.
class TieredRequest::RemoteCalls final : public Job {
 public:
  RemoteCalls(std::shared_ptr<TieredRequest> request, const Step& step)
      : request_(std::move(request)), step_(step) {}

  std::size_t bytes() const override { return 0; }
  void run() override {
    Step step = step_;
    while (step.kind == Step::Kind::kCall) step = call(step);
    request_->perform(step);
  }

 private:
  Step call(const Step& step) {
    TieredRequest& request = *request_;
    const auto stop = std::make_shared<std::stop_source>();
    {
      MutexLock lock(request.mutex_);
      if (request.machine_.ended() || request.cancelled_ == step.call) return {};
      request.remote_call_ = step.call;
      request.remote_call_stop_ = stop;
    }
    const std::stop_callback all(request.tiers_.stopping(), [&] { stop->request_stop(); });
    RemoteTier& remote = *request.plan_->remote_tiers[step.tier];
    remote.called_at = system_clock().now().time_since_epoch().count();
    const Context ctx = Context(stop->get_token()).with_deadline(step.until);
    const auto connection =
        step.new_connection ? Upstream::Connection::kNew : Upstream::Connection::kAny;
    return request.called(
        step.call, step.tier,
        request.tiers_.upstream().infer(ctx, remote.url, remote.model, request.call_, connection));
  }

  const std::shared_ptr<TieredRequest> request_;
  const Step step_;
};

// Runs on the connection's thread. Cancels the upstream call, which closes its connection and frees
// its place. A queued run is withdrawn.
void TieredRequest::client_disconnected() {
  std::optional<net::Responder> unanswered;
  advance([&](SteadyTime now) REQUIRES(mutex_) {
    const Step step = machine_.client_disconnected(now);
    if (respond_ && machine_.summary().end == tiers::Summary::End::kDisconnected) {
      unanswered.emplace(take_responder());
      if (remote_call_ == tiers::kNoCall)
        count();  // else called() counts, once the bytes sent are known
    }
    return step;
  });
  if (!unanswered) return;
  if (const std::uint64_t place = place_;
      place != 0 && version_.ok() && (*version_)->executor().withdraw(place)) {
    (*version_)->stats().abandoned.add();
  }
}

void TieredRequest::run(const Step& step) {
  if (!version_.ok()) return perform(ran(step.call, version_.error()));
  // Keeps the executor's owner alive: the job, with the last reference to the owner, may end before
  // submit() returns.
  const std::shared_ptr<ModelVersion> pinned = *version_;
  std::unique_ptr<Job> job =
      std::make_unique<Run>(shared_from_this(), step.call, system_clock().now());
  if (const Status status = pinned->executor().submit(job); !status.ok()) {
    pinned->stats().failure.add();
    return perform(
        ran(step.call, Error(status.error()).context("model \"" + pinned->model() + "\"")));
  }
  // A job that ran at once needs no timer.
  bool pending = false;
  {
    MutexLock lock(mutex_);
    pending = !machine_.ended() && !inferred_ && !error_;
  }
  if (pending) schedule_step(step.until);
}

// Gives a step that may block, or take long, to a thread of the tier runtime.
void TieredRequest::hand_over(const Step& step) {
  std::unique_ptr<Job> job = std::make_unique<RemoteCalls>(shared_from_this(), step);
  const Status status = tiers_.threads().submit(job);
  if (status.ok()) return;
  if (step.kind == Step::Kind::kAnswer || step.kind == Step::Kind::kFail) return perform(step);
  perform(advance([&](SteadyTime now) REQUIRES(mutex_) {
    const Reason reason =
        status.error().code() == Code::kExhausted ? Reason::kInFlightLimit : Reason::kFailed;
    return machine_.failed(
        step.call, {.reason = reason, .message = status.error().message(), .tier_at_fault = false},
        now);
  }));
}

tiers::Judgement TieredRequest::judge_first(const Inferred& inferred) const {
  if (inferred.others.empty()) return plan_->policy->after(inferred.outputs);
  std::vector<tensor::Named> all = inferred.outputs;
  all.insert(all.end(), inferred.others.begin(), inferred.others.end());
  return plan_->policy->after(all);
}

Step TieredRequest::ran(CallId id, Result<Inferred> inferred) {
  bool judged = false;
  {
    MutexLock lock(mutex_);
    judged = inferred.ok() && plan_->policy && machine_.wants_judgement(0);
  }
  // Without the lock: tensors may be large, and client_disconnected() must not wait.
  tiers::Judgement judgement;
  if (judged) judgement = judge_first(*inferred);
  return advance([&](SteadyTime now) REQUIRES(mutex_) {
    if (!inferred.ok()) {
      error_ = inferred.error();
      return machine_.failed(id, failure_of(*error_), now);
    }
    samples_ = inferred->samples;
    inferred_ = std::move(inferred).value();
    return machine_.answered(id, judgement, now);
  });
}

tiers::Judgement TieredRequest::judge_later_tier(std::uint8_t tier,
                                                 const oip::Envelope& answer) const {
  std::optional<std::string> length;
  if (answer.has_binary) length = std::to_string(answer.body->size() - answer.binary.size());
  const auto response = oip::parse_infer_response(answer.body, length, limits_);
  const std::vector<tensor::Named> none;
  std::string mismatch;
  const auto judgement = tiers::judge(plan_->route->tiers[tier].policy,
                                      response.ok() ? response->outputs : none, &mismatch);
  PolicyMismatch& reported = *plan_->mismatches[tier];
  if (mismatch.empty()) {
    reported.set("");
  } else if (response.ok() && !reported.known() && !chooses_outputs()) {
    reported.set(std::move(mismatch));
    if (reported.should_log(system_clock().now())) {
      log::warn("policy cannot read the tier's answers", {{"model", plan_->model->name()},
                                                          {"tier", plan_->route->tiers[tier].name},
                                                          {"error", reported.why()}});
    }
  }
  return judgement;
}

// If the client chooses outputs, a missing output is no fault of the tier's model.
bool TieredRequest::chooses_outputs() const {
  const auto request = oip::parse_infer_request(call_.body, call_.json_length, limits_);
  return request.ok() && !request->outputs.empty();
}

Step TieredRequest::called(CallId id, std::uint8_t tier, Called called) {
  bool judged = false;
  {
    MutexLock lock(mutex_);
    bytes_sent_ += called.bytes_sent;
    if (remote_call_ == id) {
      remote_call_ = tiers::kNoCall;
      remote_call_stop_.reset();
      if (machine_.summary().end == tiers::Summary::End::kDisconnected) count();
    }
    judged = !called.failure && machine_.wants_judgement(tier);
  }
  tiers::Judgement judgement;
  if (judged) judgement = judge_later_tier(tier, called.answer);
  if (!called.failure) plan_->remote_tiers[tier]->gate->set_version(called.answer.model_version);
  const Step step = advance([&](SteadyTime now) REQUIRES(mutex_) {
    if (called.failure) return machine_.failed(id, *called.failure, now);
    answers_[tier] = std::move(called.answer);
    return machine_.answered(id, judgement, now);
  });
  plan_->meters[tier]->breaker_state.set(
      breaker_number(plan_->remote_tiers[tier]->gate->health().state));
  return step;
}

Json TieredRequest::parameters(std::uint8_t tier, const std::string& version,
                               const Json& tier_parameters) const {
  const tiers::Summary& summary = machine_.summary();
  const tiers::Route& route = machine_.route();
  Json out = Json::object();
  // Parameters from the tier stay, except those that this server sets.
  for (const auto& [name, value] : tier_parameters.as_object()) {
    if (std::find(kOwnParameters.begin(), kOwnParameters.end(), name) == kOwnParameters.end())
      out.set(name, value);
  }
  out.set("tier", route.tiers[tier].name);
  out.set("hard", summary.hard);
  out.set("called", summary.called_text(route));
  if (std::string fallback = summary.fallback_text(route); !fallback.empty())
    out.set("fallback", std::move(fallback));
  out.set("tier_version", version);
  return out;
}

void TieredRequest::count() {
  const tiers::Summary& summary = machine_.summary();
  plan_->model->statistics().count(
      summary, {.samples = static_cast<std::uint32_t>(samples_), .bytes_sent = bytes_sent_},
      plan_->counters);
  plan_->model->meters().count(summary, machine_.route(), plan_->meters, bytes_sent_);
}

net::Responder TieredRequest::take_responder() {
  net::Responder out = std::move(*respond_);
  respond_.reset();
  return out;
}

void TieredRequest::answer(std::uint8_t tier) {
  mutex_.lock();
  if (!respond_) return mutex_.unlock();
  count();
  std::optional<sampling::Answered> kept = to_be_kept();
  net::Responder respond = take_responder();
  // The reported version is the first tier's, whichever tier answers; without a local version it is
  // the answering tier's.
  const std::string own = version_.ok() ? (*version_)->version() : "";
  if (tier == 0) {
    Json reported = parameters(tier, own, nullptr);
    Inferred inferred = std::move(*inferred_);
    mutex_.unlock();
    respond(infer_response(plan_->model->name(), own, std::move(inferred), std::move(reported)));
    if (kept) sampling::note_answer(sampling_, std::move(*kept));
    return;
  }
  oip::Envelope envelope = std::move(*answers_[tier]);
  const Json reported = parameters(tier, envelope.model_version, envelope.parameters);
  mutex_.unlock();
  envelope.id = oip::read_preamble(call_.body, call_.json_length, limits_).id;  // the client's id
  oip::Message message = oip::reseal(envelope, plan_->model->name(),
                                     own.empty() ? envelope.model_version : own, reported);
  net::Response response{200,
                         {{"Content-Type", std::string(message.content_type())}},
                         std::move(message.body),
                         nullptr};
  if (message.json_length)
    response.headers.add(std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length));
  respond(std::move(response));
  if (kept) sampling::note_answer(sampling_, std::move(*kept));
}

// Copies, because the answer takes the originals. Tensors and bodies are shared.
std::optional<sampling::Answered> TieredRequest::to_be_kept() const {
  if (sampling_ == nullptr) return std::nullopt;
  sampling::Answered out{call_, {}, {}};
  if (inferred_) out.outputs = all_outputs(*inferred_);
  for (std::size_t tier = 1; tier < answers_.size(); ++tier)
    if (answers_[tier]) out.later.push_back({plan_->route->tiers[tier].name, *answers_[tier]});
  return out;
}

void TieredRequest::fail(Reason reason) {
  mutex_.lock();
  if (!respond_) return mutex_.unlock();
  count();
  net::Responder respond = take_responder();
  const Error error = error_.value_or(no_answer(reason));
  mutex_.unlock();
  if (sampling_ != nullptr) sampling::note_failure(*sampling_, error.code());
  respond(error_response(error));
}

}  // namespace

void begin(TierRuntime& runtime, Start start, net::Responder respond, const oip::Limits& limits) {
  std::make_shared<TieredRequest>(runtime, std::move(start), std::move(respond), limits)->begin();
}

}  // namespace varda::serving::joint
