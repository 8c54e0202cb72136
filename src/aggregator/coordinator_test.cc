#include "aggregator/coordinator.h"

#include <cmath>
#include <gtest/gtest.h>

#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "os/testing/crashing_file_system.h"

namespace varda::aggregator {
namespace {
namespace coordinator_test {

using federated::Verdict;
using os::testing::CrashingFileSystem;
using Phase = federated::RoundMachine::Phase;

class Jobs : public ::testing::Test {
 protected:
  Jobs() { log::configure(log::Format::kText, log::Level::kError); }
  ~Jobs() override { log::configure(log::Format::kText, log::Level::kInfo); }

  void open(Coordinator::Options::Admission admission = Coordinator::Options::Admission::kOpen) {
    job_.reset();  // the directory has one owner
    Coordinator::Options options = sample_.options();
    options.admission = admission;
    auto opened = Coordinator::open(options, sample_.model(), "/job", fs_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    job_ = std::move(*opened);
  }
  void work() {
    const auto due = job_->work(Context::background());
    EXPECT_TRUE(due.ok()) << due.error();
  }
  /// The tasks of all clients, in their order.
  std::vector<federated::Task> tasks() {
    std::vector<federated::Task> out;
    for (const std::string& client : sample_.clients()) EXPECT_TRUE(job_->seen(client).ok());
    work();
    for (const std::string& client : sample_.clients())
      out.push_back(job_->task_for(client).value_or(federated::Task{}));
    return out;
  }
  void train_round() {
    const auto given = tasks();
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::string client = sample_.clients()[i];
      const auto sent = job_->submit_bytes(client, given[i].id, sample_.update(client, given[i]));
      ASSERT_TRUE(sent.ok()) << sent.error();
      EXPECT_EQ(sent->verdict, Verdict::kWanted);
    }
    work();
  }
  void make_private(double noise_multiplier, double epsilon_max) {
    sample_.settings.privacy = federated::PrivacySettings{};
    sample_.settings.privacy->clip = 1;
    sample_.settings.privacy->noise_multiplier = noise_multiplier;
    sample_.settings.privacy->epsilon_max = epsilon_max;
  }

  SampleJob sample_{"FedAvg", 3, 10};
  CrashingFileSystem fs_;
  std::unique_ptr<Coordinator> job_;
};

TEST_F(Jobs, JobThatCannotAffordItsFirstRoundFailsAndReleasesNothing) {
  make_private(0.1, 1);
  open();
  work();
  const Snapshot end = job_->snapshot();
  EXPECT_EQ(end.phase, Phase::kFinished);
  EXPECT_TRUE(end.failed);
  EXPECT_EQ(end.reason, "PrivacyBudget");
  EXPECT_TRUE(end.history.empty());
  EXPECT_EQ(end.epsilon, 0);
  open();
  EXPECT_EQ(job_->snapshot().reason, "PrivacyBudget");
}

TEST_F(Jobs, LoweredBudgetEndsTheOpenRoundAndKeepsTheModel) {
  make_private(2, 100);
  open();
  train_round();
  const std::string model = job_->snapshot().model;
  make_private(2, 0.5);
  ASSERT_TRUE(job_->update_settings(sample_.settings).ok());
  const Snapshot end = job_->snapshot();
  EXPECT_EQ(end.phase, Phase::kFinished);
  EXPECT_FALSE(end.failed);
  EXPECT_EQ(end.reason, "PrivacyBudget");
  EXPECT_EQ(end.history.size(), 1U);
  EXPECT_EQ(end.model, model);
}

TEST_F(Jobs, RestartWithALowerBudgetReleasesNothingMore) {
  make_private(2, 100);
  open();
  train_round();
  ASSERT_EQ(job_->snapshot().phase, Phase::kTraining);
  make_private(2, 0.5);
  open();
  const Snapshot end = job_->snapshot();
  EXPECT_EQ(end.phase, Phase::kFinished);
  EXPECT_FALSE(end.failed);
  EXPECT_EQ(end.history.size(), 1U);
}

TEST_F(Jobs, RestartedPodKeepsTheEditsOfItsAssignment) {
  using Admission = Coordinator::Options::Admission;
  open(Admission::kAssigned);
  federated::Settings edited = sample_.settings;
  edited.rounds = 20;
  ASSERT_TRUE(job_->update_settings(edited).ok());
  work();  // saves the edit
  open(Admission::kAssigned);
  EXPECT_EQ(job_->snapshot().rounds, 20);
  edited.rounds = 30;
  ASSERT_TRUE(job_->update_settings(edited).ok());
  EXPECT_EQ(job_->snapshot().rounds, 30);
}

TEST_F(Jobs, RestartOnADeskTakesNewSettings) {
  open();
  work();
  sample_.settings.rounds = 20;
  open();
  EXPECT_EQ(job_->snapshot().rounds, 20);
}

TEST_F(Jobs, EditedNormLimitAppliesToTheNextUpload) {
  open();
  const auto given = tasks();
  sample_.settings.bounds.norm_max = 0.01;
  ASSERT_TRUE(job_->update_settings(sample_.settings).ok());
  const auto sent =
      job_->submit_bytes("default/c0", given[0].id, sample_.update("default/c0", given[0]));
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_EQ(sent->verdict, Verdict::kRefused);
  EXPECT_EQ(sent->reason, federated::RefusalReason::kNorm);
}

TEST_F(Jobs, MetricsOfAnEvaluationAreFewAndShort) {
  sample_.settings.evaluation.every = 1;
  open();
  train_round();
  const auto given = tasks();
  ASSERT_EQ(given[0].kind, federated::Task::Kind::kEvaluate);
  federated::Metrics metrics{{std::string(65, 'a'), 1}, {"", 1}, {"a", HUGE_VAL}};
  for (int i = 0; i < 1000; ++i) metrics.emplace("b" + std::to_string(i), i);
  for (const std::string& client : sample_.clients())
    ASSERT_TRUE(job_->evaluated(client, given[0].id, 1, metrics).ok());
  const federated::Metrics means = job_->snapshot().history.at(0).evaluation;
  EXPECT_EQ(means.size(), 64U);
  for (const auto& [name, value] : means) EXPECT_EQ(name[0], 'b') << name;
}

}  // namespace coordinator_test
}  // namespace
}  // namespace varda::aggregator
