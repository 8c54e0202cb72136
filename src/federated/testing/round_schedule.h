// One seeded schedule of a federated job: lost, late and repeated requests, cut links, restarts of
// the server between any two of its steps, and clocks that jump.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace varda::federated::schedule {

struct Result {
  std::string problem;  // the broken promise, or ""
  std::size_t restarts = 0;
  std::size_t folded = 0;   // updates that count in a later round
  std::size_t repeats = 0;  // of rounds with secure aggregation
  bool failed = false;      // the job ended without its rounds
};

Result run(std::uint64_t seed);

}  // namespace varda::federated::schedule
