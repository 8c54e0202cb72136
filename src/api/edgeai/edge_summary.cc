#include "api/edgeai/edge_summary.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace varda::api {

namespace {

bool ready(const EdgeModel& model, const EdgeNodeStatus& status) {
  const EdgeModelReport* report = status.find_model(model.key);
  if (report == nullptr) return false;
  if (model.serving) {
    return report->serving && report->serving->state == EdgeServingReport::kReady &&
           report->serving->version == model.target;
  }
  const EdgeVersionReport* version = report->find_version(model.target);
  return version != nullptr && version->state == EdgeVersionReport::kReady;
}

bool ready(const EdgeDataset& dataset, const EdgeNodeStatus& status) {
  const EdgeDatasetReport* report = status.find_dataset(dataset.key);
  return report != nullptr && report->uid == dataset.uid && report->samples &&
         report->state != EdgeDatasetReport::kFailed;
}

template <typename Item>
std::string ready_of(const std::vector<Item>& items, const EdgeNodeStatus& status) {
  const auto count = std::count_if(items.begin(), items.end(),
                                   [&](const Item& item) { return ready(item, status); });
  return std::to_string(count) + "/" + std::to_string(items.size());
}

// Formats bytes as a Kubernetes quantity: "512Mi", "3.4Gi", "58Gi".
std::string quantity(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"", "Ki", "Mi", "Gi", "Ti"};
  double number = static_cast<double>(std::max<std::int64_t>(bytes, 0));
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), unit >= 3 && number < 10 ? "%.1f%s" : "%.0f%s", number,
                kUnits[unit]);
  return text.data();
}

// Archives leave a twentieth of the disk free, at most 64 MiB (artifact::DiskRoom).
bool is_full(const EdgeDisk& disk) {
  constexpr std::int64_t kReserveMax = 64 << 20, kReservePart = 20;
  return disk.available_bytes <= std::min(kReserveMax, disk.capacity_bytes / kReservePart);
}

}  // namespace

EdgeSummary summarize(const EdgeNodeSpec& spec, const EdgeNodeStatus& status) {
  EdgeSummary summary;
  summary.models = ready_of(spec.models, status);
  summary.datasets = ready_of(spec.datasets, status);
  if (status.disk.capacity_bytes > 0) {
    summary.disk = std::string(is_full(status.disk) ? "full: " : "") +
                   quantity(status.disk.available_bytes) + " free of " +
                   quantity(status.disk.capacity_bytes);
  }
  return summary;
}

}  // namespace varda::api
