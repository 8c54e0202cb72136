#include "federated/internal/rule_base.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "federated/internal/bounds.h"
#include "federated/internal/kernels.h"
#include "federated/internal/shown.h"

namespace varda::federated {
namespace {

constexpr std::string_view kStateFormat = "varda-rule/1";

Status check_contributions(std::span<const Contribution> sorted, const Layout& layout) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].update == nullptr)
      return Error(Code::kInvalid, "client " + shown(sorted[i].client) + " has no update");
    if (!(sorted[i].update->layout() == layout))
      return Error(Code::kInvalid,
                   "the update of client " + shown(sorted[i].client) + " has another layout");
    if (i > 0 && sorted[i].client == sorted[i - 1].client)
      return Error(Code::kInvalid, "client " + shown(sorted[i].client) + " has two updates");
  }
  return {};
}

}  // namespace

std::vector<const UpdateReader*> RoundUpdates::updates() const {
  std::vector<const UpdateReader*> out;
  for (const Contribution& contribution : contributions) out.push_back(contribution.update);
  return out;
}

std::string RuleBase::too_few(std::size_t updates) const {
  if (updates >= updates_min()) return "";
  return name_ + " needs at least " + std::to_string(updates_min()) + " updates, the round has " +
         std::to_string(updates);
}

Result<Applied> RuleBase::apply(const Context& ctx, std::vector<Contribution> contributions,
                                std::span<float> global, const ApplyOptions& options) {
  if (global.size() != layout_->size())
    return Error(Code::kInvalid, "the model has " + std::to_string(global.size()) +
                                     " values, the layout " + std::to_string(layout_->size()));
  if (options.privacy && !supports_privacy())
    return Error(Code::kInvalid, name_ + " has no private form: its step is no mean of updates");
  std::sort(contributions.begin(), contributions.end(),
            [](const auto& a, const auto& b) { return a.client < b.client; });
  TRY_VOID(check_contributions(contributions, *layout_));
  Applied out;
  out.quarantined =
      quarantine(contributions, options.bounds,
                 {.loss = needs_loss(),
                  .control = needs_control(),
                  .usable_loss = [this](const Contribution& c) { return usable_loss(c); }});
  if (const std::string problem = too_few(contributions.size()); !problem.empty()) {
    out.too_few =
        problem + (out.quarantined.empty()
                       ? ""
                       : ", " + std::to_string(out.quarantined.size()) + " more are quarantined");
    return out;
  }
  RoundUpdates round{ctx, std::move(contributions), {}, options.threads, options.privacy};
  round.samples = capped_samples(round.contributions, options.bounds);
  const Result<double> aggregated = aggregate(round, global, out);
  // Failed reads give zeros, so any other error may be a consequence.
  for (const Contribution& contribution : round.contributions)
    TRY_VOID(contribution.update->status().context("client " + shown(contribution.client)));
  TRY(const double squares, aggregated);
  if (!std::isfinite(squares))
    return Error(Code::kInternal, "the next model has values that are not finite");
  out.norm = std::sqrt(squares);
  return out;
}

Result<std::string> RuleBase::state() const {
  // buffers() hands out pointers for restore(); here they are read only.
  auto& self = const_cast<RuleBase&>(*this);
  std::vector<tensor::Named> tensors;
  for (const auto& [name, values] : self.buffers()) {
    TRY(tensor::Tensor tensor,
        tensor::Tensor::over(tensor::DType::kFp32, {static_cast<std::int64_t>(values->size())},
                             std::as_bytes(std::span(*values)), nullptr));
    tensors.push_back({name, std::move(tensor)});
  }
  return write_safetensors(tensors, {{"format", std::string(kStateFormat)},
                                     {"rule", name_},
                                     {"layout", layout_->digest().hex()}});
}

Status RuleBase::restore(std::string bytes) {
  TRY(const Safetensors file, Safetensors::of(std::move(bytes)));
  const SafetensorsHeader& header = file.header();
  if (header.metadata("format") != kStateFormat || header.metadata("rule") != name_)
    return Error(Code::kInvalid, "the state is of the rule " + shown(header.metadata("rule")) +
                                     ", not of " + shown(name_));
  if (header.metadata("layout") != layout_->digest().hex())
    return Error(Code::kInvalid, "the state belongs to a model with other tensors");
  const auto targets = buffers();
  if (header.entries().size() != targets.size())
    return Error(Code::kInvalid, "the state has " + std::to_string(header.entries().size()) +
                                     " tensors, not " + std::to_string(targets.size()));
  std::vector<tensor::Tensor> read;
  for (const auto& [name, values] : targets) {
    TRY(tensor::Tensor tensor, file.tensor(name));
    if (tensor.dtype() != tensor::DType::kFp32 || tensor.size() != values->size())
      return Error(Code::kInvalid, "tensor " + shown(name) + " of the state has another size");
    const auto floats = tensor.values<float>();
    if (!std::isfinite(kernels::max_magnitude(floats.data(), floats.size())))
      return Error(Code::kInvalid, "tensor " + shown(name) + " of the state is not finite");
    read.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto floats = read[i].values<float>();
    std::copy(floats.begin(), floats.end(), targets[i].second->begin());
  }
  return {};
}

std::vector<double> normalized_weights(const RoundUpdates& round, Weighting weighting) {
  std::vector<double> out;
  double sum = 0;
  for (std::size_t i = 0; i < round.contributions.size(); ++i) {
    const double samples = weighting == Weighting::kSamples ? round.samples[i] : 1;
    out.push_back(samples * round.contributions[i].scale);
    sum += out.back();
  }
  for (double& weight : out) weight /= sum;
  return out;
}

void add_shares(const RoundUpdates& round, std::span<const double> weights, Applied& applied) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    applied.shares.push_back({round.contributions[i].client, weights[i]});
}

}  // namespace varda::federated
