// The order of samples in an epoch.
#pragma once

#include <cstdint>
#include <vector>

namespace varda::train {

/// A permutation of 0 … count - 1. The same for the same seed and epoch, on every machine.
std::vector<std::size_t> epoch_order(std::size_t count, std::uint64_t seed, std::uint64_t epoch);

}  // namespace varda::train
