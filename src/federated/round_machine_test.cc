#include "federated/round_machine.h"

#include <gtest/gtest.h>
#include <string>

#include "codec/digest.h"

namespace varda::federated {
namespace {
namespace round_machine_test {

using codec::Json;
using Phase = RoundMachine::Phase;
using ClientState = RoundMachine::ClientState;

std::string digest_of(const std::string& text) { return codec::Sha256::of(text).hex(); }

class Rounds : public ::testing::Test {
 protected:
  Rounds() {
    settings.rounds = 3;
    settings.quorum = 0.6;
    settings.round_deadline = std::chrono::seconds(100);
    settings.evaluation.every = 0;
  }
  RoundMachine::Options options() const {
    return {.settings = settings,
            .job = "job-1",
            .model = digest_of("model 1"),
            .clients_expected = expected};
  }
  /// With `clients` a round opens at once.
  RoundMachine machine(std::int64_t clients) {
    expected = clients;
    return {options(), now};
  }
  void join(RoundMachine& m, int from, int to) {
    for (int i = from; i <= to; ++i) m.joined("c" + std::to_string(i), now);
  }
  static std::string task(const RoundMachine& m, const std::string& client) {
    const auto task = m.task_for(client);
    return task ? task->id : "";
  }
  AcceptedUpdate update(const std::string& client, std::int64_t round, double samples = 10) {
    return {.client = client,
            .digest = digest_of(client + std::to_string(round)),
            .trained_on = round,
            .samples = samples,
            .metrics = {{"loss", samples / 10}}};
  }
  RoundMachine::Accepted upload(RoundMachine& m, const std::string& client, std::int64_t round,
                                double samples = 10) {
    const auto one = update(client, round, samples);
    return m.accepted(one, m.accepting_round(), now);
  }
  void pass(std::chrono::seconds time) { now += time; }

  Settings settings;
  std::int64_t expected = 0;
  SteadyTime now{std::chrono::hours(1000)};
};

TEST_F(Rounds, RoundWaitsForExpectedClientsButNotLong) {
  RoundMachine m = machine(3);
  join(m, 1, 2);
  EXPECT_EQ(m.phase(), Phase::kWaiting);
  ASSERT_EQ(m.due(), now + std::chrono::seconds(5));
  m.left("c2", now);
  EXPECT_EQ(m.due(), std::nullopt);
  m.joined("c2", now);
  pass(std::chrono::seconds(5));
  EXPECT_TRUE(m.time_passed(now).tasks);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.target(), 2);
}

TEST_F(Rounds, AnEarlyLastRoundEndsTheJobWithItsReason) {
  settings.evaluation.every = 2;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  ASSERT_TRUE(upload(m, "c2", 1).step.aggregate);
  m.end_after_round("PrivacyBudget", "spent");
  m.aggregated(digest_of("model 2"), {}, now);
  EXPECT_EQ(m.phase(), Phase::kEvaluating);  // the last model is always evaluated
  pass(std::chrono::seconds(200));
  EXPECT_TRUE(m.time_passed(now).finished);
  EXPECT_EQ(m.reason(), "PrivacyBudget");
  EXPECT_FALSE(m.failed());
  EXPECT_EQ(m.history().size(), 1U);
}

TEST_F(Rounds, RoundOpensWithTheMinimumOfClients) {
  settings.minimum_clients = 3;
  RoundMachine m = machine(3);
  EXPECT_FALSE(m.joined("c1", now).save);
  EXPECT_FALSE(m.joined("c2", now).save);
  EXPECT_EQ(m.phase(), Phase::kWaiting);
  EXPECT_EQ(m.task_for("c1"), std::nullopt);
  const Step step = m.joined("c3", now);
  EXPECT_TRUE(step.save && step.tasks);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  for (const char* client : {"c1", "c2", "c3"}) {
    const auto task = m.task_for(client);
    ASSERT_TRUE(task) << client;
    EXPECT_EQ(task->kind, Task::Kind::kTrain);
    EXPECT_EQ(task->round, 1);
    EXPECT_TRUE(task->id.starts_with("1-train-")) << task->id;
    EXPECT_EQ(task->model, digest_of("model 1"));
    EXPECT_EQ(task->deadline, now + std::chrono::seconds(100));
  }
}

TEST_F(Rounds, RoundClosesWhenAllChosenClientsHaveSentUpdates) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  EXPECT_FALSE(upload(m, "c2", 1).step.aggregate);
  EXPECT_EQ(m.task_for("c2"), std::nullopt);
  const auto last = upload(m, "c1", 1);
  EXPECT_EQ(last.verdict, Verdict::kWanted);
  EXPECT_TRUE(last.step.aggregate && last.step.save);
  ASSERT_EQ(m.updates().size(), 2u);
  EXPECT_EQ(m.updates()[0].client, "c1");
  const Step step = m.aggregated(digest_of("model 2"), {}, now);
  EXPECT_TRUE(step.save && step.tasks);
  EXPECT_EQ(m.round(), 2);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.task_for("c1")->model, digest_of("model 2"));
}

TEST_F(Rounds, RecordHasMeansBySamples) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1, 10);
  upload(m, "c2", 1, 30);
  pass(std::chrono::seconds(7));
  m.aggregated(digest_of("model 2"), {}, now);
  ASSERT_EQ(m.history().size(), 1u);
  const RoundRecord& record = m.history()[0];
  EXPECT_EQ(record.updates, 2);
  EXPECT_EQ(record.samples, 40);
  EXPECT_EQ(record.seconds, 7);
  EXPECT_EQ(record.model, digest_of("model 2"));
  EXPECT_DOUBLE_EQ(record.training.at("loss"), (1 * 10 + 3 * 30) / 40.0);
}

TEST_F(Rounds, QuorumClosesTheRoundAtTheDeadline) {
  RoundMachine m = machine(5);
  join(m, 1, 5);
  for (const char* client : {"c1", "c2", "c3"}) upload(m, client, 1);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.due(), now + std::chrono::seconds(100));
  pass(std::chrono::seconds(99));
  EXPECT_FALSE(m.time_passed(now).aggregate);
  pass(std::chrono::seconds(1));
  EXPECT_TRUE(m.time_passed(now).aggregate);
  EXPECT_EQ(m.updates().size(), 3u);
}

TEST_F(Rounds, QuorumMayBeANumberOfClients) {
  settings.quorum = 2;
  RoundMachine m = machine(5);
  join(m, 1, 5);
  for (const char* client : {"c1", "c2"}) upload(m, client, 1);
  pass(std::chrono::seconds(100));
  EXPECT_TRUE(m.time_passed(now).aggregate);
}

TEST_F(Rounds, RoundWithoutQuorumKeepsTaskAndUpdatesAndEndsAfterFiveDeadlines) {
  RoundMachine m = machine(5);
  join(m, 1, 5);
  const std::string before = task(m, "c5");
  upload(m, "c1", 1);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(m.attempt(), i);
    pass(std::chrono::seconds(100));
    EXPECT_TRUE(m.time_passed(now).save);
    EXPECT_EQ(task(m, "c5"), before);
  }
  EXPECT_EQ(m.updates().size(), 1u);
  pass(std::chrono::seconds(100));
  EXPECT_TRUE(m.time_passed(now).finished);
  EXPECT_TRUE(m.failed());
  EXPECT_EQ(m.reason(), "NoQuorum");
  EXPECT_EQ(m.message(), "round 1 has 1 of 3 updates after 5 deadlines");
  EXPECT_EQ(m.task_for("c1")->kind, Task::Kind::kEnd);
  EXPECT_EQ(upload(m, "c2", 1).verdict, Verdict::kLate);
}

TEST_F(Rounds, RestartedRoundCountsTheClientsThatRemain) {
  RoundMachine m = machine(5);
  join(m, 1, 5);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  for (const char* gone : {"c3", "c4", "c5"}) m.left(gone, now);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  pass(std::chrono::seconds(100));
  // Two clients remain, and both have sent updates.
  EXPECT_TRUE(m.time_passed(now).aggregate);
}

TEST_F(Rounds, FractionChoosesBySeed) {
  settings.fraction = 0.3;
  std::set<std::string> chosen[3];
  for (const int run : {0, 1, 2}) {
    settings.seed = run == 2 ? 8 : 7;
    RoundMachine m = machine(20);
    join(m, 1, 20);
    for (int i = 1; i <= 20; ++i)
      if (m.task_for("c" + std::to_string(i))) chosen[run].insert("c" + std::to_string(i));
  }
  EXPECT_EQ(chosen[0].size(), 6u);
  EXPECT_EQ(chosen[0], chosen[1]);
  EXPECT_NE(chosen[0], chosen[2]);
}

TEST_F(Rounds, ClientsPerRoundLimitsTheChoice) {
  settings.clients_per_round = 2;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  join(m, 3, 9);
  m.aggregated(digest_of("model 2"), {}, now);
  int with_task = 0;
  for (int i = 1; i <= 9; ++i) with_task += m.task_for("c" + std::to_string(i)) ? 1 : 0;
  EXPECT_EQ(with_task, 2);
}

TEST_F(Rounds, LostClientIsReplacedAndBothUpdatesCount) {
  settings.clients_per_round = 2;
  settings.quorum = 2;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  m.joined("c3", now);
  EXPECT_EQ(m.task_for("c3"), std::nullopt);
  EXPECT_TRUE(m.left("c1", now).tasks);
  ASSERT_NE(m.task_for("c3"), std::nullopt);
  EXPECT_EQ(upload(m, "c1", 1).verdict, Verdict::kWanted);  // it was only cut off
  EXPECT_TRUE(upload(m, "c3", 1).step.aggregate);
  EXPECT_EQ(upload(m, "c2", 1).verdict, Verdict::kLate);
}

TEST_F(Rounds, UpdateCountsOnce) {
  RoundMachine m = machine(3);
  join(m, 1, 3);
  EXPECT_EQ(upload(m, "c1", 1).verdict, Verdict::kWanted);
  const std::string task = "1-train-" + m.task_for("c2")->id.substr(8);
  EXPECT_EQ(m.judge("c1", task, digest_of("c11")), Verdict::kDuplicate);
  EXPECT_EQ(m.judge("c1", task, digest_of("other")), Verdict::kSecond);
  EXPECT_EQ(upload(m, "c1", 1).verdict, Verdict::kDuplicate);
  EXPECT_EQ(m.updates().size(), 1u);
  upload(m, "c2", 1);
  upload(m, "c3", 1);
  m.aggregated(digest_of("model 2"), {}, now);
  // The answer was lost, and the client asks again in the next round.
  EXPECT_EQ(m.judge("c1", task, digest_of("c11")), Verdict::kDuplicate);
}

TEST_F(Rounds, TaskOfAnotherJobIsUnknown) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  RoundMachine other({.settings = settings, .job = "job-2", .model = digest_of("x")}, now);
  join(other, 1, 2);
  EXPECT_NE(task(m, "c1"), task(other, "c1"));
  EXPECT_EQ(m.judge("c1", task(other, "c1"), digest_of("c11")), Verdict::kUnknownTask);
  for (const char* id : {"", "1", "1-train", "1-train-", "x-train-00000000", "0-train-00000000",
                         "99999999999999999999-train-00000000", "1-evaluate-00000000"})
    EXPECT_EQ(m.judge("c1", id, digest_of("c11")), Verdict::kUnknownTask) << id;
}

TEST_F(Rounds, LateUpdateIsDroppedOrJoinsTheNextRound) {
  for (const Late late : {Late::kDrop, Late::kFold}) {
    settings.late = late;
    RoundMachine m = machine(3);
    join(m, 1, 3);
    upload(m, "c1", 1);
    upload(m, "c2", 1);
    pass(std::chrono::seconds(100));
    ASSERT_TRUE(m.time_passed(now).aggregate);
    const auto during = upload(m, "c3", 1);
    EXPECT_EQ(during.verdict, late == Late::kFold ? Verdict::kWanted : Verdict::kLate);
    EXPECT_EQ(m.updates().size(), 2u);
    m.aggregated(digest_of("model 2"), {}, now);
    if (late == Late::kDrop) continue;
    ASSERT_EQ(m.updates().size(), 1u);
    EXPECT_EQ(m.updates()[0].client, "c3");
    EXPECT_EQ(m.updates()[0].trained_on, 1);
    EXPECT_EQ(m.task_for("c3"), std::nullopt);  // one update of a client for a model
  }
}

TEST_F(Rounds, RefusedClientDoesNotCountAndIsExcludedAfterThreeRounds) {
  settings.rounds = 9;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  for (int round = 1; round <= 3; ++round) {
    EXPECT_TRUE(m.refused("c3", task(m, "c3"), "not finite", now).save);
    EXPECT_EQ(m.task_for("c3"), std::nullopt);
    upload(m, "c1", round);
    const auto last = upload(m, "c2", round);
    EXPECT_TRUE(last.step.aggregate) << round;  // no other client is left
    m.aggregated(digest_of(std::to_string(round)), {}, now);
  }
  EXPECT_EQ(m.history()[0].refused, 1);
  EXPECT_EQ(m.judge("c3", task(m, "c1"), digest_of("c34")), Verdict::kExcluded);
  const auto clients = m.clients();
  ASSERT_EQ(clients.size(), 3u);
  EXPECT_EQ(clients[2].state, ClientState::kExcluded);
  EXPECT_EQ(clients[2].reason, "not finite");
}

TEST_F(Rounds, JobEndsWhenExclusionsLeaveTooFewClients) {
  settings.rounds = 9;
  settings.minimum_clients = 3;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(m.phase(), Phase::kTraining);
    for (const char* client : {"c1", "c2", "c3"}) upload(m, client, round);
    m.aggregated(digest_of(std::to_string(round)), {{"c3", "norm"}}, now);
  }
  EXPECT_TRUE(m.failed());
  EXPECT_EQ(m.reason(), "TooFewClients");
  EXPECT_EQ(m.message(), "1 of 3 clients are excluded, and a round needs 3");
}

TEST_F(Rounds, QuarantinedUpdateDoesNotCount) {
  RoundMachine m = machine(3);
  join(m, 1, 3);
  for (const char* client : {"c1", "c2", "c3"}) upload(m, client, 1);
  m.aggregated(digest_of("model 2"), {{"c2", "norm 900 is above 10 times the median"}}, now);
  EXPECT_EQ(m.history()[0].updates, 2);
  EXPECT_EQ(m.history()[0].refused, 1);
  EXPECT_EQ(m.clients()[1].reason, "norm 900 is above 10 times the median");
}

TEST_F(Rounds, RuleThatNeedsMoreUpdatesKeepsTheRoundOpen) {
  settings.quorum = 0.3;
  RoundMachine m = machine(4);
  join(m, 1, 4);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  pass(std::chrono::seconds(100));
  ASSERT_TRUE(m.time_passed(now).aggregate);
  EXPECT_FALSE(m.too_few(now).aggregate);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.quorum(), 3);
  upload(m, "c3", 1);
  pass(std::chrono::seconds(100));
  EXPECT_TRUE(m.time_passed(now).aggregate);
  EXPECT_EQ(m.updates().size(), 3u);
}

TEST_F(Rounds, EvaluationFollowsTheRoundAndStopsTheJob) {
  settings.evaluation.every = 2;
  settings.rounds = 10;
  settings.stop = StopSettings{.metric = "accuracy", .at_least = 0.9};
  RoundMachine m = machine(2);
  join(m, 1, 2);
  double accuracy = 0.5;
  for (int round = 1; m.phase() != Phase::kFinished; ++round) {
    ASSERT_LE(round, 4);
    upload(m, "c1", round);
    upload(m, "c2", round);
    m.aggregated(digest_of("model" + std::to_string(round)), {}, now);
    if (round % 2 != 0) {
      EXPECT_EQ(m.phase(), Phase::kTraining);
      continue;
    }
    EXPECT_EQ(m.phase(), Phase::kEvaluating);
    const std::string id = task(m, "c1");
    EXPECT_EQ(m.task_for("c1")->kind, Task::Kind::kEvaluate);
    EXPECT_EQ(m.task_for("c1")->model, m.model());
    m.evaluated("c1", id, 10, {{"accuracy", accuracy}}, now);
    m.evaluated("c1", id, 10, {{"accuracy", 0.0}}, now);  // a repeated request
    EXPECT_EQ(m.task_for("c1"), std::nullopt);
    m.evaluated("c2", id, 30, {{"accuracy", accuracy + 0.1}}, now);
    accuracy = 0.9;
  }
  EXPECT_FALSE(m.failed());
  EXPECT_EQ(m.reason(), "StopMetric");
  EXPECT_EQ(m.history()[1].evaluation.at("accuracy"), (0.5 * 10 + 0.6 * 30) / 40);
  EXPECT_EQ(m.history()[1].evaluated_by, 2);
  EXPECT_TRUE(m.history()[0].evaluation.empty());
}

TEST_F(Rounds, EvaluationEndsAtTheDeadlineWithTheAnswersThatCame) {
  settings.evaluation.every = 1;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  m.aggregated(digest_of("model 2"), {}, now);
  m.evaluated("c2", task(m, "c2"), 5, {{"loss", 2}}, now);
  pass(std::chrono::seconds(100));
  EXPECT_TRUE(m.time_passed(now).tasks);
  EXPECT_EQ(m.round(), 2);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.history()[0].evaluation, (Metrics{{"loss", 2}}));
}

TEST_F(Rounds, EvaluationWaitsForSilentClientsTwiceTheTimeOfTheOthers) {
  settings.evaluation.every = 1;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  for (const char* client : {"c1", "c2", "c3"}) upload(m, client, 1);
  m.aggregated(digest_of("model 2"), {}, now);
  const std::string id = task(m, "c1");
  pass(std::chrono::seconds(10));
  m.evaluated("c1", id, 5, {{"loss", 2}}, now);
  EXPECT_EQ(m.due(), now + std::chrono::seconds(90)) << "most clients have not answered";
  m.evaluated("c2", id, 5, {{"loss", 4}}, now);
  EXPECT_EQ(m.due(), now + std::chrono::seconds(20));
  pass(std::chrono::seconds(19));
  EXPECT_FALSE(m.time_passed(now).tasks);
  EXPECT_EQ(m.phase(), Phase::kEvaluating);
  pass(std::chrono::seconds(1));
  EXPECT_TRUE(m.time_passed(now).tasks);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.history()[0].evaluation, (Metrics{{"loss", 3}}));
  EXPECT_EQ(m.history()[0].evaluated_by, 2);
}

TEST_F(Rounds, RoundAboveALoweredNumberOfRoundsIsTheLast) {
  settings.rounds = 10;
  settings.evaluation.every = 0;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  for (int round = 1; round <= 2; ++round) {
    upload(m, "c1", round);
    upload(m, "c2", round);
    m.aggregated(digest_of("model" + std::to_string(round)), {}, now);
  }
  upload(m, "c1", 3);
  settings.rounds = 1;
  m.use_settings(settings);
  upload(m, "c2", 3);
  ASSERT_EQ(m.phase(), Phase::kAggregating);
  m.aggregated(digest_of("model3"), {}, now);
  EXPECT_EQ(m.phase(), Phase::kFinished);
  EXPECT_FALSE(m.failed());
}

TEST_F(Rounds, EvaluationDoesNotWaitForClientsWithoutData) {
  settings.evaluation.every = 1;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  m.aggregated(digest_of("model 2"), {}, now);
  const std::string id = task(m, "c1");
  m.evaluated("c1", id, 0, {}, now);
  m.evaluated("c2", id, 5, {{"loss", 2}}, now);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.history()[0].evaluation, (Metrics{{"loss", 2}}));
  EXPECT_EQ(m.history()[0].evaluated_by, 1);
}

TEST_F(Rounds, PatienceEndsTheJob) {
  settings.rounds = 100;
  settings.evaluation.every = 1;
  settings.stop = StopSettings{.metric = "loss", .patience = 2};
  RoundMachine m = machine(2);
  join(m, 1, 2);
  const double losses[] = {3, 2, 2.5, 2};
  for (int round = 1; round <= 4; ++round) {
    ASSERT_EQ(m.phase(), Phase::kTraining) << round;
    upload(m, "c1", round);
    upload(m, "c2", round);
    m.aggregated(digest_of(std::to_string(round)), {}, now);
    const std::string id = task(m, "c1");
    m.evaluated("c1", id, 1, {{"loss", losses[round - 1]}}, now);
    m.evaluated("c2", id, 1, {{"loss", losses[round - 1]}}, now);
  }
  EXPECT_EQ(m.phase(), Phase::kFinished);
  EXPECT_EQ(m.reason(), "Patience");
  EXPECT_FALSE(m.failed());
}

TEST_F(Rounds, LastRoundCompletesTheJob) {
  settings.rounds = 1;
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  EXPECT_TRUE(m.aggregated(digest_of("model 2"), {}, now).finished);
  EXPECT_EQ(m.reason(), "Complete");
  EXPECT_EQ(m.model(), digest_of("model 2"));
  EXPECT_EQ(m.due(), std::nullopt);
}

TEST_F(Rounds, AsynchronousModelChangesAfterABufferOfUpdates) {
  settings.mode = Mode::kAsync;
  settings.buffer_size = 2;
  settings.staleness_max = 1;
  RoundMachine m = machine(4);
  join(m, 1, 4);
  for (const char* client : {"c1", "c2", "c3", "c4"}) EXPECT_EQ(m.task_for(client)->round, 1);
  upload(m, "c1", 1);
  EXPECT_TRUE(upload(m, "c2", 1).step.aggregate);
  EXPECT_EQ(upload(m, "c3", 1).verdict, Verdict::kWanted);  // joins the next buffer
  m.aggregated(digest_of("model 2"), {}, now);
  EXPECT_EQ(m.round(), 2);
  EXPECT_EQ(m.task_for("c1")->round, 2);
  ASSERT_EQ(m.updates().size(), 1u);
  EXPECT_EQ(m.updates()[0].trained_on, 1);
  EXPECT_TRUE(upload(m, "c1", 2).step.aggregate);
  m.aggregated(digest_of("model 3"), {}, now);
  EXPECT_EQ(m.round(), 3);
  EXPECT_EQ(upload(m, "c4", 1).verdict, Verdict::kLate);  // two versions old
}

TEST_F(Rounds, AsynchronousBufferNeedsNoMoreClientsThanThereAre) {
  settings.mode = Mode::kAsync;
  settings.buffer_size = 100;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_TRUE(m.left("c3", now).aggregate);
}

TEST_F(Rounds, AsynchronousEvaluationDoesNotStopTheTraining) {
  settings.mode = Mode::kAsync;
  settings.buffer_size = 2;
  settings.evaluation.every = 1;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  m.aggregated(digest_of("model 2"), {}, now);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.task_for("c1")->kind, Task::Kind::kEvaluate);
  m.evaluated("c1", task(m, "c1"), 1, {{"loss", 1}}, now);
  EXPECT_EQ(m.task_for("c1")->kind, Task::Kind::kTrain);
  EXPECT_EQ(m.models_in_use().size(), 1u);
}

TEST_F(Rounds, ClockThatJumpsBackChangesNothing) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  upload(m, "c1", 1);
  const auto due = m.due();
  EXPECT_FALSE(m.time_passed(now - std::chrono::hours(5)).save);
  EXPECT_EQ(m.due(), due);
  EXPECT_EQ(m.task_for("c2")->deadline, due);
}

TEST_F(Rounds, UpdatesDuringTheEvaluationJoinTheNextRound) {
  settings.evaluation.every = 1;
  settings.late = Late::kFold;
  settings.quorum = 0.5;
  RoundMachine m = machine(4);
  join(m, 1, 4);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  pass(std::chrono::seconds(100));
  ASSERT_TRUE(m.time_passed(now).aggregate);
  EXPECT_EQ(upload(m, "c3", 1).verdict, Verdict::kWanted);
  m.aggregated(digest_of("model 2"), {}, now);
  ASSERT_EQ(m.phase(), Phase::kEvaluating);
  EXPECT_EQ(upload(m, "c4", 1).verdict, Verdict::kWanted);
  for (const char* client : {"c1", "c2", "c3", "c4"})
    m.evaluated(client, task(m, client), 1, {{"loss", 1}}, now);
  ASSERT_EQ(m.round(), 2);
  EXPECT_EQ(m.updates().size(), 2u);
}

TEST_F(Rounds, StateReadsBack) {
  settings.evaluation.every = 1;
  settings.late = Late::kFold;
  settings.rounds = 5;
  settings.quorum = 0.5;
  RoundMachine m = machine(4);
  join(m, 1, 4);
  const auto same = [&] {
    const std::string text = codec::write_json(m.to_json(now));
    const auto again = RoundMachine::restore(options(), codec::parse_json(text).value(), {}, now);
    ASSERT_TRUE(again.ok()) << again.error() << text;
    EXPECT_EQ(codec::write_json(again->to_json(now)), text);
    for (const char* client : {"c1", "c2", "c3", "c4"})
      EXPECT_EQ(task(*again, client), task(m, client));
  };
  same();
  m.refused("c4", task(m, "c4"), "norm", now);
  upload(m, "c1", 1);
  pass(std::chrono::seconds(3));
  same();
  upload(m, "c2", 1);
  pass(std::chrono::seconds(100));
  ASSERT_TRUE(m.time_passed(now).aggregate);
  same();
  EXPECT_EQ(upload(m, "c3", 1).verdict, Verdict::kWanted);
  same();
  m.aggregated(digest_of("model 2"), {}, now);
  m.evaluated("c1", task(m, "c1"), 1, {{"loss", 1}}, now);
  same();
  m.fail("DiskFull", "no room", now);
  same();
}

TEST_F(Rounds, OtherStateIsCorrupt) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  const Json good = m.to_json(now);
  const auto broken = [&](const char* name, Json value) {
    Json state = good;
    state.set(name, std::move(value));
    return RoundMachine::restore(options(), state, {}, now).ok();
  };
  EXPECT_FALSE(RoundMachine::restore(options(), Json(), {}, now).ok());
  EXPECT_FALSE(broken("format", 2));
  EXPECT_FALSE(broken("phase", "Resting"));
  EXPECT_FALSE(broken("round", 0));
  EXPECT_FALSE(broken("models", Json::array()));
  EXPECT_FALSE(broken("phase", "Evaluating"));
  EXPECT_TRUE(broken("round", 1));
}

// ---- secure aggregation ----

TEST_F(Rounds, FixedClientsGetNoReplacement) {
  settings.clients_per_round = 3;
  RoundMachine m = machine(5);
  join(m, 1, 5);
  const std::set<std::string> with_task = m.working();
  ASSERT_EQ(with_task.size(), 3U);
  EXPECT_TRUE(m.fix_clients(with_task, now).save);
  m.left(*with_task.begin(), now);
  EXPECT_EQ(m.working().size(), 2U);
  for (const char* client : {"c1", "c2", "c3", "c4", "c5"}) {
    if (with_task.contains(client)) continue;
    EXPECT_EQ(m.task_for(client), std::nullopt) << client;
  }
  // The round does not wait for the lost one.
  auto at = with_task.begin();
  EXPECT_FALSE(upload(m, *++at, 1).step.aggregate);
  EXPECT_TRUE(upload(m, *++at, 1).step.aggregate);
}

TEST_F(Rounds, ClientThatHarmsTheExchangeOfKeysIsExcludedAfterThreeRounds) {
  settings.rounds = 5;
  settings.quorum = 0.5;
  RoundMachine m = machine(4);
  join(m, 1, 4);
  for (std::int64_t round = 1; round <= 3; ++round) {
    EXPECT_TRUE(m.refuse_keys({{"c4", "bad_shares"}, {"c9", "unknown"}}, now).save);
    EXPECT_FALSE(m.refuse_keys({{"c4", "bad_shares"}}, now).save);  // once in a round
    m.fix_clients({"c1", "c2", "c3"}, now);
    EXPECT_EQ(m.task_for("c4"), std::nullopt);
    EXPECT_EQ(m.clients()[3].reason, "bad_shares");
    for (const char* client : {"c1", "c2", "c3"}) upload(m, client, round);
    m.aggregated(digest_of("model " + std::to_string(round + 1)), {}, now);
    EXPECT_EQ(m.history().back().refused, 1);
  }
  EXPECT_EQ(m.clients()[3].state, RoundMachine::ClientState::kExcluded);
  EXPECT_EQ(m.working().size(), 3U);
}

TEST_F(Rounds, FixedRoundWaitsForALostClientIfTheQuorumIsMissing) {
  settings.quorum = 1;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  m.fix_clients({"c1", "c2", "c3"}, now);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  m.left("c3", now);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_TRUE(upload(m, "c3", 1).step.aggregate);
}

TEST_F(Rounds, ClientThatWithdrawsIsNotWaitedFor) {
  RoundMachine m = machine(3);
  join(m, 1, 3);
  EXPECT_FALSE(m.withdrew("c3", now).save);  // it may still send keys
  m.fix_clients({"c1", "c2", "c3"}, now);
  upload(m, "c1", 1);
  upload(m, "c2", 1);
  EXPECT_FALSE(m.withdrew("c1", now).save);  // the update is there
  EXPECT_TRUE(m.withdrew("c3", now).aggregate);
}

TEST_F(Rounds, RoundIsRepeatedAtOnceIfItsClientsCannotReachTheQuorum) {
  settings.quorum = 1;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  m.fix_clients({"c1", "c2", "c3"}, now);
  upload(m, "c1", 1);
  EXPECT_TRUE(m.withdrew("c3", now).tasks);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.train_task(task(m, "c3"))->repeat, 1);
  EXPECT_TRUE(m.updates().empty());
}

TEST_F(Rounds, RepeatedRoundHasTheSameModelAndAnotherTask) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  const std::string first = task(m, "c1");
  upload(m, "c1", 1);
  const Step step = m.repeat_round(RoundMachine::RepeatCause::kFailed, "no shares", now);
  EXPECT_TRUE(step.save && step.tasks);
  const auto second = m.task_for("c1");
  ASSERT_TRUE(second);
  EXPECT_NE(second->id, first);
  EXPECT_TRUE(second->id.starts_with("1-train-"));
  EXPECT_EQ(second->model, digest_of("model 1"));
  EXPECT_TRUE(m.updates().empty());
  // Nothing of the first task counts any more.
  EXPECT_EQ(m.judge("c1", first, digest_of("c11")), Verdict::kUnknownTask);
  EXPECT_EQ(upload(m, "c1", 1).verdict, Verdict::kLate);
  auto fresh = update("c1", 1);
  fresh.repeat = m.train_task(second->id)->repeat;
  EXPECT_EQ(m.accepted(fresh, 1, now).verdict, Verdict::kWanted);
  fresh = update("c2", 1);
  fresh.repeat = 1;
  EXPECT_TRUE(m.accepted(fresh, 1, now).step.aggregate);
  m.aggregated(digest_of("model 2"), {}, now);
  EXPECT_EQ(m.history()[0].repeats, 1);
  EXPECT_EQ(m.round(), 2);
  EXPECT_EQ(m.train_task(task(m, "c1"))->repeat, 0);
}

TEST_F(Rounds, RepetitionSurvivesARestart) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  m.fix_clients({"c1", "c2"}, now);
  m.repeat_round(RoundMachine::RepeatCause::kFailed, "", now);
  m.fix_clients({"c1", "c2"}, now);
  const std::string id = task(m, "c1");
  const auto again = RoundMachine::restore(options(), m.to_json(now), {}, now);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(task(*again, "c1"), id);
  EXPECT_EQ(codec::write_json(again->to_json(now)), codec::write_json(m.to_json(now)));
}

TEST_F(Rounds, JobFailsAfterFiveFailedSumsOfARound) {
  RoundMachine m = machine(2);
  join(m, 1, 2);
  for (int i = 0; i < 20; ++i)  // restarts are no fault of the round
    m.repeat_round(RoundMachine::RepeatCause::kRestarted, "restarted", now);
  for (int i = 1; i < RoundMachine::kFailuresMax; ++i) {
    m.repeat_round(RoundMachine::RepeatCause::kFailed, "no shares", now);
    ASSERT_EQ(m.phase(), Phase::kTraining);
  }
  EXPECT_TRUE(m.repeat_round(RoundMachine::RepeatCause::kFailed, "no shares", now).finished);
  EXPECT_TRUE(m.failed());
  EXPECT_EQ(m.reason(), "SecureAggregationFailed");
  EXPECT_EQ(m.message(), "round 1 failed 5 times, at last because no shares");
}

TEST_F(Rounds, FixedRoundBelowTheQuorumIsRepeatedAtTheDeadline) {
  settings.quorum = 1;
  RoundMachine m = machine(3);
  join(m, 1, 3);
  m.fix_clients({"c1", "c2", "c3"}, now);
  upload(m, "c1", 1);
  pass(std::chrono::seconds(100));
  EXPECT_TRUE(m.time_passed(now).tasks);
  EXPECT_EQ(m.phase(), Phase::kTraining);
  EXPECT_EQ(m.attempt(), 1);
  EXPECT_EQ(m.train_task(task(m, "c1"))->repeat, 1);
}

}  // namespace round_machine_test
}  // namespace
}  // namespace varda::federated
