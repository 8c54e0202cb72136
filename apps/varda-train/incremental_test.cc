// Rounds of incremental learning with the real engine, on a desk and in a pod.
#include "incremental.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <stop_token>
#include <string>
#include <vector>

#include "os/testing/test_directory.h"
#include "train/testing/model_builder.h"
#include "worker/testing/fake_agent.h"

namespace varda::trainapp {
namespace incremental_test {

using codec::Json;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class NoObserver final : public training::Observer {
 public:
  void progress(const training::Progress&) override {}
  void epoch(const training::EpochRecord&) override {}
};

/// Two features, three classes; answers class 0 or 1 before any training.
std::string start_model() {
  const auto tensor = [](tensor::Shape shape, std::vector<float> values) {
    return tensor::Tensor::of<float>(tensor::DType::kFp32, std::move(shape), values).value();
  };
  return train::testing::ModelBuilder()
      .input("x", tensor::DType::kFp32, {-1, 2})
      .initializer("w", tensor({2, 3}, {2, -2, 0, 0, 0, 0}))
      .initializer("b", tensor({3}, {0, 0, -3}))
      .node({.op_type = "Gemm", .inputs = {"x", "w", "b"}, .outputs = {"scores"}})
      .node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

/// Class 0 is right, class 1 left, class 2 above.
std::string rows(int first, int count, const std::vector<int>& classes, bool header = true) {
  std::string out = header ? "a,b,label\n" : "";
  for (int i = first; i < first + count; ++i) {
    const int label = classes[static_cast<std::size_t>(i) % classes.size()];
    const double noise = 0.01 * (i % 37);
    const double a = label == 0 ? 1 + noise : label == 1 ? -1 - noise : 0.2 * noise;
    const double b = label == 2 ? 1.5 + noise : -0.5 + noise;
    out += std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(label) + "\n";
  }
  return out;
}

class Incremental : public ::testing::Test {
 protected:
  Incremental() {
    directory_.write("base/model.onnx", start_model());
    directory_.write("base/labels.txt", "0\n1\n2\n");
    directory_.write("new.csv", rows(0, 60, {2, 0, 2, 1}));
    directory_.write("frozen.csv", rows(200, 60, {0, 1, 2}));
  }

  IncrementalJob job(std::int64_t round = 1) const {
    IncrementalJob out;
    out.job.model = directory_ / "base";
    out.job.data.path = directory_ / "new.csv";
    out.job.evaluation = DataSource{directory_ / "frozen.csv", ""};
    out.job.settings.epochs = 30;
    out.job.settings.batch_size = 8;
    out.job.settings.threads = 1;
    out.job.settings.optimizer.learning_rate = 0.5;
    out.directory = directory_ / "job";
    out.task.round = round;
    out.job.directory = round_directory(out.directory, round);
    return out;
  }

  Result<Trained> train(const IncrementalJob& job, const Context& ctx = Context::background()) {
    NoObserver observer;
    return train_round(ctx, job, engines_, os::real_file_system(), observer);
  }

  std::string read(const os::Path& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  Environment environment() const {
    return {{"BASE_MODEL_URL", directory_ / "base"},
            {"TRAIN_DATASET_URL", directory_ / "new.csv"},
            {"TRAIN_DATASET_FORMAT", "csv"},
            {"EVAL_DATASET_URL", directory_ / "frozen.csv"},
            {"EVAL_DATASET_FORMAT", "csv"},
            {"MODEL_URL", directory_ / "job"},
            {"PARAMETERS", R"({"epochs": 30, "batchSize": 8, "threads": 1,
                              "optimizer": {"learningRate": 0.5}})"},
            {"INCREMENTAL", R"({"round": 1, "attempt": 2})"},
            {"VARDA_WORKER_SOCKET", agent_.socket()},
            {"VARDA_WORKER_TOKEN_FILE", agent_.token_file()}};
  }
  int work(const Environment& environment, RoundAction action = RoundAction::kTrain) {
    return work_incremental(
        Context::background().with_timeout(std::chrono::seconds(60)), environment, action,
        {.engines = engines_,
         .fs = os::real_file_system(),
         .api = {.first_pause = milliseconds(1), .longest_pause = milliseconds(5)},
         .reporter = {.instance = "i1",
                      .every = milliseconds(1),
                      .retry = milliseconds(1),
                      .last_report = milliseconds(500)}});
  }

  const os::testing::TestDirectory directory_;
  infer::Engines engines_{{VARDA_ENGINES}};
  worker::FakeAgent agent_;
};

TEST_F(Incremental, RoundTrainsACandidateAndComparesItWithTheBase) {
  const auto done = train(job());
  ASSERT_TRUE(done.ok()) << done.error();
  const Json& comparison = done->report["comparison"];
  EXPECT_EQ(comparison["round"].as_integer(), 1);
  EXPECT_EQ(comparison["selected"]["train"].as_integer() +
                comparison["selected"]["evaluate"].as_integer(),
            60);
  ASSERT_EQ(comparison["slices"].size(), 2u);
  const Json& frozen = comparison["slices"].as_array()[0];
  EXPECT_EQ(frozen["name"].as_string(), "frozen");
  EXPECT_EQ(frozen["samples"].as_integer(), 60);
  EXPECT_EQ(frozen["baseRight"].as_integer(), 40) << "the base never answers class 2";
  EXPECT_GE(frozen["candidateRight"].as_integer(), 57);
  EXPECT_EQ(frozen["candidateRight"].as_integer() - frozen["baseRight"].as_integer(),
            frozen["onlyCandidate"].as_integer() - frozen["onlyBase"].as_integer());
  ASSERT_EQ(frozen["classes"].size(), 3u);
  EXPECT_EQ(frozen["classes"].as_array()[2]["baseRight"].as_integer(), 0);
  EXPECT_EQ(frozen["classes"].as_array()[2]["samples"].as_integer(), 20);
  EXPECT_EQ(comparison["slices"].as_array()[1]["name"].as_string(), "newest");
  EXPECT_EQ(comparison["slices"].as_array()[1]["samples"].as_integer(),
            comparison["selected"]["evaluate"].as_integer());
  EXPECT_NEAR(comparison.at("metrics/base/accuracy").as_double(), 40.0 / 60, 1e-9);
  EXPECT_GT(comparison.at("milliseconds/base").as_double(), 0);
  EXPECT_EQ(comparison.at("bytes/base").as_integer(),
            static_cast<std::int64_t>(start_model().size()));
}

TEST_F(Incremental, RoundStoppedAnywhereGivesTheSameBytesAlsoWithLaterSamples) {
  IncrementalJob whole = job();
  whole.directory = directory_ / "whole";
  whole.job.directory = round_directory(whole.directory, 1);
  ASSERT_TRUE(train(whole).ok());
  const std::string expected = read(whole.job.directory / "model.onnx");
  IncrementalJob stopped = job();
  stopped.job.checkpoint_every = milliseconds(0);
  class Stopping final : public training::Observer {
   public:
    explicit Stopping(std::stop_source stop) : stop_(std::move(stop)) {}
    void progress(const training::Progress&) override {}
    void epoch(const training::EpochRecord&) override { stop_.request_stop(); }

   private:
    std::stop_source stop_;
  };
  int processes = 0;
  for (;; ++processes) {
    ASSERT_LT(processes, 60);
    std::stop_source stop;
    Stopping observer(stop);
    const auto done =
        train_round(Context(stop.get_token()), stopped, engines_, os::real_file_system(), observer);
    // Samples that arrive during the round belong to the next one.
    std::ofstream(directory_ / "new.csv", std::ios::app)
        << rows(60 + processes, 1, {0, 1, 2}, false);
    if (done.ok()) break;
    ASSERT_EQ(done.error().code(), Code::kCancelled) << done.error();
  }
  EXPECT_GT(processes, 2);
  EXPECT_EQ(read(stopped.job.directory / "model.onnx"), expected);
}

TEST_F(Incremental, NextRoundHasNewSamplesOnlyAndReplaysOldOnes) {
  ASSERT_TRUE(train(job(1)).ok());
  IncrementalJob next = job(2);
  next.task.consumed.add(1);
  const auto none = train(next);
  ASSERT_TRUE(none.ok()) << none.error();
  EXPECT_FALSE(none->has_model);
  EXPECT_EQ(none->report["skipped"].as_string(), "NoNewSamples");
  directory_.write("new.csv", rows(0, 80, {2, 0, 2, 1}));
  next.job.settings.continual.replay = training::Continual::Replay{.samples = 30, .per_class = 0};
  const auto done = train(next);
  ASSERT_TRUE(done.ok()) << done.error();
  const Json& selected = done->report["comparison"]["selected"];
  EXPECT_EQ(selected["train"].as_integer() + selected["evaluate"].as_integer(), 20);
  EXPECT_EQ(done->report["replayed"].as_integer(), 30);
  EXPECT_EQ(done->outcome.samples, static_cast<std::uint64_t>(30 + selected["train"].as_integer()));
  EXPECT_FALSE(std::filesystem::exists(round_directory(next.directory, 1)));
  EXPECT_TRUE(std::filesystem::exists(next.job.directory / "model.onnx"));
}

TEST_F(Incremental, StreamingLayerLearnsANewClassAndContinuesFromTheFile) {
  // The old samples are those of the classes that the base knows.
  directory_.write("old.csv", rows(300, 60, {0, 1}));
  IncrementalJob first = job(1);
  first.job.old = DataSource{directory_ / "old.csv", ""};
  first.job.settings.continual.slda = training::Continual::Slda{};
  // The features of a linear model are the input.
  const auto done = train(first);
  ASSERT_TRUE(done.ok()) << done.error();
  const Json& frozen = done->report["comparison"]["slices"].as_array()[0];
  EXPECT_GE(frozen["candidateRight"].as_integer(), 57) << codec::write_json(frozen);
  // The candidate carries the state, so no old samples are needed.
  IncrementalJob second = job(2);
  second.task.consumed.add(1);
  std::filesystem::copy(first.job.directory, directory_ / "accepted");
  second.job.model = directory_ / "accepted";
  second.job.settings.continual.slda = training::Continual::Slda{};
  directory_.write("new.csv", rows(0, 90, {2, 0, 2, 1}));
  const auto again = train(second);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_GE(again->report["comparison"]["slices"].as_array()[0]["candidateRight"].as_integer(), 57);
}

TEST_F(Incremental, PodHandsOverCandidateAndComparison) {
  agent_.start();
  EXPECT_EQ(work(environment()), 0);
  const Json data = agent_.body("/v1/results/final")["data"];
  EXPECT_EQ(data["round"].as_integer(), 1);
  EXPECT_EQ(data["attempt"].as_integer(), 2);
  EXPECT_EQ(data["stage"].as_string(), "Train");
  EXPECT_EQ(data["artifact"].as_string(), "model-round-1-2");
  EXPECT_EQ(data["report"].as_string(), "report-model-round-1-2");
  EXPECT_EQ(data["comparison"]["slices"].size(), 2u);
  EXPECT_FALSE(agent_.file("model-round-1-2").empty());
  EXPECT_THAT(agent_.file("report-model-round-1-2"), HasSubstr("</html>"));
}

TEST_F(Incremental, AssignmentComesFromTheAgentWithoutTheVariable) {
  agent_.assign(*codec::parse_json(R"({"round": 4, "attempt": 1, "consumed": [[1, 3]]})"));
  agent_.start();
  Environment other = environment();
  other.erase("INCREMENTAL");
  other["TRAINING"] = R"({"version": "7"})";
  EXPECT_EQ(work(other), 0);
  EXPECT_EQ(agent_.body("/v1/results/final")["data"]["round"].as_integer(), 4);
  EXPECT_EQ(agent_.body("/v1/results/final")["data"]["artifact"].as_string(), "model-7");
}

TEST_F(Incremental, PodWithoutNewSamplesReportsThatAndSucceeds) {
  agent_.start();
  EXPECT_EQ(work(environment()), 0);
  Environment next = environment();
  next["INCREMENTAL"] = R"({"round": 2, "consumed": [1]})";
  EXPECT_EQ(work(next), 0);
  const Json data = agent_.body("/v1/results/final")["data"];
  EXPECT_EQ(data["round"].as_integer(), 2);
  EXPECT_EQ(data["skipped"].as_string(), "NoNewSamples");
  EXPECT_FALSE(data.contains("artifact"));
}

TEST_F(Incremental, WrongAssignmentIsAPermanentError) {
  agent_.start();
  Environment wrong = environment();
  wrong["INCREMENTAL"] = R"({"round": 1, "trainProb": 7})";
  EXPECT_EQ(work(wrong), 2);
  const Json error = agent_.body("/v1/results/error")["data"];
  EXPECT_THAT(error["message"].as_string(), HasSubstr("trainProb"));
  EXPECT_TRUE(error["permanent"].as_bool());
}

TEST_F(Incremental, EvaluationComparesTheModelsOnTheSamplesOfTheRound) {
  agent_.start();
  EXPECT_EQ(work(environment(), RoundAction::kSelect), 0);
  const Json selection = agent_.body("/v1/results/selection")["data"];
  Environment evaluation = environment();
  evaluation["INCREMENTAL"] = R"({"round": 1, "stage": "Eval"})";
  evaluation["CANDIDATE_MODEL_URL"] = directory_ / "base";
  EXPECT_EQ(work(evaluation), 0);
  const Json data = agent_.body("/v1/results/final")["data"];
  EXPECT_EQ(data["stage"].as_string(), "Eval");
  EXPECT_FALSE(data.contains("artifact"));
  const Json& newest = data["comparison"]["slices"].as_array()[1];
  EXPECT_EQ(newest["samples"].as_integer(), selection["selected"]["evaluate"].as_integer());
  EXPECT_EQ(newest["onlyBase"].as_integer() + newest["onlyCandidate"].as_integer(), 0);
}

TEST_F(Incremental, ListsHaveTheRecordsOfTheSelection) {
  agent_.start();
  EXPECT_EQ(work(environment(), RoundAction::kSelect), 0);
  const std::string train = read(directory_ / "job/selection/train.csv");
  const std::string test = read(directory_ / "job/selection/test.csv");
  EXPECT_TRUE(train.starts_with("a,b,label\n"));
  EXPECT_TRUE(test.starts_with("a,b,label\n"));
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') - 1;
  };
  EXPECT_EQ(lines(train) + lines(test), 60);
  EXPECT_EQ(lines(train),
            agent_.body("/v1/results/selection")["data"]["selected"]["train"].as_integer());
  EXPECT_EQ(work(environment(), RoundAction::kSelect), 0);
  EXPECT_EQ(read(directory_ / "job/selection/train.csv"), train);
}

TEST_F(Incremental, DeskCountsRounds) {
  NoObserver observer;
  DeskRound desk;
  desk.incremental = job();
  os::FileSystem& fs = os::real_file_system();
  std::filesystem::create_directories(desk.incremental.directory);
  const auto first = train_round_here(Context::background(), desk, engines_, fs, observer);
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "job/round-1/report.html"));
  EXPECT_THAT(summary(first->report), HasSubstr("frozen: 40 -> "));
  const auto none = train_round_here(Context::background(), desk, engines_, fs, observer);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_model);
  directory_.write("new.csv", rows(0, 70, {2, 0, 2, 1}));
  const auto second = train_round_here(Context::background(), desk, engines_, fs, observer);
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->report["round"].as_integer(), 2);
  desk.last = DeskRound::Last::kFailed;
  const auto third = train_round_here(Context::background(), desk, engines_, fs, observer);
  ASSERT_TRUE(third.ok()) << third.error();
  const Json& selected = third->report["comparison"]["selected"];
  EXPECT_EQ(third->report["round"].as_integer(), 3);
  EXPECT_EQ(selected["train"].as_integer() + selected["evaluate"].as_integer(), 10);
}

}  // namespace incremental_test
}  // namespace varda::trainapp
