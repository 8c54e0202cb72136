// Rules: the next model from the previous one and the updates of a round.
//
//   TRY(const auto rule, Rule::make({{"name", "FedAdam"}, {"parameters", {...}}}, layout));
//   std::vector<Contribution> contributions;  // any order
//   TRY(const Applied applied, rule->apply(ctx, contributions, model.values(), {.threads = 2}));
//
// The result is a function of the set of contributions: apply() sorts them by client, sums are FP64
// in a fixed order, and each coordinate belongs to one thread. Any order of arrival and any number
// of threads give the same bits. Memory is one block of each update, plus the state of the rule.
// README.md has the formulas, their papers and the parameters of each rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "privacy/key_agreement.h"

namespace varda::federated {

/// One client's update in a round.
struct Contribution {
  std::string client;                    // unique in the round
  std::uint64_t samples = 1;             // usually update->info().samples
  double loss = 0;                       // q-FFL: of the model before training, above 0
  const UpdateReader* update = nullptr;  // outlives the call
  double scale = 1;                      // staleness: staleness_scale(), in (0, 1]
};

/// 1/sqrt(1+s): the weight of an update on a model that is `versions` old (FedBuff).
double staleness_scale(std::uint64_t versions);

/// Limits against poisoning. The defaults are on.
struct Bounds {
  /// L2 norm of an update; longer ones are quarantined. 0: no limit.
  double norm_max = 0;
  /// The same, as a multiple of the median norm of the round. For a rule with needs_loss() also
  /// the limit of losses, by their median. Applies from 3 updates on. 0: no limit.
  double norm_factor = 10;
  /// Samples count up to this multiple of the round's median. Applies from 3 updates on. 0: no
  /// limit.
  double weight_factor = 10;
  /// Samples count up to this number. 0: no limit.
  double weight_max = 0;
};

/// A differentially private mean (privacy/mechanism.h): each update is cut to the length `clip`,
/// the sum is divided by `clients` whatever the number of updates, and noise is added to the mean.
struct PrivateMean {
  double clip = 0;
  std::uint64_t clients = 1;
  double deviation = 0;    // of the noise in each coordinate
  privacy::Key seed = {};  // secret; the same seed gives the same noise
};

struct ApplyOptions {
  std::size_t threads = 1;
  Bounds bounds = {};
  /// Only for a rule with supports_privacy(). Samples and staleness have no weight then.
  std::optional<PrivateMean> privacy = {};
};

/// A client with an update that did not count.
struct Quarantined {
  std::string client;
  RefusalReason reason = RefusalReason::kNorm;
  std::string message;  // "norm 812.3 is above 10 times the median 1.9"
  friend bool operator==(const Quarantined&, const Quarantined&) = default;
};

/// The share of one client in the result.
struct Share {
  std::string client;
  /// Mean rules: the coefficient of the update in the mean. Krum and Bulyan: 1/selected, or 0.
  /// Median and trimmed mean: 1/n.
  double weight = 0;
};

struct Applied {
  std::vector<Share> shares;             // by client, without the quarantined
  std::vector<Quarantined> quarantined;  // by client
  double norm = 0;                       // L2 norm of the step: next model minus previous model
  std::uint64_t whole = 0;               // updates that PrivateMean::clip left whole
  /// Not empty: too few updates for the rule are left after quarantine, and nothing changed.
  std::string too_few;
};

/// The state of the aggregation between rounds. One call at a time.
class Rule {
 public:
  /// {"name": "FedAvg", "parameters": {…}}; absent members have their defaults. kInvalid: an
  /// unknown rule or parameter, or one out of range; the message names it and the valid ones.
  static Result<std::unique_ptr<Rule>> make(const codec::Json& json, LayoutPointer layout);
  /// kInvalid: make() would refuse the JSON.
  static Status check(const codec::Json& json);
  /// The same, and kInvalid for a rule without supports_privacy().
  static Status check_private(const codec::Json& json);
  /// Names that make() accepts, sorted.
  static std::vector<std::string> names();

  virtual ~Rule() = default;
  virtual const std::string& name() const = 0;
  virtual const Layout& layout() const = 0;
  /// The rule reads Contribution::loss, so that clients must report the loss before training.
  virtual bool needs_loss() const { return false; }
  /// The rule reads control variates, so that clients must send them and get control().
  virtual bool needs_control() const { return false; }
  /// SCAFFOLD: the server's control variate for the next task; empty otherwise. Valid until apply()
  /// or restore().
  virtual std::span<const float> control() const { return {}; }
  /// The step depends on the updates by their mean alone, which may be private.
  virtual bool supports_privacy() const { return false; }
  /// The mean weighs updates by samples. Only for a rule with supports_privacy().
  virtual bool weighs_samples() const { return false; }
  /// The least number of updates for which the rule has a result.
  virtual std::size_t updates_min() const = 0;

  /// Changes `global` (as long as the layout) to the next model. kInvalid: two contributions of one
  /// client, another layout, a loss or control variates missing; `global` and the rule are
  /// unchanged. kCancelled, kTimeout: `ctx` is done. kInternal: the result is not finite. After
  /// these three and errors of UpdateReader::status(), such as kUnavailable of the disk, `global`
  /// and the rule are undefined: load both again.
  virtual Result<Applied> apply(const Context& ctx, std::vector<Contribution> contributions,
                                std::span<float> global, const ApplyOptions& options) = 0;

  /// The state as a safetensors file, for restore() of a rule of the same name and layout. Small
  /// for rules without momentum.
  virtual Result<std::string> state() const = 0;
  /// kInvalid: broken, or of another rule or layout; the rule is then unchanged.
  virtual Status restore(std::string bytes) = 0;
};

}  // namespace varda::federated
