#include "aggregator/flower_rounds.h"

#include <gtest/gtest.h>

#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "os/testing/crashing_file_system.h"

namespace varda::aggregator {
namespace {
namespace flower_rounds_test {

class FlowerJobs : public ::testing::Test {
 protected:
  FlowerJobs() { log::configure(log::Format::kText, log::Level::kError); }
  ~FlowerJobs() override { log::configure(log::Format::kText, log::Level::kInfo); }

  /// The error of FlowerRounds::create() for the settings of the job, or nothing.
  std::optional<Error> refusal() {
    os::testing::CrashingFileSystem fs;
    const auto job = sample_.open(fs);
    EXPECT_TRUE(job.ok()) << job.error();
    if (!job.ok()) return job.error();
    const auto rounds = FlowerRounds::create(
        **job, {.order = sample_.model().order(), .settings = sample_.settings});
    return rounds.ok() ? std::nullopt : std::optional(rounds.error());
  }

  SampleJob sample_{"FedAvg"};
};

TEST_F(FlowerJobs, CentralPrivacyIsPossible) {
  EXPECT_FALSE(refusal());
  sample_.settings.privacy = federated::PrivacySettings{};
  EXPECT_FALSE(refusal());
}

TEST_F(FlowerJobs, LocalPrivacyIsRefusedSinceTheClientsAddNoNoise) {
  sample_.settings.privacy = federated::PrivacySettings{};
  sample_.settings.privacy->mode = federated::PrivacyMode::kLocal;
  const auto error = refusal();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnsupported);
}

TEST_F(FlowerJobs, SecureAggregationIsRefusedSinceTheClientsSendNoMasks) {
  sample_.settings.secure = federated::SecureSettings{};
  const auto error = refusal();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnsupported);
}

}  // namespace flower_rounds_test
}  // namespace
}  // namespace varda::aggregator
