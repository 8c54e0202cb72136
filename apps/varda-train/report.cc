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

#include "../html_page.h"
#include "codec/digest.h"
#include "text.h"

namespace varda::trainapp {
namespace {

using app::card;
using app::Curve;
using app::escaped;
using app::row;
using codec::Json;
using training::EpochRecord;
using training::Outcome;

constexpr std::size_t kClassesMax = 30;     // rows of the confusion matrix
constexpr std::size_t kConfusionsMax = 15;  // pairs of classes below the matrix
constexpr std::size_t kEpochRowsMax = 100;
constexpr std::size_t kPictureBytesMax = 1 << 20;
constexpr std::size_t kSettingsMax = 100;

// ---- curves

template <typename Value>
Curve curve_of(const std::vector<EpochRecord>& history, std::string name, Value value) {
  Curve out{.name = std::move(name), .points = {}};
  for (const EpochRecord& record : history) {
    const double y = value(record);
    if (std::isfinite(y)) out.points.push_back({static_cast<double>(record.epoch), y});
  }
  out.points = app::thinned(out.points);
  return out;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string curves(const std::vector<EpochRecord>& history) {
  std::string out = app::drawing(
      "Loss", "epoch",
      {curve_of(history, "training", [](const EpochRecord& one) { return one.loss; }),
       curve_of(history, "evaluation",
                [](const EpochRecord& one) { return one.evaluation_loss.value_or(kNone); })});
  const std::string metric = history.empty() ? "" : main_metric(history.back().metrics, "").first;
  if (!metric.empty()) {
    out += app::drawing("Evaluation: " + metric, "epoch",
                        {curve_of(history, metric, [&](const EpochRecord& one) {
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
           (one.place.empty() ? "" : escaped(one.place) + "<br>") + "loss " + number(one.loss) +
           "</p></div>\n";
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
  std::string out = app::html_head("Training report");
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
