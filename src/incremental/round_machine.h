// The rounds of one incremental learning job: train, evaluate, deploy. Pure functions; no clock,
// no Kubernetes, no I/O.
//
//   Advance next = advance(settings, state, observation);
//   if (next.changed) … persist to_json(next.state) in the status, with its resourceVersion;
//   Wanted wanted = wanted_of(settings, PERSISTED state);   // workers and versions of the nodes
//   … call advance() again when something changes, at next.due at the latest.
//
// The wanted state follows from the persisted state only. An operator that dies between the two
// lines therefore repeats the decision or finds it made.
//
// Late, lost and repeated reports change nothing: a report counts only with the round, stage and
// attempt that the state waits for. Each round ends once, as accepted, refused or failed. The
// samples of a failed round count as new again.
//
// Times may step. A stored time in the future counts as `now`, so that a step back delays a wait
// by that wait at most.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "incremental/comparison.h"
#include "incremental/drift.h"
#include "incremental/gate.h"
#include "incremental/settings.h"

namespace varda::incremental {

enum class Stage : std::uint8_t { kTrain, kEval, kDeploy };
enum class Phase : std::uint8_t { kWaiting, kReady, kStarting, kRunning, kCompleted, kFailed };
std::string_view to_string(Stage stage);  // "Train"
std::string_view to_string(Phase phase);  // "Waiting"

/// Reason of the transition that refuses a manual request: no sample is new.
inline constexpr std::string_view kNothingToTrain = "NothingToTrain";
/// Reason of a round that failed because the version before it left the service.
inline constexpr std::string_view kBaseRolledBack = "BaseRolledBack";

enum class Outcome : std::uint8_t { kAccepted, kRefused, kFailed };
std::string_view to_string(Outcome outcome);  // "Accepted"

/// Counters of one server, which only grow while `since` stays. A new `since`, or a lower number,
/// begins a new epoch.
struct Counters {
  std::string since;
  std::int64_t answers = 0, failures = 0;  // a failed request has no answer
  std::int64_t hard = 0;                   // of the answers
  std::int64_t agreed = 0;                 // of a shadow trial: answers equal to those of the base
  // During a trial: answers of the base in the same time. 0: unknown which of them are hard.
  std::int64_t base_answers = 0, base_hard = 0;
  Histogram scores;  // may be empty

  friend bool operator==(const Counters&, const Counters&) = default;
};

// ---- input ----

/// The state of a worker, as its node reports it. State, not an event: it may arrive often.
struct WorkerReport {
  Stage stage = Stage::kTrain;
  std::int64_t round = 0, attempt = 0;
  Phase phase = Phase::kRunning;  // kStarting, kRunning, kCompleted or kFailed
  std::string message;            // of a failure
  bool permanent = false;         // kFailed: further attempts would fail as well
  std::string version;            // kCompleted: the uploaded candidate; empty: the assigned one
  std::string digest;             // of the candidate
  codec::Json comparison;         // kCompleted; null after a training with separate evaluation
  bool nothing_new = false;       // kFailed: earlier rounds have used all samples
};

struct TrialReport {
  std::string version;
  bool failed = false;  // the version does not load
  std::string message;
  Counters counters;
  std::optional<Pair> microseconds;  // base: the serving version
};

struct NodeReport {
  std::string name;
  bool connected = true;
  std::string serving;         // version; empty: none yet
  std::string failed_version;  // a version that this node cannot serve, …
  std::string message;         // … and why
  Counters counters;           // of `serving`
  std::int64_t crashes = 0;    // of the server since it serves `serving`
  std::optional<TrialReport> trial;
};

struct Observation {
  WallTime now{};
  // Files in the Dataset; absent: not counted yet. The machine subtracts used ones.
  std::optional<std::int64_t> samples;
  std::string initial_version;        // serves before the first round; empty: unknown yet
  std::vector<std::string> versions;  // that exist already: a candidate gets a new name
  std::vector<NodeReport> nodes;      // that serve; in the order of a roll-out
  std::vector<WorkerReport> workers;  // any number, also of past rounds
  codec::Json metrics;                // of the served model, by name
  std::string train_request;          // a token that changes with each manual request
  std::string rollback_request;       // the same
  bool suspended = false;             // no new round begins
  bool deploys = true;                // false: no server follows, a version is only published
  std::string blocked;  // why no training may start now ("dataset digits-new is missing")
};

// ---- state ----

struct RoundRecord {
  std::int64_t round = 0;
  Outcome outcome = Outcome::kAccepted;
  bool rolled_back = false;  // a refused round that served before, or was on trial
  std::string reason;        // GatePassed, GainTooSmall, TrialFailed, ErrorRate, TrainFailed, …
  std::string message;
  std::string trigger;  // why the round began
  std::string base, version;
  std::string digest;
  std::int64_t samples = 0;  // selected
  std::int64_t attempts = 0;
  std::optional<double> base_value, value, gain, probability, forgetting;
  WallTime started{}, ended{};

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

struct Transition {
  std::int64_t round = 0;
  Stage stage = Stage::kTrain;
  Phase phase = Phase::kWaiting;
  WallTime at{};
  std::string reason, message;

  friend bool operator==(const Transition&, const Transition&) = default;
};

/// Sums of counters over the epochs of several servers, since a begin.
struct Tally {
  std::map<std::string, Counters> marks;  // by node: the counters at the begin of its epoch
  Counters carried;                       // of epochs that ended; `since` unused

  friend bool operator==(const Tally&, const Tally&) = default;
};

struct ServedVersion {
  std::string version;
  std::int64_t round = 0;  // 0: the initial version
  friend bool operator==(const ServedVersion&, const ServedVersion&) = default;
};

/// All that the machine remembers. The JSON form stays below kStateBytesMax.
struct State {
  Stage stage = Stage::kTrain;
  Phase phase = Phase::kWaiting;
  WallTime since{};     // of the phase
  std::string message;  // why the stage is in this phase, for the status

  // The round; 0 before the first. Between rounds it is the last one.
  std::int64_t round = 0;
  std::int64_t attempt = 0;  // of the stage; the last one that began
  WallTime attempt_since{};
  std::int64_t attempts = 0;  // of all stages of the round
  std::string trigger, base, candidate, digest;
  WallTime started{};
  std::int64_t samples_at_start = 0;   // new ones
  std::int64_t selected = 0;           // by the trainer
  std::optional<GateVerdict> verdict;  // of this round, or of the last one
  std::vector<std::string> rolled;     // nodes that may serve the candidate
  WallTime rolled_at{};                // time of the last of them
  std::optional<Tally> trial;

  // Versions. `previous` has the accepted versions before `serving`, the latest last.
  ServedVersion serving;
  std::vector<ServedVersion> previous;
  WallTime serving_since{};
  std::int64_t last_version = 0;  // highest number that a candidate got

  // Samples.
  std::int64_t used = 0;                        // in consumed rounds
  std::int64_t samples_seen = 0;                // the last count of the Dataset
  std::int64_t settled = 0;                     // as in Assignment
  std::vector<std::int64_t> consumed, refused;  // as in Assignment

  // Limits of starts.
  std::vector<WallTime> starts;   // within 24 hours
  std::optional<WallTime> ended;  // of the last round, or rollback
  std::int64_t failed_in_a_row = 0;
  std::string train_request, rollback_request;  // the last tokens that were handled

  // The version that a round brought, while it may be rolled back automatically.
  bool watched = false;
  Tally live;
  std::int64_t live_windows = 0;            // full ones
  std::optional<double> hard_share_before;  // of the base

  // Measurements of the serving version, for the trigger.
  Tally answers;
  Histogram reference, recent;
  std::optional<double> hard_share;  // of the last full window
  PageHinkley page_hinkley;

  std::vector<RoundRecord> rounds;  // oldest first
  std::vector<Transition> history;  // oldest first

  static constexpr std::size_t kRoundsKept = 16, kTransitionsKept = 24, kVersionsKept = 16;
  static constexpr std::size_t kTallyNodesMax = 32;  // further nodes serve, but are not measured
  static constexpr std::size_t kRolledMax = 64;  // after so many nodes the others follow together
  static constexpr std::size_t kTextMax = 256;   // bytes of each text; longer ones are cut
  friend bool operator==(const State&, const State&) = default;
};
inline constexpr std::size_t kStateBytesMax = 128U << 10U;

codec::Json to_json(const State& state);
/// kCorrupt: not a state of this format. Null, or an empty object, is the first state.
Result<State> parse_state(const codec::Json& json);
codec::Json to_json(const RoundRecord& record);
codec::Json to_json(const Transition& transition);

// ---- output ----

struct Advance {
  State state;
  bool changed = false;                 // state differs from the input
  std::optional<WallTime> due;          // call advance() again then
  std::vector<Transition> transitions;  // of this call, in order
  std::optional<RoundRecord> ended;     // the round that this call ended
  std::string rolled_back;              // the version that this call removed from service
};
Advance advance(const Settings& settings, const State& state, const Observation& observation);

/// The worker that should run.
struct Assignment {
  Stage stage = Stage::kTrain;
  std::int64_t round = 0, attempt = 0;
  std::string base;     // version to start from, and to compare with
  std::string version;  // name of the candidate
  // The ledger: rounds up to `settled` are final there. Of later ones the `consumed` count, and
  // the trainer drops the others. Samples of `refused` rounds are never replayed.
  std::int64_t settled = 0;
  std::vector<std::int64_t> consumed, refused;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};
codec::Json to_json(const Assignment& assignment);

struct Wanted {
  std::optional<Assignment> worker;  // absent: no worker runs
  std::string serving;               // version of all nodes, except …
  std::string rollout;               // … that `rolled` nodes serve this one; empty: none
  std::vector<std::string> rolled;
  struct OnTrial {
    std::string version;
    Trial::Mode mode = Trial::Mode::kShadow;
    double share = 1;
    friend bool operator==(const OnTrial&, const OnTrial&) = default;
  };
  std::optional<OnTrial> trial;  // beside `serving`, on the first node

  /// The version that a node should serve.
  const std::string& version_for(std::string_view node) const;
  friend bool operator==(const Wanted&, const Wanted&) = default;
};
Wanted wanted_of(const Settings& settings, const State& state);

/// True: a candidate is on trial, or nodes may serve it. A rollback request then stops the
/// candidate, and otherwise the serving version.
bool candidate_serves(const State& state);

/// New samples, or nothing if they are not counted yet.
std::optional<std::int64_t> new_samples(const State& state, const Observation& observation);

}  // namespace varda::incremental
