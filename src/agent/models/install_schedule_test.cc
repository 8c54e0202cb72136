#include "agent/models/install_schedule.h"

#include <gtest/gtest.h>

namespace varda::agent::models {
namespace install_schedule_test {

using artifact::Failure;
using artifact::Outcome;
using artifact::Reason;
using std::chrono::minutes;
using std::chrono::seconds;

JobKey job(std::string name) { return {codec::Sha256::of(name), "http://files/" + name, "onnx"}; }
Outcome<std::uint64_t> failed(Reason reason) {
  return Failure{reason, Error(Code::kUnavailable, "why")};
}

class InstallScheduleTest : public ::testing::Test {
 protected:
  /// Checks that the job is due after `delay`, runs it then, and lets it fail.
  void fails_after(Duration delay, Reason reason) {
    ASSERT_TRUE(schedule.next());
    EXPECT_EQ(*schedule.next() - now, delay);
    EXPECT_FALSE(delay > Duration(0) && schedule.take(now));
    now = *schedule.next();
    const auto taken = schedule.take(now);
    ASSERT_TRUE(taken);
    schedule.finished(*taken, failed(reason), now, /*random=*/1.0);
  }
  SteadyTime now{seconds(1000)};
  InstallSchedule schedule{RetryPolicy{}};
};

TEST_F(InstallScheduleTest, JobsRunOnceAndInOrderOfUrgency) {
  (void)schedule.set_wanted({job("target"), job("a"), job("b")}, now);
  EXPECT_EQ(schedule.take(now), job("target"));
  EXPECT_EQ(schedule.take(now), job("a"));
  EXPECT_EQ(schedule.take(now), job("b"));
  EXPECT_EQ(schedule.take(now), std::nullopt);
  EXPECT_EQ(schedule.reports().at(job("a")).state, JobReport::State::kDownloading);
}

TEST_F(InstallScheduleTest, NewSourcesRetryFailedDownloadAtOnce) {
  (void)schedule.set_wanted({job("a"), job("b")}, now);
  fails_after(Duration(0), Reason::kDownloadFailed);
  fails_after(Duration(0), Reason::kUnsafeArchive);
  EXPECT_EQ(schedule.take(now), std::nullopt);
  schedule.sources_changed(job("a").digest, now);
  schedule.sources_changed(job("b").digest, now);
  EXPECT_EQ(schedule.take(now), job("a"));
  EXPECT_EQ(schedule.take(now), std::nullopt)
      << "who gives the archive does not make it a safe one";
}

TEST_F(InstallScheduleTest, TransientFailuresBackOffUpToFiveMinutesForEver) {
  (void)schedule.set_wanted({job("a")}, now);
  Duration wait(0);
  for (int i = 0; i < 40; ++i) {
    fails_after(wait, i % 2 == 0 ? Reason::kDownloadFailed : Reason::kDiskFull);
    wait = std::min<Duration>(wait == Duration(0) ? Duration(seconds(1)) : wait * 2, minutes(5));
  }
}

TEST_F(InstallScheduleTest, RetryAfterIsHonouredUpToFiveMinutes) {
  (void)schedule.set_wanted({job("a")}, now);
  for (const auto& [requested, waited] :
       {std::pair{seconds(90), seconds(90)}, std::pair{seconds(3600), seconds(300)}}) {
    ASSERT_TRUE(schedule.take(now));
    schedule.finished(
        job("a"), Failure{Reason::kDownloadFailed, Error(Code::kUnavailable, "busy"), requested},
        now, /*random=*/0);
    EXPECT_EQ(*schedule.next() - now, Duration(waited));
    now = *schedule.next();
  }
}

TEST_F(InstallScheduleTest, DigestMismatchAndForbiddenSourceAreRetriedHourly) {
  for (const Reason reason : {Reason::kDigestMismatch, Reason::kSourceForbidden}) {
    (void)schedule.set_wanted({job("a")}, now);
    fails_after(Duration(0), reason);
    fails_after(std::chrono::hours(1), reason);
    EXPECT_EQ(*schedule.next() - now, std::chrono::hours(1));
    (void)schedule.set_wanted({}, now);
  }
}

TEST_F(InstallScheduleTest, UnsafeOrBadArchiveIsRetriedOnlyAfterJobChange) {
  for (const Reason reason : {Reason::kUnsafeArchive, Reason::kBadLayout}) {
    (void)schedule.set_wanted({job("a")}, now);
    fails_after(Duration(0), reason);
    EXPECT_EQ(schedule.next(), std::nullopt);
    (void)schedule.set_wanted({job("a")}, now);
    EXPECT_EQ(schedule.next(), std::nullopt);
    JobKey changed = job("a");
    changed.url += "?again";
    (void)schedule.set_wanted({changed}, now);
    EXPECT_EQ(schedule.take(now), changed);
    schedule.finished(changed, std::uint64_t{1}, now, 0);
    (void)schedule.set_wanted({}, now);
  }
}

TEST_F(InstallScheduleTest, FailedJobStaysFailedDuringRetry) {
  (void)schedule.set_wanted({job("a")}, now);
  fails_after(Duration(0), Reason::kDownloadFailed);
  now = *schedule.next();
  ASSERT_TRUE(schedule.take(now));
  EXPECT_EQ(schedule.reports().at(job("a")).state, JobReport::State::kFailed);
  schedule.finished(job("a"), std::uint64_t{42}, now, 0);
  EXPECT_EQ(schedule.reports().at(job("a")),
            (JobReport{.state = JobReport::State::kReady, .bytes = 42}));
  EXPECT_EQ(schedule.next(), std::nullopt);
}

TEST_F(InstallScheduleTest, UnwantedJobIsCancelledAndMayReturn) {
  (void)schedule.set_wanted({job("a")}, now);
  ASSERT_TRUE(schedule.take(now));
  EXPECT_EQ(schedule.set_wanted({}, now), std::vector<JobKey>{job("a")});
  (void)schedule.set_wanted({job("a")}, now);
  EXPECT_EQ(schedule.take(now), std::nullopt) << "it still runs";
  schedule.finished(job("a"), failed(Reason::kCancelled), now, 0);
  EXPECT_EQ(schedule.take(now), job("a"));
}

TEST_F(InstallScheduleTest, DamagedReadyJobIsInstalledAgain) {
  (void)schedule.set_wanted({job("a"), job("b")}, now);
  for (const char* name : {"a", "b"}) {
    (void)schedule.take(now);
    schedule.finished(job(name), std::uint64_t{5}, now, 0);
  }
  EXPECT_EQ(schedule.next(), std::nullopt);
  schedule.again(job("b").digest, now);
  EXPECT_EQ(schedule.reports().at(job("b")).state, JobReport::State::kPending);
  EXPECT_EQ(schedule.take(now), job("b"));
  schedule.again(job("b").digest, now);
  EXPECT_EQ(schedule.take(now), std::nullopt) << "it runs already";
}

TEST_F(InstallScheduleTest, PersistedResultsAreRestored) {
  (void)schedule.set_wanted({job("unsafe"), job("offline"), job("there")}, now);
  schedule.set_failed(job("unsafe"), Reason::kUnsafeArchive, "bomb", now);
  schedule.set_failed(job("offline"), Reason::kDownloadFailed, "refused", now);
  schedule.set_ready(job("there"), 7);
  EXPECT_EQ(schedule.take(now), job("offline"));
  EXPECT_EQ(schedule.take(now), std::nullopt);
  EXPECT_EQ(schedule.reports().at(job("unsafe")).message, "bomb");
  EXPECT_EQ(schedule.reports().at(job("offline")).state, JobReport::State::kFailed);
  EXPECT_EQ(schedule.reports().at(job("there")).bytes, 7u);
}

}  // namespace install_schedule_test
}  // namespace varda::agent::models
