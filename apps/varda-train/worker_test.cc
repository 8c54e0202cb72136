#include "worker.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "base/testing/eventually.h"
#include "net/client.h"
#include "worker/testing/fake_agent.h"

namespace varda::trainapp {

using worker::FakeAgent;
namespace worker_test {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

training::Progress progress(std::uint64_t step) {
  return {.phase = "Training",
          .epoch = 1,
          .epochs = 2,
          .step = step,
          .steps = 10,
          .loss = 0.5,
          .samples_per_second = 100.4,
          .remaining_seconds = 3};
}

class Workers : public ::testing::Test {
 protected:
  Environment environment() const {
    return {{"BASE_MODEL_URL", "/models/digits/3"},
            {"TRAIN_DATASET_URL", "/data/train.csv"},
            {"TRAIN_DATASET_FORMAT", "csv"},
            {"MODEL_URL", out_.path()},
            {"PARAMETERS", R"({"epochs": 2})"},
            {"TRAINING", R"({"holdOut":0.2,"checkpointSeconds":5,"version":"5","modelName":"d"})"},
            {"VARDA_WORKER_SOCKET", agent_.socket()},
            {"VARDA_WORKER_TOKEN_FILE", agent_.token_file()}};
  }

  int run(const Environment& environment) {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    return work(
        ctx, environment,
        {.train = [this](const Context& inner, const Job& job,
                         training::Observer& observer) { return train(inner, job, observer); },
         .fs = os::real_file_system(),
         .api = {.first_pause = milliseconds(1), .longest_pause = milliseconds(5)},
         .reporter = {.instance = "i1",
                      .every = milliseconds(1),
                      .retry = milliseconds(1),
                      .last_report = milliseconds(500)}});
  }
  std::string errors_of(const Environment& environment, int expected) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run(environment), expected);
    return ::testing::internal::GetCapturedStderr();
  }

  Result<Trained> train(const Context&, const Job& job, training::Observer& observer) {
    ++trainings_;
    job_ = job;
    if (failure_) return *failure_;
    observer.progress(progress(3));
    observer.epoch({.epoch = 1, .loss = 0.5, .metrics = {{"accuracy", 0.9}}, .seconds = 1});
    observer.progress(progress(6));
    if (during_) during_();
    const std::string model = "weights " + std::to_string(trainings_);
    out_.write("model.onnx", model);
    Trained out;
    out.digest = codec::Sha256::of(model);
    out.outcome.model = out_ / "model.onnx";
    out.outcome.metrics = {{"accuracy", 0.9}};
    out.outcome.history = {{.epoch = 1, .loss = 0.5, .metrics = {{"accuracy", 0.9}}}};
    out.outcome.classes = {"cat", "dog"};
    out.outcome.fingerprint = "sha256:1";
    out.outcome.samples = 7;
    out.outcome.worst = {{.place = "front-door.jpg",
                          .expected = "cat",
                          .predicted = "dog",
                          .loss = 4.5,
                          .picture = "\xff\xd8\xff\xe0 GPS"}};
    return out;
  }

  const os::testing::TestDirectory out_;
  FakeAgent agent_;
  int trainings_ = 0;
  std::optional<Job> job_;
  std::optional<Error> failure_;
  std::function<void()> during_;
};

TEST_F(Workers, FinishedRunHandsOverModelAndResult) {
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(agent_.file("model-5.onnx"), "weights 1");
  EXPECT_EQ(agent_.body("/v1/register")["instance"].as_string(), "i1");
  const codec::Json data = agent_.body("/v1/results/final")["data"];
  EXPECT_EQ(data["artifact"].as_string(), "model-5.onnx");
  EXPECT_EQ(data["file"].as_string(), "model.onnx");
  EXPECT_EQ(data["format"].as_string(), "onnx");
  EXPECT_EQ(data["metrics"]["accuracy"].as_double(), 0.9);
  EXPECT_EQ(data["fingerprint"].as_string(), "sha256:1");
  EXPECT_EQ(data["samples"].as_integer(), 7);
  EXPECT_EQ(data["classes"].size(), 2u);
  EXPECT_EQ(data["history"].size(), 1u);
  const codec::Json last = agent_.body("/v1/progress");
  EXPECT_EQ(last["step"].as_integer(), 10);
  EXPECT_EQ(last["data"]["loss"].as_double(), 0.5);
  EXPECT_EQ(data["report"].as_string(), "report-model-5");
  EXPECT_THAT(agent_.file("report-model-5"), HasSubstr("</html>"));
  EXPECT_EQ(agent_.body("/v1/progress")["phase"].as_string(), "Uploading");
}

TEST_F(Workers, ReportLeavesTheNodeWithoutPicturesAndNamesOfFiles) {
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  const std::string report = agent_.file("report-model-5");
  EXPECT_THAT(report, HasSubstr("expected <b>cat</b>predicted <b>dog</b>"));
  EXPECT_THAT(report, HasSubstr("<p>loss 4.5</p>"));
  EXPECT_THAT(report, Not(HasSubstr("front-door.jpg")));
  EXPECT_THAT(report, Not(HasSubstr("<img")));
}

TEST_F(Workers, ModelWithLabelsIsHandedOverAsAnArchive) {
  during_ = [this] { out_.write("labels.txt", "cat\ndog\n"); };
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  const codec::Json data = agent_.body("/v1/results/final")["data"];
  EXPECT_FALSE(data.contains("file"));
  EXPECT_EQ(data["format"].as_string(), "onnx");
  for (const char* part : {"model.onnx", "labels.txt", "weights 1", "cat\ndog\n"})
    EXPECT_THAT(agent_.file("model-5"), HasSubstr(part));
}

TEST_F(Workers, FinishedRunOfOtherSettingsIsNotHandedOver) {
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(trainings_, 1);
  Environment changed = environment();
  changed["PARAMETERS"] = R"({"epochs": 3})";
  changed["TRAINING"] = R"({"version":"6"})";
  EXPECT_EQ(run(changed), 0);
  EXPECT_EQ(trainings_, 2);
  EXPECT_EQ(agent_.file("model-6.onnx"), "weights 2");
  EXPECT_EQ(agent_.body("/v1/results/final").at("data/artifact").as_string(), "model-6.onnx");
}

TEST_F(Workers, EnvironmentDefinesTheJob) {
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  ASSERT_TRUE(job_);
  EXPECT_EQ(job_->model, "/models/digits/3");
  EXPECT_EQ(job_->data.path, "/data/train.csv");
  EXPECT_EQ(job_->data.format, "csv");
  EXPECT_FALSE(job_->evaluation);
  EXPECT_EQ(job_->hold_out, 0.2);
  EXPECT_EQ(job_->settings.epochs, 2);
  EXPECT_EQ(job_->directory, out_.path());
  EXPECT_EQ(job_->checkpoint_every, std::chrono::seconds(5));
  EXPECT_TRUE(job_->confine_data);
  Environment more = environment();
  more["EVAL_DATASET_URL"] = "/data/test";
  more["EVAL_DATASET_FORMAT"] = "imagefolder";
  const auto contract = read_contract(more);
  ASSERT_TRUE(contract.ok()) << contract.error();
  ASSERT_TRUE(contract->job.evaluation);
  EXPECT_EQ(contract->job.evaluation->path, "/data/test");
  EXPECT_EQ(contract->job.evaluation->format, "imagefolder");
}

TEST_F(Workers, WrongEnvironmentNamesTheVariable) {
  const struct {
    const char *name, *value, *expected;
  } cases[] = {{"BASE_MODEL_URL", "", "BASE_MODEL_URL is missing"},
               {"TRAIN_DATASET_URL", "", "TRAIN_DATASET_URL is missing"},
               {"MODEL_URL", "", "MODEL_URL is missing"},
               {"PARAMETERS", "{", "PARAMETERS: offset"},
               {"PARAMETERS", "[]", "PARAMETERS must be a JSON object"},
               {"PARAMETERS", R"({"epoch": 3})", "PARAMETERS: "},
               {"TRAINING", R"({"holdOut": 2})", "TRAINING.holdOut"},
               {"TRAINING", R"({"checkpointSeconds": 0})", "TRAINING.checkpointSeconds"}};
  agent_.start();
  for (const auto& one : cases) {
    Environment changed = environment();
    changed[one.name] = one.value;
    EXPECT_THAT(errors_of(changed, 2), HasSubstr(one.expected));
    EXPECT_THAT(agent_.body("/v1/results/error")["data"]["message"].as_string(),
                HasSubstr(one.expected));
    EXPECT_TRUE(agent_.body("/v1/results/error")["data"]["permanent"].as_bool());
  }
  EXPECT_EQ(trainings_, 0);
}

TEST_F(Workers, LostAnswersDelayNothingButTheReports) {
  agent_.start();
  agent_.lose_answers(6);
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(agent_.file("model-5.onnx"), "weights 1");
  EXPECT_FALSE(agent_.body("/v1/results/final").is_null());
}

TEST_F(Workers, AbsentAgentDoesNotStopTheTraining) {
  during_ = [&] { agent_.start(); };  // the agent starts when the training is over
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(agent_.file("model-5.onnx"), "weights 1");
}

TEST_F(Workers, RestartAfterTheTrainingOnlyHandsOver) {
  agent_.start();
  agent_.refuse("PUT /v1/artifacts", 413);
  EXPECT_EQ(run(environment()), 2);
  EXPECT_EQ(trainings_, 1);
  FakeAgent other;
  other.start();
  Environment again = environment();
  again["VARDA_WORKER_SOCKET"] = other.socket();
  again["VARDA_WORKER_TOKEN_FILE"] = other.token_file();
  EXPECT_EQ(run(again), 0);
  EXPECT_EQ(trainings_, 1);
  EXPECT_EQ(other.file("model-5.onnx"), "weights 1");
  EXPECT_EQ(other.body("/v1/results/final")["data"]["metrics"]["accuracy"].as_double(), 0.9);
}

TEST_F(Workers, DamagedResultIsTrainedAgain) {
  agent_.start();
  EXPECT_EQ(run(environment()), 0);
  out_.write("model.onnx", "cut");
  FakeAgent other;
  other.start();
  Environment again = environment();
  again["VARDA_WORKER_SOCKET"] = other.socket();
  again["VARDA_WORKER_TOKEN_FILE"] = other.token_file();
  EXPECT_EQ(run(again), 0);
  EXPECT_EQ(trainings_, 2);
  EXPECT_EQ(other.file("model-5.onnx"), "weights 2");
}

TEST_F(Workers, FailureIsReportedWithItsKind) {
  agent_.start();
  failure_ = Error(Code::kInvalid, "train.csv, line 7: label 12 is out of range");
  EXPECT_THAT(errors_of(environment(), 2), HasSubstr("varda-train: train.csv, line 7"));
  codec::Json error = agent_.body("/v1/results/error")["data"];
  EXPECT_EQ(error["message"].as_string(), "train.csv, line 7: label 12 is out of range");
  EXPECT_TRUE(error["permanent"].as_bool());
  failure_ = Error(Code::kExhausted, "disk full\xff");
  EXPECT_EQ(run(environment()), 1);
  error = agent_.body("/v1/results/error")["data"];
  EXPECT_FALSE(error["permanent"].as_bool(true));
  EXPECT_THAT(error["message"].as_string(), HasSubstr("not UTF-8"));
  EXPECT_TRUE(agent_.body("/v1/results/final").is_null());
}

TEST_F(Workers, SecondRunInTheDirectoryIsRefused) {
  agent_.start();
  const auto lock = claim_directory(os::real_file_system(), out_.path());
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(errors_of(environment(), 1), HasSubstr("is held by"));
  EXPECT_EQ(trainings_, 0);
}

TEST_F(Workers, WithoutAnAgentTheResultStaysInTheDirectory) {
  Environment alone = environment();
  alone.erase("VARDA_WORKER_SOCKET");
  EXPECT_EQ(run(alone), 0);
  EXPECT_EQ(out_.read("model.onnx"), "weights 1");
}

TEST_F(Workers, ReportsComeWhileTheTrainingRuns) {
  agent_.start();
  bool seen = false;
  during_ = [&] {
    seen = bool(
        eventually([&] { return agent_.body("/v1/progress")["data"]["history"].size() == 1; }));
  };
  EXPECT_EQ(run(environment()), 0);
  EXPECT_TRUE(seen);
}

TEST_F(Workers, RefusedProgressIsNotRepeated) {
  agent_.start();
  agent_.refuse("PUT /v1/progress", 400);
  EXPECT_EQ(run(environment()), 0);
  EXPECT_EQ(agent_.file("model-5.onnx"), "weights 1");
}

TEST(ReporterBodies, ProgressHasTheFieldsOfTheContract) {
  const codec::Json body =
      progress_body(progress(12), {{.epoch = 1, .loss = 0.5, .metrics = {{"accuracy", 0.9}}}});
  EXPECT_EQ(body["phase"].as_string(), "Training");
  EXPECT_EQ(body["step"].as_integer(), 10);  // never above the steps
  EXPECT_EQ(body["steps"].as_integer(), 10);
  EXPECT_EQ(body["data"]["epoch"].as_integer(), 1);
  EXPECT_EQ(body["data"]["epochs"].as_integer(), 2);
  EXPECT_EQ(body["data"]["loss"].as_double(), 0.5);
  EXPECT_EQ(body["data"]["samplesPerSecond"].as_double(), 100);
  EXPECT_EQ(body["data"]["remaining"].as_double(), 3);
  EXPECT_EQ(body.at("data/history/0/metrics/accuracy").as_double(), 0.9);
}

TEST(ReporterBodies, LongHistoryKeepsFirstAndLastEpoch) {
  std::vector<training::EpochRecord> history;
  for (std::int64_t i = 1; i <= 1000; ++i)
    history.push_back({.epoch = i,
                       .loss = 1.0 / 3,
                       .metrics = {{"accuracy", 2.0 / 3}, {"auc", 0.1234567}, {"f1", 0.7654321}}});
  const codec::Json body = progress_body({}, history);
  ASSERT_EQ(body.at("data/history").size(), 32u);
  EXPECT_LT(codec::write_json(body["data"]).size(), 3000u);  // the agent accepts 4096
  EXPECT_EQ(codec::write_json(body.at("data/history/0/metrics")), R"({"accuracy":0.6667})");
  EXPECT_EQ(body.at("data/history/0/epoch").as_integer(), 1);
  EXPECT_EQ(body.at("data/history/31/epoch").as_integer(), 1000);
}

TEST(ReporterBodies, FinalFitsTheLimitOfTheAgent) {
  training::Outcome outcome;
  outcome.metrics = {{"accuracy", 0.9}, {"auc", std::numeric_limits<double>::quiet_NaN()}};
  for (int i = 0; i < 100'000; ++i) outcome.classes.push_back("class " + std::to_string(i));
  outcome.history.resize(1000);
  const codec::Json body = final_body(outcome, {.artifact = "model-5.onnx"});
  EXPECT_LT(codec::write_json(body).size(), std::size_t{32} << 10);
  EXPECT_FALSE(body["data"].contains("classes"));
  EXPECT_EQ(body["data"]["history"].size(), 32u);
  EXPECT_FALSE(body["data"]["metrics"].contains("auc"));
}

}  // namespace worker_test
}  // namespace varda::trainapp
