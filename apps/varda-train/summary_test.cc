#include "summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::trainapp {
namespace summary_test {

using ::testing::HasSubstr;

std::string summary_for(const os::Path& model, const os::Path& out) {
  Job job;
  job.model = model;
  job.directory = out;
  Trained trained;
  trained.outcome.model = out / "model.onnx";
  trained.outcome.metrics = {{"accuracy", 0.9785}, {"f1", 0.97}};
  trained.outcome.history.resize(5);
  trained.outcome.seconds = 61;
  return summary(job, trained);
}

TEST(TrainSummary, HasMetricsFilesAndTheNextCommand) {
  EXPECT_EQ(summary_for("models/digits.onnx", "digits-5"),
            "trained 5 epochs in 1 min 1 s\n"
            "  accuracy    0.9785\n"
            "  f1          0.97\n"
            "  model       digits-5/model.onnx\n"
            "  report      digits-5/report.html\n"
            "next: varda push digits-5 --name digits --metric accuracy=0.9785\n");
}

TEST(TrainSummary, NameComesFromTheModelsPath) {
  EXPECT_THAT(summary_for("/m/digits/3/model.onnx", "o"), HasSubstr("--name digits "));
  EXPECT_THAT(summary_for("/m/digits/3/", "o"), HasSubstr("--name digits "));
  EXPECT_THAT(summary_for("digits/models/3", "o"), HasSubstr("--name digits "));
  EXPECT_THAT(summary_for("My Model.onnx", "o"), HasSubstr("--name my-model "));
  EXPECT_THAT(summary_for("/3/model.onnx", "o"), HasSubstr("--name NAME "));
}

TEST(TrainSummary, CommandSurvivesAShell) {
  EXPECT_THAT(summary_for("m.onnx", "it's mine"), HasSubstr("varda push 'it'\\''s mine' --name m"));
}

}  // namespace summary_test
}  // namespace varda::trainapp
