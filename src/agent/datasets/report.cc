#include "agent/datasets/report.h"

#include <algorithm>
#include <map>

#include "meta/object.h"

namespace varda::agent::datasets {
namespace {

// Limits in the schema of EdgeDatasetReport. A path in a message is cut, so that the rest of the
// message fits.
constexpr std::size_t kNameMax = 256, kFileMax = 1024, kWhyMax = 1024, kPathMax = 512,
                      kMessageMax = 2048;
constexpr std::size_t kRootsListed = 8;

std::string shown(const os::Path& path) { return fit(path.string(), kPathMax); }

std::string allowed(const std::vector<os::Path>& roots) {
  if (roots.empty())
    return "this node allows no directory: start its agent with --dataset-root DIR (varda up: "
           "--dataset-root [NODE=]DIR)";
  std::string out = "this node allows paths below ";
  for (std::size_t i = 0; i < std::min(roots.size(), kRootsListed); ++i)
    out += (i == 0 ? "" : ", ") + shown(roots[i]);
  if (roots.size() > kRootsListed)
    out += " and " + std::to_string(roots.size() - kRootsListed) + " more";
  return out;
}

bool below(const os::Path& path, const os::Path& root) {
  const os::Path normal = root.lexically_normal(),
                 base = normal.has_filename() ? normal : normal.parent_path();
  const os::Path inside = path.lexically_normal();
  return std::mismatch(base.begin(), base.end(), inside.begin(), inside.end()).first == base.end();
}

/// Length of the UTF-8 sequence at `at` (RFC 3629), or 0.
std::size_t sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)
    return follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && follows(2) ? 3
                                                                                              : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && follows(2) &&
                   follows(3)
               ? 4
               : 0;
  return 0;
}

}  // namespace

std::string fit(std::string_view text, std::size_t bytes_max) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence(text, at);
    const std::string_view piece = length > 0 ? text.substr(at, length) : "\xEF\xBF\xBD";
    if (out.size() + piece.size() > bytes_max) break;
    out += piece;
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

void drop_figures(api::EdgeDatasetReport& report) {
  api::EdgeDatasetReport bare;
  bare.key = std::move(report.key);
  bare.uid = std::move(report.uid);
  bare.state = std::move(report.state);
  bare.reason = std::move(report.reason);
  bare.message = std::move(report.message);
  report = std::move(bare);
}

bool same_figures(const api::EdgeDatasetReport& a, const api::EdgeDatasetReport& b) {
  const auto malformed = [](const api::EdgeDatasetReport& r) {
    const api::EdgeMalformed first = r.first_malformed.value_or(api::EdgeMalformed());
    return std::tuple(r.malformed, first.file, first.line, first.byte, first.why);
  };
  const auto same_class = [](const api::EdgeClassCount& x, const api::EdgeClassCount& y) {
    return x.name == y.name && x.count == y.count;
  };
  return a.samples == b.samples && a.bytes == b.bytes && a.fingerprint == b.fingerprint &&
         a.header == b.header && malformed(a) == malformed(b) &&
         a.further_classes == b.further_classes &&
         std::equal(a.classes.begin(), a.classes.end(), b.classes.begin(), b.classes.end(),
                    same_class);
}

void put_figures(const dataset::Counted& counted, std::size_t classes_max, WallTime now,
                 api::EdgeDatasetReport& report) {
  const dataset::Tally& tally = counted.tally;
  const api::EdgeDatasetReport before = report;
  drop_figures(report);
  report.samples = static_cast<std::int64_t>(tally.samples);
  report.bytes = static_cast<std::int64_t>(counted.bytes);
  report.inexact = fit(tally.inexact, kWhyMax);
  report.malformed = static_cast<std::int64_t>(tally.malformed);
  if (tally.first_malformed) {
    const dataset::Malformed& first = *tally.first_malformed;
    report.first_malformed = api::EdgeMalformed{.file = fit(first.file, kFileMax),
                                                .line = static_cast<std::int64_t>(first.line),
                                                .byte = static_cast<std::int64_t>(first.byte),
                                                .why = fit(first.why, kWhyMax),
                                                .unknown = {}};
  }
  std::map<std::string, std::int64_t> classes;
  report.further_classes = static_cast<std::int64_t>(tally.further_classes);
  for (const auto& [name, count] : tally.classes) {
    std::string published = classes.size() < classes_max ? fit(name, kNameMax) : "";
    if (published.empty()) {
      report.further_classes += static_cast<std::int64_t>(count);
    } else {
      classes[std::move(published)] += static_cast<std::int64_t>(count);
    }
  }
  for (const auto& [name, count] : classes)
    report.classes.push_back({.name = name, .count = count, .unknown = {}});
  report.header = tally.header;
  report.fingerprint = counted.fingerprint;
  // Class lists are not compared: their length depends on the number of datasets. These members
  // identify the data.
  const bool same = before.samples == report.samples && before.bytes == report.bytes &&
                    before.fingerprint == report.fingerprint &&
                    before.malformed == report.malformed;
  report.time = same ? before.time : meta::format_time(now);
}

std::size_t classes_max(std::size_t datasets) {
  constexpr std::size_t kProgressesTotal = 1024;
  return std::clamp<std::size_t>(kProgressesTotal / std::max<std::size_t>(datasets, 1), 8,
                                 api::EdgeDatasetReport::kClassesMax);
}

Failure refusal_of(const os::Path& path, const std::vector<os::Path>& roots) {
  if (!path.is_absolute())
    return {"PathForbidden", shown(path) + " is not an absolute path; " + allowed(roots)};
  if (roots.empty()) return {"PathForbidden", shown(path) + " may not be read: " + allowed(roots)};
  return {};
}

Failure failure_of(const Error& error, const os::Path& path, const std::vector<os::Path>& roots) {
  const auto failure = [&](std::string reason, std::string_view more = "") {
    return Failure{std::move(reason),
                   fit(fit(error.message(), kMessageMax - 1024) + std::string(more), kMessageMax)};
  };
  const bool inside = std::any_of(roots.begin(), roots.end(),
                                  [&](const os::Path& root) { return below(path, root); });
  const Failure outside{"PathForbidden", shown(path) + " may not be read: " + allowed(roots)};
  switch (error.code()) {
    case Code::kForbidden:
      return inside ? failure("PathForbidden", "; " + allowed(roots)) : outside;
    case Code::kNotFound:
      return inside ? failure("PathNotFound", "; " + allowed(roots)) : outside;
    case Code::kInvalid:
      return failure("FormatInvalid");
    default:
      return failure("ReadFailed");
  }
}

}  // namespace varda::agent::datasets
