#include "agent/models/download_progress.h"

#include <gtest/gtest.h>

namespace varda::agent::models {
namespace download_progress_test {

using std::chrono::seconds;

JobKey job(std::string name) { return {codec::Sha256::of(name), "http://files/" + name, "onnx"}; }

class DownloadProgressTest : public ::testing::Test {
 protected:
  /// "DONE/TOTAL" in the report of a downloading job.
  std::string published(const std::string& name,
                        JobReport::State state = JobReport::State::kDownloading) const {
    std::map<JobKey, JobReport> jobs{{job(name), {.state = state, .message = ""}}};
    progress.fill(jobs);
    return std::to_string(jobs.begin()->second.done) + "/" +
           std::to_string(jobs.begin()->second.total);
  }
  static SteadyTime at(int second) { return SteadyTime{seconds(1000 + second)}; }
  DownloadProgress progress{seconds(10)};
};

TEST_F(DownloadProgressTest, NothingIsDueWhileNothingIsDownloaded) {
  EXPECT_EQ(progress.due(), std::nullopt);
  progress.started(job("a"), at(0));
  EXPECT_EQ(progress.due(), at(10));
  progress.ended(job("a"));
  EXPECT_EQ(progress.due(), std::nullopt);
}

TEST_F(DownloadProgressTest, ProgressIsReportedAfterOnePeriod) {
  progress.started(job("a"), at(0));
  progress.note(job("a"), 7, 100);
  progress.publish_reports(at(9));
  EXPECT_EQ(published("a"), "0/0");
  progress.publish_reports(at(10));
  EXPECT_EQ(published("a"), "7/100");
  EXPECT_EQ(published("b"), "0/0");
  progress.ended(job("a"));
  EXPECT_EQ(published("a"), "0/0");
}

TEST_F(DownloadProgressTest, ReportedProgressIsConstantWithinAPeriod) {
  progress.started(job("a"), at(0));
  progress.note(job("a"), 7, 100);
  progress.publish_reports(at(12));
  progress.note(job("a"), 8, 100);
  EXPECT_EQ(progress.due(), at(22));
  progress.publish_reports(at(21));
  EXPECT_EQ(published("a"), "7/100");
  progress.publish_reports(at(22));
  EXPECT_EQ(published("a"), "8/100");
}

TEST_F(DownloadProgressTest, ProgressOfAllDownloadsIsReportedTogether) {
  progress.started(job("a"), at(0));
  progress.started(job("b"), at(4));
  progress.note(job("a"), 1, 10);
  progress.note(job("b"), 2, 0);
  progress.publish_reports(at(10));
  EXPECT_EQ(published("b"), "0/0") << "it has not taken the period";
  EXPECT_EQ(progress.due(), at(20)) << "not at 14: that were two writes in a period";
  progress.publish_reports(at(20));
  EXPECT_EQ(published("a"), "1/10");
  EXPECT_EQ(published("b"), "2/0");
}

TEST_F(DownloadProgressTest, DownloadWithoutBytesHasNoProgress) {
  progress.started(job("a"), at(0));
  progress.publish_reports(at(10));
  EXPECT_EQ(published("a"), "0/0");
  EXPECT_EQ(progress.due(), at(20));
}

TEST_F(DownloadProgressTest, RetryShowsDownloadingAndLastFailureMessage) {
  progress.started(job("a"), at(0));
  progress.note(job("a"), 7, 100);
  std::map<JobKey, JobReport> jobs{
      {job("a"), {.state = JobReport::State::kFailed, .message = "connection refused"}}};
  progress.fill(jobs);
  EXPECT_EQ(jobs.begin()->second.state, JobReport::State::kFailed)
      << "nobody knows yet whether it gets on";
  progress.publish_reports(at(10));
  progress.fill(jobs);
  EXPECT_EQ(jobs.begin()->second.state, JobReport::State::kDownloading);
  EXPECT_EQ(jobs.begin()->second.done, 7u);
  EXPECT_EQ(jobs.begin()->second.message, "connection refused");
}

TEST_F(DownloadProgressTest, OnlyRunningDownloadsHaveProgress) {
  progress.started(job("a"), at(0));
  progress.note(job("a"), 7, 100);
  progress.note(job("stranger"), 1, 2);
  progress.publish_reports(at(10));
  EXPECT_EQ(published("a", JobReport::State::kReady), "0/0");
  EXPECT_EQ(published("stranger"), "0/0");
}

TEST_F(DownloadProgressTest, NewAttemptResetsProgress) {
  progress.started(job("a"), at(0));
  progress.note(job("a"), 7, 100);
  progress.publish_reports(at(10));
  progress.ended(job("a"));
  progress.started(job("a"), at(15));
  EXPECT_EQ(progress.due(), at(25));
  EXPECT_EQ(published("a"), "0/0");
}

}  // namespace download_progress_test
}  // namespace varda::agent::models
