#include "text.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>

#include "base/clock.h"
#include "console.h"

namespace varda::trainapp {
namespace text_test {

TEST(TrainText, NumbersHaveFourDigits) {
  EXPECT_EQ(number(0.0412345), "0.04123");
  EXPECT_EQ(number(1), "1");
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(31400), "31,400");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(TrainText, TimeSpansUseTwoUnits) {
  EXPECT_EQ(time_span(0), "0 s");
  EXPECT_EQ(time_span(0.2), "200 ms");
  EXPECT_EQ(time_span(1.2), "2 s");
  EXPECT_EQ(time_span(60), "1 min");
  EXPECT_EQ(time_span(200), "3 min 20 s");
  EXPECT_EQ(time_span(7500), "2 h 5 min");
  EXPECT_EQ(time_span(-1), "?");
  EXPECT_EQ(time_span(std::numeric_limits<double>::infinity()), "?");
}

TEST(TrainText, PreferredMetricComesFirst) {
  const std::map<std::string, double> metrics{{"accuracy", 0.9}, {"f1", 0.8}};
  EXPECT_EQ(main_metric(metrics, "f1").first, "f1");
  EXPECT_EQ(main_metric(metrics, "loss").first, "accuracy");
  EXPECT_EQ(main_metric({{"auc", 0.5}}, "").first, "auc");
  EXPECT_EQ(main_metric({}, "f1").first, "");
}

training::Progress progress() {
  return {.phase = "Training",
          .epoch = 2,
          .epochs = 5,
          .step = 50,
          .steps = 100,
          .loss = 0.0412345,
          .samples_per_second = 31400.4,
          .remaining_seconds = 12};
}

TEST(TrainText, ProgressLineHasEverything) {
  EXPECT_EQ(progress_line(progress(), {"accuracy", 0.97}, 120),
            "epoch 2/5 [==========          ]  loss 0.04123  accuracy 0.97  12 s left  31,400 "
            "samples/s");
}

TEST(TrainText, ProgressLineFitsANarrowTerminal) {
  for (std::size_t columns = 1; columns < 100; ++columns)
    EXPECT_LE(progress_line(progress(), {"accuracy", 0.97}, columns).size(), columns);
}

TEST(TrainText, ProgressLineSurvivesUnusualNumbers) {
  training::Progress odd;
  EXPECT_EQ(progress_line(odd, {"", 0}, 80), "epoch 0/0 [                    ]  loss 0");
  odd.step = 5;
  odd.steps = 3;
  odd.samples_per_second = 1e300;
  odd.remaining_seconds = 1e300;
  EXPECT_NE(progress_line(odd, {"", 0}, 200).find("===================="), std::string::npos);
}

/// Returns what `write` prints through a console.
template <typename Write>
std::string printed(bool terminal, Write write) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  {
    Console console({.out = out, .terminal = terminal, .metric = "", .epochs = 5}, system_clock());
    write(console);
  }
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(TrainConsole, WithoutTerminalEachEpochIsALine) {
  const std::string text = printed(false, [](Console& console) {
    console.progress(progress());
    console.epoch({.epoch = 1,
                   .loss = 0.5,
                   .evaluation_loss = 0.25,
                   .metrics = {{"accuracy", 0.75}},
                   .seconds = 3});
    console.epoch({.epoch = 2, .loss = 0.25, .seconds = 3});
  });
  EXPECT_EQ(text,
            "epoch 1/5  loss 0.5  evaluation loss 0.25  accuracy 0.75  3 s\n"
            "epoch 2/5  loss 0.25  3 s\n");
}

TEST(TrainConsole, TerminalHasOneLineThatIsRemovedAtTheEnd) {
  const std::string text = printed(true, [](Console& console) {
    console.progress(progress());
    console.progress(progress());  // too soon to be drawn
    console.epoch({.epoch = 1, .loss = 0.5});
  });
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("epoch 2/5"), text.rfind("epoch 2/5"));
  EXPECT_TRUE(text.ends_with("\r\033[K"));
}

}  // namespace text_test
}  // namespace varda::trainapp
