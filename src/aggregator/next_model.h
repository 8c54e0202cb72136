// NextModel: the step from a model and the updates of a round to the next model, with the files
// that the step reads and writes.
//
//   TRY(auto next, NextModel::open(settings, layout, store));
//   NextModel::State state;                                   // durable with the rounds
//   TRY(auto made, next->make(ctx, round, std::move(contributions), state));
//   if (made) … made->model, made->state, made->quarantined …
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/privacy_budget.h"
#include "aggregator/store.h"
#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "federated/rules.h"
#include "federated/settings.h"
#include "federated/weights.h"

namespace varda::aggregator {

/// For one thread at a time.
class NextModel {
 public:
  /// Everything but the machine that a restart needs. Changes with the model.
  struct State {
    std::string rule;     // SHA-256 of the rule's state; "": none yet
    std::string control;  // SHA-256 of the server's control variate; "": none
    std::string file;     // SHA-256 of the model file for clients
    std::string updates;  // chained digest of all updates that counted
    std::optional<PrivacyBudget> privacy;
  };
  /// The rule's demands on updates.
  struct Needs {
    bool loss = false, control = false;
    bool weighs_samples = false;
    std::int64_t updates_min = 1;
  };
  struct Round {
    std::int64_t number = 0;
    std::uint64_t wanted = 1;  // clients of the round
    federated::BoundsSettings bounds;
    std::size_t threads = 1;
    std::string model;                 // SHA-256 of the present one, in hex
    std::vector<std::string> digests;  // of the updates, in the order of the clients
    /// The contribution is the sum of a secure round: noise is added, no limit applies.
    bool is_sum = false;
  };
  struct Made {
    codec::Sha256 model;
    State state;
    std::map<std::string, std::string> quarantined;  // clients with the reasons
  };

  /// kInvalid: the rule's name or parameters, or a rule that does not fit privacy or secure
  /// aggregation.
  static Result<std::unique_ptr<NextModel>> open(const federated::Settings& settings,
                                                 federated::LayoutPointer layout, Store& store);

  /// Constant; for any thread.
  const Needs& needs() const { return needs_; }
  /// The rule in the state of the last round.
  Status reset(const State& state);
  /// Nothing: the rule has no result for so few good updates. Errors of the disk are not terminal.
  /// All others are: the set of updates is final, so another attempt has the same result.
  Result<std::optional<Made>> make(const Context& ctx, const Round& round,
                                   std::vector<federated::Contribution> contributions, State state);
  /// The model of this digest. kCorrupt, or the disk's error.
  static Result<federated::Weights> read(Store& store, const std::string& hex,
                                         const federated::Layout& layout);

 private:
  NextModel(codec::Json rule, federated::LayoutPointer layout, Store& store)
      : rule_json_(std::move(rule)), layout_(std::move(layout)), store_(store) {}

  const codec::Json rule_json_;
  const federated::LayoutPointer layout_;
  Store& store_;
  Needs needs_;
  std::unique_ptr<federated::Rule> rule_;
  bool rule_usable_ = true;  // false: an aggregation failed halfway
  struct Kept {
    std::string model;  // SHA-256 in hex
    federated::Weights weights;
  };
  std::optional<Kept> last_;  // the model made last, so that the next round need not read it
};

}  // namespace varda::aggregator
