#include "flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "os/testing/test_directory.h"
#include "training/settings.h"

namespace varda::trainapp {
namespace flags_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Called {
  Parsed parsed;
  std::string out, err;
};

Called parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "varda-train");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Called called;
  called.parsed = parse_flags(static_cast<int>(argv.size()), argv.data());
  called.out = ::testing::internal::GetCapturedStdout();
  called.err = ::testing::internal::GetCapturedStderr();
  return called;
}

Called parse_complete(std::vector<std::string> more) {
  more.insert(more.begin(), {"--model=m.onnx", "--data=d.csv", "--out=o"});
  return parse(std::move(more));
}

codec::Json settings(std::vector<std::string> more) {
  const Called called = parse_complete(std::move(more));
  EXPECT_TRUE(called.parsed.flags) << called.err;
  if (!called.parsed.flags) return {};
  auto json = settings_of(os::real_file_system(), *called.parsed.flags);
  EXPECT_TRUE(json.ok()) << json.error();
  return json.ok() ? *json : codec::Json();
}

TEST(TrainFlags, DefaultsAreThoseOfTheTrainer) {
  const Called called = parse_complete({});
  ASSERT_TRUE(called.parsed.flags) << called.err;
  EXPECT_FALSE(called.parsed.flags->hold_out);
  EXPECT_EQ(called.parsed.flags->checkpoint_every, "60s");
  EXPECT_EQ(settings({}), codec::Json::object());
}

TEST(TrainFlags, HelpNamesTheDefaultsOfTheTrainer) {
  const Called called = parse({"--help"});
  EXPECT_EQ(called.parsed.exit_code, 0);
  const training::Settings defaults;
  EXPECT_THAT(called.out, HasSubstr("default: " + std::to_string(defaults.epochs)));
  EXPECT_THAT(called.out, HasSubstr("default: " + std::to_string(defaults.batch_size)));
  EXPECT_EQ(training::to_json(defaults)["optimizer"]["learningRate"].as_double(), 0.01);
  EXPECT_EQ(training::to_json(defaults)["optimizer"]["momentum"].as_double(), 0);
}

TEST(TrainFlags, EachFlagSetsItsMemberOfTheSettings) {
  const codec::Json json =
      settings({"--task=multilabel", "--epochs=7", "--batch-size=3", "--loss=binaryCrossEntropy",
                "--optimizer=sgd", "--learning-rate=0.5", "--momentum=0.25",
                "--early-stopping=f1:4", "--freeze=conv*", "--freeze=bn?", "--classes=12",
                "--label=kind", "--seed=9", "--threads=2"});
  const auto parsed = training::parse_settings(json);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(parsed->task, samples::Task::kMultiLabel);
  EXPECT_EQ(parsed->epochs, 7);
  EXPECT_EQ(parsed->batch_size, 3);
  EXPECT_EQ(training::to_json(*parsed)["optimizer"]["learningRate"].as_double(), 0.5);
  EXPECT_EQ(training::to_json(*parsed)["optimizer"]["momentum"].as_double(), 0.25);
  ASSERT_TRUE(parsed->early_stopping);
  EXPECT_EQ(parsed->early_stopping->metric, "f1");
  EXPECT_EQ(parsed->early_stopping->patience, 4);
  EXPECT_THAT(parsed->freeze, ElementsAre("conv*", "bn?"));
  EXPECT_EQ(parsed->head_classes, 12);
  EXPECT_EQ(parsed->label_column, "kind");
  EXPECT_EQ(parsed->seed, 9u);
  EXPECT_EQ(parsed->threads, 2);
}

TEST(TrainFlags, FlagsWinOverTheFileOfSettings) {
  const os::testing::TestDirectory directory;
  const std::string file = directory.write(
      "trainer.yaml", "epochs: 9\nseed: 4\noptimizer: {name: adam, learningRate: 0.002}\n");
  const codec::Json json = settings({"--settings", file, "--epochs=2", "--learning-rate=0.1"});
  EXPECT_EQ(json["epochs"].as_integer(), 2);
  EXPECT_EQ(json["seed"].as_integer(), 4);
  EXPECT_EQ(json["optimizer"]["name"].as_string(), "adam");
  EXPECT_EQ(json["optimizer"]["learningRate"].as_double(), 0.1);
}

TEST(TrainFlags, WrongFileOfSettingsIsNamed) {
  const os::testing::TestDirectory directory;
  const auto error = [&](const std::string& file) {
    const Called called = parse_complete({"--settings", file});
    const auto json = settings_of(os::real_file_system(), *called.parsed.flags);
    return json.ok() ? "" : json.error().message();
  };
  EXPECT_THAT(error(directory / "none.yaml"), HasSubstr("none.yaml does not exist"));
  EXPECT_THAT(error(directory.write("list.yaml", "- 1\n")),
              HasSubstr("list.yaml: must be a mapping"));
  EXPECT_THAT(error(directory.write("bad.yaml", "a: [\n")), HasSubstr("bad.yaml: line"));
}

TEST(TrainFlags, WrongCommandLineEndsWithTwoAndNamesTheFlag) {
  const struct {
    std::vector<std::string> arguments;
    const char* expected;
  } cases[] = {
      {{}, "--model is required"},
      {{"--model=m"}, "--data is required"},
      {{"--model=m", "--data=d"}, "--out is required"},
      {{"--model=m", "--data=d", "--out=o", "--epoch=3"}, "there is no flag --epoch=3"},
      {{"--model=m", "--data=d", "--out=o", "more"}, "there is no argument \"more\""},
      {{"--model=m", "--data=d", "--out=o", "--epochs=0"}, "--epochs"},
      {{"--model=m", "--data=d", "--out=o", "--format=parquet"}, "--format"},
      {{"--model=m", "--data=d", "--out=o", "--learning-rate=nan"}, "not a finite number"},
      {{"--model=m", "--data=d", "--out=o", "--hold-out=1"}, "--hold-out"},
      {{"--model=m", "--data=d", "--out=o", "--hold-out=0.2", "--evaluation=e"},
       "exclude each other"},
      {{"--model=m", "--data=d", "--out=o", "--checkpoint-every=soon"}, "not a duration"},
  };
  for (const auto& one : cases) {
    const Called called = parse(one.arguments);
    EXPECT_FALSE(called.parsed.flags);
    EXPECT_EQ(called.parsed.exit_code, 2) << one.expected;
    EXPECT_THAT(called.err, HasSubstr(one.expected));
    EXPECT_THAT(called.err, HasSubstr("`varda-train --help` lists the flags"));
    EXPECT_THAT(called.out, IsEmpty());
  }
}

TEST(TrainFlags, EarlyStoppingNeedsAMetricAndANumber) {
  for (const char* text : {"accuracy", ":3", "accuracy:", "accuracy:three"}) {
    const Called called = parse_complete({"--early-stopping", text});
    ASSERT_TRUE(called.parsed.flags);
    const auto json = settings_of(os::real_file_system(), *called.parsed.flags);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_THAT(json.error().message(), HasSubstr("must be METRIC:PATIENCE"));
  }
}

TEST(TrainFlags, WorkerNeedsNoPaths) {
  const Called called = parse({"--worker"});
  ASSERT_TRUE(called.parsed.flags) << called.err;
  EXPECT_TRUE(called.parsed.flags->worker);
}

TEST(TrainFlags, ConfigFileSetsFlags) {
  const os::testing::TestDirectory directory;
  const std::string file = directory.write(
      "train.conf", "model = m.onnx\ndata = /with space\nout = o\nfreeze = a*\nfreeze = b\n");
  const Called called = parse({"--config", file, "--out=p"});
  ASSERT_TRUE(called.parsed.flags) << called.err;
  EXPECT_EQ(called.parsed.flags->data, "/with space");
  EXPECT_EQ(called.parsed.flags->out, "p");
  EXPECT_THAT(called.parsed.flags->freeze, ElementsAre("a*", "b"));
}

}  // namespace flags_test
}  // namespace varda::trainapp
