// The samples that a run holds out of the training data for its evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace varda::training {

struct Split {
  std::vector<std::size_t> train, evaluation;  // ascending
};

/// Holds out `part` of `count` samples, chosen by the seed. `labels` has the class of each sample;
/// then each class gives its part. Empty: all samples are alike. A class, or all samples, with two
/// or more gives at least one and keeps at least one.
Split hold_out(std::size_t count, std::span<const std::int64_t> labels, double part,
               std::uint64_t seed);

}  // namespace varda::training
