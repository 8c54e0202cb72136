// Sums of updates with factors, block by block.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/context.h"
#include "federated/internal/walk.h"
#include "federated/update.h"

namespace varda::federated {

struct Term {
  const UpdateReader* update = nullptr;
  double factor = 0;
};

enum class UpdateSource { kDelta, kControl };

/// Gets sum of factor * update for the coordinates from `first` on, and may change it. Returns a
/// number that fold() adds up. Threads call it at once, for different coordinates.
using Sink = std::function<double(std::size_t first, std::span<double> sum)>;

/// The sum over the terms, in their order, in FP64. Returns the sum of the sink's numbers in the
/// order of the coordinates. `size`: coordinates.
Result<double> fold(const Context& ctx, std::span<const Term> terms, std::size_t size,
                    std::size_t threads, UpdateSource source, const Sink& sink);

/// Squared distances between the sum of the terms and the update of each term.
Result<std::vector<double>> squared_distances_to_sum(const Context& ctx,
                                                     std::span<const Term> terms, std::size_t size,
                                                     std::size_t threads);

/// Squared distances between all updates, row by row: n * n numbers.
Result<std::vector<double>> squared_distances(const Context& ctx,
                                              std::span<const UpdateReader* const> updates,
                                              std::size_t size, std::size_t threads);

/// A mean by coordinate over sorted values.
struct ColumnMean {
  enum class Kind { kRows, kNearMedian };
  Kind kind = Kind::kRows;
  std::size_t from = 0, to = 0;  // kRows: rows [from, to) of the sorted values
  std::size_t count = 0;         // kNearMedian: values closest to the median
};

/// For each coordinate the mean of some of the sorted values. As fold().
Result<double> fold_sorted(const Context& ctx, std::span<const UpdateReader* const> updates,
                           std::size_t size, std::size_t threads, const ColumnMean& mean,
                           const Sink& sink);

}  // namespace varda::federated
