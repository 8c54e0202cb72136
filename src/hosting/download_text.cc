#include "hosting/download_text.h"

#include <array>
#include <cstdio>

#include "net/url.h"

namespace varda::hosting {
namespace {

std::string bytes_text(std::int64_t bytes) {
  static constexpr std::array<const char*, 4> kUnits{"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 9.95 ? "%.1f %s" : "%.0f %s", value,
                kUnits[unit]);
  return text.data();
}

}  // namespace

std::string download_text(const api::EdgeVersionReport& report, std::string_view url) {
  if (report.bytes_done <= 0) return "";
  std::string out = bytes_text(report.bytes_done);
  if (report.bytes_total > 0) out += " of " + bytes_text(report.bytes_total);
  const auto parsed = net::Url::parse(url);
  if (parsed.ok() && !parsed->host.empty()) {
    const std::string origin = parsed->origin();
    out += " from " + origin.substr(origin.find("://") + 3);
  }
  return out;
}

std::string progress_text(const api::EdgeVersionReport& report, std::string_view url) {
  const std::string far = download_text(report, url);
  return (far.empty() ? "" : ": " + far) +
         (report.message.empty() ? "" : "; the previous attempt failed: " + report.message);
}

}  // namespace varda::hosting
