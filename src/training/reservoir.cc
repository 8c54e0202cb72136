#include "training/reservoir.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace varda::training {

std::vector<std::size_t> reservoir(std::span<const SampleId> ids,
                                   std::span<const std::int64_t> labels,
                                   const ReservoirOptions& options) {
  CHECK(labels.empty() || labels.size() == ids.size());
  std::map<std::int64_t, std::vector<std::pair<std::uint64_t, std::size_t>>> classes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // The id is a digest already; the generator mixes the seed in.
    const std::uint64_t rank = seeded_rng(ids[i] ^ seeded_rng(options.seed)->next())->next();
    classes[labels.empty() ? 0 : labels[i]].emplace_back(rank, i);
  }
  for (auto& [label, members] : classes) {
    std::ranges::sort(members);
    if (options.per_class > 0 && members.size() > options.per_class)
      members.resize(options.per_class);
  }
  std::vector<std::size_t> out;
  for (std::size_t turn = 0; out.size() < options.samples; ++turn) {
    const std::size_t before = out.size();
    for (const auto& [label, members] : classes)
      if (turn < members.size() && out.size() < options.samples)
        out.push_back(members[turn].second);
    if (out.size() == before) break;
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace varda::training
