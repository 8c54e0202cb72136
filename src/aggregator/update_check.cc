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

}  // namespace

Metrics bounded_metrics(const codec::Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.as_object()) {
    if (out.size() == kMetricsMax) break;
    if (name.empty() || name.size() > kMetricNameBytesMax || !value.is_number()) continue;
    if (std::isfinite(value.as_double())) out.emplace(name, value.as_double());
  }
  return out;
}

federated::UpdateLimits UpdateCheck::limits(const std::string& task,
                                            const codec::Sha256& base) const {
  federated::UpdateLimits out;
  out.task = task;
  out.base = base;
  if (options_.norm_max > 0) out.norm_max = options_.norm_max;
  return out;
}

UpdateCheck::Checked UpdateCheck::file(os::FileSystem& fs, const os::Path& path,
                                       std::optional<double> norm, const std::string& task,
                                       const codec::Sha256& base) const {
  if (options_.masked)
    return checked_mask(federated::read_masked(fs, path, task, base,
                                               options_.layout->size() + federated::kMaskedTail));
  federated::UpdateLimits wanted = limits(task, base);
  if (norm) wanted.checked = federated::UpdateLimits::Checked{.norm = *norm};
  return checked(UpdateReader::open(fs, path, options_.layout, wanted));
}

UpdateCheck::Checked UpdateCheck::bytes(std::string bytes, const std::string& task,
                                        const codec::Sha256& base) const {
  if (options_.masked)
    return checked_mask(federated::parse_masked(std::move(bytes), task, base,
                                                options_.layout->size() + federated::kMaskedTail));
  return checked(UpdateReader::of(std::move(bytes), options_.layout, limits(task, base)));
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
