#include "train/order.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace varda::train {

std::vector<std::size_t> epoch_order(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), std::size_t{0});
  // The generator spreads neighbouring seeds, so that epochs have unrelated orders.
  const auto seeds = seeded_rng(seed);
  const auto rng = seeded_rng(seeds->next() + epoch);
  for (std::size_t i = count; i > 1; --i)
    std::swap(out[i - 1], out[static_cast<std::size_t>(rng->below(i))]);
  return out;
}

}  // namespace varda::train
