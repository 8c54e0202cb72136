// Non-maximum suppression of boxes, per class.
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

/// Processes one image. `boxes` has four numbers per box in the declared format, `scores` has
/// `classes` numbers per box.
///
/// Candidates are the kCandidatesMax best pairs of box and class with a score of at least the
/// threshold. In order of score, each candidate is kept unless it overlaps a kept box of its class
/// by more than `iou`. At most `max` boxes are kept. Overlap is the shared area divided by the
/// joint area, and 0 for an empty joint area. Among equal scores the lower box number comes first,
/// then the lower class. Boxes and scores that are not finite are ignored. The result is in this
/// order, with corners in the units of `boxes`.
std::vector<Box> suppress(const NmsStep& step, std::span<const float> boxes,
                          std::span<const float> scores, std::size_t classes);

}  // namespace varda::transform::internal
