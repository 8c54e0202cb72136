#include "report.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace varda::trainapp {
namespace report_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string report_of(const training::Outcome& outcome, codec::Json settings = {}) {
  return html_report({.outcome = outcome,
                      .settings = std::move(settings),
                      .model = "digits.onnx",
                      .data = "images",
                      .evaluation = "10% of the data",
                      .digest = "ab12",
                      .engine = "onnxruntime 1"});
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t out = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++out;
  return out;
}

training::EpochRecord epoch(std::int64_t number, double loss) {
  return {.epoch = number,
          .loss = loss,
          .evaluation_loss = loss * 2,
          .metrics = {{"accuracy", 1 - loss}},
          .learning_rate = 0.01,
          .seconds = 1};
}

TEST(TrainReport, HasMetricsCurvesAndFacts) {
  training::Outcome outcome;
  outcome.metrics = {{"accuracy", 0.9785}};
  outcome.history = {epoch(1, 0.5), epoch(2, 0.25)};
  outcome.samples = 12345;
  outcome.fingerprint = "sha256:77";
  const std::string html = report_of(
      outcome,
      codec::Json::object({{"seed", 7}, {"optimizer", codec::Json::object({{"name", "adam"}})}}));
  EXPECT_THAT(html, HasSubstr("accuracy<b>0.9785</b>"));
  EXPECT_EQ(count(html, "<polyline"), 3u);
  EXPECT_THAT(html, HasSubstr("60.0,"));
  EXPECT_THAT(html, HasSubstr("12,345"));
  EXPECT_THAT(html, HasSubstr("sha256:77"));
  EXPECT_THAT(html, HasSubstr("<th>optimizer.name</th><td>adam</td>"));
  EXPECT_THAT(html, HasSubstr("<th>seed</th><td>7</td>"));
  EXPECT_THAT(html, HasSubstr("ab12"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
}

TEST(TrainReport, RefersToNothingOutside) {
  training::Outcome outcome;
  outcome.history = {epoch(1, 0.5)};
  const std::string html = report_of(outcome);
  for (const char* outside : {"<script", "http:", "https:", "@import", "<link"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(TrainReport, EscapesEveryText) {
  const std::string evil = "<script>alert('x')</script>\"&\x01";
  training::Outcome outcome;
  outcome.metrics = {{evil, 1}};
  outcome.history = {{.epoch = 1, .loss = 1, .metrics = {{evil, 1}}}};
  outcome.classes = {evil, "b"};
  outcome.confusion = {{1, 2}, {3, 4}};
  outcome.worst = {
      {.index = 0, .place = evil, .expected = evil, .predicted = evil, .loss = 1, .picture = evil}};
  outcome.fingerprint = evil;
  codec::Json settings = codec::Json::object();
  settings.set(evil, evil);
  const std::string html = html_report({.outcome = outcome,
                                        .settings = settings,
                                        .model = evil,
                                        .data = evil,
                                        .evaluation = evil,
                                        .digest = evil,
                                        .engine = evil});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;?"));
}

TEST(TrainReport, InvalidUtf8AndLongTextsAreReplaced) {
  training::Outcome outcome;
  outcome.fingerprint =
      "a\xff\xfe"
      "b";
  outcome.classes = {std::string(1000, 'n'), "b"};
  outcome.confusion = {{1, 0}, {0, 1}};
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("a??b"));
  EXPECT_THAT(html, Not(HasSubstr(std::string(201, 'n'))));
  EXPECT_THAT(html, HasSubstr(std::string(200, 'n') + "…"));
}

TEST(TrainReport, EmptyHistoryIsSaid) {
  const std::string html = report_of({});
  EXPECT_THAT(html, HasSubstr("The run has no complete epoch."));
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  EXPECT_THAT(html, Not(HasSubstr("Confusion")));
  EXPECT_THAT(html, Not(HasSubstr("Worst")));
  EXPECT_TRUE(html.ends_with("</html>\n"));
}

TEST(TrainReport, UnusualLossesGiveNoBrokenCurve) {
  training::Outcome outcome;
  outcome.history = {epoch(1, 0.5), epoch(2, std::numeric_limits<double>::quiet_NaN()),
                     epoch(3, std::numeric_limits<double>::infinity()), epoch(4, 0.5)};
  const std::string html = report_of(outcome);
  const std::size_t svg = html.find("<svg");
  const std::string drawn = html.substr(svg, html.rfind("</svg>") - svg);
  EXPECT_THAT(drawn, Not(HasSubstr("nan")));
  EXPECT_THAT(drawn, Not(HasSubstr("inf\"")));
  EXPECT_EQ(count(drawn, "<polyline"), 3u);
}

TEST(TrainReport, RegressionHasNoMatrix) {
  training::Outcome outcome;
  outcome.metrics = {{"mae", 0.5}, {"rmse", 1}};
  outcome.history = {{.epoch = 1, .loss = 1, .metrics = {{"mae", 0.5}, {"rmse", 1}}}};
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("Evaluation: rmse"));
  EXPECT_THAT(html, Not(HasSubstr("class=\"confusion\"")));
}

TEST(TrainReport, ShadesShowTheShareOfARow) {
  training::Outcome outcome;
  outcome.classes = {"cat", "dog"};
  outcome.confusion = {{3, 1}, {0, 2}};
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("<td class=\"right\" style=\"--shade: 0.43\">3</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"wrong\" style=\"--shade: 0.20\">1</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"wrong\" style=\"--shade: 0.00\"></td>"));
  EXPECT_THAT(html, HasSubstr("<td>cat</td><td>dog</td><td class=\"n\">1</td>"));
}

TEST(TrainReport, ManyClassesShowThoseWithMistakes) {
  training::Outcome outcome;
  outcome.confusion.assign(200, std::vector<std::uint64_t>(200, 0));
  for (std::size_t i = 0; i < 200; ++i) {
    outcome.classes.push_back("class" + std::to_string(i));
    outcome.confusion[i][i] = 10;
  }
  outcome.confusion[150][151] = 4;
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("30 of 200 classes with the most mistakes"));
  EXPECT_EQ(count(html, "<td class=\"right\""), 30u);
  EXPECT_EQ(count(html, "<td class=\"wrong\""), 30u * 29u);
  EXPECT_THAT(html, HasSubstr("<td>class150</td><td>class151</td><td class=\"n\">4</td>"));
  EXPECT_LT(html.size(), 300'000u);
}

TEST(TrainReport, RaggedMatrixIsReadAsZeros) {
  training::Outcome outcome;
  outcome.confusion = {{1}, {}, {1, 2, 3, 4}};
  EXPECT_THAT(report_of(outcome), HasSubstr("class=\"confusion\""));
}

TEST(TrainReport, ManyEpochsAreThinned) {
  training::Outcome outcome;
  for (std::int64_t i = 1; i <= 100'000; ++i)
    outcome.history.push_back(epoch(i, 1.0 / static_cast<double>(i)));
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("The last 100 of 100,000 epochs"));
  EXPECT_LT(html.size(), 100'000u);
}

TEST(TrainReport, PicturesAreInline) {
  training::Outcome outcome;
  outcome.worst = {{.place = "a.jpg", .picture = "\xff\xd8\xff\xe0"},
                   {.place = "b.png", .picture = "\x89PNG\r\n\x1a\n"},
                   {.place = "row 7", .picture = ""},
                   {.place = "c.jpg", .picture = "\xff\xd8\xff" + std::string(2 << 20, 'x')}};
  const std::string html = report_of(outcome);
  EXPECT_THAT(html, HasSubstr("src=\"data:image/jpeg;base64,/9j/4A==\""));
  EXPECT_THAT(html, HasSubstr("src=\"data:image/png;base64,iVBORw0KGgo=\""));
  EXPECT_EQ(count(html, "<img"), 2u);
  EXPECT_THAT(html, HasSubstr("is not shown"));
}

}  // namespace report_test
}  // namespace varda::trainapp
