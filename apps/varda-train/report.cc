#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "codec/text.h"
#include "text.h"

namespace varda::trainapp {
namespace {

using codec::Json;
using training::EpochRecord;
using training::Outcome;

constexpr std::size_t kTextBytesMax = 200;
constexpr std::size_t kClassesMax = 30;     // rows of the confusion matrix
constexpr std::size_t kConfusionsMax = 15;  // pairs of classes below the matrix
constexpr std::size_t kPointsMax = 400;     // of a curve
constexpr std::size_t kEpochRowsMax = 100;
constexpr std::size_t kPictureBytesMax = 1 << 20;
constexpr std::size_t kSettingsMax = 100;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>Training report</title>
<style>
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --faint: #667085; --line: #d5dae1;
  --card: #f6f8fa; --blue: 37 99 235; --red: 200 40 60; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --text: #e6e9ee; --faint: #98a2b3;
  --line: #343b45; --card: #1d2127; --blue: 96 150 255; --red: 255 110 120; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 62rem; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p, figcaption { color: var(--faint); margin: .3rem 0; }
table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: left; }
table.list td, table.list th { border-bottom: 1px solid var(--line); vertical-align: top; }
table.list td { overflow-wrap: anywhere; } td.n, th.n { text-align: right; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; }
.card b { display: block; font-size: 1.4rem; }
.wide { overflow-x: auto; }
table.confusion td { text-align: center; min-width: 2rem; border: 1px solid var(--line); }
table.confusion td.right { background: rgb(var(--blue) / var(--shade)); }
table.confusion td.wrong { background: rgb(var(--red) / var(--shade)); }
.curves { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; }
svg { max-width: 100%; height: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
svg text { fill: var(--faint); font: 12px system-ui, sans-serif; }
svg polyline { fill: none; stroke-width: 2; } svg line { stroke: var(--line); }
.first { stroke: rgb(var(--blue)); } .second { stroke: rgb(var(--red)); }
circle.first { fill: rgb(var(--blue)); } circle.second { fill: rgb(var(--red)); }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); gap: .8rem; }
.worst img { width: 100%; max-height: 12rem; object-fit: contain; image-rendering: auto; }
.worst .card { overflow-wrap: anywhere; } code { overflow-wrap: anywhere; }
</style>
</head>
<body>
)";

/// Text in an element or a quoted attribute. Invalid UTF-8 becomes '?', as do control characters.
std::string escaped(std::string_view raw) {
  std::string text(raw);
  if (!codec::is_utf8(text))
    std::replace_if(
        text.begin(), text.end(),
        [](char c) { return (static_cast<unsigned char>(c) & 0x80U) != 0; }, '?');
  const std::string shown = codec::clipped(text, kTextBytesMax);
  std::string out;
  for (const char c : shown) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out + (shown.size() < text.size() ? "…" : "");
}

std::string fixed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string card(const std::string& title, const std::string& value) {
  return "<div class=\"card\">" + escaped(title) + "<b>" + escaped(value) + "</b></div>\n";
}

std::string row(const std::string& name, const std::string& value) {
  return "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

// ---- curves

struct Point {
  double x = 0, y = 0;
};
struct Curve {
  std::string name;
  std::vector<Point> points;
};

/// Keeps the first and the last point, and points at equal distances between them.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kPointsMax) return points;
  std::vector<Point> out;
  for (std::size_t i = 0; i < kPointsMax; ++i)
    out.push_back(points[i * (points.size() - 1) / (kPointsMax - 1)]);
  return out;
}

template <typename Value>
Curve curve_of(const std::vector<EpochRecord>& history, std::string name, Value value) {
  Curve out{.name = std::move(name), .points = {}};
  for (const EpochRecord& record : history) {
    const double y = value(record);
    if (std::isfinite(y)) out.points.push_back({static_cast<double>(record.epoch), y});
  }
  out.points = thinned(out.points);
  return out;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// A picture of at most two curves over the epochs. Without points it is "".
std::string drawing(const std::string& title, std::vector<Curve> curves) {
  std::erase_if(curves, [](const Curve& one) { return one.points.empty(); });
  if (curves.empty()) return "";
  double left = curves[0].points[0].x, right = left;
  double low = curves[0].points[0].y, high = low;
  for (const Curve& one : curves) {
    for (const Point& point : one.points) {
      left = std::min(left, point.x);
      right = std::max(right, point.x);
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  constexpr double kLeft = 60, kRight = 460, kTop = 30, kBottom = 190;
  const auto x_of = [&](double x) {
    return right > left ? kLeft + (x - left) / (right - left) * (kRight - kLeft)
                        : (kLeft + kRight) / 2;
  };
  const auto y_of = [&](double y) {
    return high > low ? kBottom - (y - low) / (high - low) * (kBottom - kTop)
                      : (kTop + kBottom) / 2;
  };
  const auto text = [](double x, double y, const char* anchor, const std::string& what) {
    return "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\">" +
           escaped(what) + "</text>";
  };
  std::string out =
      "<figure><svg viewBox=\"0 0 480 220\" width=\"480\" height=\"220\" role=\"img\" "
      "aria-label=\"" +
      escaped(title + " by epoch") + "\">\n";
  for (const double y : {kTop, kBottom})
    out += "<line x1=\"60\" x2=\"460\" y1=\"" + fixed(y) + "\" y2=\"" + fixed(y) + "\"/>";
  out += text(kLeft - 6, kTop + 4, "end", number(high));
  if (high > low) out += text(kLeft - 6, kBottom + 4, "end", number(low));
  out += text(kLeft, kBottom + 20, "start", number(left));
  if (right > left) out += text(kRight, kBottom + 20, "end", number(right));
  out += text((kLeft + kRight) / 2, kBottom + 20, "middle", "epoch");
  static constexpr const char* kClasses[] = {"first", "second"};
  double legend = kLeft;
  for (std::size_t i = 0; i < curves.size() && i < 2; ++i) {
    const std::string& name = curves[i].name;
    out += "<circle class=\"" + std::string(kClasses[i]) + "\" cx=\"" + fixed(legend + 4) +
           "\" cy=\"14\" r=\"4\"/>" + text(legend + 14, 18, "start", name);
    legend += 40 + 7.0 * static_cast<double>(codec::utf8_length(name));
    std::string points;
    for (const Point& point : curves[i].points)
      points += (points.empty() ? "" : " ") + fixed(x_of(point.x)) + "," + fixed(y_of(point.y));
    if (curves[i].points.size() == 1) {
      const Point& only = curves[i].points[0];
      out += "<circle class=\"" + std::string(kClasses[i]) + "\" cx=\"" + fixed(x_of(only.x)) +
             "\" cy=\"" + fixed(y_of(only.y)) + "\" r=\"4\"/>";
    } else {
      out += "<polyline class=\"" + std::string(kClasses[i]) + "\" points=\"" + points + "\"/>";
    }
    out += "\n";
  }
  return out + "</svg><figcaption>" + escaped(title) + "</figcaption></figure>\n";
}

std::string curves(const std::vector<EpochRecord>& history) {
  std::string out = drawing(
      "Loss", {curve_of(history, "training", [](const EpochRecord& one) { return one.loss; }),
               curve_of(history, "evaluation", [](const EpochRecord& one) {
                 return one.evaluation_loss.value_or(kNone);
               })});
  const std::string metric = history.empty() ? "" : main_metric(history.back().metrics, "").first;
  if (!metric.empty()) {
    out += drawing("Evaluation: " + metric, {curve_of(history, metric, [&](const EpochRecord& one) {
                     const auto found = one.metrics.find(metric);
                     return found == one.metrics.end() ? kNone : found->second;
                   })});
  }
  if (out.empty()) return "<p>The run has no complete epoch.</p>\n";
  return "<div class=\"curves\">\n" + out + "</div>\n";
}

std::string epochs(const std::vector<EpochRecord>& history) {
  if (history.empty()) return "";
  const std::size_t first = history.size() > kEpochRowsMax ? history.size() - kEpochRowsMax : 0;
  std::string out = "<details><summary>Epochs</summary>\n";
  if (first > 0)
    out += "<p>The last " + std::to_string(kEpochRowsMax) + " of " + grouped(history.size()) +
           " epochs.</p>\n";
  out +=
      "<div class=\"wide\"><table class=\"list\"><tr><th class=\"n\">epoch</th>"
      "<th class=\"n\">loss</th><th class=\"n\">evaluation loss</th>"
      "<th>metrics</th><th class=\"n\">learning rate</th><th class=\"n\">time</th></tr>\n";
  for (std::size_t i = first; i < history.size(); ++i) {
    const EpochRecord& one = history[i];
    std::string metrics;
    for (const auto& [name, value] : one.metrics)
      metrics += (metrics.empty() ? "" : ", ") + name + " " + number(value);
    const auto cell = [](const std::string& text) {
      return "<td class=\"n\">" + escaped(text) + "</td>";
    };
    out += "<tr>" + cell(std::to_string(one.epoch)) + cell(number(one.loss)) +
           cell(one.evaluation_loss ? number(*one.evaluation_loss) : "") + "<td>" +
           escaped(metrics) + "</td>" + cell(number(one.learning_rate)) +
           cell(time_span(one.seconds)) + "</tr>\n";
  }
  return out + "</table></div></details>\n";
}

// ---- the confusion matrix

using Matrix = std::vector<std::vector<std::uint64_t>>;

std::uint64_t cell(const Matrix& matrix, std::size_t expected, std::size_t predicted) {
  return expected < matrix.size() && predicted < matrix[expected].size()
             ? matrix[expected][predicted]
             : 0;
}

std::string class_name(const Outcome& outcome, std::size_t index) {
  return index < outcome.classes.size() ? outcome.classes[index] : std::to_string(index);
}

/// All classes, or those with the most mistakes, in the order of the outputs.
std::vector<std::size_t> shown_classes(const Matrix& matrix) {
  std::vector<std::size_t> all(matrix.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (all.size() <= kClassesMax) return all;
  std::vector<std::uint64_t> mistakes(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      if (i == j) continue;
      mistakes[i] += cell(matrix, i, j);
      mistakes[j] += cell(matrix, i, j);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [&](std::size_t a, std::size_t b) { return mistakes[a] > mistakes[b]; });
  all.resize(kClassesMax);
  std::sort(all.begin(), all.end());
  return all;
}

std::string matrix_table(const Outcome& outcome, const std::vector<std::size_t>& shown) {
  std::string out = "<div class=\"wide\"><table class=\"confusion\"><tr><th></th>";
  for (const std::size_t j : shown) out += "<th>" + escaped(class_name(outcome, j)) + "</th>";
  out += "</tr>\n";
  for (const std::size_t i : shown) {
    std::uint64_t total = 0;
    for (std::size_t j = 0; j < outcome.confusion.size(); ++j)
      total += cell(outcome.confusion, i, j);
    out += "<tr><th>" + escaped(class_name(outcome, i)) + "</th>";
    for (const std::size_t j : shown) {
      const std::uint64_t count = cell(outcome.confusion, i, j);
      const double share = total == 0 ? 0 : static_cast<double>(count) / static_cast<double>(total);
      char shade[16];
      // A single mistake among thousands is visible too.
      std::snprintf(shade, sizeof shade, "%.2f", count == 0 ? 0.0 : 0.08 + 0.47 * share);
      out += std::string("<td class=\"") + (i == j ? "right" : "wrong") +
             "\" style=\"--shade: " + shade + "\">" + (count == 0 ? "" : grouped(count)) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string most_frequent_mistakes(const Outcome& outcome) {
  struct Mistake {
    std::uint64_t count = 0;
    std::size_t expected = 0, predicted = 0;
  };
  std::vector<Mistake> all;
  for (std::size_t i = 0; i < outcome.confusion.size(); ++i)
    for (std::size_t j = 0; j < outcome.confusion.size(); ++j)
      if (const std::uint64_t count = cell(outcome.confusion, i, j); i != j && count > 0)
        all.push_back({count, i, j});
  if (all.empty()) return "";
  std::stable_sort(all.begin(), all.end(),
                   [](const Mistake& a, const Mistake& b) { return a.count > b.count; });
  if (all.size() > kConfusionsMax) all.resize(kConfusionsMax);
  std::string out =
      "<h2>Most frequent mistakes</h2>\n<table class=\"list\"><tr><th>expected</th>"
      "<th>predicted</th><th class=\"n\">samples</th></tr>\n";
  for (const Mistake& one : all)
    out += "<tr><td>" + escaped(class_name(outcome, one.expected)) + "</td><td>" +
           escaped(class_name(outcome, one.predicted)) + "</td><td class=\"n\">" +
           grouped(one.count) + "</td></tr>\n";
  return out + "</table>\n";
}

std::string confusion(const Outcome& outcome) {
  if (outcome.confusion.empty()) return "";
  const std::vector<std::size_t> shown = shown_classes(outcome.confusion);
  std::string out =
      "<h2>Confusion matrix</h2>\n<p>A row has the evaluated samples of one class, and a column "
      "has one predicted class.";
  if (shown.size() < outcome.confusion.size())
    out += " The table has the " + std::to_string(shown.size()) + " of " +
           grouped(outcome.confusion.size()) + " classes with the most mistakes.";
  return out + "</p>\n" + matrix_table(outcome, shown) + most_frequent_mistakes(outcome);
}

// ---- the worst examples

std::string picture(const std::string& bytes) {
  const char* type = bytes.starts_with("\xff\xd8\xff")        ? "jpeg"
                     : bytes.starts_with("\x89PNG\r\n\x1a\n") ? "png"
                                                              : nullptr;
  if (type == nullptr) return "";
  if (bytes.size() > kPictureBytesMax)
    return "<p>The picture has " + grouped(bytes.size()) + " bytes and is not shown.</p>";
  return std::string("<img alt=\"\" src=\"data:image/") + type + ";base64," + codec::base64(bytes) +
         "\">";
}

std::string worst(const Outcome& outcome) {
  if (outcome.worst.empty()) return "";
  std::string out =
      "<h2>Worst examples</h2>\n<p>Evaluated samples with the highest loss. A wrong label in the "
      "data often is the cause.</p>\n<div class=\"worst\">\n";
  for (const training::Worst& one : outcome.worst)
    out += "<div class=\"card\">" + picture(one.picture) + "<div>expected <b>" +
           escaped(one.expected) + "</b>predicted <b>" + escaped(one.predicted) + "</b></div><p>" +
           escaped(one.place) + "<br>loss " + number(one.loss) + "</p></div>\n";
  return out + "</div>\n";
}

// ---- the base of a round

std::string comparison(const Json& comparison) {
  if (!comparison.is_object()) return "";
  const auto count = [](const Json& value) {
    return "<td class=\"n\">" + grouped(static_cast<std::uint64_t>(value.as_integer())) + "</td>";
  };
  std::string out =
      "<h2>Comparison with the base</h2>\n<table class=\"list\">\n<tr><th>samples</th>"
      "<th class=\"n\">number</th><th class=\"n\">base right</th>"
      "<th class=\"n\">candidate right</th></tr>\n";
  for (const Json& slice : comparison["slices"].as_array()) {
    const std::string name = slice["name"].as_string();
    out += "<tr><th>" + escaped(name) + "</th>" + count(slice["samples"]) +
           count(slice["baseRight"]) + count(slice["candidateRight"]) + "</tr>\n";
    std::size_t shown = 0;
    for (const Json& one : slice["classes"].as_array()) {
      if (++shown > kClassesMax) break;
      out += "<tr><td>" + escaped(name + ": " + one["name"].as_string()) + "</td>" +
             count(one["samples"]) + count(one["baseRight"]) + count(one["candidateRight"]) +
             "</tr>\n";
    }
  }
  return out + "</table>\n";
}

// ---- settings

void add_settings(const Json& value, const std::string& name, std::vector<std::string>& rows) {
  if (rows.size() >= kSettingsMax) return;
  if (value.is_object()) {
    for (const auto& [key, item] : value.as_object())
      add_settings(item, name.empty() ? key : name + "." + key, rows);
    return;
  }
  rows.push_back(row(name, value.is_string() ? value.as_string() : codec::write_json(value)));
}

std::string settings(const Report& report) {
  std::vector<std::string> rows;
  add_settings(report.settings, "", rows);
  std::string out = "<h2>Settings</h2>\n<table class=\"list\">\n";
  for (const std::string& one : rows) out += one;
  return out + "</table>\n";
}

std::string facts(const Report& report) {
  const Outcome& outcome = report.outcome;
  return "<h2>Run</h2>\n<table class=\"list\">\n" + row("initial model", report.model) +
         row("data", report.data) + row("evaluation", report.evaluation) +
         row("samples", grouped(outcome.samples)) +
         row("fingerprint of the data", outcome.fingerprint) +
         row("seed", codec::write_json(report.settings["seed"])) + row("engine", report.engine) +
         row("varda-train", VARDA_VERSION) + row("SHA-256 of model.onnx", report.digest) +
         "</table>\n";
}

}  // namespace

std::string html_report(const Report& report) {
  const Outcome& outcome = report.outcome;
  std::string out = kHead;
  out += "<h1>Training report</h1>\n<div class=\"cards\">\n";
  for (const auto& [name, value] : outcome.metrics) out += card(name, number(value));
  out += card("epochs", grouped(outcome.history.size())) +
         card("time", time_span(outcome.seconds)) + "</div>\n";
  if (outcome.stopped_early)
    out += "<p>Early stopping ended the run: the metric did not improve any more.</p>\n";
  out += "<h2>Curves</h2>\n" + curves(outcome.history) + epochs(outcome.history);
  out += comparison(report.comparison) + confusion(outcome) + worst(outcome) + facts(report) +
         settings(report);
  return out + "</body>\n</html>\n";
}

}  // namespace varda::trainapp
