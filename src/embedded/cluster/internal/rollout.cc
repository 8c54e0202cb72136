#include "cluster/internal/rollout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cluster/internal/workload.h"

namespace varda::cluster {

namespace {

using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const std::vector<Share>& shares) {
  Sizes sizes;
  for (const Share& share : shares) sizes.push_back(share.replicas);
  return sizes;
}

std::int64_t sum(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

/// Takes `count` replicas from the old sets, oldest first, at most `of(share)` from each.
template <typename Of>
std::int64_t shrink(Sizes& sizes, const std::vector<Share>& shares, std::size_t fresh,
                    std::int64_t count, Of of) {
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < sizes.size() && taken < count; ++i) {
    if (i == fresh) continue;
    const std::int64_t portion =
        std::clamp<std::int64_t>(of(shares[i], sizes[i]), 0, count - taken);
    sizes[i] -= portion;
    taken += portion;
  }
  return taken;
}

/// Change of a ReplicaSet's size when the total changes, in proportion to its previous share.
std::int64_t in_proportion(const Bounds& bounds, const Share& share, std::int64_t status_replicas) {
  if (bounds.desired == 0) return -share.replicas;
  const std::int64_t then = share.total_max_then >= 0 ? share.total_max_then : status_replicas;
  if (then <= 0) return 0;
  const double size = static_cast<double>(share.replicas) *
                      static_cast<double>(bounds.desired + bounds.surge) /
                      static_cast<double>(then);
  return std::llround(size) - share.replicas;
}

}  // namespace

Bounds Bounds::of(const api::Deployment& deployment) {
  Bounds out;
  out.desired = std::max<std::int64_t>(deployment.spec.replicas.value_or(1), 0);
  const Json& strategy = deployment.spec.strategy;
  if (strategy["type"].as_string() == "Recreate") {
    out.recreate = true;
    return out;
  }
  out.surge = amount(strategy.at("rollingUpdate/maxSurge"), out.desired, Round::kUp, "25%");
  out.unavailable =
      amount(strategy.at("rollingUpdate/maxUnavailable"), out.desired, Round::kDown, "25%");
  if (out.surge == 0 && out.unavailable == 0) out.unavailable = 1;  // a roll-out needs some room
  out.unavailable = std::min(out.unavailable, out.desired);
  return out;
}

std::vector<std::int64_t> roll_out(const Bounds& bounds, const std::vector<Share>& shares,
                                   int fresh_index, bool old_pods_run) {
  Sizes sizes = sizes_of(shares);
  if (fresh_index < 0) return sizes;
  const auto fresh = static_cast<std::size_t>(fresh_index);
  const Share& now = shares[fresh];
  const std::int64_t old_total = sum(sizes) - now.replicas;
  if (bounds.recreate) {
    if (old_total > 0) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (i != fresh) sizes[i] = 0;
      }
    } else if (!old_pods_run) {
      sizes[fresh] = bounds.desired;  // never two versions at once, not even while one terminates
    }
    return sizes;
  }
  if (now.replicas > bounds.desired) {
    sizes[fresh] = bounds.desired;
    return sizes;
  }
  if (now.replicas < bounds.desired && sum(sizes) < bounds.total_max()) {
    sizes[fresh] += std::min(bounds.total_max() - sum(sizes), bounds.desired - now.replicas);
    return sizes;
  }
  if (old_total == 0) return sizes;

  // Uses the desired sizes: a set that was already scaled down must not be scaled down twice.
  std::int64_t available = 0;
  for (const Share& share : shares) available += share.available;
  const std::int64_t spare = sum(sizes) - bounds.available_min() - (now.replicas - now.available);
  if (spare <= 0) return sizes;
  // Unavailable old pods are removed first.
  const std::int64_t useless =
      shrink(sizes, shares, fresh, spare, [](const Share& share, std::int64_t size) {
        return std::min(share.replicas - share.available, size);
      });
  if (available > bounds.available_min()) {
    shrink(sizes, shares, fresh, std::min(available - bounds.available_min(), spare - useless),
           [](const Share&, std::int64_t size) { return size; });
  }
  return sizes;
}

std::vector<std::int64_t> scale_all(const Bounds& bounds, const std::vector<Share>& shares,
                                    int fresh, std::int64_t status_replicas) {
  Sizes sizes = sizes_of(shares);
  std::vector<std::size_t> active;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].replicas > 0) active.push_back(i);
  }
  if (active.size() <= 1) {
    if (shares.empty()) return sizes;
    const std::size_t only = !active.empty() ? active[0]
                             : fresh >= 0    ? static_cast<std::size_t>(fresh)
                                             : shares.size() - 1;
    sizes[only] = bounds.desired;
    return sizes;
  }
  if (fresh >= 0) {
    const Share& now = shares[static_cast<std::size_t>(fresh)];
    if (now.replicas == bounds.desired && now.scaled_for == bounds.desired &&
        now.available == bounds.desired) {
      for (const std::size_t i : active) {
        if (i != static_cast<std::size_t>(fresh)) sizes[i] = 0;
      }
      return sizes;
    }
  }
  if (bounds.recreate) return sizes;
  const std::int64_t change = bounds.total_max() - sum(sizes);
  if (change == 0) return sizes;
  // Largest first; among equals the newest grows first and the oldest shrinks first.
  std::stable_sort(active.begin(), active.end(), [&](std::size_t a, std::size_t b) {
    if (shares[a].replicas != shares[b].replicas) return shares[a].replicas > shares[b].replicas;
    return change > 0 ? a > b : a < b;
  });
  std::int64_t added = 0;
  for (const std::size_t i : active) {
    const std::int64_t part = in_proportion(bounds, shares[i], status_replicas);
    const std::int64_t left = change - added;
    const std::int64_t portion = change > 0 ? std::min(part, left) : std::max(part, left);
    sizes[i] += portion;
    added += portion;
  }
  sizes[active[0]] = std::max<std::int64_t>(sizes[active[0]] + change - added, 0);
  return sizes;
}

}  // namespace varda::cluster
