// Parts of reports: HTML files without scripts and without references to other files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "codec/text.h"

namespace varda::app {

inline constexpr std::size_t kHtmlTextBytesMax = 200;
inline constexpr std::size_t kCurvePointsMax = 400;

inline constexpr const char* kHtmlStyle = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
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
inline std::string escaped(std::string_view raw) {
  std::string text(raw);
  if (!codec::is_utf8(text))
    std::replace_if(
        text.begin(), text.end(),
        [](char c) { return (static_cast<unsigned char>(c) & 0x80U) != 0; }, '?');
  const std::string shown = codec::clipped(text, kHtmlTextBytesMax);
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

inline std::string fixed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

inline std::string card(const std::string& title, const std::string& value) {
  return "<div class=\"card\">" + escaped(title) + "<b>" + escaped(value) + "</b></div>\n";
}

inline std::string row(const std::string& name, const std::string& value) {
  return "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

/// The beginning of the file, up to the body's first element.
inline std::string html_head(const std::string& title) {
  std::string out = kHtmlStyle;
  return out.insert(out.find("<style>"), "<title>" + escaped(title) + "</title>\n");
}

/// At most four significant digits.
inline std::string four_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

struct Point {
  double x = 0, y = 0;
};
struct Curve {
  std::string name;
  std::vector<Point> points;
};

/// Keeps the first and the last point, and points at equal distances between them.
inline std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kCurvePointsMax) return points;
  std::vector<Point> out;
  for (std::size_t i = 0; i < kCurvePointsMax; ++i)
    out.push_back(points[i * (points.size() - 1) / (kCurvePointsMax - 1)]);
  return out;
}

/// A picture of at most two curves over `axis`, such as "epoch". Without points it is "".
inline std::string drawing(const std::string& title, const std::string& axis,
                           std::vector<Curve> curves) {
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
      escaped(title + " by " + axis) + "\">\n";
  for (const double y : {kTop, kBottom})
    out += "<line x1=\"60\" x2=\"460\" y1=\"" + fixed(y) + "\" y2=\"" + fixed(y) + "\"/>";
  out += text(kLeft - 6, kTop + 4, "end", four_digits(high));
  if (high > low) out += text(kLeft - 6, kBottom + 4, "end", four_digits(low));
  out += text(kLeft, kBottom + 20, "start", four_digits(left));
  if (right > left) out += text(kRight, kBottom + 20, "end", four_digits(right));
  out += text((kLeft + kRight) / 2, kBottom + 20, "middle", axis);
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

}  // namespace varda::app
