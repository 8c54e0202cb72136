#include "agent/models/serving_poller.h"

#include <algorithm>

#include "base/log.h"
#include "net/url.h"

namespace varda::agent::models {
namespace {

constexpr std::size_t kSamplesBytesMax = 16 << 10;
constexpr std::size_t kJointBytesMax = 256 << 10, kJointDepthMax = 16;
constexpr std::size_t kTrialBytesMax = 64 << 10;

bool same(const api::EdgeServingReport& a, const api::EdgeServingReport& b) {
  return a.version == b.version && a.state == b.state && a.failed_version == b.failed_version &&
         a.reason == b.reason && a.message == b.message;
}

bool request_is_of_a_model(const Poll& poll) { return poll.status_query != api::EdgeStatusQuery{}; }

}  // namespace

void ServingPoller::set(std::vector<Poll> polls) {
  const MutexLock lock(mutex_);
  std::map<std::string, State> next;
  const SteadyTime now = clock_.now();
  for (Poll& poll : polls) {
    const auto known = states_.find(poll.key);
    State state{poll, now, now, 0, std::nullopt, "", std::nullopt, now, std::nullopt, {}};
    if (known != states_.end() && known->second.poll == poll) {
      state = std::move(known->second);
    } else if (known != states_.end() && known->second.poll.url == poll.url) {
      state.last_good = known->second.last_good;
      if (!poll.trial.empty()) state.trial = known->second.trial;
      if (poll.samples) state.samples = known->second.samples;
      state.version_since = known->second.version_since;
      state.report =
          known->second
              .report;  // same server, new target: the last answer holds until the next poll
    }
    next.emplace(poll.key, std::move(state));
  }
  states_ = std::move(next);
  wakeup_.notify();
}

std::map<std::string, api::EdgeServingReport> ServingPoller::reports() const {
  const MutexLock lock(mutex_);
  std::map<std::string, api::EdgeServingReport> out;
  for (const auto& [key, state] : states_)
    if (state.report) out.emplace(key, *state.report);
  return out;
}

std::map<std::string, api::ModelTrialStatus> ServingPoller::trials() const {
  const MutexLock lock(mutex_);
  std::map<std::string, api::ModelTrialStatus> out;
  for (const auto& [key, state] : states_)
    if (state.trial) out.emplace(key, *state.trial);
  return out;
}

std::map<std::string, std::string> ServingPoller::last_good() const {
  const MutexLock lock(mutex_);
  std::map<std::string, std::string> out;
  for (const auto& [key, state] : states_)
    if (!state.last_good.empty()) out.emplace(key, state.last_good);
  return out;
}

std::map<std::string, api::SampleReport> ServingPoller::samples() const {
  const MutexLock lock(mutex_);
  std::map<std::string, api::SampleReport> out;
  for (const auto& [key, state] : states_)
    if (state.samples) out.emplace(key, *state.samples);
  return out;
}

bool ServingPoller::complete() const {
  const MutexLock lock(mutex_);
  return std::all_of(states_.begin(), states_.end(),
                     [](const auto& state) { return state.second.report.has_value(); });
}

Result<ServingPoller::Answer> ServingPoller::fetch(const Context& ctx, const Poll& poll) {
  net::ClientRequest request;
  request.method = poll.status_query.method;
  request.url = poll.url + poll.status_query.path;
  if (request.method == "POST") {
    request.headers.add("Content-Type", "application/json");
    request.body = "{}";
  }
  request.max_response_bytes = 1 << 20;
  TRY(const auto answer, http_.call(ctx.with_timeout(options_.timeout), std::move(request)));
  // A single-model server answers 404 while it has no model.
  if (answer.status == 404 && request_is_of_a_model(poll))
    return Answer{read_index(codec::Json(), poll), ""};
  if (answer.status != 200)
    return Error(Code::kUnavailable, "HTTP " + std::to_string(answer.status));
  const auto index = codec::parse_json(answer.body);
  if (!index.ok()) return Error(Code::kCorrupt, index.error().message());
  return Answer{read_index(*index, poll), poll.numbers.empty() ? read_last_good(*index, poll) : ""};
}

// Called only for a server that just answered. A lost answer is repeated by the next poll.
void ServingPoller::poll_joint(const Context& ctx, const Poll& poll) {
  net::ClientRequest request;
  request.url = poll.url + "/v2/models/" + net::percent_encode(poll.model_name) + "/joint";
  request.max_response_bytes = kJointBytesMax;
  const auto answer = http_.call(ctx.with_timeout(options_.timeout), std::move(request));
  if (!answer.ok() && answer.error().code() == Code::kExhausted)
    return joint_(poll.key,
                  Error(Code::kExhausted,
                        "it has more than " + std::to_string(kJointBytesMax >> 10) + " KiB"));
  if (!answer.ok() || answer->status == 404) return;  // no version yet, or no tiers
  if (answer->status != 200)
    return joint_(poll.key, Error(Code::kUnavailable, "HTTP " + std::to_string(answer->status)));
  joint_(poll.key, codec::parse_json(answer->body, {.depth_max = kJointDepthMax}));
}

// Called only for a server that just answered. A lost answer is repeated by the next poll.
void ServingPoller::poll_trial(const Context& ctx, const Poll& poll) {
  net::ClientRequest request;
  request.url = poll.url + "/v2/models/" + net::percent_encode(poll.model_name) + "/trial";
  request.max_response_bytes = kTrialBytesMax;
  const auto answer = http_.call(ctx.with_timeout(options_.timeout), std::move(request));
  if (!answer.ok()) return;
  std::optional<api::ModelTrialStatus> report;
  if (answer->status == 200) {
    const auto json = codec::parse_json(answer->body, {.depth_max = kJointDepthMax});
    if (json.ok()) report = api::ModelTrialStatus::of_server(*json);
  } else if (answer->status == 404 &&
             answer->body.find("there is nothing at") != std::string::npos) {
    report = api::ModelTrialStatus{};
    report->version = codec::parse_json(poll.trial).value_or(codec::Json())["version"].as_string();
    report->state = api::ModelTrialStatus::kFailed;
    report->reason = "TrialUnsupported";
    report->message = "the model's server is too old for a second version";
  }
  {
    const MutexLock lock(mutex_);
    const auto found = states_.find(poll.key);
    if (found == states_.end() || !(found->second.poll == poll)) return;
    State& state = found->second;
    const bool moving = !report || report->state == api::ModelTrialStatus::kLoading;
    if (moving) state.due = std::min(state.due, clock_.now() + options_.busy);
    if (state.trial == report) return;
    const bool counts_only = state.trial && report && state.trial->state == report->state &&
                             state.trial->version == report->version &&
                             state.trial->mode == report->mode &&
                             state.trial->reason == report->reason;
    if (counts_only && clock_.now() < state.trial_at + options_.trial_period) return;
    state.trial = std::move(report);
    state.trial_at = clock_.now();
  }
  changed_();
}

// Like poll_joint(). 404: the server keeps nothing, or is too old to.
void ServingPoller::poll_samples(const Context& ctx, const Poll& poll) {
  net::ClientRequest request;
  request.url = poll.url + "/v2/models/" + net::percent_encode(poll.model_name) + "/samples";
  request.max_response_bytes = kSamplesBytesMax;
  const auto answer = http_.call(ctx.with_timeout(options_.timeout), std::move(request));
  if (!answer.ok() || answer->status != 200) return;
  const auto json = codec::parse_json(answer->body, {.depth_max = kJointDepthMax});
  if (!json.ok()) return;
  api::SampleReport report = api::SampleReport::from_server(*json);
  {
    const MutexLock lock(mutex_);
    const auto found = states_.find(poll.key);
    if (found == states_.end() || !(found->second.poll == poll) || found->second.samples == report)
      return;
    found->second.samples = std::move(report);
  }
  changed_();
}

void ServingPoller::take(const Poll& poll, const Result<Answer>& answer) {
  {
    const MutexLock lock(mutex_);
    const auto found = states_.find(poll.key);
    if (found == states_.end() || !(found->second.poll == poll))
      return;  // the poll changed meanwhile
    State& state = found->second;
    api::EdgeServingReport report;
    bool updated = false;
    if (answer.ok()) {
      state.failures = 0;
      (void)state.log_throttle.should_log("", clock_.now());
      report = answer->report;
      updated = !answer->last_good.empty() && answer->last_good != state.last_good;
      if (updated) state.last_good = answer->last_good;
    } else {
      // One lost answer is no outage. A server that never answered is not news, either.
      if (++state.failures == 1 && state.report &&
          state.report->state != api::EdgeServingReport::kUnreachable) {
        state.due = clock_.now() + options_.busy;
        return;
      }
      if (state.report) report.version = state.report->version;
      report.state = api::EdgeServingReport::kUnreachable;
      report.reason = "Unreachable";
      const Error& error = answer.error();
      const bool unreadable = error.code() == Code::kCorrupt || error.code() == Code::kExhausted;
      report.message = unreadable
                           ? "the answer of the model server at " + poll.url + " cannot be read"
                           : "the model server does not answer at " + poll.url;
      if (unreadable && state.log_throttle.should_log(error.message(), clock_.now()))
        log::warn("version status of a model server unreadable",
                  {{"model", poll.key}, {"error", error}});
    }
    const bool settled = report.state == api::EdgeServingReport::kReady &&
                         (report.version == poll.target || report.failed_version == poll.target);
    const auto busy = std::min(options_.busy * (1 << std::min(state.failures, 3)), options_.steady);
    const SteadyTime now = clock_.now();
    if (!state.report || state.report->version != report.version) state.version_since = now;
    const bool fresh = poll.samples && now - state.version_since < options_.fresh_for;
    const auto steady = fresh ? std::min(options_.fresh, options_.steady) : options_.steady;
    state.due = now + (settled ? steady : busy);
    if (state.report && same(*state.report, report) && !updated) return;
    state.report = std::move(report);
  }
  changed_();
}

std::optional<SteadyTime> ServingPoller::due() const {
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> earliest;
  for (const auto& [key, state] : states_)
    if (!earliest || state.due < *earliest) earliest = state.due;
  return earliest;
}

void ServingPoller::step(const Context& ctx) {
  std::vector<Poll> due;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, state] : states_)
      if (state.due <= clock_.now()) due.push_back(state.poll);
  }
  for (const Poll& poll : due) {
    if (ctx.done()) return;
    const auto answer = fetch(ctx, poll);
    if (!answer.ok() && ctx.done()) return;  // cancelled: proves nothing about the server
    take(poll, answer);
    if (answer.ok() && poll.joint && joint_) poll_joint(ctx, poll);
    if (answer.ok() && !poll.trial.empty()) poll_trial(ctx, poll);
    if (answer.ok() && poll.samples) poll_samples(ctx, poll);
  }
}

void ServingPoller::poll_counters(const Context& ctx) {
  if (!joint_) return;
  std::vector<Poll> polls;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, state] : states_)
      if (state.poll.joint && state.report && state.failures < 2)
        polls.push_back(state.poll);  // one lost answer is no outage
  }
  for (const Poll& poll : polls) {
    if (ctx.done()) return;
    poll_joint(ctx, poll);
  }
}

runtime::Task ServingPoller::task() {
  return {.name = "model servers",
          .due = [this] { return due(); },
          .step = [this](const Context& ctx) { step(ctx); },
          .wakeup = &wakeup_};
}

}  // namespace varda::agent::models
