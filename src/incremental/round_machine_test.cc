#include "incremental/round_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::incremental {
namespace {
namespace round_machine_test {

using codec::Json;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json comparison(std::int64_t samples, bool good = true) {
  return to_json(Comparison{.selected = Selected{.train = samples, .evaluate = 0},
                            .slices = {Slice{.name = "frozen",
                                             .samples = 100,
                                             .base_right = 60,
                                             .candidate_right = good ? 80 : 50,
                                             .only_base = good ? 0 : 10,
                                             .only_candidate = good ? 20 : 0}},
                            .base_metrics = Json::object(),
                            .candidate_metrics = Json::object()});
}

/// One job with an operator that always sees the present.
class Job {
 public:
  Job() {
    settings.trigger.rule.samples = 10;
    observation.now = WallTime(hours(24 * 365 * 50));
    observation.initial_version = "1";
    observation.samples = 0;
    observation.nodes = {NodeReport{.name = "edge0", .serving = "1"},
                         NodeReport{.name = "edge1", .serving = "1"}};
  }

  Advance step(milliseconds time = seconds(1)) {
    observation.now += time;
    Advance out = advance(settings, state, observation);
    EXPECT_EQ(out.changed, out.state != state);
    state = out.state;
    const auto parsed = parse_state(codec::parse_json(codec::write_json(to_json(state))).value());
    EXPECT_TRUE(parsed.ok() && *parsed == state) << codec::write_json(to_json(state));
    return out;
  }

  Wanted wanted() const { return wanted_of(settings, state); }
  std::string phase() const {
    return std::string(to_string(state.stage)) + "/" + std::string(to_string(state.phase));
  }
  WorkerReport report(Phase phase) const {
    return {.stage = state.stage, .round = state.round, .attempt = state.attempt, .phase = phase};
  }
  void complete(std::int64_t samples = 10, bool good = true) {
    WorkerReport done = report(Phase::kCompleted);
    done.comparison = comparison(samples, good);
    observation.workers = {done};
    step();
  }
  void fail(bool permanent = false) {
    WorkerReport failed = report(Phase::kFailed);
    failed.message = "out of memory";
    failed.permanent = permanent;
    observation.workers = {failed};
    step();
  }
  NodeReport& node(std::size_t index) { return observation.nodes[index]; }
  /// Nodes load the versions that they should serve.
  void follow() {
    const Wanted now = wanted();
    for (NodeReport& node : observation.nodes) {
      if (node.serving == now.version_for(node.name)) continue;
      node.serving = now.version_for(node.name);
      node.counters = {};
    }
  }
  void start() {
    observation.samples = state.used + 10;
    step();
    ASSERT_EQ(phase(), "Train/Starting");
  }
  void accept() {
    start();
    complete();
    for (int i = 0; i < 4; ++i) {
      follow();
      step();
    }
    ASSERT_EQ(state.rounds.back().outcome, Outcome::kAccepted);
  }

  Settings settings;
  State state;
  Observation observation;
};

TEST(LearningRound, WaitsForTheInitialVersion) {
  Job job;
  job.observation.initial_version.clear();
  job.observation.samples = 100;
  job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  EXPECT_EQ(job.state.message, "the initial version is not known yet");
  EXPECT_FALSE(job.wanted().worker);
}

TEST(LearningRound, WaitsForTheTriggerAndSaysWhy) {
  Job job;
  job.observation.samples = 9;
  const Advance next = job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  EXPECT_EQ(job.state.message, "9 of 10 new samples");
  EXPECT_EQ(next.due, job.observation.now + seconds(60));
  EXPECT_EQ(job.wanted().serving, "1");
  // Nothing changed: nothing to write.
  EXPECT_FALSE(job.step().changed);
}

TEST(LearningRound, GoesFromTriggerToAllNodesOneAfterAnother) {
  Job job;
  job.start();
  EXPECT_EQ(job.state.trigger, "10 of 10 new samples");
  const auto worker = job.wanted().worker;
  ASSERT_TRUE(worker);
  EXPECT_EQ(*worker, (Assignment{.stage = Stage::kTrain,
                                 .round = 1,
                                 .attempt = 1,
                                 .base = "1",
                                 .version = "2",
                                 .settled = 0,
                                 .consumed = {},
                                 .refused = {}}));
  job.observation.workers = {job.report(Phase::kRunning)};
  job.step();
  EXPECT_EQ(job.phase(), "Train/Running");
  job.complete();
  EXPECT_EQ(job.phase(), "Deploy/Running");
  EXPECT_FALSE(job.wanted().worker);
  EXPECT_EQ(job.wanted().version_for("edge0"), "2");
  EXPECT_EQ(job.wanted().version_for("edge1"), "1");
  job.step();
  EXPECT_EQ(job.state.message, "waits for node edge0 to serve 2");
  job.follow();
  job.step();
  EXPECT_EQ(job.wanted().version_for("edge1"), "2");
  job.follow();
  const Advance last = job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  ASSERT_TRUE(last.ended);
  EXPECT_EQ(last.ended->outcome, Outcome::kAccepted);
  EXPECT_EQ(last.ended->samples, 10);
  EXPECT_NEAR(*last.ended->gain, 0.2, 1e-9);
  EXPECT_EQ(job.wanted().serving, "2");
  EXPECT_EQ(new_samples(job.state, job.observation), 0);
}

TEST(LearningRound, RefusedCandidateConsumesItsSamplesAndIsNeverReplayed) {
  Job job;
  job.start();
  job.complete(10, false);
  EXPECT_EQ(job.phase(), "Train/Waiting");
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kRefused);
  EXPECT_EQ(job.state.rounds.back().reason, "GainTooSmall");
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_EQ(new_samples(job.state, job.observation), 0);
  job.start();
  EXPECT_THAT(job.wanted().worker->consumed, ElementsAre(1));
  EXPECT_THAT(job.wanted().worker->refused, ElementsAre(1));
  job.complete();
  // The trainer has read the lists.
  EXPECT_EQ(job.state.settled, 1);
  EXPECT_THAT(job.state.refused, IsEmpty());
}

TEST(LearningRound, FailedRoundGivesItsSamplesBack) {
  Job job;
  job.settings.retry = {.attempts = 2, .backoff = seconds(10)};
  job.start();
  job.fail();
  EXPECT_EQ(job.phase(), "Train/Ready");
  EXPECT_THAT(job.state.message, HasSubstr("attempt 1 failed: out of memory"));
  EXPECT_FALSE(job.wanted().worker);
  job.step(seconds(8));
  EXPECT_EQ(job.phase(), "Train/Ready");
  job.step(seconds(2));
  EXPECT_EQ(job.wanted().worker->attempt, 2);
  EXPECT_EQ(job.wanted().worker->version, "3") << "each attempt has a version of its own";
  job.fail();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kFailed);
  EXPECT_EQ(job.state.rounds.back().reason, "TrainFailed");
  EXPECT_EQ(new_samples(job.state, job.observation), 10);
  // The next round waits, so that a broken trainer does not run all the time.
  job.step(seconds(5));
  EXPECT_EQ(job.phase(), "Train/Waiting");
  EXPECT_THAT(job.state.message, HasSubstr("the last round failed"));
  job.step(seconds(10));
  EXPECT_EQ(job.phase(), "Train/Starting");
  EXPECT_THAT(job.wanted().worker->consumed, IsEmpty());
}

TEST(LearningRound, PermanentFailureNeedsNoFurtherAttempt) {
  Job job;
  job.start();
  job.fail(true);
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kFailed);
  EXPECT_EQ(job.state.rounds.back().attempts, 1);
}

TEST(LearningRound, ReportsOfOtherAttemptsRoundsAndStagesChangeNothing) {
  Job job;
  job.start();
  const State before = job.state;
  const WorkerReport right = job.report(Phase::kCompleted);
  for (const int wrong : {0, 1, 2, 3}) {
    WorkerReport late = right;
    late.comparison = comparison(10);
    if (wrong == 0) late.round = 0;
    if (wrong == 1) late.round = 2;
    if (wrong == 2) late.attempt = 2;
    if (wrong == 3) late.stage = Stage::kEval;
    job.observation.workers = {late};
    EXPECT_FALSE(job.step().changed) << wrong;
    EXPECT_EQ(job.state, before);
  }
}

TEST(LearningRound, RepeatedReportCompletesTheRoundOnce) {
  Job job;
  job.accept();
  const State after = job.state;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(job.step().ended);
  EXPECT_EQ(job.state.rounds.size(), 1U);
  EXPECT_EQ(job.state.used, after.used);
}

TEST(LearningRound, NodeThatIsCutOffForADayFinishesItsAttempt) {
  Job job;
  job.start();
  job.step(hours(26));
  EXPECT_EQ(job.phase(), "Train/Starting");
  job.complete();
  EXPECT_EQ(job.state.stage, Stage::kDeploy);
}

TEST(LearningRound, AttemptWithADeadlineStartsAgain) {
  Job job;
  job.settings.retry.deadline = minutes(10);
  job.start();
  EXPECT_EQ(job.step(seconds(1)).due, job.state.attempt_since + minutes(10));
  job.step(minutes(11));
  EXPECT_EQ(job.phase(), "Train/Ready");
  job.step(minutes(1));
  EXPECT_EQ(job.wanted().worker->attempt, 2);
}

TEST(LearningRound, BadComparisonIsAFailedAttempt) {
  Job job;
  job.start();
  WorkerReport done = job.report(Phase::kCompleted);
  done.comparison = Json::object({{"slices", 1}});
  job.observation.workers = {done};
  job.step();
  EXPECT_EQ(job.phase(), "Train/Ready");
  EXPECT_THAT(job.state.message, HasSubstr("bad comparison: slices must be a list"));
}

TEST(LearningRound, SeparateEvaluationHasItsOwnWorkerAndAttempts) {
  Job job;
  job.settings.separate_evaluation = true;
  job.start();
  WorkerReport trained = job.report(Phase::kCompleted);
  trained.version = "9";
  job.observation.workers = {trained};
  job.step();
  EXPECT_EQ(job.phase(), "Eval/Starting");
  EXPECT_EQ(job.wanted().worker->attempt, 1);
  EXPECT_EQ(job.wanted().worker->version, "9") << "the worker named the version";
  job.fail();
  EXPECT_EQ(job.phase(), "Eval/Ready");
  job.step(minutes(1));
  WorkerReport evaluated = job.report(Phase::kCompleted);
  evaluated.comparison = Json::object({{"accuracy", Json::array({0.9, 0.8})}});
  job.observation.workers = {evaluated};
  job.step();
  EXPECT_EQ(job.phase(), "Deploy/Running");
  EXPECT_EQ(job.state.selected, 10) << "without a selection all new samples count as used";
  EXPECT_EQ(job.wanted().rollout, "9");
}

TEST(LearningRound, CandidateWithTheNameOfAServingVersionFails) {
  Job job;
  job.start();
  WorkerReport done = job.report(Phase::kCompleted);
  done.comparison = comparison(10);
  done.version = "1";
  job.observation.workers = {done};
  job.step();
  EXPECT_EQ(job.phase(), "Train/Ready");
}

TEST(LearningRound, ManualRequestStartsOnceAndSkipsLimits) {
  Job job;
  job.settings.trigger.manual = true;
  job.settings.trigger.cooldown = hours(5);
  job.observation.samples = 3;
  job.step();
  EXPECT_EQ(job.state.message, "waits for a manual request");
  job.observation.train_request = "2026-11-28T10:00:00Z";
  job.step();
  EXPECT_EQ(job.phase(), "Train/Starting");
  EXPECT_EQ(job.state.trigger, "manual request");
  job.complete(3, false);
  EXPECT_EQ(job.phase(), "Train/Waiting");
  job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  job.observation.samples = 4;
  job.observation.train_request = "2026-11-28T10:00:05Z";
  job.step();
  EXPECT_EQ(job.state.round, 2);
}

TEST(LearningRound, ManualRequestWithoutNewSamplesUsesNoNumber) {
  Job job;
  job.accept();
  job.step();
  const std::int64_t round = job.state.round;
  for (const char* request : {"1", "2"}) {
    job.observation.train_request = request;
    const Advance next = job.step();
    ASSERT_EQ(next.transitions.size(), 1U);
    EXPECT_EQ(next.transitions.front().reason, kNothingToTrain);
    EXPECT_EQ(next.transitions.front().message,
              "nothing to train on: earlier rounds have used all 10 samples of the Dataset");
    EXPECT_EQ(job.state.round, round);
    EXPECT_EQ(job.phase(), "Train/Waiting");
    EXPECT_TRUE(job.step().transitions.empty()) << "a request is answered once";
  }
  EXPECT_EQ(std::count_if(job.state.history.begin(), job.state.history.end(),
                          [](const Transition& one) { return one.reason == kNothingToTrain; }),
            1)
      << "requests must not displace the transitions of rounds";
  job.settings.trigger.minimum_samples = 0;
  job.observation.train_request = "3";
  job.step();
  EXPECT_EQ(job.state.round, round + 1) << "the spec asks for rounds without new samples";
}

TEST(LearningRound, ManualRequestWaitsForTheCount) {
  Job job;
  job.observation.samples.reset();
  job.observation.train_request = "1";
  job.step();
  EXPECT_EQ(job.state.message, "the manual request waits until the samples are counted");
  job.observation.samples = 3;
  job.step();
  EXPECT_EQ(job.state.round, 1);
}

TEST(LearningRound, CooldownAndQuotaLimitAutomaticStarts) {
  Job job;
  job.settings.trigger.cooldown = hours(1);
  job.settings.trigger.quota_per_day = 2;
  job.start();
  job.complete(10, false);
  job.observation.samples = 20;
  const Advance cooling = job.step();
  EXPECT_THAT(job.state.message, HasSubstr("cool-down"));
  EXPECT_EQ(job.phase(), "Train/Waiting");
  EXPECT_TRUE(cooling.due && *cooling.due <= job.observation.now + seconds(60));
  job.step(hours(1));
  EXPECT_EQ(job.state.round, 2);
  job.complete(10, false);
  job.observation.samples = 30;
  job.step(hours(2));
  EXPECT_THAT(job.state.message, HasSubstr("quota"));
  job.step(hours(22));
  EXPECT_EQ(job.state.round, 3);
}

TEST(LearningRound, ClockThatStepsBackDelaysNoLongerThanTheWait) {
  Job job;
  job.settings.trigger.cooldown = hours(1);
  job.observation.now += hours(24 * 365);
  job.start();
  job.complete(10, false);
  job.observation.samples = 20;
  job.step(-hours(24 * 365));
  EXPECT_EQ(job.phase(), "Train/Waiting");
  job.step(hours(1));
  EXPECT_EQ(job.state.round, 2);
}

TEST(LearningRound, RemovedFilesDoNotStopTheCount) {
  Job job;
  job.accept();
  job.observation.samples = 0;  // a user cleans the folder
  job.step();
  job.observation.samples = 10;
  job.step();
  EXPECT_EQ(job.state.round, 2);
}

TEST(LearningRound, AbsentDiskStartsOneRoundAtMost) {
  Job job;
  job.accept();
  const std::int64_t all = job.state.used;
  ASSERT_GE(all, 10);
  job.observation.samples = 0;
  job.step();
  job.observation.samples = all;
  job.step();
  ASSERT_EQ(job.phase(), "Train/Starting") << "the count alone shows no difference";
  job.observation.samples = all + 3;  // while the trainer reads
  WorkerReport failed = job.report(Phase::kFailed);
  failed.permanent = true;
  failed.nothing_new = true;
  job.observation.workers = {failed};
  job.step();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kFailed);
  EXPECT_EQ(new_samples(job.state, job.observation), 3);
  const std::int64_t round = job.state.round;
  for (int i = 0; i < 10; ++i) job.step(hours(1));
  EXPECT_EQ(job.state.round, round);
}

TEST(LearningRound, CountThatArrivesLateIsNoNewSample) {
  Job job;
  job.start();
  job.complete(13, false);  // three more files arrived before the selection
  EXPECT_EQ(job.state.used, 13);
  job.step();
  EXPECT_EQ(new_samples(job.state, job.observation), 0);
  job.observation.samples = 13;
  job.step();
  EXPECT_EQ(new_samples(job.state, job.observation), 0);
}

TEST(LearningRound, ShareOfHardExamplesFiresOnceInAWindow) {
  Job job;
  job.settings.trigger.rule = Rule{.hard_share = 0.5};
  job.settings.trigger.window = 100;
  job.observation.samples = 5;
  job.step();
  job.node(0).counters = {.since = "a", .answers = 60, .hard = 40};
  job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  job.node(1).counters = {.since = "b", .answers = 60, .hard = 40};
  job.step();
  EXPECT_EQ(job.state.round, 1);
  EXPECT_EQ(job.state.trigger, "66.67 % of answers are hard, and the limit is 50 %");
  job.complete(0, false);
  job.step();
  EXPECT_EQ(job.state.round, 1) << "the next decision needs further answers";
}

TEST(LearningRound, ServerRestartLosesAPartOfTheWindowAtMost) {
  Job job;
  job.settings.trigger.rule = Rule{.hard_share = 0.5};
  job.settings.trigger.window = 80;
  job.observation.samples = 5;
  job.node(0).counters = {.since = "a", .answers = 70, .hard = 70};
  job.step();
  job.node(0).counters = {.since = "b", .answers = 10, .hard = 10};
  job.step();
  EXPECT_EQ(job.state.round, 1);
}

TEST(LearningRound, DriftOfScoresFires) {
  Job job;
  job.settings.trigger.rule = Rule{.drift = DriftRule{}};
  job.settings.trigger.window = 100;
  job.observation.samples = 5;
  job.node(0).counters = {.since = "a", .answers = 100, .scores = {0, 0, 10, 90}};
  job.step();
  EXPECT_EQ(job.state.reference, (Histogram{0, 0, 10, 90}));
  job.node(0).counters = {.since = "a", .answers = 200, .scores = {0, 0, 20, 180}};
  job.step();
  EXPECT_EQ(job.phase(), "Train/Waiting");
  job.node(0).counters = {.since = "a", .answers = 300, .scores = {40, 40, 30, 190}};
  job.step();
  EXPECT_EQ(job.state.round, 1);
  EXPECT_THAT(job.state.trigger, HasSubstr("stability index"));
}

TEST(LearningTrial, PassesAfterEnoughAnswersOnTheFirstNode) {
  Job job;
  job.settings.trial = Trial{.mode = Trial::Mode::kCanary, .share = 0.1, .answers = 100};
  job.start();
  job.complete();
  EXPECT_EQ(job.phase(), "Deploy/Starting");
  EXPECT_EQ(job.wanted().trial, (Wanted::OnTrial{"2", Trial::Mode::kCanary, 0.1}));
  EXPECT_EQ(job.wanted().version_for("edge0"), "1");
  job.node(0).trial = TrialReport{.version = "2", .counters = {.since = "a", .answers = 50}};
  job.step();
  EXPECT_EQ(job.phase(), "Deploy/Running");
  job.node(0).trial->counters.answers = 100;
  job.step();
  EXPECT_FALSE(job.wanted().trial);
  EXPECT_EQ(job.wanted().rollout, "2");
}

TEST(LearningTrial, FailsEarlyWithErrors) {
  Job job;
  job.settings.trial = Trial{.answers = 1000};
  job.start();
  job.complete();
  job.node(0).trial =
      TrialReport{.version = "2", .counters = {.since = "a", .answers = 10, .failures = 3}};
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.state.rounds.back().reason, "TrialFailed");
  EXPECT_TRUE(job.state.rounds.back().rolled_back);
  EXPECT_EQ(job.state.rounds.back().message, "3 of 13 requests failed, and the limit is 5 %");
  EXPECT_FALSE(job.wanted().trial);
}

TEST(LearningTrial, ReportOfAnotherVersionChangesNothing) {
  Job job;
  job.settings.trial = Trial{.answers = 10};
  job.start();
  job.complete();
  job.node(0).trial = TrialReport{.version = "1", .failed = true, .counters = {.failures = 99}};
  job.step();
  EXPECT_EQ(job.phase(), "Deploy/Starting");
}

TEST(LearningTrial, ShadowThatDisagreesIsRefused) {
  Job job;
  job.settings.trial = Trial{.answers = 100, .agreement_min = 0.9};
  job.start();
  job.complete();
  job.node(0).trial =
      TrialReport{.version = "2", .counters = {.since = "a", .answers = 100, .agreed = 80}};
  job.step();
  EXPECT_EQ(job.state.rounds.back().message,
            "only 80 % of the answers agree, and the least is 90 %");
}

TEST(LearningTrial, SlowCandidateIsRefused) {
  Job job;
  job.settings.trial = Trial{.answers = 100, .latency_factor_max = 1.5};
  job.start();
  job.complete();
  job.node(0).trial = TrialReport{.version = "2",
                                  .counters = {.since = "a", .answers = 100},
                                  .microseconds = Pair{.base = 100, .candidate = 200}};
  job.step();
  EXPECT_EQ(job.state.rounds.back().message,
            "an answer takes 2 times as long, and the limit is 1.5");
}

TEST(LearningTrial, MoreHardAnswersThanThoseOfTheBaseAreRefused) {
  Job job;
  job.settings.trial = Trial{.mode = Trial::Mode::kCanary, .share = 0.5, .answers = 100};
  job.settings.rollback.hard_share_rise = 0.3;
  job.start();
  job.complete();
  job.node(0).trial = TrialReport{
      .version = "2",
      .counters = {.since = "a", .answers = 100, .hard = 60, .base_answers = 100, .base_hard = 20}};
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.state.rounds.back().reason, "TrialFailed");
  EXPECT_EQ(job.state.rounds.back().message,
            "60 % of the answers are hard, and 20 % of those of version 1");
}

TEST(LearningTrial, HardRequestsOfTheSameTimeAreNoFaultOfTheCandidate) {
  Job job;
  job.settings.trial = Trial{.answers = 100};
  job.settings.rollback.hard_share_rise = 0.3;
  for (NodeReport& node : job.observation.nodes)
    node.counters = {.since = "a", .answers = 100, .hard = 0};
  job.start();
  job.complete();
  job.node(0).trial = TrialReport{
      .version = "2",
      .counters = {.since = "a", .answers = 100, .hard = 60, .base_answers = 100, .base_hard = 40}};
  job.step();
  EXPECT_EQ(job.wanted().rollout, "2");
}

TEST(LearningTrial, CanaryOfAllRequestsIsComparedWithThoseBefore) {
  Job job;
  job.settings.trial = Trial{.mode = Trial::Mode::kCanary, .share = 1, .answers = 100};
  job.settings.rollback.hard_share_rise = 0.3;
  for (NodeReport& node : job.observation.nodes)
    node.counters = {.since = "a", .answers = 100, .hard = 10};
  job.start();
  job.complete();
  job.node(0).trial =
      TrialReport{.version = "2", .counters = {.since = "a", .answers = 100, .hard = 50}};
  job.step();
  EXPECT_EQ(job.state.rounds.back().message,
            "50 % of the answers are hard, and 10 % of those of version 1");
}

TEST(LearningTrial, UserMayRemoveATrialThatRuns) {
  Job job;
  job.settings.trial = Trial{.answers = 100};
  job.start();
  job.complete();
  job.settings.trial.reset();
  job.step();
  EXPECT_EQ(job.wanted().rollout, "2");
}

TEST(LearningRollout, VersionThatDoesNotLoadGoesBack) {
  Job job;
  job.start();
  job.complete();
  job.node(0).failed_version = "2";
  job.node(0).message = "unknown operator Foo";
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.state.rounds.back().reason, "LoadFailed");
  EXPECT_EQ(job.wanted().version_for("edge0"), "1");
}

TEST(LearningRollout, NodeWithoutALinkDoesNotHoldOthersUp) {
  Job job;
  job.node(1).connected = false;
  job.start();
  job.complete();
  job.follow();
  job.step();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
  EXPECT_EQ(job.wanted().version_for("edge1"), "2");
}

TEST(LearningRollout, NodeThatServesNothingComesLastAndIsAwaitedForAWhile) {
  Job job;
  job.node(0).serving.clear();
  job.start();
  job.complete();
  EXPECT_THAT(job.state.rolled, ElementsAre("edge1"));
  job.node(1).serving = "2";
  job.step();
  EXPECT_THAT(job.state.rolled, ElementsAre("edge1", "edge0"));
  const Advance waiting = job.step();
  EXPECT_EQ(job.state.message, "waits for node edge0 to serve 2");
  ASSERT_TRUE(waiting.due);
  EXPECT_LE(*waiting.due, job.state.rolled_at + minutes(10));
  job.step(minutes(10));
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
  EXPECT_EQ(job.wanted().version_for("edge0"), "2");
}

TEST(LearningRollout, ServerThatNeverStartsDoesNotHoldOthersUp) {
  Job job;
  job.start();
  job.complete();
  job.node(0).serving.clear();
  job.step(minutes(5));
  EXPECT_THAT(job.state.rolled, ElementsAre("edge0"));
  job.step(minutes(5));
  EXPECT_THAT(job.state.rolled, ElementsAre("edge0", "edge1"));
  job.node(1).serving = "2";
  job.step();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
}

TEST(LearningRollout, VersionThatNoServerStartsIsNotAccepted) {
  Job job;
  for (NodeReport& node : job.observation.nodes) node.serving.clear();
  job.start();
  job.complete();
  for (int i = 0; i < 5; ++i) job.step(hours(1));
  EXPECT_EQ(job.phase(), "Deploy/Running");
  EXPECT_EQ(job.state.message, "waits for a connected node that serves the model");
}

TEST(LearningRollout, OnlyNodeWithoutALinkIsAwaited) {
  Job job;
  job.observation.nodes.resize(1);
  job.start();
  job.complete();
  job.node(0).connected = false;
  job.step(hours(25));
  EXPECT_EQ(job.state.message, "waits for a connected node that serves the model");
  job.node(0).connected = true;
  job.follow();
  job.step();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
}

TEST(LearningRollout, WaitsForItsWindowAndPausesBetweenNodes) {
  Job job;
  job.settings.deploy_timer = TimeWindow{.start = hours(2), .end = hours(3)};
  job.settings.rollout.pause = minutes(5);
  job.start();
  job.complete();
  EXPECT_EQ(job.phase(), "Deploy/Ready");
  EXPECT_EQ(job.state.message, "the window 02:00 to 03:00 UTC is closed");
  const WallTime opens = job.settings.deploy_timer->opens(job.observation.now);
  EXPECT_EQ(job.step().due, opens);
  job.observation.now = opens;
  job.step();
  job.follow();
  const Advance pausing = job.step();
  EXPECT_EQ(job.state.message, "pauses before node edge1");
  EXPECT_EQ(pausing.due, job.state.rolled_at + minutes(5));
  job.step(minutes(5));
  EXPECT_EQ(job.wanted().version_for("edge1"), "2");
}

TEST(LearningRollout, ManyNodesFollowTogetherInTheEnd) {
  Job job;
  job.observation.nodes.clear();
  for (int i = 0; i < 300; ++i)
    job.observation.nodes.push_back({.name = "edge" + std::to_string(i), .serving = "1"});
  job.start();
  job.complete();
  for (int i = 0; i < 70; ++i) {
    job.follow();
    job.step();
  }
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
  EXPECT_EQ(job.wanted().version_for("edge299"), "2");
}

TEST(LearningRollout, VersionWithoutServersIsPublished) {
  Job job;
  job.observation.deploys = false;
  job.observation.nodes.clear();
  job.start();
  job.complete();
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kAccepted);
}

TEST(LearningRollback, ErrorsOfTheNewVersionReturnToTheOneBefore) {
  Job job;
  job.accept();
  job.node(0).counters = {.since = "a", .answers = 5, .failures = 3};
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.wanted().serving, "1");
  const RoundRecord& round = job.state.rounds.back();
  EXPECT_EQ(round.outcome, Outcome::kRefused);
  EXPECT_TRUE(round.rolled_back);
  EXPECT_EQ(round.reason, "ErrorRate");
  EXPECT_EQ(round.message, "version 1 serves again: 3 of 8 requests failed, and the limit is 5 %");
  EXPECT_THAT(job.state.refused, ElementsAre(1));
  EXPECT_EQ(new_samples(job.state, job.observation), 0);
  // The old version is not judged by the counters of the new one.
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
}

TEST(LearningRollback, WatchesWindowsOfAnswers) {
  Job job;
  job.accept();
  job.node(0).counters = {.since = "a", .answers = 10'000, .failures = 100};
  job.step();
  EXPECT_EQ(job.wanted().serving, "2");
  job.node(0).counters = {.since = "a", .answers = 10'002, .failures = 103};
  job.step();
  EXPECT_EQ(job.wanted().serving, "1") << "good answers of the past do not hide errors";
}

TEST(LearningRollback, ShareOfHardExamplesAboveThatOfTheBaseReturns) {
  Job job;
  job.settings.rollback.hard_share_rise = 0.3;
  for (NodeReport& node : job.observation.nodes)
    node.counters = {.since = "a", .answers = 100, .hard = 10};
  job.accept();
  job.node(0).counters = {.since = "b", .answers = 60, .hard = 20};
  job.step();
  EXPECT_EQ(job.wanted().serving, "2");
  job.node(0).counters = {.since = "b", .answers = 120, .hard = 60};
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_EQ(job.state.rounds.back().reason, "HardShare");
}

TEST(LearningRollback, LiveMetricReturns) {
  Job job;
  job.settings.rollback.condition = Condition{"accuracy", Operator::kLess, 0.8};
  job.accept();
  job.observation.metrics = Json::object({{"accuracy", 0.5}});
  job.step();
  EXPECT_EQ(job.wanted().serving, "2") << "the metric may still be that of the base";
  job.node(0).counters = {.since = "a", .answers = 50};
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_EQ(job.state.rounds.back().reason, "LiveMetric");
}

TEST(LearningRollback, CrashesReturn) {
  Job job;
  job.accept();
  job.node(1).crashes = 3;
  job.step();
  EXPECT_EQ(job.state.rounds.back().reason, "Crashes");
}

TEST(LearningRollback, EndsWithTheProbation) {
  Job job;
  job.settings.rollback.probation = hours(1);
  job.accept();
  job.step(hours(2));
  job.node(0).counters = {.since = "a", .failures = 1000};
  job.step();
  EXPECT_EQ(job.wanted().serving, "2");
}

TEST(LearningRollback, UserReturnsOneVersionWithEachRequest) {
  Job job;
  job.accept();
  job.accept();
  EXPECT_EQ(job.wanted().serving, "3");
  job.observation.rollback_request = "a";
  job.step();
  job.follow();
  job.step();
  EXPECT_EQ(job.wanted().serving, "2");
  job.observation.rollback_request = "b";
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
  job.follow();
  job.observation.rollback_request = "c";
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_THAT(job.state.history.back().message, HasSubstr("there is no version before 1"));
}

TEST(LearningRollback, UserStopsARollOut) {
  Job job;
  job.start();
  job.complete();
  job.observation.rollback_request = "a";
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.state.rounds.back().reason, "ManualRollback");
  EXPECT_EQ(job.wanted().version_for("edge0"), "1");
}

TEST(LearningRollback, CandidateThatWaitsForItsWindowIsNotMeant) {
  Job job;
  job.accept();
  job.settings.deploy_timer = TimeWindow{.start = hours(2), .end = hours(3)};
  job.start();
  job.complete();
  ASSERT_EQ(job.phase(), "Deploy/Ready");
  EXPECT_FALSE(candidate_serves(job.state));
  job.observation.rollback_request = "a";
  const Advance next = job.step();
  EXPECT_EQ(next.rolled_back, "2");
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_EQ(job.state.rounds.front().reason, "ManualRollback");
  EXPECT_EQ(job.state.rounds.back().reason, "BaseRolledBack");
}

TEST(LearningRollback, RequestStopsACandidateOnTrial) {
  Job job;
  job.accept();
  job.settings.trial = Trial{.answers = 100};
  job.start();
  job.complete();
  EXPECT_TRUE(candidate_serves(job.state));
  job.observation.rollback_request = "a";
  EXPECT_EQ(job.step().rolled_back, "3");
  EXPECT_EQ(job.wanted().serving, "2");
}

TEST(LearningRollback, RoundOfABaseThatWentBackFails) {
  Job job;
  job.accept();
  job.start();
  job.node(0).counters = {.since = "a", .failures = 10};
  job.step();
  EXPECT_EQ(job.wanted().serving, "1");
  EXPECT_EQ(job.state.rounds.back().reason, "BaseRolledBack");
  EXPECT_EQ(job.state.rounds.back().outcome, Outcome::kFailed);
  EXPECT_EQ(new_samples(job.state, job.observation), 10);
}

TEST(LearningState, StaysSmallWithLongTexts) {
  Job job;
  job.settings.trigger.rule = Rule{.samples = 1, .drift = {}, .timer = {}, .any = {}, .all = {}};
  job.settings.trigger.rule.any = {Rule{.hard_share = 1}, Rule{.samples = 1}};
  job.settings.retry.attempts = 1;
  job.settings.retry.backoff = milliseconds(0);
  const std::string longest(5000, '"');
  job.observation.nodes.clear();
  for (int i = 0; i < 100; ++i)
    job.observation.nodes.push_back(
        {.name = std::string(240, 'n') + std::to_string(i),
         .serving = "1",
         .counters = {.since = longest,
                      .answers = 1'000'000'000'000,
                      .scores = Histogram(kBinsMax, 1'000'000'000'000)}});
  for (int i = 0; i < 40; ++i) {
    job.observation.train_request = longest + std::to_string(i);
    job.observation.samples = job.state.used + 10;
    job.step(hours(1));
    WorkerReport failed = job.report(Phase::kFailed);
    failed.message = longest;
    job.observation.workers = {failed};
    job.step();
  }
  EXPECT_EQ(job.state.rounds.size(), State::kRoundsKept);
  EXPECT_EQ(job.state.history.size(), State::kTransitionsKept);
  EXPECT_LT(codec::write_json(to_json(job.state)).size(), kStateBytesMax);
}

TEST(LearningState, DamagedStatesAreRefused) {
  EXPECT_EQ(parse_state(Json()).value(), State{});
  EXPECT_EQ(parse_state(Json::object()).value(), State{});
  for (const char* text :
       {R"([])", R"({"format":2})", R"({"format":1,"stage":"Sleep"})", R"({"format":1,"round":-1})",
        R"({"format":1,"used":"3"})", R"({"format":1,"since":"yesterday"})",
        R"({"format":1,"starts":[3]})", R"({"format":1,"rounds":[{"outcome":"Good"}]})",
        R"({"format":1,"consumed":[1.5]})", R"({"format":1,"live":[]})",
        R"({"format":1,"serving":"4"})"}) {
    const auto parsed = parse_state(codec::parse_json(text).value());
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kCorrupt);
  }
}

}  // namespace round_machine_test
}  // namespace
}  // namespace varda::incremental
