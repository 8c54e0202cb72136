#include "transform/internal/boxes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace varda::transform::internal {
namespace {

struct Candidate {
  float score = 0;
  std::uint32_t box = 0;
  std::uint32_t label = 0;
};

bool better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.box != b.box ? a.box < b.box : a.label < b.label;
}

std::array<float, 4> corners_of(BoxFormat format, std::span<const float> b) {
  switch (format) {
    case BoxFormat::kXyxy:
      break;
    case BoxFormat::kXywh:
      return {b[0], b[1], b[0] + b[2], b[1] + b[3]};
    case BoxFormat::kCxcywh:
      return {b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
  }
  return {b[0], b[1], b[2], b[3]};
}

double area(const std::array<float, 4>& c) {
  return std::max(0.0, static_cast<double>(c[2]) - c[0]) *
         std::max(0.0, static_cast<double>(c[3]) - c[1]);
}

double overlap(const std::array<float, 4>& a, const std::array<float, 4>& b) {
  const std::array<float, 4> shared = {std::max(a[0], b[0]), std::max(a[1], b[1]),
                                       std::min(a[2], b[2]), std::min(a[3], b[3])};
  const double both = area(shared);
  const double joined = area(a) + area(b) - both;
  return joined > 0 ? both / joined : 0;
}

std::vector<Candidate> candidates(const NmsStep& step, std::span<const float> boxes,
                                  std::span<const float> scores, std::size_t classes) {
  const auto threshold = static_cast<float>(step.threshold);
  std::vector<Candidate> out;
  for (std::size_t box = 0; box < boxes.size() / 4; ++box) {
    const auto numbers = boxes.subspan(box * 4, 4);
    const std::array<float, 4> corners = corners_of(step.format, numbers);
    if (!std::all_of(corners.begin(), corners.end(), [](float x) { return std::isfinite(x); }))
      continue;
    for (std::size_t label = 0; label < classes; ++label) {
      const float score = scores[box * classes + label];
      if (score >= threshold && std::isfinite(score))
        out.push_back({score, static_cast<std::uint32_t>(box), static_cast<std::uint32_t>(label)});
    }
  }
  if (out.size() > kCandidatesMax) {
    std::nth_element(out.begin(), out.begin() + kCandidatesMax, out.end(), better);
    out.resize(kCandidatesMax);
  }
  std::sort(out.begin(), out.end(), better);
  return out;
}

}  // namespace

std::vector<Box> suppress(const NmsStep& step, std::span<const float> boxes,
                          std::span<const float> scores, std::size_t classes) {
  std::vector<Box> selected;
  for (const Candidate& candidate : candidates(step, boxes, scores, classes)) {
    if (selected.size() == static_cast<std::size_t>(step.max)) break;
    const Box box{corners_of(step.format, boxes.subspan(std::size_t{candidate.box} * 4, 4)),
                  candidate.score, candidate.label};
    const bool covered = std::any_of(selected.begin(), selected.end(), [&](const Box& other) {
      return other.label == box.label && overlap(box.corners, other.corners) > step.iou;
    });
    if (!covered) selected.push_back(box);
  }
  return selected;
}

}  // namespace varda::transform::internal
