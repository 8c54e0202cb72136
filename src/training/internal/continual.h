// Methods against forgetting in a run: replay, EWC, LwF and A-GEM.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "samples/samples.h"
#include "training/run.h"

namespace varda::training {

/// Adds the reservoir of `request.old` to `request.train`, and returns the number of its samples.
Result<std::uint64_t> add_replay(const Context& ctx, Request& request);

/// A class-balanced reservoir of the data, ascending.
Result<std::vector<std::size_t>> reservoir_of(const Context& ctx, const samples::Dataset& data,
                                              std::size_t samples, std::size_t per_class,
                                              std::uint64_t seed);

}  // namespace varda::training
