// Simulator: many requests over tiers that come and go, in one thread and in a time of its own, all drawn from a seed.
//
// Answers and failures are lost, late, doubled, out of order and out of time; tiers flap; clients leave; calls that were ended
// answer all the same. It keeps its own books of what was asked and delivered, and compares every step of the machines with them.
#pragma once

#include <cstdint>
#include <string>

namespace varda::cascade::testing {

/// How often things happened, to see that they do.
struct Seen {
  std::uint64_t requests = 0;
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;
  std::uint64_t gone = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t retries = 0;
  std::uint64_t probes = 0;
  std::uint64_t background_probes = 0;
  std::uint64_t openings = 0;
  std::uint64_t late_answers = 0;  // of calls that nobody waited for any more, and that counted
  std::uint64_t descents = 0;      // a tier that was skipped, called after all
  std::uint64_t limited = 0;       // InFlightLimit
  std::uint64_t doubled = 0;       // events delivered twice
  std::uint64_t strangers = 0;     // events of calls that never were
  std::uint64_t deadlines = 0;     // ended by time
  std::uint64_t trace = 0;         // of all steps: the same for the same seed

  void add(const Seen& other);
};

struct Outcome {
  std::string violation;  // "" if all held
  Seen seen;
};

Outcome simulate(std::uint64_t seed);

}  // namespace varda::cascade::testing
