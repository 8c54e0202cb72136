// Unit tests of the steps: against testdata/golden.json (computed by make_golden.py), and against
// invariants for any input.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>

#include "codec/json.h"
#include "transform/internal/boxes.h"
#include "transform/internal/resize.h"
#include "transform/internal/scores.h"

namespace varda::transform::internal {
namespace {

using codec::Json;
using ::testing::ElementsAre;

const Json& golden() {
  static const Json json = [] {
    std::ifstream in(VARDA_TESTDATA "/golden.json");
    return codec::parse_json(std::string(std::istreambuf_iterator<char>(in), {})).value();
  }();
  return json;
}

template <typename T>
std::vector<T> numbers(const Json& list) {
  std::vector<T> out;
  for (const Json& item : list.as_array()) out.push_back(static_cast<T>(item.as_double()));
  return out;
}

std::size_t count(const Json& value) { return static_cast<std::size_t>(value.as_integer()); }

void expect_near(const std::vector<float>& got, const std::vector<float>& want, float tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance) << what << " value " << i;
}

TEST(Resize, ResultsMatchTheGoldenNumbers) {
  ASSERT_EQ(golden()["resize"].size(), 24u);
  for (const Json& c : golden()["resize"].as_array()) {
    const std::string name = c["filter"].as_string();
    const Filter filter = name == "nearest"    ? Filter::kNearest
                          : name == "bilinear" ? Filter::kBilinear
                                               : Filter::kArea;
    const codec::Image image{count(c["width"]), count(c["height"]), count(c["channels"]),
                             numbers<std::uint8_t>(c["pixels"])};
    expect_near(resize(image, count(c["newWidth"]), count(c["newHeight"]), filter),
                numbers<float>(c["values"]), 1e-3f,
                name + " " + codec::write_json(c["width"]) + "x" + codec::write_json(c["height"]));
  }
}

TEST(Resize, ValuesStayBetweenTheDarkestAndBrightestPixel) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t width = 1 + random() % 20, height = 1 + random() % 20,
                      channels = random() % 2 == 0 ? 1 : 3;
    codec::Image image{width, height, channels,
                       std::vector<std::uint8_t>(width * height * channels)};
    for (auto& p : image.pixels) p = static_cast<std::uint8_t>(random());
    const auto [low, high] = std::minmax_element(image.pixels.begin(), image.pixels.end());
    for (const Filter filter : {Filter::kNearest, Filter::kBilinear, Filter::kArea}) {
      const std::size_t to_width = 1 + random() % 30, to_height = 1 + random() % 30;
      const std::vector<float> got = resize(image, to_width, to_height, filter);
      ASSERT_EQ(got.size(), to_width * to_height * channels);
      for (const float value : got) {
        EXPECT_GE(value, static_cast<float>(*low) - 0.001f);
        EXPECT_LE(value, static_cast<float>(*high) + 0.001f);
      }
    }
  }
}

TEST(Softmax, ResultsMatchTheGoldenNumbers) {
  ASSERT_EQ(golden()["softmax"].size(), 7u);
  for (const Json& c : golden()["softmax"].as_array()) {
    const std::vector<float> logits = numbers<float>(c["logits"]);
    std::vector<float> got(logits.size());
    softmax(logits, logits.size(), got);
    expect_near(got, numbers<float>(c["values"]), 1e-6f, codec::write_json(c["logits"]));
  }
}

TEST(Softmax, RowsSumToOneAndKeepTheirOrder) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 40);
  for (int round = 0; round < 300; ++round) {
    const std::size_t classes = 1 + random() % 50, rows = 1 + random() % 4;
    std::vector<float> logits(rows * classes), got(rows * classes);
    for (float& x : logits) x = normal(random);
    softmax(logits, classes, got);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(r * classes);
      EXPECT_NEAR(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(classes), 0.0), 1.0,
                  1e-5);
      for (std::size_t i = 1; i < classes; ++i) {
        const std::size_t a = r * classes + i - 1, b = a + 1;
        EXPECT_GE(got[a], 0.0f);
        if (logits[a] > logits[b]) {
          EXPECT_GE(got[a], got[b]);
        }
      }
    }
  }
}

TEST(TopK, BestScoresComeFirstWithLowerIndexesOnTiesAndNanLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(top_k(std::vector<float>{1, 3, 2, 3}, 3), ElementsAre(1, 3, 2));
  EXPECT_THAT(top_k(std::vector<float>{nan, -inf, nan, inf}, 4), ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(top_k(std::vector<float>{0, 0, 0}, 2), ElementsAre(0, 1));
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row(1 + random() % 40);
    for (float& x : row) x = static_cast<float>(random() % 10);
    const std::size_t k = 1 + random() % row.size();
    std::vector<std::size_t> want(row.size());
    std::iota(want.begin(), want.end(), std::size_t{0});
    std::stable_sort(want.begin(), want.end(),
                     [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
    want.resize(k);
    EXPECT_EQ(top_k(row, k), want);
  }
}

TEST(ScoreShape, ClassesAreTheLastDimensionOrPrecedeTwoOnes) {
  const auto of = [](tensor::Shape shape) {
    const ScoreShape got = ScoreShape::of(shape).value();
    return tensor::to_string(got.rows) + " x " + std::to_string(got.classes);
  };
  EXPECT_EQ(of({10}), "[] x 10");
  EXPECT_EQ(of({-1, 10}), "[-1] x 10");
  EXPECT_EQ(of({2, 10, 1, 1}), "[2] x 10");
  EXPECT_EQ(of({2, 100, 80}), "[2,100] x 80");
  EXPECT_FALSE(ScoreShape::of({}).ok());
}

// A direct implementation of the definition, independent of the code: class by class, comparing
// every pair, sorted at the end.
struct Slow {
  float score;
  std::size_t box, label;
};
std::vector<Slow> slowly(const NmsStep& step, const std::vector<std::array<double, 4>>& xyxy,
                         const std::vector<float>& scores, std::size_t classes) {
  std::vector<Slow> selected;
  for (std::size_t label = 0; label < classes; ++label) {
    std::vector<Slow> left;
    for (std::size_t b = 0; b < xyxy.size(); ++b) {
      if (scores[b * classes + label] >= static_cast<float>(step.threshold))
        left.push_back({scores[b * classes + label], b, label});
    }
    while (!left.empty()) {
      const auto best =
          std::max_element(left.begin(), left.end(), [](const Slow& a, const Slow& b) {
            return a.score < b.score || (a.score == b.score && a.box > b.box);
          });
      const Slow taken = *best;
      selected.push_back(taken);
      left.erase(best);
      std::erase_if(left, [&](const Slow& other) {
        const auto &p = xyxy[taken.box], &q = xyxy[other.box];
        const double w = std::max(0.0, std::min(p[2], q[2]) - std::max(p[0], q[0]));
        const double h = std::max(0.0, std::min(p[3], q[3]) - std::max(p[1], q[1]));
        const double both = w * h,
                     joined = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - both;
        return joined > 0 && both / joined > step.iou;
      });
    }
  }
  std::sort(selected.begin(), selected.end(), [](const Slow& a, const Slow& b) {
    return std::tuple(-a.score, a.box, a.label) < std::tuple(-b.score, b.box, b.label);
  });
  if (selected.size() > static_cast<std::size_t>(step.max))
    selected.resize(static_cast<std::size_t>(step.max));
  return selected;
}

TEST(Nms, ResultEqualsTheReferenceInEveryFormat) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const std::size_t boxes = random() % 40, classes = 1 + random() % 4;
    NmsStep step;
    step.threshold = static_cast<double>(random() % 5) / 8;
    step.iou = static_cast<double>(random() % 9) / 8;
    step.max = 1 + static_cast<std::int64_t>(random() % 30);
    step.format = std::array{BoxFormat::kXyxy, BoxFormat::kXywh, BoxFormat::kCxcywh}[random() % 3];
    std::vector<std::array<double, 4>> xyxy;
    std::vector<float> coordinates, scores;
    for (std::size_t i = 0; i < boxes; ++i) {
      // Even sizes, so that centres are exact.
      const double x = static_cast<double>(random() % 20), y = static_cast<double>(random() % 20);
      const double w = static_cast<double>(random() % 8) * 2,
                   h = static_cast<double>(random() % 8) * 2;
      xyxy.push_back({x, y, x + w, y + h});
      const std::array<double, 4> numbers = step.format == BoxFormat::kXyxy ? xyxy.back()
                                            : step.format == BoxFormat::kXywh
                                                ? std::array{x, y, w, h}
                                                : std::array{x + w / 2, y + h / 2, w, h};
      for (const double n : numbers) coordinates.push_back(static_cast<float>(n));
      for (std::size_t c = 0; c < classes; ++c)
        scores.push_back(static_cast<float>(random() % 12) / 11);
    }
    const std::vector<Slow> want = slowly(step, xyxy, scores, classes);
    const std::vector<Box> got = suppress(step, coordinates, scores, classes);
    ASSERT_EQ(got.size(), want.size()) << "round " << round;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].score, want[i].score);
      EXPECT_EQ(got[i].label, want[i].label);
      for (std::size_t k = 0; k < 4; ++k)
        EXPECT_EQ(got[i].corners[k], static_cast<float>(xyxy[want[i].box][k]));
    }
  }
}

TEST(Nms, OverlappingBoxesOfOneClassAreSuppressed) {
  // Two boxes on one object (shared 80 of 120: 0.667), one beside it, and one of another class on
  // the first.
  const std::vector<float> boxes = {0, 0, 10, 10, 2, 0, 12, 10, 20, 0, 30, 10, 0, 0, 10, 10};
  const std::vector<float> scores = {0.9f, 0, 0.8f, 0, 0.7f, 0, 0, 0.6f};
  NmsStep step;
  const std::vector<Box> got = suppress(step, boxes, scores, 2);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].score, 0.9f);
  EXPECT_EQ(got[1].score, 0.7f);
  EXPECT_EQ(got[2].label, 1u);
  step.iou = 0.7;
  EXPECT_EQ(suppress(step, boxes, scores, 2).size(), 4u);
}

TEST(Nms, NonFiniteBoxesAndScoresAreIgnored) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  NmsStep step;
  step.threshold = 0;
  EXPECT_TRUE(suppress(step, std::vector<float>{0, 0, nan, 1, 0, 0, inf, 1, 0, 0, 1, 1, 0, 0, 1, 1},
                       std::vector<float>{1, 1, nan, inf}, 1)
                  .empty());
  EXPECT_TRUE(suppress(step, {}, {}, 3).empty());
}

TEST(Nms, BestOfVeryManyCandidatesAreKept) {
  NmsStep step;
  step.threshold = 0;
  step.max = 3;
  std::vector<float> coordinates, scores;
  for (std::size_t i = 0; i < kCandidatesMax * 2; ++i) {
    const auto x = static_cast<float>(i);
    for (const float n : {x * 2, 0.0f, x * 2 + 1, 1.0f}) coordinates.push_back(n);
    scores.push_back(x / static_cast<float>(kCandidatesMax * 2));
  }
  const std::vector<Box> got = suppress(step, coordinates, scores, 1);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].corners[0], 2.0f * (kCandidatesMax * 2 - 1));
}

}  // namespace
}  // namespace varda::transform::internal
