// Boxes: non-maximum suppression, class by class.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "transform/declaration.h"

namespace varda::transform::internal {

struct Box {
  std::array<float, 4> corners{};  // left, top, right, bottom
  float score = 0;
  std::size_t label = 0;
};

inline constexpr std::size_t kCandidatesMax = 30'000;

/// Of one image. `boxes` has four numbers a box in the declared format, `scores` `classes` numbers a box.
///
/// Candidates are all pairs of a box and a class that score at least the threshold: the kCandidatesMax best of them. From the best
/// on, one is kept unless it overlaps a kept one of its class by more than `iou` (shared area over joined area, 0 where nothing is
/// joined), until `max` are. Of equal scores the lower number of the box comes first, then the lower class. Boxes or scores that
/// are not finite are no candidates. The result is ordered so, and its corners are in the units of `boxes`.
std::vector<Box> suppress(const NmsStep& step, std::span<const float> boxes, std::span<const float> scores, std::size_t classes);

}  // namespace varda::transform::internal
