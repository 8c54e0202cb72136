#include "support/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "codec/json.h"

namespace varda::bench {
namespace {

// Three digits are the precision of a figure from a busy machine.
std::string shown(double value) {
  char text[64];
  const double size = std::fabs(value);
  std::snprintf(text, sizeof text, size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : "%.2f", value);
  return text;
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

void Report::print(const std::string& file) const {
  std::printf(
      "| what | ours | reference | unit | ratio | aim | met |\n|---|---:|---:|---|---:|---|---|\n");
  codec::Json rows = codec::Json::array();
  for (const Figure& figure : figures_) {
    const std::string reference =
        figure.against.empty() ? "" : shown(figure.reference) + " (" + figure.against + ")";
    std::printf("| %s | %s | %s | %s | %s | %s | %s |\n", figure.what.c_str(),
                shown(figure.measured).c_str(), reference.c_str(), figure.unit.c_str(),
                figure.ratio > 0 ? (shown(figure.ratio) + "x").c_str() : "", figure.aim.c_str(),
                figure.aim.empty() ? ""
                : figure.met       ? "yes"
                                   : "**no**");
    codec::Json row = codec::Json::object(
        {{"what", figure.what}, {"ours", figure.measured}, {"unit", figure.unit}});
    if (!figure.against.empty()) {
      row.set("reference", figure.reference);
      row.set("against", figure.against);
    }
    if (figure.ratio > 0) row.set("ratio", figure.ratio);
    if (!figure.aim.empty()) {
      row.set("aim", figure.aim);
      row.set("met", figure.met);
    }
    rows.push_back(std::move(row));
  }
  for (const std::string& note : notes_) std::printf("\n%s\n", note.c_str());
  if (file.empty()) return;
  const codec::Json all = codec::Json::object({{"bench", name_}, {"figures", std::move(rows)}});
  std::ofstream(file) << codec::write_json_pretty(all) << "\n";
}

}  // namespace varda::bench
