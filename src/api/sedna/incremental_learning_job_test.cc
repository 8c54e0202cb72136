// IncrementalLearningJobs of users, in testdata/incremental. tests/conformance/validation has the
// refused ones.

#include "api/sedna/incremental_learning_job.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::api {
namespace incremental_job_test {

namespace fs = std::filesystem;

Json sample(const std::string& name) {
  std::ifstream in(fs::path(VARDA_TESTDATA) / "incremental" / (name + ".yaml"));
  auto parsed = codec::parse_yaml(std::string((std::istreambuf_iterator<char>(in)), {}));
  EXPECT_TRUE(parsed.ok()) << name << ": " << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json::object();
}

IncrementalLearningJob job_of(const std::string& name) {
  auto job = IncrementalLearningJob::from_json(sample(name));
  EXPECT_TRUE(job.ok()) << name << ": " << (job.ok() ? "" : job.error().message());
  return job.ok() ? std::move(job).value() : IncrementalLearningJob{};
}

TEST(IncrementalLearningJob, SamplesOfUsersAreValid) {
  for (const char* name : {"helmet", "digits"}) {
    for (const auto& cause : validate(IncrementalLearningJob::kind(), sample(name)))
      ADD_FAILURE() << name << ": " << cause.field << ": " << cause.message;
  }
}

TEST(IncrementalLearningJob, WrittenSpecHasAllOfTheReadOne) {
  for (const char* name : {"helmet", "digits"}) {
    const Json written = job_of(name).to_json()["spec"];
    EXPECT_EQ(meta::apply_merge_patch(written, sample(name)["spec"]), written) << name;
  }
}

TEST(IncrementalLearningJob, TimesOfDayAreText) {
  const Json timer = sample("helmet").at("spec/trainSpec/trigger/timer");
  EXPECT_EQ(timer["start"], Json("02:00"));
  EXPECT_EQ(timer["end"], Json("20:00"));
}

TEST(IncrementalLearningJob, SampleOfSednaRunsThePodsOfTheUser) {
  const IncrementalLearningJobSpec spec = job_of("helmet").spec;
  EXPECT_TRUE(spec.users_train());
  EXPECT_TRUE(spec.users_evaluate());
  EXPECT_TRUE(spec.users_serve());
  EXPECT_EQ(spec.training_node(), "edge-node");
  EXPECT_EQ(spec.serving_nodes(), std::vector<std::string>{"edge-node"});
  EXPECT_TRUE(spec.deploy_spec.model.hot_update_enabled);
  EXPECT_EQ(spec.deploy_spec.model.poll_period_seconds, 60);
}

TEST(IncrementalLearningJob, NodeOfTheSpecIsThePlaceOfAllWorkers) {
  const IncrementalLearningJobSpec spec = job_of("digits").spec;
  EXPECT_FALSE(spec.users_train() || spec.users_evaluate() || spec.users_serve());
  EXPECT_EQ(spec.training_node(), "edge0");
  EXPECT_EQ(spec.serving_nodes(), std::vector<std::string>{"edge0"});
}

}  // namespace incremental_job_test
}  // namespace varda::api
