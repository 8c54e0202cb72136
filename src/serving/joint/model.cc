#include "serving/joint/model.h"

#include <utility>

#include "base/log.h"

namespace varda::serving::joint {
namespace {

constexpr std::size_t kMismatchBytesMax = 512;

// Parses a configuration and checks that its policies can be constructed.
Result<tiers::Config> parse(std::string_view text) {
  TRY(tiers::Config config, tiers::parse_config(text));
  for (const tiers::TierConfig& tier : config.tiers) {
    if (!tier.policy) continue;
    auto policy = tiers::make_policy(tier.policy->name, tier.policy->parameters);
    if (!policy.ok()) return std::move(policy).error().context("policy of tier " + tier.name);
  }
  return config;
}

std::shared_ptr<const tiers::Policy> policy_of(const tiers::TierConfig& tier) {
  return tier.policy ? tiers::make_policy(tier.policy->name, tier.policy->parameters).value()
                     : nullptr;
}

}  // namespace

void PolicyMismatch::set(std::string why) {
  if (why.empty() && !known()) return;
  if (why.size() > kMismatchBytesMax) {
    std::size_t end = kMismatchBytesMax;
    while (end > 0 && (static_cast<unsigned char>(why[end]) & 0xC0U) == 0x80U)
      --end;  // cut between UTF-8 characters
    why = why.substr(0, end) + "…";
  }
  MutexLock lock(mutex_);
  known_.store(!why.empty(), std::memory_order_release);
  why_ = std::move(why);
}

bool PolicyMismatch::should_log(SteadyTime now) {
  MutexLock lock(mutex_);
  if (logged_ && now < *logged_ + kPause) return false;
  logged_ = now;
  return true;
}

std::string PolicyMismatch::why() const {
  MutexLock lock(mutex_);
  return why_;
}

Model::Model(std::string name, metrics::Registry& registry, Rng& rng)
    : name_(std::move(name)),
      registry_(registry),
      rng_(rng),
      meters_(registry, name_),
      in_flight_(std::make_shared<tiers::InFlight>(0)) {}

Status Model::want(std::string_view text) {
  auto config = parse(text);
  MutexLock lock(mutex_);
  if (!config.ok()) {
    log::error("joint.json invalid, keeping the previous one",
               {{"model", name_}, {"error", config.error()}});
    problem_ = {"Invalid", "joint.json: " + config.error().message()};
    return std::move(config).error();
  }
  wanted_ = std::move(config).value();
  problem_.reset();
  return {};
}

void Model::forget() {
  MutexLock lock(mutex_);
  wanted_.reset();
  plan_.reset();
  problem_.reset();
}

// Unchanged tiers keep their state.
std::shared_ptr<RemoteTier> Model::later_tier(const tiers::TierConfig& tier) {
  if (tier.url.empty()) return nullptr;
  if (plan_ != nullptr) {
    for (const auto& known : plan_->remote_tiers) {
      if (known != nullptr && known->name == tier.name && known->url == tier.url &&
          known->model == tier.model)
        return known;
    }
  }
  auto made = std::make_shared<RemoteTier>();
  made->name = tier.name;
  made->url = tier.url;
  made->model = tier.model;
  made->gate = std::make_shared<tiers::TierGate>(tiers::Breaker::Options{}, rng_);
  return made;
}

std::shared_ptr<Plan> Model::draft(const std::shared_ptr<const tiers::Policy>& first) {
  auto plan = std::make_shared<Plan>();
  auto route = std::make_shared<tiers::Route>();
  plan->model = this;
  plan->config = *wanted_;
  plan->since = plan_ != nullptr && plan_->config == *wanted_ ? plan_->since : system_clock().now();
  route->deadline = wanted_->deadline;
  route->in_flight = in_flight_;
  for (const tiers::TierConfig& tier : wanted_->tiers) {
    const bool is_first = route->tiers.empty();
    const std::shared_ptr<RemoteTier> above = is_first ? nullptr : later_tier(tier);
    route->tiers.push_back({.name = tier.name,
                            .policy = is_first ? first : policy_of(tier),
                            .gate = above != nullptr ? above->gate : nullptr,
                            .deadline = tier.deadline});
    plan->remote_tiers.push_back(above);
    plan->counters.push_back(statistics_.tier(tier.name));
    plan->meters.push_back(meters_.tier(tier.name));
    plan->mismatches.push_back(std::make_unique<PolicyMismatch>());
  }
  plan->route = std::move(route);
  return plan;
}

Result<std::shared_ptr<const Plan>> Model::fit(const ModelVersion& version) {
  MutexLock lock(mutex_);
  if (!wanted_) return std::shared_ptr<const Plan>();
  const tiers::TierConfig& first = wanted_->tiers.front();
  std::optional<tiers::BoundPolicy> bound;
  if (first.policy) {
    auto fitted =
        tiers::BoundPolicy::bind(policy_of(first), version.available(), version.metadata().labels);
    if (!fitted.ok()) return std::move(fitted).error();
    bound = std::move(fitted).value();
  }
  std::shared_ptr<Plan> plan = draft(bound ? bound->shared_policy() : nullptr);
  plan->policy = std::move(bound);
  return std::shared_ptr<const Plan>(std::move(plan));
}

std::shared_ptr<const Plan> Model::fit_none() {
  MutexLock lock(mutex_);
  return wanted_ ? draft(nullptr) : nullptr;
}

void Model::adopt(std::shared_ptr<const Plan> plan) {
  MutexLock lock(mutex_);
  if (plan != nullptr) {
    in_flight_->set_max(plan->config.in_flight_max);
    if (problem_ && problem_->reason == kPolicyMismatch) problem_.reset();
  }
  plan_ = std::move(plan);
}

void Model::refuse(const Error& why) {
  log::error("policy does not fit the model, keeping the previous one",
             {{"model", name_}, {"error", why}});
  MutexLock lock(mutex_);
  problem_ = {std::string(kPolicyMismatch), why.message()};
}

std::shared_ptr<const Plan> Model::plan() const {
  MutexLock lock(mutex_);
  return plan_;
}

codec::Json Model::describe(const std::string& instance, const std::string& version, SteadyTime now,
                            WallTime wall) const {
  std::shared_ptr<const Plan> plan;
  std::optional<Problem> problem;
  {
    MutexLock lock(mutex_);
    plan = plan_;
    problem = problem_;
  }
  const tiers::Statistics::Counts counts = statistics_.counts();
  codec::Json out =
      codec::Json::object({{"instance", instance}, {"counters", tiers::counters_json(counts)}});
  codec::Json tiers = codec::Json::array();
  if (plan != nullptr) {
    tiers = tiers::tiers_json(*plan->route, counts, version);
    if (version.empty() && !tiers.as_array().empty())
      tiers.array_items().front().set("state", "Unknown");
    for (std::size_t i = 1; i < plan->mismatches.size(); ++i) {
      const std::string why = plan->mismatches[i]->why();
      if (why.empty()) continue;
      tiers.array_items()[i].set(
          "problem", codec::Json::object({{"reason", kPolicyMismatch}, {"message", why}}));
    }
  }
  out.set("tiers", std::move(tiers));
  if (plan != nullptr) {
    if (const auto degraded = tiers::degraded(*plan->route, plan->since, now, wall))
      out.set("degraded", to_json(*degraded));
  }
  if (problem)
    out.set("problem",
            codec::Json::object({{"reason", problem->reason}, {"message", problem->message}}));
  return out;
}

bool later_tier_answers(const Plan& plan) {
  for (const auto& remote : plan.remote_tiers) {
    if (remote == nullptr) continue;
    const tiers::TierGate::Health health = remote->gate->health();
    if (health.seen && health.state == tiers::Breaker::State::kClosed) return true;
  }
  return false;
}

}  // namespace varda::serving::joint
