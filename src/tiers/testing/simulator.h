// Simulator: many requests over unreliable tiers, in one thread and simulated time, all drawn from
// a seed.
//
// Answers and failures get lost, late, duplicated and reordered; tiers flap; clients hang up;
// cancelled calls answer anyway. The simulator records calls and deliveries, and checks every step
// of the machines against these records.
#pragma once

#include <cstdint>
#include <string>

namespace varda::tiers::testing {

/// Counts of events, so that a test can check that each kind occurs.
struct Seen {
  std::uint64_t requests = 0;
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;
  std::uint64_t disconnected = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t retries = 0;
  std::uint64_t probes = 0;
  std::uint64_t background_probes = 0;
  std::uint64_t openings = 0;
  std::uint64_t late_answers = 0;   // answers of cancelled calls that counted
  std::uint64_t descents = 0;       // skipped tiers that were called after all
  std::uint64_t limited = 0;        // InFlightLimit
  std::uint64_t doubled = 0;        // events delivered twice
  std::uint64_t unknown_calls = 0;  // events of calls that never existed
  std::uint64_t deadlines = 0;      // requests ended by the deadline
  std::uint64_t trace = 0;          // hash of all steps: equal for equal seeds

  void add(const Seen& other);
};

struct Outcome {
  std::string violation;  // "" if all invariants held
  Seen seen;
};

Outcome simulate(std::uint64_t seed);

}  // namespace varda::tiers::testing
