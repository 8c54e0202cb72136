// The part that all rules share: checks, quarantine, state.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/settings_reader.h"
#include "federated/internal/fold.h"
#include "federated/rules.h"

namespace varda::federated {

/// The contributions that count, by client.
struct RoundUpdates {
  const Context& ctx;
  std::vector<Contribution> contributions;
  std::vector<double> samples;  // after the limits of Bounds
  std::size_t threads = 1;
  std::optional<PrivateMean> privacy = {};

  std::vector<const UpdateReader*> updates() const;
};

/// Weights of the clients in a mean.
enum class Weighting { kSamples, kUniform };

class RuleBase : public Rule {
 public:
  RuleBase(std::string name, LayoutPointer layout)
      : name_(std::move(name)), layout_(std::move(layout)) {}

  const std::string& name() const final { return name_; }
  const Layout& layout() const final { return *layout_; }
  std::size_t updates_min() const override { return 1; }
  Result<Applied> apply(const Context& ctx, std::vector<Contribution> contributions,
                        std::span<float> global, const ApplyOptions& options) final;
  Result<std::string> state() const final;
  Status restore(std::string bytes) final;

 protected:
  /// Changes the model. Returns the sum of squares of the change. Fills the shares.
  virtual Result<double> aggregate(const RoundUpdates& round, std::span<float> global,
                                   Applied& applied) = 0;
  /// False: the rule cannot compute with the client's loss. Only asked with needs_loss().
  virtual bool usable_loss(const Contribution& /*contribution*/) const { return true; }
  /// A message if the rule needs more updates than these, else "".
  virtual std::string too_few(std::size_t updates) const;
  /// Vectors that last between rounds, by name. All have the length of the layout.
  virtual std::vector<std::pair<std::string, std::vector<float>*>> buffers() { return {}; }

 private:
  const std::string name_;
  const LayoutPointer layout_;
};

/// Weights with the sum 1, from samples and staleness.
std::vector<double> normalized_weights(const RoundUpdates& round, Weighting weighting);
void add_shares(const RoundUpdates& round, std::span<const double> weights, Applied& applied);

/// Makes a rule, or sets `status`.
using RuleMaker = std::unique_ptr<Rule> (*)(codec::SettingsReader& in, const std::string& name,
                                            LayoutPointer layout);
struct RuleEntry {
  std::string_view name;
  RuleMaker make;
};
std::span<const RuleEntry> mean_rules();
std::span<const RuleEntry> robust_rules();

}  // namespace varda::federated
