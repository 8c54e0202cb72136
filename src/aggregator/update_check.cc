#include "aggregator/update_check.h"

#include <cmath>
#include <memory>
#include <utility>

#include "federated/masked_update.h"

namespace varda::aggregator {

using federated::MaskedFile;
using federated::Metrics;
using federated::Refusal;
using federated::RefusalReason;
using federated::UpdateReader;

namespace {

constexpr std::size_t kMetricsMax = 64, kMetricNameBytesMax = 64;

UpdateCheck::Checked checked_mask(const Result<MaskedFile, Refusal>& file) {
  if (!file.ok()) return file.error();
  return CheckedUpdate{.metrics = bounded_metrics(file->info.metrics)};
}

federated::UpdateLimits limits_of(const UpdateCheck::Expected& expected) {
  federated::UpdateLimits out;
  out.task = expected.task;
  out.base = expected.base;
  if (expected.norm_max > 0) out.norm_max = expected.norm_max;
  return out;
}

}  // namespace

Metrics bounded_metrics(const Metrics& metrics) {
  Metrics out;
  for (const auto& [name, value] : metrics) {
    if (out.size() == kMetricsMax) break;
    if (name.empty() || name.size() > kMetricNameBytesMax || !std::isfinite(value)) continue;
    out.emplace(name, value);
  }
  return out;
}

Metrics bounded_metrics(const codec::Json& json) {
  Metrics numbers;
  for (const auto& [name, value] : json.as_object())
    if (value.is_number()) numbers.emplace(name, value.as_double());
  return bounded_metrics(numbers);
}

UpdateCheck::Checked UpdateCheck::file(os::FileSystem& fs, const os::Path& path,
                                       std::optional<double> norm, const Expected& expected) const {
  if (options_.masked)
    return checked_mask(federated::read_masked(fs, path, expected.task, expected.base,
                                               options_.layout->size() + federated::kMaskedTail));
  federated::UpdateLimits wanted = limits_of(expected);
  if (norm) wanted.checked = federated::UpdateLimits::Checked{.norm = *norm};
  return checked(UpdateReader::open(fs, path, options_.layout, wanted));
}

UpdateCheck::Checked UpdateCheck::bytes(std::string bytes, const Expected& expected) const {
  if (options_.masked)
    return checked_mask(federated::parse_masked(std::move(bytes), expected.task, expected.base,
                                                options_.layout->size() + federated::kMaskedTail));
  return checked(UpdateReader::of(std::move(bytes), options_.layout, limits_of(expected)));
}

UpdateCheck::Checked UpdateCheck::checked(UpdateReader::Opened opened) const {
  if (!opened.ok()) return std::move(opened).error();
  const UpdateReader& reader = **opened;
  CheckedUpdate out{.samples = static_cast<double>(reader.info().samples),
                    .norm = reader.norm(),
                    .control_norm = reader.control_norm(),
                    .metrics = bounded_metrics(reader.info().metrics)};
  const auto loss = out.metrics.find("loss");
  if (options_.needs_loss && (loss == out.metrics.end() || loss->second <= 0))
    return Refusal{RefusalReason::kFormat,
                   Error(Code::kInvalid, "the rule needs the metric loss, above 0")};
  if (options_.needs_control && !reader.has_control())
    return Refusal{RefusalReason::kFormat,
                   Error(Code::kInvalid, "the rule needs changes of control variates")};
  return out;
}

}  // namespace varda::aggregator
