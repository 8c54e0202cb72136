#include "training/split.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "train/order.h"

namespace varda::training {

Split hold_out(std::size_t count, std::span<const std::int64_t> labels, double part,
               std::uint64_t seed) {
  // No epoch of the training has this number.
  constexpr std::uint64_t kNoEpoch = UINT64_MAX;
  const auto label = [&](std::size_t index) { return labels.empty() ? 0 : labels[index]; };
  std::map<std::int64_t, std::size_t> left;  // samples to hold out, by class
  for (std::size_t i = 0; i < count; ++i) ++left[label(i)];
  for (auto& [one, samples] : left)
    if (samples == 1)
      samples = 0;
    else
      samples = std::clamp<std::size_t>(
          static_cast<std::size_t>(std::llround(static_cast<double>(samples) * part)), 1,
          samples - 1);
  Split out;
  for (const std::size_t index : train::epoch_order(count, seed, kNoEpoch)) {
    std::size_t& wanted = left[label(index)];
    (wanted > 0 ? out.evaluation : out.train).push_back(index);
    if (wanted > 0) --wanted;
  }
  std::sort(out.train.begin(), out.train.end());
  std::sort(out.evaluation.begin(), out.evaluation.end());
  return out;
}

}  // namespace varda::training
