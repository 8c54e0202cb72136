// One seeded schedule of an incremental learning job: lost, late and repeated reports, cut links,
// restarts of operator, agents, workers and servers between any two steps, clocks that jump, full
// disks, edits of the spec, and candidates that are poisoned, fail live or do not load.
//
// The schedule ends with a quiet time without faults, in which a round must succeed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace varda::incremental::schedule {

struct Result {
  std::string problem;                                                 // the broken promise, or ""
  std::size_t accepted = 0, refused = 0, failed = 0, rolled_back = 0;  // rounds
  std::size_t restarts = 0;                                            // of the operator
  std::size_t conflicts = 0;                                           // writes of a stale operator
  std::size_t samples = 0;
};

Result run(std::uint64_t seed);

}  // namespace varda::incremental::schedule
