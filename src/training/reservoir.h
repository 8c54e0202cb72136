// A class-balanced sample of old samples, without a state of its own.
//
// A sample's rank is a digest of seed and id. The reservoir of a class keeps the lowest ranks,
// which is a uniform sample without replacement (bottom-k sampling, Cohen and Kaplan 2007). So a
// growing pool changes only few members, and a restart finds the same ones. Classes take turns
// until the reservoir is full, so rare classes keep all their samples (Chaudhry et al. 2019, "On
// Tiny Episodic Memories in Continual Learning", compare such memories).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "training/selection.h"

namespace varda::training {

struct ReservoirOptions {
  std::size_t samples = 0;    // of all classes together
  std::size_t per_class = 0;  // 0: no limit
  std::uint64_t seed = 1;
};

/// Positions in `ids`, ascending. `labels` has a class for each id, or is empty: one class.
std::vector<std::size_t> reservoir(std::span<const SampleId> ids,
                                   std::span<const std::int64_t> labels,
                                   const ReservoirOptions& options);

}  // namespace varda::training
