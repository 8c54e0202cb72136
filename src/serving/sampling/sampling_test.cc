// Kept samples, from the request to the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/digest.h"
#include "codec/image.h"
#include "oip/npy.h"
#include "os/testing/test_directory.h"
#include "serving/testing/joint_fixture.h"
#include "spool/folder.h"

namespace varda::serving {
namespace sampling_test {

using spool::Facts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kSamples =
    R"({"version":1,"policy":{"name":"Margin","parameters":{"threshold_margin":"0.5"}}})";
// Four grey pixels are the scores of four classes.
constexpr auto kPicture =
    "preprocess: {image: {channels: grey, layout: NHW, resize: {width: 2, height: 2, filter: "
    "nearest}, scale: 0.01}}\npostprocess: {softmax: {}, top_k: {k: 2}}\n";

class Sampling : public Joint {
 protected:
  void run(sampling::Keeper::Options options = {}) {
    options.directory = directory_;
    keeper_ = std::make_unique<sampling::Keeper>(options, os::real_file_system(), registry_, *rng_);
    start();
    keeper_->flush();
  }
  void TearDown() override {
    if (keeper_ != nullptr) keeper_->stop();
    Joint::TearDown();
  }
  net::Response call(const std::string& method, const std::string& target, std::string body = "",
                     net::Headers headers = {}) {
    net::Response out = Joint::call(method, target, std::move(body), std::move(headers));
    if (method == "POST" && out.status == 200) ++answered_;
    return out;
  }
  std::string infer(std::string body) {
    ++answered_;
    return Joint::infer(std::move(body));
  }
  /// Waits for the threads that note an answer after they have sent it.
  std::vector<Facts> kept() {
    const SteadyTime end = system_clock().now() + std::chrono::seconds(5);
    while (counts()["answers"].as_integer() < answered_ && system_clock().now() < end)
      std::this_thread::yield();
    keeper_->flush();
    return spool::list(os::real_file_system(), directory_ / "m").value();
  }
  std::string bytes_of(const Facts& facts) {
    return spool::read_sample(os::real_file_system(), directory_ / "m", facts).value();
  }
  Json counts() {
    return codec::parse_json(call("GET", "/v2/models/m/samples").body).value_or(Json());
  }

  const os::testing::TestDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path() / "samples";
  std::int64_t answered_ = 0;
};

TEST_F(Sampling, HardRequestIsKeptWithScoresAndAnswers) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.9F, 0.1F)).status, 200);
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.25F, 0.75F)).status, 200);  // not below 0.5
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.375F, 0.625F)).status, 200);
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(1));
  const Facts& facts = all[0];
  EXPECT_EQ(facts.model, "m");
  EXPECT_EQ(facts.model_version, "3");
  EXPECT_EQ(facts.reason, Facts::kHard);
  EXPECT_EQ(facts.policy, "Margin");
  EXPECT_DOUBLE_EQ(facts.scores.at("confidence"), 0.625);
  EXPECT_DOUBLE_EQ(facts.scores.at("margin"), 0.25);
  EXPECT_NEAR(facts.scores.at("entropy"), 0.9544, 1e-4);  // of a coin with 3/8 and 5/8
  EXPECT_THAT(facts.answers, ElementsAre(spool::Answer{"", "3", {{"1", 0.625}, {"0", 0.375}}}));
  const auto tensor = oip::parse_npy(bytes_of(facts)).value();
  EXPECT_EQ(tensor.shape(), tensor::Shape({2}));
  EXPECT_EQ(tensor.values<float>()[1], 0.625F);
  EXPECT_EQ(codec::write_json(counts()["answers"]), "3");
  EXPECT_EQ(codec::write_json(counts()["hard"]), "1");
  EXPECT_EQ(codec::write_json(counts()["pending"]), "1");
  EXPECT_EQ(codec::write_json(counts()["scores"]), "[0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,1,0,1,0,0]");
}

TEST_F(Sampling, PendingFollowsSamplesThatOthersTake) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run({.recount = std::chrono::milliseconds(0)});
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(codec::write_json(counts()["pending"]), "1");
  ASSERT_TRUE(spool::label(os::real_file_system(), directory_ / "m", all[0].id, "7").ok());
  (void)counts();  // the question starts the count
  keeper_->flush();
  EXPECT_EQ(codec::write_json(counts()["pending"]), "0");
  EXPECT_EQ(codec::write_json(counts()["bytes"]), "0");
}

TEST_F(Sampling, OnlyTheHardRowsOfABatchAreKept) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run();
  const std::string batch =
      R"({"inputs":[{"name":"x","shape":[3,2],"datatype":"FP32","data":[1,0,0.5,0.5,0,1]}]})";
  EXPECT_EQ(call("POST", "/v2/models/m/infer", batch).status, 200);
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].row, 1);
  EXPECT_EQ(all[0].rows, 3);
  EXPECT_EQ(oip::parse_npy(bytes_of(all[0]))->values<float>()[0], 0.5F);
}

TEST_F(Sampling, ImageIsKeptAsItCame) {
  models_.add("m", "3", "tensor FP32 -1 4\n", kPicture);
  models_.samples_file("m", kSamples);
  run();
  const std::string png = codec::encode_png({2, 2, 1, {0, 100, 90, 50}}).value();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", png, {{"Content-Type", "image/png"}}).status, 200);
  const std::string json =
      R"({"inputs":[{"name":"image","shape":[1],"datatype":"BYTES","data":[")" +
      codec::base64(png) + R"("]}]})";
  EXPECT_EQ(call("POST", "/v2/models/m/infer", json).status, 200);
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(2));
  for (const Facts& facts : all) {
    EXPECT_EQ(facts.format, Facts::kPng);
    EXPECT_EQ(bytes_of(facts), png);
    EXPECT_EQ(facts.answers.at(0).best.at(0).label, "1");
  }
}

TEST_F(Sampling, ControlShareKeepsEasyRequests) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", R"({"version":1,"controlShare":1})");
  run();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", easy()).status, 200);
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].reason, Facts::kControl);
  EXPECT_EQ(codec::write_json(counts()["hard"]), "0");
}

TEST_F(Sampling, BigModelsAnswerBecomesAPseudoLabel) {
  models_.add("m", "3", kModel);
  models_.joint_file("m", joint_file(margin()));
  models_.samples_file(
      "m", R"({"version":1,"policy":{"name":"Margin"},"pseudoLabels":{"minimum":0.9}})");
  run();
  cloud_.infers(
      200,
      R"({"model_name":"big","model_version":"9","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.05,0.95]}]})");
  EXPECT_THAT(infer(hard()), HasSubstr("by cloud"));
  cloud_.infers(
      200,
      R"({"model_name":"big","model_version":"9","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.2,0.8]}]})");
  EXPECT_THAT(infer(hard()), HasSubstr("by cloud"));
  EXPECT_THAT(infer(easy()), HasSubstr("by edge"));
  const auto all = kept();
  ASSERT_THAT(all, SizeIs(2));
  std::vector<std::string> labels;
  for (const Facts& facts : all) {
    ASSERT_THAT(facts.answers, SizeIs(2));
    EXPECT_EQ(facts.answers[0].tier, "edge");
    EXPECT_EQ(facts.answers[1].tier, "cloud");
    EXPECT_EQ(facts.answers[1].version, "9");
    labels.push_back(facts.pseudo_label ? facts.pseudo_label->label : "none");
  }
  EXPECT_THAT(labels, ::testing::UnorderedElementsAre("1", "none"));
}

TEST_F(Sampling, BrokenFileKeepsTheSettingsAndIsReported) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run();
  models_.samples_file("m", R"({"version":1,"countMax":-1})");
  settle();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  EXPECT_THAT(kept(), SizeIs(1));
  EXPECT_EQ(counts().at("problem/reason").as_string(), "Invalid");
  EXPECT_THAT(counts().at("problem/message").as_string(), HasSubstr("countMax: must be"));
}

TEST_F(Sampling, PolicyThatDoesNotFitServesOnAndIsReported) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", R"({"version":1,"policy":{"name":"Energy"}})");
  run();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  EXPECT_THAT(kept(), IsEmpty());
  EXPECT_EQ(counts().at("problem/reason").as_string(), "PolicyMismatch");
}

TEST_F(Sampling, RemovedFileEndsTheKeeping) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run();
  models_.remove("m/samples.json");
  settle();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  EXPECT_THAT(kept(), IsEmpty());
  EXPECT_EQ(call("GET", "/v2/models/m/samples").status, 404);
}

TEST_F(Sampling, NewVersionBeginsNewCounts) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  models_.add("m", "4", kModel);
  settle();
  EXPECT_EQ(counts()["version"].as_string(), "4");
  EXPECT_EQ(codec::write_json(counts()["answers"]), "0");
  EXPECT_THAT(kept(), SizeIs(1));
  EXPECT_EQ(codec::write_json(counts()["pending"]), "1");
}

class SampledTrial : public Sampling {
 protected:
  // The answers of version 5 have half the margin.
  void run_trial(const std::string& trial, const std::string& samples) {
    models_.add("m", "4", kModel);
    models_.add("m", "5", std::string(kModel) + "scale 0.5\n");
    models_.target("m", "4");
    models_.samples_file("m", samples);
    models_.trial_file("m", trial);
    run();
  }
  struct TrialCounts {
    std::int64_t answers = 0, serving_answers = 0, hard = 0, serving_hard = 0;
  };
  /// The report on the trial, once it counts as many. Counts follow the answers.
  Json trial() { return trial(TrialCounts()); }
  Json trial(const TrialCounts& wanted) {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    for (;;) {
      const Json now = codec::parse_json(call("GET", "/v2/models/m/trial").body).value_or(Json());
      const bool all = now["answers"].as_integer() >= wanted.answers &&
                       now.at("serving/answers").as_integer() >= wanted.serving_answers &&
                       now["hard"].as_integer() >= wanted.hard &&
                       now.at("serving/hard").as_integer() >= wanted.serving_hard;
      if (all || !ctx.check().ok()) return now;
    }
  }
};

TEST_F(SampledTrial, ShadowCountsHardAnswersOfBothVersions) {
  run_trial(R"({"version":"5","mode":"shadow"})", kSamples);
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.9F, 0.1F)).status, 200);  // hard for 5 alone
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(1, 0)).status, 200);
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.5F, 0.5F)).status, 200);  // hard for both
  const Json now = trial({.answers = 3, .serving_answers = 3, .hard = 2, .serving_hard = 1});
  EXPECT_EQ(codec::write_json(now["answers"]), "3");
  EXPECT_EQ(codec::write_json(now["hard"]), "2");
  EXPECT_EQ(codec::write_json(now.at("serving/hard")), "1");
}

TEST_F(SampledTrial, CanaryCountsHardAnswersAndKeepsNone) {
  run_trial(R"({"version":"5","mode":"canary","share":1})", kSamples);
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.9F, 0.1F)).status, 200);
  const Json now = trial({.answers = 1, .hard = 1});
  EXPECT_EQ(codec::write_json(now["hard"]), "1");
  EXPECT_EQ(codec::write_json(now.at("serving/hard")), "0");
  EXPECT_EQ(codec::write_json(counts()["hard"]), "0") << "the policy keeps the serving version's";
}

TEST_F(SampledTrial, NewPolicyStartsTheCountsOfTheTrial) {
  run_trial(R"({"version":"5","mode":"shadow"})", R"({"version":1,"controlShare":0.5})");
  EXPECT_EQ(call("POST", "/v2/models/m/infer", body(0.9F, 0.1F)).status, 200);
  const Json before = trial({.answers = 1, .serving_answers = 1});
  EXPECT_FALSE(before.contains("hard")) << "there is no policy";
  EXPECT_FALSE(before["serving"].contains("hard"));
  models_.samples_file("m", kSamples);
  settle();
  const Json now = trial();
  EXPECT_EQ(codec::write_json(now["answers"]), "0");
  EXPECT_EQ(codec::write_json(now["hard"]), "0");
  models_.samples_file("m", R"({"version":1,"policy":{"name":"Random"}})");
  settle();
  EXPECT_FALSE(trial().contains("hard")) << "the policy reads no answer";
}

TEST_F(Sampling, FullQueueDropsAndCounts) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  run({.queue_max = 0});
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  EXPECT_EQ(codec::write_json(counts()["dropped"]), "1");
  EXPECT_THAT(registry_.text(), HasSubstr("varda_samples_dropped_total{model=\"m\"} 1\n"));
}

TEST_F(Sampling, OutputsCountAgainstTheBytesOfTheQueue) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  const std::string request = body(0.375F, 0.625F);
  run({.queue_bytes_max = request.size() + 4});  // the output has 8 bytes
  EXPECT_EQ(call("POST", "/v2/models/m/infer", request).status, 200);
  const SteadyTime end = system_clock().now() + std::chrono::seconds(5);
  while (counts()["dropped"].as_integer() < 1 && system_clock().now() < end)
    std::this_thread::yield();
  EXPECT_EQ(codec::write_json(counts()["dropped"]), "1");
  EXPECT_THAT(kept(), IsEmpty());
}

TEST_F(Sampling, SpoolThatCannotBeOpenedNeverStopsAnswers) {
  models_.add("m", "3", kModel);
  models_.samples_file("m", kSamples);
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "m") << "a file in the way";
  run();
  EXPECT_EQ(call("POST", "/v2/models/m/infer", hard()).status, 200);
  keeper_->flush();
  EXPECT_EQ(codec::write_json(counts()["dropped"]), "1");
  EXPECT_EQ(counts().at("problem/reason").as_string(), "SpoolUnavailable");
}

TEST(SamplingConfig, FileIsReadBack) {
  sampling::Config config;
  config.policy = tiers::PolicyConfig{"Margin", {{"threshold_margin", "0.25"}}};
  config.control_share = 0.25;
  config.bounds = {.bytes_max = 5, .count_max = 6, .replacement = spool::Replacement::kReservoir};
  config.pseudo_label_minimum = 0.5;
  EXPECT_EQ(sampling::parse_config(codec::write_json(sampling::to_json(config))).value(), config);
}

TEST(SamplingConfig, WrongMemberIsNamed) {
  const auto why = [](const std::string& members) {
    const auto parsed = sampling::parse_config("{\"version\":1," + members + "}");
    return parsed.ok() ? "accepted" : parsed.error().message();
  };
  EXPECT_EQ(why(R"("controlShare":2)"), "controlShare: must be a number from 0 to 1");
  EXPECT_EQ(why(R"("bytesMax":"1")"),
            "bytesMax: must be a whole number from 0 to 1125899906842624");
  EXPECT_EQ(why(R"("replacement":"newest")"), "replacement: must be reservoir or class-balanced");
  EXPECT_EQ(why(R"("pseudoLabels":{})"), "pseudoLabels.minimum: must be a number from 0 to 1");
  EXPECT_THAT(why(R"("policy":{"name":"Magic"})"), HasSubstr("unknown policy 'Magic'"));
}

}  // namespace sampling_test
}  // namespace varda::serving
