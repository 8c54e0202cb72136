// RoundMachine: the rounds of one federated job, from the first client to the last model. Events
// in, steps out; no clock, no files, no network, no lock.
//
//   RoundMachine machine({.settings = settings, .job = uuid, .model = digest}, now);
//   Step step = machine.joined("node-7", now);        // also left(), accepted(), evaluated(), …
//   if (step.save)      … persist machine.to_json(now) before the next answer to a client;
//   if (step.tasks)     … task_for() has changed for some clients: wake their polls;
//   if (step.aggregate) … make the next model from updates(), persist it, aggregated();
//   … call time_passed() at due();
//
// An update counts once: updates() has at most one for each client. accepted() demands no save,
// because restore() takes the updates that are on the disk.
//
// A round begins again at the deadline if the quorum is missing. It keeps task, model and accepted
// updates, so no work is lost. Other clients fill the places of those that are gone.
//
// Secure aggregation needs a closed set of clients: fix_clients() after their exchange of keys. If
// too many of them leave, repeat_round() gives the round another task, and updates do not count.
#pragma once

#include <chrono>
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
#include "federated/round_record.h"
#include "federated/settings.h"
#include "federated/stop_rule.h"

namespace varda::federated {

struct Task {
  enum class Kind : std::uint8_t { kTrain, kEvaluate, kEnd };
  Kind kind = Kind::kTrain;
  std::string id;
  std::int64_t round = 0;
  std::string model;                   // SHA-256 in hex
  std::optional<SteadyTime> deadline;  // absent for kEnd
};

/// The reaction to an update that a client offers for a task.
enum class Verdict : std::uint8_t {
  kWanted,
  kDuplicate,    // this update of the client counts already
  kSecond,       // another update of the client counts already
  kLate,         // the task's round is over
  kNotChosen,    // the client has no such task
  kRefused,      // an update of the client was refused in this round
  kExcluded,     // refused too often in this job
  kUnknownTask,  // no task of this job
};
std::string_view to_string(Verdict verdict);

/// Demands of the machine on the caller.
struct Step {
  bool save = false;       // the state changed
  bool tasks = false;      // task_for() has more for some client than before
  bool aggregate = false;  // the phase is now kAggregating
  bool finished = false;   // the phase is now kFinished

  Step& operator|=(const Step& other);
};

/// A value, for one thread at a time. Unknown clients and repeated events are harmless. A time
/// before that of an earlier event counts as that time.
class RoundMachine {
 public:
  static constexpr std::int64_t kAttemptsMax = 5;   // without a quorum; then the job fails
  static constexpr std::int64_t kRefusalsMax = 3;   // in a row; then the client is excluded
  static constexpr std::int64_t kFailuresMax = 5;   // of a round's secure sum; then the job fails
  static constexpr std::size_t kHistoryMax = 1000;  // records that the state keeps

  enum class Phase : std::uint8_t {
    kWaiting,      // for minimumClients
    kTraining,     // a round is open
    kAggregating,  // the updates are final
    kEvaluating,   // no round is open; clients evaluate the last model
    kFinished,
  };
  struct Options {
    Settings settings;
    std::string job;               // makes task ids of two jobs differ
    std::string model;             // SHA-256 of the initial model, in hex
    std::int64_t updates_min = 1;  // that the rule needs for a result
    // A round opens at once with so many clients. With fewer, but minimumClients, it waits for
    // further clients for `settle`.
    std::int64_t clients_expected = 0;  // 0: unknown
    Duration settle = std::chrono::seconds(5);
  };
  RoundMachine(const Options& options, SteadyTime now);
  /// An update on the disk, and the round for which it counts.
  struct Stored {
    AcceptedUpdate update;
    std::int64_t round = 0;
  };
  /// A machine in the state of to_json(), with further updates that were accepted after that. Call
  /// time_passed() next. Clients that were present count as present until left(). Settings may
  /// differ from those of the saved machine: they apply from now on. kCorrupt: not a state of this
  /// format.
  static Result<RoundMachine> restore(const Options& options, const codec::Json& state,
                                      const std::vector<Stored>& stored, SteadyTime now);
  codec::Json to_json(SteadyTime now) const;

  /// Settings that apply from now on; the open round keeps its deadline and its clients.
  void use_settings(const Settings& settings) { settings_ = settings; }
  /// The number of clients that may join has changed.
  Step expect_clients(std::int64_t clients, SteadyTime now);
  /// The client is there and may get tasks.
  Step joined(const std::string& client, SteadyTime now);
  /// The client is lost. An open task stays valid, but another client may get it too.
  Step left(const std::string& client, SteadyTime now);

  /// The reaction to an update, before its bytes are read.
  Verdict judge(const std::string& client, std::string_view task, std::string_view digest) const;
  /// The round for which an update counts now, if judge() says kWanted.
  std::int64_t accepting_round() const;
  struct TrainTask {
    std::int64_t round = 0;
    std::string model;  // SHA-256 in hex
    std::int64_t repeat = 0;
  };
  /// Nothing: no training task of this job, or one that is long over.
  std::optional<TrainTask> train_task(std::string_view id) const;
  struct Accepted {
    Verdict verdict = Verdict::kWanted;  // kWanted: the update counts from now on
    Step step;
  };
  /// The update is durable and counts for `round`, unless the round has ended meanwhile.
  Accepted accepted(const AcceptedUpdate& update, std::int64_t round, SteadyTime now);
  /// The content of an update is bad. The client leaves the round, and the job after
  /// kRefusalsMax.
  Step refused(const std::string& client, std::string_view task, const std::string& reason,
               SteadyTime now);
  /// Metrics of the model of an evaluation task. Ignored if that evaluation is over.
  Step evaluated(const std::string& client, std::string_view task, double samples,
                 const Metrics& metrics, SteadyTime now);
  /// The next model is durable. The updates of `quarantined`, clients with the reasons, are not in
  /// it; that counts as refused(). Ignored unless the phase is kAggregating.
  Step aggregated(const std::string& model, const std::map<std::string, std::string>& quarantined,
                  SteadyTime now);
  /// The rule has no result for so few good updates. The round stays open and needs one more.
  Step too_few(SteadyTime now);
  /// Only these of the clients with the task take part in the open round from now on, and no other
  /// client replaces a lost one. A lost client is not waited for if the quorum is there. Ignored
  /// unless a round is open, and after its first update.
  Step fix_clients(const std::set<std::string>& clients, SteadyTime now);
  /// These clients, with the reasons, harmed the exchange of keys. They leave the open round, and
  /// the job after kRefusalsMax. Call before fix_clients() or repeat_round().
  Step refuse_keys(const std::map<std::string, std::string>& clients, SteadyTime now);
  /// The client cannot send an update in the open round, which has fixed clients: its keys are
  /// lost.
  Step withdrew(const std::string& client, SteadyTime now);
  /// kFailed: the secure sum could not end. kRestarted: its state is lost with the process.
  enum class RepeatCause : std::uint8_t { kFailed, kRestarted };
  /// The open round begins again with the same model and another task. Its updates do not count:
  /// the caller removes them from the disk. After kFailuresMax failures of one round the job fails
  /// with the reason SecureAggregationFailed. Ignored unless the phase is kTraining or
  /// kAggregating.
  Step repeat_round(RepeatCause cause, const std::string& why, SteadyTime now);
  /// The present round is the last one. Applies to this object only: call it again after restore().
  void end_after_round(const std::string& reason, const std::string& message);
  /// Ends the job: the rule or the disk failed for good.
  Step fail(const std::string& reason, const std::string& message, SteadyTime now);
  Step time_passed(SteadyTime now);
  /// The next deadline.
  std::optional<SteadyTime> due() const;

  /// The client's task; nothing: the client waits.
  std::optional<Task> task_for(const std::string& client) const;

  /// The id of the task of the round that is open or aggregated.
  std::optional<std::string> open_task() const;
  /// Present clients that have the open task and no update yet.
  std::set<std::string> working() const;

  Phase phase() const { return phase_; }
  std::int64_t round() const { return round_; }  // the open one, or the last
  std::int64_t rounds() const { return settings_.rounds; }
  std::int64_t attempt() const { return attempt_; }
  const std::string& model() const { return models_.rbegin()->second; }  // the latest
  /// The latest model, and the one that clients evaluate.
  std::set<std::string> models_in_use() const;
  /// The update counts in a round that is not over. Other updates may leave the disk.
  bool in_use(const Stored& stored) const;
  /// The updates that count in the open round, or in the one that is aggregated, by client name.
  std::vector<AcceptedUpdate> updates() const;
  /// Completed rounds, oldest first; the last kHistoryMax.
  const std::vector<RoundRecord>& history() const { return history_; }
  /// Clients evaluate a model.
  bool evaluating() const { return evaluation_.has_value(); }
  bool failed() const { return phase_ == Phase::kFinished && failed_; }
  /// Complete, StopMetric, Patience, NoQuorum, TooFewClients, SecureAggregationFailed, or the
  /// reason of fail().
  const std::string& reason() const { return reason_; }
  const std::string& message() const { return message_; }

  enum class ClientState : std::uint8_t {
    kIdle,      // present without a task
    kTraining,  // has the task of the round
    kLost,      // has the task, but left
    kUploaded,  // the update counts
    kRefused,   // the update was refused
    kExcluded,  // from the job
  };
  struct Client {
    std::string name;
    ClientState state = ClientState::kIdle;
    std::string reason;  // of a refusal
  };
  /// All known clients, by name.
  std::vector<Client> clients() const;
  std::size_t present() const { return present_.size(); }
  std::int64_t target() const { return target_; }
  std::int64_t quorum() const;  // updates that close the round at the deadline

 private:
  struct Evaluation {
    struct Answer {
      double samples = 0;
      Metrics metrics;
    };
    std::int64_t round = 0;  // the model is the result of this round
    std::string model;
    SteadyTime began{};     // after a restart, the time of the restart
    SteadyTime deadline{};  // moves forward when most clients have answered
    std::set<std::string> asked;
    std::map<std::string, Answer> answers;
  };
  struct Refusals {
    std::int64_t in_a_row = 0;
    std::string reason;
  };
  struct Parsed {
    Task::Kind kind = Task::Kind::kTrain;
    std::int64_t round = 0;
  };

  bool async() const { return settings_.mode == Mode::kAsync; }
  bool excluded(const std::string& client) const;
  /// Moves the deadline of the evaluation forward if at least half of the clients have answered.
  void hurry_evaluation();
  std::string task_id(Task::Kind kind, std::int64_t round) const;
  std::optional<Parsed> parse_task(std::string_view id) const;
  std::int64_t repeats_of(std::int64_t round) const;
  std::int64_t target_of(std::size_t clients) const;
  std::int64_t updates_of_chosen() const;
  Verdict accept(const AcceptedUpdate& update, std::int64_t round);
  /// Clients of `from` in an order that depends on seed, round and `salt` only.
  std::vector<std::string> ranked(const std::set<std::string>& from, std::string_view salt) const;
  std::set<std::string> available() const;
  void advance(SteadyTime now);
  SteadyTime deadline_from_now() const { return now_ + settings_.round_deadline; }

  enum class Opening : std::uint8_t { kAtOnce, kSettled };
  Step try_open(Opening opening);
  Step fill();
  Step try_close();
  Step restart();
  Step close();
  Step begin_evaluation();
  Step try_end_evaluation(bool at_deadline);
  Step next();
  Step finish(std::string reason, std::string message, bool failed);
  bool is_last_round() const { return round_ >= settings_.rounds || last_round_ == round_; }

  Settings settings_;
  std::string job_;
  std::int64_t updates_min_ = 1, clients_expected_ = 0;
  Duration settle_{};
  SteadyTime now_{};

  Phase phase_ = Phase::kWaiting;
  std::int64_t round_ = 1;
  std::int64_t attempt_ = 1;
  std::int64_t target_ = 0;  // updates that close the round at once
  std::int64_t least_ = 0;   // updates that this round needs after too_few()
  SteadyTime opened_{}, deadline_{};
  std::optional<SteadyTime> settled_;  // waiting, with minimumClients: the round opens then
  std::map<std::int64_t, std::string> models_;  // by the round that trains on them
  std::set<std::string> present_;
  std::map<std::string, bool> chosen_;                     // true: refused in this round
  bool fixed_ = false;                                     // no other client may join the round
  std::map<std::int64_t, std::int64_t> repeats_;           // by round; absent: 0
  std::int64_t failures_ = 0;                              // of the round's secure sum
  std::map<std::string, AcceptedUpdate> current_, early_;  // of this round and the next, by client
  // Digests of updates that counted, by client and `trained_on`, for clients that lost an answer.
  std::map<std::string, std::map<std::int64_t, std::string>> counted_;
  std::map<std::string, Refusals> refusals_;
  std::optional<Evaluation> evaluation_;
  std::vector<RoundRecord> history_;
  StopRule stop_rule_;
  std::int64_t last_round_ = 0;  // 0: settings_.rounds
  std::string last_reason_, last_message_;
  bool failed_ = false;
  std::string reason_, message_;
};

std::string_view to_string(RoundMachine::Phase phase);
std::string_view to_string(RoundMachine::ClientState state);

}  // namespace varda::federated
