#include "aggregator/next_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"

namespace varda::aggregator {

using codec::Json;
using codec::Sha256;
using federated::Rule;
using federated::Settings;
using federated::Weights;

namespace {

constexpr const char* kPrivateRules = "FedAvg, FedProx, FedAvgM, FedAdagrad, FedAdam and FedYogi";

federated::Bounds bounds_of(const federated::BoundsSettings& settings) {
  return {.norm_max = settings.norm_max,
          .norm_factor = settings.norm_factor,
          .weight_factor = settings.weight_factor,
          .weight_max = settings.weight_max};
}

constexpr federated::Bounds kNoBounds{
    .norm_max = 0, .norm_factor = 0, .weight_factor = 0, .weight_max = 0};

bool is_all_floats(const federated::Layout& layout) {
  return std::all_of(
      layout.tensors().begin(), layout.tensors().end(),
      [](const federated::LayoutTensor& one) { return one.dtype == tensor::DType::kFp32; });
}

}  // namespace

Result<std::unique_ptr<NextModel>> NextModel::open(const Settings& settings,
                                                   federated::LayoutPointer layout, Store& store) {
  std::unique_ptr<NextModel> out(
      new NextModel(Json::object({{"name", settings.aggregator.name},
                                  {"parameters", settings.aggregator.parameters}}),
                    std::move(layout), store));
  TRY(out->rule_, Rule::make(out->rule_json_, out->layout_).context("aggregator"));
  const Rule& rule = *out->rule_;
  if (settings.privacy && !rule.supports_privacy())
    return Error(Code::kInvalid, "privacy: the rule " + rule.name() + " has no private form; " +
                                     kPrivateRules + " have one");
  if (settings.secure && !rule.supports_privacy())
    return Error(Code::kInvalid, "secureAggregation: the rule " + rule.name() +
                                     " reads single updates; " + kPrivateRules +
                                     " need the mean alone");
  out->needs_ = {.loss = rule.needs_loss(),
                 .control = rule.needs_control(),
                 .weighs_samples = rule.weighs_samples(),
                 .updates_min = static_cast<std::int64_t>(rule.updates_min())};
  return out;
}

Status NextModel::reset(const State& state) {
  TRY(rule_, Rule::make(rule_json_, layout_).context("aggregator"));
  if (!state.rule.empty()) {
    TRY(const Sha256 digest, Sha256::parse(state.rule).context("state of the rule"));
    TRY(std::string bytes, store_.read(digest).context("state of the rule"));
    TRY_VOID(rule_->restore(std::move(bytes)).context("state of the rule"));
  }
  rule_usable_ = true;
  return {};
}

Result<Weights> NextModel::read(Store& store, const std::string& hex,
                                const federated::Layout& layout) {
  TRY(const Sha256 digest, Sha256::parse(hex));
  TRY(std::string bytes, store.read(digest));
  TRY(Weights out, Weights::parse(std::move(bytes)));
  if (!(out.layout() == layout))
    return Error(Code::kCorrupt, "the stored model has another layout");
  return out;
}

Result<std::optional<NextModel::Made>> NextModel::make(
    const Context& ctx, const Round& round, std::vector<federated::Contribution> contributions,
    State state) {
  std::optional<Kept> last = std::exchange(last_, std::nullopt);
  if (!last || last->model != round.model) {
    last.reset();
    TRY(Weights stored, read(store_, round.model, *layout_));
    last = Kept{round.model, std::move(stored)};
  }
  Weights& weights = last->weights;
  if (!rule_usable_) TRY_VOID(reset(state));
  rule_usable_ = false;
  federated::ApplyOptions apply = {.threads = round.threads, .bounds = bounds_of(round.bounds)};
  if (round.is_sum) apply.bounds = kNoBounds;
  if (state.privacy) {
    TRY(apply.privacy, state.privacy->mean(round.number, round.wanted));
    // Limits that depend on other clients' updates would have a sensitivity of their own.
    apply.bounds = kNoBounds;
    // The clients have cut their updates, and the sum is divided already.
    if (round.is_sum && apply.privacy) {
      apply.privacy->clip = std::numeric_limits<double>::max();
      apply.privacy->clients = 1;
    }
  }
  auto applied = rule_->apply(ctx, std::move(contributions), weights.values(), apply);
  if (!applied.ok()) {
    // The rule may be halfway through its state: the next call loads it again.
    Error error = applied.error();
    const bool may_succeed_later = error.code() == Code::kCancelled ||
                                   error.code() == Code::kTimeout ||
                                   error.code() == Code::kUnavailable;  // the disk cannot read
    return std::move(error).as_terminal(!may_succeed_later);
  }
  if (!applied->too_few.empty()) {
    log::warn("too few updates for the rule",
              {{"round", round.number}, {"error", applied->too_few}});
    rule_usable_ = true;
    return std::optional<Made>();
  }
  if (state.privacy) {
    TRY_VOID(state.privacy->spend(
        round.number,
        {.whole = applied->whole, .received = applied->shares.size(), .clients = round.wanted}));
  }
  Made out;
  TRY(const std::string bytes, weights.to_safetensors());
  TRY(out.model, store_.put(bytes));
  TRY(const std::string rule_state, rule_->state());
  TRY(const Sha256 rule_digest, store_.put(rule_state));
  state.rule = rule_digest.hex();
  if (needs_.control && !rule_->control().empty()) {
    const auto values = rule_->control();
    const Weights control(layout_, std::vector<float>(values.begin(), values.end()));
    TRY(const std::string control_bytes, control.to_safetensors());
    TRY(const Sha256 control_digest, store_.put(control_bytes));
    state.control = control_digest.hex();
  }
  for (const auto& one : applied->quarantined) {
    out.quarantined.emplace(one.client, std::string(to_string(one.reason)) + ": " + one.message);
    log::warn("update quarantined", {{"client", one.client},
                                     {"round", round.number},
                                     {"reason", to_string(one.reason)},
                                     {"message", one.message}});
  }
  out.state = std::move(state);
  rule_usable_ = true;
  // The file of other types has rounded values, from which the next round must begin.
  if (is_all_floats(*layout_)) last_ = Kept{out.model.hex(), std::move(weights)};
  return std::optional(std::move(out));
}

}  // namespace varda::aggregator
