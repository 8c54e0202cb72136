// Work over all coordinates of a model by several threads, with the same result for any number of
// them.
//
// The coordinates are cut into strips, and strips into blocks. Both sizes depend on the model and
// the number of updates only. A thread works on one strip at a time, and sums over coordinates are
// added in the order of the strips.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/context.h"

namespace varda::federated {

struct Walk {
  std::size_t size = 0;   // coordinates
  std::size_t block = 0;  // coordinates of one call of StripWorker::block()
  std::size_t strip = 0;  // a multiple of `block`
  std::size_t threads = 1;

  /// Strips of `updates` together have at most some 32 MB.
  static Walk over(std::size_t size, std::size_t block, std::size_t updates, std::size_t threads);
};

/// The work of one thread.
class StripWorker {
 public:
  virtual ~StripWorker() = default;
  /// Called in rising order inside a strip.
  virtual void block(std::size_t first, std::size_t count) = 0;
  /// Adds the sums of the strip to those of all strips, and clears them. Called by one thread at a
  /// time, in the order of the strips.
  virtual void commit() {}
};

/// Runs one worker for each thread. kCancelled, kTimeout: some strips may lack.
Status walk(const Context& ctx, const Walk& plan,
            const std::function<std::unique_ptr<StripWorker>()>& make_worker);

}  // namespace varda::federated
