#include "serving/sampling/model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "serving/sampling/keeper.h"
#include "spool/id.h"

namespace varda::serving::sampling {
namespace {

using codec::Json;

// The policy is a means to find and read the probabilities.
std::optional<tiers::BoundPolicy> bind_probabilities(std::span<const tensor::Spec> outputs) {
  auto bound = tiers::BoundPolicy::bind(tiers::make_policy("Margin", {}).value(), outputs);
  return bound.ok() ? std::optional(std::move(bound).value()) : std::nullopt;
}

// Uniform in [0, 1), without a system call: splitmix64 by S. Vigna.
double unit() {
  thread_local std::uint64_t state = system_rng().next();
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1.0p-53;
}

void count_score(Counts& counts, const tiers::Sample& sample) {
  if (sample.values.empty()) return;
  const double best = *std::max_element(sample.values.begin(), sample.values.end());
  if (!(best >= 0 && best <= 1)) return;
  const auto index =
      std::min(static_cast<std::size_t>(best * Counts::kScores), Counts::kScores - 1);
  counts.scores[index].fetch_add(1, std::memory_order_relaxed);
}

// Judges the answer, and counts scores on the way.
bool judge(const Plan& plan, const std::vector<tensor::Named>& outputs) {
  const auto count = [&](std::size_t, const tiers::Sample& sample, tiers::Verdict) {
    count_score(*plan.counts, sample);
  };
  const auto& policy = plan.policy;
  if (policy && policy->policy().row().input == tiers::PolicyInput::kClassProbabilities)
    return policy->each(outputs, count).hard;
  if (plan.probabilities && !outputs.empty()) (void)plan.probabilities->each(outputs, count);
  if (!policy) return false;
  if (const auto before = policy->policy().before(system_rng())) return *before;
  return policy->after(outputs).hard;
}

}  // namespace

void note_answer(const std::shared_ptr<const Plan>& plan, Answered answered) {
  Counts& counts = *plan->counts;
  const bool hard = judge(*plan, answered.outputs);
  const bool control =
      !hard && plan->config.control_share > 0 && unit() < plan->config.control_share;
  if ((hard || control) && !plan->model->keeper().submit({plan, std::move(answered), control})) {
    counts.dropped.fetch_add(1, std::memory_order_relaxed);
    plan->model->dropped.add();
  }
  // Last, so that the sample of a counted answer is in the queue.
  counts.answers.fetch_add(1, std::memory_order_release);
  if (hard) counts.hard.fetch_add(1, std::memory_order_relaxed);
}

void note_failure(const Plan& plan, Code code) {
  if (code == Code::kInvalid || code == Code::kUnsupported || code == Code::kNotFound) return;
  plan.counts->failures.fetch_add(1, std::memory_order_relaxed);
}

Model::Model(std::string name, Keeper& keeper, metrics::Registry& registry)
    : kept(registry.counter("varda_samples_kept_total", "Samples written to the spool.",
                            {{"model", name}})),
      dropped(registry.counter(
          "varda_samples_dropped_total",
          "Requests that could not be kept: the disk was slower than the requests, or failed.",
          {{"model", name}})),
      name_(std::move(name)),
      keeper_(keeper),
      bytes_gauge_(registry.gauge("varda_samples_bytes", "Bytes of pending samples in the spool.",
                                  {{"model", name_}})) {}

Status Model::want(std::string_view text) {
  auto config = parse_config(text);
  const MutexLock lock(mutex_);
  if (!config.ok()) {
    log::error("samples.json invalid, keeping the previous one",
               {{"model", name_}, {"error", config.error()}});
    invalid_ = "samples.json: " + config.error().message();
    return std::move(config).error();
  }
  wanted_ = std::move(config).value();
  invalid_.clear();
  return {};
}

void Model::forget() {
  const MutexLock lock(mutex_);
  wanted_.reset();
  plan_.reset();
  invalid_.clear();
}

std::shared_ptr<const Plan> Model::fit(const ModelVersion& version, std::string first_tier) {
  auto plan = std::make_shared<Plan>();
  plan->model = this;
  plan->version = version.version();
  plan->first_tier = std::move(first_tier);
  plan->labels = version.metadata().labels;
  plan->input = input_shape_of(version);
  plan->since = system_clock().wall();
  plan->probabilities = bind_probabilities(version.available());
  const MutexLock lock(mutex_);
  if (!wanted_) return nullptr;
  plan->config = *wanted_;
  if (wanted_->policy) {
    auto bound = tiers::BoundPolicy::bind(
        tiers::make_policy(wanted_->policy->name, wanted_->policy->parameters).value(),
        version.available(), plan->labels);
    if (bound.ok()) {
      plan->policy = std::move(bound).value();
      plan->reads = plan->policy->reads();
    } else {
      plan->problem = bound.error().message();
      log::error("policy of samples does not fit the model, keeping control samples only",
                 {{"model", name_}, {"version", plan->version}, {"error", bound.error()}});
    }
  }
  if (plan->probabilities) {
    for (const std::string& name : plan->probabilities->reads())
      if (std::find(plan->reads.begin(), plan->reads.end(), name) == plan->reads.end())
        plan->reads.push_back(name);
  }
  // The same version with the same settings continues its counts.
  if (plan_ != nullptr && plan_->version == plan->version && plan_->config == plan->config) {
    plan->counts = plan_->counts;
    plan->since = plan_->since;
  }
  plan_ = plan;
  keeper_.open(plan);
  return plan;
}

std::optional<tiers::BoundPolicy> Model::bind_policy(const ModelVersion& version) const {
  const MutexLock lock(mutex_);
  if (!wanted_ || !wanted_->policy) return std::nullopt;
  auto policy = tiers::make_policy(wanted_->policy->name, wanted_->policy->parameters).value();
  if (policy->row().input == tiers::PolicyInput::kNothing) return std::nullopt;
  auto bound =
      tiers::BoundPolicy::bind(std::move(policy), version.available(), version.metadata().labels);
  if (!bound.ok()) return std::nullopt;
  return std::move(bound).value();
}

Json Model::describe() const {
  const MutexLock lock(mutex_);
  Json out = Json::object();
  std::string reason = problem_, message = problem_text_;
  // Without its spool, the Keeper tries again with the next sample.
  if (const SteadyTime now = system_clock().now();
      plan_ != nullptr && now >= recount_at_ && problem_ != kSpoolUnavailable) {
    recount_at_ = now + keeper_.recount_period();
    keeper_.open(plan_);
  }
  if (plan_ != nullptr) {
    const Counts& counts = *plan_->counts;
    Json scores = Json::array();
    for (const auto& one : counts.scores) scores.push_back(one.load());
    out = Json::object({{"version", plan_->version},
                        {"answers", counts.answers.load(std::memory_order_acquire)},
                        {"failures", counts.failures.load()},
                        {"hard", counts.hard.load()},
                        {"kept", counts.kept.load()},
                        {"dropped", counts.dropped.load()},
                        {"scores", std::move(scores)},
                        {"since", spool::time_text(plan_->since)}});
    if (!plan_->problem.empty()) {
      reason = "PolicyMismatch";
      message = plan_->problem;
    }
  }
  if (!invalid_.empty()) {
    reason = "Invalid";
    message = invalid_;
  }
  out.set("pending", stored_);
  out.set("bytes", bytes_);
  if (!reason.empty()) out.set("problem", Json::object({{"reason", reason}, {"message", message}}));
  return out;
}

void Model::set_stored(std::uint64_t count, std::uint64_t bytes) {
  bytes_gauge_.set(static_cast<double>(bytes));
  const MutexLock lock(mutex_);
  stored_ = count;
  bytes_ = bytes;
}

void Model::set_problem(std::string reason, std::string message) {
  const MutexLock lock(mutex_);
  problem_ = std::move(reason);
  problem_text_ = std::move(message);
}

}  // namespace varda::serving::sampling
